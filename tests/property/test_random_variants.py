"""Random variants: their kernels are generated for all targets, and right on the emulated GPU. Of more of them:
`python -m tests.random_variants --count 2000`."""

from __future__ import annotations

import pytest

from tests.emulator import kernel
from tests.examples import slow_beyond
from tests.random_variants.calls import parsed
from tests.random_variants.emulated import check
from tests.random_variants.rendered import PASSES, TARGETS, rendered
from tests.random_variants.variants import random_variant

DIMS = ((64, 64), (128, 128), (256, 256), (40, 72))


@pytest.mark.parametrize("seed", slow_beyond(6, [0, 2, 5, 7, 8, 10, 1, 3, 4, 6, 9, 11]))  # six: all targets, three dims
def test_kernels_are_generated(seed: int) -> None:
    """For each pass, with the first tiles that the compiler would try."""
    variant = parsed(random_variant(seed))
    found = list(rendered(variant, TARGETS[seed % len(TARGETS)], "bf16", DIMS[seed // 4 % len(DIMS)], tiles=1))
    assert len(found) >= len(PASSES)


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (86, "portable"),
        (95, "hopper"),
        (95, "hopper splits"),
        (98, "decode"),
        pytest.param(29, "portable backward", marks=pytest.mark.slow),
        (61, "portable backward"),
        (92, "hopper backward"),
        (210286, "decode"),  # key heads whose masks keep other tiles
        (200180, "hopper"),  # reads `b + 1` of a packed batch, which is behind its last sequence
        pytest.param(200202, "portable backward", marks=pytest.mark.slow),  # fp32, lse of 200
        pytest.param(61, "hopper backward", marks=pytest.mark.slow),
    ],
)
def test_kernels_are_right(seed: int, kind: str) -> None:
    """Score lines that replace the score and are followed by others; learnable inputs, sinks, dropout, no row sum."""
    assert check(seed, kind) is True
