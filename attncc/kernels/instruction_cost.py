"""How much of its own a variant computes for each pair: what decides with which tiles a kernel begins."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from ..analysis.algebra.algebra import TRUE
from ..analysis.mask.key_sets import keep_masks
from ..analysis.mask.shared_tests import ask_for_ids, in_order
from ..analysis.score.score_form import ScoreForm, score_form
from ..ir import Apply, Expr, Load, Local, Symbol, Variant, needs, reads, walk
from ..operators import OPERATORS

_LOAD = 8
_RARE_LOAD = 24  # where most tiles do without: the addresses of a round are computed at once, and take registers
_DROPOUT = 16
_FORM_TERM = 2  # of a score form that holds in all tiles
_WIDEST = 128  # keys of a tile; what is a key set in such a tile is one in all that divide it

# Instructions of a thread for the scores of a whole tile and of a masked one: beyond LONG_CODE, compilation would take
# over a second, and a GPU's instruction cache would overflow. They are loops then, of at most SHORT_CODE a round.
LONG_CODE, SHORT_CODE = 2600, 1300
SELDOM_CODE = 1100  # of masked tiles, and of those that the cheap form of score lines doesn't serve
WIDE_SELDOM_CODE = 1000  # the same where O has more than 128 columns, whose code is long
ENDS_CODE = 750  # of those at the ends of a loop without a mask, if they are in rounds at all
LONG_TEST = 128  # of one pair: such a test is a function that is called. Copies for each pair spilled in all tiles
LONG_TESTS = 3500  # of what a mask asks about the pairs of a tile

# Variants above this get the smaller tiles. Measured on an H200: causal 1 and ALiBi 6 ran best in tiles of 128 x 64,
# documents 10, softcap 18 and all of these together 51 in tiles of 64 x 64; `defaults` has since taken smaller ones.
PORTABLE_LOW = 8


# In the family hopper, whose warps have more registers: what its first and its second tiles still hold.
HOPPER_LOW, HOPPER_HIGH = 20, 60


class Pressure(IntEnum):
    """What a variant needs registers for besides attention itself: so begins the list of portable tiles."""

    NOTHING = 0
    LITTLE = 1
    MUCH = 2


@lru_cache(maxsize=64)
def instruction_cost(variant: Variant) -> int:
    """Instructions a pair, roughly: score lines, keep lines and dropout; key sets and what pairs share are free."""
    return sum(map(_cost, _varying(variant))) + _shared_cost(variant)


@lru_cache(maxsize=64)
def score_cost(variant: Variant) -> int:
    """The same without keep lines."""
    return sum(map(_cost, _varying_of(variant, _score_roots(variant)))) + _shared_cost(variant)


def _shared_cost(variant: Variant) -> int:
    return _FORM_TERM * form_terms(variant) + _DROPOUT * (variant.dropout is not None)


def portable_pressure(variant: Variant, *, backward: bool) -> Pressure:
    """The number of the portable tiles to begin with.

    In forward passes a mask costs nothing: what tests it runs in masked tiles alone, when all exponents are made, and
    what it asks of a block is spilled to shared memory where registers are few (`spills_to_smem`).
    """
    if (instruction_cost(variant) if backward else score_cost(variant)) > PORTABLE_LOW:
        return Pressure.MUCH
    if backward:
        return Pressure.LITTLE if variant.keeps or score_cost(variant) else Pressure.NOTHING
    return Pressure.LITTLE if variant.scores and (variant.keeps or score_cost(variant)) else Pressure.NOTHING


@lru_cache(maxsize=64)  # a plan asks often
def register_pressure(variant: Variant) -> int:
    """The number of the family hopper's tiles that leave the variant enough registers, from 0.

    Inputs that are read for each pair cost more than their instructions: the addresses of a whole tile are computed
    ahead, unless it is score lines that read them, and those seldom (`score_step`).
    """
    found = instruction_cost(variant)
    if found > HOPPER_HIGH:
        return 2
    scores = () if _has_form(variant) else _scores(variant)
    return int(found > HOPPER_LOW or bool(_loads(variant, _tested(variant) + scores)))


@lru_cache(maxsize=64)
def tested_cost(variant: Variant) -> int:
    """Instructions of a pair, roughly, for what the mask has to ask about it, in the forward pass."""
    return sum(map(_cost, _varying_of(variant, _tested(variant))))


@lru_cache(maxsize=64)
def test_cost(variant: Variant) -> int:
    """The same in any pass, whatever the rows share."""
    return sum(map(_cost, _varying_of(variant, _tests(variant))))


def score_step(variant: Variant, row_tiles: int, column_tiles: int, limit: int = LONG_CODE) -> int:
    """Of a warp's column tiles (8 keys), how many the code for score lines handles at once: a divisor of them.

    All of them, if that isn't longer than `limit`. `row_tiles` is the warp's tiles of 16 rows.
    """
    load = _RARE_LOAD if _has_form(variant) else _LOAD
    pair = sum(_code(node, load) for node in _varying_of(variant, _scores(variant)))
    return _step(2 * 4 * row_tiles * pair, column_tiles, limit)


class Steps(NamedTuple):
    """How many of a warp's column tiles the code handles at once: for scores, for those of masked tiles, which seldom
    runs, and in the family hopper for tests of pairs in the first tile of a block."""

    score: int
    masked: int
    first: int


def steps(variant: Variant, warps: int, row_tiles: int, column_tiles: int, seldom: int = SELDOM_CODE) -> Steps:
    """Rounds take registers: more than 8 warps have none for masked tiles. `seldom`: how long their code may be."""
    score = score_step(variant, row_tiles, column_tiles)
    if warps > 8:
        return Steps(score, score, column_tiles)
    masked = score_step(variant, row_tiles, column_tiles, seldom)
    if masked < score and not variant.keeps and not _has_form(variant):  # the first tile, and the last of the keys
        masked = score_step(variant, row_tiles, column_tiles, ENDS_CODE)
    return Steps(score, masked, _step(2 * 4 * row_tiles * tested_cost(variant), column_tiles, LONG_TESTS))


def _step(tile: int, column_tiles: int, limit: int) -> int:
    """`tile`: instructions for a column tile."""
    if tile * column_tiles <= limit:
        return column_tiles
    steps = [step for step in range(1, column_tiles) if column_tiles % step == 0]
    return max((step for step in steps if step * tile <= min(limit, SHORT_CODE)), default=1)


@lru_cache(maxsize=64)
def tests_ids(variant: Variant) -> bool:
    """Whether keep lines compare ids of queries and keys, such as documents."""
    return ask_for_ids(variant, _tests(variant))


@lru_cache(maxsize=64)
def shares_tests(variant: Variant) -> bool:
    """Whether one test of a key serves many rows. Where they share no ids, each set of rows would take a round: then a
    lane reads what lies at its keys, if it lies together, and tests its pairs."""
    tests = _tests(variant)
    words = all(_BITS[variant.input(item.input).dtype] <= 32 for item in _loads(variant, tests))
    return tests_ids(variant) and (in_order(variant, tests) or not (words and _reads_lines(variant, tests)))


@lru_cache(maxsize=64)
def looks_up_pairs(variant: Variant) -> bool:
    """Whether keep lines read inputs that differ from row to row, or from key to key."""
    roots = [keep.condition for keep in variant.keeps]
    lookups = [node for node in walk(*roots, *(let.value for let in needs(variant, *roots))) if isinstance(node, Load)]
    return any(isinstance(node, Local) or _is_position(node) for node in walk(*lookups))


def _is_position(node: Expr) -> bool:
    return isinstance(node, Symbol) and node.name in ("q_idx", "q_pos", "kv_idx")


@lru_cache(maxsize=64)
def _varying(variant: Variant) -> frozenset[Expr]:
    """The nodes that differ from key to key: they read kv_idx or the score."""
    return _varying_of(variant, _tests(variant) + _score_roots(variant))


def _score_roots(variant: Variant) -> tuple[Expr, ...]:
    return () if form_terms(variant) else _scores(variant)


def _scores(variant: Variant) -> tuple[Expr, ...]:
    return tuple(score.value for score in variant.scores)


def _tested(variant: Variant) -> tuple[Expr, ...]:
    """What the mask has to ask about each pair, in the forward pass."""
    return () if shares_tests(variant) else _tests(variant)


@lru_cache(maxsize=64)
def _tests(variant: Variant) -> tuple[Expr, ...]:
    return tuple(mask.each for mask in keep_masks(variant, _WIDEST) if mask.each is not None)


@lru_cache(maxsize=64)
def _form(variant: Variant) -> ScoreForm | None:
    return score_form(variant, _WIDEST, _WIDEST) if variant.scores else None


@lru_cache(maxsize=64)
def is_plain(variant: Variant) -> bool:
    """Whether all pairs are kept, and computed as those of plain attention: what score lines may do is to change a
    row's scores by a factor and an addend that are the same for all its keys."""
    form = _form(variant)
    scores = not variant.scores or (
        form is not None and form.holds == TRUE and form.degree == 0 and len(form.terms) == 1
    )
    return not variant.keeps and scores and variant.dropout is None


