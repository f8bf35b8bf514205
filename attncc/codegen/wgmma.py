"""Prints wrappers of `wgmma`: instructions with all accumulators of a warpgroup's tile as operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ..schedule.hopper_backward import HopperBackward
from ..schedule.hopper_forward import HopperForward
from ..schedule.plan import DTYPE_BYTES, PANEL_COLUMNS, KernelPlan

_OPERANDS_A_LINE = 12
_STEP_BYTES = 32  # of a row of A that one instruction sums over
_STEP = 16  # elements of 16 bits
# Columns of dK and dV that one product makes: ptxas grants an instruction no more registers than a thread is launched
# with, 128 of four warpgroups.
_WIDEST = 128


@dataclass(frozen=True)
class Products:
    """The products of attention as CUDA functions; empty in families and passes that don't use them."""

    scores: str = ""  # forward multiply_queries_keys_async; backward multiply_keys_queries_async
    held: str = ""  # multiply_held_queries_keys_async: the same with Q in registers, if the plan holds any
    output: str = ""  # multiply_probs_values_async
    dprobs: str = ""  # multiply_values_dout_async
    statistics: str = ""  # multiply_statistics_async: lse or delta, to the same accumulators
    key_gradient: str = ""  # add_key_gradient_async
    value_gradient: str = ""  # add_value_gradient_async
    query_gradient: str = ""  # multiply_query_gradient_async


