"""Benchmarks against what a user would pick instead; each is run as `python -m benchmarks.<name>` from the root."""
