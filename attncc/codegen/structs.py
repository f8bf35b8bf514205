"""The structs that the functions of a variant read: Params, Context and Row, with what fills them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..kernels.parameters import Parameter
from ..quoting import cuda_comment
from .functions import Body, Fields
from .line_marks import WIDTH, Line, marked
from .nodes import CALL_SCALE, Level, Node

FUNCTION, CALLED_FUNCTION = "__device__ __forceinline__", "__device__ __noinline__"

_SHUFFLE_COST = 6  # what costs less is computed again rather than asked of another lane

_FIELDS = 116  # columns of fields on one line, behind their indent

_CONTEXT = [
    "int b, h, kv_h;",
    "int q_len, kv_len;  // of this sequence",
    "int q_start, kv_start;  // its first rows in a packed batch, 0 in a dense one",
    "int q_offset;  // q_pos - q_idx",
    "float scale;",
]
_CONTEXT_VALUES = "work.sequence, h, kv_h, work.q_len, work.kv_len, work.q_start, work.kv_start"


def params_struct(fields: Iterable[Parameter]) -> str:
    """`struct Params`: a line for each run of fields of a type that belong together, as the strides of a tensor do."""
    lines: list[str] = []
    group: list[Parameter] = []
    for field in fields:
        if group and (_family(field) != _family(group[-1]) or len(_declaration([*group, field])) > _FIELDS):
            lines.append(_declaration(group))
            group = []
        group.append(field)
    lines.append(_declaration(group))
    return _struct("Params", lines)


def _family(field: Parameter) -> tuple[str, str | None, str]:
    """What fields on one line have in common."""
    tensor, is_stride, _ = field.name.partition("_stride_")
    return field.ctype, field.input, tensor if is_stride else ""


def context(fields: Fields, scale: Node | None, descale: Node | None) -> str:
    """`struct Context`, what all pairs of a block share, and the function that fills it.

    `scale` is the variant's own, for calls that give none: those pass NaN. `descale` multiplies any scale.
    """
    hoisted = fields.of_level[Level.UNIFORM]
    scales = [(node, None) for node in (scale, descale) if node is not None]
    body = Body(fields, Level.UNIFORM, [*scales, *((node, fields.spans[node]) for node in hoisted)])
    values = f"{{{_CONTEXT_VALUES}, query_offset(params, work), params.scale}};"
    if not scales and not hoisted:
        return _with_context(fields, [Line(f"return {values}")])
    body.add(f"Context ctx = {values}")
    if scale is not None:
        value = body.value(scale)
        body.add("// NaN: the call gives no scale.")
        body.add(f"if (params.scale != params.scale) ctx.scale = {value};")
    if descale is not None:
        if (call_scale := fields.interner.intern(CALL_SCALE)) in hoisted:  # for lines that read `scale`
            body.assign(call_scale, f"ctx.{hoisted[call_scale]}", None)
        elif body.reads(call_scale):
            body.value(call_scale)
        body.add(f"ctx.scale *= {body.value(descale)};")
    for node in _in_order(hoisted):
        if node not in body:
            body.assign(node, f"ctx.{hoisted[node]}", fields.spans[node])
    return _with_context(fields, [*body.lines, Line("return ctx;")])


def _with_context(fields: Fields, lines: Iterable[Line]) -> str:
    """The struct, and the function of these lines that fills it."""
    head = "Context make_context(const Params& params, const AnyWork& work, int h, int kv_h)"
    struct = _struct("Context", [*_CONTEXT, *_hoisted_lines(fields, Level.UNIFORM)])
    return f"{struct}\n\ntemplate <class AnyWork>\n{make_function(head, lines)}"


def row(fields: Fields, packs_heads: bool) -> str:
    """`struct Row`, what all pairs of a q row share, and the function that fills it. It has the head, if rows differ in
    that."""
    names = ("q_idx", "h") if packs_heads else ("q_idx",)
    hoisted = fields.of_level[Level.ROW]
    body = Body(fields, Level.ROW, [(node, fields.spans[node]) for node in hoisted])
    body.add(f"Row row = {{{', '.join(names)}}};")
    for node in _in_order(hoisted):
        body.assign(node, f"row.{hoisted[node]}", fields.spans[node])
    head = f"Row make_row(const Params& params, const Context& ctx, {', '.join(f'int {name}' for name in names)})"
    struct = _struct("Row", _hoisted_lines(fields, Level.ROW, names))
    return struct + "\n\n" + make_function(head, [*body.lines, Line("return row;")])


def rows_alike(names: Iterable[str]) -> str:
    """Whether two rows have the same values in these fields of `Row`; and them, of the row that another lane holds."""
    fields = sorted(names)
    alike = " & ".join(f"(a.{name} == b.{name})" for name in fields)
    moved = [f"other.{name} = __shfl_sync(~0u, row.{name}, lane);" for name in fields]
    lines = ["Row other = row;", *moved, "return other;"]
    return "\n\n".join(
        (
            make_function("bool rows_alike(const Row& a, const Row& b)", [Line(f"return {alike};")]),
            make_function("Row row_of_lane(const Row& row, int lane)", map(Line, lines)),
        )
    )


def row_values(fields: Fields) -> str:
    """Gives a row what takes long to compute or to read, as another lane's row has it."""
    taken = [
        f"row.{name} = {'of_lane(' if node.ctype.endswith('*') else '__shfl_sync(~0u, '}made.{name}, lane);"
        for node, name in fields.of_level[Level.ROW].items()
        if node.cost >= _SHUFFLE_COST
    ]
    return make_function("Row taking_values(Row row, const Row& made, int lane)", map(Line, [*taken, "return row;"]))


def make_function(head: str, lines: Iterable[Line], comments: Iterable[str] = (), *, called: bool = False) -> str:
    """A device function; comments stand above it. `called`: one copy serves all places that call it."""
    above = [f"// {cuda_comment(comment)}" for comment in comments]
    kind = CALLED_FUNCTION if called else FUNCTION
    return "\n".join([*above, _wrapped(f"{kind} {head} {{"), *marked(lines), "}"])


def _wrapped(head: str) -> str:
    """A function's head; its parameters stand on a line of their own where one line would be too long."""
    return head if len(head) <= WIDTH else head.replace("(", "(\n    ", 1)


def _struct(name: str, lines: Iterable[str]) -> str:
    return "\n".join([f"struct {name} {{", *(f"    {line}" for line in lines), "};"])


def _declaration(group: list[Parameter]) -> str:
    """`const bf16 *q, *k, *v;` or `int batch, num_heads;`."""
    ctype = group[0].ctype
    if not ctype.endswith("*"):
        return f"{ctype} {', '.join(field.name for field in group)};"
    return f"{ctype[:-1]} {', '.join('*' + field.name for field in group)};"


def _hoisted_lines(fields: Fields, level: Level, ints: Iterable[str] = ()) -> list[str]:
    """The fields of a level behind some ints; ints that follow at once, without a note, are on the same line."""
    lines: list[str] = []
    alike = list(ints)
    for node, name in fields.of_level[level].items():
        note = fields.interner.label(node).note
        if alike and not lines and node.ctype == "int" and not note:
            alike.append(name)
        else:
            lines.append(f"{node.ctype} {name};" + (f"  // {cuda_comment(note)}" if note else ""))
    return [f"int {', '.join(alike)};", *lines] if alike else lines


def _in_order(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, those that others read before them."""
    wanted, seen = set(nodes), set[Node]()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        for arg in node.args:
            yield from visit(arg)
        if node in wanted:
            yield node

    for node in list(nodes):
        yield from visit(node)
