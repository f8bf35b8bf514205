"""What the bodies of one variant share while they are lowered, and the limits that keep later phases safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import ir
from ..ir import Expr
from ..source import Span

MAX_DEPTH = 128  # levels of one expression, those of the lets that it reads included
MAX_NODES = 10_000  # nodes of one expression, the same
MAX_STEPS = 50_000  # expressions lowered for one variant, or for all masks: each copy counts


class Measure(NamedTuple):
    """How large and how deep an expression is, the lets that it reads written out."""

    nodes: int
    depth: int


Known = dict[int, tuple[Expr, Measure]]  # by identity; it holds the node, so that no other one gets its id


@dataclass
class Workspace:
    """What the bodies of one variant share: the lets made so far (those of inlined masks too), and the work done."""

    lets: dict[str, ir.Let] = field(default_factory=dict)
    measures: dict[str, Measure] = field(default_factory=dict)  # of each let, and of the score so far: its levels alone
    known: Known = field(default_factory=dict)  # a mask that calls masks is measured by what was measured of these
    of_score: dict[str, Span] = field(default_factory=dict)  # the lets that read the score: where it stands
    steps: int = 0
    depth: int = 0  # of the expression being lowered, in the one that its statement holds
    too_large: bool = False  # the statement being lowered has met a limit

    def add_let(self, name: str, value: Expr, span: Span) -> ir.Local:
        """A let under this name or, where a mask is used again, under the next free `name__2`, `name__3`, ..."""
        free, count = name, 1
        while free in self.lets:
            count += 1
            free = f"{name}__{count}"
        self.lets[free] = ir.Let(free, value, span=span)
        self.measures[free] = self.measure(value)
        if found := self.score_in(value):
            self.of_score[free] = found[1]
        return ir.Local(value.type, free, span=span)

    def measure(self, expr: Expr) -> Measure:
        """With the lets and the score so far. New lets change nothing of what is known: only new nodes read them."""
        return measure(expr, self.measures, self.known)

    def set_score(self, value: Expr) -> None:
        """The score so far becomes this."""
        self.measures["score"] = self.measure(value)._replace(nodes=0)
        self.known.clear()

    def forget_score(self) -> None:
        self.measures.pop("score", None)
        self.known.clear()

    def score_in(self, expr: Expr) -> tuple[Span, Span] | None:
        """Where an expression reads the score, itself or by a let, and where the score itself stands."""
        for node in ir.walk(expr):
            if isinstance(node, ir.Symbol) and node.name == "score" and node.span:
                return node.span, node.span
            if isinstance(node, ir.Local) and node.name in self.of_score and node.span:
                return node.span, self.of_score[node.name]
        return None


def measure(expr: Expr, lets: Mapping[str, Measure], known: Known | None = None) -> Measure:
    """Of the written-out tree, given those of the lets that it may read, and of `score` so far.

    Nodes are told apart by identity: to find equal ones costs more than to measure them again. What is measured is
    added to `known`.
    """
    known = {} if known is None else known
    pending = [expr]
    while pending:
        node = pending[-1]
        children = node.children
        if missing := [child for child in children if id(child) not in known]:
            pending += missing
            continue
        below = [known[id(child)][1] for child in children]
        if isinstance(node, ir.Local | ir.Symbol) and node.name in lets:
            below.append(lets[node.name])
        nodes, depth = sum(item.nodes for item in below), max((item.depth for item in below), default=0)
        known[id(node)] = node, Measure(1 + nodes, 1 + depth)
        pending.pop()
    return known[id(expr)][1]
