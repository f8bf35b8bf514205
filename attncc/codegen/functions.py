"""Prints functions from nodes: shared values become `const` locals, what all rows or pairs share a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..analysis.algebra.places import PLACE_SYMBOLS
from ..kernels.identifiers import identifier
from ..operators import OPERATORS
from ..source import Span
from .integers import WRAPPING
from .line_marks import Line
from .nodes import Level, Node, Precedence

MOST_INLINE = 74  # characters of an expression that stands alone: of a longer one, arguments get locals
HOIST_COST = 4  # instructions from which a value is worth a field; cheaper ones the compiler moves by itself

# Names that no local and no field may hide: what codegen prints by itself.
PRINTED = frozenset(
    ["params", "ctx", "row", "score", "read", "kv_idx", "q_idx", "q_first", "q_last", "kv_first", "kv_last"]
    + ["load", "load_if", "scalar", "in_range", "to_float", "fp16", "bf16"]
    + ["floor_divide", "floor_remainder", "shift_left", "shift_right"]
    + [form.text.partition("(")[0] for form in WRAPPING.values()]
    + [part.cuda.text for item in OPERATORS.values() for part in item.parts if part.cuda is not None]
    + ["sorted_hint_holds", "sorted_hint_holds_if", "first_at_least", "first_above", "first_not", "PIECES"]
    + [
        "bits_below",
        "remainder_bits",
        "repeated_bits",
        "row_bits",
        "rows_below",
        "columns_below",
        "keep_bits",
        "column_bits",
    ]
    + [
        "keep",
        "keep_at",
        "keep_rows",
        "keep_columns",
        *PLACE_SYMBOLS,
        "rows_alike",
        "row_of_lane",
        "taking_values",
        "score_mod",
        "score_gradient",
        "kv_bounds",
        "q_bounds",
        "tile_kind",
        "tests_hold",
        "make_context",
        "make_row",
        "EMPTY",
        "PARTIAL",
        "FULL",
    ]
    + [
        "Params",
        "Context",
        "Row",
        "KvBounds",
        "QBounds",
        "TileKind",
        "ScoreGradient",
        "b",
        "h",
        "kv_h",
        "q_len",
        "kv_len",
        "q_start",
        "kv_start",
        "q_offset",
    ]
    + ["scale", "kv_begin", "kv_end", "q_begin", "q_end", "full_begin", "full_end"]
    + ["column_begin", "column_end"]
)


@dataclass
class Names:
    """Hands out identifiers, each once."""

    used: set[str] = field(default_factory=set)
    _next: dict[str, int] = field(default_factory=dict)  # numbers that are not known to be used, by what they follow

    def new(self, hint: str) -> str:
        base = identifier(hint, PRINTED)
        name, number = base, self._next.get(base, 2)
        while name in self.used:
            name, number = f"{base}_{number}", number + 1
        self.used.add(name)
        self._next[base] = number
        return name


class Interner:
    """Makes nodes of equal text one node, so that what functions share is seen. A name beats no name."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], Node] = {}
        self._by_node: dict[Node, Node] = {}
        self._names: dict[Node, Node] = {}
        self.includes: set[str] = set()  # leaf files that the nodes need

    def intern(self, node: Node) -> Node:
        if node not in self._by_node:
            args = tuple(self.intern(arg) for arg in node.args)
            key = (node.ctype, node.form, *args)
            canonical = self._by_key.setdefault(key, replace(node, args=args))
            self._by_node[node] = canonical
            self.includes |= {node.include} - {""}
            if node.named:
                self._names.setdefault(canonical, node)
        return self._by_node[node]

    def label(self, node: Node) -> Node:
        """The node whose hint and span name a canonical node."""
        return self._names.get(node, node)

    def is_named(self, node: Node) -> bool:
        return node in self._names