def products(plan: KernelPlan) -> Products:
    """S = Q K^T takes both operands from shared memory, or what is held of Q from registers; O += P V takes P from
    registers and sums over the rows of V.

    Backward, S^T = K Q^T and dP^T = V dO^T are alike; dV += P^T dO and dK += dS^T Q take P and dS from
    registers; dQ = dS K takes both from shared memory and sums over the rows of K, those of one owner at a time.
    """
    if plan.family != "hopper":
        return Products()
    if plan.is_backward:
        return _backward(plan)
    held, element_bytes = HopperForward(plan).held_query_steps, DTYPE_BYTES[plan.dtype]
    steps, value_steps = (-(-count * element_bytes // _STEP_BYTES) for count in (plan.padded_head_dim, plan.block_kv))
    value_columns, turned = plan.padded_value_head_dim, not plan.transposes_values
    form = partial(wgmma, dtype=plan.dtype)
    return Products(
        scores=form("multiply_queries_keys_async", plan.block_kv, steps - held) if steps > held else "",
        held=form("multiply_held_queries_keys_async", plan.block_kv, held, a_in_registers=True) if held else "",
        output=form(
            "multiply_probs_values_async", value_columns, value_steps, a_in_registers=True, transposed_b=turned
        ),
    )


def _backward(plan: KernelPlan) -> Products:
    hopper = HopperBackward(plan)
    rows, head_dim, value_head_dim = plan.block_q // hopper.parts, plan.padded_head_dim, plan.padded_value_head_dim
    keys = plan.block_kv // hopper.key_shares
    scores = partial(wgmma, columns=rows, dtype=plan.dtype)
    gradient = partial(wgmma, dtype=plan.dtype, transposed_b=True)
    return Products(
        scores=scores("multiply_keys_queries_async", steps=head_dim // _STEP),
        dprobs=scores("multiply_values_dout_async", steps=value_head_dim // _STEP),
        statistics=scores("multiply_statistics_async", steps=1),
        key_gradient=_of_keys(plan, "add_key_gradient", head_dim, rows // _STEP),
        value_gradient=_of_keys(plan, "add_value_gradient", value_head_dim, rows // _STEP),
        query_gradient=gradient("multiply_query_gradient_async", hopper.dq_columns, keys // _STEP),
    )


def _of_keys(plan: KernelPlan, name: str, columns: int, steps: int) -> str:
    """dK or dV, in two products if it has more columns than one makes; their B is a tile of Q or dO."""
    form = partial(wgmma, steps=steps, dtype=plan.dtype, a_in_registers=True, transposed_b=True)
    if columns <= _WIDEST:
        return form(f"{name}_async", columns)
    rest, tiles, panel_rows = columns - _WIDEST, _WIDEST // 8, _WIDEST // PANEL_COLUMNS * plan.block_q
    parts = [form(f"{name}_columns_async", width) for width in dict.fromkeys((_WIDEST, rest))]
    both = [
        f"/// The same for 64 x {columns}, in two products.",
        "template <class BSteps>",
        f"__device__ __forceinline__ void {name}_async(float (&sum)[{columns // 8}][4],",
        f"    const unsigned (&a)[{steps}][4], unsigned long long b, int accumulate) {{",
        f"    const unsigned long long rest = b + ({panel_rows} * 128 >> 4);",
        f"    {name}_columns_async<BSteps>(columns_of<0, {tiles}>(sum), a, b, accumulate);",
        f"    {name}_columns_async<BSteps>(columns_of<{tiles}, {rest // 8}>(sum), a, rest, accumulate);",
        "}",
    ]
    return "\n\n".join([*parts, "\n".join(both)])


def wgmma(
    name: str, columns: int, steps: int, dtype: str, *, a_in_registers: bool = False, transposed_b: bool = False
) -> str:
    """A device function `name(sum, a, b, accumulate)`: sum (+)= A B for 64 rows and this many columns, over 32 bytes
    for each step. All steps are one statement, as NVRTC takes its time over each operand of each statement.

    `columns` is a multiple of 8 from 8 to 256. `a` and `b` are descriptors of shared memory (PTX ISA, asynchronous
    warpgroup matrix), to which the template arguments add what a step is further; or `a` holds for each step the four
    registers of an A fragment. `transposed_b`: what is summed over are B's rows.
    """
    count, depth = columns // 2, _STEP_BYTES // DTYPE_BYTES[dtype]
    a_type = f"const unsigned (&a)[{steps}][4]" if a_in_registers else "unsigned long long a"
    outputs = _lines([f'"+f"(sum[{number // 4}][{number % 4}])' for number in range(count)])
    inputs = _inputs(steps, a_in_registers)
    return "\n".join(
        [
            f"/// sum = A B, added to what it holds if `accumulate`: 64 x {columns}, over {steps} times {depth}.",
            *_sum_operand(count),
            f"template <{'' if a_in_registers else 'class ASteps, '}class BSteps>",
            f"__device__ __forceinline__ void {name}(float (&sum)[{columns // 8}][4],",
            f"    {a_type}, unsigned long long b, int accumulate) {{",
            "    asm volatile(",
            f'        "{{ .reg .pred first, more; setp.ne.b32 first, %{count}, 0; setp.eq.b32 more, 0, 0;\\n"',
            f'        ".reg .b64 {"b" if a_in_registers else "a, b"};\\n"',
            *(f'        "{line}\\n"' for line in _instructions(columns, steps, dtype, a_in_registers, transposed_b)),
            '        "}"',
            *(f"        {'  ' if number else ': '}{line}" for number, line in enumerate(outputs)),
            *(f"        {'  ' if number else ': '}{line}" for number, line in enumerate(inputs)),
            "    );",
            "}",
            "#undef SUM",
        ]
    )


def _instructions(columns: int, steps: int, dtype: str, a_in_registers: bool, transposed_b: bool) -> Iterator[str]:
    """What a product's steps are; operands are numbered as `_inputs` lists them, behind the accumulators."""
    count, depth = columns // 2, _STEP_BYTES // DTYPE_BYTES[dtype]
    kind = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3"}[dtype]
    transpositions = [str(int(transposed_b))] if a_in_registers else ["0", str(int(transposed_b))]
    flags = ["1, 1", *(transpositions if depth == _STEP else [])]  # 8-bit operands are never transposed
    operation = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kind}.{kind}"
    for step in range(steps):
        first = count + (2 + 5 * step if a_in_registers else 3 + 2 * step)
        yield f"add.s64 b, %{count + 1}, %{first};"
        if a_in_registers:
            a = f"{{{', '.join(f'%{first + 1 + word}' for word in range(4))}}}"
        else:
            a = "a"
            yield f"add.s64 a, %{count + 2}, %{first + 1};"
        yield f'{operation} " SUM ", {", ".join([a, "b", "more" if step else "first", *flags])};'


def _inputs(steps: int, a_in_registers: bool) -> Iterator[str]:
    """The operands that a product reads, with commas between the lines."""
    lines = ['"r"(accumulate), "l"(b)' + ("" if a_in_registers else ', "l"(a)')]
    for step in range(steps):
        a = [f'"r"(a[{step}][{word}])' for word in range(4)] if a_in_registers else [f'"n"(ASteps::at({step}))']
        lines.append(", ".join([f'"n"(BSteps::at({step}))', *a]))
    yield from (f"{line}," for line in lines[:-1])
    yield lines[-1]


def _sum_operand(count: int) -> Iterator[str]:
    """The accumulators as an operand, which all steps share: a macro of several lines."""
    lines = [f'    "{line}"' for line in _lines([f"%{number}" for number in range(count)])]
    yield from (f"{line} \\" for line in ["#define SUM", '    "{"', *lines])
    yield '    "}"'


def _lines(items: list[str]) -> Iterator[str]:
    """The items with commas between them, several on a line."""
    step = _OPERANDS_A_LINE if len(items[0]) < 8 else _OPERANDS_A_LINE // 3
    for start in range(0, len(items), step):
        comma = "," if start + step < len(items) else ""
        yield ", ".join(items[start : start + step]) + comma
