"""Candidates are made, checked, chosen among and timed, on the CPU by a stopwatch that only counts."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import attncc
from attncc.ir import Variant
from tests.unit.bench.benched import SMALL, Counting, case, shipped, torch, variant

from attncc.bench import flex, peers  # isort: skip
from attncc.bench.measure import Bench, Measured, Row  # isort: skip
from attncc.bench.plot import drawn, save  # isort: skip
from attncc.bench.table import text  # isort: skip


def uncompiled(function: Any, **_: Any) -> Any:
    return function


@pytest.fixture(autouse=True)
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "flex", lambda case, form: flex.candidates(case, uncompiled))


def measured(of: str, pass_name: str = "forward", against: tuple[str, ...] = ("sdpa", "flex", "fa4")) -> Measured:
    kernel = attncc.compile(of, dtype="fp32", head_dim=16)
    return Bench(kernel, against, Counting()).measure(case(shipped(of), pass_name=pass_name))


def rows(of: str, pass_name: str = "forward") -> dict[str, Row]:
    return {row.name: row for row in measured(of, pass_name).rows}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("full", "no mask, "),
        ("causal", "is_causal, "),
        ("documents", "a mask 2x1x48x48 bool, "),
        ("alibi", "a mask 2x4x48x48 float32, "),
        ("block_map", "a mask 2x4x48x48 bool, "),
    ],
)
def test_peers_agree_with_fp64_and_say_in_which_form(name: str, form: str) -> None:
    found = rows(name)
    assert list(found) == ["attncc", "sdpa", "flex", "fa4"]
    assert found["sdpa"].how.startswith(form)
    for row in (found["attncc"], found["sdpa"], found["flex"]):
        assert row.relative_error is not None and row.relative_error < 1e-5
        assert row.timing is not None and row.tflops is not None
        assert row.times_own_interval is not None and row.times_own is not None
    assert found["attncc"].times_own == 1
    assert found["fa4"].trouble == "not installed: pip install flash-attn-4"
    assert found["fa4"].timing is None


@pytest.mark.parametrize("pass_name", ["backward", "both"])
def test_gradients(pass_name: str) -> None:
    found = rows("sliding_window", pass_name)
    assert found["sdpa"].timing is not None and found["attncc"].timing is not None
    assert "does not support backward on CPU" in found["flex"].trouble
    assert not found["flex"].wrong


@pytest.mark.parametrize(
    ("name", "sdpa", "flex"),
    [
        ("softcap", "has no score lines, except what is added", ""),
        ("sink_attention", "has no sink", "has no sink"),
        ("sigmoid_attention", "softmax alone", "softmax alone"),
        ("dropout_attention", "drops other pairs", "no dropout"),
    ],
)
def test_what_peers_cannot_express_is_said(name: str, sdpa: str, flex: str) -> None:
    found = rows(name)
    assert found["attncc"].timing is not None
    assert sdpa in found["sdpa"].trouble
    assert flex in found["flex"].trouble and bool(flex) == (found["flex"].timing is None)


def test_what_is_wrong_is_marked_and_not_timed() -> None:
    def wrong(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v) * 1.01

    mine = variant("")
    found = Bench(wrong, ("sdpa",), Counting()).measure(case(mine, _ungrouped())).rows
    assert found[0].wrong and found[0].timing is None and "off by 0.01 of fp64" in found[0].trouble
    assert found[1].timing is not None and found[1].times_own is None
    nan = Bench(lambda q, k, v: q * math.nan, ("sdpa",), Counting()).measure(case(mine, _ungrouped()))
    assert nan.rows[0].wrong and "off by nan" in nan.rows[0].trouble
    assert "wrong" in text([nan], "a GPU")
    assert json.loads(json.dumps(nan.to_json(), allow_nan=False))["rows"][0]["relative_error"] is None


def _ungrouped() -> Any:
    return replace(SMALL, num_kv_heads=SMALL.num_heads)


def test_rows_that_keep_nothing_make_sdpa_wrong_not_us() -> None:
    lines = "keep if kv_idx >= 20 and causal()"
    kernel = attncc.compile(f"attn 1\nimport masks\nvariant mine {{\n{lines}\n}}\n", dtype="fp32", head_dim=16)
    found = Bench(kernel, ("sdpa",), Counting()).measure(case(lines)).rows
    assert found[0].timing is not None
    assert found[1].timing is not None or found[1].wrong


def test_a_failing_kernel_of_ours_is_no_row() -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        Bench(broken, (), Counting()).measure(case(shipped("causal")))


def test_a_peer_that_cannot_be_made_is_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: Any) -> Any:
        raise MemoryError("CUDA out of memory. Tried to allocate 68 GiB\nand more")

    monkeypatch.setitem(peers.PEERS, "flex", too_large)
    row = rows("causal")["flex"]
    assert row.trouble == "MemoryError: CUDA out of memory. Tried to allocate 68 GiB" and not row.wrong


def test_the_last_resort_is_timed_where_nothing_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = peers.sdpa

    def none_fused(case: Any, form: Any) -> Any:
        def refused(*_: Any) -> Any:
            raise RuntimeError("No available kernel. Aborting execution.")

        found = made(case, form)
        return [item if item.last_resort else item.__class__("sdpa", item.how, refused) for item in found]

    assert "flash" in rows("causal")["sdpa"].how
    monkeypatch.setitem(peers.PEERS, "sdpa", none_fused)
    assert rows("causal")["sdpa"].how == "is_causal, unfused"
    monkeypatch.setitem(peers.PEERS, "sdpa", lambda case, form: none_fused(case, form)[:2])
    assert "RuntimeError: No available kernel" in rows("causal")["sdpa"].trouble


# -------------------------------------------------------------------- FlashAttention-4


@pytest.fixture
def fake_fa4(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A flash_attn.cute that computes causal attention of [batch, length, heads, head dim]."""
    calls: list[dict[str, Any]] = []

    def flash_attn_func(q: Any, k: Any, v: Any, **given: Any) -> Any:
        calls.append(given)
        assert q.shape[1] == SMALL.q_len and q.is_contiguous()
        of = (item.transpose(1, 2) for item in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*of, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2), None

    cute = ModuleType("flash_attn.cute")
    cute.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    cute.__spec__ = SimpleNamespace(name="flash_attn.cute")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    monkeypatch.setitem(sys.modules, "flash_attn.cute", cute)
    return calls


