"""What checks of variants find, and the report: a line of JSON for each variant, so that a run which is cut counts."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

RIGHT, WRONG, NONE = "right", "wrong", "none"  # none: the variant has no such kernel


@dataclass(frozen=True)
class Finding:
    """What is wrong with a kernel of a random variant."""

    seed: int
    kind: str
    tiles: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.kind} ({self.tiles}): {'; '.join(self.faults)}"


@dataclass
class Verdict:
    """What the kernels of one variant are, by kind; complete once all kinds are in it."""

    seed: int
    passes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, kind: str, found: Finding | bool) -> None:
        if isinstance(found, Finding):
            self.findings.append(found)
        self.passes[kind] = WRONG if isinstance(found, Finding) else RIGHT if found else NONE

    def line(self, commit: str) -> str:
        verdict = WRONG if self.findings else RIGHT
        return json.dumps(
            {
                "seed": self.seed,
                "verdict": verdict,
                "passes": self.passes,
                "faults": [str(finding) for finding in self.findings],
                "seconds": round(self.seconds, 2),
                "commit": commit,
            }
        )


class Report:
    """Counts verdicts, prints findings, and appends each verdict to a file at once."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._commit = path, _commit()
        self._counts, self._variants, self._wrong = Counter[str](), 0, 0

    @property
    def wrong(self) -> int:
        return self._wrong

    def add(self, verdict: Verdict) -> None:
        self._variants += 1
        self._wrong += bool(verdict.findings)
        self._counts.update(kind for kind, state in verdict.passes.items() if state != NONE)
        for finding in verdict.findings:
            print(finding, flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(verdict.line(self._commit) + "\n")

    def summary(self, wanted: int, seconds: float) -> str:
        kernels = ", ".join(f"{count} {kind}" for kind, count in sorted(self._counts.items()))
        cut = f" of {wanted} that were asked for" if self._variants < wanted else ""
        return (
            f"{self._wrong} of {self._variants} variants{cut} are wrong ({kernels}); "
            f"{seconds:.0f} s, commit {self._commit}"
        )


def _commit() -> str:
    """Of the tree that this file is in, with a mark where it was changed."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8")
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
