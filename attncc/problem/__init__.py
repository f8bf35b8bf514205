"""What a call must bring, checked once for all back ends, and its sizes: `bind` makes a `Problem`."""

from .arrays import BoundCall, bind_arrays
from .bind import bind
from .call_arguments import Arguments, Call
from .facts import ArrayFacts, Signature
from .problem import Problem, Sequence
from .values import check_values, know_sequences

__all__ = [
    "Arguments",
    "ArrayFacts",
    "BoundCall",
    "Call",
    "Problem",
    "Sequence",
    "Signature",
    "bind",
    "bind_arrays",
    "check_values",
    "know_sequences",
]  # fmt: skip
