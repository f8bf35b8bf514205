"""A variant as FlexAttention's `mask_mod` and `score_mod`: Python text as its user would write it.

Sizes of the problem and scalar inputs are written out as numbers, which is what torch.compile would specialise on. An
index that provably lies within its axis is read as it is; others are guarded, since a read out of range gives 0 here.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..analysis.algebra.ranges import Range, StaticRanges
from ..evaluate import Array, of_constants
from ..ir import (
    Apply,
    Const,
    Expr,
    Let,
    Load,
    Local,
    Score,
    Symbol,
    Variant,
    apply,
    const,
    needs,
    reads,
    symbol,
    walk,
)
from ..operators import OPERATORS
from ..problem import Problem

Number = int | float | bool

_INDENT = " " * 8
_TAKEN = {"torch", "floats", "mods", "mask_mod", "score_mod", "b", "h", "q_idx", "kv_idx", "score"}
_TEMPORARY = re.compile(r"t\d+")
_INFIX = {"and": "&", "or": "|"}


@dataclass(frozen=True)
class FlexText:
    """`text` defines `mods(floats, NAMES...)`, which gives (mask_mod, score_mod), None for one that there isn't.
    `inputs` are the tensors in the order of the parameters; `by_batch`, `by_head`: what the mask reads."""

    text: str
    inputs: tuple[str, ...]
    has_mask: bool
    has_score: bool
    by_batch: bool
    by_head: bool


def inexpressible(variant: Variant) -> str:
    """Why FlexAttention can't compute this variant; empty where it can."""
    if variant.dropout is not None:
        return "FlexAttention has no dropout"
    if variant.sink is not None:
        return "FlexAttention has no sink in its softmax"
    if variant.normalize != "softmax":
        return f"FlexAttention has softmax alone, not `normalize {variant.normalize}`"
    return ""


def flex_text(variant: Variant, problem: Problem, inputs: Mapping[str, Array], scale: float) -> FlexText:
    """Of a dense problem, with the inputs of its call: scalars are 0-d."""
    writer = _Writer(variant, problem, inputs, scale)
    mask, score = writer.mask(), writer.score()
    tensors = tuple(item.name for item in variant.inputs if item.name in writer.read)
    lines = [f"def mods({', '.join(['floats', *map(writer.name, tensors)])}):"]
    lines += ["    mask_mod = score_mod = None", ""] if mask is None or score is None else []
    if mask is not None:
        lines += ["    def mask_mod(b, h, q_idx, kv_idx):", *mask, ""]
    if score is not None:
        lines += ["    def score_mod(score, b, h, q_idx, kv_idx):", *score, ""]
    lines += ["    return mask_mod, score_mod", ""]
    kept = reads(variant, *(keep.condition for keep in variant.keeps))
    return FlexText(
        "\n".join(lines),
        tensors,
        mask is not None,
        score is not None,
        "b" in kept,
        bool(kept & {"h", "kv_h"}),
    )


