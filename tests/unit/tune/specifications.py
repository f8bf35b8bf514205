"""Specifications that are tuned here: small ones, so that real kernels compile fast."""

from __future__ import annotations

from functools import cache

from attncc.compiler import Specification, specify
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.tune.candidates import TunedKernel, schedules

VARIANT = "attn 1\n\nvariant mine {\n    keep if q_pos >= kv_idx  # of course\n}\n"
BRACES = """
# Chosen on a slow day.
schedule fast for mine on sm_80 {
    block_q  = {64, 32}  # rows
    stages   = 1
    # This one matters.
    block_kv = {32, 64}
}

schedule other for mine decode on sm_80 {
    split_kv = auto
}
"""


@cache
def specification(text: str) -> Specification:
    return specify(load(SourceFile("mine.attn", text)), "mine")


@cache
def tuned(
    text: str, target: str = "sm_80", pass_name: str = "forward", dtype: str = "bf16", dim: int = 16
) -> TunedKernel:
    return TunedKernel(specification(text), Build(pass_name, target, dtype, dim, dim))


def candidates(text: str, target: str = "sm_80", pass_name: str = "forward") -> tuple[Schedule, ...]:
    return schedules(tuned(text, target, pass_name))
