"""The warning of heads that look like lengths."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from attncc.problem import ArrayFacts, Call, Signature, bind, swapped_axes
from attncc.problem.strides import dense
from tests import plans


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapped_axes, "_warned", set())


def facts(*shape: int, order: tuple[int, ...] = (0, 1, 2, 3)) -> ArrayFacts:
    return ArrayFacts(shape, dense(shape, order), "float16")


def warned(q: ArrayFacts, k: ArrayFacts, **call: Any) -> int:
    given = Call(q, k, k, **call)
    problem = bind(Signature(plans.FULL), given)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            swapped_axes.warn_of_swapped_axes("full", q, problem)
    return len(found)


@pytest.mark.parametrize(
    ("q", "k"),
    [((2, 4096, 16, 64),) * 2, ((1, 512, 32, 64), (1, 256, 8, 64)), ((2, 128, 8, 64), (2, 128, 2, 64))],
)
def test_exchanged_axes_are_warned_of_once(q: tuple[int, ...], k: tuple[int, ...]) -> None:
    assert warned(facts(*q), facts(*k)) == 1


@pytest.mark.parametrize(
    ("q", "k", "call"),
    [
        (facts(2, 16, 4096, 64), facts(2, 16, 4096, 64), {}),
        (facts(2, 128, 1, 64), facts(2, 128, 4096, 64), {}),  # decoding
        (facts(2, 512, 1, 64), facts(2, 512, 1, 64), {}),
        (facts(2, 256, 16, 64), facts(2, 8, 16, 64), {}),  # groups
        (facts(2, 128, 16, 64), facts(2, 128, 16, 64), {}),
        (facts(2, 32, 16, 64), facts(2, 32, 4, 64), {}),  # few queries over fewer keys
        (facts(2, 512, 49, 64), facts(2, 512, 196, 64), {}),  # lengths that can't be heads
        (facts(2, 512, 16, 64, order=(0, 2, 1, 3)), facts(2, 512, 16, 64), {}),  # transposed by the caller
        (facts(2, 4096, 16, 64), facts(2, 4096, 16, 64), {"layout": "bshd"}),
    ],
)
def test_plausible_heads_are_not(q: ArrayFacts, k: ArrayFacts, call: dict[str, Any]) -> None:
    assert warned(q, k, **call) == 0
