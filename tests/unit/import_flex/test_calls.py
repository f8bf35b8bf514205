from __future__ import annotations

from tests.unit.import_flex.snippets import codes, lines, mask  # noqa: F401


def test_arguments_of_every_sort(lines) -> None:  # noqa: F811
    python = """
        def helper(x, /, y, *rest, times=2, **options):
            return x * times + y + sum(rest)

        def mod(b, h, q_idx, kv_idx):
            return helper(q_idx, h, 1, 2, times=3, other=5) > helper(kv_idx, y=b)
        """
    assert lines(python) == ["const times: int = 2", "keep if q_idx * 3 + h + 3 > kv_idx * times + b + 0"]


def test_a_long_argument_that_is_read_twice_gets_a_name(lines) -> None:  # noqa: F811
    python = """
        def square(x):
            return x * x

        def mod(b, h, q_idx, kv_idx):
            return square(q_idx - kv_idx) + square(h) < 9
        """
    assert lines(python) == ["let x = q_idx - kv_idx", "keep if x * x + h * h < 9"]


def test_closures_see_what_is_bound_later(lines) -> None:  # noqa: F811
    python = """
        def make():
            def mod(b, h, q_idx, kv_idx):
                return inner(q_idx) > limit
            inner = lambda x: x + 1
            limit = 3
            return mod
        """
    assert lines(python, "make") == ["const limit: int = 3", "keep if q_idx + 1 > limit"]


def test_partial_and_defaults(lines) -> None:  # noqa: F811
    python = """
        from functools import partial
        def windowed(window, b, h, q_idx, kv_idx, step=1):
            return (q_idx - kv_idx < window) & (q_idx % step == 0)
        mod = partial(windowed, 128, step=2)
        """
    assert lines(python) == ["const step: int = 2", "keep if q_idx - kv_idx < 128", "keep if q_idx % step == 0"]


def test_methods_of_captured_scalars_and_tensors(lines) -> None:  # noqa: F811
    python = """
        def make(cap, lengths):
            def mod(b, h, q_idx, kv_idx):
                return (q_idx < cap.abs()) & (kv_idx < lengths.max()) & (q_idx < lengths.shape[0])
            return mod
        """
    assert lines(python, "make") == [
        "input cap:             i32", "input lengths_max:     i32", "input lengths_shape_0: i32",
        "keep if q_idx < abs(cap)", "keep if kv_idx < lengths_max", "keep if q_idx < lengths_shape_0",
    ]  # fmt: skip


def test_masks_of_flexattention(lines) -> None:  # noqa: F811
    causal = "causal = lambda b, h, q, k: q >= k\n"
    assert lines(causal + "mod = and_masks()\n") == []
    assert lines(causal + "mod = and_masks(causal, noop_mask)\n") == ["keep if q_idx >= kv_idx"]
    assert lines(causal + "mod = or_masks(causal, lambda b, h, q, k: k < 4)\n") == [
        "keep if q_idx >= kv_idx or kv_idx < 4"
    ]
    assert lines(causal + "mod = create_block_mask(causal, B=None, H=None, Q_LEN=8, KV_LEN=8)\n") == [
        "keep if q_idx >= kv_idx"
    ]


def test_randomness_is_refused_even_if_it_reads_no_index(lines) -> None:  # noqa: F811
    assert codes(lines, mask("torch.rand(()) > 0.5")) == ["A704"]


def test_endless_recursion_outside_ends(lines) -> None:  # noqa: F811
    python = "def f(n):\n    return f(n + 1)\nlimit = f(0)\n" + mask("q_idx < limit")
    assert lines(python) == ["input limit: i32", "keep if q_idx < limit"]
