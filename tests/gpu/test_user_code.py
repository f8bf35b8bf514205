"""Printed functions of variants against `evaluate`, on a GPU: the same bits for ints and bools, few ulp for floats."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncc.analysis.rules import TileRules
from attncc.evaluate import Environment, evaluate
from attncc.ir import Input, Keep, Load, Score, Type, Variant, apply, const, symbol
from attncc.problem.facts import INPUT_DTYPES
from attncc.schedule.parameters import parameters, struct_format
from attncc.schedule.plan import KernelPlan
from attncc.statements import keep_condition
from tests.random_ir import INPUTS, random_variant

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN = 2, 4, 2, 21, 33
SEEDS = range(120)

SCORE_CALL = "score_mod(params, context, row, kv_idx, params.q[(long long)blockIdx.x * params.kv_len + kv_idx])"

KERNEL = """
extern "C" __global__ void user_code_test(const __grid_constant__ Params params) {
    const int q_idx = blockIdx.x % params.q_len, pair = blockIdx.x / params.q_len;
    const int h = pair % params.num_heads, kv_h = h / (params.num_heads / params.num_kv_heads);
    const Context context =
        make_context(params, pair / params.num_heads, h, kv_h, params.q_len, params.kv_len, 0, 0);
    const Row row = make_row(params, context, q_idx);
    for (int kv_idx = threadIdx.x; kv_idx < params.kv_len; kv_idx += blockDim.x)
        params.partial_out[(long long)blockIdx.x * params.kv_len + kv_idx] = CALL;
}
"""


def plan_of(variant: Variant) -> KernelPlan:
    """A plan whose rules say nothing: skipping isn't what is tested."""
    zero, length, yes, no = const(0), symbol("kv_len"), const(True), const(False)
    rules = TileRules(yes, no, zero, length, zero, zero, (), True, False, False, ())
    return KernelPlan(variant, rules, "forward", "sm_80", "fp32", 64, 64, "q_outer", 64, 64, 4, 1, 1, "never")


def run(variant: Variant, call: str, arrays: dict[str, np.ndarray], scores: np.ndarray | None = None) -> np.ndarray:
    """The results of `call` for all pairs, float32 [batch, heads, q_len, kv_len]."""
    from attncc.codegen.render import assemble
    from attncc.codegen.user_code import user_code
    from attncc.runtime.driver import driver
    from attncc.runtime.nvrtc import library

    plan = plan_of(variant)
    code = user_code(plan)
    parts = ['#include "attncc/element.cuh"', code.includes, code.params_struct, code.functions]
    text = assemble("\n".join([*parts, KERNEL.replace("CALL", call)]), "user_code_test")
    device = driver().device(torch.cuda.current_device())
    image = library().compile(text, f"sm_{device.capability}").image
    function = driver().load(device, image, "user_code_test", 32, 0)
    out = torch.full((BATCH, HEADS, Q_LEN, KV_LEN), -7.0, device="cuda")
    kept = [out, *([] if scores is None else [torch.from_numpy(scores).cuda()])]
    values = {
        "batch": BATCH, "num_heads": HEADS, "num_kv_heads": KV_HEADS, "q_len": Q_LEN, "kv_len": KV_LEN, "scale": 0.25,
        "partial_out": out.data_ptr(), "q": 0 if scores is None else kept[1].data_ptr(),
    }  # fmt: skip
    for item in variant.inputs:
        kept.append(bind(item, arrays[item.name], values))
    fields = parameters(plan)
    packed = struct.pack(struct_format(fields), *(values.get(field.name, 0) for field in fields))
    driver().launch(function, BATCH * HEADS * Q_LEN, torch.cuda.current_stream().cuda_stream, packed)
    torch.cuda.synchronize()
    return out.cpu().numpy()


def bind(item: Input, array: np.ndarray, values: dict[str, Any]) -> Any:
    """Puts an input on the device, scalars by value, and its fields into `values`."""
    if not item.axes:
        values[f"{item.name}_value"] = array.item()
        return None
    tensor = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8)).cuda()
    values[item.name] = tensor.data_ptr()
    for axis, size in enumerate(array.shape):
        values[f"{item.name}_size{axis}"] = size
        values[f"{item.name}_stride{axis}"] = array.strides[axis] // array.itemsize
    return tensor


