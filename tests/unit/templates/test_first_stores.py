"""Sums that begin without zeros (first_stores.cuh): warps that come to parts at any time, on the emulated GPU."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.codegen.render import assemble
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

PARTS, PLACES = 20, 2
TEXT = """
static const unsigned char* comes;  // [warp][part]
static float* sums;                 // [part][place][lane][4]
static int *words, *stores;         // [part]; of them how many stored

static void body() {
    const int warp = threadIdx.x / 32, place = warp % PLACES, lane = threadIdx.x % 32;
    for (int part = 0; part < PARTS; ++part) {
        if (!comes[warp * PARTS + part]) continue;
        Comers comers;
        comers.claim(words + part, place);
        for (unsigned i = dice() % 30; i > 0; --i) yield();
        comers.wait(words + part, place);
        const float x[4] = {1.0f + warp, 2, 3, 4};
        float* sum = sums + ((part * PLACES + place) * 32 + lane) * 4;
        if (comers.none()) {
            for (unsigned i = dice() % 30; i > 0; --i) yield();
            store_four(sum, x);
            if (lane == 0) ++stores[part];
        } else {
            add_four(sum, x);
        }
        comers.publish(words + part, place);
    }
}

extern "C" void run(const unsigned char* of_comes, float* of_sums, int* of_words, int* of_stores, int warps, int seed) {
    comes = of_comes, sums = of_sums, words = of_words, stores = of_stores;
    launch(body, 1, 32 * warps, 1024, seed, 1, 0);
}
"""


@cache
def library() -> ctypes.CDLL:
    constants = f"constexpr int PARTS = {PARTS}, PLACES = {PLACES};\n"
    text = '#include "hopper_backward/first_stores.cuh"\n#include "memory/add_vector.cuh"\n'
    return kernel.evaluate(constants + TEXT, '#include "hopper.hpp"\n' + assemble(text, "stores"))


@pytest.mark.parametrize("warps", [1, 2, 9, 32])
def test_one_stores_and_the_others_add(warps: int) -> None:
    """Each place of a word has comers of its own; a part that nobody comes to stays as it was."""
    comes = np.random.default_rng(warps).random((warps, PARTS)) < 0.7
    comes[:, 3] = False
    sums = np.full((PARTS, PLACES, 32, 4), np.nan, np.float32)
    words, stores = np.zeros(PARTS, np.int32), np.zeros(PARTS, np.int32)
    given = comes.astype(np.uint8), sums, words, stores
    library().run(*(array.ctypes.data_as(ctypes.c_void_p) for array in given), warps, warps)
    numbers = np.arange(warps)
    for place in range(PLACES):
        own = comes & (numbers % PLACES == place)[:, None]
        first, count = ((1 + numbers) @ own).astype(np.float32), own.sum(0).astype(np.float32)
        expected = np.stack([first, 2 * count, 3 * count, 4 * count], axis=-1)[:, None]
        expected = np.where(own.any(0)[:, None, None], expected, np.nan)
        np.testing.assert_array_equal(sums[:, place], np.broadcast_to(expected, (PARTS, 32, 4)))
        assert ((words >> 2 * place & 3) == np.where(own.any(0), 3, 0)).all()
    assert stores.sum() == (words & 3 != 0).sum() + (words & 12 != 0).sum()
