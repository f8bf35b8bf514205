"""Backward calls with NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import BoundCall, array_facts, bind_arrays
from .call_arguments import Call
from .facts import Signature
from .gradients import Results, bind_results
from .problem import Sequence

Array = NDArray[Any]


@dataclass(frozen=True)
class BoundBackward:
    """A checked backward call. `out` and `lse` are None where the reference computes them again, `lse` also without
    softmax; `dlse` None stands for zeros."""

    call: BoundCall
    dout: Array
    out: Array | None
    lse: Array | None
    dlse: Array | None

    def of_lse(self, array: Array | None, sequence: Sequence) -> Array:
        """One sequence's rows [heads, q_len] of lse or dlse; zeros for None."""
        if array is None:
            return np.zeros((self.call.problem.num_heads, sequence.q_len))
        return self.call.lse_rows(array, sequence)


def bind_backward_arrays(
    signature: Signature,
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    /,
    *,
    out: Array | None = None,
    lse: Array | None = None,
    dlse: Array | None = None,
    **call: Any,
) -> BoundBackward:
    """Checks a backward call; `call` holds the keyword arguments of `bind_arrays`. AttnccError A6xx."""
    bound = bind_arrays(signature, q, k, v, **call)
    results = Results(
        array_facts("dout", dout),
        None if out is None else array_facts("out", out),
        None if lse is None else array_facts("lse", lse),
        None if dlse is None else array_facts("dlse", dlse),
    )
    operands = Call(array_facts("q", q), array_facts("k", k), array_facts("v", v))
    bind_results(signature, operands, bound.problem, results)
    return BoundBackward(bound, dout, out, lse, dlse)
