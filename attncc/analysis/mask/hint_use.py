"""What rules make of inputs that are declared `nondecreasing`, and under which conditions they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ...ir import Expr
from ..algebra.algebra import TRUE


class HintUse(Enum):
    """What rules make of hints."""

    IGNORED = "as if there were none"
    PRESUMED = "they hold"
    DENIED = "nothing is known of inputs that bear one"


@dataclass
class SortedHints:
    """How one set of rules uses hints, and the conditions on uniform values under which that is sound."""

    hint_use: HintUse
    presumed: dict[Expr, None] = field(default_factory=dict)

    def presume(self, *conditions: Expr) -> None:
        self.presumed |= dict.fromkeys(condition for condition in conditions if condition is not TRUE)