def random_arrays(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    lengths = {"batch": BATCH, "head": HEADS, "kv_head": KV_HEADS, "q": Q_LEN, "kv": KV_LEN, "pos": KV_LEN + 5}

    def array(item: Input) -> np.ndarray:
        shape = tuple(axis.length or lengths.get(axis.tag or "", 19) for axis in item.axes)
        if item.type is Type.FLOAT:
            dtype = ml_dtypes.bfloat16 if item.dtype == "bf16" else INPUT_DTYPES[item.dtype]
            return generator.normal(size=shape).astype(dtype)
        if item.type is Type.BOOL:
            return generator.random(shape) < 0.5
        wide = generator.integers(-(2**63), 2**63 - 1, shape) if item.dtype == "i64" else 0
        return np.asarray(np.where(generator.random(shape) < 0.8, generator.integers(-5, 40, shape), wide)).astype(
            INPUT_DTYPES[item.dtype]
        )

    return {item.name: array(item) for item in INPUTS}


def environment(variant: Variant, arrays: dict[str, np.ndarray], dtype: Any, **symbols: Any) -> Environment:
    b, h, q_idx, kv_idx = np.ogrid[:BATCH, :HEADS, :Q_LEN, :KV_LEN]
    known = {
        "b": b, "h": h, "kv_h": h // (HEADS // KV_HEADS), "q_idx": q_idx, "kv_idx": kv_idx, "q_len": Q_LEN,
        "kv_len": KV_LEN, "q_pos": q_idx + KV_LEN - Q_LEN, "num_heads": HEADS, "num_kv_heads": KV_HEADS,
        "head_dim": 64, "scale": 0.25,
    }  # fmt: skip
    return Environment({**known, **symbols}, arrays, variant.lets, dtype)


@pytest.mark.parametrize("seed", SEEDS)
def test_predicates_agree_bit_for_bit(seed: int) -> None:
    variant, arrays = random_variant(seed), random_arrays(seed)
    found = run(variant, "keep(params, context, row, kv_idx) ? 1.0f : 0.0f", arrays)
    condition = keep_condition(variant)
    assert condition is not None
    wanted = np.broadcast_to(evaluate(condition, environment(variant, arrays, np.float32)), found.shape)
    np.testing.assert_array_equal(found, wanted.astype(np.float32))


FUNCTIONS = {
    "exp": (-80, 80), "exp2": (-120, 120), "log": (1e-3, 50), "tanh": (-12, 12), "sigmoid": (-60, 60),
    "erf": (-5, 5), "sqrt": (0, 1e6), "sin": (-200, 200), "cos": (-200, 200),
}  # fmt: skip
ULP = {"sigmoid": 4, "sin": 4, "cos": 4}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate(name: str) -> None:
    low, high = FUNCTIONS[name]
    scores = np.random.default_rng(1).uniform(low, high, (BATCH, HEADS, Q_LEN, KV_LEN)).astype(np.float32)
    scores[0, 0] *= 2.0 ** -np.arange(Q_LEN)[:, None]  # and small ones
    variant = Variant("function", statements=(Score(apply(name, symbol("score"))),))
    found = run(variant, SCORE_CALL, {}, scores)
    exact = evaluate(variant.scores[0].value, environment(variant, {}, np.float64, score=scores.astype(np.float64)))
    errors = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert errors.max() <= ULP.get(name, 2.5), (name, errors.max(), scores.ravel()[errors.argmax()])


def test_special_values_of_floor_and_min() -> None:
    values = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.5, 2.5, 2.0**31, -(2.0**31) - 300]
    scores = np.resize(np.float32(values), (BATCH, HEADS, Q_LEN, KV_LEN))
    floored = apply("to_float", apply("floor", symbol("score")))
    lines = (Score(apply("min", floored, apply("max", symbol("score"), const(-1e20)))),)
    variant = Variant("special", statements=lines)
    found = run(variant, SCORE_CALL, {}, scores)
    wanted = evaluate(lines[0].value, environment(variant, {}, np.float32, score=scores))
    np.testing.assert_array_equal(found, wanted)


def test_score_lines() -> None:
    """Two score lines, a scalar, and a division by a value that all pairs share."""
    cap = Load(Type.FLOAT, "cap", ())
    slope = Load(Type.FLOAT, "slope", (symbol("h"),))
    distance = apply("to_float", apply("sub", symbol("q_pos"), symbol("kv_idx")))
    variant = Variant(
        "scored",
        inputs=(Input("cap", "f32", ()), Input("slope", "f32", INPUTS[2].axes[:1])),
        statements=(
            Score(apply("sub", symbol("score"), apply("mul", slope, distance))),
            Score(apply("mul", cap, apply("tanh", apply("div", symbol("score"), cap)))),
            Keep(apply("ge", distance, const(0.0))),
        ),
    )
    arrays = {"cap": np.float32(7.5), "slope": np.float32([0.5, 0.25, 0.125, 0.0])}
    scores = np.random.default_rng(2).normal(size=(BATCH, HEADS, Q_LEN, KV_LEN)).astype(np.float32) * 9
    found = run(variant, SCORE_CALL, arrays, scores)
    known = environment(variant, arrays, np.float64, score=scores.astype(np.float64))
    first = evaluate(variant.scores[0].value, known)
    wanted = evaluate(variant.scores[1].value, known.with_symbols(score=first))
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
