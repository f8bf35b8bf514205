"""Calls of a form that came before are read by code written for the form: what differs is seen, and judged anew."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.problem.call_arguments import Arguments
from attncc.runtime.call import launch
from attncc.runtime.call.written_reader import ARRAY, Operand, maker
from attncc.runtime.frameworks.framework import Guard
from attncc.runtime.frameworks.tensor_observer import TensorObserver
from tests import plans
from tests.unit.runtime.calls import HEADS, Q_LEN, D, plan, qkv
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeArray

CALLS = 4  # from the third on, calls are read by such code


def slope() -> FakeArray:
    return FakeArray((HEADS,), "float32")


@pytest.fixture
def known(bench: MakeBench) -> Bench:
    """A kernel whose calls with `slope` and a number are of a known form."""
    made = bench(plan(plans.ALIBI))
    for _ in range(CALLS):
        made.kernel(*qkv(), slope=slope(), cap=30.0)
    assert made.kernel._launcher._known is not None
    made.cuda.launches.clear()
    return made


def test_pointers_and_numbers_are_those_of_the_call(known: Bench) -> None:
    (q, k, v), own = qkv(), slope()
    out = known.kernel(q, k, v, slope=own, cap=7.0)
    params = known.params()
    arrays = {"q": q, "k": k, "v": v, "out": out, "slope": own}
    assert {name: params[name] for name in arrays} == {name: array.pointer for name, array in arrays.items()}
    assert params["cap_value"] == 7.0


def test_siblings_have_the_same_machine_code_and_know_forms_of_their_own(known: Bench) -> None:
    loaded, siblings = len(known.cuda.loaded), [known.kernel.sibling() for _ in range(2)]
    for _ in range(CALLS):
        for length, kernel in enumerate(siblings, start=1):
            kernel(*(FakeArray((1, HEADS, length * Q_LEN, D), "float16") for _ in range(3)), slope=slope(), cap=30.0)
    assert len(known.cuda.loaded) == loaded
    assert all(kernel._launcher._known is not None for kernel in siblings)


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a bool for a number": (lambda given: given.update(cap=True), "A610"),
    "a number for an array": (lambda given: given.update(slope=2.0), "A601"),
    "NaN": (lambda given: given.update(scale=float("nan")), "A619"),
    "a missing input": (lambda given: given.pop("slope"), "A607"),
    "None for an input": (lambda given: given.update(slope=None), "A622"),
    "one too many": (lambda given: given.update(more=1.0), "A608"),
    "an input of another name": (lambda given: given.update(tilt=given.pop("slope")), "A60[78]"),
    "another shape": (lambda given: given.update(slope=FakeArray((HEADS + 1,), "float32")), "A6"),
    "another dtype": (lambda given: given.update(slope=FakeArray((HEADS,), "float16")), "A604"),
    "another device": (lambda given: given.update(slope=FakeArray((HEADS,), "float32", ordinal=1)), "A605"),
    "an array of another framework": (lambda given: given.update(slope=np.zeros(HEADS, np.float32)), "A6"),
    "an unknown layout": (lambda given: given.update(layout="sbhd"), "A618"),
    "a list for a layout": (lambda given: given.update(layout=["bhsd"]), "A618"),
    "out of another shape": (lambda given: given.update(out=FakeArray((1, 1, 1, D), "float16")), "A6"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_wrong_is_refused(known: Bench, change: str) -> None:
    given: dict[str, Any] = {"slope": slope(), "cap": 30.0}
    spoil, code = REFUSED[change]
    spoil(given)
    for _ in range(2):
        with pytest.raises(AttnccError, match=code):
            known.kernel(*qkv(), **given)
    assert not known.cuda.launches
    known.kernel(*qkv(), slope=slope(), cap=30.0)
    assert len(known.cuda.launches) == 1


def test_other_forms_are_served_between(known: Bench) -> None:
    (q, k, v), own = qkv(), slope()
    mine = FakeArray(q.shape, "float16")
    out, lse = known.kernel(q, k, v, slope=own, cap=1.0, return_lse=True)
    assert (known.params()["out"], known.params()["lse"]) == (out.pointer, lse.pointer)
    assert known.kernel(q, k, v, slope=own, cap=1.0, out=mine) is mine
    assert known.params()["out"] == mine.pointer
    known.kernel(q, k, v, slope=own, cap=np.float32(2.5))
    assert known.params()["cap_value"] == 2.5
    known.kernel(q, k, v, slope=own, cap=1.0, scale=3)
    assert known.params()["scale"] == 3.0
    known.kernel(*qkv(q_len=Q_LEN + 1), slope=own, cap=1.0)
    assert known.params()["q_len"] == Q_LEN + 1


def test_bases_that_are_not_aligned_are_copied(known: Bench) -> None:
    q, k, v = qkv()
    q.pointer += 8
    known.kernel(q, k, v, slope=slope(), cap=30.0)
    assert known.params()["q"] not in (0, q.pointer)


def test_out_is_looked_at_in_every_call(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, k, v = qkv(q_len=64, kv_len=64)
    for _ in range(CALLS):
        made.kernel(q, k, v, out=FakeArray(q.shape, "float16"))
    assert made.kernel._launcher._known is not None
    with pytest.raises(AttnccError, match="A617"):
        made.kernel(q, k, v, out=q)


def test_forms_in_turns_are_not_written_for(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    made, written = bench(plan(plans.FULL)), []
    own = launch.Reader.written
    monkeypatch.setattr(launch.Reader, "written", lambda *given: written.append(given) or own(*given))
    for _ in range(5):
        made.kernel(*qkv())
        made.kernel(*qkv(), return_lse=True)
    assert not written
    for _ in range(CALLS):
        made.kernel(*qkv())
    for _ in range(5):
        made.kernel(*qkv(), return_lse=True)
        made.kernel(*qkv())
    assert len(written) == 1


def test_threads_share_what_is_known(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))

    def calls(q_len: int) -> None:
        for _ in range(200):
            q, k, v = qkv(q_len=q_len)
            assert made.kernel(q, k, v).shape == q.shape

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(calls, (1, 1, 33, 33)))
    assert {(item.params["q_len"], item.grid) for item in made.cuda.launches} == {(1, 12), (33, 24)}


def test_names_of_inputs_may_be_any() -> None:
    """Those of Python's words, of arguments, and of what the code itself calls something."""
    names = ("lse", "counter", "alike", "pointer", "given", "count", "if", "type", "inputs")
    operands = (Operand("q", ARRAY), Operand("lse", "NoneType"), *(Operand(name, "int", True) for name in names))
    read = maker(operands, 15)(Guard(lambda *arrays: True), len(names), ("bhsd", 0, False), lambda array: 32)
    inputs = {name: number for number, name in enumerate(names)}
    given = Arguments(object(), None, None, inputs)
    assert read(given) == [32, None, *range(len(names))]


def test_what_torch_does_to_tensors_is_seen() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    q, k, v = (torch.zeros(1, 2, 3, 8) for _ in range(3))
    observer = TensorObserver()
    assert observer.guard((q, k, v)) is None
    for _ in range(3):
        observer.observe((q, k, v))
    alike, operands = observer.guard((q, k, v)), tuple(Operand(name, ARRAY) for name in "qkv")
    read = maker(operands, 15, len(alike.modes))(alike, 0, ("bhsd", 0, False), torch.Tensor.data_ptr)

    def reads(q: Any) -> bool:
        return read(Arguments(q, k, v, {})) is not None

    assert read(Arguments(q, k, v, {})) == [x.data_ptr() for x in (q, k, v)]
    changed = q.half(), q[:, :1], q.transpose(1, 2).contiguous().transpose(1, 2), q.clone().requires_grad_(), q.numpy()
    assert not any(map(reads, (*changed, torch.nn.Parameter(q, requires_grad=False), k, None, 1.0)))
    with TorchDispatchMode():
        assert not reads(q)
    with torch.autocast("cpu", torch.bfloat16):
        assert not reads(q)
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(reads(x)), x)[1])(q[None])
    assert seen == [False] and reads(q)
