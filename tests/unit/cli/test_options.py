"""What commands say of options that don't go with each other or with the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from attncc.cli import attncc
from attncc.cli.options import parse_value
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.resources import folder

DOCUMENTS = folder("specs") / "documents.attn"


def said(*arguments: object, status: int) -> str:
    result = CliRunner().invoke(attncc, [str(item) for item in arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_values_are_those_of_files() -> None:
    values = {"0xff": 255, "-0x10": -16, "12": 12, "1e3": 1000.0, "true": True}
    assert {text: parse_value(text) for text in values} == values
    for text in ("0xfg", "twelve", ""):
        with pytest.raises(ValueError):
            parse_value(text)


def test_a_const_that_is_given_as_an_option() -> None:
    for command in ("run", "show", "build", "explain"):
        assert "`-D width=…` sets a const of the file" in said(command, "sliding_window", "--width", 512, status=2)
    for misspelled in ("--head-dims", "--headdim", "--dtyp"):
        assert "-D" not in said("run", "sliding_window", misspelled, 64, status=2)
    assert "'--output'" in said("build", "causal", "--out", "x", status=2)
    assert "No such option" in said("new", "x", "--width", 512, status=2)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ([], {"dtypes": ("bf16",), "head_dims": ((64, 64), (128, 128)), "archs": ("sm_80", "sm_90a"), "kv_dtypes": ()}),
        (["--dtype", "fp32", "--dtype", "bf16,fp16"], {"dtypes": ("fp32", "bf16", "fp16")}),
        (["--head-dim", 64, "--head-dim", "192:128", "--arch", "sm_90"], {"head_dims": ((64, 64), (192, 128))}),
        (["--kv-dtype", "int8", "--kv-dtype", "e4m3", "--serving"], {"kv_dtypes": ("int8", "e4m3")}),
    ],
)
def test_lists_may_be_repeated(monkeypatch: pytest.MonkeyPatch, given: list[object], asked: dict[str, object]) -> None:
    """The last one alone counted."""
    found: dict[str, object] = {}

    def prepare(_: Path, **given: object) -> tuple[()]:
        found.update(given)
        raise AttnccError(Diagnostic("A512", "enough"))

    monkeypatch.setattr("attncc.package.prepare", prepare)
    assert "enough" in said("build", "causal", *given, status=1)
    assert found.items() >= asked.items()


def test_a_package_is_no_format() -> None:
    assert "`attncc build --package hf-kernel`" in said("build", "causal", "--format", "hf-kernel", status=2)
    assert "'text', 'json'" in said("build", "causal", "--format", "yaml", status=2)


@pytest.mark.parametrize("command", ["run", "explain", "show", "bench"])
def test_there_are_no_seeds_below_0(command: str) -> None:
    assert "-1 is not in the range" in said(command, "documents", "--seed", -1, status=2)


def test_a_number_for_an_array_asks_for_a_file() -> None:
    assert "as in -i doc=doc.npy" in said("run", DOCUMENTS, "-i", "doc=5", "--device", "cpu", status=1)


def test_a_missing_gpu_is_told_in_the_words_of_commands(tmp_path: Path) -> None:
    from attncc.cli.files import on_the_command_line
    from attncc.runtime.cuda.driver import _no_gpu

    found = on_the_command_line(_no_gpu("no NVIDIA driver is installed", ""))
    assert found.code == "A503" and "run, show, explain, check and build work without" in found.help


@pytest.mark.slow
def test_arrays_of_another_size_name_the_option(tmp_path: Path) -> None:
    np.save(tmp_path / "doc.npy", np.zeros((2, 64), np.int32))
    given = ["--q-len", 64, "-i", f"doc={tmp_path / 'doc.npy'}"]
    for command in ("show", "explain"):
        assert "help: give --batch 2, or another array" in said(command, DOCUMENTS, *given, status=1)
    assert "--kv-len 64" in said("show", DOCUMENTS, "--batch", 2, *given[2:], status=1)


def test_arrays_that_no_kernel_takes_are_refused_without_a_call(tmp_path: Path) -> None:
    np.save(tmp_path / "doc.npy", np.zeros((1, 64), np.float32))
    for command in ("show", "explain"):
        shown = said(command, DOCUMENTS, "--q-len", 64, "-i", f"doc={tmp_path / 'doc.npy'}", status=1)
        assert "A604" in shown and "expected int32" in shown


def test_heads_and_sequences_that_there_are_not() -> None:
    assert "--h 3 needs --heads 4" in said("show", DOCUMENTS, "--h", 3, status=2)
    assert "--b 1 needs --batch 2" in said("show", DOCUMENTS, "--b", 1, status=2)


def test_a_target_that_the_device_does_not_run_is_remarked() -> None:
    few = ["--q-len", 64, "--heads", 1, "--no-compile", "--device", "a100", "--arch"]
    assert "note: kernels for sm_90a don't run on --device a100" in said("explain", DOCUMENTS, *few, "sm_90a", status=0)
    assert "note:" not in said("explain", DOCUMENTS, *few, "sm_80", status=0)


def test_an_empty_target_is_named(tmp_path: Path) -> None:
    shown = said("build", DOCUMENTS, "-o", tmp_path / "kernels", "--arch", "", status=1)
    assert "error[A513]: an empty text is not a target" in shown


def test_import_flex_shows_what_was_written(tmp_path: Path) -> None:
    mod = tmp_path / "mods.py"
    mod.write_text("def near(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n")
    shown = said("import-flex", f"{mod}:near", "--input", "zz", status=1)
    assert "1 | zz\n" in shown and "name:dtype[axes]" in shown and "}" not in shown
    assert "--name if: no variant can be called that; if_" in said(
        "import-flex", f"{mod}:near", "--name", "if", status=2
    )
