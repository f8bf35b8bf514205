"""Kernels that a test needs in another form than `attncc.compile` makes them."""

from __future__ import annotations

from dataclasses import replace

from attncc.compiler import CompiledStore, load_specification
from attncc.runtime.kernel import Kernel
from attncc.runtime.store import Configuration


def without_decode(text: str, *, dtype: str, head_dim: int, value_head_dim: int, arch: str | None) -> Kernel:
    """A kernel whose forward pass runs calls with few queries as well; arguments as those of `attncc.compile`."""
    specification = replace(load_specification(text, None, {})[0], passes=("forward", "patches"))
    archs = () if arch is None else (arch,)
    store = CompiledStore(specification, Configuration(dtype, head_dim, value_head_dim), archs)
    store.compile_now()
    return Kernel(store)
