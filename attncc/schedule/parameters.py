"""The launch ABI: the fields of each kernel's `struct Params`, which codegen prints and the launcher packs.

Fields of 8 bytes come first, then those of 4, so the struct has no holes but at its end. Strides count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..analysis.rules import ZoneMap, sorted_name
from ..ir import Axis, Input, Load, walk
from ..problem.inputs import POSITION_TAGS
from .identifiers import identifier
from .plan import KernelPlan

# Scalars by C type, with the format character of the `struct` module.
SCALAR_FORMATS = {"long long": "q", "unsigned long long": "Q", "int": "i", "float": "f"}

EXACT_WORDS = 17  # of 8 bytes, of one exact sum of floats

# The C type of an element, for each dtype of an input and of the build; fp16 and bf16 are structs of leaf code.
ELEMENT_TYPES = {
    "bool": "unsigned char", "i32": "int", "i64": "long long", "f16": "fp16", "bf16": "bf16", "f32": "float",
    "fp16": "fp16", "fp32": "float", "e4m3": "unsigned char",
}  # fmt: skip

# The C type of the field `X_value` of a scalar input: what the caller passed by value.
VALUE_TYPES = {"bool": "int", "i32": "int", "i64": "long long", "f16": "float", "bf16": "float", "f32": "float"}


CLAIM_PIECES = 64  # of a line, each verified for itself; leaf code knows the number too


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of `struct Params`: its name and C type. `input` is the input or zone map that it belongs to."""

    name: str
    ctype: str
    input: str | None = None

    @property
    def format(self) -> str:
        """The character that packs the field with the `struct` module; a pointer is `P`."""
        return "P" if self.ctype.endswith("*") else SCALAR_FORMATS[self.ctype]

    @property
    def size(self) -> int:
        """Bytes."""
        return 4 if self.format in "if" else 8


