"""Prints wrappers of `wgmma`: an instruction with all accumulators of a warpgroup's tile as operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..schedule.hopper_backward import HopperBackward
from ..schedule.plan import DTYPE_BYTES, KernelPlan

_OPERANDS_A_LINE = 12


@dataclass(frozen=True)
class Products:
    """The products of attention as CUDA functions; empty in families and passes that don't use them."""

    scores: str = ""  # forward multiply_queries_keys_async; backward multiply_scores_async
    held: str = ""  # multiply_held_queries_keys_async: the same with Q in registers, if the plan holds any
    output: str = ""  # multiply_probs_values_async
    key_gradient: str = ""  # add_key_gradient_async
    value_gradient: str = ""  # add_value_gradient_async
    query_gradient: str = ""  # multiply_query_gradient_async


def products(plan: KernelPlan) -> Products:
    """S = Q K^T takes both operands from shared memory, or what is held of Q from registers; O += P V takes P from
    registers and sums over the rows of V.

    Backward, S^T = K Q^T and dP^T = V dO^T are one function; dV += P^T dO and dK += dS^T Q take P and dS from
    registers; dQ = dS K takes both from shared memory and sums over the rows of K.
    """
    if plan.family != "hopper":
        return Products()
    if plan.is_backward:
        return _backward(plan)
    columns, name = plan.padded_value_head_dim, "multiply_held_queries_keys_async"
    return Products(
        wgmma("multiply_queries_keys_async", plan.block_kv, plan.dtype),
        wgmma(name, plan.block_kv, plan.dtype, a_in_registers=True) if plan.held_query_steps else "",
        wgmma(
            "multiply_probs_values_async",
            columns,
            plan.dtype,
            a_in_registers=True,
            transposed_b=not plan.transposes_values,
        ),
    )


def _backward(plan: KernelPlan) -> Products:
    shares = HopperBackward(plan)

    def gradient(name: str, columns: int, *, a_in_registers: bool = True) -> str:
        return wgmma(name, columns, plan.dtype, a_in_registers=a_in_registers, transposed_b=True)

    return Products(
        scores=wgmma("multiply_scores_async", plan.block_q // shares.parts, plan.dtype),
        key_gradient=gradient("add_key_gradient_async", plan.padded_head_dim),
        value_gradient=gradient("add_value_gradient_async", plan.padded_value_head_dim),
        query_gradient=gradient("multiply_query_gradient_async", shares.dq_columns, a_in_registers=False),
    )


def wgmma(name: str, columns: int, dtype: str, *, a_in_registers: bool = False, transposed_b: bool = False) -> str:
    """A device function `name(sum, a, b, accumulate)`: sum (+)= A B for 64 rows and this many columns, over 32 bytes.

    `columns` is a multiple of 8 from 8 to 256. `a` and `b` are descriptors of shared memory (PTX ISA, asynchronous
    warpgroup matrix), or `a` the four registers of an A fragment. `transposed_b`: what is summed over are B's rows.
    """
    count = columns // 2
    kind = {"fp16": "f16", "bf16": "bf16", "e4m3": "e4m3"}[dtype]
    depth = 32 // DTYPE_BYTES[dtype]
    a_numbers = [f"%{count + number}" for number in range(4 if a_in_registers else 1)]
    a = f"{{{', '.join(a_numbers)}}}" if a_in_registers else a_numbers[0]
    b, accumulate = (f"%{count + len(a_numbers) + number}" for number in range(2))
    transpositions = [str(int(transposed_b))] if a_in_registers else ["0", str(int(transposed_b))]
    flags = ", ".join(["p, 1, 1", *(transpositions if depth == 16 else [])])  # 8-bit operands are never transposed
    inputs = [f'"r"(a[{number}])' for number in range(4)] if a_in_registers else ['"l"(a)']
    inputs += ['"l"(b)', '"r"(accumulate)']
    outputs = (f'"+f"(sum[{number // 4}][{number % 4}])' for number in range(count))
    a_type = "const unsigned (&a)[4]" if a_in_registers else "unsigned long long a"
    return "\n".join(
        [
            f"/// sum = A B, added to what it holds if `accumulate`: 64 x {columns}, {depth} summed over.",
            f"__device__ __forceinline__ void {name}(float (&sum)[{columns // 8}][4], {a_type},",
            "    unsigned long long b, int accumulate) {",
            "    asm volatile(",
            f'        "{{ .reg .pred p; setp.ne.b32 p, {accumulate}, 0;\\n"',
            f'        "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kind}.{kind} {{"',
            *(f'        "{line}"' for line in _lines([f"%{number}" for number in range(count)])),
            f'        "}}, {a}, {b}, {flags}; }}"',
            *(f"        {': ' if number == 0 else '  '}{line}" for number, line in enumerate(_lines(list(outputs)))),
            f"        : {', '.join(inputs)});",
            "}",
        ]
    )


def _lines(items: list[str]) -> Iterator[str]:
    """The items with commas between them, several on a line."""
    step = _OPERANDS_A_LINE if len(items[0]) < 8 else _OPERANDS_A_LINE // 3
    for start in range(0, len(items), step):
        comma = "," if start + step < len(items) else ""
        yield ", ".join(items[start : start + step]) + comma
