"""Random variants on the emulated GPU: each kernel that may run them, against the dense reference in fp64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from attncc import reference
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.kernels.candidates import make_candidates
from attncc.kernels.registry import backward_facts, forward_facts
from attncc.schedule.plan import SPLIT, Build, KernelPlan, OwnKernel
from attncc.schedule.schedule import Schedule
from tests.emulator import kernel
from tests.emulator.attention import THREAD_BLOCKS, Call, forward
from tests.emulator.backward import Results, backward
from tests.random_variants.calls import HEADS, RandomCall, draws, parsed, random_call, random_problem, sorts
from tests.random_variants.findings import Finding
from tests.random_variants.judgement import backward_faults, forward_faults
from tests.random_variants.variants import random_variant
from tests.random_variants.workers import Job

LENGTHS = (1, 7, 33, 64, 90, 130)
GROUPS = (*HEADS, (7, 1), (8, 2), (16, 1), (10, 2), (65, 1))  # that a tile holds some queries of, one, or none
SPLIT_KEYS = (1, 7, 64, 130, 200, 300)
DECODE_LENGTHS, DECODE_KEYS = (1, 2, 3, 7, 64, 130), (1, 7, 64, 130, 200, 400, 600)  # several tiles for each block


@dataclass(frozen=True)
class Trial:
    """One kernel, or two that share a backward pass, for a variant."""

    kind: str
    variant: Variant
    plan: KernelPlan
    dq_plan: KernelPlan | None = None
    ordered: bool = False
    blocks: int = THREAD_BLOCKS  # of decode
    splits: int = 1
    order: int = 0  # in which those run (device.hpp)

    def _paired(self) -> bool:
        """Whether two thread blocks share loads."""
        if self.plan.is_backward:
            return backward_facts(self.plan).uses_clusters
        return forward_facts(self.plan).uses_clusters

    def faults(self, given: RandomCall) -> Iterator[str]:
        call = Call(
            given.q, given.k, given.v, given.cu, scale=given.scale, seed=given.seed,
            paired=self._paired(), blocks=self.blocks, splits=self.splits, order=self.order, inputs=given.inputs,
        )  # fmt: skip
        if not self.plan.is_backward:
            out, lse = forward(self.plan, call)
            yield from forward_faults(self.variant, given, out, lse, self.plan.dtype)
            return
        exact, exact_lse = reference.forward(self.variant, given.q, given.k, given.v, **given.arguments)
        kept = None if exact_lse is None else exact_lse.astype(np.float32)
        results = Results(given.dout, exact.astype(given.q.dtype), kept, given.dlse)
        found = backward(self.plan, self.dq_plan, call, results, ordered=self.ordered)
        yield from backward_faults(self.variant, given, found, self.plan.dtype)


@dataclass(frozen=True)
class _Wanted:
    """A kernel that may be: `settings` are those of its schedule."""

    variant: Variant
    dtype: str
    head_dims: tuple[int, int]
    settings: dict[str, Any]
    random: Random

    def plan(
        self,
        pass_name: str,
        target: str,
        settings: dict[str, Any] | None = None,
        most: int = 1,
        own: OwnKernel | None = None,
    ) -> KernelPlan:
        """One of the first so many that the compiler would try. `own`: for calls with such a kernel."""
        chosen = self.settings if settings is None else settings
        named = tuple((name, (value,)) for name, value in chosen.items())
        build = Build(pass_name, target, self.dtype, *self.head_dims, **(own or OwnKernel())._asdict())
        schedule = Schedule("asked", self.variant.name, pass_name, target, named)
        plans = list(islice(make_candidates(self.variant, build, schedule).plans(), most))
        return self.random.choice(plans)

    def portable(self) -> Trial:
        return Trial("portable", self.variant, self.plan("forward", self.random.choice(("sm_80", "sm_90"))))

    def hopper(self) -> Trial:
        return Trial("hopper", self.variant, self.plan("forward", "sm_90a"))

    def hopper_splits(self) -> Trial:
        """The kernel for few blocks of queries: heads of a group in one tile."""
        plan = self.plan("forward", "sm_90a", own=SPLIT)
        return Trial("hopper splits", self.variant, plan, splits=self.random.choice((1, 2, 3, 5)))

    def decode(self) -> Trial:
        blocks, order = self.random.choice((1, 2, 3, 4, 7)), self.random.randrange(4)
        return Trial("decode", self.variant, self.plan("decode", "sm_90"), blocks=blocks, order=order)

    def portable_backward(self) -> Trial:
        target = self.random.choice(("sm_80", "sm_90"))
        plan, dq_plan = self.plan("backward", target, most=4), self.plan("backward_dq", target, {}, most=4)
        apart = self.dtype == "fp32" or self.random.random() < 0.5
        return Trial("portable backward", self.variant, plan, dq_plan if apart else None)

    def hopper_backward(self) -> Trial:
        plan = self.plan("backward", "sm_90a", most=4)
        return Trial("hopper backward", self.variant, plan, ordered=self.random.random() < 0.4)


_MAKERS: dict[str, Callable[[_Wanted], Trial]] = {
    "portable": _Wanted.portable,
    "hopper": _Wanted.hopper,
    "hopper splits": _Wanted.hopper_splits,
    "decode": _Wanted.decode,
    "portable backward": _Wanted.portable_backward,
    "hopper backward": _Wanted.hopper_backward,
}
KINDS = tuple(_MAKERS)


def trial(kind: str, variant: Variant, dtype: str, head_dims: tuple[int, int], random: Random) -> Trial | None:
    """With random tiles where they can be, else those by default. None where there is no such kernel."""
    family = {} if kind == "decode" else {"family": kind.split(maxsplit=1)[0]}
    if "portable" in kind and random.random() < 0.25:
        dtype = "fp32"
    for settings in ({**_settings(kind, random), **family}, {**_settings(kind, random), **family}, family):
        try:
            return _MAKERS[kind](_Wanted(variant, dtype, head_dims, settings, random))
        except AttnccError:
            continue
    return None


def _settings(kind: str, random: Random) -> dict[str, Any]:
    """Small tiles: what is emulated takes long."""
    choose = random.choice
    match kind:
        case "portable":
            warps = choose((1, 2, 4))
            loop = choose(("q_outer", "q_outer", "q_outer", "kv_outer"))
            tile = {"warps": warps, "block_q": warps * choose((16, 32, 32, 48, 64))}
            return {**tile, "block_kv": choose((16, 32, 64)), "stages": choose((1, 2, 3)), "loop": loop}
        case "hopper" | "hopper splits":
            tile = {"block_q": choose((64, 64, 128)), "block_kv": choose((16, 32, 48, 64, 128))}
            return {**tile, "stages": choose((1, 2, 3))}
        case "portable backward":
            warps = choose((1, 2, 4))
            tile = {"warps": warps, "block_kv": warps * choose((16, 16, 32)), "block_q": choose((16, 32, 64))}
            return {**tile, "stages": choose((1, 2))}
        case "hopper backward":
            return {"block_kv": choose((64, 128, 256))} if random.random() < 0.7 else {}
    return {}


def job(kinds: tuple[str, ...] = KINDS) -> Job:
    """For processes that share what is compiled once, in the folder of temporary files."""
    kernel.prepare()
    return Job(check, forget, kinds)


def forget(seed: int) -> None:
    """Removes what the kernels of a variant were compiled to."""
    for path in kernel.prepare().glob(f"random_{seed}_*"):
        path.unlink()


def check(seed: int, kind: str) -> Finding | bool:
    """Runs one kind of kernel for the variant of a seed: what is wrong, or whether there is such a kernel.

    A defect shows in every draw of the arrays; chance, which breaks the rule of few numbers now and then, doesn't.
    """
    random = Random(f"{seed} {kind}")
    made = random_variant(seed)
    dtype, head_dims = sorts(random)
    found = trial(kind, parsed(made), dtype, head_dims, random)
    if found is None:
        return False
    packs = made.packs and random.random() < 0.3
    lengths, kv_lengths, groups = (
        (DECODE_LENGTHS, DECODE_KEYS, HEADS) if kind == "decode" else (LENGTHS, LENGTHS, HEADS)
    )
    if kind == "hopper splits":
        groups, kv_lengths = GROUPS, SPLIT_KEYS
    problem = random_problem(random, head_dims, packs=packs, lengths=lengths, kv_lengths=kv_lengths, groups=groups)
    faults: tuple[str, ...] = ()
    for draw in range(draws(problem)):
        given = random_call(found.variant, problem, found.plan.dtype, seed, draw)
        faults = tuple(found.faults(given))
        if not faults:
            return True
    return Finding(seed, kind, f"{found.plan.tiles}, {found.plan.dtype}, {head_dims}, {problem}", faults)
