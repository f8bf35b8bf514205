"""One schedule that is tried, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.cuda.nvrtc import Resources
from ..schedule.plan import KernelPlan
from ..schedule.schedule import Schedule
from .model import Prediction


@dataclass(frozen=True)
class Trial:
    """`name`: the settings as a schedule has them, or `race.HELD`. `schedule`: one value for each knob; None where the
    file has no schedule, and this is what runs without one. `usual`: the plan that decides by the sizes of a call
    which kernel runs it. It is `plan` itself, or for some backward calls the one that is made for clusters of thread
    blocks, of which the GPU holds `resident` at once."""

    name: str
    schedule: Schedule | None
    plan: KernelPlan | None = None  # of what runs the timed call; None: there is no such kernel
    prediction: Prediction | None = None
    resources: Resources | None = None  # None: not compiled
    trouble: str = ""  # why it isn't timed, or isn't right
    spills: bool = False  # the trouble is what ptxas says against it: it could be timed
    usual: KernelPlan | None = None
    resident: int = 0

    @property
    def tiles(self) -> str:
        """`hopper 128 x 64, 8 warps, 4 stages`, and what else the schedule sets."""
        chosen = {} if self.schedule is None else self.schedule.chosen
        more = [f"{name} {chosen[name]}" for name in ("loop", "split_kv", "skip") if name in chosen]
        if self.plan is None:
            return self.name
        return ", ".join([self.plan.tiles, *["without clusters"] * self.plan.unclustered, *more])
