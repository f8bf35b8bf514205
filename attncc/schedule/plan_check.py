"""Whether a plan that was read from a file is one that a compiler could have written: names, types and sizes.

A file may be damaged, or made by hand. What stands here keeps all that follows (executor, launcher, code generator)
from meeting what can't be, so that it need not ask.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ..analysis.rules import sorted_name
from ..ir import (
    AXIS_TAGS,
    DTYPES,
    MAX_LENGTH,
    OFFSET_SYMBOL,
    START_SYMBOLS,
    SYMBOLS,
    TILE_SYMBOLS,
    Apply,
    Const,
    Expr,
    Input,
    Keep,
    Let,
    Load,
    Local,
    Score,
    Search,
    Symbol,
    Type,
    Variant,
    apply,
    root_of,
    walk,
)
from ..operators import OPERATORS
from ..problem.facts import KV_DTYPES
from .choice import KNOBS, LOOPS
from .families import KINDS
from .plan import BY_LENGTH, DTYPE_BYTES, KEY_PASSES, LEAST_ROWS, MOST_HEAD_DIM, PASSES, TILES_2D_PASSES, KernelPlan
from .target import TARGETS

NORMALIZERS = ("softmax", "sigmoid", "none")
MOST_WARPS = 32  # of a thread block
MOST_PAIRS = 2**16  # far more than any tile has
MAX_RANK = 4

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PYTHON = {Type.INT: int, Type.FLOAT: float, Type.BOOL: bool}
_ENTRY = ("q_idx", "kv_idx", "q_pos", "score", "scale")  # no tile has one of these

Arrays = Mapping[str, tuple[Type, int]]  # what can be loaded: type and rank


def check_plan(plan: KernelPlan) -> None:
    """ValueError with the first thing that can't be. Whether a target grants what the plan takes is not asked again."""
    _check_variant(plan.variant, (*SYMBOLS, OFFSET_SYMBOL) if plan.grid_2d is not None else SYMBOLS)
    known = (
        (plan.pass_name, PASSES), (plan.target, TARGETS), (plan.dtype, DTYPE_BYTES),
        (plan.loop, LOOPS), (plan.knobs["family"], KINDS),
    )  # fmt: skip
    for name, names in known:
        _require(name in names, f"`{name}`")
    for name, knob in KNOBS.items():
        if knob.default is not None:  # the plan holds what a schedule sets, or the default
            _require(knob.allows(getattr(plan, name)), f"`{name}`")
    sizes = (plan.block_q, plan.block_kv, plan.warps, plan.stages, 1 if plan.split_kv is None else plan.split_kv)
    _require(all(0 < size <= MOST_PAIRS for size in sizes) and plan.warps <= MOST_WARPS, "a size of the tile")
    _require(all(0 < dim <= MOST_HEAD_DIM for dim in (plan.head_dim, plan.value_head_dim)), "a head dim")
    if plan.lengths is not None:
        first, last = plan.lengths
        _require(plan.pass_name in BY_LENGTH and 0 < first <= last <= MAX_LENGTH, "a range of lengths")
    _require(plan.least_rows in ((0, *LEAST_ROWS) if plan.pass_name == "decode" else (0,)), "`least_rows`")
    _require(not plan.one_block or plan.pass_name == "decode", "`one_block`")
    _require(not plan.split or (plan.pass_name == "forward" and plan.may_split), "`split`")
    _require(not plan.unclustered or plan.pass_name == "backward", "`unclustered`")
    at_once = plan.keys_at_once
    _require(at_once == 0 or (plan.pass_name == "decode" and 0 < at_once <= plan.block_kv), "`keys_at_once`")
    _require(plan.kv_dtype is None or _has_cache_dtype(plan), "`kv_dtype`")
    _check_grid(plan)
    _check_rules(plan)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} is none that a plan has")


