"""Which of the plans that a kernel may have it gets: the first that is good, found by trying.

A plan is good if ptxas neither spills registers nor serialises products, and if its code isn't long. Where a family has
no good plan, one with few spills is taken before a slower family is tried. Candidates compile
beside each other, and those that aren't needed any more are ended. No choice is made twice: shipped kernels have theirs
in a table (`kernels.known_tiles`), and what was tried is kept in the cache (`runtime.store.choices`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

from .codegen.render import KernelSource, render
from .diagnostics import AttnccError, Diagnostic
from .kernels.candidates import Candidates
from .kernels.registry import facts_of, family_of
from .machine_code import Compiled, compiled, submit
from .runtime.cuda.nvrtc import Cubin
from .runtime.cuda.nvrtc_pool import abandon
from .runtime.store.choices import Tried, hash_of, recall, remember
from .schedule.plan import KernelPlan
from .schedule.target import TARGETS

# Longer code isn't good, if any other is: a quiet core compiles 5,000 to 7,000 instructions a second, and a kernel
# should take about a second, or of a backward pass two.
LONGEST_CODE = {False: 7_000, True: 14_000}  # instructions, by whether the pass is a backward one
LONGEST_WIDE_CODE = 10_000  # of wide heads: it has the loop twice, and smaller tiles make it little shorter, but slow
# Bytes of spills, stored and loaded, that a backward pass may have: 64 instructions of the 3,000 and more of a tile. A
# slower family takes twice the time. Measured up to 64 bytes: docs/notebook/2026-11-spills.md.
FEW_SPILLS = 256
MOST_AT_ONCE = 3  # more candidates than that a kernel seldom needs
MOST_TOO_LONG = 2  # candidates of a kernel that the compiler is ended for: others would take as long
# What says of a candidate that it can't be, while others may: more shared memory than there is, too much time or memory
# for NVRTC, and two accounts of what it takes that differ.
_NOT_JUDGED = {"A406", "A907", "A908", "A909"}


@dataclass(frozen=True)
class Settled:
    """The plan that a kernel got, compiled, and by their tiles those before it that can't be or were rejected."""

    plan: KernelPlan
    source: KernelSource
    compiled: Compiled
    rejected: Mapping[str, str]  # why
    names_tiles: bool = False  # the schedule does: there was no choice
    known: bool = False  # a table named the tiles, which are good

    @property
    def troubles(self) -> str:
        return troubles(self.compiled, self.plan)

    @property
    def serves(self) -> bool:
        """Whether it is good, or has so few spills that it needn't be."""
        return serves(self.compiled, self.plan)

    @property
    def why(self) -> str:
        """Why it is this plan, and what is wrong with it, if anything is."""
        if self.names_tiles:
            return f"the schedule names its tiles; {self.troubles or 'no spills'}"
        if self.troubles:
            those = "tiles of the fastest family" if self.serves else "tiles"
            return f"of all {those} these have least trouble: {self.troubles}"
        if self.known:
            return "chosen when the table of shipped kernels was made; no spills"
        return "the first legal candidate without spills" if self.rejected else "the first guess: no spills"

    def report(self) -> dict[str, Any]:
        """What a package's manifest says of it."""
        choice = {"tiles": self.plan.tiles, "why": self.why, "rejected": dict(self.rejected)}
        return self.compiled.report(self.plan.target) | {"choice": choice, "calls": facts_of(self.plan).calls}


class _Attempt(NamedTuple):
    """A candidate that was compiled, or why it couldn't be."""

    plan: KernelPlan
    source: KernelSource
    found: Compiled | AttnccError

    @property
    def troubles(self) -> str:
        if isinstance(self.found, AttnccError):
            return self.found.diagnostics[0].message
        return troubles(self.found, self.plan)

    @property
    def took_too_long(self) -> bool:
        return isinstance(self.found, AttnccError) and self.found.diagnostics[0].code == "A907"

    @property
    def serves(self) -> bool:
        return isinstance(self.found, Compiled) and serves(self.found, self.plan)


def settle(candidates: Candidates, at_once: int = 1, *, use_table: bool = True) -> Settled:
    """The first good plan, or one with few spills where only slower families are left; if none is, the one with least
    trouble. `at_once`: how many candidates compile together.

    AttnccError as `Candidates.plans` and `nvrtc.submit`.
    """
    if use_table and candidates.known is not None:
        attempt = _attempt(candidates.known, _rendered(candidates.known))
        if isinstance(attempt.found, Compiled) and not attempt.troubles:
            rejected = candidates.refused_before(attempt.plan)
            return Settled(attempt.plan, attempt.source, attempt.found, rejected, known=True)
    texts = _Texts(candidates)
    kept = recall(texts.first.text, candidates.build.target)
    if kept is not None and texts.are(kept):
        return _remembered(candidates, texts, kept)
    return _tried(candidates, texts, at_once)


