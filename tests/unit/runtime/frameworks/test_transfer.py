"""CuPy where it is of no use: not there, or built for a newer driver."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.frameworks.transfer import usable_cupy


class CUDARuntimeError(RuntimeError):
    pass


def _old_driver() -> int:
    raise CUDARuntimeError("CUDA driver version is insufficient for CUDA runtime version")


def test_why_cupy_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(AttnccError, match=r"A517.*is not installed"):
        usable_cupy()
    runtime = SimpleNamespace(getDeviceCount=_old_driver, CUDARuntimeError=CUDARuntimeError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    with pytest.raises(AttnccError, match=r"(?s)A517.*can't use the GPU.*driver version is insufficient"):
        usable_cupy()
    runtime.getDeviceCount = lambda: 1
    assert usable_cupy().cuda.runtime is runtime