def _has_cache_dtype(plan: KernelPlan) -> bool:
    served = plan.pass_name in ("forward", "decode") and plan.loop == "q_outer"
    return plan.kv_dtype in KV_DTYPES and plan.dtype in ("fp16", "bf16") and served


def _check_grid(plan: KernelPlan) -> None:
    grid_2d = plan.grid_2d
    _require((grid_2d is not None) == (plan.pass_name in TILES_2D_PASSES.values()), "a 2-D grid")
    if grid_2d is not None:
        columns = grid_2d.q_columns, grid_2d.kv_columns
        _require(0 < grid_2d.width < 2**30 and all(0 < count <= grid_2d.width for count in columns), "a 2-D grid")
        _require(plan.block_q % columns[0] == plan.block_kv % columns[1] == 0, "a 2-D grid")
        divided = columns[:1] if grid_2d.window else columns
        _require(all(grid_2d.width % count == 0 for count in divided), "a 2-D grid")


# -------------------------------------------------------------------- the variant


def _check_variant(variant: Variant, symbols: Collection[str]) -> None:
    """`symbols`: what its lines may read. In 2-D tiles queries and their offset are divided apart."""
    names = [item.name for item in variant.inputs] + [name for name, _ in variant.consts] + list(variant.lets)
    _require(_NAME.fullmatch(variant.name) is not None, "the name of the variant")
    _require(len(names) == len(set(names)), "a name")
    _require(all(map(_NAME.fullmatch, names)) and len(variant.lets) == _lets(variant), "a name")
    _require(variant.normalize in NORMALIZERS, "the normalizer")
    for item in variant.inputs:
        _check_input(item)
    arrays = {item.name: (item.type, len(item.axes)) for item in variant.inputs}
    lets: dict[str, Type] = {}
    for statement in variant.statements:
        value = root_of(statement)
        _check_value(value, symbols, arrays, lets)
        if isinstance(statement, Let):
            lets[statement.name] = value.type
        wanted = {Keep: Type.BOOL, Score: Type.FLOAT}.get(type(statement), value.type)
        _require(value.type is wanted, "the type of a line")
    _require(variant.sink is None or arrays.get(variant.sink) == (Type.FLOAT, 1), "the sink")
    if variant.scale is not None:
        _check_value(variant.scale, ("head_dim", "q_len", "kv_len"), arrays, {})
        _require(variant.scale.type is not Type.BOOL, "the scale")
    if variant.dropout is not None:
        _check_value(variant.dropout, (), arrays, {})
        is_scalar = isinstance(variant.dropout, Const) or (
            isinstance(variant.dropout, Load) and not variant.dropout.indices
        )
        _require(is_scalar and variant.dropout.type is Type.FLOAT, "the dropout")


def _lets(variant: Variant) -> int:
    return sum(isinstance(item, Let) for item in variant.statements)


def _check_input(item: Input) -> None:
    _require(item.dtype in DTYPES and len(item.axes) <= MAX_RANK, "an input")
    for axis in item.axes:
        _require(axis.tag is None or (axis.tag in AXIS_TAGS and axis.length is None), "an axis")
        _require(axis.length is None or 0 <= axis.length < 2**31, "an axis")
    _require(not item.nondecreasing or (item.type is Type.INT and len(item.axes) > 0), "a property of an input")
    _require(not item.learnable or item.type is Type.FLOAT, "a property of an input")


# -------------------------------------------------------------------- the rules


