"""What is timed: a pass of a variant, sizes, random arrays. And a smaller call of the same, to be held against fp64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import plausible, reference, synthetic
from ..ir import Variant
from ..problem import Problem
from ..reference import Accuracy
from ..schedule.plan import KernelPlan
from .small_call import small_problem

Array = NDArray[Any]


@dataclass(frozen=True)
class Work:
    """`given`: the inputs that the user brought, by name; the others are drawn as models bring them."""

    variant: Variant
    problem: Problem
    dtype: str
    pass_name: str
    given: Mapping[str, Any]
    seed: int = 0

    @property
    def is_backward(self) -> bool:
        return self.pass_name.startswith("backward")

    @property
    def deterministic(self) -> bool:
        """Of backward calls: only those launch kernels of the pass `backward_dq` in any family and dtype."""
        return self.pass_name == "backward_dq"

    @cached_property
    def inputs(self) -> dict[str, Any]:
        found: dict[str, Any] = plausible.arrays(self.variant, self.problem, self.seed, self.given)
        return found

    @cached_property
    def qkv(self) -> tuple[Array, Array, Array]:
        return _qkv(self.problem, self.dtype, self.seed)

    @cached_property
    def dout(self) -> Array:
        """The gradient of out."""
        return _dout(self.problem, self.qkv[0].dtype, self.seed + 1)

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.variant.dropout is None else {"seed": self.seed}

    def smaller(self, plan: KernelPlan | None = None, resident: int = 0) -> Work:
        """With few enough pairs for dense attention in fp64: what is held against that of a plan's kernel, of which the
        GPU holds `resident` thread blocks at once. Arrays that the user brought are drawn anew."""
        problem = small_problem(self.problem, plan, resident, ordered=self.deterministic)
        scalars = {name: value for name, value in self.given.items() if np.ndim(value) == 0}
        return replace(self, problem=problem, given=scalars)


@lru_cache(maxsize=1)  # who counts bytes makes many calls of one problem, one after the other
def _qkv(problem: Problem, dtype: str, seed: int) -> tuple[Array, Array, Array]:
    return synthetic.qkv(problem, dtype, np.random.default_rng(seed))


@lru_cache(maxsize=1)
def _dout(problem: Problem, dtype: np.dtype[Any], seed: int) -> Array:
    drawn: Array = np.random.default_rng(seed).standard_normal(problem.out_shape, np.float32)
    return drawn.astype(dtype)


@dataclass(frozen=True)
class Oracle:
    """What a call should give: of a forward pass out, of a backward pass dq, dk and dv."""

    work: Work

    def judge(self, found: Sequence[Array]) -> str:
        """Why a result is further off than rounding explains; empty if it isn't."""
        for name, own, plain, exact in zip(self._names, found, *self.wanted, strict=True):
            if not np.isfinite(own.astype(np.float64)).all() and np.isfinite(exact).all():
                return f"wrong: {name} isn't finite"
            accuracy = reference.accuracy(own, plain, exact, self.work.dtype)
            if not self._holds(accuracy) and np.isfinite(plain.astype(np.float64)).all():
                return f"wrong: {name}: {accuracy}"
        return ""

    def _holds(self, accuracy: Accuracy) -> bool:
        """The rule; of gradients, which are sums of more roundings than the rule's baseline has, twice its mean."""
        mean_limit = 2 * accuracy.baseline_mean_error + accuracy.allowance / 10
        of_gradients = accuracy.max_error <= accuracy.max_limit and accuracy.mean_error <= mean_limit
        return of_gradients if self.work.is_backward else accuracy.holds

    @property
    def _names(self) -> tuple[str, ...]:
        return ("dq", "dk", "dv") if self.work.is_backward else ("out",)

    @cached_property
    def wanted(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """As an unfused implementation has it, and in fp64."""
        work, call = self.work, self.work.inputs | self.work.options
        if not work.is_backward:
            plain, _ = reference.baseline(work.variant, *work.qkv, **call)
            exact, _ = reference.forward(work.variant, *work.qkv, **call)
            return (plain,), (exact,)
        arrays = work.dout, *work.qkv
        rounded = reference.baseline_backward(work.variant, *arrays, **call)
        true = reference.backward(work.variant, *arrays, **call)
        return (rounded.dq, rounded.dk, rounded.dv), (true.dq, true.dk, true.dv)
