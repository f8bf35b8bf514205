"""Neighbourhoods on canvases: helpers that return tuples, clamps, floor division, Morton order."""

import math

import torch
from torch import IntTensor


def generate_neighbourhood(canvas_w: int, canvas_h: int, kernel_w: int, kernel_h: int):
    def get_x_y(idx: IntTensor) -> tuple[IntTensor, IntTensor]:
        return idx % canvas_w, idx // canvas_w

    def neighbourhood_mask(b, h, q_idx, kv_idx):
        q_x, q_y = get_x_y(q_idx)
        kv_x, kv_y = get_x_y(kv_idx)
        center_x = q_x.clamp(kernel_w // 2, (canvas_w - 1) - kernel_w // 2)
        center_y = q_y.clamp(kernel_h // 2, (canvas_h - 1) - kernel_h // 2)
        hori = (center_x - kv_x).abs() <= kernel_w // 2
        vert = (center_y - kv_y).abs() <= kernel_h // 2
        return hori & vert

    return neighbourhood_mask


def generate_tiled(canvas_w: int, canvas_h: int, kernel: int, tile_w: int, tile_h: int):
    tile_size = tile_w * tile_h
    tiles_per_row = canvas_w // tile_w

    def coordinates(idx):
        tile, inside = idx // tile_size, idx % tile_size
        tile_y, tile_x = tile // tiles_per_row, torch.remainder(tile, tiles_per_row)
        return tile_x * tile_w + inside % tile_w, tile_y * tile_h + inside // tile_w

    def tiled_mask(b, h, q_idx, kv_idx):
        q_x, q_y = coordinates(q_idx)
        kv_x, kv_y = coordinates(kv_idx)
        center_x = torch.clamp(q_x, min=kernel // 2, max=canvas_w - 1 - kernel // 2)
        center_y = torch.clamp(q_y, min=kernel // 2, max=canvas_h - 1 - kernel // 2)
        return (torch.abs(center_x - kv_x) <= kernel // 2) & (torch.abs(center_y - kv_y) <= kernel // 2)

    return tiled_mask


def morton_distance(bits: int = 3, reach: int = 2):
    def deinterleave(code):
        even = 0
        for i in range(bits):
            even = even | ((code >> (2 * i)) & 1) << i
        return even

    def morton_mask(b, h, q_idx, kv_idx):
        dx = deinterleave(q_idx) - deinterleave(kv_idx)
        dy = deinterleave(q_idx >> 1) - deinterleave(kv_idx >> 1)
        return torch.maximum(dx.abs(), dy.abs()) <= reach

    return morton_mask


def round_neighbourhood(side: int, radius: float):
    limit = math.ceil(radius**2)

    def disc(b, h, q_idx, kv_idx):
        dx = (q_idx % side) - (kv_idx % side)
        dy = (q_idx // side) - (kv_idx // side)
        return dx**2 + dy**2 < limit

    return disc


def attends_image(first, last, image_size=4):
    """Text attends to the image tokens that are given for each image."""

    def mask(b, h, q_idx, kv_idx):
        image = kv_idx // image_size
        return (first[image] <= q_idx) & (q_idx < last[image])

    return mask
