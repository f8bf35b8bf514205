"""Cases on the CPU, and a stopwatch that only counts."""

from __future__ import annotations

from itertools import count

import pytest

from attncc import library
from attncc.compiler import load_specification
from attncc.ir import Variant
from attncc.plausible import arrays
from attncc.problem import Problem
from attncc.runtime.cuda.timing import Sustained
from attncc.semantics.load import load
from attncc.source import SourceFile

torch = pytest.importorskip("torch")

from attncc.bench.case import Case  # noqa: E402

SMALL = Problem(2, 4, 2, 48, 48, 16, 16)
SHIPPED = library.names()


def shipped(name: str, **consts: int) -> Variant:
    return load_specification(name, None, consts)[0].variant


def variant(lines: str) -> Variant:
    return load(SourceFile("mine.attn", f"attn 1\nimport masks\nvariant mine {{\n{lines}\n}}\n")).variants[0]


def case(of: Variant | str, problem: Problem = SMALL, *, dtype: str = "fp32", pass_name: str = "forward") -> Case:
    of = variant(of) if isinstance(of, str) else of
    return Case(of, problem, dtype, pass_name, arrays(of, problem, 0, {}), 3, "cpu")


class Counting:
    """Every window takes longer than the one before."""

    def __init__(self) -> None:
        self.windows = count(1)

    def window(self, launch, repeats: int, before: int = 0) -> float:
        launch()
        return 1 + next(self.windows) / 1000

    def sustained(self, launch, repeats: int) -> Sustained:
        return Sustained(1.1, 1500.0, 400.0)

    def host(self, launch) -> float:
        return 0.01
