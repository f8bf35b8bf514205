"""Random variants for tests of code generation: int and bool expressions of every operator, loads at wild indices."""

from __future__ import annotations

from random import Random

from attncc.ir import Apply, Axis, Expr, Input, Keep, Let, Load, Local, Type, Variant, apply, const, symbol

INPUTS = (
    Input("doc", "i32", (Axis("batch"), Axis("pos"))),
    Input("table", "i32", (Axis(),)),
    Input("grid", "i64", (Axis("head"), Axis(length=7))),
    Input("flags", "bool", (Axis("q"), Axis("kv"))),
    Input("number", "i64", ()),
    Input("half", "f16", (Axis("kv_head"),)),
    Input("brain", "bf16", (Axis("kv"),)),
    Input("single", "f32", (Axis("batch"), Axis("q"))),
)
_SYMBOLS = ("b", "h", "kv_h", "q_idx", "kv_idx", "q_pos", "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim")
_CONSTS = (0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 100, 2**30, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
_BINARY = (
    "add", "sub", "mul", "min", "max", "floordiv", "mod", "floordiv", "mod", "bitand", "bitor", "bitxor", "shl", "shr",
)  # fmt: skip
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def random_variant(seed: int, depth: int = 4) -> Variant:
    """A variant with a let and two keep lines."""
    random = Random(seed)
    let = Let("shared", _int(random, depth, ()))
    keeps = (Keep(_bool(random, depth, ("shared",))), Keep(_bool(random, depth, ("shared",))))
    return Variant(f"random_{seed}", inputs=INPUTS, statements=(let, *keeps))


def _int(random: Random, depth: int, lets: tuple[str, ...]) -> Expr:
    if depth == 0 or random.random() < 0.15:
        return _int_leaf(random, lets)
    kind = random.random()
    if kind < 0.65:
        return apply(random.choice(_BINARY), _int(random, depth - 1, lets), _int(random, depth - 1, lets))
    if kind < 0.75:
        return apply(random.choice(("neg", "abs", "bitnot")), _int(random, depth - 1, lets))
    if kind < 0.85:
        return _int_load(random, depth, lets)
    if kind < 0.9:
        return apply("floor", apply("to_float", _int(random, depth - 1, lets)))
    arms = (_int(random, depth - 1, lets), _int(random, depth - 1, lets))
    return apply("select", _bool(random, depth - 1, lets), *arms)


def _int_leaf(random: Random, lets: tuple[str, ...]) -> Expr:
    if lets and random.random() < 0.2:
        return Local(Type.INT, random.choice(lets))
    if random.random() < 0.3:
        return const(random.choice(_CONSTS) * random.choice((1, 1, -1)))
    return symbol(random.choice(_SYMBOLS))


def _int_load(random: Random, depth: int, lets: tuple[str, ...]) -> Expr:
    def index() -> Expr:
        return _int(random, min(depth - 1, 1), lets)

    by_name = {
        "doc": (symbol("b"), random.choice((symbol("q_pos"), symbol("kv_idx"), index()))),
        "table": (index(),),
        "grid": (symbol("h"), random.choice((index(), apply("mod", index(), const(7))))),
        "number": (),
    }
    name = random.choice(tuple(by_name))
    return Load(Type.INT, name, by_name[name])


def _float(random: Random, lets: tuple[str, ...]) -> Expr:
    """Only what is exact in fp32, so that comparisons agree."""
    return random.choice(
        (
            Load(Type.FLOAT, "half", (symbol("kv_h"),)),
            Load(Type.FLOAT, "brain", (apply("add", symbol("kv_idx"), const(random.choice((-3, 0, 3)))),)),
            Load(Type.FLOAT, "single", (symbol("b"), symbol("q_idx"))),
            apply("to_float", _int(random, 1, lets)),
            const(random.choice((0.0, 0.1, -3.5, 1e30, float("inf"), float("nan")))),
        )
    )


def _bool(random: Random, depth: int, lets: tuple[str, ...]) -> Expr:
    kind = random.random()
    if depth == 0 or kind < 0.1:
        return random.choice((const(True), const(False), Load(Type.BOOL, "flags", (symbol("q_idx"), symbol("kv_idx")))))
    if kind < 0.55:
        op = random.choice(_COMPARISONS)
        return apply(op, _int(random, depth - 1, lets), _int(random, depth - 1, lets))
    if kind < 0.65:
        floats = [_float(random, lets), _float(random, lets)]
        floats[0] = random.choice((floats[0], apply("min", *floats), apply("abs", floats[0])))
        return apply(random.choice(_COMPARISONS), *floats)
    if kind < 0.85:
        args = tuple(_bool(random, depth - 1, lets) for _ in range(random.choice((2, 2, 3))))
        return Apply(Type.BOOL, random.choice(("and", "or")), args)
    if kind < 0.95:
        return apply("not", _bool(random, depth - 1, lets))
    return apply(random.choice(("eq", "ne")), _bool(random, depth - 1, lets), _bool(random, depth - 1, lets))
