"""The statements of a variant, evaluated with NumPy over positions: what is kept, what the score becomes, the scale.

The dense reference and the CPU executor both stand on these; the kernels have the same meaning printed as CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from .evaluate import Array, Environment, evaluate
from .first_query import first_query
from .ir import Expr, Keep, Let, Load, Score, Symbol, Type, Variant, apply, needs, reads, root_of, symbol

# The built-in that indexes an axis with the tag, where there is only one.
AXIS_INDEX = {"batch": "b", "head": "h", "kv_head": "kv_h"}


# In what masks and their tile rules compute floats, whatever scores are computed in: as kernels do, so that all agree
# which of two floats is less where fp64 would see a difference.
MASK_FLOAT = np.float32


def keep_condition(variant: Variant) -> Expr | None:
    """All keep lines as one condition; None where the variant keeps everything."""
    conditions = [keep.condition for keep in variant.keeps]
    return apply("and", *conditions) if len(conditions) > 1 else next(iter(conditions), None)


def mask_alone(variant: Variant) -> Variant:
    """The variant with its keep lines and what these read: lets, inputs, and the scale where they read `scale`."""
    return _with_lines(replace(variant, sink=None, dropout=None), variant.keeps)


def by_input(variant: Variant) -> dict[str, Variant]:
    """For each input the variant with those of its keep and score lines that read it, themselves or through lets."""
    lines: tuple[Keep | Score, ...] = (*variant.keeps, *variant.scores)
    read = [(line, reads(variant, root_of(line))) for line in lines]
    return {
        item.name: _with_lines(variant, [line for line, names in read if item.name in names]) for item in variant.inputs
    }


def _with_lines(variant: Variant, lines: Sequence[Keep | Score]) -> Variant:
    """With these keep and score lines alone, the lets that they read, and the inputs that all of that reads."""
    roots = [root_of(line) for line in lines]
    wanted = {id(line) for line in (*lines, *needs(variant, *roots))}
    scale = variant.scale if "scale" in reads(variant, *roots) else None
    names = reads(variant, *roots, *filter(None, (scale, variant.dropout))) | {variant.sink}
    return replace(
        variant,
        statements=tuple(item for item in variant.statements if id(item) in wanted),
        inputs=tuple(item for item in variant.inputs if item.name in names),
        scale=scale,
    )


def scored(variant: Variant, environment: Environment, score: Array) -> Array:
    """The score lines, top to bottom, from `score` = scale * q.k in natural units.

    A let that reads the score takes the value that it has where the let stands.
    """
    environment = environment.with_symbols(score=score)
    for statement in _score_statements(variant):
        if isinstance(statement, Score):
            environment = environment.with_symbols(score=evaluate(statement.value, environment))
        else:
            environment = _frozen(environment, statement)
    result: Array = environment.symbols["score"]
    return result


@lru_cache(maxsize=64)
def _score_statements(variant: Variant) -> tuple[Let | Score, ...]:
    """The score lines, and the lets whose value depends on where they stand among them."""
    return tuple(
        statement
        for statement in variant.statements
        if not isinstance(statement, Keep)
        and (isinstance(statement, Score) or "score" in reads(variant, statement.value))
    )


def _frozen(environment: Environment, let: Let) -> Environment:
    """The environment in which a let is a symbol that holds its present value."""
    valued = environment.with_symbols(**{let.name: evaluate(let.value, environment)})
    lets = {**environment.lets, let.name: Let(let.name, Symbol(let.value.type, let.name))}
    return Environment(valued.symbols, valued.inputs, lets, valued.float_dtype)


def effective_scale(variant: Variant, environment: Environment, given: float | None) -> float:
    """The call's `scale=`, else the variant's `scale` line, else 1/sqrt(head_dim)."""
    if given is not None:
        return float(given)
    if variant.scale is not None:
        return float(evaluate(variant.scale, environment))
    return float(int(environment.symbols["head_dim"]) ** -0.5)


def sink_logits(variant: Variant, environment: Environment) -> Array | None:
    """The sink's logit in natural units, shaped as the environment's `h`; None without a sink."""
    if variant.sink is None:
        return None
    axes = variant.input(variant.sink).axes
    indices = tuple(symbol(AXIS_INDEX[axis.tag or "head"]) for axis in axes)
    return evaluate(Load(Type.FLOAT, variant.sink, indices), environment)


def dropout_rate(variant: Variant, environment: Environment) -> float:
    """The dropout rate of this call; 0 without dropout."""
    return 0.0 if variant.dropout is None else float(evaluate(variant.dropout, environment))


def queries_before(variant: Variant, environment: Environment) -> int:
    """Queries of the sequence that stand before `q_idx` 0, as dropout counts them."""
    first = first_query(variant)
    return 0 if first is None else int(evaluate(first, environment).item())
