"""Sums that begin without zeros (first_stores.cuh): warpgroups that come to tiles at any time, on the emulated GPU."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.codegen.render import assemble
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

TILES, PARTS = 20, 2
TEXT = """
static const unsigned char* comes;  // [warpgroup][tile]
static float* sums;                 // [tile][part][thread][4]
static int* words;                  // [tile]

static void body() {
    const int group = blockIdx.x, part = group % PARTS, thread = threadIdx.x;
    for (int tile = 0; tile < TILES; ++tile) {
        if (!comes[group * TILES + tile]) continue;
        Comers comers;
        comers.claim(words + tile, part);
        for (unsigned i = dice() % 30; i > 0; --i) yield();
        comers.wait(words + tile, part);
        const float x[4] = {1.0f + group, 2, 3, 4};
        float* sum = sums + ((tile * PARTS + part) * 128 + thread) * 4;
        if (comers.none()) {
            for (unsigned i = dice() % 30; i > 0; --i) yield();
            store_four(sum, x);
        } else {
            add_four(sum, x);
        }
        comers.publish(words + tile, part);
    }
}

extern "C" void run(const unsigned char* of_comes, float* of_sums, int* of_words, int groups, int seed) {
    comes = of_comes, sums = of_sums, words = of_words;
    launch(body, groups, 128, 1024, seed, groups, 0);  // a cluster, whose blocks run side by side
}
"""


@cache
def library() -> ctypes.CDLL:
    constants = f"constexpr int TILES = {TILES}, PARTS = {PARTS};\n"
    text = '#include "hopper_backward/first_stores.cuh"\n#include "memory/add_vector.cuh"\n'
    return kernel.evaluate(constants + TEXT, '#include "hopper.hpp"\n' + assemble(text, "stores"))


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_one_stores_and_the_others_add(groups: int) -> None:
    """Each part of a tile has comers of its own; a tile that nobody comes to stays as it was."""
    comes = np.random.default_rng(groups).random((groups, TILES)) < 0.7
    comes[:, 3] = False
    sums, words = np.full((TILES, PARTS, 128, 4), np.nan, np.float32), np.zeros(TILES, np.int32)
    given = comes.astype(np.uint8), sums, words
    library().run(*(array.ctypes.data_as(ctypes.c_void_p) for array in given), groups, groups)
    numbers = np.arange(groups)
    for part in range(PARTS):
        own = comes & (numbers % PARTS == part)[:, None]
        first, count = ((1 + numbers) @ own).astype(np.float32), own.sum(0).astype(np.float32)
        expected = np.stack([first, 2 * count, 3 * count, 4 * count], axis=-1)[:, None]
        expected = np.where(own.any(0)[:, None, None], expected, np.nan)
        np.testing.assert_array_equal(sums[:, part], np.broadcast_to(expected, (TILES, 128, 4)))
        assert ((words >> 4 * part & 15) == np.where(own.any(0), 9, 0)).all()
