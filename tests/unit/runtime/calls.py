"""Calls of small kernels with device arrays of no device."""

from __future__ import annotations

from typing import Any

from attncc.ir import Variant
from tests import plans
from tests.unit.runtime.fakes import FakeArray

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN, D = 2, 6, 2, 45, 70, 16


def qkv(dtype: str = "float16", **changes: Any) -> tuple[FakeArray, FakeArray, FakeArray]:
    sizes = {"batch": BATCH, "q_len": Q_LEN, "kv_len": KV_LEN, "value": D} | changes
    q = FakeArray((sizes["batch"], HEADS, sizes["q_len"], D), dtype)
    k = FakeArray((sizes["batch"], KV_HEADS, sizes["kv_len"], D), dtype)
    return q, k, FakeArray((*k.shape[:-1], sizes["value"]), dtype)


def plan(variant: Variant, **settings: Any) -> Any:
    return plans.plan(variant, "fp16", target="sm_90", **settings)
