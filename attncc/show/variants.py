"""The picture of a variant for inputs, and what notebooks show of variants and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from math import ceil
from typing import Any

import numpy as np

from .. import plausible
from ..analysis.cost.cost import operations
from ..analysis.mask.grid import TileGrid, pieces, rule_tables
from ..analysis.mask.tiles import analyse
from ..analysis.rules import TileKind
from ..evaluate import Environment, evaluate
from ..ir import Expr, Variant
from ..problem import Problem
from ..problem.arrays import at_positions
from ..problem.masks import bind_mask
from ..statements import keep_condition
from .picture import Picture, picture

LENGTH, BLOCK = 1024, 64  # of what stands for a variant
# Operations of keep lines on pairs: of a mask of many operations, some rows stand for the others beyond that. A billion
# take two to four seconds. Masks of the library have 130 at most, and are drawn whole.
MOST_WORK, MANY_OPERATIONS = 2e8, 200


def variant_picture(
    variant: Variant,
    problem: Problem,
    inputs: Mapping[str, Any],
    *,
    block_q: int = BLOCK,
    block_kv: int = BLOCK,
    b: int = 0,
    h: int = 0,
) -> Picture:
    """Of one head of one sequence. AttnccError A6xx for inputs that don't suit."""
    rules = analyse(variant, block_q, block_kv)
    sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "head_dim")}
    bound = bind_mask(variant, problem.q_len, problem.kv_len, inputs, sizes)
    environments = list(bound.environments())
    environment = environments[min(b, len(environments) - 1)]
    tables = {**environment.inputs, **rule_tables(rules, variant, bound.problem, inputs)}
    seen = Environment(environment.symbols, tables, environment.lets, environment.float_dtype)
    kinds, heads = _tile_map(pieces(rules, seen, block_q, block_kv), problem, (block_q, block_kv), h)
    varies = [name for name, count in (("sequence", len(environments)), ("head", heads)) if count > 1]
    where = ", ".join(f"{name} {index}" for name, index in (("sequence", b), ("head", h)) if name in varies)
    condition = keep_condition(variant)
    return picture(
        f"{variant.name}, {where}" if where else variant.name,
        _keep(condition, environment, h),
        kinds,
        q_len=problem.q_len,
        kv_len=problem.kv_len,
        block_q=block_q,
        block_kv=block_kv,
        one_row_of=1 if condition is None else _one_row_of(operations(variant, condition), kinds, block_q * block_kv),
    )


def _one_row_of(operations: int, kinds: Any, pairs: int) -> int:
    """How many rows the picture asks one of; `operations` of a pair, and `pairs` of a tile."""
    work = operations * pairs * np.count_nonzero(kinds == TileKind.PARTIAL)
    return max(ceil(work / MOST_WORK), 1) if operations > MANY_OPERATIONS else 1


def _tile_map(pieces: Iterable[TileGrid], problem: Problem, blocks: tuple[int, int], h: int) -> tuple[Any, int]:
    """The kinds of one head's tiles, uint8 [q tiles, kv tiles], and how many heads the pieces tell apart."""
    kinds = np.zeros((-(-problem.q_len // blocks[0]), -(-problem.kv_len // blocks[1])), np.uint8)
    heads = 1
    for piece in pieces:
        (rows, columns), heads = piece.tiles, max(heads, len(piece.kinds))
        kinds[rows.start : rows.stop, columns.start : columns.stop] = piece.kinds[min(h, len(piece.kinds) - 1)]
    return kinds, heads


def _keep(condition: Expr | None, environment: Environment, h: int) -> Callable[[Any, Any], Any]:
    """Which of some keys some query rows of one head keep."""

    def keep(rows: Any, keys: Any) -> Any:
        if condition is None:
            return np.True_
        kept = evaluate(condition, at_positions(environment, rows, keys))
        return kept[min(h, len(kept) - 1)] if kept.ndim == 3 else kept

    return keep


def html(variant: Variant, heading: str) -> str:
    """What a notebook shows: a heading, documentation, consts and inputs, a picture for inputs as models bring them."""
    problem = Problem(1, 1, 1, LENGTH, LENGTH, 64, 64)
    drawn = plausible.of_mask(variant, problem, 0, {})
    shown = variant_picture(variant, problem, {name: item.array for name, item in drawn.items()})
    consts = ", ".join(f"{name} = {value}" for name, value in variant.consts)
    facts = [f"<code>const {escape(consts)}</code>"] if consts else []
    hows = {name: f": {escape(item.how)}" for name, item in drawn.items()}
    facts += [f"<code>input {escape(item.show())}</code>{hows.get(item.name, '')}" for item in variant.inputs]
    lines = (
        f"<div><strong>{escape(heading)}</strong></div>",
        f'<div style="max-width: 50em">{escape(variant.documentation)}</div>' if variant.documentation else "",
        "".join(f"<div>{fact}</div>" for fact in facts),
        shown._repr_svg_(),
    )
    return "\n".join(filter(None, lines))
