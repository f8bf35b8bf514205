from __future__ import annotations

import pytest

from attncc.ir import Const, Load, Type, show
from tests.loaded import codes, variant


@pytest.mark.parametrize("rate", [0.0, 0.002, 0.1, 0.5, 0.998])
def test_dropout_rates(rate: float) -> None:
    expected = Const(Type.FLOAT, rate) if rate else None
    assert variant(f"dropout {rate}").dropout == expected
    assert variant("const p: float = 0.9\ndropout p", p=rate).dropout == expected


@pytest.mark.parametrize("rate", ["1", "1.5", "-0.1", "0.001", "0.999", "true", "h", "q_len / 2", "kind", "rates[0]"])
def test_wrong_dropout_rates(rate: str) -> None:
    declared = "input kind: i32\ninput rates: f32[_]\nkeep if kind < rates[0]"
    assert codes(f"{declared}\ndropout {rate}") == ["A215"]


@pytest.mark.parametrize("rate", [1 / 512, 511 / 512])
def test_the_threshold_rounds_as_numpy_and_cuda_do(rate: float) -> None:
    """255.5 and 0.5 are ties: they go to the even 256 and 0, so nothing or everything would be dropped."""
    assert codes(f"dropout {rate}") == ["A215"]


def test_dropout_by_a_scalar() -> None:
    assert variant("input rate: f32\ndropout rate").dropout == Load(Type.FLOAT, "rate", ())


@pytest.mark.parametrize(
    ("scale", "shown"),
    [
        ("1", "1.0"),
        ("n / sqrt(head_dim)", "(3.0 / sqrt(to_float(head_dim)))"),
        ("t * log(kv_len + q_len)", "(t * log(to_float((kv_len + q_len))))"),
    ],
)
def test_scale(scale: str, shown: str) -> None:
    result = variant(f"const n: int = 3\ninput t: f32\nkeep if t < n\nscale {scale}").scale
    assert result is not None and show(result) == shown


@pytest.mark.parametrize("scale", ["h", "num_heads", "score", "scale", "x", "slope[0]", "learned"])
def test_what_scale_cannot_read(scale: str) -> None:
    declared = "input slope: f32[_]\ninput learned: f32 learnable\nlet x = q_len\nscore = score + slope[x] * learned"
    assert codes(f"{declared}\nscale {scale}") == ["A217"]


def test_scale_is_a_number() -> None:
    assert codes("scale q_len > 0") == ["A201"]


@pytest.mark.parametrize(
    ("kind", "good"), [("f32[head]", True), ("bf16[head]", True), ("f32", False), ("i32[head]", False)]
)
def test_sink(kind: str, good: bool) -> None:
    lines = f"input s: {kind}\nsink s"
    assert codes(lines) == ([] if good else ["A216"])
    assert not good or variant(lines).sink == "s"


@pytest.mark.parametrize("kind", ["f32[kv_head]", "f32[head, _]", "f32[8]", "f32[_]"])
def test_sink_has_the_one_axis_head(kind: str) -> None:
    assert codes(f"input s: {kind}\nsink s") == ["A216"]


def test_sink_of_what_is_no_input() -> None:
    assert codes("sink nothing") == ["A101"]
    assert codes("let x = 1.0 * q_len\nsink x") == ["A216"]


@pytest.mark.parametrize("normalize", ["softmax", "sigmoid", "none"])
def test_normalize(normalize: str) -> None:
    assert variant(f"normalize {normalize}").normalize == normalize
    with_sink = f"normalize {normalize}\ninput s: f32[head]\nsink s"
    assert codes(with_sink) == ([] if normalize == "softmax" else ["A218"])


@pytest.mark.parametrize("line", ["scale 1", "normalize none", "dropout 0.5", "dropout 0", "sink s"])
def test_once(line: str) -> None:
    assert codes(f"input s: f32[head]\nkeep if s[h] > 0\n{line}\n{line}") == ["A219"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("keep if score > 0", ["A301"]),
        ("let x = score\nlet y = 2 * x\nkeep if kv_idx > 0 and y > 0", ["A301"]),
        ("let x = score\nkeep if near(x)", ["A301"]),
        ("let x = score\nkeep if kv_idx > 0\nscore = x", []),
        ("keep if scale > 0", []),
    ],
)
def test_keep_does_not_read_the_score(lines: str, expected: list[str]) -> None:
    assert codes(lines, "mask near(x) {\nlet y = x\nkeep if y > 0\n}") == expected


def test_constant_keeps() -> None:
    assert codes("const all_of: bool = true\nkeep if all_of\nkeep if 0 * 3 > 1") == ["A302", "A302"]
    assert codes("const all_of: bool = true\nkeep if all_of and kv_idx > 3") == []


def test_unused_names() -> None:
    assert codes("const a: int = 1\ninput x: i32\nlet y = q_idx\nlet z = y + a") == ["A120", "A120"]
    assert codes("input s: f32[head]\nsink s\nconst p: float = 0.1\ndropout p\nconst n: int = 2\ninput t: f32[n]") == [
        "A120"
    ]


def test_gradients_that_are_always_zero() -> None:
    assert codes("input x: f32 learnable\nkeep if kv_idx < x") == ["A224"]
    assert codes("input x: f32 learnable\ndropout x") == ["A224"]
    assert codes("input x: f32 learnable\nlet y = x * 2\nscore = score + y") == []
    assert codes("input x: f32[head] learnable\nsink x") == []


def test_warnings_wait_for_errors() -> None:
    assert codes("let unused = q_idx\nkeep if nothing") == ["A101"]
