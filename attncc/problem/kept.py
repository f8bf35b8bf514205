"""Which pairs a mask keeps, evaluated once for all heads and sequences that it doesn't tell apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..evaluate import Environment, evaluate
from ..ir import Variant, reads
from ..statements import MASK_FLOAT, keep_condition

_MOST_PAIRS = 2**22  # that are remembered, as bytes
_PLACES = ("b", "h", "kv_h", "q_start", "kv_start")  # what tells heads and sequences apart, besides lengths and inputs


class Kept:
    """The keep lines of one variant, over parts of its calls."""

    def __init__(self, variant: Variant) -> None:
        self._condition = keep_condition(variant)
        read = frozenset[str]() if self._condition is None else reads(variant, self._condition)
        self._of_each = not read.isdisjoint((*_PLACES, *(item.name for item in variant.inputs)))
        self._known: dict[tuple[object, ...], NDArray[np.bool_]] = {}

    def of(self, environment: Environment) -> NDArray[np.bool_] | None:
        """Bool that broadcasts over the heads and positions of the environment; None where all is kept."""
        environment = Environment(environment.symbols, environment.inputs, environment.lets, MASK_FLOAT)
        if self._condition is None or self._of_each:
            return None if self._condition is None else evaluate(self._condition, environment)
        values = {name: np.asarray(value) for name, value in environment.symbols.items() if name not in _PLACES}
        key = tuple(value.tobytes() for value in values.values())
        if key not in self._known:
            found = evaluate(self._condition, environment)
            if sum(kept.size for kept in self._known.values()) + found.size > _MOST_PAIRS:
                self._known.clear()
            self._known[key] = found
        return self._known[key]