@dataclass
class _Writer:
    variant: Variant
    problem: Problem
    inputs: Mapping[str, Array]
    scale: float
    read: set[str] = field(default_factory=set)  # inputs that are tensors

    def __post_init__(self) -> None:
        problem, variant = self.problem, self.variant
        sizes = ("q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim")
        self._given: dict[str, Expr] = {name: const(getattr(problem, name)) for name in sizes}
        self._given |= {name: const(array.item()) for name, array in self.inputs.items() if array.ndim == 0}
        self._given["scale"] = const(self.scale)
        ahead = problem.kv_len - problem.q_len
        self._given["q_pos"] = apply("add", symbol("q_idx"), const(ahead)) if ahead else symbol("q_idx")
        group = problem.group
        self._given["kv_h"] = apply("floordiv", symbol("h"), const(group)) if group > 1 else symbol("h")
        lengths = {"b": problem.batch, "h": problem.num_heads, "q_idx": problem.q_len, "kv_idx": problem.kv_len}
        self._ranges = StaticRanges(variant, {name: Range(0, length - 1) for name, length in lengths.items()})
        self._names = dict(_names([*(item.name for item in variant.inputs), *variant.lets]))

    def name(self, of: str) -> str:
        return self._names[of]

    def mask(self) -> list[str] | None:
        """The body of mask_mod; None where all is kept."""
        conditions = [keep.condition for keep in self.variant.keeps]
        body = _Body(self)
        for let in needs(self.variant, *conditions):
            body.let(let)
        parts = [body.folded(condition) for condition in conditions]
        parts = [part for part in parts if part != const(True)]
        if not parts:
            return None
        if const(False) in parts:
            return [f"{_INDENT}return kv_idx < 0"]
        whole = apply("and", *parts) if len(parts) > 1 else parts[0]
        body.statement("return ", whole)
        return body.lines

    def score(self) -> list[str] | None:
        """The body of score_mod; None where no line changes the score."""
        if not self.variant.scores:
            return None
        body = _Body(self)
        wanted = {let.name for let in needs(self.variant, *(line.value for line in self.variant.scores))}
        for statement in self.variant.statements:
            match statement:
                case Let(name=name) if name in wanted:
                    body.let(statement)
                case Score():
                    body.statement("score = ", body.folded(statement.value))
        return [*body.lines, f"{_INDENT}return score"]

    def fold(self, node: Expr, below: tuple[Expr, ...]) -> Expr:
        """The node with other children, and numbers for what is known."""
        match node:
            case Symbol():
                return self._given.get(node.name, node)
            case Load() if not node.indices:
                return self._given.get(node.input, node)
            case Load():
                return Load(node.type, node.input, below)
            case Apply():
                return _simplified(Apply(node.type, node.op, below))
        return node

    def indexed(self, node: Load) -> Iterator[tuple[Expr, int, bool]]:
        """Each index, the length of its axis, and whether it lies within it whatever is read."""
        for index, length in zip(node.indices, self.inputs[node.input].shape, strict=True):
            found = self._ranges.of(index)
            yield index, length, found.low >= 0 and found.high < length


@dataclass
class _Body:
    """The lines of one function."""

    writer: _Writer
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Expr] = field(default_factory=dict)  # lets that are numbers
    temporaries: int = 0

    def folded(self, expr: Expr) -> Expr:
        known: dict[Expr, Expr] = {}
        for node in walk(expr):
            if isinstance(node, Local):
                known[node] = self.constants.get(node.name, node)
            else:
                known[node] = self.writer.fold(node, tuple(known[child] for child in node.children))
        return known[expr]

    def let(self, let: Let) -> None:
        value = self.folded(let.value)
        if isinstance(value, Const):
            self.constants[let.name] = value
        else:
            self.statement(f"{self.writer.name(let.name)} = ", value)

    def statement(self, before: str, value: Expr) -> None:
        """A line, and before it those of what stands in it more than once."""
        uses = Counter(child for node in walk(value) for child in node.children)
        known: dict[Expr, str] = {}
        for node in walk(value):
            text = self._text(node, known)
            known[node] = self._named(text) if uses[node] > 1 and not isinstance(node, Const) else text
        self.lines.append(f"{_INDENT}{before}{_bare(known[value])}")

    def _named(self, text: str) -> str:
        """A name that stands for the expression."""
        if text.isidentifier():
            return text
        self.temporaries += 1
        self.lines.append(f"{_INDENT}t{self.temporaries} = {_bare(text)}")
        return f"t{self.temporaries}"

    def _text(self, node: Expr, known: Mapping[Expr, str]) -> str:
        match node:
            case Const():
                return _number(node.value)
            case Symbol():
                return node.name
            case Local():
                return self.writer.name(node.name)
            case Load():
                return self._load(node, known)
            case Apply():
                return _applied(node, [known[arg] for arg in node.args])
        raise TypeError(repr(node))

    def _load(self, node: Load, known: Mapping[Expr, str]) -> str:
        declared = self.writer.variant.input(node.input)
        self.writer.read.add(node.input)
        guards, places = [], []
        for index, length, within in self.writer.indexed(node):
            text = known[index]
            if within:
                places.append(_bare(text))
                continue
            place = self._named(text)
            guards.append(f"({place} >= 0) & ({place} < {length})")
            places.append(f"{place}.clamp(0, {max(length - 1, 0)})")
        read = f"{self.writer.name(node.input)}[{', '.join(places)}]"
        read += ".to(floats)" if declared.dtype in ("f16", "bf16") else ""
        outside = "False" if declared.dtype == "bool" else "0"
        return f"torch.where({' & '.join(guards)}, {read}, {outside})" if guards else read


