"""Machine code from thin air, for tests of what is written."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.codegen.render import render
from attncc.kernels.candidates import Candidates
from attncc.machine_code import Compiled
from attncc.runtime.cuda.nvrtc import Resources
from attncc.runtime.store.store import MachineCode
from attncc.settle import Settled
from tests.elf import image


def compiled(source: Any, target: str) -> Compiled:
    code = MachineCode(image(100, source.entry), "13.0", source.entry, source.threads, 0)
    return Compiled(code, Resources(20, 0, 0, 0, 0.1))


def settled(candidates: Candidates) -> Settled:
    """The first plan, as if it had no troubles."""
    plan = candidates.first
    source = render(plan)
    return Settled(plan, source, compiled(source, plan.target), {})


def compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are built of these."""
    monkeypatch.setattr("attncc.package.writer.compiled", compiled)
    monkeypatch.setattr("attncc.package.writer.settle", settled)


def leave_texts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that nobody reads or compiles keep what they don't use, which takes most of the time to find."""
    monkeypatch.setattr("attncc.codegen.render.assemble_kernel", lambda text, name: text)