@lru_cache(maxsize=64)
def slopes(variant: Variant) -> bool:
    """Whether what score lines add grows or falls with the key."""
    form = _form(variant)
    return form is not None and form.degree > 0


def gains_by_ping_pong(variant: Variant) -> bool:
    """Whether there is much besides products, as with dropout, or more in some tiles than in others: score lines
    that have a cheap form far from the diagonal. Such a tile leaves two warpgroups out of step."""
    form = _form(variant)
    return variant.dropout is not None or (form is not None and form.holds != TRUE)


def _has_form(variant: Variant) -> bool:
    return _form(variant) is not None


def form_terms(variant: Variant) -> int:
    """How many terms the form of the score lines has that whole tiles compute, if it holds in all of them; else 0."""
    form = _form(variant)
    return len(form.terms) if form is not None and form.holds == TRUE else 0


def _varying_of(variant: Variant, roots: tuple[Expr, ...]) -> frozenset[Expr]:
    roots = (*roots, *(let.value for let in needs(variant, *roots)))
    lets = variant.lets
    known: dict[Expr, bool] = {}

    def varies(node: Expr) -> bool:
        if node not in known:
            inner = [lets[node.name].value] if isinstance(node, Local) else node.children
            own = isinstance(node, Symbol) and node.name in ("kv_idx", "score")
            known[node] = any([own, *map(varies, inner)])
        return known[node]

    return frozenset(node for node in walk(*roots) if varies(node))


