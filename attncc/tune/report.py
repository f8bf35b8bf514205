"""What a run found, for people: a table of 80 columns. And for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..schedule.plan import FRAGMENT
from .candidates import settings_of
from .compiling import LATE
from .race import HELD
from .session import Session
from .trial import Trial

if TYPE_CHECKING:
    from rich.table import Table

WORTH_SAYING = 1.03  # times the winner's: what explains that a schedule lost
SHOWN, SHOWN_UNTIMED = 12, 4  # rows


class Report:
    """Of a session that has come to an end, or was interrupted."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self) -> list[Trial]:
        """Those that were timed, the fastest first; then the others."""
        timed = [trial for trial in self._session.trials.values() if self.ratio(trial) is not None]
        others = [trial for trial in self._session.trials.values() if self.ratio(trial) is None]
        return [*sorted(timed, key=lambda trial: self.ratio(trial) or 0), *others]

    # ------------------------------------------------------------ figures

    def ratio(self, trial: Trial) -> float | None:
        """How often as long as what the file has."""
        board = self._session.board
        if self._is_baseline(trial):
            return None if board.held_milliseconds is None else 1.0
        return board.ratio(trial.name) if board.ratios(trial.name) else None

    def milliseconds(self, trial: Trial) -> tuple[float, float] | None:
        """And half the width of the interval."""
        board, ratio = self._session.board, self.ratio(trial)
        held = board.held_milliseconds
        if ratio is None or held is None:
            return None
        low, high = (1.0, 1.0) if self._is_baseline(trial) else board.interval(trial.name)
        return ratio * held, (high - low) / 2 * held

    def share_of_roofline(self, trial: Trial) -> float | None:
        session, found = self._session, self.milliseconds(trial)
        if found is None or trial.plan is None or not session.model.known:
            return None
        return session.model.roofline_seconds(trial.plan) * 1e3 / found[0]

    def _is_baseline(self, trial: Trial) -> bool:
        session = self._session
        return trial.name == (HELD if session.held is not None else session.baseline)

    # ------------------------------------------------------------ words

    def why(self, trial: Trial) -> str:
        """What the row says of the schedule: why it isn't timed, or what the model has against it."""
        best = next((item for item in self.rows() if not item.trouble), None)
        if trial.trouble:
            return _by_registers(trial) or trial.trouble
        if self.ratio(trial) is None or best is None or trial is best:
            return ""
        return _against(trial, best)

    def sentence(self) -> str:
        """What is to be done, and how sure that is."""
        verdict, winner = self._session.verdict, self._session.winner
        if verdict is None:
            others = [trial for trial in self._session.trials.values() if trial.name != HELD]
            if all(trial.trouble and trial.trouble != LATE for trial in others):
                return "what the file has stays: no other schedule is worth timing, as the table says"
            return "the time was too short: nothing was timed to the end"
        low, high = verdict.interval
        if winner is None:
            best = self._session.trials[verdict.name].tiles
            if low > verdict.floor:
                return f"what the file has stays; {best} may save {verdict.gain:.1%}: too few windows tell"
            saves = f"saves {verdict.gain:.1%}" if verdict.gain > 0 else f"takes {-verdict.gain:.1%} longer"
            return (
                f"what the file has stays; the best other, {best}, {saves} (it saves {low:.1%} to {high:.1%}), "
                f"and a win must save more than {verdict.floor:.1%} for sure"
            )
        if self._session.held is None:
            return f"{winner.tiles}: what the file has can't be"
        bits = {True: "; the bits of results change", False: "; the bits of results stay", None: ""}
        return (
            f"{winner.tiles} saves {verdict.gain:.1%} ({low:.1%} to {high:.1%}, noise floor {verdict.floor:.1%})"
            f"{bits[self._session.bits_differ]}"
        )

    def table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("schedule")
        table.add_column("ms", no_wrap=True)
        table.add_column("roofline", justify="right", no_wrap=True)
        table.add_column("why it lost")
        for trial in self._shown():
            table.add_row(*self._cells(trial))
        return table

    def _shown(self) -> Iterator[Trial]:
        """The fastest, what the file has, and some of those that weren't timed."""
        rows = self.rows()
        timed = [trial for trial in rows if self.ratio(trial) is not None]
        yield from (trial for place, trial in enumerate(timed) if place < SHOWN or trial.name == HELD)
        yield from [trial for trial in rows if self.ratio(trial) is None][:SHOWN_UNTIMED]

    def hidden(self) -> int:
        """How many schedules the table leaves out."""
        return len(self.rows()) - len(list(self._shown()))

    def _cells(self, trial: Trial) -> tuple[str, ...]:
        found, share = self.milliseconds(trial), self.share_of_roofline(trial)
        mark = " (now)" if trial.name == HELD else ""
        times = "-" if found is None else f"{found[0]:.4g}" + (f" ± {found[1]:.1g}" if found[1] else "")
        return _short(trial) + mark, times, "-" if share is None else f"{share:.0%}", self.why(trial)

    def to_json(self) -> dict[str, Any]:
        session = self._session
        verdict = None if session.verdict is None else {**vars(session.verdict), "bits_differ": session.bits_differ}
        return {
            "variant": session.work.variant.name,
            "pass": session.work.pass_name,
            "device": session.machine.name,
            "log": str(session.log.path),
            "verdict": verdict,
            "trials": [self._record(trial) for trial in self.rows()],
        }

    def _record(self, trial: Trial) -> dict[str, Any]:
        found = self.milliseconds(trial)
        took = trial.resources
        return {
            "held": trial.name == HELD,
            "settings": None if trial.schedule is None else trial.schedule.chosen,
            "tiles": trial.tiles,
            "milliseconds": None if found is None else found[0],
            "interval": None if found is None else found[1],
            "share_of_roofline": self.share_of_roofline(trial),
            "registers": None if took is None else took.registers,
            "trouble": trial.trouble,
            "why": self.why(trial),
        }

    def line(self) -> str:
        """The settings of the winner, as its schedule has them."""
        winner = self._session.winner
        return "" if winner is None or winner.schedule is None else settings_of(winner.schedule)


def _by_registers(trial: Trial) -> str:
    """What ptxas says against it, in a few words."""
    took = trial.resources
    if took is None or not trial.spills:
        return ""
    spilled = took.spill_stores + took.spill_loads
    found = [f"{spilled} bytes of spills"] * bool(spilled) + ["products are serialised"] * bool(took.losses)
    return f"registers: {', '.join(found)}" if found else ""


def _short(trial: Trial) -> str:
    """`hopper 128 x 64, 4 stages`: warps only where they don't follow from the tile."""
    plan = trial.plan
    if plan is None or plan.warps * FRAGMENT != plan.block_q:
        return trial.tiles
    return trial.tiles.replace(f", {plan.warps} warps", "")


def _against(trial: Trial, best: Trial) -> str:
    """The figure that differs most from the fastest's, and explains why a schedule is slower."""
    own, other = trial.prediction, best.prediction
    if own is None or other is None:
        return ""
    factors = {
        f"tensor cores: {own.flops / other.flops:.2f} x the FLOPs": own.flops / other.flops,
        f"bytes: {own.bytes_moved / other.bytes_moved:.2f} x": own.bytes_moved / other.bytes_moved,
        f"waves: {own.waves:.1f}, {own.idle:.0%} idle": (1 - other.idle) / max(1 - own.idle, 0.05),
        f"registers: {own.warps} warps at once, not {other.warps}": other.warps / own.warps,
    }
    name, worst = max(factors.items(), key=lambda item: item[1])
    return name if worst >= WORTH_SAYING else "nothing that the model knows"
