"""Inputs as models bring them: what each is for is seen from the mask alone."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.plausible import MOST_DRAWN, Drawn, arrays, drawn, of_mask
from attncc.problem import Problem
from attncc.semantics.load import load
from attncc.source import SourceFile

LENGTH = 2048
DENSE = Problem(3, 8, 2, LENGTH, LENGTH, 64, 64)


def variant(lines: str) -> Variant:
    return load(SourceFile("drawn.attn", f"attn 1\nimport masks\nvariant drawn {{\n{lines}\n}}\n")).variants[0]


def draw(lines: str, problem: Problem = DENSE) -> dict[str, Drawn]:
    return drawn(variant(lines), problem, 0, {})


def runs(row: np.ndarray) -> np.ndarray:
    """Lengths of the stretches of one value."""
    cuts = np.flatnonzero(np.diff(row)) + 1
    return np.diff([0, *cuts, len(row)])


@pytest.mark.parametrize("mark", ["", " nondecreasing"])
def test_documents_are_contiguous_and_of_sensible_lengths(mark: str) -> None:
    doc = draw(f"input doc: i32[batch, pos]{mark}\nkeep if same_document(doc)")["doc"]
    assert doc.array.shape == (3, LENGTH) and doc.array.dtype == np.int32
    for row in doc.array:
        assert sorted(set(row)) == list(dict.fromkeys(row)) == list(range(len(set(row))))
        assert 2 <= len(runs(row)) <= 4 and runs(row).min() >= 20
    assert (doc.array[0] != doc.array[1]).any()
    assert doc.how.startswith("the numbers of segments, 4 of ")
    assert str(doc).startswith(f"doc: i32[batch, pos]{mark}: the numbers")


@pytest.mark.parametrize(("axes", "at"), [("[_]", ""), ("[_, _]", "b, "), ("[batch, _]", "b, ")])
def test_documents_of_imported_mods_are_documents(axes: str, at: str) -> None:
    """`attncc import-flex` and `flex_spec` tag no axis that both q_idx and kv_idx read."""
    lines = f"input doc: i64{axes}\nkeep if doc[{at}q_idx] == doc[{at}kv_idx]"
    doc = draw(lines)["doc"]
    assert doc.how.startswith("the numbers of segments, 4 of ") and doc.array.shape[-1] == LENGTH
    assert all(len(runs(row)) <= 4 for row in doc.array.reshape(-1, LENGTH))
    flags = draw(f"input seen: bool{axes}\nkeep if seen[{at}kv_idx] or q_idx - kv_idx < 9")["seen"]
    assert flags.how == f"true at 8 of {LENGTH} positions"
    blocks = draw(f"input doc: i32{axes}\nkeep if doc[{at}q_idx // 64] == doc[{at}kv_idx // 64]")["doc"]
    assert blocks.how.startswith("ints from")


def test_bounds_are_where_segments_begin_and_end() -> None:
    found = draw(
        "input first: i32[batch, pos]\ninput end: i32[batch, pos]\ninput far: i32[head, q]\n"
        "keep if first[b, q_pos] <= kv_idx < end[b, q_pos] and kv_idx < far[h, q_idx]"
    )
    first, end, far = (item.array for item in found.values())
    places = np.arange(LENGTH)
    assert (first <= places).all() and (places < end).all()
    assert all(len(runs(row)) <= 4 for row in first)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(first[1])), np.flatnonzero(np.diff(end[1])))
    np.testing.assert_array_equal(far, np.broadcast_to(end[0], (8, LENGTH)))
    assert [item.how.split(",")[0] for item in found.values()] == ["where segments begin", *["where segments end"] * 2]


def test_fewer_queries_have_the_segments_of_the_last_keys() -> None:
    lines = "input end: i32[batch, q]\ninput last: i32[batch, pos]\nkeep if kv_idx < end[b, q_idx]"
    found = draw(f"{lines} and kv_idx < last[b, q_pos]", Problem(2, 1, 1, 100, LENGTH, 64, 64))
    np.testing.assert_array_equal(found["end"].array, found["last"].array[:, -100:])


def test_global_positions_are_few_and_padding_is_at_the_end() -> None:
    found = draw("input wide: bool[batch, pos]\nkeep if local(9, 9) or wide[b, kv_idx] or wide[b, q_pos]")["wide"]
    assert (found.array.sum(axis=1) == LENGTH // 256).all()
    assert found.how == "true at 8 of 2048 positions"
    valid = draw("input valid: bool[batch, kv]\nkeep if causal()\nkeep if valid[b, kv_idx]")["valid"].array
    assert (np.diff(valid.astype(int), axis=1) <= 0).all()
    assert (valid.sum(axis=1) >= LENGTH * 3 // 4).all()


def test_lengths_are_a_part_of_the_keys() -> None:
    found = draw("input prefix_len: i32[batch]\ninput left: i32\nkeep if prefix(prefix_len[b]) or window(left)")
    for item in found.values():
        assert (item.array >= LENGTH // 16).all() and (item.array < LENGTH // 4).all()
    assert found["left"].how == str(found["left"].array.item())


def test_axes_of_any_length_are_as_long_as_their_index() -> None:
    found = draw(
        "input bias: f32[_]\ninput block: bool[_, _]\ninput free: f32[_]\ninput at: i32[kv]\n"
        "keep if block[q_idx // 64, kv_idx // 128]\nscore = score + bias[abs(q_pos - kv_idx)] + free[at[kv_idx]]"
    )
    assert {name: item.array.shape for name, item in found.items()} == {
        "bias": (LENGTH,), "block": (32, 16), "free": (64,), "at": (LENGTH,),
    }  # fmt: skip


def test_what_is_given_is_not_drawn() -> None:
    of, left = variant("input left: i32\ninput right: i32\nkeep if local(left, right)"), np.asarray(3)
    assert list(drawn(of, DENSE, 0, {"left": left})) == ["right"]
    found = arrays(of, DENSE, 0, {"left": left})
    assert found["left"] is left and set(found) == {"left", "right"}


@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (3, 1)])
def test_the_smallest_calls(lengths: tuple[int, int]) -> None:
    lines = "input near: i32[batch, q]\ninput start: i32[batch, pos]\ninput n: i32\ninput live: bool[kv]"
    found = draw(
        f"{lines}\nkeep if near[b, q_idx] + start[b, q_pos] > n and live[kv_idx]", Problem(2, 1, 1, *lengths, 64, 64)
    )
    assert found["start"].array.shape == (2, lengths[1])


def test_seeds_repeat() -> None:
    of = variant("input doc: i32[batch, pos]\nkeep if same_document(doc)")
    one, same, other = (drawn(of, DENSE, seed, {})["doc"].array for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_of_a_mask_only_what_it_reads_is_drawn() -> None:
    bias = "\n".join(f"input t{i}: f32[batch, head, q, kv]" for i in range(9))
    lines = f"{bias}\ninput width: i32\ninput doc: i32[batch, pos]\nlet far = t8[b, h, q_idx, kv_idx] > 0.0"
    mask = "keep if same_document(doc)\nkeep if q_pos - kv_idx < width"
    scores = "\n".join(f"score = score + t{i}[b, h, q_idx, kv_idx]" for i in range(8))
    found = of_mask(variant(f"{lines}\n{mask}\n{scores}"), DENSE, 0, {})
    assert list(found) == ["width", "doc"]
    assert found["doc"].how.startswith("the numbers of segments")
    assert list(of_mask(variant(f"{lines}\n{mask}\nkeep if far"), Problem(1, 1, 1, 64, 64, 64, 64), 0, {})) == [
        "t8",
        "width",
        "doc",
    ]


def test_inputs_too_large_to_draw_are_refused_before_any_is_drawn() -> None:
    large = variant("input near: bool[head, q, kv]\ninput w: i32\nkeep if near[h, q_idx, kv_idx] or kv_idx < w")
    problem = Problem(1, 16, 16, 4096, 4096, 64, 64)
    with pytest.raises(AttnccError) as refused:
        of_mask(large, problem, 0, {})
    (found,) = refused.value.diagnostics
    assert found.code == "A630" and found.span is not None and found.span.text.startswith("input near")
    assert f"{16 * 4096**2 + 1:,} entries" in found.message and "[16, 4096, 4096]" in found.notes[0]
    given = np.zeros((16, 4096, 4096), np.bool_)
    assert list(of_mask(large, problem, 0, {"near": given})) == ["w"]
    assert MOST_DRAWN >= 2 * 4096**2


def test_what_each_of_many_inputs_is_for_is_seen_from_its_own_lines() -> None:
    inputs = "\n".join(f"input doc{i}: i32[batch, pos]" for i in range(12))
    lines = "\n".join(f"keep if same_document(doc{i})" for i in range(12))
    found = drawn(variant(f"{inputs}\n{lines}"), DENSE, 0, {})
    assert all(item.how.startswith("the numbers of segments") for item in found.values())
