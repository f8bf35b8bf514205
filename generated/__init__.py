# Written by attncc 0.1.0. Do not edit: `attncc build` writes this file anew.
"""Attention kernels, one function for each variant."""

from .alibi import alibi
from .alibi_documents import alibi_documents
from .alibi_signed import alibi_signed
from .alibi_symmetric import alibi_symmetric
from .batch_bias import batch_bias
from .batchify import batchify
from .block_diagonal import block_diagonal
from .block_diffusion import block_diffusion
from .block_map import block_map
from .causal import causal
from .causal_top_left import causal_top_left
from .decode import decode
from .dilated_sliding_window import dilated_sliding_window
from .dilated_window import dilated_window
from .documents import documents
from .documents_bidirectional import documents_bidirectional
from .documents_by_start import documents_by_start
from .documents_prefix_lm import documents_prefix_lm
from .doubled_score import doubled_score
from .dropout_attention import dropout_attention
from .flamingo import flamingo
from .flash_attention_1 import flash_attention_1
from .full import full
from .gelu_attention import gelu_attention
from .global_sliding_window import global_sliding_window
from .graphormer_edge import graphormer_edge
from .graphormer_spatial import graphormer_spatial
from .head_and_query_bias import head_and_query_bias
from .head_factor import head_factor
from .inverse_causal import inverse_causal
from .jetspec_training import jetspec_training
from .jetspec_tree import jetspec_tree
from .key_bias import key_bias
from .key_threshold import key_threshold
from .local_window import local_window
from .mini_causal import mini_causal
from .mla import mla
from .morton_natten import morton_natten
from .natten import natten
from .paged import paged
from .prefix_lm import prefix_lm
from .query_bias import query_bias
from .relative_bias import relative_bias
from .relative_causal import relative_causal
from .relative_distance import relative_distance
from .relu_attention import relu_attention
from .sandwich import sandwich
from .selected_attention import selected_attention
from .shared_prefix import shared_prefix
from .sigmoid_attention import sigmoid_attention
from .silu_attention import silu_attention
from .sink_attention import sink_attention
from .sliding_window import sliding_window
from .softcap import softcap
from .squared_score import squared_score
from .sta_2d import sta_2d
from .sta_3d import sta_3d
from .svg_spatial import svg_spatial
from .svg_temporal import svg_temporal
from .tiled_natten import tiled_natten
from .token_window import token_window
from .trigonometric import trigonometric
from .vsa import vsa

__all__ = [
    "alibi",
    "alibi_documents",
    "alibi_signed",
    "alibi_symmetric",
    "batch_bias",
    "batchify",
    "block_diagonal",
    "block_diffusion",
    "block_map",
    "causal",
    "causal_top_left",
    "decode",
    "dilated_sliding_window",
    "dilated_window",
    "documents",
    "documents_bidirectional",
    "documents_by_start",
    "documents_prefix_lm",
    "doubled_score",
    "dropout_attention",
    "flamingo",
    "flash_attention_1",
    "full",
    "gelu_attention",
    "global_sliding_window",
    "graphormer_edge",
    "graphormer_spatial",
    "head_and_query_bias",
    "head_factor",
    "inverse_causal",
    "jetspec_training",
    "jetspec_tree",
    "key_bias",
    "key_threshold",
    "local_window",
    "mini_causal",
    "mla",
    "morton_natten",
    "natten",
    "paged",
    "prefix_lm",
    "query_bias",
    "relative_bias",
    "relative_causal",
    "relative_distance",
    "relu_attention",
    "sandwich",
    "selected_attention",
    "shared_prefix",
    "sigmoid_attention",
    "silu_attention",
    "sink_attention",
    "sliding_window",
    "softcap",
    "squared_score",
    "sta_2d",
    "sta_3d",
    "svg_spatial",
    "svg_temporal",
    "tiled_natten",
    "token_window",
    "trigonometric",
    "vsa",
]
