"""Lines of inputs that score lines or keep lines read at kv_idx: a lane reads what it needs of one for a whole tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir import Expr, Load, Symbol, Variant, needs, show, walk
from ..kernels.parameters import ELEMENT_TYPES
from ..quoting import cuda_comment
from ..source import Span
from .expressions import Lowering
from .functions import Body, Fields, Names
from .line_marks import Line
from .loads import VALUES, Address, has_entry_for_each_key, line
from .nodes import Level, Node, leaf
from .structs import make_function

LEAF = "memory/key_lines.cuh"
ROW_LEAF = "memory/row_entries.cuh"  # for lanes that take a row each
_DTYPES = ("bool", "i32", "f16", "bf16", "f32")  # up to a word


@dataclass(frozen=True)
class KeyLine:
    """A load whose last index is kv_idx, and no other depends on the key."""

    load: Load
    address: Address
    kind: str  # what reads it: Score or Keep
    name: str  # of its entry
    span: Span | None  # of the statement that reads it

    @property
    def element(self) -> str:
        return ELEMENT_TYPES[self.address.item.dtype]

    @property
    def of_row(self) -> bool:
        """Whether rows have lines of their own."""
        return any(index.level is Level.ROW for index in self.address.indices[:-1])

    @property
    def function(self) -> str:
        """Says where the line is."""
        return f"{self.kind.lower()}_{self.name}_line"

    @property
    def entry(self) -> Node:
        return leaf(VALUES[self.address.item.dtype], f"read.{self.name}", Level.ELEMENT)


def find(kind: str, variant: Variant, roots: Mapping[Expr, Span | None], lowering: Lowering) -> tuple[KeyLine, ...]:
    """The lines that some expressions read, each once. `roots`: with the places of their statements."""
    roots = {**{let.value: let.span for let in needs(variant, *roots)}, **roots}
    names, found = Names(), dict[Load, KeyLine]()
    for root, span in roots.items():
        for expr in walk(root):
            if isinstance(expr, Load) and expr not in found and _is_line(expr, variant):
                address = lowering.address(expr)
                last = address.exprs[-1]
                is_key = isinstance(last, Symbol) and last.name == "kv_idx"
                if is_key and all(index.level < Level.ELEMENT for index in address.indices[:-1]):
                    found[expr] = KeyLine(expr, address, kind, names.new(expr.input), span)
    return tuple(found.values())


def _is_line(expr: Load, variant: Variant) -> bool:
    item = next((item for item in variant.inputs if item.name == expr.input), None)  # not a min/max table
    return item is not None and item.default is None and item.dtype in _DTYPES and bool(expr.indices)


def code(lines: Sequence[KeyLine], lowering: Lowering, fields: Fields) -> str:
    """`struct ScoreEntry` and `ScoreEntries`, or those of keep lines; for each line a function that says where."""
    kind = lines[0].kind
    arguments = "const Params& params, const Context& ctx, const Row (&rows)[M_TILES][2], int kv_first"
    methods = (
        _method(
            f"bool load_ahead({arguments})", _load_ahead(lines), "Begins to read, if a lane reads pieces of all lines."
        ),
        _method(
            f"bool load_words_ahead({arguments})",
            _load_words(lines),
            "The same, a word at a time, of entries of 16 or 32 bits.",
        ),
        _method(f"void join({arguments})", _each(lines, "{0}.join({1}, kv_first);"), "Between that and `at`."),
        _method(
            f"bool next_to_each_other({arguments}) const",
            _next_to_each_other(lines),
            "Whether `load_shifted` may be called.",
        ),
        _method(f"void load_shifted({arguments})", _load_shifted(lines), "Reads pieces that aren't aligned."),
        _method(
            f"void load_singly({arguments})",
            _each(lines, "{0}.load_singly({1}, kv_first);"),
            "Reads what lies anywhere.",
        ),
        _method("void exchange()", _each(lines, "{}.exchange();"), "Between `load_ahead` and `at`."),
        _method("void clear()", _each(lines, "{}.clear();"), "Before loads under a condition."),
        _method(f"{kind}Entry at(int row, int n, int side) const", [_at(lines)]),
    )
    entries = [
        "// The same of a lane's columns of so many column tiles. All lanes of a warp call its functions.",
        f"template <int TILES>\nstruct {kind}Entries {{",
        *map(_member, lines),
        *(f"\n{method}" for method in methods),
        "};",
    ]
    return "\n\n".join((*_head(lines, lowering, fields), "\n".join(entries)))


def code_of_rows(lines: Sequence[KeyLine], lowering: Lowering, fields: Fields) -> tuple[str, str]:
    """`struct KeepEntry`; and `keep_sixteen`, for lanes that take a row each, to stand after the `keep` it calls."""
    arguments = "const Params& params, const Context& ctx, const Row& row, int kv_first"
    pieces = [f"RowEntries<{item.element}>" for item in lines]
    places = [f"{item.function}(params, ctx{', row' if item.of_row else ''})" for item in lines]
    tests = [f"{piece}::in_pieces({place}, kv_first)" for piece, place in zip(pieces, places, strict=True)]
    loads = [
        f"const {piece} {item.name}({place}, kv_first);"
        for item, piece, place in zip(lines, pieces, places, strict=True)
    ]
    entries = ", ".join(f"{item.name}.at(key)" for item in lines)
    body = [
        *loads,
        "unsigned bits = 0;",
        "#pragma unroll",
        "for (int key = 0; key < 16; ++key)",
        f"    bits |= (unsigned)keep(params, ctx, row, kv_first + key, {{{entries}}}) << key;",
        "return bits;",
    ]
    in_pieces, sixteen = (
        make_function(f"{ctype} {name}({arguments})", map(Line, found), [comment])
        for ctype, name, found, comment in (
            ("bool", "sixteen_in_pieces", [f"return {' & '.join(tests)};"], "Whether `keep_sixteen` may be called."),
            ("unsigned", "keep_sixteen", body, "Which of the 16 keys from kv_first on a row keeps: a bit for each."),
        )
    )
    return "\n\n".join(_head(lines, lowering, fields)), f"{in_pieces}\n\n{sixteen}"


def _head(lines: Sequence[KeyLine], lowering: Lowering, fields: Fields) -> Iterator[str]:
    """Where lines are, and what is read of them for one pair."""
    shown = cuda_comment(", ".join(show(item.load) for item in lines))
    entry = [f"    {item.entry.ctype} {item.name};" for item in lines]
    yield from (_line_function(item, lowering, fields) for item in lines)
    yield "\n".join([f"// What is read for one pair: {shown}.", f"struct {lines[0].kind}Entry {{", *entry, "};"])


def _member(item: KeyLine) -> str:
    each = "true> {}[2 * M_TILES];" if item.of_row else "false> {};"
    return f"    LaneEntries<{item.element}, TILES, {each.format(item.name)}"


def _method(head: str, lines: Iterable[str], *comments: str) -> str:
    return "\n".join(f"    {text}" for text in make_function(head, map(Line, lines), comments).splitlines())


def _each(lines: Iterable[KeyLine], form: str) -> Iterator[str]:
    """A statement for each line, or for the lines of each row: {0} is what holds entries, {1} says where they are."""
    for item in lines:
        if item.of_row:
            yield "#pragma unroll"
            yield "for (int row = 0; row < 2 * M_TILES; ++row)"
            yield "    " + form.format(f"{item.name}[row]", f"{item.function}(params, ctx, rows[row / 2][row % 2])")
        else:
            yield form.format(item.name, f"{item.function}(params, ctx)")


def _load_ahead(lines: Sequence[KeyLine]) -> Iterator[str]:
    yield "bool in_pieces = true;"
    yield from _each(lines, "in_pieces &= {0}.in_pieces({1}, kv_first);")
    yield "if (!__all_sync(~0u, in_pieces)) return false;"
    yield from _each(lines, "{0}.load_pieces({1}, kv_first);")
    yield "return true;"


def _load_words(lines: Sequence[KeyLine]) -> Iterator[str]:
    if not any(item.of_row for item in lines):
        yield "return false;  // what all rows share costs few accesses, however it is read"
        return
    yield "bool in_words = true;"
    yield from _each(lines, "in_words &= {0}.in_words({1}, kv_first);")
    yield "if (!__all_sync(~0u, in_words)) return false;"
    yield from _each(lines, "{0}.load_in_words({1}, kv_first);")
    yield "return true;"


def _next_to_each_other(lines: Sequence[KeyLine]) -> Iterator[str]:
    yield "bool all = true;"
    yield from _each(lines, "all &= {0}.next_to_each_other({1}, kv_first);")
    yield "return __all_sync(~0u, all);"


def _load_shifted(lines: Sequence[KeyLine]) -> Iterator[str]:
    yield from _each(lines, "{0}.load_shifted({1}, kv_first);")
    yield "exchange();"


def _at(lines: Sequence[KeyLine]) -> str:
    entries = [f"{item.name}{'[row]' if item.of_row else ''}.at(n, side)" for item in lines]
    return f"return {{{', '.join(entries)}}};"


def _line_function(item: KeyLine, lowering: Lowering, fields: Fields) -> str:
    whole, address = has_entry_for_each_key(item.address), item.address
    start = replace(address, exprs=address.exprs[:-1], indices=address.indices[:-1])
    nodes = [fields.interner.intern(node) for node in line(start, lowering.size, whole=whole)]
    body = Body(fields, Level.ELEMENT if item.of_row else Level.ROW, [(node, item.span) for node in nodes])
    values = [body.value(node, item.span) for node in nodes]
    body.add(f"return {{{', '.join(values)}}};")
    row = ", const Row& row" if item.of_row else ""
    head = f"KeyLine<{item.element}> {item.function}(const Params& params, const Context& ctx{row})"
    return make_function(head, body.lines)
