"""Which of some launches is the fastest, and whether it beats the one that is held: windows in turns, and statistics.

A GPU's clock drifts: it falls as the card warms up, and each kernel finds the clock that the one before left. So no two
times are compared that were taken far apart. A `Block` is three windows, A B A: the held launch, a challenger, the held
one again. The ratio of the middle one to the mean of the others is free of what drifts linearly. Windows are now and
then much too long (another process, an interrupt), so that medians of ratios count, with the intervals that order
statistics give: these ask nothing of the distribution.

`halve` finds the fastest: two blocks for all, after which those are out that lose by far in both; then more for those
whose interval touches the best's (successive halving, Jamieson and Talwalkar 2016). The fastest of many is fast by luck
as well. So `confirm` holds it against the held launch in fresh blocks, and beside it a twin of the held launch, whose
distance from 1 is the noise floor.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..runtime.cuda.timing import CONFIDENCE, Launch, Windows, median_interval

WINDOW_MS = 20.0  # of launches that are timed
SETTLE_MS = 10.0  # of the same launches before them, which settle the clock
WARM_S = 0.2  # until the clock is steady
GLANCE = 2  # blocks of each candidate, after which those go that lose by OBVIOUS in both
ROUNDS = 5, 10, 20  # blocks of each candidate that is left; after each round at most half as many are left
LOOKS = 15, 30, 60  # blocks of the two at the end; after each the matter may be settled
SURE = 0.999  # confidence of a win
LEAST_WIN = 0.005  # share of the time that a win must save: less isn't worth a line in a file
OBVIOUS = 0.05  # of each block of the race: who saves so much may be believed after a race that was cut short
HELD, TWIN = "held", "twin"  # names that stand for the launch that is held, and for another of the same kernel


class Clocked(Windows, Protocol):
    """What times windows, and tells how late it is."""

    def clock(self) -> float:
        """Seconds."""


@dataclass(frozen=True)
class Block:
    """Milliseconds of a launch in three windows: of the held launch, of a challenger, of the held one again."""

    before: float
    own: float
    after: float

    @property
    def ratio(self) -> float:
        """How often as long as the held launch."""
        return 2 * self.own / (self.before + self.after)


@dataclass
class Board:
    """The blocks of each launch: of the race, and those that confirm."""

    raced: dict[str, list[Block]] = field(default_factory=dict)
    confirmed: dict[str, list[Block]] = field(default_factory=dict)
    heard: Callable[[str, str, Block], None] = lambda kind, name, block: None

    def add(self, kind: str, name: str, block: Block) -> None:
        """`kind`: raced or confirmed."""
        self.of(kind).setdefault(name, []).append(block)
        self.heard(kind, name, block)

    def of(self, kind: str) -> dict[str, list[Block]]:
        return {"raced": self.raced, "confirmed": self.confirmed}[kind]

    def ratios(self, name: str) -> list[float]:
        return [block.ratio for kind in ("raced", "confirmed") for block in self.of(kind).get(name, ())]

    def ratio(self, name: str) -> float:
        return 1.0 if name == HELD else statistics.median(self.ratios(name))

    def interval(self, name: str, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Where the median of the ratios lies."""
        return (1.0, 1.0) if name == HELD else median_interval(self.ratios(name), confidence)

    @property
    def held_milliseconds(self) -> float | None:
        """Of a held launch; None before anything is timed."""
        found = [
            time
            for kind in ("raced", "confirmed")
            for blocks in self.of(kind).values()
            for block in blocks
            for time in (block.before, block.after)
        ]
        return statistics.median(found) if found else None


@dataclass
class Timer:
    """Takes blocks. `tick` is called after each window; `window_ms` and `settle_ms` are of each."""

    clocked: Clocked
    launches: dict[str, Launch]
    deadline: float
    tick: Callable[[], None] = lambda: None
    window_ms: float = WINDOW_MS
    settle_ms: float = SETTLE_MS
    _each: dict[str, float] = field(default_factory=dict)  # milliseconds of a launch, roughly

    def warm(self) -> None:
        """Runs the held launch until the clock is steady."""
        begin = self.clocked.clock()
        while self.clocked.clock() < min(begin + WARM_S, self.deadline):
            self._window(HELD)

    def block(self, name: str, before: float | None = None) -> Block:
        """`before`: the window of the held launch that has just been taken, if one was."""
        first = self._window(HELD) if before is None else before
        return Block(first, self._window(name), self._window(HELD))

    def has_time_for(self, name: str) -> bool:
        """Whether a block would end in time."""
        return self.clocked.clock() + self._seconds(name) < self.deadline

    def _seconds(self, name: str) -> float:
        known = [max(self._each.get(item, 0), self.window_ms + self.settle_ms) for item in (HELD, name, HELD)]
        return sum(known) / 1e3

    def _window(self, name: str) -> float:
        launch = self.launches[name]
        if name not in self._each:
            self.clocked.window(launch, 1)  # loads its machine code
            self._each[name] = self.clocked.window(launch, 1)
        each = max(self._each[name], 1e-4)
        repeats, before = (max(1, round(length / each)) for length in (self.window_ms, self.settle_ms))
        found = self.clocked.window(launch, repeats, before)
        self._each[name] = found
        self.tick()
        return found


