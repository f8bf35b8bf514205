"""Arguments by type: a call that differs in it from those before is seen as what it is, and judged anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.problem.call_arguments import Arguments
from attncc.runtime.call import operands
from attncc.runtime.frameworks import arrays
from tests import plans
from tests.unit.runtime.calls import HEADS, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray


def slope() -> FakeArray:
    return FakeArray((HEADS,), "float32")


def test_numbers_that_are_equal_but_of_another_type_are_refused(bench: MakeBench) -> None:
    made, tensors = bench(plan(plans.ALIBI)), qkv()
    for _ in range(3):
        made.kernel(*tensors, slope=slope(), cap=1.0)
        made.kernel(*tensors, slope=slope(), cap=1)
    with pytest.raises(AttnccError, match="A610"):
        made.kernel(*tensors, slope=slope(), cap=True)
    assert len(made.cuda.launches) == 6


def test_numbers_are_checked_in_every_form_of_call(bench: MakeBench) -> None:
    """What one form was found good with is no judgement of another."""
    made, tensors = bench(plan(plans.ALIBI)), qkv()
    made.kernel(*tensors, slope=slope(), cap=FakeArray((), "float32"), scale=2.0)
    made.kernel(*tensors, slope=slope(), cap=2.0)
    for bad in (float("nan"), float("inf")):
        for _ in range(2):
            with pytest.raises(AttnccError, match="A619"):
                made.kernel(*tensors, slope=slope(), cap=FakeArray((), "float32"), scale=bad)
    made.kernel(*tensors, slope=slope(), cap=FakeArray((), "float32"), scale=3.0)
    assert made.params()["scale"] == 3.0


def test_a_scalar_by_pointer_by_value_and_in_an_array_of_the_cpu_in_turns(bench: MakeBench) -> None:
    made, tensors = bench(plan(plans.ALIBI)), qkv()
    pointed = FakeArray((), "float32")
    for _ in range(2):
        for cap, found in ((2.0, (0, 2.0)), (pointed, (pointed.pointer, 0.0)), (np.array(3.0, np.float32), (0, 3.0))):
            made.kernel(*tensors, slope=slope(), cap=cap)
            params = made.params()
            assert (params["cap"], params["cap_value"]) == found


def test_out_and_inputs_keep_their_places_whatever_else_is_given(bench: MakeBench) -> None:
    made, (q, k, v) = bench(plan(plans.ALIBI)), qkv()
    given = slope()
    for out in (None, FakeArray(q.shape, q.dtype), None):
        found = made.kernel(q, k, v, slope=given, cap=4.0, out=out)
        params = made.params()
        names = ("q", "k", "v", "out", "slope")
        assert [params[name] for name in names] == [x.pointer for x in (q, k, v, found, given)]
        assert params["cap_value"] == 4.0


def test_subclasses_of_the_frameworks_arrays_are_arrays(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Parameter(FakeArray):
        pass

    made = bench(plan(plans.ALIBI))
    monkeypatch.setitem(arrays.known_frameworks, Parameter, made.framework)
    learned = Parameter((HEADS,), "float32")
    for _ in range(2):
        made.kernel(*qkv(), slope=learned, cap=1.0)
        assert made.params()["slope"] == learned.pointer


def test_what_is_known_of_types_is_kept_within_bounds(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "_MOST_ROLES", 3)
    made = bench(plan(plans.ALIBI))
    reader = operands.Reader(made.framework, plans.ALIBI)
    for number in range(9):
        kind: Any = type(f"Array{number}", (FakeArray,), {})
        monkeypatch.setitem(arrays.known_frameworks, kind, made.framework)
        reader.read(Arguments(*qkv(), {"slope": kind((HEADS,), "float32"), "cap": 1.0}))
    assert len(reader._roles) <= 3
