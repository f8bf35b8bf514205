"""Adapters to libraries that hand their attention over: a module for each, imported by name."""
