"""Score mods: ALiBi, soft caps, relative tables, buckets, graphs."""

# ruff: noqa: N803, N812, PLR0402

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SLOPES = torch.exp2(torch.linspace(-1, -4, 4))
bias_table = nn.Parameter(torch.linspace(-1, 1, 4 * 9).reshape(4, 9))
NEG_INF = float("-inf")
CAP = 30.0


def generate_alibi_bias(H: int):
    def alibi_mod(score, b, h, q_idx, kv_idx):
        scale = torch.exp2(-((h + 1) * 8.0 / H))
        bias = (kv_idx - q_idx) * scale
        return score + bias

    return alibi_mod


def alibi_slopes(score, b, h, q_idx, kv_idx):
    return score - SLOPES[h] * (q_idx - kv_idx).abs()


def generate_tanh_softcap(soft_cap: int, approx: bool = False):
    tanh = _tanh_approx if approx else torch.tanh

    def tanh_softcap(score, b, h, q_idx, kv_idx):
        return soft_cap * tanh(score / soft_cap)

    return tanh_softcap


@torch.library.custom_op("mine::tanh_approx", mutates_args=())
def _tanh_approx(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


def capped(score, b, h, q_idx, kv_idx):
    score = score / CAP
    score = torch.tanh(score)
    score = score * CAP
    return torch.where(q_idx >= kv_idx, score, NEG_INF)


def relative_bias(score, b, h, q_idx, kv_idx):
    distance = torch.clamp(kv_idx - q_idx, -4, 4) + 4
    return score + bias_table[h, distance]


def causal_then_bias(score, b, h, q_idx, kv_idx):
    score = torch.where(kv_idx <= q_idx, score, -math.inf)
    return score + 0.25 * (q_idx - kv_idx)


def bucketed(table, num_buckets=8, max_distance=16):
    """T5's buckets: half of them exact, the others logarithmic."""
    exact = num_buckets // 2

    def bucket_mod(score, b, h, q_idx, kv_idx):
        n = torch.clamp_min(q_idx - kv_idx, 0)
        ratio = torch.log(n.clamp(min=1).float() / exact) / math.log(max_distance / exact)
        large = exact + (ratio * (num_buckets - exact)).to(torch.int64)
        large = torch.clamp(large, max=num_buckets - 1)
        bucket = torch.where(n < exact, n, large)
        return score + table[bucket, h]

    return bucket_mod


def graph_edges(path_length, edge_type, edge_bias, max_path=3):
    def edge_mod(score, b, h, q_idx, kv_idx):
        length = path_length[b, q_idx, kv_idx]
        bias = 0.0
        for n in range(max_path):
            bias = bias + torch.where(n < length, edge_bias[h, n, edge_type[b, q_idx, kv_idx, n]], 0.0)
        return score + bias / length.clamp_min(1)

    return edge_mod


def temperature(score, b, h, q_idx, kv_idx):
    """Positions far out get sharper scores; the raw score is used again at the end."""
    raw = score
    score = score * torch.log1p(q_idx.float())
    score = F.softplus(score)
    return score + torch.sigmoid(raw) / math.sqrt(64)


def additive(attn_bias):
    def mod(score, b, h, q_idx, kv_idx):
        allowed = torch.where(kv_idx <= q_idx, 0.0, float("-inf"))
        return score + attn_bias[b, h, q_idx, kv_idx] + allowed

    return mod


def penalised(score, b, h, q_idx, kv_idx):
    far = (q_idx - kv_idx) > 8
    return score + far * -1e9


def filled(score, b, h, q_idx, kv_idx):
    return score.masked_fill(kv_idx > q_idx, float("-inf"))
