from __future__ import annotations

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex import import_flex
from tests.unit.import_flex.snippets import codes, lines, mask, score  # noqa: F401

# How a captured tensor is read, and what is guessed of it.
GUESSES = [
    ("t[b] > kv_idx", "i32[batch]"),
    ("t[b]", "bool[batch]"),
    ("t[h, q_idx] & (q_idx > 1)", "bool[head, q]"),
    ("~t[b, kv_idx] | (q_idx > 1)", "bool[batch, pos]"),
    ("t[q_idx] == t[kv_idx]", "i32[_]"),
    ("t[b][q_idx] == t[b, kv_idx]", "i32[batch, _]"),
    ("t[q_idx // 2] > 0.5", "f32[_]"),
    ("t[q_idx // 2][h] > 1", "i32[_, head]"),
    ("torch.exp(t[h]) > kv_idx", "f32[head]"),
    ("torch.where(t[h], q_idx > 1, kv_idx > 2)", "bool[head]"),
    ("t[t[q_idx]] > 2", "i32[_]"),
    ("(t[b] & 1) == 0", "i32[batch]"),
    ("t < q_idx", "i32"),
    ("t & (q_idx > 1)", "bool"),
    ("q_idx * t > 1.5 * h", "f32"),
    ("q_idx - t[b] > 1", "i32[batch]"),
    ("(t[b] == t[h]) & t[q_idx]", "bool[_]"),
]


@pytest.mark.parametrize(("python", "declaration"), GUESSES)
def test_guesses_in_masks(lines, python: str, declaration: str) -> None:  # noqa: F811
    assert lines(mask(python))[0] == f"input t: {declaration}"


@pytest.mark.parametrize(
    ("python", "declaration"),
    [
        ("score + t[h]", "f32[head]"), ("score * t", "f32"), ("score - t[h] * (q_idx - kv_idx)", "f32[head]"),
        ("score + torch.where(t[q_idx] == t[kv_idx], 0.0, 1.0)", "i32[_]"), ("score + (q_idx - t[b])", "i32[batch]"),
        ("torch.where(t[q_idx], score, 0.0)", "bool[q]"),
        ("score + t[b, h, q_idx, kv_idx]", "f32[batch, head, q, pos]"),
    ],
)  # fmt: skip
def test_guesses_in_scores(lines, python: str, declaration: str) -> None:  # noqa: F811
    assert lines(score(python))[0] == f"input t: {declaration}"


@pytest.mark.parametrize(
    ("definition", "declaration"),
    [
        ("torch.zeros(4, dtype=torch.int64)", "i64[head]"),
        ("torch.randn(4)", "f32[head]"),
        ("x.to(torch.bool)", "bool[head]"),
        ("torch.randint(0, 5, (4,)).to('cuda')", "i64[head]"),
        ("torch.arange(4)", "i64[head]"),
        ("torch.arange(0, 2, 0.5)", "f32[head]"),
        ("torch.arange(4, dtype=torch.int32)", "i32[head]"),
        ("torch.arange(4) // 2 + 1", "i64[head]"),
        ("7 - torch.arange(4, dtype=torch.int32)", "i32[head]"),
        ("-torch.arange(4) % x.int()", "i64[head]"),
        ("torch.arange(4) / 2", "f32[head]"),
        ("torch.arange(4) * 0.5", "f32[head]"),
        ("torch.arange(4, dtype=torch.int32) + torch.arange(4)", "i64[head]"),
        ("torch.arange(4) % 3 == 1", "bool[head]"),
        ("torch.repeat_interleave(torch.arange(2), 2)", "i64[head]"),
        ("x.half()", "f16[head]"),
        ("x.to(torch.bfloat16)", "bf16[head]"),
        ("nn.Parameter(torch.zeros(4))", "f32[head] learnable"),
        ("torch.ones(4, requires_grad=True)", "f32[head] learnable"),
        ("torch.tensor([1, 2])", "f32[head]"),
        ("load()", "f32[head]"),
    ],
)
def test_dtypes_that_a_definition_shows(lines, definition: str, declaration: str) -> None:  # noqa: F811
    assert lines(score("score + t[h] * 0.5", f"t = {definition}"))[0] == f"input t: {declaration}"


def test_declared_inputs(lines) -> None:  # noqa: F811
    python = mask("(doc[b, q_idx] == doc[b, kv_idx]) & (q_idx < WINDOW)", "WINDOW = 7")
    declared = ("doc:i64[batch, pos] nondecreasing", "WINDOW:i32")
    assert lines(python, inputs=declared)[:2] == ["input doc:    i64[batch, pos] nondecreasing", "input WINDOW: i32"]
    assert codes(lines, python, inputs=("doc:i64[pos]",)) == ["A707"]
    assert codes(lines, python, inputs=("dok:i64[pos]",)) == ["A712"]
    assert codes(lines, python, inputs=("doc:i64[",))[0].startswith("A0")
    assert codes(lines, python, inputs=("doc:i32[batch,pos] keep if true",)) == ["A712"]


def test_a_declared_dtype_decides_what_operators_mean(lines) -> None:  # noqa: F811
    python = mask("t[b] | (q_idx > 1)")
    assert lines(python)[1] == "keep if t[b] or q_idx > 1"
    assert lines(python, inputs=("t:i32[batch]",))[1] == "keep if t[b] | (1 if q_idx > 1 else 0) != 0"


def test_names_that_attn_takes(lines) -> None:  # noqa: F811
    python = mask("(seed[b] > q_idx) & (_tmp__x[b] > 1) & (keep[b] > 2) & (q_pos[b] > 3) & (MASK > h)", "MASK = 4")
    names = [line.split(":")[0].split()[1] for line in lines(python) if line.startswith(("input", "const"))]
    assert names == ["MASK", "seed_", "tmp_x", "keep_", "q_pos_"]


def test_one_name_for_two_values(lines) -> None:  # noqa: F811
    python = """
        def make(t):
            return lambda b, h, q_idx, kv_idx: t[b] > q_idx
        mod = and_masks(make(first()), make(second()))
        """
    assert lines(python) == [
        "input t:   i32[batch]", "input t_2: i32[batch]", "keep if t[b] > q_idx", "keep if t_2[b] > q_idx",
    ]  # fmt: skip


def test_notes(tmp_path) -> None:
    path = tmp_path / "mods.py"
    path.write_text(mask("table[q_idx - kv_idx] & (h > 1)"))
    assert "An index below 0 reads 0 here" in import_flex([f"{path}:mod"]).text
    path.write_text(mask("table[torch.clamp(q_idx - kv_idx, 0, 5)] & (h > 1)"))
    assert "An index below 0" not in import_flex([f"{path}:mod"]).text
    path.write_text(mask("kv_idx < 5"))
    assert "top-left" not in import_flex([f"{path}:mod"]).text


def test_an_index_of_the_wrong_type(tmp_path) -> None:
    path = tmp_path / "mods.py"
    path.write_text(mask("table[q_idx > 1] > 2"))
    with pytest.raises(AttnccError, match="an index must be an int, and this is a bool"):
        import_flex([f"{path}:mod"])
