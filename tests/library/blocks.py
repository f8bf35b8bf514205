"""Masks that divide the positions into blocks, and trees of drafted tokens."""

from __future__ import annotations

import numpy as np

from attncc.evaluate import Array
from tests.library.cases import Drawn, Family, Random, int32, last_rows, positions

case = Family()


def blocks(length: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, length)) for first in range(0, length, size)]


def diagonal(inner: Array, kv_len: int) -> Array:
    """[kv_len, kv_len]: the square mask `inner` again and again along the diagonal, cut off at the end."""
    square = np.zeros((kv_len, kv_len), bool)
    for part in blocks(kv_len, len(inner)):
        square[part, part] = inner[: part.stop - part.start, : part.stop - part.start]
    return square


@case("block_diagonal", {"size": 1}, {"size": 5}, {"size": 100})
def block_diagonal(random: Random, q_len: int, kv_len: int, *, size: int) -> Drawn:
    return {}, last_rows(diagonal(np.ones((size, size), bool), kv_len), q_len)


@case("batchify", {"size": 1}, {"size": 5}, {"size": 100})
def batchify(random: Random, q_len: int, kv_len: int, *, size: int) -> Drawn:
    prefix_len = int(random.integers(0, size + 1))
    inner = np.tri(size, dtype=bool)
    inner[:, :prefix_len] = True
    return {"prefix_len": int32(prefix_len)}, last_rows(diagonal(inner, kv_len), q_len)


@case("mini_causal", {"size": 1}, {"size": 5}, {"size": 100})
def mini_causal(random: Random, q_len: int, kv_len: int, *, size: int) -> Drawn:
    """The rows of a lower triangle, repeated in both directions, also before the first key."""
    wide = np.tile(np.tri(size, dtype=bool), -(-kv_len // size))[:, :kv_len]
    return {}, wide[[place % size for place in positions(q_len, kv_len)]]


@case("block_diffusion", {"block": 1}, {"block": 4}, {"block": 7}, {"block": 24})
def block_diffusion(random: Random, q_len: int, kv_len: int, *, block: int) -> Drawn:
    """The paper's three masks: block-diagonal on the noised half, earlier blocks across, block-causal on the clean."""
    noised, clean = kv_len // 2, kv_len - kv_len // 2
    own, text = np.arange(noised) // block, np.arange(clean) // block
    square = np.block(
        [
            [own[:, None] == own, own[:, None] > text],
            [np.zeros((clean, noised), bool), text[:, None] >= text],
        ]
    )
    return {}, last_rows(square, q_len)


@case("jetspec_tree")
def jetspec_tree(random: Random, q_len: int, kv_len: int) -> Drawn:
    """Each node's parent comes before it; a query walks up to the root."""
    nodes = max(q_len - int(random.integers(0, 3)), 1)
    ancestor = np.zeros((2, q_len, nodes), bool)
    kept = np.zeros((2, 1, q_len, kv_len), bool)
    context = kv_len - q_len
    kept[..., : max(context, 0)] = True
    for b in range(2):
        parents = [int(random.integers(max(node - 4, 0), node)) if node else -1 for node in range(nodes)]
        for row in range(nodes):
            node = row
            while node >= 0:
                ancestor[b, row, node] = True
                if context + node >= 0:
                    kept[b, 0, row, context + node] = True
                node = parents[node]
    return {"ancestor": ancestor}, kept


@case("speculative_tree")
def speculative_tree(random: Random, q_len: int, kv_len: int) -> Drawn:
    """Of the first 64 nodes; what is beyond them sees the context alone, and nobody sees it."""
    nodes, context = min(q_len, 64), kv_len - q_len
    ancestors = np.zeros((2, q_len), np.int64)
    kept = np.zeros((2, 1, q_len, kv_len), bool)
    kept[..., : max(context, 0)] = True
    for b in range(2):
        seen: list[set[int]] = []
        for node in range(nodes):
            parent = int(random.integers(max(node - 4, 0), node)) if node else -1
            seen.append({node} | (seen[parent] if parent >= 0 else set()))
            word = sum(1 << other for other in seen[node])
            ancestors[b, node] = word - (1 << 64 if word >> 63 else 0)
            for other in seen[node]:
                if context + other >= 0:
                    kept[b, 0, node, context + other] = True
    return {"ancestors": ancestors}, kept


@case("jetspec_training", {"block": 1}, {"block": 4}, {"block": 7}, {"block": 40})
def jetspec_training(random: Random, q_len: int, kv_len: int, *, block: int) -> Drawn:
    """A context of ones before blocks of lower triangles."""
    context = kv_len - q_len
    own = diagonal(np.tri(block, dtype=bool), q_len)
    return {}, np.hstack([np.ones((q_len, max(context, 0)), bool), own[:, max(-context, 0) :]])


@case("block_map", {"block_rows": 4, "block_keys": 3}, {"block_rows": 64, "block_keys": 64})
def block_map(random: Random, q_len: int, kv_len: int, *, block_rows: int, block_keys: int) -> Drawn:
    """A map that may end before the last block."""
    rows, columns = -(-q_len // block_rows), max(-(-kv_len // block_keys) - int(random.integers(0, 2)), 1)
    live = random.random((2, 3, rows, columns)) < 0.4
    kept = np.zeros((2, 3, q_len, kv_len), bool)
    for b, h, i, j in np.argwhere(live):
        kept[b, h, i * block_rows : (i + 1) * block_rows, j * block_keys : (j + 1) * block_keys] = True
    return {"live": live}, kept


@case("vsa", {"tile": 4, "top": 2}, {"tile": 3, "top": 1}, {"tile": 64, "top": 4})
def vsa(random: Random, q_len: int, kv_len: int, *, tile: int, top: int) -> Drawn:
    """Some numbers are repeated or name no tile; some tiles are padded."""
    q_tiles, kv_tiles = -(-q_len // tile), -(-kv_len // tile)
    chosen = random.integers(-1, kv_tiles + 1, (2, 3, q_tiles, top))
    sizes = np.where(random.random(kv_tiles) < 0.5, tile, random.integers(1, tile + 1, kv_tiles))
    kept = np.zeros((2, 3, q_len, kv_len), bool)
    for b, h, i in np.ndindex(2, 3, q_tiles):
        for j in set(chosen[b, h, i].tolist()) & set(range(kv_tiles)):
            kept[b, h, i * tile : (i + 1) * tile, j * tile : j * tile + sizes[j]] = True
    return {"chosen": int32(chosen), "size": int32(sizes)}, kept
