"""What launchers ask of the arrays that callers bring, as protocols: `arrays` finds the framework that answers.

Memory comes from the framework's own allocator and work goes to its own current stream, so that lifetime and order stay
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from ...ir import Variant
from ...problem.facts import ArrayFacts

Array = Any  # an array of the caller's framework


class Guard(NamedTuple):
    """Tells whether arrays have a form that it knows. Code that reads calls asks without a function around it."""

    alike: Callable[..., bool]
    modes: Sequence[tuple[Callable[[], Any], Any]] = ()  # what else has to be as it was: what tells it, and what it was

    def __call__(self, *arrays: Array) -> bool:
        return self.alike(*arrays) and all(ask() == was for ask, was in self.modes)


class Observer(Protocol):
    """What a call sees of its arrays."""

    def observe(self, arrays: Sequence[Array]) -> tuple[list[int], Hashable]:
        """Their pointers, and what their facts depend on: equal where all facts are."""

    def guard(self, arrays: Sequence[Array], *, new: bool = False) -> Guard | None:
        """What tells quickly whether others' facts are as those of these; None where nothing does, or not yet.

        `new`: one is made, however many such arrays came before.
        """


class Framework(Protocol):
    """What is asked of any array. Dtypes are NumPy's names, strides count elements."""

    def facts(self, array: Array) -> ArrayFacts: ...

    def ordinal(self, array: Array) -> int:
        """The number of the array's GPU; -1 for what isn't on one."""

    def traces(self) -> bool:
        """Whether torch.compile looks at a call instead of running it; as fast as can be told."""

    def records(self, variant: Variant, configurations: Sequence[Any], call: Any) -> bool:
        """Whether a call (`Arguments`) is to go through `autograd.recorded` first."""

    def written(self, array: Array) -> None:
        """Called after an array of the caller's was written in place, or a launch that does so was queued."""


class HostFramework(Framework, Protocol):
    """A framework whose arrays the CPU can read."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """The same memory as a NumPy array."""

    def from_numpy(self, array: NDArray[Any]) -> Array: ...


class DeviceFramework(Framework, Protocol):
    """A framework with arrays on a GPU."""

    def observer(self) -> Observer:
        """One for the calls of one kernel, which are often alike."""

    def pointer(self, array: Array) -> int: ...

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], Array]:
        """What makes uninitialised arrays without gaps, at least 16-byte aligned, from the framework's allocator.

        `order` has the axes as they lie in memory, the slowest first; None: contiguous.
        """

    def packed(self, array: Array, columns: int) -> Array:
        """A contiguous copy, its rows filled up with zeros to so many columns, made on the current stream."""

    def by_key_head(self, q: Array, kv_heads: int, layout: str, columns: int) -> Array:
        """A contiguous copy of q [kv_heads, batch, q_len, group, columns], rows filled up with zeros to so many
        columns, made on the current stream."""

    def narrowed(self, array: Array) -> Array:
        """A contiguous int32 copy of an int64 array, made on the current stream."""

    def assign(self, target: Array, source: Array) -> None:
        """Copies `source` into `target` on the current stream."""

    def add_up(self, target: Array, source: Array) -> None:
        """Sums `source` over its first axis into `target`, whose first axis has length 1, on the current stream."""

    def current_stream(self, ordinal: int) -> int:
        """The handle of the stream that the framework queues work on now."""

    def on_stream(self, handle: int, ordinal: int) -> AbstractContextManager[Any]:
        """Makes a stream the framework's current one."""

    def release(self, temporary: Sequence[Array], ordinal: int) -> None:
        """Called before the temporary arrays of a call are let go, all its work queued on the current stream."""


def by_key_head_axes(layout: str) -> tuple[int, tuple[int, ...]]:
    """The axis of q's heads, which becomes one of key heads and one of groups; the order of all axes after that."""
    return (1, (1, 0, 3, 2, 4)) if layout == "bhsd" else (2, (2, 0, 1, 3, 4))
