"""Blocks: diffusion over noised and clean halves, block maps, video, trees."""

# ruff: noqa: PLR0917

import torch


def block_diffusion_mask(b, h, q_idx, kv_idx, block_size=4, n=12):
    """q and kv count noised tokens below n, clean ones from n on."""
    x0_flag_q = q_idx >= n
    x0_flag_kv = kv_idx >= n
    block_q = torch.where(x0_flag_q == 1, (q_idx - n) // block_size, q_idx // block_size)
    block_kv = torch.where(x0_flag_kv == 1, (kv_idx - n) // block_size, kv_idx // block_size)
    block_diagonal = (block_q == block_kv) & (x0_flag_q == x0_flag_kv)
    offset_block_causal = (block_q > block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 0)
    block_causal = (block_q >= block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 1)
    return block_diagonal | offset_block_causal | block_causal


class BlockSparse:
    """A mask that is a method, as in a module of a model."""

    def __init__(self, block_map, block_size: int):
        self.block_map = block_map
        self.block_size = block_size

    def mask_mod(self, b, h, q_idx, kv_idx):
        return self.block_map[b, h, q_idx // self.block_size, kv_idx // self.block_size]


def video(context_length, frame_size, width, first_frame_sink: bool = False):
    sink_end = context_length + frame_size if first_frame_sink else context_length

    def spatial(b, h, q_idx, kv_idx):
        to_sink = kv_idx < sink_end
        from_text = q_idx < context_length
        near = torch.abs(q_idx - kv_idx) < width
        return to_sink | from_text | near

    def temporal(b, h, q_idx, kv_idx):
        q_place = (q_idx - context_length) % frame_size
        kv_place = (kv_idx - context_length) % frame_size
        return (kv_idx < context_length) | (q_idx < context_length) | ((q_place - kv_place).abs() < width)

    return spatial, temporal


def tree(ancestors, prompt: int):
    def mask(b, h, q_idx, kv_idx):
        node = torch.clamp(kv_idx - prompt, min=0)
        return (kv_idx < prompt) | ((kv_idx >= prompt) & ancestors[q_idx, node])

    return mask


def batchify(mask_mod, length: int):
    def mask(b, h, q_idx, kv_idx):
        same = q_idx // length == kv_idx // length
        return mask_mod(b, h, q_idx % length, kv_idx % length) & same

    return mask


def causal(b, h, q, k):
    return ~(k > q)


def top_k_blocks(top_k, count=3, tile=4):
    def mask(b, h, q_idx, kv_idx):
        return any(top_k[b, h, q_idx // tile, i] == kv_idx // tile for i in range(count))

    return mask


def top_k_written_out(top_k, count=3, tile=4):
    def mask(b, h, q_idx, kv_idx):
        found = torch.zeros((), dtype=torch.bool)
        for i in range(count):
            found = found | (top_k[b, h, q_idx // tile, i] == kv_idx // tile)
        return found

    return mask
