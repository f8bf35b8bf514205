"""Sums that begin without zeros (first_stores.cuh): warpgroups that come to tiles at any time, on the emulated GPU."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.codegen.render import assemble
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

TILES = 20
TEXT = """
struct Params { int* dq_stored; };
static const unsigned char *comes, *asks;  // [warpgroup][tile]: whether it comes, and whether its producer asks before
static float* sums;                        // [tile][thread][4]
static Params params;

static void body() {
    const int group = blockIdx.x, thread = threadIdx.x;
    for (int tile = 0; tile < TILES; ++tile) {
        if (!comes[group * TILES + tile]) continue;
        const int row_block = ALIGNED_BLOCKS * tile;
        static int places[8];  // which the producer tells the whole warpgroup
        const bool asked = asks[group * TILES + tile];
        if (thread == 0) places[group] = asked ? FirstStores::place(params, row_block) : 2 * row_block;
        meet_named(6, 128);
        const int place = places[group];
        meet_named(6, 128);
        if (FirstStores::row_block(place) != row_block) fail("another row block");
        FirstStores first_stores;
        first_stores.claim(params, place);
        for (unsigned i = dice() % 30; i > 0; --i) yield();
        const float x[4] = {1.0f + group, 2, 3, 4};
        float* sum = sums + (tile * 128 + thread) * 4;
        if (first_stores.stores(params, place)) {
            for (unsigned i = dice() % 30; i > 0; --i) yield();
            *(float4*)sum = float4{x[0], x[1], x[2], x[3]};
        } else {
            add_four(sum, x);
        }
        first_stores.publish(params, place);
    }
}

extern "C" void run(
    const unsigned char* of_comes, const unsigned char* of_asks, float* of_sums, int* words, int groups, int seed) {
    comes = of_comes, asks = of_asks, sums = of_sums, params = {words};
    launch(body, groups, 128, 1024, seed, groups, 0);  // a cluster, whose blocks run side by side
}
"""


@cache
def library() -> ctypes.CDLL:
    constants = f"constexpr int TILES = {TILES};\n"
    text = '#include "hopper_backward/first_stores.cuh"\n#include "memory/add_vector.cuh"\n'
    leaf = "constexpr int ROW_ALIGNMENT = 64;\n" + assemble(text, "stores")
    return kernel.evaluate(constants + TEXT, '#include "hopper.hpp"\n' + leaf)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_one_stores_and_the_others_add(groups: int) -> None:
    """A tile that nobody comes to stays as it was. Producers may ask, or tell nothing."""
    rng = np.random.default_rng(groups)
    comes, asks = (rng.random((groups, TILES)) < share for share in (0.8, 0.5))
    comes[:, 3] = False
    sums, words = np.full((TILES, 128, 4), np.nan, np.float32), np.zeros(TILES, np.int32)
    given = comes.astype(np.uint8), asks.astype(np.uint8), sums, words
    library().run(*(array.ctypes.data_as(ctypes.c_void_p) for array in given), groups, groups)
    first, count = ((1 + np.arange(groups)) @ comes).astype(np.float32), comes.sum(0).astype(np.float32)
    expected = np.stack([first, 2 * count, 3 * count, 4 * count], axis=-1)[:, None]
    expected = np.where(comes.any(0)[:, None, None], expected, np.nan)
    np.testing.assert_array_equal(sums, np.broadcast_to(expected, (TILES, 128, 4)))
    assert (words == np.where(comes.any(0), 9, 0)).all()


def test_all_add_where_there_are_zeros() -> None:
    """Without words nobody claims; the tile is as told."""
    text = '#include "hopper_backward/first_stores.cuh"\n'
    body = """
struct Params { int* dq_stored; };
extern "C" int told(int row_block) { return FirstStores::place(Params{nullptr}, row_block); }
"""
    leaf = "constexpr int ROW_ALIGNMENT = 64;\n" + assemble(text, "stores")
    assert kernel.evaluate(body, '#include "hopper.hpp"\n' + leaf).told(44) == 2 * 44 + 1
