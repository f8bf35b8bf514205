"""The arguments of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Array = Any  # of any framework


class Arguments(NamedTuple):
    """One call as the user made it, `stream` apart."""

    q: Array
    k: Array
    v: Array
    inputs: Mapping[str, Any]
    scale: Any
    layout: Any
    cu_seqlens_q: Array | None
    cu_seqlens_kv: Array | None
    seed: Any
    out: Array | None
    return_lse: bool


Given = tuple[Array, Array, Array, Mapping[str, Any], Any, Any, Array | None, Array | None, Any, Array | None, bool]