@dataclass(frozen=True)
class Layout:
    """Where each field of a struct stands: byte offsets as the C compiler lays them out, and the whole size."""

    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, parameters: Iterable[Parameter]) -> Layout:
        offsets, end, alignment = [], 0, 1
        for parameter in parameters:
            start = -(-end // parameter.size) * parameter.size
            offsets.append(start)
            end, alignment = start + parameter.size, max(alignment, parameter.size)
        return cls(tuple(offsets), -(-end // alignment) * alignment)


def struct_format(parameters: Iterable[Parameter]) -> str:
    """The format with which `struct.pack` writes the fields, in order, as the C struct holds them."""
    items = tuple(parameters)
    end = sum(item.size for item in items)
    return "=" + "".join(item.format for item in items).replace("P", "Q") + "x" * (Layout.of(items).size - end)


def parameters(plan: KernelPlan) -> tuple[Parameter, ...]:
    """The fields of `Params` of a plan's kernel, in order."""
    return _ordered(_backward(plan) if plan.is_backward else _forward(plan))


def delta_parameters(dtype: str) -> tuple[Parameter, ...]:
    """The fields of `Params` of the kernel that makes delta.

    `lse` and `dlse` are laid out as the forward pass writes lse; `dlse` may be null. `row_blocks`: blocks of 16 rows of
    a head, in a packed batch one more for each sequence.

    `statistics` has a float2 for each row of each block: lse as an exponent, and delta. What it clears besides, or
    nothing: `sum_words` of the sum of dQ for each block, and `count_words` at `counts`.
    """
    element = ELEMENT_TYPES[dtype]
    pointers = [*_pointers(f"const {element}", "out", "dout"), *_pointers("const float", "lse", "dlse")]
    pointers += [*_pointers("float", "statistics", "dq_sum"), *_pointers("const int", "cu_seqlens_q")]
    sizes = _ints("batch", "num_heads", "q_len", "row_blocks", "sum_words", "count_words")
    return _ordered([*pointers, *_pointers("int", "counts"), *_strides("out"), *_strides("dout"), *sizes])


def dq_sum_parameters(dtype: str) -> tuple[Parameter, ...]:
    """The fields of `Params` of the kernel that rounds the sum of dQ: fp32, 256 for each 16 rows and columns.

    `finished` is null, or counts for each head of k who has added all that is theirs: `adders` in the end.
    """
    pointers = [*_pointers("const float", "dq_sum"), *_pointers(ELEMENT_TYPES[dtype], "dq")]
    pointers += _pointers("const int", "cu_seqlens_q", "finished")
    sizes = _ints("batch", "num_heads", "q_len", "row_blocks", "group", "adders")
    return _ordered([*pointers, *_strides("dq"), *sizes, Parameter("factor", "float")])


def combine_parameters(dtype: str) -> tuple[Parameter, ...]:
    """The fields of `Params` of the combine kernel. A packed batch looks to it like one dense sequence of all rows.

    `row_max` is null where partial results just add up (`normalize sigmoid` or `none`); `lse` may be null.
    """
    pointers = _pointers("const float", "partial_out", "row_max", "row_sum")
    pointers += [Parameter("out", f"{ELEMENT_TYPES[dtype]}*"), Parameter("lse", "float*")]
    return _ordered([*pointers, *_strides("out"), *_ints("batch", "num_heads", "q_len", "splits", "value_head_dim")])


def sink_gradient_parameters(sink_dtype: str) -> tuple[Parameter, ...]:
    """The fields of `Params` of the kernel that makes the gradient of a sink. `group`: query heads that share a logit.

    The gradient's strides count its elements, the sink's those of the sink; the sink may be given as a number.
    """
    pointers = [Parameter("sink", f"const {ELEMENT_TYPES[sink_dtype]}*"), *_pointers("const float", "statistics")]
    pointers += [*_pointers("void", "gradient"), *_pointers("const int", "cu_seqlens_q")]
    names = (f"{of}_stride_{axis}" for of in ("sink", "gradient") for axis in ("batch", "head"))
    strides = [Parameter(name, "long long") for name in names]
    ints = _ints("batch", "num_heads", "q_len", "row_blocks", "group", "exact")
    return _ordered([*pointers, *strides, *ints, Parameter("sink_value", VALUE_TYPES[sink_dtype])])


def exact_sum_parameters() -> tuple[Parameter, ...]:
    """The fields of `Params` of the kernel that rounds `count` exact sums of EXACT_WORDS words to fp32."""
    return (*_pointers("const long long", "sums"), *_pointers("float", "out"), Parameter("count", "long long"))


def transposition_parameters() -> tuple[Parameter, ...]:
    """The fields of `Params` of the kernel that transposes V ahead: of each key head `kv_tiles` tiles.

    `cu_seqlens_kv` is null for a dense batch; `batch` counts its sequences.
    """
    pointers = [*_pointers("unsigned char", "values_ahead"), *_pointers("const int", "cu_seqlens_kv")]
    strides = [Parameter(f"v_stride_{axis}", "long long") for axis in ("batch", "head")]
    return _ordered([*pointers, *strides, *_ints("batch", "num_kv_heads", "kv_len", "kv_tiles")])


def zone_map_parameters(dtype: str) -> tuple[Parameter, ...]:
    """The fields of `Params` of the zone map kernel for an input of this dtype, seen as 4 axes (leading ones 1 long).

    `minimum` and `maximum` are contiguous, [size0, size1, size2, ceil(size3 / block)], or null; so is `holds`, [size0,
    size1, size2, CLAIM_PIECES] of bools. `starts` are the `sequences` + 1 cumulative lengths of a packed axis, or null.
    """
    element = ELEMENT_TYPES[dtype]
    pointers = [Parameter("input", f"const {element}*"), *_pointers(element, "minimum", "maximum")]
    pointers += [*_pointers("unsigned char", "holds"), *_pointers("const int", "starts")]
    strides = [Parameter(f"stride{axis}", "long long") for axis in range(4)]
    return _ordered([*pointers, *strides, *_ints("size0", "size1", "size2", "size3", "block", "claimed", "sequences")])


class Survey(NamedTuple):
    """What the kernel asks of an input, which a pre-pass finds in one launch."""

    input: str
    zone_map: ZoneMap | None
    claim: bool  # whether it is nondecreasing, as declared


def surveys(plan: KernelPlan) -> tuple[Survey, ...]:
    """One for each input of whose zone maps or claim the kernel reads: none if it doesn't skip tiles."""
    if not plan.variant.keeps or plan.skip == "never":
        return ()
    rules = plan.rules.expressions if plan.tests_tiles else plan.rules.bounds
    read = {node.input for node in walk(*rules) if isinstance(node, Load)}
    zone_maps = {zone.input: zone for zone in plan.rules.zone_maps if read & {zone.min_name, zone.max_name}}
    claims = [name for name in plan.rules.claims if sorted_name(name) in read]
    return tuple(Survey(name, zone_maps.get(name), name in claims) for name in dict.fromkeys([*zone_maps, *claims]))


def field_name(name: str) -> str:
    """The field of `Params` that holds the pointer of an input or a table of it; its other fields start with it."""
    base, mark, end = name.rpartition("__")
    if mark and end in ("min", "max", "sorted", "gradient"):
        return f"{identifier(base, FIELD_NAMES)}__{end}"
    return identifier(name, FIELD_NAMES)


def gradient_name(input_name: str) -> str:
    """The name under which a kernel adds to the gradient of a learnable input."""
    return f"{input_name}__gradient"


def learned(plan: KernelPlan) -> tuple[Input, ...]:
    """The learnable inputs whose gradient the plan's kernel adds up: those that score lines read."""
    if not plan.owns_keys:
        return ()
    from ..analysis.gradient import gradient  # forward calls of built kernels needn't load that

    read = {item.input for item in gradient(plan.variant).inputs}
    return tuple(item for item in plan.variant.inputs if item.name in read)


def packed_axis(item: Input) -> int | None:
    """The axis that, in a packed batch, runs over all sequences: the one tagged q, kv or pos beside `batch`.

    None if the input has no batch axis or not exactly one such axis; it can't be packed then.
    """
    axes = [number for number, axis in enumerate(item.axes) if axis.tag in POSITION_TAGS]
    has_batch = any(axis.tag == "batch" for axis in item.axes)
    return axes[0] if has_batch and len(axes) == 1 else None


def packed_side(item: Input) -> str | None:
    """`q` or `kv`: whose starts and lengths rule the packed axis. None if there is none."""
    axis = packed_axis(item)
    if axis is None:
        return None
    return "q" if item.axes[axis].tag == "q" else "kv"


def _ordered(items: Iterable[Parameter]) -> tuple[Parameter, ...]:
    return tuple(sorted(items, key=lambda item: -item.size))  # stable: the order within each size stays


def _pointers(element: str, *names: str) -> list[Parameter]:
    return [Parameter(name, f"{element}*") for name in names]


def _ints(*names: str) -> list[Parameter]:
    return [Parameter(name, "int") for name in names]


def _strides(name: str) -> list[Parameter]:
    return [Parameter(f"{name}_stride_{axis}", "long long") for axis in ("batch", "head", "row")]


def _backward(plan: KernelPlan) -> Iterator[Parameter]:
    """`statistics` is null without a softmax; `dq_sum` is null where dQ isn't wanted of the kernel."""
    element = ELEMENT_TYPES[plan.dtype]
    outputs = ("dk", "dv") if plan.owns_keys else ("dq",)
    yield from _pointers(f"const {element}", "q", "k", "v", "dout")
    yield from _pointers(element, *outputs)
    if plan.owns_keys:
        yield from _pointers("float", "dq_sum")
    yield from _pointers("const float", "statistics")
    if plan.family == "hopper":
        yield from _pointers("int", "next_block", "turns")
        if plan.owns_keys:
            yield from _pointers("int", "finished")
    yield from _call(plan)
    for name in ("q", "k", "v", "dout", *outputs):
        yield from _strides(name)
    yield from _ints("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "row_blocks")
    yield from _ints(*(("kv_blocks",) if plan.owns_keys else ("q_blocks", "splits", "section")))
    for item in learned(plan):
        field = field_name(gradient_name(item.name))
        yield Parameter(field, "void*", item.name)
        for axis in range(len(item.axes)):
            yield Parameter(f"{field}_stride{axis}", "long long", item.name)
    yield from _ints(*["exact"] * bool(learned(plan)))
    if plan.family == "hopper":
        yield from _ints("blocks", "section")
    yield from _of_variant(plan)


def _call(plan: KernelPlan) -> Iterator[Parameter]:
    yield from _pointers("const int", "cu_seqlens_q", "cu_seqlens_kv")
    if plan.variant.dropout is not None:
        yield Parameter("seed_pointer", "const long long*")
        yield Parameter("seed", "unsigned long long")


def _of_variant(plan: KernelPlan) -> Iterator[Parameter]:
    yield Parameter("scale", "float")
    for item in plan.variant.inputs:
        yield from _input(item.name, item)
    for survey in surveys(plan):
        declared = plan.variant.input(survey.input)
        for name in (survey.zone_map.min_name, survey.zone_map.max_name) if survey.zone_map else ():
            yield from _input(name, declared)
        if survey.claim:
            yield from _input(sorted_name(survey.input), claim_table(declared))


def _forward(plan: KernelPlan) -> Iterator[Parameter]:
    element = ELEMENT_TYPES[plan.dtype]
    yield from _pointers(f"const {element}", "q", "k", "v")
    yield Parameter("out", f"{ELEMENT_TYPES[plan.out_dtype]}*")
    yield from _pointers("float", "lse", "partial_out", "row_max", "row_sum")
    if plan.family == "hopper":
        yield from _pointers("unsigned", "next_block")
    yield from _call(plan)
    for name in ("q", "k", "v", "out"):
        yield from _strides(name)
    yield from _ints("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "q_blocks", "splits", "section")
    if plan.family == "hopper":
        yield from _ints("blocks")
    if plan.transposes_values:
        yield from _pointers("unsigned char", "values_ahead")
        yield from _ints("kv_tiles")
    if plan.tile_lists:
        yield from _pointers("uint2", "tile_lists")
        yield from _ints("list_batch", "list_heads", "list_words", "list_parts")
    yield from _of_variant(plan)


def _input(name: str, item: Input) -> Iterator[Parameter]:
    field = field_name(name)
    yield Parameter(field, f"const {ELEMENT_TYPES[item.dtype]}*", name)
    if not item.axes:
        yield Parameter(f"{field}_value", VALUE_TYPES[item.dtype], name)
    for axis in range(len(item.axes)):
        yield Parameter(f"{field}_stride{axis}", "long long", name)
    for axis in range(len(item.axes)):
        yield Parameter(f"{field}_size{axis}", "int", name)


def claim_table(declared: Input) -> Input:
    """The table that tells whether the claim of an input holds: its last axis, of bools, are the pieces of a line."""
    return replace(declared, dtype="bool", axes=(*declared.axes[:-1], Axis(length=CLAIM_PIECES)))


# Every name that a field of ours may have, in any kernel.
FIELD_NAMES = frozenset(
    ["q", "k", "v", "out", "lse", "partial_out", "row_max", "row_sum", "cu_seqlens_q", "cu_seqlens_kv"]
    + ["seed_pointer", "seed", "batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "q_blocks", "splits", "scale"]
    + ["next_block", "blocks", "section", "dout", "dq", "dk", "dv", "dq_sum", "statistics", "row_blocks", "kv_blocks"]
    + ["turns", "finished", "exact", "tile_lists", "list_batch", "list_heads", "list_words", "list_parts"]
    + ["values_ahead", "kv_tiles"]
    + [
        f"{name}_stride_{axis}"
        for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
        for axis in ("batch", "head", "row")
    ]
)
