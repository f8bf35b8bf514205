# Written by attncc 0.2.0. Do not edit: `attncc build` writes this file anew.
"""Attention kernels, one function for each variant."""

from .alibi_documents import alibi_documents
from .causal import causal
from .mla_decode import mla_decode
from .natten import natten
from .relative_bias import relative_bias
from .softcap import softcap

__all__ = [
    "alibi_documents",
    "causal",
    "mla_decode",
    "natten",
    "relative_bias",
    "softcap",
]
