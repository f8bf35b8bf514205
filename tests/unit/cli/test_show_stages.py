"""`attncc show --stage`: every stage of one spec, the options that choose the kernel, and those that make no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncc.cli import stages
from attncc.resources import folder
from tests.test_cli import run

SPECS = folder("specs")
CAUSAL = SPECS / "causal.attn"

SHOWN = {
    "ast": ["Variant name=causal", "  condition: Call function=causal  ("],
    "ir": ["variant causal\n  keep if (q_pos >= kv_idx)\n"],
    "rules": ["# tiles of ", ": causal, forward, sm_80", "loop bounds suffice:    yes", "kv_begin = 0\n"],
    "plan": ['"class": "KernelPlan"', '"target": "sm_80"'],
    "cuda": ["// causal, forward pass: bf16, head dim 64, for sm_80.", "causal_forward("],
    "ptx": [".target sm_80", ".entry causal_forward("],
    "sass": [".text.causal_forward:", "HMMA.16816.F32.BF16"],
}


@pytest.mark.parametrize("stage", stages.OPTIONS)
def test_every_stage(stage: str) -> None:
    arguments = [] if stage in ("ast", "ir") else ["--arch", "sm_80"]
    shown = run("show", CAUSAL, "--stage", stage, *arguments).stdout
    assert [part for part in SHOWN[stage] if part not in shown] == []
    assert shown.endswith("\n")


@pytest.mark.slow
def test_the_kernel_is_chosen_by_options() -> None:
    chosen = ["--pass", "backward", "--head-dim", "32", "--dtype", "fp16", "--arch", "sm_80"]
    shown = run("show", CAUSAL, "--stage", "cuda", *chosen).stdout
    assert shown.startswith("// causal, backward pass: fp16, head dim 32, for sm_80.")
    assert "decode pass" in run("show", CAUSAL, "--stage", "cuda", "--pass", "decode").stdout
    narrow = run("show", SPECS / "sliding_window.attn", "--stage", "ir", "-D", "width=7").stdout
    assert "const width = 7" in narrow


def test_a_plan_is_read_back() -> None:
    from attncc.schedule.plan import KernelPlan
    from attncc.schedule.plan_json import from_json

    plan = from_json(json.loads(run("show", CAUSAL, "--stage", "plan").stdout))
    assert isinstance(plan, KernelPlan) and (plan.target, plan.family) == ("sm_90a", "hopper")


def test_a_stage_is_written_to_a_file_or_printed_as_json(tmp_path: Path) -> None:
    path = tmp_path / "causal.txt"
    assert run("show", CAUSAL, "--stage", "ir", "-o", path).stdout == f"wrote {path}\n"
    found = json.loads(run("show", CAUSAL, "--stage", "ir", "--format", "json").stdout)
    assert found == {"stage": "ir", "text": path.read_text()}
    assert "can't be written" in run("show", CAUSAL, "--stage", "ir", "-o", tmp_path / "no" / "x", status=2).output


def test_a_tree_is_shown_of_files_whose_names_and_types_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.attn"
    path.write_text("attn 1\nvariant v { keep if nowhere + 1 }\n")
    assert "Binary op=+ left=nowhere right=1  (2:21)" in run("show", path, "--stage", "ast").stdout
    assert "A101" in run("show", path, "--stage", "ir", status=1).output
    path.write_text("attn 1\nvariant v { keep }\n")
    assert "error[A0" in run("show", path, "--stage", "ast", status=1).output


def test_all_variants_of_a_file_are_shown_as_ir(tmp_path: Path) -> None:
    path = tmp_path / "two.attn"
    path.write_text("attn 1\nvariant v {}\nvariant w {}\n")
    assert run("show", path, "--stage", "ir").stdout == "variant v\n\nvariant w\n"
    assert run("show", path, "--stage", "ir", "--variant", "w").stdout == "variant w\n"
    assert "A512" in run("show", path, "--stage", "rules", status=1).output
    assert "A512" in run("show", SPECS / "masks.attn", "--stage", "ir", status=1).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stage", "sass", "--q-len", "9"], "--q-len changes nothing in --stage sass"),
        (["--stage", "ast", "--variant", "causal"], "--variant changes nothing in --stage ast"),
        (["--stage", "ir", "--arch", "sm_80"], "--arch changes nothing in --stage ir"),
        (["--stage", "cuda", "--png", "x.png"], "--png changes nothing in --stage cuda"),
        (["--arch", "sm_80"], "--arch is for --stage"),
        (["-o", "x.txt"], "-o is for --stage"),
        (["--stage", "cuda", "--pass", "sideways"], "--pass sideways is not one of forward, decode"),
        (
            ["--stage", "cuda", "--pass", "patches"],
            "causal has no kernel of the pass patches: it has forward, decode",
        ),
        (["--stage", "assembly"], "'assembly' is not one of"),
    ],
)
def test_options_that_do_not_fit(arguments: list[str], said: str) -> None:
    assert said in run("show", CAUSAL, *arguments, status=2).output


def test_errors_of_kernels_are_diagnostics() -> None:
    assert "error[A513]" in run("show", CAUSAL, "--stage", "cuda", "--arch", "sm_81", status=1).output
    assert "error[A4" in run("show", CAUSAL, "--stage", "cuda", "--arch", "sm_80", "--dtype", "e4m3", status=1).output


def test_machine_code_without_a_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.stages.metadata.files", lambda name: None)
    monkeypatch.setenv("PATH", "")
    shown = run("show", CAUSAL, "--stage", "sass", status=1).output
    assert "error[A522]: nvdisasm, which lists machine code, is not installed" in shown
    assert "pip install nvidia-cuda-nvdisasm" in shown
