"""The derivative of the score lines, as CUDA: how the final score moves, and what that adds to learnable inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..analysis.mask.same_entry import same_entry
from ..analysis.score.gradient import InputGradient, final_score, gradient
from ..ir import Expr, Symbol, show, walk
from ..kernels.parameters import field_name, gradient_name
from ..kernels.registry import backward_facts
from ..schedule.plan import KernelPlan
from .expressions import Lowering
from .functions import Body, Fields
from .line_marks import Line
from .loads import Address, place
from .nodes import Level
from .structs import make_function

PAIR = "const Params& params, const Context& ctx, const Row& row, int kv_idx"
_TILE = "const Params& params, const Context& ctx, int q_first, int q_last, int kv_first, int kv_last"
_ADD = "[&](long long place, float x) {{ add_learned(params.exact, params.{}, place, x); }}"
_OF_PAIRS = ("PairSum", "PairRuns")
_ENDS = "params, ctx, q_first, q_last, kv_first, kv_last"


@dataclass(frozen=True)
class Read:
    """A read of a learnable input by the score lines, whose gradient a kernel adds up."""

    number: int
    gradient: InputGradient
    twice: bool  # whether the kernel can meet pairs a second time

    @property
    def value(self) -> str:
        """The field of `ScoreGradient`."""
        return f"learned_{self.number}"

    @property
    def field(self) -> str:
        """Of `Params`: where its sums are."""
        return field_name(gradient_name(self.gradient.input))

    @property
    def sum(self) -> str:
        """The leaf struct that adds up: by what its place depends on."""
        read = {node.name for node in walk(*self.gradient.indices) if isinstance(node, Symbol)}
        rows, keys = bool(read & {"q_idx", "q_pos"}), "kv_idx" in read
        if (rows and keys) or "score" in read:
            return "PairRuns" if self.twice else "PairSum"
        return "RowSum" if rows else "KeySum" if keys else "HeadSum"


def reads(plan: KernelPlan) -> tuple[Read, ...]:
    """Those whose gradient the plan's kernel adds up."""
    found = gradient(plan.variant).inputs if plan.owns_keys else ()
    twice = backward_facts(plan).adds_pairs_twice
    return tuple(Read(number, item, twice) for number, item in enumerate(found))


