from __future__ import annotations

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.mask.kept_rows import KeptRows, kept_rows
from attncc.compiler import load_specification
from attncc.problem import Problem
from attncc.resources import folder
from attncc.synthetic import inputs
from tests.unit.analysis.tile_cases import variant_of

SPECS = sorted(path.stem for path in folder("specs").glob("*.attn") if path.stem != "masks")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("keep if q_pos >= kv_idx",), KeptRows.OWN_KEY),
        (("keep if q_idx >= kv_idx",), KeptRows.ALL_LENGTHS),
        (("keep if q_pos <= kv_idx",), KeptRows.ALL_LENGTHS),
        (("keep if 0 <= q_pos - kv_idx < 5",), KeptRows.OWN_KEY),
        (("keep if 0 < q_pos - kv_idx < 5",), KeptRows.NOT_PROVEN),
        (("input w: i32", "keep if 0 <= q_pos - kv_idx < w"), KeptRows.NOT_PROVEN),
        (("keep if kv_idx < 100",), KeptRows.ALL_LENGTHS),
        (("keep if kv_idx >= 1",), KeptRows.NOT_PROVEN),
        (("input doc: i32[batch, pos]", "keep if doc[b, q_pos] == doc[b, kv_idx]"), KeptRows.OWN_KEY),
        (("input doc: i32[batch, pos]", "keep if doc[b, q_pos] < doc[b, kv_idx]"), KeptRows.NOT_PROVEN),
        (("keep if q_pos // 64 == kv_idx // 64", "keep if q_pos >= kv_idx"), KeptRows.OWN_KEY),
        # A key of its own for each line, but none for both.
        (("keep if q_idx >= kv_idx", "keep if q_pos <= kv_idx"), KeptRows.NOT_PROVEN),
        (("keep if q_idx == kv_idx",), KeptRows.OWN_KEY),
        (("keep if abs(q_idx // 64 - kv_idx // 64) <= 6", "keep if q_idx % 64 == kv_idx % 64"), KeptRows.OWN_KEY),
    ],
)
def test_what_is_proven(lines: tuple[str, ...], found: KeptRows) -> None:
    assert kept_rows(variant_of(*lines)) is found


def test_of_long_masks_nothing_is_proven() -> None:
    line = " or ".join(f"kv_idx % {10007 + i} == {i}" for i in range(580))
    assert kept_rows(variant_of(f"keep if {line}")) is KeptRows.NOT_PROVEN


@pytest.mark.parametrize("spec", SPECS)
def test_it_is_true_of_the_library(spec: str) -> None:
    variant = load_specification(folder("specs") / f"{spec}.attn", None, {})[0].variant
    lengths = {KeptRows.ALL_LENGTHS: ((70, 40), (40, 70)), KeptRows.OWN_KEY: ((40, 70), (70, 70))}
    for q_len, kv_len in lengths.get(kept_rows(variant), ()):
        given = inputs(variant, Problem(1, 2, 1, q_len, kv_len, 16, 16), np.random.default_rng(1))
        mask = reference.mask(variant, q_len, kv_len, batch=1, num_heads=2, num_kv_heads=1, **given)
        assert mask.any(axis=-1).all()
