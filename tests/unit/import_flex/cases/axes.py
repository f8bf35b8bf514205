"""Tensors with axes inside of a mod, whose shapes the file or the target tells."""

import torch

STEPS = torch.tensor([3, 7, 11])
TABLE = torch.arange(24).reshape(4, 6)
GRID = torch.zeros(4, 3)


def selected_tiles(tiles, size):
    """Tiles of keys that each tile of queries attends to, compared along a new axis."""

    def mask_mod(b, h, q_idx, kv_idx):
        chosen = tiles[b, h, q_idx // size]
        return (chosen == (kv_idx // size).unsqueeze(-1)).any(dim=-1)

    return mask_mod


def shared_tags(tags):
    """Pairs that have at least as many tags in common as half of the tags."""

    def mask_mod(b, h, q_idx, kv_idx):
        both = (tags[b, q_idx] & tags[b, kv_idx]).sum(-1)
        return torch.any(tags[b][kv_idx]) & (both * 2 >= tags.shape[-1])

    return mask_mod


def steps(b, h, q_idx, kv_idx):
    """Boundaries of the file, by both functions for them, and a list."""
    same = torch.bucketize(q_idx, STEPS) == torch.searchsorted(STEPS, kv_idx, right=True)
    return same | torch.isin(kv_idx, torch.tensor([1, 4])) | (torch.arange(2, 8, 3) == kv_idx).any()


def extremes(b, h, q_idx, kv_idx):
    far = torch.max(q_idx, kv_idx) - torch.min(q_idx, kv_idx)
    return (far < 5) | q_idx.new_zeros((), dtype=torch.bool) | (kv_idx == q_idx.new_zeros(1)).all()


def products(vectors, rows):
    """A dot product for each pair, the mean of a row, and a part of one."""

    def score_mod(score, b, h, q_idx, kv_idx):
        near = torch.dot(vectors[b, q_idx], vectors[b, kv_idx])
        return score + near + rows[h].mean() - rows[h, 1:].amax() + rows[..., -1][h]

    return score_mod


def parts(table):
    """Indices that count from the end of a part: what stands before the part is another element."""

    def score_mod(score, b, h, q_idx, kv_idx):
        known = table[1:][-1, 2] + table[:, 2:6][h, -4]
        some = table[2:][h % 2 - 2, 0] + table[h, 3:][q_idx % 5 - 5] + table[h][1::2][kv_idx % 3 - 3]
        return score + known + some + table[:3][1:][h % 2 - 2, kv_idx % 8]

    return score_mod
