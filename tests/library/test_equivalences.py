"""Specs that must agree with each other, without any definition of either: other orders, other words, copies."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.evaluate import Array
from tests.library.cases import int32, parsed


def mask(spec: str, q_len: int, kv_len: int, inputs: dict[str, Array] | None = None, **consts: int) -> Array:
    return parsed(spec, tuple(consts.items())).mask(q_len, kv_len, **(inputs or {}))[0, 0]


@pytest.mark.parametrize(
    ("width", "height", "kernel"), [(8, 4, (3, 3)), (6, 12, (5, 3)), (4, 4, (9, 1)), (8, 8, (4, 2))]
)
def test_tiled_natten_is_natten_in_another_order(width: int, height: int, kernel: tuple[int, int]) -> None:
    sides = {"canvas_width": width, "canvas_height": height, "kernel_width": kernel[0], "kernel_height": kernel[1]}
    pixels = width * height
    order = np.arange(pixels).reshape(height // 2, 2, width // 2, 2).transpose(0, 2, 1, 3).ravel()
    tiled = mask("tiled_natten", pixels, pixels, **sides, tile_width=2, tile_height=2)
    np.testing.assert_array_equal(tiled, mask("natten", pixels, pixels, **sides)[np.ix_(order, order)])


@pytest.mark.parametrize("kernel", [(3, 3), (5, 1), (2, 9)])
def test_morton_natten_is_natten_in_another_order(kernel: tuple[int, int]) -> None:
    kernel_sides = {"kernel_width": kernel[0], "kernel_height": kernel[1]}
    order = np.arange(64).reshape(2, 2, 2, 2, 2, 2).transpose(0, 3, 1, 4, 2, 5).ravel()
    natten = mask("natten", 64, 64, canvas_width=8, canvas_height=8, **kernel_sides)
    np.testing.assert_array_equal(mask("morton_natten", 64, 64, bits=3, **kernel_sides), natten[np.ix_(order, order)])


def test_natten_on_a_grid_that_is_not_square() -> None:
    """8 x 4 pixels: every pixel sees nine, itself among them."""
    found = mask("natten", 32, 32, canvas_width=8, canvas_height=4, kernel=3)
    assert (found.sum(axis=1) == 9).all()
    assert found.diagonal().all()


def test_sliding_tiles_of_one_pixel_are_natten() -> None:
    found = mask("sta_2d", 45, 45, {"text_len": int32(0)}, tile=1, across=9, down=5, kernel_across=5, kernel_down=3)
    natten = mask("natten", 45, 45, canvas_width=9, canvas_height=5, kernel_width=5, kernel_height=3)
    np.testing.assert_array_equal(found, natten)


def test_sliding_tiles_of_a_flat_video_are_those_of_an_image() -> None:
    sides = {"tile": 3, "across": 4, "down": 3, "kernel_across": 2, "kernel_down": 3}
    text = {"text_len": int32(4)}
    video = mask("sta_3d", 40, 40, text, **sides, long=1, kernel_long=1)
    np.testing.assert_array_equal(video, mask("sta_2d", 40, 40, text, **sides))


@pytest.mark.parametrize(("q_len", "kv_len"), [(9, 9), (4, 9), (12, 9)])
def test_wide_windows_are_causal_or_full(q_len: int, kv_len: int) -> None:
    causal = mask("causal", q_len, kv_len)
    np.testing.assert_array_equal(mask("sliding_window", q_len, kv_len, width=9), causal)
    np.testing.assert_array_equal(mask("dilated_window", q_len, kv_len, width=9, step=1), causal)
    wide = {"left": int32(9), "right": int32(0)}
    np.testing.assert_array_equal(mask("local_window", q_len, kv_len, wide), causal)


@pytest.mark.parametrize("q_len", [14, 5])
def test_documents_in_three_ways(q_len: int) -> None:
    doc = np.repeat([0, 1, 2], [3, 5, 6])[None]
    start = np.repeat([0, 3, 8], [3, 5, 6])[None]
    expected = mask("documents", q_len, 14, {"doc": int32(doc)})
    np.testing.assert_array_equal(mask("documents_by_start", q_len, 14, {"start": int32(start)}), expected)
    without_prefix = {"start": int32(start), "prefix_end": int32(start)}
    np.testing.assert_array_equal(mask("documents_prefix_lm", q_len, 14, without_prefix), expected)
    alone = {"start": int32(start), "prefix_first": int32(start), "prefix_end": int32(start)}
    np.testing.assert_array_equal(mask("shared_prefix", q_len, 14, alone), expected)


def test_a_shared_prefix_is_as_good_as_copies_of_it() -> None:
    """A prompt of 3 and answers of 2 and 4: each answer's rows are those of prompt and answer laid end to end."""
    start = np.repeat([0, 3, 5], [3, 2, 4])[None]
    first, end = np.zeros((1, 9), int), np.repeat([0, 3, 3], [3, 2, 4])[None]
    inputs = {"start": int32(start), "prefix_first": int32(first), "prefix_end": int32(end)}
    found = mask("shared_prefix", 9, 9, inputs)
    for answer in (slice(3, 5), slice(5, 9)):
        own = np.r_[0:3, answer]
        np.testing.assert_array_equal(found[np.ix_(own, own)], np.tri(len(own), dtype=bool))
        assert found[answer].sum() == np.tri(len(own))[3:].sum()


def test_chosen_tiles_are_a_block_map() -> None:
    chosen = np.random.default_rng(0).integers(0, 5, (1, 1, 3, 2))
    live = np.zeros((1, 1, 3, 5), bool)
    np.put_along_axis(live, chosen, True, axis=-1)
    vsa = mask("vsa", 12, 20, {"chosen": int32(chosen), "size": np.full(5, 4, np.int32)}, tile=4, top=2)
    np.testing.assert_array_equal(vsa, mask("block_map", 12, 20, {"live": live}, block_rows=4, block_keys=4))


def test_bits_of_a_tree_are_its_rows() -> None:
    rows = np.tri(40, dtype=bool) & (np.arange(40)[:, None] % 3 >= np.arange(40) % 3)
    words = (rows.astype(np.int64) << np.arange(40)).sum(1)
    expected = mask("jetspec_tree", 40, 52, {"ancestor": rows[None]})
    np.testing.assert_array_equal(mask("speculative_tree", 40, 52, {"ancestors": words[None]}), expected)


def test_jetspec_training_is_a_forest_of_chains() -> None:
    chains = np.kron(np.eye(3, dtype=bool), np.tri(4, dtype=bool)).astype(bool)[None]
    tree = mask("jetspec_tree", 12, 17, {"ancestor": chains})
    np.testing.assert_array_equal(tree, mask("jetspec_training", 12, 17, block=4))


def test_block_diffusion_with_one_block_and_with_blocks_of_one() -> None:
    one = mask("block_diffusion", 12, 12, block=6)
    np.testing.assert_array_equal(one, np.kron(np.eye(2), np.ones((6, 6))).astype(bool))
    np.testing.assert_array_equal(mask("block_diffusion", 12, 12, block=1)[6:, 6:], np.tri(6, dtype=bool))
