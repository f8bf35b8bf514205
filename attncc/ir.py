"""The typed expression IR and `Variant`, the meaning of one attention variant.

An expression is a tree of five node kinds, of which tile rules alone hold `Search`. Every operator is total
(docs/language.md), so nodes may be evaluated in any order, twice, or not at all. Ints are 64-bit and wrap; floats are
f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count

from .operators import OPERATORS, record
from .source import Span

Type = record.Type
_NUMBERS = count()  # of nodes, until they are found equal


@dataclass(frozen=True, eq=False)
class Expr:
    """Base of all nodes. The hash is kept, and equality looks at each pair of nodes once: so shared subtrees cost
    linear time, though the tree that they stand for may be larger than can be walked. Nodes that were found equal have
    one number from then on: they aren't compared again."""

    type: Type
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)
    children: tuple[Expr, ...] = field(default=(), init=False, compare=False, repr=False)
    depth: int = field(default=1, init=False, compare=False, repr=False)  # levels, this one among them
    _own: tuple[object, ...] = field(default=(), init=False, compare=False, repr=False)  # all that isn't a child
    _hash: int = field(default=0, init=False, compare=False, repr=False)
    _number: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Keeps what tells nodes apart, and the hash."""

    def __setstate__(self, state: dict[str, object]) -> None:
        """A hash that was pickled is that of another process, in which texts have other hashes; so is a number."""
        self.__dict__.update(state)
        self.__post_init__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expr):
            return NotImplemented
        if self._number == other._number:
            return True
        if self._hash != other._hash or self._own != other._own:
            return False
        seen: dict[tuple[int, int], tuple[Expr, Expr]] = {}
        pending: list[tuple[Expr, Expr]] = [(self, other)]
        while pending:
            a, b = pending.pop()
            if a._number == b._number or (a._number, b._number) in seen:
                continue
            if a._hash != b._hash or a._own != b._own or len(a.children) != len(b.children):
                return False
            seen[a._number, b._number] = a, b
            pending.extend(zip(a.children, b.children, strict=True))
        for a, b in seen.values():
            object.__setattr__(b, "_number", a._number)
        return True

    def _keep(self, *own: object, children: tuple[Expr, ...] = ()) -> None:
        kept = self.__dict__  # by `object.__setattr__` it takes twice as long, and large masks have 100,000 nodes
        kept["_own"] = own = (type(self).__name__, self.type, *own)
        if children:
            kept["children"] = children
            kept["depth"] = 1 + max([child.depth for child in children])
        kept["_hash"] = hash((own, children))
        kept["_number"] = next(_NUMBERS)


@dataclass(frozen=True, eq=False)
class Const(Expr):
    value: int | float | bool

    def __post_init__(self) -> None:
        self._keep(self.value)


@dataclass(frozen=True, eq=False)
class Symbol(Expr):
    """A built-in name (`SYMBOLS`), the score so far (`score`), or one of a tile (`TILE_SYMBOLS`)."""

    name: str

    def __post_init__(self) -> None:
        self._keep(self.name)


@dataclass(frozen=True, eq=False)
class Local(Expr):
    """The value of an earlier `Let` of the same variant."""

    name: str

    def __post_init__(self) -> None:
        self._keep(self.name)


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """An element of an input (no indices: a scalar input). An index out of range reads 0 (false)."""

    input: str
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self._keep(self.input, children=self.indices)


@dataclass(frozen=True, eq=False)
class Search(Expr):
    """The first of `length` entries of an input's last axis that is at least `value` (`above`: greater than it).

    `length` if none is. `indices` are those of the other axes. The entries never decrease; where they do, this is any
    place from 0 to `length`.
    """

    input: str
    indices: tuple[Expr, ...]
    length: Expr
    value: Expr
    above: bool

    def __post_init__(self) -> None:
        self._keep(self.input, self.above, children=(*self.indices, self.length, self.value))


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """An operator of `OPERATORS` and its arguments. Arithmetic is of arguments of one type: lowering has put a
    `to_float` where an int meets a float."""

    op: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self._keep(self.op, children=self.args)


SYMBOLS: dict[str, Type] = {
    "b": Type.INT,
    "h": Type.INT,
    "kv_h": Type.INT,
    "q_idx": Type.INT,
    "kv_idx": Type.INT,
    "q_pos": Type.INT,
    "q_len": Type.INT,
    "kv_len": Type.INT,
    "num_heads": Type.INT,
    "num_kv_heads": Type.INT,
    "head_dim": Type.INT,
    "scale": Type.FLOAT,
    "score": Type.FLOAT,
}

# First and last q_idx and kv_idx of a tile, both included, clipped to q_len and kv_len.
TILE_SYMBOLS = ("q_first", "q_last", "kv_first", "kv_last")

# Where this sequence starts on a packed axis (cu_seqlens[b]); 0 where batches aren't packed. Min/max tables span the
# whole packed axis, so rules add these before they divide by the block.
START_SYMBOLS = ("q_start", "kv_start")

# What q_pos is beyond q_idx: kv_len - q_len, so that the last query is at the last key, or what the call says.
OFFSET_SYMBOL = "q_offset"

# So long at most, that the difference of two positions, q_pos too, fits 32 bits with room for a tile.
MAX_LENGTH = 2**30 - 2**17

# -------------------------------------------------------------------- variant

AXIS_TAGS = ("batch", "head", "kv_head", "q", "kv", "pos")
DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32")


@dataclass(frozen=True)
class Axis:
    """One axis of an input: a tag, a fixed length, or neither (`_`)."""

    tag: str | None = None
    length: int | None = None

    def __str__(self) -> str:
        return self.tag or ("_" if self.length is None else str(self.length))


@dataclass(frozen=True)
class Input:
    """A tensor (rank 1 to 4) or scalar (rank 0) that each call brings. Without it, all entries are the default, if it
    has one: no text declares such inputs, only `descales` does."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    nondecreasing: bool = False
    learnable: bool = False
    default: float | None = None
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def type(self) -> Type:
        if self.dtype == "bool":
            return Type.BOOL
        return Type.INT if self.dtype in ("i32", "i64") else Type.FLOAT

    def show(self) -> str:
        """As it is declared: `doc: i32[batch, pos] nondecreasing`."""
        axes = f"[{', '.join(map(str, self.axes))}]" if self.axes else ""
        marks = " nondecreasing" * self.nondecreasing + " learnable" * self.learnable
        return f"{self.name}: {self.dtype}{axes}{marks}"