class _Texts:
    """The plans of a kernel and their texts, made as they are asked for."""

    def __init__(self, candidates: Candidates) -> None:
        self._plans = candidates.plans()
        self._made: list[tuple[KernelPlan, KernelSource]] = []

    @property
    def first(self) -> KernelSource:
        found = self.get(0)
        assert found is not None, "a kernel without plans is an error"
        return found[1]

    def get(self, number: int) -> tuple[KernelPlan, KernelSource] | None:
        while len(self._made) <= number:
            plan = next(self._plans, None)
            if plan is None:
                return None
            self._made.append((plan, _rendered(plan)))
        return self._made[number]

    def are(self, tried: Tried) -> bool:
        """Whether it is these that were tried."""
        found = map(self.get, range(len(tried.texts)))
        pairs = zip(found, tried.texts, strict=True)
        return all(item is not None and hash_of(item[1].text) == text for item, text in pairs)

    def family_ends(self, number: int) -> bool:
        """Whether the plan of this number, if there is one, is another family's than the one before."""
        before, after = self.get(number - 1), self.get(number)
        return before is not None and after is not None and family_of(before[0]) is not family_of(after[0])

    def attempts(self, at_once: int) -> Iterator[_Attempt]:
        """What becomes of each, in order; the next ones compile meanwhile. Those that nobody waits for are ended."""
        begun: list[Future[Cubin]] = []
        number = 0
        try:
            while (item := self.get(number)) is not None:
                for ahead in range(len(begun), number + at_once):
                    if (coming := self.get(ahead)) is not None:
                        begun.append(submit(coming[1], coming[0].target))
                yield _attempt(*item, begun[number])
                number += 1
        finally:
            for future in begun:
                abandon(future)


def _remembered(candidates: Candidates, texts: _Texts, kept: Tried) -> Settled:
    chosen, rejected = texts.get(kept.chosen), {}
    assert chosen is not None
    for number, why in enumerate(kept.troubles):
        item = texts.get(number)
        if item is not None and number != kept.chosen:
            rejected[item[0].tiles] = why
    plan, source = chosen
    rejected = candidates.refused_before(plan) | rejected
    return Settled(plan, source, compiled(source, plan.target), rejected, candidates.names_tiles)


def _tried(candidates: Candidates, texts: _Texts, at_once: int) -> Settled:
    attempts: list[_Attempt] = []
    for attempt in texts.attempts(min(at_once, MOST_AT_ONCE)):
        attempts.append(attempt)
        if sum(item.took_too_long for item in attempts) == MOST_TOO_LONG:
            break
        if not attempt.troubles or (texts.family_ends(len(attempts)) and any(item.serves for item in attempts)):
            break
    best = min(attempts, key=_badness)
    if isinstance(best.found, AttnccError):
        raise best.found
    target, number = best.plan.target, attempts.index(best)
    if len(attempts) > 1:
        remember([item.source.text for item in attempts], target, [item.troubles for item in attempts], number)
    rejected = {item.plan.tiles: item.troubles for item in attempts if item is not best}
    rejected = candidates.refused_before(best.plan) | rejected
    return Settled(best.plan, best.source, best.found, rejected, candidates.names_tiles)


_rendering = Lock()  # threads that render at once, which Python runs by turns, would all begin to compile late


def _rendered(plan: KernelPlan) -> KernelSource:
    with _rendering:
        return render(plan)


def _attempt(plan: KernelPlan, source: KernelSource, begun: Future[Cubin] | None = None) -> _Attempt:
    try:
        found = compiled(source, plan.target, begun)
        _check_shared_memory(found, plan)
        return _Attempt(plan, source, found)
    except AttnccError as error:
        if not _NOT_JUDGED.issuperset(item.code for item in error.diagnostics):
            raise
        return _Attempt(plan, source, error)


def _check_shared_memory(found: Compiled, plan: KernelPlan) -> None:
    """AttnccError A406 for a kernel that no driver would load: what a variant's own values take of shared memory is
    known when they are compiled."""
    tiles, rest, limit = found.code.shared_bytes, found.resources.shared_bytes, TARGETS[plan.target].shared_bytes
    if tiles + rest > limit:
        what = f"the tiles take {tiles} bytes of shared memory, the rest of the kernel {rest}"
        raise AttnccError(
            Diagnostic(
                "A406",
                f"{what}; {plan.target} lends a block {limit}",
                plan.variant.span,
                notes=(f"the rest holds what the lines of {plan.variant.name} ask of all pairs of a block",),
                help="choose smaller tiles or fewer stages, or let the lines read fewer inputs",
            )
        )


def longest_code(plan: KernelPlan) -> int:
    """Instructions that a kernel may have, if others have fewer."""
    return LONGEST_WIDE_CODE if plan.build.is_wide else LONGEST_CODE[plan.is_backward]


def serves(found: Compiled, plan: KernelPlan) -> bool:
    """Whether it has no trouble, or, in a backward pass, few spills and no other."""
    resources = found.resources
    few = resources.spill_stores + resources.spill_loads <= FEW_SPILLS * plan.is_backward
    return few and not resources.losses and found.instructions <= longest_code(plan)


def troubles(found: Compiled, plan: KernelPlan) -> str:
    """What costs the kernel much of its speed, or is slow to compile; empty if nothing does."""
    stored, loaded = found.resources.spill_stores, found.resources.spill_loads
    spills = [f"{stored} bytes of spills stored and {loaded} loaded"] if stored or loaded else []
    most, length = longest_code(plan), found.instructions
    long = [f"{length:,} instructions, more than {most:,}, take long to compile"] if length > most else []
    return "; ".join([*spills, *found.resources.losses, *long])


def _badness(attempt: _Attempt) -> tuple[bool, int, int, int]:
    if isinstance(attempt.found, AttnccError):
        return True, 10**9, 0, 0
    resources, excess = attempt.found.resources, attempt.found.instructions - longest_code(attempt.plan)
    return not attempt.serves, len(resources.losses), resources.spill_stores + resources.spill_loads, max(excess, 0)
