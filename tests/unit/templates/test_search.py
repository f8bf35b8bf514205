"""The binary search of a warp, on the emulated GPU, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc.codegen.render import KernelSource, assemble
from attncc.kernels.parameters import Parameter
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

TEXT = """
#include "common/element.cuh"
#include "memory/search.cuh"
struct Params { const int* line; int* found; int length, values; };
extern "C" __global__ void search(const Params params) {
    for (int i = 0; i < params.values; ++i) {
        const int first = first_at_least(params.line, 1ll, params.length, i - 2);
        const int beyond = first_above(params.line, 1ll, params.length, i - 2);
        if (threadIdx.x == 0) params.found[2 * i] = first, params.found[2 * i + 1] = beyond;
    }
}
"""
FIELDS = [("line", "const int*"), ("found", "int*"), ("length", "int"), ("values", "int")]
VALUES = 24  # from -2 on
LENGTHS = (0, 1, 2, 31, 32, 33, 128, 129, 130, 5000, 16640, 16641, 16642, 40000)


def searched(line: NDArray[Any]) -> NDArray[Any]:
    """For each value the first place that is at least it, and the first above it."""
    memory, found = np.append(line, 99).astype(np.int32), np.full((VALUES, 2), -1, np.int32)
    given = {"line": memory.ctypes.data, "found": found.ctypes.data, "length": line.size, "values": VALUES}
    source = KernelSource("search", assemble(TEXT, "search"), "search", 32, 0)
    kernel.run(source, tuple(Parameter(*field) for field in FIELDS), given, 1)
    return found


@pytest.mark.parametrize("length", LENGTHS)
def test_finds_what_numpy_finds(length: int) -> None:
    line = np.sort(np.random.default_rng(length).integers(0, 20, length))
    values = np.arange(VALUES) - 2
    places = [np.searchsorted(line, values, side) for side in ("left", "right")]
    np.testing.assert_array_equal(searched(line), np.stack(places, axis=1))


@pytest.mark.parametrize("length", LENGTHS)
def test_stays_within_a_line_that_is_in_no_order(length: int) -> None:
    found = searched(np.random.default_rng(length).integers(0, 20, length))
    assert ((found >= 0) & (found <= length)).all()
