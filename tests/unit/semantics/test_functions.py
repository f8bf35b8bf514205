"""Named functions: written out where they are called, typed by their arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.evaluate import Environment, evaluate
from attncc.ir import Type, Variant
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source


def loaded(items: str, lines: str, path: str = "given.attn") -> Variant:
    return load(SourceFile(path, f"attn 1\nimport masks\n{items}\nvariant v {{\n{lines}\n}}\n")).variants[0]


def test_a_function_is_its_expression() -> None:
    found = loaded("fn capped(x, limit) = limit * tanh(x / limit)", "score = capped(score, 30.0)")
    assert found.show_lowered() == loaded("", "score = 30.0 * tanh(score / 30.0)").show_lowered()


@pytest.mark.parametrize(
    ("argument", "kind"), [("kv_idx", Type.INT), ("0.5 * kv_idx", Type.FLOAT), ("kv_idx > 3", Type.BOOL)]
)
def test_the_arguments_make_its_type(argument: str, kind: Type) -> None:
    found = loaded("fn chosen(x, y) = x if q_pos >= kv_idx else y", f"let a = chosen({argument}, {argument})")
    assert found.lets["a"].value.type is kind


def test_it_takes_tensors_and_calls_masks_and_functions() -> None:
    items = """
        fn entry(table, i) = table[h, i] if near(4) else 0
        mask near(width) = causal() and distance() < width
        fn distance() = q_pos - kv_idx"""
    found = loaded(items, "input bias: f32[head, _]\nkeep if near(6)\nscore = score + entry(bias, distance())")
    seen = Environment(
        {"q_pos": np.arange(8)[:, None], "kv_idx": np.arange(8), "h": 1, "score": 1.0},
        {"bias": np.array([[9, 9, 9, 9], [10, 20, 30, 40]])},
    )
    distance = np.arange(8)[:, None] - np.arange(8)
    np.testing.assert_array_equal(evaluate(found.keeps[0].condition, seen), (distance >= 0) & (distance < 6))
    inside = (distance >= 0) & (distance < 4)
    expected = 1 + np.where(inside, np.array([10, 20, 30, 40])[np.clip(distance, 0, 3)], 0)
    np.testing.assert_array_equal(evaluate(found.scores[0].value, seen), expected)


def test_an_argument_may_read_the_score_so_far() -> None:
    found = loaded("fn squared(x) = x * x", "score = squared(score)\nscore = squared(score + 1)")
    assert found.show_lowered() == loaded("", "score = score * score\nscore = (score + 1) * (score + 1)").show_lowered()


def test_a_mask_of_the_score_is_still_refused() -> None:
    with pytest.raises(AttnccError, match="A301"):
        loaded("fn squared(x) = x * x", "keep if squared(score) > 1")


def test_functions_are_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.attn").write_text("attn 1\nfn half(x) = x / 2\n")
    text = 'attn 1\nimport "mine.attn"\nvariant v { score = half(score) }\n'
    found = load(SourceFile(str(tmp_path / "given.attn"), text)).variants[0]
    assert found.show_lowered() == loaded("", "score = score / 2").show_lowered()


def test_one_that_nobody_calls_is_checked() -> None:
    with pytest.raises(AttnccError, match="A101"):
        loaded("fn lost(x) = x + nowhere", "score = score * 2")


def test_many_calls_in_calls_meet_the_limit_of_size() -> None:
    items = "\n".join(["fn f0(x) = x + x", *(f"fn f{n}(x) = f{n - 1}(x) + f{n - 1}(x)" for n in range(1, 30))])
    with pytest.raises(AttnccError, match="A220"):
        loaded(items, "score = f29(score)")


def test_layout() -> None:
    text = "attn 1\nfn  half( x )=x/2 # c\nfn twice(x)   = 2*x\nvariant v {}\n"
    formatted = format_source(SourceFile("given.attn", text))
    assert formatted == "attn 1\n\nfn half(x) = x / 2  # c\nfn twice(x) = 2 * x\n\nvariant v {}\n"
    assert format_source(SourceFile("given.attn", formatted)) == formatted
