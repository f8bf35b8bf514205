"""Additions in one order (dq_semaphore.cuh): warps that take blocks of keys from a counter, on the emulated GPU."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from attncc.codegen.render import assemble
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

BLOCKS, TILES = 40, 20
TEXT = """
static const unsigned char* live;          // [block][tile]
static int *log_of, *logged, *numbers, next; // [tile][block], [tile]

static void body() {
    while (true) {
        const int claimed = __shfl_sync(~0u, threadIdx.x % 32 == 0 ? atomicAdd(&next, 1) : 0, 0);
        const int block = BLOCKS - 1 - claimed;
        if (block < 0) break;
        DqSemaphore semaphore = {numbers + block, BLOCKS - 1 - block};
        for (int tile = 0; tile < TILES; ++tile) {
            if (!live[block * TILES + tile]) continue;
            for (unsigned i = dice() % 30; i > 0; --i) yield();
            semaphore.take_turn(tile);
            for (unsigned i = dice() % 30; i > 0; --i) yield();
            if (threadIdx.x % 32 == 0) log_of[tile * BLOCKS + logged[tile]++] = block;
        }
        semaphore.leave();
    }
}

extern "C" void run(const unsigned char* of_live, int* of_log, int* of_logged, int* of_numbers, int warps, int seed) {
    live = of_live, log_of = of_log, logged = of_logged, numbers = of_numbers, next = 0;
    launch(body, 1, 32 * warps, 1024, seed, 1, 0);
}
"""


@cache
def library() -> ctypes.CDLL:
    constants = f"constexpr int BLOCKS = {BLOCKS}, TILES = {TILES};\n"
    leaf = assemble('#include "hopper_backward/dq_semaphore.cuh"\n', "semaphore")
    return kernel.evaluate(constants + TEXT, '#include "hopper.hpp"\n' + leaf)


@pytest.mark.parametrize("warps", [1, 3, 40])
@pytest.mark.parametrize("mask", ["causal", "window", "any"])
def test_each_tile_gets_its_blocks_from_the_last_to_the_first(mask: str, warps: int) -> None:
    block, tile = np.indices((BLOCKS, TILES))
    live = {
        "causal": tile >= block // 2,
        "window": (tile >= block // 2) & (tile < block // 2 + 3),
        "any": np.random.default_rng(1).random((BLOCKS, TILES)) < 0.3,
    }[mask].astype(np.uint8)
    log, logged, numbers = (np.zeros(size, np.int32) for size in (TILES * BLOCKS, TILES, BLOCKS))
    library().run(*(array.ctypes.data_as(ctypes.c_void_p) for array in (live, log, logged, numbers)), warps, warps)
    for number, (of_tile, count) in enumerate(zip(log.reshape(TILES, BLOCKS), logged, strict=True)):
        assert of_tile[:count].tolist() == np.flatnonzero(live[:, number])[::-1].tolist()
    assert (numbers == 2**31 - 1).all()