class Fields:
    """What `Context` and `Row` hold besides their fixed fields: the values that functions hoisted there."""

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.names = Names()
        self.of_level: dict[Level, dict[Node, str]] = {Level.UNIFORM: {}, Level.ROW: {}}
        self.spans: dict[Node, Span | None] = {}

    def reference(self, node: Node, level: Level, span: Span | None) -> str | None:
        """How a function of a level reads a value of a lower one; None if it had better compute it itself."""
        if node.level >= level or node.is_leaf:
            return None
        fields = self.of_level[node.level]
        if node not in fields:
            if not self.interner.is_named(node) and node.cost < HOIST_COST:
                return None
            label = self.interner.label(node)
            fields[node] = self.names.new(label.hint)
            self.spans[node] = label.span or span
        return f"{'ctx' if node.level is Level.UNIFORM else 'row'}.{fields[node]}"


class Body:
    """The statements of one function."""

    def __init__(self, fields: Fields, level: Level, roots: Iterable[tuple[Node, Span | None]]) -> None:
        self.lines: list[Line] = []
        self._fields = fields
        self._level = level
        self._names = Names()
        self._locals: dict[Node, str] = {}
        self._span: Span | None = None
        self._uses = self._count(roots)

    def __contains__(self, node: Node) -> bool:
        """Whether a value has a name here already."""
        return node in self._locals

    def reads(self, node: Node) -> bool:
        """Whether a value is below a root, or is one."""
        return node in self._uses

    def value(self, node: Node, span: Span | None = None) -> str:
        """The text of a root; lines are added for what it shares with others and what bears a name."""
        self._span = span
        return self._text(node)[0]

    def add(self, text: str) -> None:
        self.lines.append(Line(text, self._span))

    def assign(self, node: Node, name: str, span: Span | None) -> None:
        """`name = …;` for a field of the struct that this function fills; the field is read under that name after."""
        self._span = span
        self.add(f"{name} = {self._expression(node)};")
        self._locals[node] = name

    def _count(self, roots: Iterable[tuple[Node, Span | None]]) -> Counter[Node]:
        """How often each value is read in this function; what a field holds counts there, not here."""
        uses: Counter[Node] = Counter()
        stack = list(roots)
        while stack:
            node, span = stack.pop()
            uses[node] += 1
            if uses[node] == 1 and self._fields.reference(node, self._level, span) is None:
                span = self._fields.interner.label(node).span or span
                stack.extend((arg, span) for arg in node.args)
        return uses

    def _text(self, node: Node) -> tuple[str, Precedence]:
        if node in self._locals:
            return self._locals[node], Precedence.PRIMARY
        field_text = self._fields.reference(node, self._level, self._span)
        if field_text is not None:
            return field_text, Precedence.PRIMARY
        if node.is_leaf:
            return node.form, node.precedence
        if self._uses[node] > 1 or self._fields.interner.is_named(node):
            return self._local(node), Precedence.PRIMARY
        return self._expression(node), node.precedence

    def _local(self, node: Node) -> str:
        label, outer = self._fields.interner.label(node), self._span
        self._span = label.span or outer
        text = self._expression(node)
        name = self._locals[node] = self._names.new(label.hint)
        self.add(f"const {node.ctype.removeprefix('const ')} {name} = {text};")
        self._span = outer
        return name

    def _expression(self, node: Node) -> str:
        """The form with its arguments; the longest of them get locals where the line would be too long."""
        arguments = [self._argument(arg, need) for arg, need in zip(node.args, node.needs, strict=True)]
        text = node.form.format(*arguments)
        if len(text) <= MOST_INLINE:
            return text
        inline = [(arg, place) for place, arg in enumerate(node.args) if self._is_inline(arg)]
        for longest, place in sorted(inline, key=lambda item: -item[0].cost):
            if self._is_inline(longest):  # one before it may have given it a name
                arguments[place] = self._local(longest)
                text = node.form.format(*arguments)
            if len(text) <= MOST_INLINE:
                break
        return text

    def _is_inline(self, node: Node) -> bool:
        known = node.is_leaf or node in self._locals
        return not known and self._fields.reference(node, self._level, self._span) is None

    def _argument(self, node: Node, need: Precedence) -> str:
        text, precedence = self._text(node)
        return f"({text})" if precedence < need else text
