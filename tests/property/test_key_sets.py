"""Key sets, and their bits as CUDA, against the keep lines: the same pairs, whatever the predicate and the inputs."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import numpy as np
import pytest

from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.key_sets import (
    Below,
    Common,
    KeepMask,
    KeySet,
    LaneKeys,
    OfRow,
    Outside,
    RemainderBelow,
    Repeating,
    United,
    keep_masks,
)
from attncc.codegen.render import assemble
from attncc.codegen.user_code import user_code
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import Expr, Type, Variant
from attncc.kernels.parameters import field_name, struct_format
from attncc.kernels.registry import facts_of
from tests import plans
from tests.emulator import kernel
from tests.examples import examples, slow_beyond
from tests.printed import WORK, kept_pair, variant

from .masks import mask_of, random_environment, random_variant

GRIDS = (None, None, Grid2D(4, 1, 1), Grid2D(64, 8, 8), Grid2D(12, 4, 4))
BLOCKS = (16, 32, 48, 64, 80, 128)


@dataclass(frozen=True)
class Pairs:
    """All pairs of a sequence; `members` says which a key set holds: bool [q_len, kv_len]."""

    values: Environment
    q_len: int
    kv_len: int
    lane: LaneKeys

    @classmethod
    def of(cls, environment: Environment, lane: LaneKeys) -> Pairs:
        q_len, kv_len = (int(environment.symbols[name]) for name in ("q_len", "kv_len"))
        q_idx, kv_idx = np.arange(q_len)[:, None], np.arange(kv_len)[None]
        values = environment.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + kv_len - q_len)
        return cls(values, q_len, kv_len, lane)

    def value(self, expr: Expr) -> Array:
        return np.broadcast_to(evaluate(expr, self.values), (self.q_len, self.kv_len))

    def members(self, keys: KeySet) -> Array:
        match keys:
            case Outside(of):
                return ~self.members(of)
            case Common(parts):
                return np.logical_and.reduce([self.members(part) for part in parts])
            case United(parts):
                return np.logical_or.reduce([self.members(part) for part in parts])
        return self.simple(keys)

    def simple(self, keys: OfRow | Below | RemainderBelow | Repeating) -> Array:
        """Also, that what is promised of the set holds."""
        kv_idx = self.values.symbols["kv_idx"]
        match keys:
            case Below(limit):
                distance = self.value(limit) - kv_idx
                assert np.abs(distance).max() < 2**31 and np.abs(self.value(limit)).max() < 2**31
                return distance > 0
            case RemainderBelow(shift, period, limit):
                assert np.abs(self.value(limit)).max() < 2**30
                return (kv_idx + self.value(shift)) % period < self.value(limit)
        found = self.value(keys.holds)
        if isinstance(keys, Repeating):
            assert (found[:, self.lane.step :] == found[:, : -self.lane.step]).all()
        return found

    def kept(self, mask: KeepMask) -> Array:
        kept = np.ones((self.q_len, self.kv_len), bool) if mask.keys is None else self.members(mask.keys)
        return kept if mask.each is None else kept & self.value(mask.each)


@pytest.mark.parametrize("numbers", examples(700, every_day=150))
def test_random_masks_hold_the_same_pairs(numbers: range) -> None:
    found = 0
    for index in numbers:
        random = np.random.default_rng((11, index))
        drawn, block_kv = random_variant(random), int(random.choice(BLOCKS))
        lengths = (int(length) for length in random.integers(1, 200, 2))
        environment = random_environment(random, *lengths, extreme=index % 4 == 0)
        lane = LaneKeys.of(GRIDS[index % len(GRIDS)])
        pairs = Pairs.of(environment, lane)
        masks = list(keep_masks(drawn, block_kv, lane))
        found += sum(mask.keys is not None for mask in masks)
        kept = np.logical_and.reduce([pairs.kept(mask) for mask in masks])
        np.testing.assert_array_equal(kept, mask_of(drawn, environment), f"mask {index}\n{drawn.show_lowered()}")
    assert found > 0.57 * len(numbers)


# -------------------------------------------------------------------- printed

WRITTEN = {
    "causal": "keep if q_pos >= kv_idx",
    "window": "keep if 0 <= q_pos - kv_idx < 37",
    "prefix": "input p: i64\nkeep if kv_idx < p or q_pos >= kv_idx",
    "sinks": "keep if q_pos >= kv_idx and (q_pos - kv_idx < 9 or kv_idx < 4)",
    "dilated": "keep if (q_pos - kv_idx) % 4 == 0 and abs(q_pos - kv_idx) < 50",
    "odd rows": "keep if q_idx % 3 == 1 or kv_idx // 5 == 3",
    "unequal": "keep if kv_idx != q_idx and 2 * kv_idx != 3 * q_idx",
    "grid_2d": "keep if abs(kv_idx % 64 - 20) < 9 and abs(kv_idx // 64 - q_idx // 64) <= 1",
    "2-D grid of 48": "keep if (kv_idx + q_idx) % 48 // 7 >= 3",
    "eighths": "keep if kv_idx % 8 < 5 and kv_idx % 2 == q_idx % 2",
    "choice": "keep if kv_idx < 40 if q_idx % 2 == 0 else kv_idx >= 30",
}

RUN = """
extern "C" void run(int which, const void* given, int q_len, int kv_len, bool* kept) {{
{cases}
}}
"""
CASE = """
namespace v{number} {{
{struct}
{functions}
void run(const void* given, int q_len, int kv_len, bool* kept) {{
    Params params;
    memcpy(&params, given, sizeof params);
    const Context context = make_context(params, Given{{1, q_len, kv_len}}, 1, 0);
    for (int q_idx = 0; q_idx < q_len; ++q_idx) {{
        const Row row = make_row(params, context, q_idx);
        for (int column = 0; column < kv_len; ++column) *kept++ = {kept};
    }}
}}
}}
"""


def printed_masks(drawn: list[Variant], block_kv: int, grid_2d: Grid2D | None) -> ctypes.CDLL:
    """`run(number of the variant, Params, q_len, kv_len, kept)`, compiled for the CPU."""
    texts, includes = [], {'#include "common/element.cuh"'}
    for number, item in enumerate(drawn):
        plan = plans.plan(item, skip="never", block_kv=block_kv, grid_2d=grid_2d)
        code = user_code(plan)
        kept = kept_pair(code, plan)
        includes |= set(code.includes.splitlines())
        texts.append(CASE.format(number=number, struct=code.params_struct, functions=code.functions, kept=kept))
    calls = "\n".join(f"    if (which == {n}) v{n}::run(given, q_len, kv_len, kept);" for n in range(len(drawn)))
    text = assemble("\n".join([*sorted(includes), WORK, *texts, RUN.format(cases=calls)]), "printed_masks")
    return kernel.evaluate("", text)


def packed_params(item: Variant, block_kv: int, environment: Environment) -> bytes:
    """The inputs of an environment, dense, as a call passes them."""
    values: dict[str, int | float] = {"q_len": environment.symbols["q_len"], "kv_len": environment.symbols["kv_len"]}
    values |= {"num_heads": 3, "num_kv_heads": 1}
    for declared in item.inputs:
        array, field = environment.inputs[declared.name], field_name(declared.name)
        if not declared.axes:
            values[f"{field}_value"] = array.item()
            continue
        values[field] = array.ctypes.data
        for axis, (stride, size) in enumerate(zip(array.strides, array.shape, strict=True)):
            values |= {f"{field}_stride{axis}": stride // array.itemsize, f"{field}_size{axis}": size}
    fields = facts_of(plans.plan(item, skip="never", block_kv=block_kv)).parameters()
    return struct.pack(struct_format(fields), *(values.get(field.name, 0) for field in fields))


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("block_kv", "grid_2d"),
    slow_beyond(
        3, [(80, None), (64, Grid2D(64, 8, 8)), (32, Grid2D(12, 4, 4)), (32, None), (128, None), (64, Grid2D(5, 1, 1))]
    ),
)
def test_printed_masks_hold_the_same_pairs(block_kv: int, grid_2d: Grid2D | None) -> None:
    drawn = [variant(lines) for lines in WRITTEN.values()]
    drawn += [random_variant(np.random.default_rng((12, block_kv, index))) for index in range(40)]
    library = printed_masks(drawn, block_kv, grid_2d)
    for number, item in enumerate(drawn):
        for q_len, kv_len in ((70, 131), (40, 40), (5, 300)):
            random = np.random.default_rng((13, number))
            environment = random_environment(random, q_len, kv_len, extreme=number % 4 == 0)
            given = {**environment.inputs, "p": np.asarray(55)}
            inputs = {declared.name: np.array(given[declared.name], order="C") for declared in item.inputs}
            environment = Environment(environment.symbols, inputs)
            kept = np.zeros((q_len, kv_len), bool)
            params = packed_params(item, block_kv, environment)
            library.run(number, params, q_len, kv_len, kept.ctypes.data_as(ctypes.c_void_p))
            np.testing.assert_array_equal(kept, mask_of(item, environment), item.show_lowered())


def test_the_masks_that_people_write_need_no_test_of_pairs() -> None:
    for name, lines in WRITTEN.items():
        item = variant(lines)
        assert all(mask.each is None for mask in keep_masks(item, 64)), name
        assert all(declared.type is Type.INT for declared in item.inputs)
