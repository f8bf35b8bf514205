"""The launch ABI: the fields of each kernel's `struct Params`, which codegen prints and the launcher packs.

Fields of 8 bytes come first, then those of 4, so the struct has no holes but at its end. Strides count elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple

from ..analysis.rules import MinMaxTable, sorted_name
from ..ir import Axis, Input, Variant
from ..problem.call_arguments import ARGUMENTS
from ..problem.inputs import POSITION_TAGS
from ..schedule.plan import KernelPlan
from .identifiers import identifier

# Scalars by C type, with the format character of the `struct` module.
SCALAR_FORMATS = {"long long": "q", "unsigned long long": "Q", "int": "i", "unsigned": "I", "float": "f"}

# The C type of an element, for each dtype of an input and of the build; fp16 and bf16 are structs of leaf code.
ELEMENT_TYPES = {
    "bool": "unsigned char", "i32": "int", "i64": "long long", "f16": "fp16", "bf16": "bf16", "f32": "float",
    "fp16": "fp16", "fp32": "float", "e4m3": "unsigned char", "int8": "signed char",
}  # fmt: skip

# The C type of the field `X_value` of a scalar input: what the caller passed by value.
VALUE_TYPES = {"bool": "int", "i32": "int", "i64": "long long", "f16": "float", "bf16": "float", "f32": "float"}


HINT_PIECES = 64  # of a line, each verified for itself; leaf code knows the number too


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of `struct Params`: its name and C type. `input` is the input or min/max table that it belongs to."""

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
        return 4 if self.format in "iIf" else 8


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


def struct_digest(parameters: Iterable[Parameter]) -> str:
    """What tells `struct Params` of one kernel from that of another: the SHA-256 of its fields."""
    return sha256("\n".join(f"{item.ctype} {item.name}" for item in parameters).encode("ascii")).hexdigest()


class InputPrepass(NamedTuple):
    """What the kernel asks of an input, which a pre-pass finds in one launch."""

    input: str
    min_max_table: MinMaxTable | None
    sorted_hint: bool  # whether it is nondecreasing, as declared


def input_prepasses(plan: KernelPlan) -> tuple[InputPrepass, ...]:
    """One for each input of whose min/max tables or sorted hint the kernel reads: none if it doesn't skip tiles."""
    if not plan.variant.keeps or plan.skip == "never":
        return ()
    read = plan.rules.bounds_read
    if plan.tests_tiles:
        read |= plan.rules.test_reads
    min_max_tables = {
        table.input: table for table in plan.rules.min_max_tables if read & {table.min_name, table.max_name}
    }
    hints = [name for name in plan.rules.sorted_hints if sorted_name(name) in read]
    return tuple(
        InputPrepass(name, min_max_tables.get(name), name in hints) for name in dict.fromkeys([*min_max_tables, *hints])
    )


def field_name(name: str) -> str:
    """The field of `Params` that holds the pointer of an input or a table of it; its other fields start with it."""
    base, mark, end = name.rpartition("__")
    if mark and end in ("min", "max", "sorted", "gradient"):
        return f"{identifier(base, FIELD_NAMES)}__{end}"
    return identifier(name, FIELD_NAMES)


def gradient_name(input_name: str) -> str:
    """The name under which a kernel adds to the gradient of a learnable input."""
    return f"{input_name}__gradient"


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


def ordered(items: Iterable[Parameter]) -> tuple[Parameter, ...]:
    return tuple(sorted(items, key=lambda item: -item.size))  # stable: the order within each size stays


def pointers(element: str, *names: str) -> list[Parameter]:
    return [Parameter(name, f"{element}*") for name in names]


def operand_pointers(plan: KernelPlan) -> list[Parameter]:
    """q, k and v of a forward pass."""
    own, cache = (f"const {ELEMENT_TYPES[name]}" for name in (plan.dtype, plan.kv_dtype or plan.dtype))
    return [*pointers(own, "q"), *pointers(cache, "k", "v")]


def ints(*names: str) -> list[Parameter]:
    return [Parameter(name, "int") for name in names]


def strides(name: str) -> list[Parameter]:
    return [Parameter(f"{name}_stride_{axis}", "long long") for axis in ("batch", "head", "row")]


def page_parameters() -> list[Parameter]:
    """Where the rows of a pool of pages lie: `page_fields` and `attncc.append` set them."""
    return [Parameter("page_magic", "unsigned long long"), *ints("page_rows", "page_shift", "pages", "max_blocks")]


def call_fields(variant: Variant) -> Iterator[Parameter]:
    """The fields of arguments that all calls have; `scale` stands behind them."""
    for argument in ARGUMENTS.values():
        if argument.concerns(variant):
            yield from (Parameter(name, ctype) for ctype, name in argument.fields)
    yield Parameter("q_offset_form", "int")


def variant_fields(plan: KernelPlan) -> Iterator[Parameter]:
    yield Parameter("scale", "float")
    for item in plan.variant.inputs:
        yield from _input(item.name, item)
    for prepass in input_prepasses(plan):
        declared = plan.variant.input(prepass.input)
        for name in (prepass.min_max_table.min_name, prepass.min_max_table.max_name) if prepass.min_max_table else ():
            yield from _input(name, declared)
        if prepass.sorted_hint:
            yield from _input(sorted_name(prepass.input), hint_table(declared))


def _input(name: str, item: Input) -> Iterator[Parameter]:
    field = field_name(name)
    yield Parameter(field, f"const {ELEMENT_TYPES[item.dtype]}*", name)
    if not item.axes:
        yield Parameter(f"{field}_value", VALUE_TYPES[item.dtype], name)
    for axis in range(len(item.axes)):
        yield Parameter(f"{field}_stride{axis}", "long long", name)
    for axis in range(len(item.axes)):
        yield Parameter(f"{field}_size{axis}", "int", name)


def hint_table(declared: Input) -> Input:
    """The table that tells whether a sorted hint holds: its last axis, of bools, has the pieces of a line."""
    return replace(declared, dtype="bool", axes=(*declared.axes[:-1], Axis(length=HINT_PIECES)))


# Every name that a field of ours may have, in any kernel.
FIELD_NAMES = frozenset(
    ["q", "k", "v", "out", "lse", "partial_out", "row_max", "row_sum"]
    + [name for argument in ARGUMENTS.values() for _, name in argument.fields]
    + ["batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "q_blocks", "splits", "scale"]
    + [
        "next_block",
        "blocks",
        "head_swizzle",
        "dout",
        "dq",
        "dk",
        "dv",
        "dq_sum",
        "statistics",
        "row_blocks",
        "kv_blocks",
    ]
    + ["dq_semaphore", "finished", "dq_stored", "exact"]
    + ["tile_lists", "list_batch", "list_heads", "list_words", "list_parts"]
    + ["values_ahead", "kv_tiles", "q_offset_form"]
    + ["page_magic", "page_rows", "page_shift", "pages", "max_blocks", "box_rows"]
    + ["k_scale", "v_scale", "scales_of_pages"]
    + [f"{name}_scale_stride_{step}" for name in ("k", "v") for step in ("row", "head")]
    + ["shared_prefix", "prefix_keys", "prefix_parts", "prefix_rows"]
    + ["arrivals", "slot_rows", "most_parts", "few_units", "fewer_runs", "teams", "run_slack", "group", "group_inverse"]
    + [
        f"{name}_stride_{axis}"
        for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
        for axis in ("batch", "head", "row")
    ]
)
