from __future__ import annotations

from tests.unit.import_flex.snippets import lines  # noqa: F401


def test_score_lines_and_what_the_score_was(lines) -> None:  # noqa: F811
    python = """
        def mod(score, b, h, q_idx, kv_idx):
            first = score
            score = score * 2
            half = score / 2
            score = score + 1
            score = score
            return score * first + half
        """
    assert lines(python) == [
        "let score_before = score", "score = score * 2", "let half = score / 2", "score = score + 1",
        "score = score * score_before + half",
    ]  # fmt: skip


def test_a_score_that_is_returned_as_it_came(lines) -> None:  # noqa: F811
    assert lines("def mod(score, b, h, q_idx, kv_idx):\n    return score\n") == []


def test_another_name_for_the_score(lines) -> None:  # noqa: F811
    python = """
        def mod(s, b, h, q, k):
            s = s * 2
            score = s + 1
            return score * score
        """
    assert lines(python) == ["score = score * 2", "let score_ = score + 1", "score = score_ * score_"]


def test_mods_are_combined_masks_first(lines) -> None:  # noqa: F811
    python = """
        WIDTH = 4
        def bias(score, b, h, q_idx, kv_idx):
            return score + WIDTH
        def twice(score, b, h, q_idx, kv_idx):
            return score * 2
        def causal(b, h, q_idx, kv_idx):
            return q_idx >= kv_idx
        def near(b, h, q_idx, kv_idx):
            return q_idx - kv_idx < WIDTH
        """
    assert lines(python, "bias", "causal", "twice", "near") == [
        "const WIDTH: int = 4", "keep if q_idx >= kv_idx", "keep if q_idx - kv_idx < WIDTH", "score = score + WIDTH",
        "score = score * 2",
    ]  # fmt: skip


def test_lets_of_lets_and_values_that_are_read_once(lines) -> None:  # noqa: F811
    python = """
        def mod(b, h, q_idx, kv_idx):
            row = q_idx // 8
            column = q_idx % 8
            score = row * column
            near = score < 5
            far = score > 60
            return near | far
        """
    assert lines(python) == [
        "let row = q_idx // 8", "let column = q_idx % 8", "let score_ = row * column", "let near = score_ < 5",
        "let far = score_ > 60", "keep if near or far",
    ]  # fmt: skip


def test_loops_share_a_variable_unless_one_is_in_the_other(lines) -> None:  # noqa: F811
    python = """
        def mod(b, h, q_idx, kv_idx):
            i = q_idx - kv_idx
            beside = any(q_idx == i for i in range(2)) | any(kv_idx == i for i in range(3))
            inside = all(any(i == h for i in range(4)) & (i < 3) for i in range(2))
            return beside & inside & (i > 1) & (i < 5)
        """
    assert lines(python) == [
        "let i_3 = q_idx - kv_idx",
        "keep if any(q_idx == i for i in range(2)) or any(kv_idx == i for i in range(3))",
        "keep if all(any(i_2 == h for i_2 in range(4)) and i < 3 for i in range(2))",
        "keep if i_3 > 1", "keep if i_3 < 5",
    ]  # fmt: skip


def test_consts_of_consts(lines) -> None:  # noqa: F811
    python = """
        def make(side: int, ratio: float = 0.5):
            area = side * side
            limit = int(area * ratio)
            steps = [side, area]
            def mod(b, h, q_idx, kv_idx):
                return (q_idx < limit) & (kv_idx < steps[1]) & (h < -side // 2)
            return mod
        """
    assert lines(python, "make(4)") == [
        "const ratio: float = 0.5", "const side: int = 4", "const area: int = side * side",
        "const limit: int = floor(area * ratio)", "keep if q_idx < limit", "keep if kv_idx < area",
        "keep if h < -side // 2",
    ]  # fmt: skip
    assert lines(python, "make") == [
        "const ratio: float = 0.5", "input side: i32", "let area = side * side", "let x = area * ratio",
        "let limit = floor(x) if x >= 0 else -floor(-x)", "keep if q_idx < limit", "keep if kv_idx < area",
        "keep if h < -side // 2",
    ]  # fmt: skip
