# Written by attncc 0.2.0. Do not edit: `attncc build` writes this file anew.
"""Attention kernels, one function for each variant."""

from .causal import causal

__all__ = [
    "causal",
]
