"""Context parallelism: one attention over many GPUs, for any mask.

    plan = attncc.distributed.plan(kernel, 65536, ranks=8, heads=(64, 8))
    cp = attncc.distributed.shard(kernel, group, plan=plan)
    out = cp(q, k, v)                      # local rows; gradients by autograd

Read `lengths`, `needs` (what the tile proof says), `machine`, `products`, `relays`, `read_names`, `head_groups`,
`grouping`, `cost`, `tables`, `assign`, `travel`, `swaps`, `plan_data`, `planning`; then, which need torch, `row_runs`,
`own_gradients`, `transport` (a collective); `moves`, `engines`, `peer_memory`, `peer_transport` (copies into others'
memory), `transports`; `query_places`, `call_parts`, `lanes`, `launches`, `operator` and `sharded`. `decoding` is of
caches that ranks share; `key_places` says what a launch may have of a sequence's keys, there and in `planning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoding import ShardedDecode, decode
    from .machine import Machine
    from .planning import Plan, plan
    from .sharded import ContextParallel, shard

__all__ = ["ContextParallel", "Machine", "Plan", "ShardedDecode", "decode", "plan", "shard"]

_HOMES = {
    "ContextParallel": ".sharded",
    "Machine": ".machine",
    "Plan": ".planning",
    "ShardedDecode": ".decoding",
    "decode": ".decoding",
    "plan": ".planning",
    "shard": ".sharded",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attncc.distributed' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
