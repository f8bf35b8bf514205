"""Where torch's memory comes from: what only differs with several GPUs, of which there are none here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from attncc.runtime.frameworks.torch_arrays import TorchArrays

torch = pytest.importorskip("torch")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `torch.empty_strided` was asked for."""
    calls: list[Any] = []
    monkeypatch.setattr(torch, "empty_strided", lambda *form, **where: calls.append((form, where)))
    return calls


def test_memory_is_that_of_the_gpu_asked_for_whichever_is_current(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, current, here = TorchArrays(), [0], []
    monkeypatch.setattr(framework, "_current_device", lambda: current[0])
    monkeypatch.setattr(framework, "_empty_here", lambda *form: here.append((current[0], form)))
    new = framework.allocator((2, 3), "float16", 1)
    form = (2, 3), (3, 1)
    for number, device in enumerate((0, 1, 0)):
        current[0] = device
        new()
        assert len(here) + len(asked) == number + 1
    assert here == [(1, (*form, torch.float16))]
    assert asked == [(form, {"dtype": torch.float16, "device": torch.device("cuda", 1)})] * 2


def test_memory_where_torch_has_no_allocator_of_compiled_code(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    framework = TorchArrays()
    monkeypatch.setattr(framework, "_empty_here", None)
    framework.allocator((5,), "float32", 0)()
    assert asked == [(((5,), (1,)), {"dtype": torch.float32, "device": torch.device("cuda", 0)})]


def test_streams_and_gpus_where_torch_has_no_quick_functions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_cuda_getCurrentRawStream", "_cuda_getDevice"):
        monkeypatch.delattr(torch._C, name, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda ordinal: SimpleNamespace(cuda_stream=70 + ordinal))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    framework = TorchArrays()
    assert framework.current_stream(1) == 71
    here: list[Any] = []
    monkeypatch.setattr(framework, "_empty_here", lambda *form: here.append(form))
    framework.allocator((5,), "float32", 3)()
    assert here == [((5,), (1,), torch.float32)]


def test_the_legacy_stream_is_no_external_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes an external stream of address 0 as the wish for a new one."""
    monkeypatch.setattr(torch.cuda, "default_stream", lambda ordinal: ("default", ordinal))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    framework = TorchArrays()
    assert [framework.on_stream(handle, 1) for handle in (0, 1, 0xAB)] == [("default", 1), ("default", 1), (0xAB, 1)]


def test_compiled_codes_allocator_makes_what_empty_strided_makes() -> None:
    """Its sister for the CPU, as here is no GPU: the same arguments, the same tensor."""
    empty = torch._C._dynamo.guards._empty_strided_cpu
    made, same = empty((2, 3), (3, 1), torch.bfloat16), torch.empty_strided((2, 3), (3, 1), dtype=torch.bfloat16)
    assert (made.shape, made.stride(), made.dtype, made.requires_grad) == (same.shape, same.stride(), same.dtype, False)


def test_tensors_of_the_cpu_are_on_no_gpu() -> None:
    assert TorchArrays().ordinal(torch.zeros(3)) < 0