@dataclass(frozen=True)
class Let:
    name: str
    value: Expr
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Keep:
    condition: Expr
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Score:
    """`score = value`; `Symbol("score")` inside is the score before this line."""

    value: Expr
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


Statement = Let | Keep | Score


def root_of(statement: Statement) -> Expr:
    """What a statement computes: the condition of a keep line, else the value."""
    return statement.condition if isinstance(statement, Keep) else statement.value


def with_root(statement: Statement, root: Expr) -> Statement:
    """The statement, which computes this in place of what it did."""
    return replace(statement, condition=root) if isinstance(statement, Keep) else replace(statement, value=root)


@dataclass(frozen=True)
class Variant:
    """What one attention variant computes. Statements run top to bottom; keeps are AND-ed, after all scores."""

    name: str
    consts: tuple[tuple[str, int | float | bool | tuple[int | float | bool, ...]], ...] = ()
    inputs: tuple[Input, ...] = ()
    statements: tuple[Statement, ...] = ()
    normalize: str = "softmax"  # softmax | sigmoid | none
    sink: str | None = None  # name of an input
    scale: Expr | None = None  # None: 1/sqrt(head_dim)
    dropout: Expr | None = None  # a Const float or a scalar Load; None: no dropout
    documentation: str = ""
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)

    def input(self, name: str) -> Input:
        return next(item for item in self.inputs if item.name == name)

    @property
    def keeps(self) -> tuple[Keep, ...]:
        return tuple(item for item in self.statements if isinstance(item, Keep))

    @property
    def scores(self) -> tuple[Score, ...]:
        return tuple(item for item in self.statements if isinstance(item, Score))

    @property
    def lets(self) -> dict[str, Let]:
        return {item.name: item for item in self.statements if isinstance(item, Let)}

    def show(self) -> str:
        """The variant as text, for people: its lines as they are written, where it came from a source."""
        return "\n".join(_show_variant(self, _as_written(self), lambda expr: _source(self, expr.span) or show(expr)))

    def show_lowered(self) -> str:
        """The variant as it is computed: masks and consts written out, types made explicit."""
        return "\n".join(_show_variant(self, map(_show_statement, self.statements), show))