def _check_rules(plan: KernelPlan) -> None:
    rules, inputs = plan.rules, {item.name: item for item in plan.variant.inputs}
    tabled = [inputs.get(table.input) for table in rules.min_max_tables]
    _require(all(item is not None and item.axes for item in tabled), "a table")
    _require(len(set(rules.min_max_tables)) == len(tabled), "a table")
    _require(all(0 < table.block < 2**30 for table in rules.min_max_tables), "the block of a table")
    hinted = [inputs.get(name) for name in rules.sorted_hints]
    _require(all(item is not None and item.nondecreasing for item in hinted), "a sorted hint")
    _require(len(set(rules.sorted_hints)) == len(hinted), "a sorted hint")
    arrays = {name: (item.type, len(item.axes)) for name, item in inputs.items()}
    for table in rules.min_max_tables:
        arrays |= dict.fromkeys((table.min_name, table.max_name), arrays[table.input])
    arrays |= {sorted_name(name): (Type.BOOL, len(inputs[name].axes) - 1) for name in rules.sorted_hints}
    sizes = [f"{item.name}__size{axis}" for item in inputs.values() for axis in range(len(item.axes))]
    uniform = {*(name for name in SYMBOLS if name not in _ENTRY), *START_SYMBOLS, OFFSET_SYMBOL, *sizes}
    for wanted, allowed, exprs in _parts(plan):
        for expr in exprs:
            _check_value(expr, {*uniform, *allowed}, arrays, {})
            _require(expr.type is wanted, "the type of a rule")
    keeps = range(len(plan.variant.keeps))
    _require(all(index in keeps for index, _ in rules.undecided), "a line that is left open")
    _require((rules.q_bounds is not None) == (plan.pass_name in KEY_PASSES), "the bounds of rows")
    _require(rules.columns is None or plan.grid_2d is not None, "the columns of a window")


def _parts(plan: KernelPlan) -> Iterable[tuple[Type, tuple[str, ...], tuple[Expr, ...]]]:
    """The expressions of the rules: their type, and the symbols of a tile that they may read."""
    rules, of_rows, of_keys = plan.rules, TILE_SYMBOLS[:2], TILE_SYMBOLS[2:]
    yield Type.BOOL, TILE_SYMBOLS, (rules.any_kept, rules.all_kept)
    yield Type.INT, of_rows, (rules.kv_begin, rules.kv_end, rules.full_begin, rules.full_end)
    if rules.q_bounds is not None:
        bounds = rules.q_bounds
        yield Type.INT, of_keys, (bounds.q_begin, bounds.q_end, bounds.full_begin, bounds.full_end)
    yield Type.INT, of_rows, rules.columns or ()


# -------------------------------------------------------------------- expressions


def _check_value(root: Expr, symbols: Collection[str], arrays: Arrays, lets: Mapping[str, Type]) -> None:
    for node in walk(root):
        match node:
            case Const():
                in_range = not isinstance(node.value, int) or -(2**63) <= node.value < 2**63
                _require(type(node.value) is _PYTHON[node.type] and in_range, "a number")
            case Symbol():
                _require(node.name in symbols and node.type is SYMBOLS.get(node.name, Type.INT), "a symbol")
            case Local():
                _require(lets.get(node.name) is node.type, "a name")
            case Load():
                _require(arrays.get(node.input) == (node.type, len(node.indices)), "what an expression reads")
                _require(all(index.type is Type.INT for index in node.indices), "an index")
            case Search():
                of = (node.value.type, len(node.indices) + 1)
                _require(arrays.get(node.input) == of and of[0] is Type.INT, "what is searched")
                _require(all(item.type is Type.INT for item in (node, node.length, *node.indices)), "an index")
            case Apply():
                _check_operator(node)


def _check_operator(node: Apply) -> None:
    operator, types = OPERATORS.get(node.op), [arg.type for arg in node.args]
    _require(operator is not None, "an operator")
    assert operator is not None
    _require(len(types) == operator.arity or (operator.arity == -1 and len(types) >= 2), "an operator")
    _require(apply(node.op, *node.args).type is node.type, "the type of an operator")
    conditions, values = (types[:1], types[1:]) if node.op == "select" else ([], types)
    _require(all(kind is Type.BOOL for kind in conditions) and len(set(values)) == 1, "the type of an argument")
    takes = {Type.INT: operator.on_ints, Type.FLOAT: operator.on_floats, Type.BOOL: operator.on_bools}
    _require(takes[values[0]] is not None, "the type of an argument")
