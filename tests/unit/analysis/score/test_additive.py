from __future__ import annotations

import pytest

from attncc import api
from attncc.analysis.score.additive import only_adds

SPEC = "attn 1\nvariant scored {{\n    input slope: f32[head]\n    score = {}\n}}\n"


@pytest.mark.filterwarnings("ignore:.*A120")  # some lines leave the input out
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("score", True),
        ("score - slope[h] * (q_pos - kv_idx)", True),
        ("slope[h] + (score + 1.0)", True),
        ("1.0 - score", False),
        ("score * 2.0", False),
        ("score + score", False),
        ("score - floor(score)", False),
        ("tanh(score)", False),
    ],
)
def test_only_what_adds_to_the_score(line: str, expected: bool) -> None:
    assert only_adds(api.parse(SPEC.format(line)).variant) is expected


def test_no_score_lines_add_nothing() -> None:
    assert only_adds(api.parse("attn 1\nvariant full {\n}\n").variant)
