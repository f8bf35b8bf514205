"""What `benchmarks.tuned` tunes: ten specs of sizes by which no default was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from attncc.compiler import load_specification
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import Build
from attncc.tune.candidates import TunedKernel
from attncc.tune.work import Work


@dataclass(frozen=True)
class Case:
    """A spec with consts, and a problem."""

    name: str
    spec: str
    problem: Problem
    pass_name: str = "forward"
    dtype: str = "bf16"
    defines: Mapping[str, Any] = field(default_factory=dict)
    target: str = "sm_90a"

    @cached_property
    def kernel(self) -> TunedKernel:
        specification, _ = load_specification(folder("specs") / f"{self.spec}.attn", None, self.defines)
        problem = self.problem
        configuration = Configuration(self.dtype, problem.head_dim, problem.value_head_dim)
        build = Build(self.pass_name, self.target, *configuration)
        return TunedKernel(replace(specification, schedules=()), build)

    @cached_property
    def work(self) -> Work:
        return Work(self.kernel.variant, self.problem, self.dtype, self.pass_name, {})


def _problem(length: int, dim: int, value: int = 0, heads: int = 16, kv_heads: int = 16) -> Problem:
    return Problem(4, heads, kv_heads, length, length, dim, value or dim)


# In the order in which they run: those whose kernels are quick to compile, and of each kind one, come first.
CASES = (
    Case("backward_80", "sliding_window", _problem(2500, 80), "backward", defines={"width": 700}),
    Case("softcap_192", "softcap", _problem(3000, 192, 128)),
    Case("documents_fp16_160", "documents", _problem(3500, 160), dtype="fp16"),
    Case("decode_gqa_96", "causal", Problem(8, 48, 6, 1, 9000, 96, 96), "decode"),
    Case("sink_gqa_112", "sink_attention", _problem(2222, 112, heads=24, kv_heads=3)),
    Case("gelu_80", "gelu_attention", _problem(2500, 80)),
    Case("sigmoid_128", "sigmoid_attention", _problem(2000, 128, heads=20, kv_heads=5)),
    Case("sandwich_96", "sandwich", _problem(3333, 96)),
    Case("dilated_64", "dilated_window", _problem(5000, 64)),
    Case("relative_causal_48", "relative_causal", _problem(4444, 48)),
)


def chosen(names: str, target: str | None = None) -> list[Case]:
    """Those of the names, with commas between them, or all; on a target, if one is given. SystemExit for others."""
    wanted = [name for name in names.split(",") if name]
    if unknown := set(wanted) - {case.name for case in CASES}:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    found = [case for case in CASES if not wanted or case.name in wanted]
    return found if target is None else [replace(case, target=target) for case in found]