def _names(names: list[str]) -> Iterator[tuple[str, str]]:
    """Names that Python and the functions leave free."""
    given = set(names)
    for name in names:
        free = name
        while (
            keyword.iskeyword(free) or free in _TAKEN or (free != name and free in given) or _TEMPORARY.fullmatch(free)
        ):
            free += "_"
        given.add(free)
        yield name, free


def _simplified(node: Apply) -> Expr:
    """A number where all arguments are; what constants decide."""
    if all(isinstance(arg, Const) for arg in node.args):
        return const(of_constants(node))
    match node.op:
        case "select" if isinstance(node.args[0], Const):
            return node.args[1] if node.args[0].value else node.args[2]
        case "and" | "or":
            return _logic(node)
    return node


def _logic(node: Apply) -> Expr:
    """Without constants."""
    decides = node.op == "or"
    left = [arg for arg in node.args if not isinstance(arg, Const)]
    if any(isinstance(arg, Const) and arg.value == decides for arg in node.args):
        return const(decides)
    return left[0] if len(left) == 1 else Apply(node.type, node.op, tuple(left))


# -------------------------------------------------------------------- operators


def _applied(node: Apply, args: list[str]) -> str:
    """An operator as torch has it."""
    record = OPERATORS[node.op]
    if node.op in _WRITTEN:
        return _WRITTEN[node.op](*map(_bare, args))
    if node.op in ("min", "max"):
        return _extreme(node.op, args, [isinstance(arg, Const) for arg in node.args])
    if node.op in ("floordiv", "mod"):
        return _division(record.infix, args, node.args[1])
    if node.op in ("shl", "shr"):
        return _shift(record.infix, args, node.args[1])
    if record.infix:
        return "(" + f" {_INFIX.get(node.op, record.infix)} ".join(args) + ")"
    return f"torch.{record.torch[0]}({', '.join(map(_bare, args))})"


_WRITTEN: dict[str, Callable[..., str]] = {
    "neg": lambda x: f"(-({x}))",
    "not": lambda x: f"(~({x}))",
    "bitnot": lambda x: f"(~({x}))",
    "select": lambda condition, a, b: f"torch.where({condition}, {a}, {b})",
    "to_float": lambda x: f"({x}).to(floats)",
    "floor": lambda x: f"torch.floor({x}).to(torch.int64)",
    "round": lambda x: f"torch.round({x}).to(torch.int64)",
    "softplus": lambda x: f"torch.nn.functional.softplus({x})",
    "silu": lambda x: f"torch.nn.functional.silu({x})",
    "gelu": lambda x: f"torch.nn.functional.gelu({x})",
    "gelu_tanh": lambda x: f"torch.nn.functional.gelu({x}, approximate='tanh')",
}


def _extreme(op: str, args: list[str], constants: list[bool]) -> str:
    if any(constants):
        number, other = sorted(zip(constants, args, strict=True), reverse=True)
        return f"{other[1]}.clamp({'max' if op == 'min' else 'min'}={number[1]})"
    return f"torch.{op}imum({_bare(args[0])}, {_bare(args[1])})"


def _division(sign: str, args: list[str], divisor: Expr) -> str:
    """0 where the divisor is."""
    if isinstance(divisor, Const):
        return f"({args[0]} {sign} {args[1]})" if divisor.value else f"({args[0]} * 0)"
    safe = f"torch.where({args[1]} == 0, 1, {args[1]})"
    return f"torch.where({args[1]} == 0, 0, {args[0]} {sign} {safe})"


def _shift(sign: str, args: list[str], count: Expr) -> str:
    """0, or -1 for a negative number that is shifted right, where the count isn't one of a shift."""
    if isinstance(count, Const) and 0 <= count.value < 64:
        return f"({args[0]} {sign} {args[1]})"
    if isinstance(count, Const):
        return f"({args[0]} * 0)" if sign == "<<" else f"({args[0]} >> 63)"
    beyond = "0" if sign == "<<" else f"{args[0]} >> 63"
    inside = f"({args[1]} >= 0) & ({args[1]} < 64)"
    return f"torch.where({inside}, {args[0]} {sign} {args[1]}.clamp(0, 63), {beyond})"


def _number(value: Number) -> str:
    text = repr(value)
    if text.lstrip("-") in ("inf", "nan"):
        return f'float("{text}")'
    return f"({text})" if text.startswith("-") else text


def _bare(text: str) -> str:
    """Without parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text
