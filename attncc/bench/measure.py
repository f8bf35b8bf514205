"""One case: candidates are made, checked against fp64, and timed in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..runtime.cuda.timing import Launch, Stopwatch, Timing, compare, in_turns, ratio
from . import flex
from .candidates import Candidate, Unable, launch_of, result_of, why
from .case import Arrays, Case
from .form import form_of
from .oracle import Result, exact, limit, relative_error
from .peers import PEERS

OWN = "attncc"


@dataclass(frozen=True)
class Row:
    """What became of one candidate. `trouble` says why it wasn't timed; `wrong`: its result is off by more than
    rounding."""

    name: str
    how: str = ""
    trouble: str = ""
    wrong: bool = False
    relative_error: float | None = None
    timing: Timing | None = None
    tflops: float | None = None
    times_own: float | None = None  # as long as attncc
    times_own_interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        timing = self.timing
        more = {} if timing is None else {"interval": timing.interval, "host_bound": timing.host_bound}
        found = {**asdict(self), "timing": None if timing is None else {**asdict(timing), **more}}
        error = self.relative_error
        return found | {"relative_error": None if error is None or not math.isfinite(error) else error}


@dataclass(frozen=True)
class Measured:
    """The rows of a case, attncc's first."""

    case: Case
    kept_pairs: int
    copies: int
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        problem = self.case.problem
        return {
            "variant": self.case.variant.name,
            "problem": asdict(problem),
            "dtype": self.case.dtype,
            "pass": self.case.pass_name,
            "kept_pairs": self.kept_pairs,
            "pairs": problem.batch * problem.num_heads * problem.q_len * problem.kv_len,
            "useful_flops": self.case.useful_flops(self.kept_pairs),
            "copies": self.copies,
            "flex": self.case.text.text,
            "rows": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class Bench:
    """What cases have in common. `call`: attncc's kernel, of q, k, v and inputs."""

    call: Callable[..., Any]
    against: tuple[str, ...]
    stopwatch: Stopwatch
    rounds: int = 9

    def measure(self, case: Case) -> Measured:
        """Each candidate that agrees with fp64, in turns with the others."""
        arrays, form = Arrays.of(case), form_of(case)
        wanted = exact(case, arrays)
        given = case.given()
        own = Candidate(OWN, "", lambda q, k, v: self.call(q, k, v, **given))
        rows, launches = dict[str, Row](), dict[str, Launch]()
        for name, found in ((OWN, lambda: [own]), *((name, _peer(name, case, form)) for name in self.against)):
            rows[name], launch = self._settled(name, found, case, arrays, wanted)
            launches |= {} if launch is None else {name: launch}
        timings = compare(launches, self.stopwatch, rounds=self.rounds) if launches else {}
        kept = case.kept_pairs()
        flops = case.useful_flops(kept)
        timed = (_timed(rows[name], timings, flops) for name in rows)
        return Measured(case, kept, len(arrays.copies), tuple(timed))

    def _settled(
        self, name: str, found: Callable[[], list[Candidate]], case: Case, arrays: Arrays, wanted: Result
    ) -> tuple[Row, Launch | None]:
        """The fastest of a peer's candidates that are right, or why there is none."""
        try:
            candidates = found()
        except Unable as error:
            return Row(name, trouble=str(error)), None
        except Exception as raised:  # as where FlexAttention's block mask doesn't fit the memory
            return Row(name, trouble=why(raised)), None
        rows, right = list[tuple[Row, Candidate]](), list[tuple[Row, Candidate]]()
        for last_resort in (False, True):
            tried = [candidate for candidate in candidates if candidate.last_resort == last_resort]
            rows += [] if right else _checked(tried, case, arrays, wanted)
            right = [(row, candidate) for row, candidate in rows if not row.trouble]
        if not right:
            return max((row for row, _ in rows), key=lambda row: row.wrong), None
        launches = {candidate.how: launch_of(candidate, case, arrays) for _, candidate in right}
        best = self._fastest(launches)
        return next(row for row, candidate in right if candidate.how == best), launches[best]

    def _fastest(self, launches: Mapping[str, Launch]) -> str:
        if len(launches) == 1:
            return next(iter(launches))
        quick = in_turns(launches, self.stopwatch, rounds=3, window_ms=15)
        return min(launches, key=lambda how: sorted(quick[how])[1])


def _peer(name: str, case: Case, form: Any) -> Callable[[], list[Candidate]]:
    return lambda: PEERS[name](case, form)


def _checked(
    candidates: Iterable[Candidate], case: Case, arrays: Arrays, wanted: Result
) -> Iterator[tuple[Row, Candidate]]:
    """Each with its error, or with what it raised."""
    for candidate in candidates:
        try:
            error = relative_error(case, result_of(candidate, case, arrays), wanted)
            if candidate.name == "flex" and case.device != "cpu":
                flex.check_fused(launch_of(candidate, case, arrays), arrays.copies[0])
        except Unable as unable:
            yield Row(candidate.name, candidate.how, str(unable)), candidate
        except Exception as raised:  # whatever torch, Inductor and CuTe DSL raise for what they don't support
            if candidate.name == OWN:
                raise
            yield Row(candidate.name, candidate.how, why(raised)), candidate
        else:
            yield _judged(candidate, error, case), candidate
        if case.device != "cpu":
            torch.cuda.empty_cache()


def _judged(candidate: Candidate, error: float, case: Case) -> Row:
    if error <= limit(case):
        return Row(candidate.name, candidate.how, relative_error=error)
    trouble = f"wrong: off by {error:.2g} of fp64 attention (limit {limit(case):g}); not timed"
    return Row(candidate.name, candidate.how, trouble, True, error)


def _timed(row: Row, timings: Mapping[str, Timing], flops: float) -> Row:
    timing = timings.get(row.name)
    if timing is None:
        return row
    times, interval = ratio(timing, timings[OWN]) if OWN in timings else (None, None)
    values: dict[str, Any] = {**vars(row), "timing": timing, "tflops": flops / timing.milliseconds * 1e-9}
    return Row(**{**values, "times_own": times, "times_own_interval": interval})
