"""Shapes that a file, a target or a declaration tells, and what depends on them."""

from __future__ import annotations

import pytest

from attncc.diagnostics import AttnccError
from tests.unit.import_flex.snippets import codes, lines, mask, score  # noqa: F401


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("(t[b] > kv_idx).any()", "keep if any(t[b, i] > kv_idx for i in range(3))"),
        ("torch.all(t[b] > kv_idx, dim=-1)", "keep if all(t[b, i] > kv_idx for i in range(3))"),
        ("(t[b] > kv_idx).sum() > 1", "keep if sum(1 if t[b, i] > kv_idx else 0 for i in range(3)) > 1"),
        ("t[b].amax() > kv_idx", "keep if max(max(t[b, 0], t[b, 1]), t[b, 2]) > kv_idx"),
        ("t[b].max() > kv_idx", "keep if max(max(t[b, 0], t[b, 1]), t[b, 2]) > kv_idx"),
        ("t[b, 1:].amin() > kv_idx", "keep if min(t[b, 1], t[b, 2]) > kv_idx"),
        ("t[b, -1] > kv_idx", "keep if t[b, 2] > kv_idx"),
        ("t[1:][b - 2, 0] > kv_idx", "keep if t[(b - 2) % 3 + 1, 0] > kv_idx"),
        ("t[1:][b, 0] > kv_idx", "keep if t[b + 1, 0] > kv_idx"),
        ("t[..., 0][b] > kv_idx", "keep if t[b, 0] > kv_idx"),
        ("t[:, q_idx][b] > kv_idx", "keep if t[b, q_idx] > kv_idx"),
        ("t[b][None].squeeze(0)[2] > kv_idx", "keep if t[b, 2] > kv_idx"),
        ("(t[b] == t[h]).all()", "keep if all(t[b, i] == t[h, i] for i in range(3))"),
        ("kv_idx < t.shape[1] + t.size(0) + t.ndim", "keep if kv_idx < 9"),
        ("torch.bucketize(kv_idx, t[b]) > 1", "keep if sum(1 if t[b, i] < kv_idx else 0 for i in range(3)) > 1"),
        ("torch.isin(kv_idx, t[b])", "keep if any(t[b, i] == kv_idx for i in range(3))"),
        ("(torch.arange(3) * 2 == kv_idx).any()", "keep if any(i * 2 == kv_idx for i in range(3))"),
        ("torch.zeros(2).sum() + kv_idx > 1", "keep if sum(0 for i in range(2)) + kv_idx > 1"),
    ],
)
def test_rows(lines, python: str, expected: str) -> None:  # noqa: F811
    assert lines(mask(python, "t = torch.zeros(4, 3, dtype=torch.int32)"))[-1] == expected


def test_axes_of_several_dimensions(lines) -> None:  # noqa: F811
    text = mask("(t[h] > kv_idx).any(0).sum() > 1", "t = torch.zeros(4, 3, 2)")
    body = "1 if any(t[h, i_2, i] > kv_idx for i_2 in range(3)) else 0"
    assert lines(text)[1] == f"keep if sum({body} for i in range(2)) > 1"


@pytest.mark.parametrize(
    ("python", "code"),
    [
        ("(t[b] > kv_idx).any()", "A707"),
        ("(t[b] == kv_idx.unsqueeze(-1)).any(-1)", "A707"),
        ("torch.isin(kv_idx, t)", "A707"),
        ("torch.dot(t[b] + kv_idx, t[b]) > 2", "A704"),
        ("t[b, :] > kv_idx", "A707"),
        ("torch.max(t[b] + kv_idx, 0) > 1", "A704"),
    ],
)
def test_a_shape_that_is_not_known(lines, python: str, code: str) -> None:  # noqa: F811
    with pytest.raises(AttnccError) as raised:
        lines(mask(python, "t = load()"))
    (error,) = raised.value.diagnostics
    assert error.code == code
    assert code != "A707" or "the tensor's shape" in error.help


@pytest.mark.parametrize(
    ("part", "written"),
    [("t[:, 1:]", "t_1"), ("t[:, ::2]", "t_2"), ("t[:, -3:]", "t_3"), ("t[:, :9]", "t"), ("t[:, 0:-1:1]", "t")],
)
def test_a_part_of_an_axis_of_unknown_length(lines, part: str, written: str) -> None:  # noqa: F811
    """It is an input of its own, unless its entries have the numbers that they have in the tensor."""
    python = score(f"score + t[h, q_idx] + {part}[h, kv_idx]", "t = load()")
    found = lines(python, inputs=("t: f32[head, _]",))
    assert found[-1] == f"score = score + t[h, q_idx] + {written}[h, kv_idx]"


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("t[b] > kv_idx", "a tensor of shape \\[100\\] where a number should stand"),
        ("(t[b] > kv_idx).any()", "100 elements, and a mod over 1 to 64"),
        ("(t[b] == u[b]).any()", "shapes \\[100\\] and \\[3\\] don't fit"),
    ],
)
def test_axes_that_do_not_fit(lines, python: str, said: str) -> None:  # noqa: F811
    with pytest.raises(AttnccError, match=said):
        lines(mask(python, "t = torch.zeros(4, 100)\nu = torch.zeros(4, 3)"))


def test_parts_that_a_loop_takes_are_inputs_of_their_own(lines) -> None:  # noqa: F811
    python = """
    def make(t):
        parts = [t[:, n] for n in range(2)]

        def mod(score, b, h, q_idx, kv_idx):
            for part in parts:
                score = score + part[h]
            return score

        return mod
    """
    assert lines(python, "make")[:2] == ["input part:   f32[head]", "input part_2: f32[head]"]


def test_what_a_branch_alone_defines(lines) -> None:  # noqa: F811
    python = """
    import torch
    from setup import FAST

    if FAST:
        def factory(width, table):
            def mod(b, h, q_idx, kv_idx):
                return q_idx - kv_idx < width
            return mod
    else:
        limit = 3

    def other(table, width=4):
        if not isinstance(table, torch.Tensor | None) or isinstance(width, (str, list)) or isinstance(table, int):
            return None
        if isinstance(table, torch.nn.Parameter):
            return None
        if table is not None:
            limit = table.shape[0]
        else:
            limit = 2
        return lambda b, h, q_idx, kv_idx: q_idx < limit
    """
    assert lines(python, "factory(5)")[-1] == "keep if q_idx - kv_idx < width"
    assert lines(python, "other(torch.empty(7, 2))") == ["const limit: int = 7", "keep if q_idx < limit"]
    assert lines(python, "other(None)") == ["const limit: int = 2", "keep if q_idx < limit"]
    assert lines(python, "other") == ["input limit: i32", "keep if q_idx < limit"]


def test_two_functions_of_one_name_are_not_one(lines) -> None:  # noqa: F811
    python = """
    def factory(x):
        if x.sum() > 0:
            def mod(b, h, q_idx, kv_idx):
                return q_idx < kv_idx
            return mod

        def mod(b, h, q_idx, kv_idx):
            return q_idx > kv_idx
        return mod
    """
    assert codes(lines, python, "factory") == ["A709"]
    assert codes(lines, python, "factory.mod") == ["A709"]
