"""Our sine and cosine against fp64, over all floats."""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc.resources import read
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

PROBE = """
extern "C" void waves(const float* x, float* sines, float* cosines, int count) {
    for (int i = 0; i < count; ++i) sines[i] = sine(x[i]), cosines[i] = cosine(x[i]);
}
"""
MOST_ULPS = 2.2
Floats = NDArray[np.float32]


@cache
def library() -> ctypes.CDLL:
    return kernel.evaluate(PROBE, read("templates", "common", "trigonometry.cuh"))


def waves(x: Floats) -> tuple[Floats, Floats]:
    sines, cosines = np.empty_like(x), np.empty_like(x)
    addresses = (ctypes.c_void_p(array.ctypes.data) for array in (x, sines, cosines))
    library().waves(*addresses, len(x))
    return sines, cosines


def near_multiples() -> Floats:
    """The floats next to multiples of half pi, where almost nothing is left of the angle."""
    counts = np.concatenate([np.arange(1, 3000), np.geomspace(3000, 2.0**60, 3000).round()])
    nearest = (counts * (math.pi / 2)).astype(np.float32)
    return np.concatenate([np.nextafter(nearest, np.float32(0)), nearest, np.nextafter(nearest, np.float32(np.inf))])


RANGES = {
    "small": np.linspace(-10, 10, 20001, dtype=np.float32),
    "tiny": np.float32(2.0) ** np.arange(-149, 0, dtype=np.float32),
    "usual": np.random.default_rng(1).uniform(-(2.0**16), 2.0**16, 20000).astype(np.float32),
    "where ways part": np.arange(2**16 - 500, 2**16 + 500, 0.25, dtype=np.float32),
    "large": np.random.default_rng(2).uniform(-(2.0**31), 2.0**31, 20000).astype(np.float32),
    "all exponents": (
        np.random.default_rng(3).uniform(1, 2, 20000) * 2.0 ** np.random.default_rng(4).integers(-126, 127, 20000)
    ).astype(np.float32),
    "near multiples of half pi": near_multiples(),
}


@pytest.mark.parametrize("name", RANGES)
def test_sines_and_cosines_are_exact(name: str) -> None:
    x = RANGES[name]
    for found, exact in zip(waves(x), (math.sin, math.cos), strict=True):
        expected = np.array([exact(float(item)) for item in x])
        ulp = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
        assert (np.abs(found - expected) / ulp).max() < MOST_ULPS


def test_ends() -> None:
    sines, cosines = waves(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38], np.float32))
    assert np.array_equal(sines[:2], [0, 0])
    assert np.array_equal(cosines[:2], [1, 1])
    assert np.isnan(sines[2:5]).all()
    assert np.isnan(cosines[2:5]).all()
    assert not np.isnan(sines[5])
