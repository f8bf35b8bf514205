"""Random masks for the analysis: IR predicates, inputs for them, and tiles with what brute force says of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncc.analysis.mask.grid import never_falls
from attncc.analysis.rules import TileRules, sorted_name
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import START_SYMBOLS, Axis, Expr, Input, Keep, Load, Symbol, Type, Variant, apply, const, symbol, walk
from attncc.problem import Problem

Random = np.random.Generator

INPUTS = (
    Input("width", "i32", ()),
    Input("huge", "i64", ()),
    Input("level", "f32", ()),
    Input("doc", "i32", (Axis("batch"), Axis("pos"))),
    Input("wide", "i64", (Axis("pos"),)),
    Input("ids", "i32", (Axis("pos"),)),
    Input("table", "i32", (Axis(),)),
    Input("per_head", "i32", (Axis("head"),)),
    Input("flags", "bool", (Axis("pos"),)),
    Input("blocks", "bool", (Axis(), Axis())),
)

SMALL = (1, 2, 3, 4, 5, 7, 8, 10, 16, 20, 32, 33, 50, 64, 100)
POWERS = (2, 4, 8, 16, 32, 64)


def pick(random: Random, options: tuple[Any, ...]) -> Any:
    return options[int(random.integers(len(options)))]


def small(random: Random) -> Expr:
    return const(int(SMALL[int(random.integers(len(SMALL)))]))


def position(random: Random) -> Expr:
    return symbol(("q_idx", "kv_idx", "q_pos", "kv_idx")[int(random.integers(4))])


def key_position(random: Random) -> Expr:
    """What a `pos` axis may be indexed by in every call."""
    return symbol(_op(random, "q_pos", "kv_idx"))


def load(name: str, *indices: Expr) -> Load:
    return Load(_declared(name).type, name, indices)


def _declared(name: str) -> Input:
    return next(item for item in INPUTS if item.name == name)


def uniform(random: Random) -> Expr:
    options = [
        lambda: small(random),
        lambda: load("width"),
        lambda: load("per_head", symbol("h")),
        lambda: symbol(("q_len", "kv_len", "h", "num_heads")[int(random.integers(4))]),
        lambda: apply("mul", symbol("h"), small(random)),
        lambda: load("huge") if random.random() < 0.2 else small(random),
    ]
    return options[int(random.integers(len(options)))]()


def integer(random: Random, depth: int) -> Expr:
    """A random int expression of positions, constants, inputs at run time and lookups."""
    if depth <= 0:
        return position(random) if random.random() < 0.7 else uniform(random)
    kinds: list[tuple[float, Callable[[], Expr]]] = [
        (4, lambda: apply(_op(random, "add", "sub", "sub"), integer(random, depth - 1), integer(random, depth - 1))),
        (3, lambda: apply(_op(random, "floordiv", "mod"), integer(random, depth - 1), small(random))),
        (1, lambda: apply("mul", integer(random, depth - 1), const(int(random.integers(-3, 4))))),
        (1, lambda: apply(_op(random, "min", "max"), integer(random, depth - 1), integer(random, depth - 1))),
        (1, lambda: apply("abs", integer(random, depth - 1))),
        (1, lambda: clamp(random, integer(random, depth - 1))),
        (0.5, lambda: apply("select", boolean(random, 1), integer(random, depth - 1), integer(random, depth - 1))),
        (1, lambda: bits(random, integer(random, depth - 1))),
        (1, lambda: lookup(random, depth - 1)),
        (0.2, lambda: apply(_op(random, "floordiv", "mod"), integer(random, depth - 1), uniform(random))),
        (0.1, lambda: apply("mul", integer(random, depth - 1), uniform(random))),
        (0.1, lambda: apply("mul", integer(random, depth - 1), integer(random, depth - 1))),
        (2, lambda: integer(random, 0)),
    ]
    return _choose(random, kinds)


def clamp(random: Random, x: Expr) -> Expr:
    low, high = small(random), small(random)
    return apply("min", apply("max", x, low), apply("add", low, high))


def bits(random: Random, x: Expr) -> Expr:
    power = int(POWERS[int(random.integers(len(POWERS)))])
    options = [
        lambda: apply("bitand", x, const(power - 1)),
        lambda: apply("bitand", x, const(-power)),
        lambda: apply("bitand", x, const(int(random.integers(1, 128)))),
        lambda: apply(_op(random, "bitor", "bitxor"), x, const(int(random.integers(1, 64)))),
        lambda: apply("bitor", x, apply("shr", x, const(int(random.integers(1, 4))))),
        lambda: apply("shr", x, const(int(random.integers(0, 7)))),
        lambda: apply("shl", x, const(int(random.integers(0, 5)))),
        lambda: apply("bitnot", x),
    ]
    return options[int(random.integers(len(options)))]()


def lookup(random: Random, depth: int) -> Expr:
    index = integer(random, depth) if random.random() < 0.3 else position(random)
    key = index if random.random() < 0.1 else key_position(random)
    options = [
        lambda: load("doc", symbol("b"), key),
        lambda: load("ids", key),
        lambda: load("table", apply("floordiv", index, small(random))),
        lambda: load("table", index),
    ]
    return options[int(random.integers(len(options)))]()


def comparison(random: Random) -> Expr:
    """A comparison of ints: mostly of the kinds that masks are made of, else of anything with anything."""
    order = _op(random, "lt", "le", "gt", "ge")
    either = _op(random, "lt", "le", "gt", "ge", "eq", "ne")
    size = small(random)
    sides = ("q_idx", "kv_idx") if random.random() < 0.8 else (None, None)
    kinds: list[tuple[float, Callable[[], Expr]]] = [
        (4, lambda: apply(order, affine(random), uniform(random))),
        (3, lambda: apply(either, *(apply("floordiv", affine(random, side), size) for side in sides))),
        (1, lambda: apply(either, apply("floordiv", affine(random), size), uniform(random))),
        (1, lambda: apply(either, *(apply("mod", affine(random, side), size) for side in sides))),
        (1, lambda: apply(either, apply("mod", affine(random), size), const(int(random.integers(0, 6))))),
        (1, lambda: apply("le", apply("abs", apply("sub", clamp(random, position(random)), position(random))), size)),
        (0.5, lambda: apply(order, lookup(random, 0), affine(random))),
        (1, lambda: apply("eq", *(load("doc", symbol("b"), key_position(random)) for _ in range(2)))),
        (0.5, lambda: apply(either, apply("to_float", affine(random)), constant(random))),
        (0.5, lambda: apply(either, load("wide", key_position(random)), load("wide", key_position(random)))),
        (1, lambda: apply(order, bits(random, symbol("q_idx")), bits(random, symbol("kv_idx")))),
        (2, lambda: apply(either, integer(random, 2), integer(random, int(random.integers(0, 3))))),
    ]
    return _choose(random, kinds)


def constant(random: Random) -> Expr:
    """A float: mostly half an int, at times where fp32 no longer has all ints, or none at all."""
    value = random.integers(-40, 300) / 2 if random.random() < 0.8 else 10.0 ** random.integers(-3, 20)
    return apply("div", const(float(value)), const(pick(random, (1.0, 2.0, 3.0, 0.0))))


def affine(random: Random, side: str | None = None) -> Expr:
    """One or two positions and a constant; of one side only, where that is asked for."""
    place = (lambda: symbol(side)) if side else (lambda: position(random))
    kinds: list[tuple[float, Callable[[], Expr]]] = [
        (3, place),
        (0 if side else 3, lambda: apply("sub", place(), place())),
        (0 if side else 1, lambda: apply("add", place(), place())),
        (1, lambda: apply("mul", place(), const(int(random.integers(-3, 4))))),
        (1, lambda: apply("sub", uniform(random), place())),
    ]
    found = _choose(random, kinds)
    return found if random.random() < 0.6 else apply(_op(random, "add", "sub"), found, small(random))


def band(random: Random) -> Expr:
    """low <= q - kv < high, chained as people write it."""
    distance = apply("sub", symbol(_op(random, "q_idx", "q_pos")), symbol("kv_idx"))
    low = apply("le", const(int(random.integers(-20, 20))), distance)
    return apply("and", low, apply("lt", distance, uniform(random)))


def boolean(random: Random, depth: int, floats: float = 0) -> Expr:
    """A random predicate, with comparisons of floats among it at the given weight."""
    if depth <= 0:
        return comparison(random)
    kinds: list[tuple[float, Callable[[], Expr]]] = [
        (5, lambda: boolean(random, 0)),
        (2, lambda: apply("and", *(boolean(random, depth - 1) for _ in range(int(random.integers(2, 4)))))),
        (2, lambda: apply("or", *(boolean(random, depth - 1) for _ in range(int(random.integers(2, 4)))))),
        (0.5, lambda: apply("not", boolean(random, depth - 1))),
        (0.4, lambda: apply("select", *(boolean(random, depth - 1) for _ in range(3)))),
        (0.3, lambda: apply(_op(random, "eq", "ne"), boolean(random, depth - 1), boolean(random, depth - 1))),
        (1, lambda: band(random)),
        (1, lambda: apply("eq", load("doc", symbol("b"), symbol("q_pos")), load("doc", symbol("b"), symbol("kv_idx")))),
        (0.5, lambda: load("flags", key_position(random))),
        (0.5, lambda: block_map(random)),
        (floats, lambda: apply("lt", apply("to_float", integer(random, 1)), load("level"))),
    ]
    return _choose(random, kinds)


def block_map(random: Random) -> Expr:
    size = const(int(POWERS[int(random.integers(4, len(POWERS)))]))
    return load("blocks", apply("floordiv", symbol("q_idx"), size), apply("floordiv", symbol("kv_idx"), size))


def _op(random: Random, *names: str) -> str:
    return names[int(random.integers(len(names)))]


def _choose(random: Random, kinds: list[tuple[float, Callable[[], Expr]]]) -> Expr:
    weights = np.cumsum([weight for weight, _ in kinds])
    return kinds[int(np.searchsorted(weights, random.random() * weights[-1], side="right"))][1]()


def random_variant(random: Random, *, hints: bool = False) -> Variant:
    """With `hints`, int tensors are declared nondecreasing, and each mask reads one."""
    lines = [Keep(boolean(random, int(random.integers(0, 3)))) for _ in range(int(random.integers(1, 3)))]
    if not hints:
        return Variant("random", inputs=INPUTS, statements=tuple(lines))
    hinted = tuple(replace(item, nondecreasing=item.type is Type.INT and item.axes != ()) for item in INPUTS)
    return Variant("random", inputs=hinted, statements=(Keep(hinted_comparison(random)), *lines[:1]))


def hinted_comparison(random: Random) -> Expr:
    """An entry at a key, or at a block of keys, compared with one at a row or with a number."""
    name = pick(random, ("doc", "doc", "ids", "wide", "table"))
    place = symbol("kv_idx")
    if name == "table":
        place = apply("floordiv", place, small(random))
    entry = load(name, symbol("b"), place) if name == "doc" else load(name, place)
    row = load("doc", symbol("b"), symbol("q_pos")) if random.random() < 0.7 else uniform(random)
    if random.random() < 0.3:
        entry = apply("mul", entry, const(int(random.integers(-3, 4))))
    if random.random() < 0.3:
        row = apply(_op(random, "add", "sub"), row, small(random))
    return apply(_op(random, "lt", "le", "gt", "ge", "eq", "eq", "ne"), entry, row)


def random_environment(
    random: Random, q_len: int, kv_len: int, *, extreme: bool = False, hints: bool = False
) -> Environment:
    """Symbols and inputs of head 1 of sequence 1 of a dense batch; arrays may be longer than kv_len where they may.

    With `extreme`, inputs hold the ends of their dtypes too, so that sums with them wrap. With `hints`, most int
    arrays are nondecreasing, though not beyond the keys.
    """
    extra = 7 * int(random.random() < 0.1)
    documents = np.cumsum(random.random((2, kv_len + extra)) < 0.008, axis=1)
    if random.random() < 0.1:
        documents = random.integers(-3, 6, documents.shape)
    inputs: dict[str, Array] = {
        "width": np.asarray(random.integers(-5, 150)).astype(np.int32),
        "huge": np.asarray(random.integers(-10, 150)).astype(np.int64),
        "level": np.asarray(random.normal() * 50, np.float32),
        "doc": documents.astype(np.int32),
        "wide": np.cumsum(random.random(kv_len + extra) < 0.008).astype(np.int64) * 2**60 - 2**62,
        "ids": np.sort(random.integers(-100, 200, kv_len + extra)).astype(np.int32),
        "table": np.asarray(random.integers(-60, 160, int(random.integers(0, 60)))).astype(np.int32),
        "per_head": random.integers(-20, 90, 3).astype(np.int32),
        "flags": np.repeat(random.random((kv_len + extra + 29) // 30) < 0.5, 30)[: kv_len + extra],
        "blocks": random.random((int(random.integers(1, 9)), int(random.integers(1, 9)))) < 0.5,
    }
    if extreme:
        inputs = {name: _with_extremes(random, array) for name, array in inputs.items()}
    if hints:
        inputs = {name: _sorted(random, array, kv_len) for name, array in inputs.items()}
    symbols = {
        "b": 1, "h": 1, "kv_h": 0, "num_heads": 3, "num_kv_heads": 1, "head_dim": 64, "scale": 0.125,
        "q_len": q_len, "kv_len": kv_len, "q_offset": kv_len - q_len,
    }  # fmt: skip
    for name, array in inputs.items():
        symbols |= {f"{name}__size{axis}": size for axis, size in enumerate(array.shape)}
    return Environment(symbols, inputs)


def _sorted(random: Random, array: Array, kv_len: int) -> Array:
    if array.dtype.kind != "i" or not array.ndim or random.random() < 0.2:
        return array
    used = kv_len if array.shape[-1] >= kv_len else array.shape[-1]
    return np.concatenate([np.sort(array[..., :used], axis=-1), array[..., used:]], axis=-1)


def _with_extremes(random: Random, array: Array) -> Array:
    if array.dtype.kind != "i":
        return array
    ends = np.iinfo(array.dtype)
    values = random.choice(np.array([ends.min, ends.min + 1, ends.max - 1, ends.max], array.dtype), array.shape)
    return np.where(random.random(array.shape) < 0.3, values, array)


@dataclass(frozen=True)
class Boxes:
    """Tiles, both ends of both sides included: int64 [count] each."""

    q_first: Array
    q_last: Array
    kv_first: Array
    kv_last: Array

    def symbols(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in ("q_first", "q_last", "kv_first", "kv_last")}

    def laid(self) -> Array:
        """bool [count]: tiles as a kernel lays them, each once."""
        corners = np.stack([self.q_first, self.kv_first])[:, : self.q_first.size // 2]
        _, places = np.unique(corners, axis=1, return_index=True)
        return np.isin(np.arange(self.q_first.size), places)

    @property
    def pairs(self) -> Array:
        return (self.q_last - self.q_first + 1) * (self.kv_last - self.kv_first + 1)


def random_boxes(random: Random, lengths: tuple[int, int], blocks: tuple[int, int], count: int) -> Boxes:
    """The first half as a kernel lays tiles (some twice, if there are few), the others anywhere and smaller too."""
    sides = []
    for length, block in zip(lengths, blocks, strict=True):
        first = random.integers(0, length, count)
        first[: count // 2] = first[: count // 2] // block * block
        size = random.integers(1, block + 1, count)
        size[: count // 2] = block
        sides += [first, np.minimum(first + size, length) - 1]
    return Boxes(*sides)


def rule_tables(rules: TileRules, environment: Environment, start: int, random: Random) -> dict[str, Array]:
    """The min/max tables of the rules, and whether hints hold. With a start, tables of inputs of `batch` lie on a
    packed axis, neighbours before and after."""
    tables = {}
    for item in rules.min_max_tables:
        array = environment.inputs[item.input]
        if start and any(axis.tag == "batch" for axis in _declared(item.input).axes):
            before, after = (random.integers(-9, 9, (len(array), size)).astype(array.dtype) for size in (start, 40))
            array = np.concatenate([before, array, after], axis=-1)
        blocks = np.arange(0, array.shape[-1], item.block)
        tables[item.min_name] = np.minimum.reduceat(array, blocks, axis=-1)
        tables[item.max_name] = np.maximum.reduceat(array, blocks, axis=-1)
    for name in rules.sorted_hints:
        problem = Problem(2, 3, 1, *(int(environment.symbols[length]) for length in ("q_len", "kv_len")), 16, 16)
        tables[sorted_name(name)] = never_falls(_declared(name), problem, environment.inputs[name])
    return tables


def without_starts(expr: Expr) -> set[str]:
    """Names of the symbols that an expression reads, but for where a packed sequence starts."""
    return {node.name for node in walk(expr) if isinstance(node, Symbol)} - set(START_SYMBOLS)


def mask_of(variant: Variant, environment: Environment) -> Array:
    """bool [q_len, kv_len], straight from the keep lines."""
    q_len, kv_len = (int(environment.symbols[name]) for name in ("q_len", "kv_len"))
    q_idx, kv_idx = np.arange(q_len)[:, None], np.arange(kv_len)[None]
    seen = environment.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + kv_len - q_len)
    kept = np.ones((q_len, kv_len), bool)
    for keep in variant.keeps:
        kept &= evaluate(keep.condition, seen)
    return kept


def pair_sums(mask: Array) -> Array:
    """How many pairs are kept above and left of each place: int64 [q_len + 1, kv_len + 1]."""
    sums = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), np.int64)
    sums[1:, 1:] = mask.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    return sums


def kept_pairs(sums: Array, boxes: Boxes) -> Array:
    """How many pairs of each box are kept, by `pair_sums` of the mask: int64 [count]."""
    rows, columns = (boxes.q_first, boxes.q_last + 1), (boxes.kv_first, boxes.kv_last + 1)
    return sums[rows[1], columns[1]] - sums[rows[0], columns[1]] - sums[rows[1], columns[0]] + sums[rows[0], columns[0]]
