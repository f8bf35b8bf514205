from __future__ import annotations

import pytest

from attncc.ir import Axis, Input
from tests.loaded import codes, variant

INDICES = ("b", "h", "kv_h", "q_idx", "kv_idx", "q_pos")
FITS = {
    "batch": {"b"},
    "head": {"h"},
    "kv_head": {"kv_h"},
    "q": {"q_idx"},
    "kv": {"kv_idx"},
    "pos": {"kv_idx", "q_pos", "q_idx"},
    "_": set(INDICES),
    "8": set(INDICES),
}


@pytest.mark.parametrize("axis", FITS)
@pytest.mark.parametrize("index", INDICES)
def test_each_index_on_each_axis(axis: str, index: str) -> None:
    expected = [] if index in FITS[axis] else ["A203"]
    assert codes(f"input t: f32[{axis}]\nscore = score + t[{index}]") == expected
    assert codes(f"input t: f32[{axis}]\nlet i = {index}\nlet j = i\nscore = score + t[j]") == expected


@pytest.mark.parametrize("axis", FITS)
@pytest.mark.parametrize("index", ["q_idx + kv_idx", "h * 1", "0", "num_heads - 1", "q_len", "other[b]", "min(h, 3)"])
def test_untagged_values_index_everything(axis: str, index: str) -> None:
    lines = f"input t: f32[{axis}]\ninput other: i32[batch]\nkeep if other[b] > 0\nscore = score + t[{index}]"
    assert codes(lines) == []


def test_declarations() -> None:
    lines = """const n: int = 3
        input a: f32
        input b_: bool[_]
        input c: i64[batch, head, q, 2 * n] nondecreasing
        input d: bf16[kv_head, pos, kv] learnable
        let all_of_them = (a + d[kv_h, kv_idx, kv_idx]) * c[b, h, q_idx, 0]
        score = score + (all_of_them if b_[0] else 0)"""
    tags = [Axis(tag) for tag in ("batch", "head", "q")]
    assert variant(lines).inputs == (
        Input("a", "f32", ()),
        Input("b_", "bool", (Axis(),)),
        Input("c", "i64", (*tags, Axis(length=6)), nondecreasing=True),
        Input("d", "bf16", (Axis("kv_head"), Axis("pos"), Axis("kv")), learnable=True),
    )


@pytest.mark.parametrize(
    ("declaration", "code"),
    [
        ("input x: i32[batch, pos] learnable", "A214"),
        ("input x: bool[pos] nondecreasing", "A214"),
        ("input x: f32[pos] nondecreasing", "A214"),
        ("input x: i32 nondecreasing", "A214"),
        ("input x: f32[_, _, _, _, _]", "A214"),
        ("input x: f64[head]", "A113"),
        ("input x: f32[nowhere]", "A101"),
        ("input x: f32[size]", "A101"),
        ("input x: f32[kv_len]", "A101"),
        ("input x: f32[kv_len + 1]", "A211"),
        ("input x: f32[2.0]", "A213"),
        ("input x: f32[_] learned", "A113"),
    ],
)
def test_wrong_declarations(declaration: str, code: str) -> None:
    assert codes(declaration) == [code]


@pytest.mark.parametrize("use", ["x", "x[0]", "x[b, h]", "floor(x)"])
def test_a_wrong_declaration_brings_no_further_errors(use: str) -> None:
    assert codes(f"input x: f64[nowhere]\nscore = score + {use}") == ["A113", "A101"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_number_of_indices(count: int) -> None:
    indices = ", ".join(["b", "kv_idx", "0"][:count])
    text = f"t[{indices}]" if count else "t"
    assert codes(f"input t: f32[batch, pos]\nscore = score + {text}") == ["A204" if count else "A106"]


@pytest.mark.parametrize("index", ["score", "1.0", "b == 0"])
def test_indices_are_ints(index: str) -> None:
    assert codes(f"input t: f32[_]\nscore = score + t[{index}]") == ["A201"]


@pytest.mark.parametrize("text", ["h[0]", "x[0]", "n[0]", "y[0]", "z[0]"])
def test_only_tensors_are_indexed(text: str) -> None:
    lines = f"const n: int = 1\ninput y: f32\nlet x = q_idx\nkeep if x > n\nscore = score * y + {text}"
    assert codes(lines) == ["A101" if "z" in text else "A106"]
