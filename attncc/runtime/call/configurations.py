"""Which of the configurations that a kernel was built for serves a call."""

from __future__ import annotations

from collections.abc import Sequence

from ...diagnostics import AttnccError, Diagnostic
from ...problem import ArrayFacts
from ...problem.facts import KERNEL_DTYPES
from ...schedule.plan import MOST_HEAD_DIM, MOST_VALUE_HEAD_DIM
from ..store.store import Configuration

_RANKS = (3, 4)  # of packed batches, and of others; `bind` refuses other ones first


def configuration_of(variant: str, built: Sequence[Configuration], q: ArrayFacts, v: ArrayFacts) -> Configuration:
    """The configuration that q's dtype and the head dims ask for, or v's dtype if there is none for q's; the only one
    where there is but one.

    AttnccError A506 if there are several and none fits. Whether the call suits it in all else is for `bind` to say.
    """
    if len(built) == 1 or not all(len(facts.shape) in _RANKS for facts in (q, v)):
        return built[0]
    by_operands = {(KERNEL_DTYPES[item.dtype], item.head_dim, item.value_head_dim): item for item in built}
    for dtype in (q.dtype, v.dtype):
        found = by_operands.get((dtype, q.shape[-1], v.shape[-1]))
        if found is not None:
            return found
    raise AttnccError(_not_built(variant, built, q, v))


def _not_built(variant: str, built: Sequence[Configuration], q: ArrayFacts, v: ArrayFacts) -> Diagnostic:
    names = {name: short for short, name in KERNEL_DTYPES.items()}
    own, of_values = q.shape[-1], v.shape[-1]
    dims = f"{own}" if own == of_values else f"{own}:{of_values}"
    if q.dtype == "float64":
        advice = "convert the arrays; fp64 can't be built, and runs on the CPU with attncc.compile(…, dtype='fp64')"
    elif q.dtype not in names:
        advice = f"convert the arrays: kernels can't be built for {q.dtype}"
    elif not (0 < own <= MOST_HEAD_DIM and 0 < of_values <= MOST_VALUE_HEAD_DIM):
        advice = f"head dims are from 1 to {MOST_HEAD_DIM}, those of values to {MOST_VALUE_HEAD_DIM}"
    else:
        advice = f"build it: attncc build FILE --dtype {names[q.dtype]} --head-dim {dims}"
    return Diagnostic(
        "A506",
        f"{variant} was not built for {q.dtype} with head dim {dims}",
        notes=("it was built for " + ", ".join(item.name for item in built),),
        help=advice,
    )
