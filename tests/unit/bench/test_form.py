"""Which masks and scores libraries have as options: told by what a variant does, not by how it is written."""

from __future__ import annotations

import pytest

from attncc.problem import Problem
from tests.unit.bench.benched import case, shipped

from attncc.bench.form import Form, form_of  # isort: skip

LONG = Problem(1, 2, 2, 5, 48, 16, 16)
OTHER = Form(band=False)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", Form(True)),
        ("keep if causal()", Form(True, None, 0)),
        ("keep if not kv_idx - 1 >= q_pos", Form(True, None, 0)),
        ("keep if (q_pos - kv_idx) * (q_pos - kv_idx + 1) >= 0 and kv_idx <= q_pos", Form(True, None, 0)),
        ("keep if window(7)", Form(True, 6, 0)),
        ("keep if window(1000)", Form(True, None, 0)),
        ("keep if local(5, 3)", Form(True, 5, 3)),
        ("keep if anticausal()", Form(True, 0, None)),
        ("keep if abs(q_pos - kv_idx) < 100", Form(True)),
        ("keep if dilated(2)", OTHER),
        ("keep if prefix(9) or causal()", OTHER),
        ("input n: i32\nkeep if q_pos - kv_idx <= n and causal()", None),
        ("input n: i32[batch]\nkeep if kv_idx >= n[b] - 10000 and causal()", OTHER),
        ("keep if kv_idx <= q_pos or h > 100", OTHER),
    ],
)
def test_masks(lines: str, expected: Form | None) -> None:
    found = form_of(case(lines))
    assert found == expected if expected is not None else found.band and found.right == 0


def test_positions_count_from_the_end_of_the_keys() -> None:
    assert form_of(case("keep if causal()", LONG)) == Form(True, None, 0)
    assert form_of(case("keep if q_idx >= kv_idx", LONG)) == Form(True, None, -43)
    assert form_of(case("keep if causal()", Problem(1, 2, 2, 1, 48, 16, 16))).full


@pytest.mark.parametrize(
    ("lines", "plain", "cap", "additive"),
    [
        ("let twice = score * 2", True, None, True),
        ("score = (score + 3) - 3", True, None, True),
        ("score = 30 * tanh(score / 30)", False, 30, False),
        ("const cap: float = 20\nlet part = score / cap\nscore = tanh(part)\nscore = score * cap", False, 20, False),
        ("score = 30 * tanh(score / 20)", False, None, False),
        ("score = 2 * score", False, None, False),
        ("input bias: f32[head, kv]\nscore = score + bias[h, kv_idx]", False, None, True),
        ("score = score - 0.25 * abs(q_pos - kv_idx)", False, None, True),
        ("score = score + 1", False, None, True),
        ("score = max(score, 0)", False, None, False),
        ("score = score * score", False, None, False),
    ],
)
def test_scores(lines: str, plain: bool, cap: float | None, additive: bool) -> None:
    found = form_of(case(lines))
    assert (found.plain, found.cap, found.additive) == (plain, cap, additive)
    assert found.full


def test_shipped_variants() -> None:
    forms = {name: form_of(case(shipped(name))) for name in ("softcap", "alibi", "documents", "sliding_window")}
    assert forms["softcap"].causal and forms["softcap"].cap == 50
    assert forms["alibi"].causal and forms["alibi"].additive and not forms["alibi"].plain
    assert not forms["documents"].band
    assert forms["sliding_window"] == Form(True, None, 0)  # 1024 keys are more than there are
