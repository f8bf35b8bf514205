"""The table of shipped kernels: its rows are found, and name tiles that the kernels may have."""

from __future__ import annotations

import json
import re

import pytest

from attncc.compiler import NO_DEFINES, load_specification
from attncc.kernels import known_tiles
from attncc.resources import folder
from attncc.runtime.store.store import Configuration


def test_rows_are_keys_and_tiles() -> None:
    rows = json.loads(known_tiles.FILE.read_text(encoding="utf-8"))
    form = re.compile(r"(hopper|portable) \d+ x \d+, \d+ warps, \d stages(, low register)?")
    assert all(re.fullmatch("[0-9a-f]{16}", key) and form.fullmatch(tiles) for key, tiles in rows.values())


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("spec", ["causal", "documents", "selected_attention"])
def test_kernels_of_the_default_build_are_known(spec: str, target: str) -> None:
    specification, _ = load_specification(folder("specs") / f"{spec}.attn", None, NO_DEFINES)
    configuration = Configuration("bf16", 128, 128)
    forward, backward = specification.candidates, specification.backward_candidates
    for candidates in (*forward(configuration, target), *backward(configuration, target)):
        assert candidates.names_tiles or candidates.known in list(candidates.plans())
