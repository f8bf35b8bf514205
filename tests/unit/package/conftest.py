from __future__ import annotations

import pytest

from tests.unit.package.made import compiled, settled


@pytest.fixture
def compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the folders alone."""
    monkeypatch.setattr("attncc.package.writer.compiled", compiled)
    monkeypatch.setattr("attncc.package.writer.settle", settled)
