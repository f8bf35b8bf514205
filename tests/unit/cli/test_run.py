"""What `attncc run` makes of a result: the accuracy rule, where score lines may leave NaN."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from attncc import executor
from attncc.cli import attncc
from attncc.cli.console import _beside
from attncc.cli.run import _check, _judged
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.reference import Accuracy
from tests.loaded import variant
from tests.plans import plan, qkv


def checked(score: str, dtype: str = "bf16", wrong: object = None) -> Accuracy:
    """The check of what the executor computes, the first row `wrong` where that is given."""
    spec, arrays = variant(score), qkv(dtype)
    out = executor.run(plan(spec, dtype), *arrays).out
    if wrong is not None:
        out[0, 0, 0] = wrong
    return _check(spec, arrays, {}, out, dtype)


@pytest.mark.parametrize(
    ("score", "dtype"),
    [
        ("score = log(score * scale)", "bf16"),
        ("score = exp(exp(score * 3))", "bf16"),  # fp32 overflows before fp64 does
        ("score = score * (1 / 0)", "fp32"),
        ("score = exp(exp(score))\nnormalize none", "fp16"),  # and fp16 before fp32
    ],
)
def test_a_spec_that_makes_nan_is_no_error_of_ours(score: str, dtype: str) -> None:
    accuracy = checked(score, dtype)
    assert accuracy.holds and accuracy.undefined_rows > 10
    assert f"\n{accuracy.undefined_rows} rows are NaN or infinite by the score lines" in _judged(accuracy)


def test_without_a_compiler_the_cpu_executor_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pip install attncc` alone gives. A library that was named, and isn't there, is an error."""
    monkeypatch.setattr("attncc.package.write", no_compiler)
    monkeypatch.delenv("ATTNCC_NVRTC", raising=False)
    arguments = "run", "causal", "--device", "cpu", "--q-len", "40"
    result = CliRunner().invoke(attncc, arguments)
    assert result.exit_code == 0, result.output
    assert "left out: NVRTC, the compiler, isn't installed" in result.output
    assert "within the accuracy rule" in result.output and "import" not in result.output
    monkeypatch.setenv("ATTNCC_NVRTC", "libnone.so")
    assert CliRunner().invoke(attncc, arguments).exit_code == 1


def no_compiler(*_: object, **__: object) -> None:
    raise AttnccError(Diagnostic("A501", "NVRTC is not installed"))


def test_nan_elsewhere_and_numbers_where_there_is_none_are_errors() -> None:
    assert "rows are" not in _judged(checked("score = score + 1"))
    assert not checked("score = score + 1", wrong=float("nan")).holds
    assert not checked("score = log(score * scale)", wrong=1).holds


def test_steps_fit_80_columns_and_times_stand_below_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.package.write", no_compiler)
    arguments = "--device", "cpu", "--q-len", "40", "--kv-len", "50", "--kv-heads", "2"
    lines = CliRunner().invoke(attncc, ["run", "alibi_documents", *arguments]).output.splitlines()
    timed = [line for line in lines if re.search(r"  \d[\d.]* m?s$", line)]
    assert len(timed) == 6 and {len(line) for line in timed} == {80}
    assert max(map(len, lines)) == 80


@pytest.mark.parametrize(("length", "lines"), [(60, 1), (61, 2)])
def test_a_time_without_room_stands_on_a_line_of_its_own(length: int, lines: int) -> None:
    shown = _beside("x" * length, "12.0 ms ")
    assert len(shown) == lines and shown[-1].endswith("12.0 ms ") and len(shown[-1]) == 70
