"""The struct that C lays out and the bytes that the launcher packs are the same."""

from __future__ import annotations

import struct

import pytest

from attncc.codegen.structs import params_struct
from attncc.ir import Axis, Input, Variant
from attncc.kernels.helpers import combine, min_max_table
from attncc.kernels.identifiers import KEYWORDS, identifier
from attncc.kernels.parameters import (
    Layout,
    Parameter,
    input_prepasses,
    packed_axis,
    packed_side,
    struct_format,
)
from attncc.kernels.registry import facts_of
from attncc.runtime.cuda.nvrtc import compile_text
from tests import plans
from tests.random_ir import INPUTS

EVERYTHING = plans.plan(Variant("all", inputs=INPUTS, dropout=plans.DROPOUT.dropout), "bf16", loop="kv_outer")
STRUCTS = {
    "plain": facts_of(plans.plan(plans.FULL, "fp16")).parameters(),
    "everything": facts_of(EVERYTHING).parameters(),
    "min/max tables": facts_of(plans.plan(plans.DOCUMENTS)).parameters(),
    "odd": facts_of(plans.plan(Variant("odd", inputs=(Input("x", "f32", ()),)))).parameters(),
    "combine": combine.parameters("bf16"),
    "min/max table": min_max_table.parameters("i64"),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_layout_is_that_of_c(name: str) -> None:
    fields = STRUCTS[name]
    layout = Layout.of(fields)
    # __INTADDR__ is the front end's own offsetof; NVRTC has no header for the other.
    checks = [f"static_assert(sizeof(Params) == {layout.size});"]
    for field, offset in zip(fields, layout.offsets, strict=True):
        checks.append(f"static_assert(__INTADDR__(&((Params*)0)->{field.name}) == {offset});")
    text = "struct fp16 { unsigned short bits; }; struct bf16 { unsigned short bits; };\n" + params_struct(fields)
    kernel = 'extern "C" __global__ void test(Params params) {}'
    compile_text("\n".join([text, *checks, kernel]), "sm_80")
    assert struct.calcsize(struct_format(fields)) == layout.size


def test_fields_come_by_size_in_the_order_of_the_contract() -> None:
    names = [field.name for field in STRUCTS["plain"]]
    assert names[:8] == ["q", "k", "v", "out", "lse", "partial_out", "row_max", "row_sum"]
    assert names[8:13] == ["cu_seqlens_q", "cu_seqlens_kv", "kv_lens", "block_table", "q_offsets"]
    assert names[13:25] == [f"{x}_stride_{axis}" for x in ("q", "k", "v", "out") for axis in ("batch", "head", "row")]
    sizes_of_call = ["batch", "num_heads", "num_kv_heads", "q_len", "kv_len"]
    assert names[25:] == ["q_offset", "q_offset_form", *sizes_of_call, "q_blocks", "splits", "head_swizzle", "scale"]
    sizes = [field.size for field in STRUCTS["everything"]]
    assert sizes == sorted(sizes, reverse=True)


def test_an_input_brings_its_fields() -> None:
    fields = {field.name: field.ctype for field in STRUCTS["everything"] if field.input in ("grid", "number", "flags")}
    assert fields == {
        "grid": "const long long*", "grid_stride0": "long long", "grid_stride1": "long long",
        "grid_size0": "int", "grid_size1": "int",
        "number": "const long long*", "number_value": "long long",
        "flags": "const unsigned char*", "flags_stride0": "long long", "flags_stride1": "long long",
        "flags_size0": "int", "flags_size1": "int",
    }  # fmt: skip


def test_only_some_kernels_have_seeds_and_min_max_tables() -> None:
    everything = {field.name for field in STRUCTS["everything"]}
    assert {"seed", "seed_pointer"} <= everything
    assert not {"seed", "seed_pointer"} & {field.name for field in STRUCTS["plain"]}
    documents = plans.plan(plans.DOCUMENTS)
    assert "doc__min_stride1" in {field.name for field in facts_of(documents).parameters()}
    assert input_prepasses(plans.plan(plans.DOCUMENTS, skip="never")) == ()


@pytest.mark.parametrize(
    ("tags", "axis", "side"),
    [
        (("batch", "pos"), 1, "kv"),
        (("q", "batch"), 0, "q"),
        (("batch", "head", "kv"), 2, "kv"),
        (("pos",), None, None),
        (("batch", "head"), None, None),
        (("batch", "q", "kv"), None, None),
    ],
)
def test_the_packed_axis_is_the_one_beside_the_batch(tags: tuple[str, ...], axis: int | None, side: str | None) -> None:
    item = Input("x", "f32", tuple(map(Axis, tags)))
    assert (packed_axis(item), packed_side(item)) == (axis, side)


def test_fields_of_inputs_are_unique() -> None:
    """Names that look like fields of another input, or of the kernel."""
    names = ("p", "p_stride0", "p_stride0_", "p_size0", "p_value", "scale_", "kv_len", "int_", "short", "short_")
    inputs = tuple(Input(name, "f32", (Axis(),) if index % 2 else ()) for index, name in enumerate(names))
    fields = [field.name for field in facts_of(plans.plan(Variant("v", inputs=inputs))).parameters()]
    assert len(fields) == len(set(fields))


def test_identifiers_are_one_to_one() -> None:
    names = ["int", "int_", "int__", "x", "x_", "load", "load_", "p_value", "p_value_"]
    found = [identifier(name, frozenset({"load"})) for name in names]
    assert found == ["int_", "int__", "int___", "x", "x_", "load_", "load__", "p_value_", "p_value__"]
    assert not KEYWORDS & set(found)


def test_a_hole_at_the_end_is_padded() -> None:
    fields = (Parameter("a", "float*"), Parameter("b", "int"))
    assert Layout.of(fields) == Layout((0, 8), 16)
    assert struct.pack(struct_format(fields), 1, 2) == bytes([1] + [0] * 7 + [2] + [0] * 7)
