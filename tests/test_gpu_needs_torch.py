"""`pytest -m gpu` without torch is an error: tests that were asked for by name aren't skipped."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_configure


def configure(markexpr: str) -> None:
    options = {"markexpr": markexpr, "--update-golden": False}
    pytest_configure(SimpleNamespace(getoption=options.__getitem__))


def test_gpu_tests_need_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for asked in ("gpu", "gpu and not slow", "slow or gpu"):
        with pytest.raises(pytest.UsageError, match="torch"):
            configure(asked)
    for asked in ("", "not gpu", "not  gpu and slow"):
        configure(asked)


def test_with_torch_all_is_well() -> None:
    pytest.importorskip("torch")
    configure("gpu")
