"""The kernel of attncc.append on an emulated GPU (tests/emulator), bit for bit against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.codegen.render import render_helper
from attncc.kernels.helpers import append as append_kernel
from attncc.problem.appended import Append, bind_append
from attncc.problem.arrays import array_facts
from attncc.problem.facts import KV_DTYPES, numpy_dtype
from attncc.problem.strides import zeros_like
from attncc.runtime.call.append import append_fields
from tests.appended import ROOM, Array, Case, arrays_of, options
from tests.emulator import kernel

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")


def emulated(case: Case, given: dict[str, Any], rotary: Any = None, aligned: bool | None = None) -> Array | None:
    """What a launcher would do, with NumPy arrays as device memory. NaN in the result before."""
    made = options(case)["rotary"] if rotary is None else rotary
    call = Append(**given) if made is None else Append(**given, cos=made[0], sin=made[1])
    facts = Append(**{name: array_facts(name, array) for name, array in call.given()})
    problem = bind_append(facts, case.layout)
    if aligned is None:
        aligned = not any(array.ctypes.data % 16 for name, array in call.given() if array.dtype.itemsize < 4)
    helper = append_kernel.kernel(case.dtype, case.angles if case.rotary_dim else case.dtype, "sm_80", case.kv_dtype)
    out = None if call.q is None else zeros_like(call.q.shape, call.q.dtype, call.q)
    if out is not None:
        out[...] = np.nan
    values: dict[str, Any] = dict.fromkeys((item.name for item in helper.parameters), 0)
    values |= append_fields(facts, problem, interleaved=case.interleaved, aligned=aligned)
    values |= {name: array.ctypes.data for name, array in (*call.given(), *([] if out is None else [("q_out", out)]))}
    kernel.run(render_helper(helper), helper.parameters, values, problem.total_q * values["parts"])
    return out


def check(case: Case, given: dict[str, Any] | None = None, aligned: bool | None = None) -> None:
    ours = arrays_of(case) if given is None else given
    theirs = {name: array.copy() for name, array in ours.items()}
    wanted, found = attncc.append(**theirs, **options(case)), emulated(case, ours, aligned=aligned)
    for name in ("k_cache", "v_cache"):
        assert ours[name].tobytes() == theirs[name].tobytes(), name
    assert (wanted is None) == (found is None)
    if wanted is not None and found is not None:
        assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8))


def cases() -> Iterator[Case]:
    """All pages with all rows; dtypes, kinds of rotation, and types of angles in turn."""
    kinds = [(None, False), (32, False), (32, True), (16, False), (16, True), (20, False), (6, True)]
    types = [("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp16", "fp16"), ("fp32", "fp32")]
    rows = product((None, 1, 7, 16, 64), (False, True), ("bhsd", "bshd"))
    for number, (page, packed, layout) in enumerate(rows):
        for turn in range(2):
            rotary_dim, interleaved = kinds[(2 * number + turn) % len(kinds)]
            dtype, angles = types[(2 * number + turn) % len(types)]
            yield Case(dtype, page, packed, layout, rotary_dim, interleaved, angles)
    for (rotary_dim, interleaved), (dtype, angles) in product(kinds, types):
        yield Case(dtype, 7, True, "bhsd", rotary_dim, interleaved, angles)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_caches_and_queries(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_narrow_accesses_write_the_same(dtype: str, interleaved: bool) -> None:
    """Bases that aren't aligned, and head dims that aren't multiples of 8."""
    check(Case(dtype, 16, rotary_dim=32, interleaved=interleaved), aligned=False)
    check(Case(dtype, None, True, rotary_dim=12, interleaved=interleaved, head_dim=13, value_head_dim=5))


def test_wide_accesses_are_used_where_they_can_be() -> None:
    def wide(case: Case, aligned: bool = True) -> bool:
        given = arrays_of(case)
        call = Append(**given, **dict(zip(("cos", "sin"), options(case)["rotary"], strict=True)))
        facts = Append(**{name: array_facts(name, array) for name, array in call.given()})
        fields = append_fields(facts, bind_append(facts, case.layout), interleaved=False, aligned=aligned)
        return bool(fields["wide"])

    assert wide(Case(rotary_dim=32)) and wide(Case(rotary_dim=16)) and wide(Case("fp32", 16, True, rotary_dim=16))
    assert not wide(Case(rotary_dim=32), aligned=False)
    assert not wide(Case(rotary_dim=24)) and not wide(Case(rotary_dim=12, value_head_dim=20))


def test_strided_rows_of_a_fused_projection() -> None:
    """q, k and v as parts of one array, caches as halves of another."""
    case = Case("bf16", rotary_dim=32, layout="bshd", value_head_dim=32)
    given, rng = arrays_of(case), np.random.default_rng(1)
    both = np.full((5, ROOM, 2, 2, 32), np.nan, np.float32).astype(given["q"].dtype)
    parts = rng.standard_normal((5, 5, 10, 32)).astype(np.float32).astype(given["q"].dtype)
    given |= {"q": parts[:, :, :6], "k_new": parts[:, :, 6:8], "v_new": parts[:, :, 8:]}
    caches = {"k_cache": both[:, :, 0], "v_cache": both[:, :, 1]}
    other = {name: x.copy() for name, x in caches.items()}
    wanted = attncc.append(**{**given, **other}, **options(case))
    found = emulated(case, {**given, **caches})
    assert np.array_equal(found.view(np.uint16), wanted.view(np.uint16))
    assert all(caches[name].tobytes() == other[name].tobytes() for name in caches)


def broken(case: Case, seed: int) -> dict[str, Any]:
    """Numbers that can't be, wherever the device reads some."""
    given, rng = arrays_of(case), np.random.default_rng(seed)
    wild = np.array([-(2**31), -1, ROOM + 1, 2**30, 2**31 - 1, 2, 39], np.int32)
    for name in ("kv_lens", "block_table", "cu_seqlens_q"):
        if name in given:
            places = rng.random(given[name].shape) < 0.5
            given[name] = np.where(places, rng.choice(wild, given[name].shape), given[name]).astype(np.int32)
    return given


