"""The same tests on the CPU executor and, with `-m gpu`, on the GPU, under schedules that differ in every way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import attncc
from attncc import reference
from tests.devices import Device, cpu, cuda
from tests.kernels import without_decode
from tests.meaning.variants import DECODE, source

HEAD_DIM = 32
DTYPE = "fp16"

HOPPER = "family = hopper"

# Settings of a schedule. A row of the meaning table holds whatever the schedule, so every test runs under all of them.
SCHEDULES = {
    "default": None,
    "splits": "split_kv = 3",
    "small": "block_q = 16 block_kv = 32 warps = 1 stages = 3",
    "no_skip": "skip = never",
    "kv_outer": "loop = kv_outer",
    "decode": DECODE,
    "hopper": HOPPER,
}


def _target(settings: str | None, device: Device) -> str:
    """What schedules are for; the family hopper has a target of its own."""
    return "sm_90a" if settings == HOPPER else device.target


def _arch(settings: str | None, device: Device) -> str | None:
    return _target(settings, device) if device.arch else None


class Form(NamedTuple):
    text: str
    settings: str | None
    arch: str | None
    dtype: str = DTYPE
    head_dim: int = HEAD_DIM
    value_head_dim: int = HEAD_DIM


@cache
def _compiled(form: Form) -> Any:
    """The kernel of a schedule: without it and with one for decode, calls with few queries run the decode pass."""
    compile_ = attncc.compile if form.settings in (None, DECODE) else without_decode
    dims = {"head_dim": form.head_dim, "value_head_dim": form.value_head_dim}
    return compile_(form.text, dtype=form.dtype, arch=form.arch, **dims)


@cache
def _parsed(text: str) -> Any:
    return attncc.parse(text)


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return cpu() if request.param == "cpu" else cuda()


@pytest.fixture(params=list(SCHEDULES))
def schedule(request: pytest.FixtureRequest) -> str | None:
    return SCHEDULES[request.param]


@dataclass(frozen=True)
class Attend:
    """Calls variants by name with NumPy arrays, on a device, under a schedule."""

    device: Device
    settings: str | None

    def kernel(self, name: str, dtype: str = DTYPE, head_dim: int = HEAD_DIM, value_head_dim: int | None = None) -> Any:
        if self.settings == HOPPER and dtype == "fp32":
            pytest.skip("the family hopper has 16-bit kernels")
        text = source(name, self.settings, _target(self.settings, self.device))
        arch = _arch(self.settings, self.device)
        return _compiled(Form(text, self.settings, arch, dtype, head_dim, value_head_dim or head_dim))

    def __call__(self, name: str, q: Any, k: Any, v: Any, *, lse: bool = False, **call: Any) -> Any:
        """out (and lse) as NumPy arrays; out is given to the call, full of NaN, and must be overwritten."""
        kernel = self.kernel(name, _dtype(q), q.shape[-1], v.shape[-1])
        out = self.device.full((*q.shape[:-1], v.shape[-1]), np.nan, q.dtype)
        arrays = {key: self.device.put(value) if _is_array(value) else value for key, value in call.items()}
        result = kernel(*map(self.device.put, (q, k, v)), out=out, return_lse=lse, **arrays)
        if lse:
            return self.device.get(result[0]), self.device.get(result[1])
        return self.device.get(result)

    def judge(self, name: str, q: Any, k: Any, v: Any, **call: Any) -> Any:
        """Calls, asserts the accuracy rule against the fp64 oracle, and returns out."""
        out = self(name, q, k, v, **call)
        variant = _parsed(source(name, None, self.device.target)).variant
        exact, _ = reference.forward(variant, q, k, v, **call)
        plain, _ = reference.baseline(variant, q, k, v, **call)
        accuracy = reference.accuracy(out, plain, exact, _dtype(q))
        assert accuracy.holds, accuracy
        return out


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _dtype(q: Any) -> str:
    return {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}[str(q.dtype)]


@pytest.fixture
def attend(device: Device, schedule: str | None) -> Attend:
    if schedule == HOPPER and device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    return Attend(device, schedule)


@pytest.fixture
def draw() -> Callable[..., Any]:
    """Normal arrays: draw(shape) in fp16, or another dtype."""
    rng = np.random.default_rng(7)
    return lambda *shape, dtype=np.float16, scale=1.0: (scale * rng.standard_normal(shape)).astype(dtype)
