"""Texts of stages, where a reader could be misled: shared parts of rules, tables, failing tools."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attncc import ir, stages
from attncc.compiler import Specification
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.resources import folder
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from attncc.semantics.load import load
from attncc.source import SourceFile

SPECS = sorted(folder("specs").glob("*.attn"))


def plan_of(text: str, **settings: str) -> KernelPlan:
    variant = load(SourceFile("v.attn", f"attn 1\nimport masks\nvariant v {{\n{text}\n}}\n")).variants[0]
    return make_plan(variant, dtype="bf16", head_dim=64, value_head_dim=64, target="sm_80", **settings)


def expanded(text: str) -> dict[str, str]:
    """The rules of a text with its `let` lines written out."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^(?:let )?([\w.]+)(?:: \w+)? = (.*)$", text, re.M):
        found[name] = re.sub(r"\bt\d+\b", lambda match: found[match[0]], value)
    return found


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_rules_say_what_the_plan_holds(path: Path) -> None:
    for variant in load(SourceFile.read(path)).variants:
        for pass_name in ("forward", "backward"):
            dims = {"head_dim": 64, "value_head_dim": 64}
            plan = make_plan(variant, dtype="bf16", target="sm_80", pass_name=pass_name, **dims)
            found = expanded(stages.rules_text(plan))
            assert found["any_kept"] == ir.show(plan.rules.any_kept)
            assert found["kv_end"] == ir.show(plan.rules.kv_end)
            if plan.rules.q_bounds is not None:
                assert found["q_bounds.q_end"] == ir.show(plan.rules.q_bounds.q_end)


def test_rules_name_tables_claims_and_what_stays_partial() -> None:
    text = stages.rules_text(plan_of("input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]"))
    assert "min/max table:          doc__min, doc__max: of " in text
    text = stages.rules_text(
        plan_of("input doc: i32[batch, pos] nondecreasing\nkeep if doc[b, q_pos] == doc[b, kv_idx]")
    )
    assert "verified nondecreasing: doc" in text
    text = stages.rules_text(plan_of("input table: bool[_]\nkeep if table[kv_idx * q_idx]"))
    assert "leaves tiles partial:   keep 1: " in text


def test_rules_of_2d_tiles_name_the_grid() -> None:
    natten = load(SourceFile.read(folder("specs") / "natten.attn")).variants[0]
    forward, *_, fixed = Specification(natten, ()).candidates(Configuration("bf16", 64, 64), "sm_80")
    text = stages.rules_text(fixed.first)
    assert " (on a grid 64 wide: 8 columns of q, 8 of kv): natten, patches, sm_80\n" in text
    assert "grid" not in stages.rules_text(forward.first)


def test_a_disassembler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho it is no cubin >&2\nexit 1\n")
    monkeypatch.setattr("attncc.stages.metadata.files", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    tool.chmod(0o755)
    with pytest.raises(AttnccError, match=r"A522.*failed: it is no cubin"):
        stages.sass_text(b"nothing")
