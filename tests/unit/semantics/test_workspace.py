from __future__ import annotations

import time

import pytest

from attncc.evaluate import Environment, evaluate
from attncc.ir import Const, Local, Type, apply, const, symbol
from attncc.semantics.limits import MAX_KEEP_PARTS
from attncc.semantics.workspace import MAX_DEPTH, MAX_NODES, Measure, Workspace, measure
from tests.loaded import codes, variant


def test_measure_counts_the_written_out_tree() -> None:
    leaf = symbol("q_idx")
    twice = apply("add", leaf, leaf)
    assert measure(leaf, {}) == (1, 1)
    assert measure(apply("mul", twice, twice), {}) == (7, 3)
    assert measure(apply("neg", Local(Type.INT, "x")), {"x": Measure(9, 5)}) == (11, 7)


def test_names_of_lets() -> None:
    workspace = Workspace()
    assert [workspace.add_let("m__x", symbol("q_idx"), None).name for _ in range(3)] == ["m__x", "m__x__2", "m__x__3"]


def chain(length: int) -> str:
    """Lets that read each other, each two levels above the one before."""
    lets = "\n".join(f"let x{i + 1} = x{i} + 1" for i in range(length))
    return f"let x0 = q_idx\n{lets}\nkeep if x{length} > 0"


def test_depth_is_counted_through_lets() -> None:
    assert codes(chain(MAX_DEPTH // 2 - 2)) == []
    assert codes(chain(MAX_DEPTH // 2 + 1)) == ["A220"]


def test_the_deepest_expression_that_passes_can_be_evaluated() -> None:
    deepest = variant(chain(MAX_DEPTH // 2 - 2))
    environment = Environment({"q_idx": 0}, lets=deepest.lets)
    assert evaluate(deepest.keeps[0].condition, environment)


LOOPS = "input t: i32[_]\nkeep if any(any(t[i] == t[j] for i in range({0})) for j in range({0}))"


def test_size() -> None:
    assert codes(LOOPS.format(20)) == []
    assert MAX_NODES < 6 * 64 * 64
    assert codes(LOOPS.format(64)) == ["A220"]


@pytest.mark.parametrize(
    "items",
    [
        "".join(f"mask m{i}() = m{i + 1}()\n" for i in range(300)) + "mask m300() = q_pos >= kv_idx",
        "".join(f"mask m{i}() = m{i + 1}() and m{i + 1}()\n" for i in range(40)) + "mask m40() = q_pos >= kv_idx",
        "".join(f"mask m{i}(x) = m{i + 1}(x + x)\n" for i in range(40)) + "mask m40(x) = x >= kv_idx",
    ],
    ids=["deep", "doubling", "doubling arguments"],
)
def test_masks_cannot_explode(items: str) -> None:
    start = time.process_time()
    call = "m0(q_pos)" if "m0(x)" in items else "m0()"
    assert set(codes(f"keep if {call}", items)) == {"A220"}
    assert time.process_time() - start < 20


def doubling(length: int) -> str:
    """Lets that read the one before twice: later phases write them out."""
    lets = "\n".join(f"let x{i + 1} = x{i} * x{i}" for i in range(length))
    return f"let x0 = q_idx\n{lets}\nkeep if x{length} > 0"


def test_size_is_counted_through_lets() -> None:
    assert 2**11 < MAX_KEEP_PARTS < 2**12 < MAX_NODES < 2**14
    assert codes(doubling(9)) == []
    assert codes(doubling(10)) == ["A011"]
    assert set(codes(doubling(30))) == {"A220"}


def test_constants_weigh_nothing() -> None:
    assert measure(const(3), {}) == (1, 1)
    assert variant(f"keep if kv_idx < {' + '.join(['1'] * 90)}").keeps[0].condition.children[1] == Const(Type.INT, 90)
