"""Which of the configurations that a kernel was built for serves a call."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnostics import AttnccError, Diagnostic
from ..problem import ArrayFacts
from ..problem.facts import KERNEL_DTYPES
from .store import Configuration


def configuration_of(variant: str, built: Sequence[Configuration], q: ArrayFacts, v: ArrayFacts) -> Configuration:
    """The configuration that q's dtype and the head dims ask for; the only one where there is but one.

    AttnccError A506 if there are several and none fits. Whether the call suits it in all else is for `bind` to say.
    """
    if len(built) == 1 or not (q.shape and v.shape):
        return built[0]
    for configuration in built:
        wanted = (KERNEL_DTYPES[configuration.dtype], configuration.head_dim, configuration.value_head_dim)
        if wanted == (q.dtype, q.shape[-1], v.shape[-1]):
            return configuration
    raise AttnccError(_not_built(variant, built, q, v))


def _not_built(variant: str, built: Sequence[Configuration], q: ArrayFacts, v: ArrayFacts) -> Diagnostic:
    names = {name: short for short, name in KERNEL_DTYPES.items()}
    dims = f"{q.shape[-1]}" if q.shape[-1] == v.shape[-1] else f"{q.shape[-1]}:{v.shape[-1]}"
    options = f"--dtype {names[q.dtype]} --head-dim {dims}" if q.dtype in names else f"--head-dim {dims}"
    return Diagnostic(
        "A506",
        f"{variant} was not built for {q.dtype} with head dim {dims}",
        notes=("it was built for " + ", ".join(item.name for item in built),),
        help=f"build it: attncc build FILE {options}",
    )
