from __future__ import annotations

import pytest

from tests.unit.package.made import compile_nothing, leave_texts_as_they_are


@pytest.fixture
def compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the folders alone."""
    compile_nothing(monkeypatch)
    leave_texts_as_they_are(monkeypatch)
