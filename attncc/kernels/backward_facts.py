"""What follows from the plan of a backward pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from .. import ir
from ..problem import Problem
from ..schedule.plan import FRAGMENT
from .facts import Facts
from .parameters import (
    ELEMENT_TYPES,
    Parameter,
    call_fields,
    field_name,
    gradient_name,
    ints,
    ordered,
    pointers,
    strides,
    variant_fields,
)


class BackwardFacts(Facts):
    """Of a kernel of a backward pass."""

    @property
    def adds_dq(self) -> bool:
        """Whether the kernel can add up dQ too, over thread blocks, in fp32."""
        return self.plan.owns_keys and self.plan.dtype != "fp32"

    @property
    def orders_dq(self) -> bool:
        """Whether it can add that up in one order, whatever order its thread blocks run in."""
        return False

    @property
    def scales_dq_sum(self) -> bool:
        """Whether the sum of dQ is still without the scale that the call brings."""
        return False

    @property
    def separates_dq(self) -> bool:
        return self.plan.owns_keys and not self.orders_dq

    @property
    def needs_delta(self) -> bool:
        """Whether the kernel reads lse and delta = rowsum(dO O) of each row."""
        return self.plan.variant.normalize == "softmax"

    @property
    def row_alignment(self) -> int:
        """What is kept of the rows of a sequence and head fills up a multiple of this many."""
        return FRAGMENT

    @property
    def row_format(self) -> str:
        """How what is kept of rows lies in memory, as part of the names of kernels that know it."""
        return ""

    @property
    def statistics_format(self) -> str:
        """The same, of lse and delta alone."""
        return ""

    @property
    @abstractmethod
    def statistics_bytes(self) -> int:
        """Of a row, for lse and delta."""

    @property
    @abstractmethod
    def statistics(self) -> str:
        """The leaf file that stores what the backward pass needs of each row."""

    @property
    def counts_finished(self) -> bool:
        """Whether the kernel that rounds dQ may begin early, and waits for those that still add to it."""
        return False

    @property
    def stores_dq_first(self) -> bool:
        """Whether the sum of dQ begins without zeros where it has no order: the first of each part is stored."""
        return False

    @property
    def adds_pairs_twice(self) -> bool:
        """Whether gradients of entries that a pair reads are added up for neighbouring pairs before."""
        return False

    @property
    def learns(self) -> bool:
        """Whether there are inputs to get a gradient."""
        return self.plan.owns_keys and any(item.learnable for item in self.plan.variant.inputs)

    @property
    def learned(self) -> tuple[ir.Input, ...]:
        """The learnable inputs whose gradient the kernel adds up: those that score lines read."""
        if not self.plan.owns_keys:
            return ()
        from ..analysis.score.gradient import gradient  # forward calls of built kernels needn't load that

        read = {item.input for item in gradient(self.plan.variant).inputs}
        return tuple(item for item in self.plan.variant.inputs if item.name in read)

    @property
    def learned_sink(self) -> ir.Input | None:
        """The sink, if it gets a gradient."""
        variant = self.plan.variant
        sink = None if variant.sink is None else variant.input(variant.sink)
        return sink if sink is not None and sink.learnable and self.learns else None

    @property
    def gradient_parts(self) -> int:
        """2 where one thread block makes dK and another dV."""
        return 1

    @property
    def uses_clusters(self) -> bool:
        """Whether two thread blocks whose keys are neighbours may share tiles of queries and columns of dQ."""
        return False

    def kept_rows(self, problem: Problem) -> int:
        """Rows of a head of which something is kept, those that fill up blocks included."""
        blocks = problem.q_blocks(self.row_alignment) if self.plan.grid_2d is None else self.q_blocks(problem)
        return blocks * self.row_alignment

    def parameters(self) -> tuple[Parameter, ...]:
        """Of the kernel, by name. `statistics` is null without a softmax; `dq_sum` is null where dQ isn't wanted of it.

        `dq_stored`: one word for each tile of that sum, 0 at first (first_stores.cuh); null where it begins with zeros.
        """
        return ordered(self._parameters())

    def _parameters(self) -> Iterator[Parameter]:
        plan, owns_keys, learned = self.plan, self.plan.owns_keys, self.learned
        element = ELEMENT_TYPES[plan.dtype]
        outputs = ("dk", "dv") if owns_keys else ("dq",)
        yield from pointers(f"const {element}", "q", "k", "v", "dout")
        yield from pointers(element, *outputs)
        yield from pointers("float", *["dq_sum"] * owns_keys)
        yield from pointers("const float", "statistics")
        if self.persistent:
            yield from pointers("int", "next_block", "dq_semaphore", "finished", *["dq_stored"] * self.stores_dq_first)
        yield from call_fields(plan.variant)
        for name in ("q", "k", "v", "dout", *outputs):
            yield from strides(name)
        yield from ints("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "row_blocks")
        yield from ints(*(("kv_blocks",) if owns_keys else ("q_blocks", "splits", "head_swizzle")))
        for item in learned:
            field = field_name(gradient_name(item.name))
            yield Parameter(field, "void*", item.name)
            for axis in range(len(item.axes)):
                yield Parameter(f"{field}_stride{axis}", "long long", item.name)
        yield from ints(*["exact"] * bool(learned))
        yield from ints(*["blocks", "head_swizzle"] * self.persistent)
        yield from variant_fields(plan)