@pytest.mark.parametrize("page", [None, 1, 7])
@pytest.mark.parametrize("packed", [False, True])
def test_what_cannot_be_writes_nothing_outside(packed: bool, page: int | None) -> None:
    """Caches stand in the middle of larger arrays; so does the result's place."""
    case = Case("fp32", page, packed, rotary_dim=32)
    for seed in range(20):
        given = broken(case, seed)
        around = {}
        for name in ("k_cache", "v_cache"):
            around[name] = np.full((3, given[name].size), 7, np.float32)
            given[name] = around[name][1].reshape(given[name].shape)
            given[name][...] = np.nan
        emulated(case, given)
        assert all((x[::2] == 7).all() for x in around.values())


@pytest.mark.parametrize("length", [ROOM + 1, -1, -(2**31), 2**31 - 1])
def test_one_impossible_sequence_leaves_the_others(length: int) -> None:
    """Lengths that can't be write nothing and make NaN in q. Pages that there aren't get nothing."""
    case = Case("fp32", 8, rotary_dim=32)
    good, bad = arrays_of(case), arrays_of(case)
    bad["kv_lens"] = np.int32([length, *good["kv_lens"][1:]])
    bad["block_table"] = np.where(np.arange(5)[:, None] == 1, 1000, good["block_table"]).astype(np.int32)
    wanted, found = emulated(case, good), emulated(case, bad)
    assert wanted is not None and found is not None
    assert np.isnan(found[0]).all() and np.array_equal(found[1:], wanted[1:])
    pages = good["block_table"][2:]
    pages = pages[pages >= 0]
    for name in ("k_cache", "v_cache"):
        assert np.array_equal(bad[name][pages], good[name][pages], equal_nan=True)
        assert np.isnan(np.delete(bad[name], pages, 0)).all()


def test_positions_without_angles_make_nan() -> None:
    """In the rotated columns of keys and of q; tables are never read behind their last row."""
    case = Case("fp32", rotary_dim=16)
    given, (cos, sin) = arrays_of(case), options(case)["rotary"]
    found = emulated(case, given, rotary=(cos[:38].copy(), sin[:38].copy()))
    assert found is not None
    for x in (found[0, :, 3:], given["k_cache"][0, :, 38:]):
        assert np.isnan(x[..., :16]).all() and np.isfinite(x[..., 16:]).all()
    assert np.isfinite(given["k_cache"][0, :, 35:38]).all() and np.isfinite(found[1]).all()


def cases_of_8_bits() -> Iterator[Case]:
    types = product(("e4m3", "int8"), ("bf16", "fp16", "fp32"))
    for (kv_dtype, dtype), page, layout in product(types, (None, 7, 16), ("bhsd", "bshd")):
        rotary_dim = 16 if dtype == "bf16" else None
        yield Case(dtype, page, page == 7, layout, rotary_dim, kv_dtype=kv_dtype)


@pytest.mark.parametrize("case", list(cases_of_8_bits()), ids=lambda case: case.name)
def test_caches_of_8_bits(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("kv_dtype", ["e4m3", "int8"])
def test_narrow_accesses_of_8_bits(kv_dtype: str) -> None:
    check(Case("bf16", 16, rotary_dim=32, kv_dtype=kv_dtype), aligned=False)
    odd = Case("fp16", None, head_dim=13, value_head_dim=5, kv_dtype=kv_dtype)
    given = arrays_of(odd)
    check(odd, given | {"k_scale": given["k_scale"][:1]})


@pytest.mark.parametrize("kv_dtype", ["e4m3", "int8"])
def test_every_number_of_16_bits_is_rounded_as_numpy_does(kv_dtype: str) -> None:
    """Ties to even, subnormals, and what is beyond the range."""
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(1, 1, 512, 128)
    caches = {name: np.zeros((1, 1, 512, 128), numpy_dtype(KV_DTYPES[kv_dtype])) for name in ("k_cache", "v_cache")}
    given = {**caches, "k_new": numbers, "v_new": numbers, "kv_lens": np.int32([512])}
    check(Case("fp16", kv_dtype=kv_dtype), given)
    exact, found = numbers.astype(np.float64), caches["k_cache"].astype(np.float64)
    most = 448.0 if kv_dtype == "e4m3" else 127.0
    inside, every = np.abs(exact) <= most, np.arange(256, dtype=np.uint8).view(numpy_dtype(KV_DTYPES[kv_dtype]))
    finite = np.unique(every[np.isfinite(every.astype(np.float64))].astype(np.float64))
    above = np.searchsorted(finite, exact[inside])
    nearest = np.abs(finite[[above, np.maximum(above - 1, 0)]] - exact[inside]).min(axis=0)
    assert np.array_equal(np.abs(found[inside] - exact[inside]), nearest)
    assert (found[exact > most] == most).all()
