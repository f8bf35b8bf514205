"""Plans in turn on one group, while memory that isn't written yet is NaN and ranks are late: what each process runs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import attncc.distributed as shared
from tests.unit.distributed import sharing
from tests.unit.distributed.poison import delayed, poisoned

WORLD, ROUNDS, LATE = 2, 2, 0.002
NAMES = (
    "bf16",  # a window in another type than the others
    "kept",
    "packed bshd",
    "window grouped",
    "causal grouped",
)


def process(rank: int, folder: str) -> None:
    """Writes what differs from one process, by case, transport and round."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    cases = {case.name: case for case in sharing.cases() if case.name in NAMES}
    calls = [_prepared(rank, cases[name]) for name in NAMES]
    found = {}
    with poisoned(), delayed(rank, LATE):
        for number in range(ROUNDS):
            for case, call, alone, by in calls if number % 2 == 0 else calls[::-1]:
                for transport, cp in by.items():
                    wrong = sharing.difference(sharing.many_processes(case, cp, call), alone)
                    found[f"{case.name}, {transport}, {number}"] = wrong
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _prepared(rank: int, case: sharing.Case) -> tuple[sharing.Case, sharing.Call, sharing.Found, dict[str, Any]]:
    """The first process compiles, plans, and computes alone."""
    shown: list[Any] = [None] * 4
    if rank == 0:
        kernel = case.kernel
        call = sharing.Call.of(case, kernel.variant)
        plan = sharing.plan_of(case, kernel, call, WORLD).to_json()
        shown = [kernel, call, plan, sharing.one_process(case, kernel, call)]
    dist.broadcast_object_list(shown)
    kernel, call, text, alone = shown
    plan = shared.Plan.from_json(text)
    by = {
        name: shared.shard(kernel, plan=plan, keep_kv=case.keep_kv, transport=name) for name in ("peer", "collective")
    }
    return case, call, alone, by