def fa4(of: Variant | str, pass_name: str = "forward", dtype: str = "bf16") -> Row:
    mine = case(of, pass_name=pass_name, dtype=dtype)
    own = SimpleNamespace(calls=0)

    def call(q: Any, k: Any, v: Any, **_: Any) -> Any:
        own.calls += 1
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return Bench(call, ("fa4",), Counting()).measure(mine).rows[1]


@pytest.mark.parametrize("pass_name", ["forward", "backward", "both"])
def test_fa4_is_asked_for_what_it_has(fake_fa4: list[dict[str, Any]], pass_name: str) -> None:
    row = fa4("keep if causal()", pass_name)
    assert row.how == "causal" and row.timing is not None, row.trouble
    assert fake_fa4[0] == {"causal": True, "softmax_scale": 0.25}


def test_fa4_windows_and_caps(fake_fa4: list[dict[str, Any]]) -> None:
    row = fa4("keep if window(5)\nscore = 30 * tanh(score / 30)")
    assert fake_fa4[0] == {"window_size": (4, 0), "softcap": 30.0, "softmax_scale": 0.25}
    assert row.how == "window 4, 0, softcap 30"
    assert row.wrong  # the fake computes causal attention


@pytest.mark.parametrize(
    ("lines", "dtype", "reason"),
    [
        ("keep if dilated(2)", "bf16", "full, causal and window masks alone"),
        ("score = score * 2", "bf16", "no score lines, except a soft cap"),
        ("keep if causal()", "fp32", "no fp32"),
        ("normalize sigmoid", "bf16", "softmax alone"),
    ],
)
def test_what_fa4_has_not(fake_fa4: list[dict[str, Any]], lines: str, dtype: str, reason: str) -> None:
    row = fa4(lines, dtype=dtype)
    assert reason in row.trouble
    assert not fake_fa4


# -------------------------------------------------------------------- what is printed


def test_the_table_fits_80_columns() -> None:
    shown = text([measured("alibi"), measured("alibi")], "NVIDIA H100 80GB HBM3")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("alibi, forward, fp32, 4 heads over 2 key heads, head dim 16, on NVIDIA H100")
    assert sum(line.lstrip().startswith("48  attncc") for line in lines) == 2
    assert "fa4     not installed: pip install flash-attn-4" in lines


def test_forms_and_troubles_name_their_lengths_where_they_differ() -> None:
    one, other = measured("causal", against=("sdpa",)), measured("softcap", against=("sdpa",))
    shown = " ".join(text([one, other], "a GPU").split())
    assert "sdpa is_causal, " in shown
    assert "sdpa 48: scaled_dot_product_attention has no score lines" in shown


def test_the_record_is_plain_json_with_the_functions_that_flex_attention_got() -> None:
    found = measured("causal", against=("sdpa", "fa4")).to_json()
    assert "return q_idx >= kv_idx" in found["flex"]
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["kept_pairs"] == 2 * 4 * 48 * 49 // 2
    assert len(again["rows"][0]["timing"]["windows"]) == 9
    assert again["rows"][2]["timing"] is None


@pytest.mark.parametrize("cases", [1, 3])
def test_the_plot(cases: int, tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    save([measured("causal", against=("sdpa", "fa4"))] * cases, "a GPU", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("tflops", [400.0, 1e-3])
def test_the_plot_shows_every_point(tflops: float) -> None:
    """With its interval, above a vertical axis that begins at 0."""
    pytest.importorskip("matplotlib")
    found = measured("causal", against=("sdpa",))
    found = replace(found, rows=tuple(replace(row, tflops=tflops) for row in found.rows))
    (axes,) = drawn([found, found], "a GPU").axes
    least, most = axes.get_ylim()
    assert least == 0 and tflops < most < 1.2 * tflops
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["attncc", "sdpa"]