# -------------------------------------------------------------------- walking and building


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node below the roots, children before parents, each once."""
    seen: set[Expr] = set()
    met: set[int] = set()  # their ids: most nodes are met again as the same object, which takes no Python code to find
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if id(node) in met:
            continue
        if node.children and (below := [child for child in node.children if id(child) not in met]):
            stack.append(node)
            stack.extend(reversed(below))
            continue
        met.add(id(node))
        known = len(seen)
        seen.add(node)  # one look for an equal node, where `in` before it would be a second
        if len(seen) > known:
            yield node


def needs(variant: Variant, *roots: Expr) -> tuple[Let, ...]:
    """The lets that the roots read, directly or through other lets, in order."""
    lets = variant.lets
    wanted: set[str] = set()
    pending = list(roots) if lets else []
    while pending:
        found = {node.name for node in walk(*pending) if isinstance(node, Local)} - wanted
        wanted |= found
        pending = [lets[name].value for name in found]
    return tuple(item for item in lets.values() if item.name in wanted)


@lru_cache(maxsize=4096)  # each call asks the same of its masks
def reads(variant: Variant, *roots: Expr) -> frozenset[str]:
    """Names of the inputs and symbols that the roots read, through lets too."""
    names: set[str] = set()
    for node in walk(*roots, *(item.value for item in needs(variant, *roots))):
        if isinstance(node, Load):
            names.add(node.input)
        elif isinstance(node, Symbol):
            names.add(node.name)
    return frozenset(names)


def substituted(expr: Expr, meaning: Mapping[Expr, Expr]) -> Expr:
    """The expression with what `meaning` says in place of its keys: all at once, so that one may stand for what another
    has in it."""
    known = dict(meaning)
    for node in walk(expr):
        if node in known:
            continue
        below = tuple(known[child] for child in node.children)
        if isinstance(node, Apply) and below != node.args:
            known[node] = Apply(node.type, node.op, below, span=node.span)
        elif isinstance(node, Load) and below != node.indices:
            known[node] = Load(node.type, node.input, below, span=node.span)
        else:
            known[node] = node
    return known[expr]


def size_symbol(input_name: str, axis: int) -> Symbol:
    """The run-time length of an input's axis within the sequence (on a packed axis: the sequence's own length)."""
    return Symbol(Type.INT, f"{input_name}__size{axis}")


def const(value: int | float | bool) -> Const:
    if isinstance(value, bool):
        return Const(Type.BOOL, value)
    return Const(Type.INT if isinstance(value, int) else Type.FLOAT, value)


def symbol(name: str) -> Symbol:
    return Symbol(SYMBOLS.get(name, Type.INT), name)


def apply(op: str, *args: Expr, span: Span | None = None) -> Apply:
    """An operator node with the result type that its operator implies."""
    return Apply(OPERATORS[op].result(args[-1].type), op, args, span=span)


# -------------------------------------------------------------------- text form


def show(expr: Expr) -> str:
    """An expression as fully parenthesised `.attn` text."""
    if isinstance(expr, Const):
        return str(expr.value).lower() if expr.type is Type.BOOL else repr(expr.value)
    if isinstance(expr, Symbol | Local):
        return expr.name
    if isinstance(expr, Load | Search):
        return _show_read(expr)
    assert isinstance(expr, Apply)
    shown = [show(arg) for arg in expr.args]
    if infix := OPERATORS[expr.op].infix:
        return "(" + f" {infix} ".join(shown) + ")"
    if expr.op == "select":
        return f"({shown[1]} if {shown[0]} else {shown[2]})"
    return f"{expr.op}({', '.join(shown)})"


def _show_read(expr: Load | Search) -> str:
    if isinstance(expr, Load):
        return f"{expr.input}[{', '.join(map(show, expr.indices))}]" if expr.indices else expr.input
    line = f"{expr.input}[{', '.join([*map(show, expr.indices), f':{show(expr.length)}'])}]"
    return f"first({line} {'>' if expr.above else '>='} {show(expr.value)})"


def _as_written(variant: Variant) -> Iterator[str]:
    """The statements of the variant's own lines; those of a mask stand for the call that they come from."""
    for statement in variant.statements:
        if statement.span is None or variant.span is None:
            yield _show_statement(statement)
        elif written := _source(variant, statement.span):
            yield written


def _source(variant: Variant, span: Span | None) -> str:
    """What stands there in the variant's own text; empty where that isn't known."""
    return span.one_line if span and variant.span and variant.span.holds(span) else ""


def _show_statement(statement: Statement) -> str:
    match statement:
        case Let():
            return f"let {statement.name}: {statement.value.type.value} = {show(statement.value)}"
        case Keep():
            return f"keep if {show(statement.condition)}"
        case Score():
            return f"score = {show(statement.value)}"


def _show_variant(variant: Variant, statements: Iterable[str], shown: Callable[[Expr], str]) -> Iterator[str]:
    yield f"variant {variant.name}"
    for name, value in variant.consts:
        yield f"  const {name} = {list(value) if isinstance(value, tuple) else value!r}"
    for item in variant.inputs:
        yield f"  input {item.show()}"
    yield from (f"  {statement}" for statement in statements)
    if variant.scale is not None:
        yield f"  scale {shown(variant.scale)}"
    if variant.sink is not None:
        yield f"  sink {variant.sink}"
    if variant.normalize != "softmax":
        yield f"  normalize {variant.normalize}"
    if variant.dropout is not None:
        yield f"  dropout {shown(variant.dropout)}"