def _loads(variant: Variant, roots: tuple[Expr, ...]) -> list[Load]:
    """The entries of inputs that are read for each key."""
    return [node for node in _varying_of(variant, roots) if isinstance(node, Load)]


@lru_cache(maxsize=64)
def key_line_bits(variant: Variant) -> frozenset[int]:
    """The bits of an entry of each input that is read at kv_idx for each pair, by rows; of what all rows share, 0.

    Empty where something else is read for each pair, or the rest is long: registers are few then.
    """
    roots = _tested(variant) + (() if _has_form(variant) else _scores(variant))
    loads = _loads(variant, roots)
    if not _reads_lines(variant, roots) or instruction_cost(variant) - (_LOAD - 1) * len(loads) > HOPPER_LOW:
        return frozenset()
    return frozenset(_BITS[variant.input(item.input).dtype] * _of_row(variant, item) for item in loads)


def _reads_lines(variant: Variant, roots: tuple[Expr, ...]) -> bool:
    """Whether all that is read for each pair lies in lines, at kv_idx."""
    varying = _varying_of(variant, roots)
    return all(
        _is_key(variant, item.indices[-1]) and varying.isdisjoint(item.indices[:-1]) for item in _loads(variant, roots)
    )


_BITS = {"bool": 8, "f16": 16, "bf16": 16, "i32": 32, "f32": 32, "i64": 64}


def _is_key(variant: Variant, index: Expr) -> bool:
    while isinstance(index, Local):
        index = variant.lets[index.name].value
    return isinstance(index, Symbol) and index.name == "kv_idx"


def _of_row(variant: Variant, load: Load) -> bool:
    return any(name in reads(variant, *load.indices) for name in ("q_idx", "q_pos"))


def _cost(node: Expr, load: int = _LOAD) -> int:
    if isinstance(node, Load):
        return load
    return OPERATORS[node.op].on(node.args[-1].type).cost if isinstance(node, Apply) else 0


def _code(node: Expr, load: int) -> int:
    on_floats = OPERATORS[node.op].on_floats if isinstance(node, Apply) else None
    return _cost(node, load) + (on_floats.seldom if on_floats is not None else 0)


def takes_remainders(variant: Variant) -> bool:
    """Whether keep lines have a remainder in them, or bits, which may be one."""
    roots = [keep.condition for keep in variant.keeps]
    roots += [let.value for let in needs(variant, *roots)]
    operators = ("mod", "bitand", "bitor", "bitxor")
    return any(isinstance(node, Apply) and node.op in operators for node in walk(*roots))
