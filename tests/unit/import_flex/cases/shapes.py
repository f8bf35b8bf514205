"""Masks that another file imports."""

SIDE = 8


def half_plane(b, h, q_idx, kv_idx):
    return q_idx + kv_idx >= SIDE


def inside_square(b, h, q_idx, kv_idx):
    return (q_idx < SIDE) & (kv_idx < SIDE)
