"""Kernels that run before or after those of the families: one module each, with all that is known of it.

A module has `kernel`, the record of the kernel for a plan, and `needed`: those that launches of a plan may need.
"""
