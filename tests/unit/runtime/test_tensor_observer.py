"""Tensors that changed are seen, however many calls came before that were alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime import tensor_observer
from attncc.runtime.tensor_observer import TensorObserver

torch = pytest.importorskip("torch")

CHANGES: dict[str, Callable[[Any], Any]] = {
    "sizes": lambda x: x[:1],
    "strides": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "dtype": lambda x: x.half(),
    "gradient": lambda x: x.clone().requires_grad_(),
    "sign": lambda x: torch.complex(x, x).conj().imag,
    "axes": lambda x: x[0],
}


@pytest.fixture(params=["guards", "no guards"])
def observer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TensorObserver:
    """With torch's guards, and as where torch has none."""
    if request.param == "no guards":
        monkeypatch.setattr(tensor_observer, "_guard", lambda tensors: tensor_observer._never)
    return TensorObserver()


def tensors() -> list[Any]:
    return [torch.zeros(2, 3, 4) for _ in range(3)]


@pytest.mark.parametrize("before", [0, 1, 2, 5])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_has_another_key(observer: TensorObserver, before: int, change: str) -> None:
    _, key = observer(tensors())
    for _ in range(before):
        assert observer(tensors())[1] == key
    for position in range(3):
        changed = tensors()
        changed[position] = CHANGES[change](changed[position])
        pointers, other = observer(changed)
        assert other != key
        assert pointers == [item.data_ptr() for item in changed]
        assert observer(tensors())[1] == key


def test_what_is_changed_in_place_is_seen(observer: TensorObserver) -> None:
    held = tensors()
    keys = [observer(held)[1] for _ in range(3)]
    held[1].transpose_(0, 1)
    assert observer(held)[1] != keys[0] == keys[2]


def test_more_and_fewer_tensors(observer: TensorObserver) -> None:
    three, four = tensors(), [*tensors(), torch.zeros(5)]
    for _ in range(3):
        assert len(observer(three)[1]) == 3  # type: ignore[arg-type]
    for _ in range(3):
        assert len(observer(four)[1]) == 4  # type: ignore[arg-type]
    assert len(observer(three)[1]) == 3  # type: ignore[arg-type]


def test_gradients_count_only_where_they_are_recorded(observer: TensorObserver) -> None:
    learned = [item.requires_grad_() for item in tensors()]
    with torch.no_grad():
        quiet = [observer(learned)[1] for _ in range(3)]
        assert quiet == [observer(tensors())[1]] * 3
        observer(learned)
    assert observer(learned)[1] != quiet[0]


def test_modes_of_torch_change_nothing(observer: TensorObserver) -> None:
    key = [observer(tensors())[1] for _ in range(3)].pop()
    with torch.inference_mode():
        assert [observer(tensors())[1] for _ in range(3)] == [key] * 3
    with torch.autocast("cpu"):
        assert [observer(tensors())[1] for _ in range(3)] == [key] * 3
    assert observer(tensors())[1] == key


@pytest.mark.parametrize("same", [False, True], ids=["three tensors", "one tensor thrice"])
def test_calls_that_are_alike_are_told_by_a_guard(same: bool) -> None:
    observer = TensorObserver()
    held = tensors()[:1] * 3 if same else tensors()
    for _ in range(2):
        observer(held)
    guard = observer._last[0]
    assert guard is not None
    assert guard(*held)
    assert guard(*tensors())


def test_one_tensor_thrice_is_like_three(observer: TensorObserver) -> None:
    keys = []
    for _ in range(3):
        keys += [observer(tensors())[1], observer(tensors()[:1] * 3)[1]]
    assert keys == keys[:1] * 6


def test_tensors_without_memory_are_refused(observer: TensorObserver) -> None:
    held = tensors()
    held[2] = held[2].to_sparse()
    with pytest.raises(AttnccError, match="A650"):
        observer(held)
