# Written by attncc 0.2.0. Do not edit: `attncc build` writes this file anew.
"""Attention kernels, one function for each variant."""

from .alibi_documents import alibi_documents
from .causal import causal
from .natten import natten
from .paged import paged
from .relative_bias import relative_bias

__all__ = [
    "alibi_documents",
    "causal",
    "natten",
    "paged",
    "relative_bias",
]