def score_gradient(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`struct ScoreGradient`, and where there are score lines `score_gradient(params, ctx, row, kv_idx, score)`."""
    values = ["score", "slope", *(read.value for read in reads(plan))]
    struct = (
        "// The score after all score lines, and its derivatives: by the score before them, by learnable inputs.\n"
        f"struct ScoreGradient {{\n    float {', '.join(values)};\n}};\n"
    )
    if not plan.variant.scores:
        return struct
    found = gradient(plan.variant)
    roots: list[Expr] = [final_score(plan.variant), found.score, *(read.gradient.value for read in reads(plan))]
    nodes = [fields.interner.intern(lowering.lower(root)) for root in roots]
    body = Body(fields, Level.ELEMENT, [(node, None) for node in nodes])
    texts = [body.value(node) for node in nodes]
    body.add(f"return {{{', '.join(texts)}}};")
    sources = [item.span.one_line for item in plan.variant.scores if item.span is not None]
    return struct + "\n" + make_function(f"ScoreGradient score_gradient({PAIR}, float score)", body.lines, sources)


def learned(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`struct Learned`, which adds up the gradients of learnable inputs; empty where the kernel has none."""
    if not reads(plan):
        return ""
    functions = [_place(plan, read, lowering, fields) for read in reads(plan)]
    functions += [_same(plan, read, lowering, fields) for read in reads(plan)]
    return "\n\n".join([*functions, _struct(reads(plan))])


def _place(plan: KernelPlan, read: Read, lowering: Lowering, fields: Fields) -> str:
    """`place_learned_N(params, ctx, row, kv_idx)`: the number of the entry that a pair reads; -1 if it reads none."""
    item, name = plan.variant.input(read.gradient.input), gradient_name(read.gradient.input)
    indices = tuple(lowering.lower(index) for index in read.gradient.indices)
    found = place(Address(name, item, read.gradient.indices, indices), lowering.size)
    offset, guard = (node and fields.interner.intern(node) for node in found)
    assert offset is not None
    roots = [(offset, None), *([(guard, None)] if guard else [])]
    body = Body(fields, Level.ELEMENT, roots)
    condition = f"{body.value(guard)} ? " if guard else ""
    otherwise = " : -1" if guard else ""
    body.add(f"return {condition}{body.value(offset)}{otherwise};")
    entry = f"{item.name}[{', '.join(map(show, read.gradient.indices))}]" if indices else item.name
    return make_function(f"long long place_{read.value}({PAIR})", body.lines, [f"gradient of {entry}"])


def _same(plan: KernelPlan, read: Read, lowering: Lowering, fields: Fields) -> str:
    """`same_learned_N(params, ctx, q_first, q_last, kv_first, kv_last)`: whether a tile is known to have one entry."""
    rule = None
    if read.sum in _OF_PAIRS and not any(node == Symbol(node.type, "score") for node in walk(*read.gradient.indices)):
        blocks = plan.block_q, plan.block_kv
        if plan.grid_2d is not None:  # a 2-D tile lies within the range from its first position to its last
            blocks = plan.grid_2d.bands(*blocks)
        rule = same_entry(plan.variant, *blocks, read.gradient.indices)
    lines = [Line("return false;")]
    if rule is not None:
        node = fields.interner.intern(lowering.lower(rule))
        body = Body(fields, Level.ELEMENT, [(node, None)])
        body.add(f"return {body.value(node)};")
        lines = body.lines
    return make_function(f"bool same_{read.value}({_TILE})", lines)


def _struct(found: tuple[Read, ...]) -> str:
    """One sum for each read, and what the kernel calls for all of them."""
    return "\n".join(
        [
            "// What the pairs of a head add to the gradients of learnable inputs.",
            "template <int M_TILES>",
            "struct Learned {",
            *(f"    {read.sum}<M_TILES> sum_{read.number};" for read in found),
            "",
            f"    __device__ __forceinline__ void begin_tile({_TILE}) {{",
            *(f"        sum_{read.number}.begin_tile(same_{read.value}({_ENDS}));" for read in found),
            "    }",
            *_method("pair", "int key, const ScoreGradient& found, float dscore, ", found, _pair_arguments),
            "",
            "    __device__ __forceinline__ void column(int n, int side) {",
            *(f"        sum_{read.number}.column(n, side);" for read in found),
            "    }",
            *_method("row", "int side, ", found, lambda read: "side, "),
            *_method("tile", "", found, lambda read: ""),
            *_method("head", "int key, ", found, lambda read: "key, "),
            *_runs([read for read in found if read.twice]),
            "};",
        ]
    )


def _pair_arguments(read: Read) -> str:
    return f"key, {_value(read)}, "


def _value(read: Read) -> str:
    return f"dscore == 0 ? 0.0f : dscore * found.{read.value}"


def _method(name: str, more: str, found: tuple[Read, ...], arguments: Callable[[Read], str]) -> Iterator[str]:
    yield ""
    yield f"    __device__ __forceinline__ void {name}({more}{PAIR}) {{"
    for read in found:
        yield f"        sum_{read.number}.{name}({arguments(read)}[&](float x) {{"
        yield f"            const long long place = place_{read.value}(params, ctx, row, kv_idx);"
        yield f"            if (place >= 0) add_learned(params.exact, params.{read.field}, place, x);"
        yield "        });"
    yield "    }"


def _runs(found: list[Read]) -> Iterator[str]:
    """What kernels that meet pairs a second time call for those that aren't known to have one place."""
    of_pairs = [read for read in found if read.sum in _OF_PAIRS]
    if not found:
        return
    test = " & ".join(f"sum_{read.number}.same" for read in of_pairs) or "true"
    yield from ["", "    __device__ __forceinline__ bool in_one_place() const {", f"        return {test};", "    }"]
    yield from ["", "    __device__ __forceinline__ void begin_apart() {"]
    yield from (f"        sum_{read.number}.begin_apart();" for read in of_pairs)
    yield from ["    }", ""]
    yield f"    __device__ __forceinline__ void apart(const ScoreGradient& found, float dscore, {PAIR}) {{"
    for read in of_pairs:
        place = f"place_{read.value}(params, ctx, row, kv_idx)"
        yield f"        sum_{read.number}.apart({place}, {_value(read)}, {_ADD.format(read.field)});"
    yield from ["    }", "", "    __device__ __forceinline__ void end_apart(const Params& params) {"]
    yield from (f"        sum_{read.number}.end_apart({_ADD.format(read.field)});" for read in of_pairs)
    yield "    }"
