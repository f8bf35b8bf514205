"""Prints wrappers of `wgmma`: instructions with all accumulators of a warpgroup's tile as operands."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from functools import partial

from ..kernels.facts import Facts
from ..kernels.hopper.panels import PANEL_COLUMNS, STEP, STEP_BYTES
from ..kernels.products import Product
from ..schedule.plan import DTYPE_BYTES

_WIDTH = 106  # of lines of operands
# Columns of dK and dV that one product makes: ptxas grants an instruction no more registers than a thread is launched
# with, 128 of four warpgroups.
_WIDEST = 128


def products(facts: Facts) -> dict[str, str]:
    """The products of a kernel as CUDA functions, each by what it is for."""
    return {name: _printed(product, facts.plan.dtype) for name, product in facts.products.items()}


def _printed(product: Product, dtype: str) -> str:
    form = partial(
        wgmma,
        steps=product.steps,
        dtype=dtype,
        a_in_registers=product.a_in_registers,
        transposed_b=product.transposed_b,
    )
    if product.b_rows is None or product.columns <= _WIDEST:
        return form(f"{product.name}_async", product.columns)
    return _in_two(product, product.b_rows, form)


def _in_two(product: Product, b_rows: int, form: Callable[[str, int], str]) -> str:
    """As two products, of the tile's first panels and of the others."""
    name, columns = product.name, product.columns
    rest, tiles, panel_rows = columns - _WIDEST, _WIDEST // 8, _WIDEST // PANEL_COLUMNS * b_rows
    parts = [form(f"{name}_columns_async", width) for width in dict.fromkeys((_WIDEST, rest))]
    both = [
        f"/// The same for 64 x {columns}, in two products.",
        "template <class BSteps>",
        f"__device__ __forceinline__ void {name}_async(float (&sum)[{columns // 8}][4],",
        f"    const unsigned (&a)[{product.steps}][4], unsigned long long b, int accumulate) {{",
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
    count, depth = columns // 2, STEP_BYTES // DTYPE_BYTES[dtype]
    a_type = f"const unsigned (&a)[{steps}][4]" if a_in_registers else "unsigned long long a"
    each_step = _lines([*_steps(count, steps, a_in_registers), '"}"'], " ")
    tiles = columns // 8
    fours = [f"SUM_TILES({tile})" for tile in range(0, tiles - 3, 4)]
    outputs = _lines([*fours, *(f"SUM_TILE({tile})" for tile in range(4 * len(fours), tiles))])
    *inputs, last = _lines(list(_inputs(steps, a_in_registers)))
    return "\n".join(
        [
            f"/// sum = A B, added to what it holds if `accumulate`: 64 x {columns}, over {steps} times {depth}.",
            *_step(columns, dtype, a_in_registers, transposed_b),
            f"template <{'' if a_in_registers else 'class ASteps, '}class BSteps>",
            f"__device__ __forceinline__ void {name}(float (&sum)[{tiles}][4],",
            f"    {a_type}, unsigned long long b, int accumulate) {{",
            "    asm volatile(",
            f'        "{{ .reg .pred first, more; setp.ne.b32 first, %{count}, 0; setp.eq.b32 more, 0, 0;\\n"',
            f'        ".reg .b64 {"b" if a_in_registers else "a, b"};\\n"',
            *(f"        {line}" for line in each_step),
            *(f"        {'  ' if number else ': '}{line}" for number, line in enumerate(outputs)),
            *(f"        {'  ' if number else ': '}{line}" for number, line in enumerate([*inputs, f"{last});"])),
            "}",
            "#undef STEP",
        ]
    )


def _step(columns: int, dtype: str, a_in_registers: bool, transposed_b: bool) -> Iterator[str]:
    """The instructions of a product's step as a macro: of the numbers of its operands, and of the predicate that says
    whether it adds to what the accumulators hold."""
    count, depth = columns // 2, STEP_BYTES // DTYPE_BYTES[dtype]
    kind = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3"}[dtype]
    transpositions = [str(int(transposed_b))] if a_in_registers else ["0", str(int(transposed_b))]
    flags = ", ".join(["1, 1", *(transpositions if depth == STEP else [])])  # 8-bit operands are never transposed
    sums = _lines([f"%{number}" for number in range(count)])
    moves = f'"add.s64 b, %{count + 1}, %" #b_step ";'
    if a_in_registers:
        parameters, a = "b_step, a0, a1, a2, a3, adds", '"}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, b, "'
    else:
        parameters, a = "b_step, a_step, adds", '"}, a, b, "'
        moves += f' add.s64 a, %{count + 2}, %" #a_step ";'
    yield f"#define STEP({parameters}) \\"
    yield f'    {moves}\\n" \\'
    yield f'    "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kind}.{kind} " \\'
    yield from (f'    "{" " if number else "{"}{line}" \\' for number, line in enumerate(sums))
    yield f'    {a} #adds ", {flags};\\n"'


def _steps(count: int, steps: int, a_in_registers: bool) -> Iterator[str]:
    """The steps of a product; operands are numbered as `_inputs` lists them, behind the accumulators."""
    for step in range(steps):
        operands = range(count + 2 + 5 * step, count + 7 + 5 * step) if a_in_registers else ()
        places = operands or range(count + 3 + 2 * step, count + 5 + 2 * step)
        yield f"STEP({', '.join(map(str, places))}, {'more' if step else 'first'})"


def _inputs(steps: int, a_in_registers: bool) -> Iterator[str]:
    """The operands that a product reads: those of all steps, then those of each."""
    yield '"r"(accumulate), "l"(b)' + ("" if a_in_registers else ', "l"(a)')
    yield from (f"{'A_IN_REGISTERS' if a_in_registers else 'A_IN_SMEM'}({step})" for step in range(steps))


def _lines(items: list[str], separator: str = ", ") -> Iterator[str]:
    """The items with commas between them, or another separator, several on a line."""
    for line in textwrap.wrap(separator.join(item.replace(" ", "\u00a0") for item in items), _WIDTH):
        yield line.replace("\u00a0", " ")
