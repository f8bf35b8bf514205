"""Kernels that run before or after those of the families: one module each, with everything about the kernel.

Each module has `kernel`, the record of the kernel for a plan, and `needed`, the records that launches of a plan may
need. `append` alone is no plan's: it serves `attncc.append`.
"""
