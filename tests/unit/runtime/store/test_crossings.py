"""Crossing points in the cache: what a measurement keeps, later processes read; a damaged file costs a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attncc import AttnccWarning
from attncc.analysis.cost.roofline import DEVICES
from attncc.kernels.crossings import NEVER, Chip, Crossings
from attncc.runtime.store.crossings import Measured, chip_like, chip_of, keep, kept, path_of

NAME = "NVIDIA H200"
OWN = Crossings(split_keys=512, more_rows=NEVER, one_block_share=0.75)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_kept_counts_on_that_kind_of_gpu_alone(cache: Path) -> None:
    assert kept(NAME) is None and chip_of(NAME, 132) == Chip(132, Crossings())
    keep(Measured(NAME, OWN, {"measured": "2026-11-30"}))
    assert path_of(NAME) == cache / "crossings" / "nvidia-h200.json"
    assert kept(NAME) == Measured(NAME, OWN, {"measured": "2026-11-30"})
    assert chip_of(NAME, 132) == Chip(132, OWN)
    assert chip_of("NVIDIA H100 80GB HBM3", 132) == Chip(132, Crossings())
    assert chip_like(DEVICES["h200"]) == Chip(132, OWN)
    assert chip_like(DEVICES["h100"]) == Chip(132, Crossings())


def test_points_that_a_file_lacks_are_the_usual_ones() -> None:
    keep(Measured(NAME, OWN, {}))
    path = path_of(NAME)
    content = json.loads(path.read_text())
    del content["crossings"]["merged_rows"]
    path.write_text(json.dumps(content))
    assert chip_of(NAME, 132) == Chip(132, OWN)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[: len(text) // 2], "JSONDecodeError"),
        (lambda text: "[]", "TypeError"),
        (lambda text: text.replace('"format": 2', '"format": 1'), "format 1 in place of 2"),
        (lambda text: text.replace('"split_keys"', '"no_such_point"'), "no_such_point"),
        (lambda text: text.replace('"split_keys": 512', '"split_keys": -1'), "split_keys is -1, not a positive number"),
        (lambda text: text.replace('"split_keys": 512', '"split_keys": true'), "split_keys is True"),
        (lambda text: text.replace('"split_keys": 512', '"split_keys": NaN'), "split_keys is nan"),
        (lambda text: text.replace('"split_keys": 512', '"split_keys": "512"'), "split_keys is '512'"),
        (lambda text: text.replace('"about"', '"around"'), "KeyError"),
    ],
)
def test_a_damaged_file(damage: Any, why: str) -> None:
    keep(Measured(NAME, OWN, {}))
    path = path_of(NAME)
    path.write_text(damage(path.read_text()))
    with pytest.warns(AttnccWarning, match="A529") as found:
        assert chip_of(NAME, 132) == Chip(132, Crossings())
    text = str(found[0].message)
    assert str(path) in text and why in text and "attncc tune --crossings" in text
    keep(Measured(NAME, OWN, {}))  # as the help says
    assert chip_of(NAME, 132) == Chip(132, OWN)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path / "file"))
    with pytest.warns(AttnccWarning, match="A509"):
        keep(Measured(NAME, OWN, {}))
