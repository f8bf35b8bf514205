"""Tensors that changed are seen, however many calls came before that were alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.frameworks import tensor_observer
from attncc.runtime.frameworks.tensor_observer import TensorObserver

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
        monkeypatch.setattr(tensor_observer, "_guard", lambda tensors: tensor_observer._NEVER)
    return TensorObserver()


def tensors() -> list[Any]:
    return [torch.zeros(2, 3, 4) for _ in range(3)]


@pytest.mark.parametrize("before", [0, 1, 2, 5])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_has_another_key(observer: TensorObserver, before: int, change: str) -> None:
    _, key = observer.observe(tensors())
    for _ in range(before):
        assert observer.observe(tensors())[1] == key
    for position in range(3):
        changed = tensors()
        changed[position] = CHANGES[change](changed[position])
        pointers, other = observer.observe(changed)
        assert other != key
        assert pointers == [item.data_ptr() for item in changed]
        assert observer.observe(tensors())[1] == key


def test_what_is_changed_in_place_is_seen(observer: TensorObserver) -> None:
    held = tensors()
    keys = [observer.observe(held)[1] for _ in range(3)]
    held[1].transpose_(0, 1)
    assert observer.observe(held)[1] != keys[0] == keys[2]


def test_more_and_fewer_tensors(observer: TensorObserver) -> None:
    three, four = tensors(), [*tensors(), torch.zeros(5)]
    keys = [observer.observe(held) for held in (three, three, three, four, four, four, three)]
    assert [len(pointers) for pointers, _ in keys] == [3, 3, 3, 4, 4, 4, 3]
    assert keys[0][1] == keys[2][1] == keys[6][1] != keys[3][1] == keys[5][1]


def test_gradients_count_only_where_they_are_recorded(observer: TensorObserver) -> None:
    learned = [item.requires_grad_() for item in tensors()]
    with torch.no_grad():
        quiet = [observer.observe(learned)[1] for _ in range(3)]
        assert quiet == [observer.observe(tensors())[1]] * 3
        observer.observe(learned)
    assert observer.observe(learned)[1] != quiet[0]


def test_inference_mode_changes_nothing(observer: TensorObserver) -> None:
    key = [observer.observe(tensors())[1] for _ in range(3)].pop()
    with torch.inference_mode():
        assert [observer.observe(tensors())[1] for _ in range(3)] == [key] * 3
    assert observer.observe(tensors())[1] == key


@pytest.mark.parametrize("before", [1, 3])
def test_autocast_and_its_type_have_another_key(observer: TensorObserver, before: int) -> None:
    keys = []
    for dtype in (None, torch.bfloat16, torch.float16, None):
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            of_mode = [observer.observe(tensors())[1] for _ in range(before)]
        assert of_mode == of_mode[:1] * before
        keys.append(of_mode[0])
    assert keys[0] == keys[3] and len(set(keys)) == 3


@pytest.mark.parametrize("same", [False, True], ids=["three tensors", "one tensor thrice"])
def test_calls_that_are_alike_are_told_by_a_guard(same: bool) -> None:
    observer = TensorObserver()
    held = tensors()[:1] * 3 if same else tensors()
    for _ in range(2):
        observer.observe(held)
    guard = observer._last[0]
    assert guard is not None
    assert guard(*held)
    assert guard(*tensors())


def test_one_tensor_thrice_is_like_three(observer: TensorObserver) -> None:
    keys = []
    for _ in range(3):
        keys += [observer.observe(tensors())[1], observer.observe(tensors()[:1] * 3)[1]]
    assert keys == keys[:1] * 6


def test_tensors_without_memory_are_refused(observer: TensorObserver) -> None:
    held = tensors()
    held[2] = held[2].to_sparse()
    with pytest.raises(AttnccError, match="A650"):
        observer.observe(held)


@pytest.mark.parametrize("before", [0, 1, 2, 5])
@pytest.mark.parametrize("records", [True, False])
def test_a_tangent_has_another_key(observer: TensorObserver, before: int, records: bool) -> None:
    forward_ad = torch.autograd.forward_ad
    with torch.set_grad_enabled(records), forward_ad.dual_level():
        given = tensors()
        keys = [observer.observe(given)[1] for _ in range(before + 1)]
        guard = observer.guard(given)
        dual = forward_ad.make_dual(given[1], torch.ones_like(given[1]))
        assert observer.observe([given[0], dual, given[2]])[1] != keys[-1]
        assert guard is None or not guard(given[0], dual, given[2])
    assert observer.observe(given)[1] == keys[0]
