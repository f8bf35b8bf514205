from __future__ import annotations

from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex import import_flex
from tests.unit.import_flex.snippets import codes, lines, statements  # noqa: F401

MODULE = """
def make_window(width: int, both=False):
    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < width
    def score_mod(score, b, h, q_idx, kv_idx):
        return score * width
    return (mask_mod, score_mod) if both else mask_mod

class Model:
    width = 3
    def __init__(self, size):
        self.size = size
    def mask(self, b, h, q_idx, kv_idx):
        return q_idx < self.size
    @staticmethod
    def fixed(b, h, q_idx, kv_idx):
        return q_idx < 3
    def forward(self, x):
        def inner(b, h, q_idx, kv_idx):
            return q_idx < self.size
        return inner

def four(a, b, c, d):
    return lambda b_, h, q_idx, kv_idx: q_idx < a + d
"""


@pytest.mark.parametrize(
    ("target", "name", "expected"),
    [
        ("make_window(8)", "window", "keep if q_idx - kv_idx < width"),
        ("make_window.mask_mod", "window", "keep if q_idx - kv_idx < width"),
        ("make_window(8).score_mod", "window", "score = score * width"),
        ("make_window(width=2 ** 3)", "window", "keep if q_idx - kv_idx < width"),
        ("Model.mask", "Model", "keep if q_idx < size"),
        ("Model.fixed", "fixed", "keep if q_idx < 3"),
        ("Model.forward.inner", "forward", "keep if q_idx < size"),
        ("Model.forward", "forward", "keep if q_idx < size"),
        ("four(1, 2, 3, 4)", "four", "keep if q_idx < a + d"),
        ("and_masks(make_window(8), Model.fixed)", "and_masks", "keep if q_idx < 3"),
        ("lambda b, h, q, k: q < 2", "imported", "keep if q_idx < 2"),
    ],
)
def test_targets(lines, target: str, name: str, expected: str) -> None:  # noqa: F811
    found = lines(MODULE, target)
    assert found[-1] == expected
    assert f"variant {name} {{" in import_flex([f"mods.py:{target}"]).text


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("make_window(8, False, 3)", "`make_window` takes 2 arguments, and 3 came"),
        ("make_window(widht=8)", "`make_window` has no parameter `widht`"),
        ("make_window(8, width=9)", "`make_window` is given `width` twice"),
        ("make_window(widht=8).mask_mod", "`make_window` has no parameter `widht`"),
    ],
)
def test_arguments_in_a_target_fit(lines, target: str, message: str) -> None:  # noqa: F811
    with pytest.raises(AttnccError) as raised:
        lines(MODULE, target)
    assert [(item.code, item.message) for item in raised.value.diagnostics] == [("A704", message)]


def test_a_parameter_that_is_a_parameter_of_the_model_is_learnable(lines) -> None:  # noqa: F811
    python = """
    def alibi(slopes: torch.nn.Parameter):
        def score_mod(score, b, h, q_idx, kv_idx):
            return score + slopes[h] * (kv_idx - q_idx)
        return score_mod
    """
    assert lines(python, "alibi")[0] == "input slopes: f32[head] learnable"


def test_a_factory_of_four_parameters_is_no_mask(lines) -> None:  # noqa: F811
    assert lines(MODULE, "four")[-1] == "keep if q_idx < a + d"


def test_a_mask_and_a_score_together(lines) -> None:  # noqa: F811
    assert lines(MODULE, "make_window(8, both=True)")[1:] == ["keep if q_idx - kv_idx < width", "score = score * width"]


def test_the_only_mod_of_a_file_needs_no_name(lines, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "one.py").write_text("def causal(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n")
    assert statements(import_flex(["one.py"]).text) == ["keep if q_idx >= kv_idx"]


@pytest.mark.parametrize(
    "target", ["nothing", "Model", "make_window.nothing", "Model.forward.nothing", "make_window(8", "3"]
)
def test_what_names_no_mod(lines, target: str) -> None:  # noqa: F811
    assert codes(lines, MODULE, target)[0] in ("A708", "A702")


def test_names_of_variants(lines) -> None:  # noqa: F811
    assert "variant mine {" in import_flex_named(lines, "mine")
    assert "variant schedule_ {" in import_flex_named(lines, "schedule")


def import_flex_named(lines, name: str) -> str:  # noqa: F811
    lines(MODULE, "Model.fixed")
    return import_flex(["mods.py:Model.fixed"], name=name).text
