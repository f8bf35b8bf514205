"""`HelperKernel`: a kernel besides a plan's own, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ..backward_facts import BackwardFacts
from ..facts import Facts
from ..parameters import Parameter

ROWS_THREADS = 128  # of kernels whose warps take 16 rows at a time


@dataclass(frozen=True)
class HelperKernel:
    """What renders it, and what its launch must know."""

    name: str  # of its file, and in a package's manifest: all plans that need the same kernel give it the same name
    template: str  # a path in templates/
    what: str  # the first line of its file
    parameters: tuple[Parameter, ...]  # the fields of its `Params`
    threads: int
    own_entry: str = ""  # the kernel's name in its file, if it isn't that of the template
    shared_bytes: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)  # what else the template asks for
    facts: Facts | None = None  # of the plan that the template asks about
    prints_variant: bool = False  # whether it computes with what the variant says

    @property
    def entry(self) -> str:
        """The kernel's name in its file."""
        return self.own_entry or PurePosixPath(self.template).name.partition(".")[0]


def of_rows(
    template: str,
    name: str,
    what: str,
    parameters: tuple[Parameter, ...],
    facts: BackwardFacts,
    **values: Any,
) -> HelperKernel:
    """A kernel whose warps take 16 rows at a time, as the plan's kernels keep them."""
    plan = facts.plan
    common = {"dtype": plan.dtype, "row_alignment": facts.row_alignment}
    common |= {"tile_order": plan.tile_order, "tile_columns": plan.tile_columns}
    return HelperKernel(name, template, what, parameters, ROWS_THREADS, values=common | values)
