"""Sweeps that take hours end in time, keep what is done, and go on from there."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest

from benchmarks import fingerprints
from benchmarks.choices import chosen
from benchmarks.parts import Done, How, Kept, minutes_left, name_of, stamp, sweep
from benchmarks.sweep import Case

CASES = [Case(spec, "bf16", (64, 64), "sm_80") for spec in ("c", "a", "b")]
LONG = 300.0


def noted(folder: Path, case: Case, stamp_before: str) -> Done | None:
    """Leaves a file for each time that it works."""
    if stamp_before == "now":
        return None
    (folder / f"{case.spec}-{os.urandom(4).hex()}").touch()
    return Done("now", 1.5, {"spec": case.spec})


def slow_after_a(case: Case, stamp_before: str) -> Done | None:
    if case.spec != "a":
        sleep(LONG)
    return Done("now", 1.5, case.spec)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    file, notes = tmp_path / "kept.json", tmp_path / "notes"
    notes.mkdir()
    results = {case: {"spec": case.spec} for case in CASES}
    assert sweep(partial(noted, notes), CASES, How(jobs=2, kept=Kept(file))) == results
    assert sweep(partial(noted, notes), CASES, How(jobs=2, kept=Kept(file))) == results
    assert len(list(notes.iterdir())) == len(CASES)
    rows = json.loads(file.read_text())
    rows[name_of(CASES[0])][0] = "of another compiler"
    file.write_text(json.dumps(rows))
    assert sweep(partial(noted, notes), CASES, How(jobs=2, kept=Kept(file))) == results
    assert sorted(path.name[0] for path in notes.iterdir()) == ["a", "b", "c", "c"]


def test_it_ends_in_time_with_what_is_done(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept.json")
    began = monotonic()
    assert list(sweep(slow_after_a, CASES, How(jobs=1, seconds=1, kept=kept)).values()) == ["a"]
    assert monotonic() - began < LONG / 10
    assert Kept(kept.path).builds == {name_of(CASES[1]): Done("now", 1.5, "a")}
    assert minutes_left(kept, CASES) == pytest.approx(2 * 1.5 / 60)


def test_what_was_never_done_comes_first(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept.json")
    kept.add(CASES[1], Done("now", 1.5, "a"))
    assert sweep(slow_after_a, CASES, How(jobs=1, seconds=1, kept=kept)) == {}


def test_stamps_are_of_texts_and_targets() -> None:
    assert stamp("sm_80", ["a", "b"]) == stamp("sm_80", iter(["a", "b"]))
    assert len({stamp("sm_80", ["a", "b"]), stamp("sm_80", ["ab"]), stamp("sm_90a", ["a", "b"])}) == 3


def test_builds_have_stamps_of_their_own() -> None:
    """Of kernels that NVRTC doesn't see: a stamp that was right before leaves nothing to do."""
    full, causal = (Case(spec, "bf16", (64, 64), "sm_80") for spec in ("full", "causal"))
    forward, decode = (fingerprints.stamp((name,), full) for name in ("forward", "decode"))
    assert len({forward, decode, fingerprints.stamp(("forward",), causal)}) == 3
    assert fingerprints.done(fingerprints.KINDS["machine code"], ("forward",), True, full, forward) is None
    without_8_bits = Case("alibi_documents", "e4m3", (64, 64), "sm_90a")
    assert chosen(without_8_bits, "") == Done("", 0, {})