def halve(timer: Timer, board: Board, names: Sequence[str], seed: int = 0) -> list[str]:
    """Those that are left, the fastest first. Blocks that `board` has count. It ends early where time does."""
    left, most, order = list(names), len(names), random.Random(seed)
    if _take_blocks(timer, board, left, GLANCE, order):
        left = _not_hopeless(board, left)
    for blocks in ROUNDS:
        if not _take_blocks(timer, board, left, blocks, order):
            break
        most = (most + 1) // 2
        left = _left(board, left)[:most]
        if len(left) == 1:
            break
    return ranked(board, left)


def _take_blocks(timer: Timer, board: Board, names: Sequence[str], blocks: int, order: random.Random) -> bool:
    """Takes blocks until each has so many; False if time ran out."""
    while lacking := [name for name in names if len(board.raced.get(name, ())) < blocks]:
        before: float | None = None
        for name in order.sample(lacking, len(lacking)):
            if not timer.has_time_for(name):
                return False
            block = timer.block(name, before)
            before = block.after
            board.add("raced", name, block)
    return True


def _not_hopeless(board: Board, names: Sequence[str]) -> list[str]:
    """Without those whose every block is slower by OBVIOUS than the slowest block of the best."""
    found = ranked(board, names)
    worst = min(max(board.ratios(found[0])), 1.0)
    return [name for name in found if min(board.ratios(name)) <= (1 + OBVIOUS) * worst] or found[:1]


def _left(board: Board, names: Sequence[str]) -> list[str]:
    """Those whose interval touches that of the best, which the held launch may be."""
    found = ranked(board, names)
    ends = min(board.interval(found[0])[1], 1.0)
    return [name for name in found if board.interval(name)[0] <= ends] or found[:1]


def ranked(board: Board, names: Iterable[str]) -> list[str]:
    """Those that were timed, the fastest first."""
    return sorted((name for name in names if board.ratios(name)), key=board.ratio)


@dataclass(frozen=True)
class Verdict:
    """Whether a challenger wins. `gain`: the share of the held launch's time that it saves, with the interval;
    `floor`: what a gain must exceed, of a launch that was timed against itself, and LEAST_WIN at least."""

    name: str
    wins: bool
    gain: float
    interval: tuple[float, float]
    floor: float


def confirm(timer: Timer, board: Board, name: str) -> Verdict:
    """Holds a challenger against the held launch, in fresh blocks. TWIN is timed beside it, if it is there: in turns,
    so that neighbouring blocks share a window, and no two of the same launch do."""
    names = [item for item in (name, TWIN) if item in timer.launches]
    before: float | None = None
    for look in LOOKS:
        while lacking := [item for item in names if len(board.confirmed.get(item, ())) < look]:
            if not timer.has_time_for(name):
                return judge(board, name)
            for item in lacking:
                block = timer.block(item, before)
                before = block.after if len(lacking) > 1 else None
                board.add("confirmed", item, block)
        found = judge(board, name)
        if found.wins or found.interval[1] < LEAST_WIN:
            return found
    return judge(board, name)


def judge(board: Board, name: str, confidence: float = SURE) -> Verdict:
    """By the blocks that confirm. Where time ran out before there were enough, by all, if the gain is obvious."""
    found, twin = ([block.ratio for block in board.confirmed.get(item, ())] for item in (name, TWIN))
    floor = max(LEAST_WIN, _off(twin))
    if len(found) < LOOKS[0]:
        ratios = board.ratios(name)
        low, high = min(ratios), max(ratios)
        wins = len(ratios) >= ROUNDS[0] and 1 - high > OBVIOUS
        return Verdict(name, wins, 1 - statistics.median(ratios), (1 - high, 1 - low), floor)
    low, high = median_interval(found, confidence)
    return Verdict(name, 1 - high > floor, 1 - statistics.median(found), (1 - high, 1 - low), floor)


def _off(ratios: Sequence[float]) -> float:
    """How far from 1 the median of some ratios may be that are 1."""
    return abs(statistics.median(ratios) - 1) * 2 if ratios else 0.0
