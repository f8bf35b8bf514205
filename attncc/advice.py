"""What would make a kernel's work smaller: said where a mask keeps little of what its tiles compute."""

from __future__ import annotations

from collections.abc import Iterator

from .analysis.rules import TileRules
from .diagnostics import Diagnostic
from .ir import Apply, Input, Load, Type, Variant, needs, reads, walk

LITTLE = 0.25  # of the pairs in computed tiles


def little_kept(variant: Variant, rules: TileRules, kept: int, computed: int) -> Diagnostic | None:
    """A304 where fewer than a quarter of the pairs that lie in live tiles are kept."""
    if not computed or not kept or kept >= LITTLE * computed:
        return None
    notes = tuple(f"line {_line(variant, index)} leaves tiles partial: {reason}" for index, reason in rules.undecided)
    return Diagnostic(
        "A304",
        f"the mask keeps {kept / computed:.1%} of the pairs in the tiles that the kernel computes",
        notes=(*notes, "a tile is computed whole if one of its pairs is kept"),
        help="; or ".join(_structures(variant)),
        severity="warning",
    )


def _line(variant: Variant, keep: int) -> str:
    span = variant.keeps[keep].span
    return str(span.line) if span else "?"


def _structures(variant: Variant) -> Iterator[str]:
    """Which other structure would serve, as far as the mask shows."""
    read = _loads(variant)
    for item in variant.inputs:
        if item.type is Type.BOOL and any(_by_pair(variant, load) for load in read if load.input == item.name):
            yield f"choose whole blocks of pairs, where {item.name} chooses single ones, as the variant block_map does"
        elif item.type is Type.BOOL and any(axis.tag == "pos" for axis in item.axes):
            yield f"place the positions that {item.name} marks beside each other"
        elif _is_label(item, variant):
            yield f"order the positions so that {item.name} never decreases, and declare it nondecreasing"
    if any(isinstance(node, Apply) and node.op == "mod" for node in _nodes(variant)):
        yield "order the positions by the remainder, so that those of a step stand together"
    yield "give smaller tiles in a schedule (block_q, block_kv)"


def _nodes(variant: Variant) -> list[object]:
    conditions = [keep.condition for keep in variant.keeps]
    return list(walk(*conditions, *(let.value for let in needs(variant, *conditions))))


def _loads(variant: Variant) -> list[Load]:
    return [node for node in _nodes(variant) if isinstance(node, Load)]


def _by_pair(variant: Variant, load: Load) -> bool:
    """Whether each pair has an entry of its own."""
    names = set[str]().union(*(reads(variant, index) for index in load.indices))
    divided = any(isinstance(node, Apply) and node.op == "floordiv" for node in walk(*load.indices))
    return bool(names & {"q_idx", "q_pos"}) and "kv_idx" in names and not divided


def _is_label(item: Input, variant: Variant) -> bool:
    """Whether an int of a position is compared with that of another, in no order that is known."""
    if item.type is not Type.INT or item.nondecreasing or not any(axis.tag == "pos" for axis in item.axes):
        return False
    equal = (node for node in _nodes(variant) if isinstance(node, Apply) and node.op == "eq")
    return any(all(item.name in reads(variant, arg) for arg in node.args) for node in equal)
