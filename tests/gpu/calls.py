"""Makes the arrays of a case on the GPU, calls its kernel, and tells the oracle what the call was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import attncc
from attncc import synthetic
from attncc.ir import Variant
from attncc.problem import Problem
from tests.gpu.cases import Case
from tests.gpu.torch_oracle import Arguments

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn}
OUT_DTYPES = DTYPES | {"e4m3": torch.bfloat16}
SEED = 1234567


def call(
    case: Case, kernel: Callable[..., Any], target: str, descales: Mapping[str, torch.Tensor] | None = None
) -> tuple[torch.Tensor, torch.Tensor | None, Arguments]:
    """out in layout bhsd, lse (None unless softmax) and what the oracle needs but descales. out is given to the call
    full of NaN."""
    problem, arrays = case.problem, qkv(case)
    variant = attncc.parse(case.source(case.target(target))).variant
    inputs, softmax = inputs_of(variant, problem), variant.normalize == "softmax"
    out = torch.full(problem.out_shape, math.nan, dtype=OUT_DTYPES[case.dtype], device="cuda")
    keywords = {**inputs, **others_of(variant, problem), **(descales or {})}
    result = kernel(*arrays, out=out, return_lse=softmax, **keywords)
    lse = result[1] if softmax else None
    arguments = Arguments(variant, problem, *(heads_first(problem, item) for item in arrays), inputs, seed=SEED)
    return heads_first(problem, out), lse, arguments


def inputs_of(variant: Variant, problem: Problem) -> dict[str, torch.Tensor]:
    drawn = synthetic.inputs(variant, problem, np.random.default_rng(problem.q_len))
    return {name: torch.from_numpy(array).cuda() for name, array in drawn.items()}


def others_of(variant: Variant, problem: Problem) -> dict[str, Any]:
    """What calls need besides q, k, v and inputs."""
    found: dict[str, Any] = {"layout": problem.layout}
    if variant.dropout is not None:
        found["seed"] = SEED
    if problem.packed:
        found["cu_seqlens_q"] = torch.tensor(problem.q_starts, dtype=torch.int32, device="cuda")
        found["cu_seqlens_kv"] = torch.tensor(problem.kv_starts, dtype=torch.int32, device="cuda")
    return found


def qkv(case: Case) -> list[torch.Tensor]:
    """Normal q, k and v in the case's layout, laid out in memory as it says."""
    problem, generator = case.problem, torch.Generator("cuda").manual_seed(1)
    batch = 1 if problem.packed else problem.batch

    def laid_out(heads: int, length: int, dim: int, memory: str) -> torch.Tensor:
        shape = {
            "contiguous": (batch, heads, length, dim),
            "strided": (batch, length, heads + 1, dim + 8),  # cut out of an array with more heads and wider rows
            "broadcast": (1, 1, length, dim),
        }[memory]
        array = torch.randn(shape, generator=generator, device="cuda").to(DTYPES[case.dtype])
        if memory == "strided":
            array = array[:, :, :heads, :dim].transpose(1, 2)
        array = heads_first(problem, array.expand(batch, heads, length, dim))
        array = array.contiguous() if memory == "contiguous" else array
        return array[0] if problem.packed else array

    of_q = "contiguous" if case.memory == "broadcast" else case.memory
    return [
        laid_out(problem.num_heads, problem.q_len, problem.head_dim, of_q),
        laid_out(problem.num_kv_heads, problem.kv_len, problem.head_dim, case.memory),
        laid_out(problem.num_kv_heads, problem.kv_len, problem.value_head_dim, case.memory),
    ]


def heads_first(problem: Problem, array: torch.Tensor) -> torch.Tensor:
    """From the problem's layout to bhsd, or from bhsd to it."""
    return array if problem.layout == "bhsd" else array.transpose(-3, -2)
