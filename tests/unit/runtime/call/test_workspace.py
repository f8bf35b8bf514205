"""Temporary memory of calls on the default stream is kept where it is small; else the framework allocates it."""

from __future__ import annotations

import pytest

from attncc.runtime.call import prepare
from attncc.runtime.call.workspace import KEPT_BYTES, KeptWorkspaces
from tests import plans
from tests.unit.runtime.calls import plan, qkv
from tests.unit.runtime.conftest import Bench, MakeBench


def launched(made: Bench, stream: int = 0, **sizes: int) -> int:
    """Where the partial results of a call are."""
    made.framework.stream = stream
    made.kernel(*qkv(**sizes))
    main, combine = made.cuda.launches[-2:]
    assert main.params["partial_out"] == combine.params["partial_out"]
    return main.params["partial_out"]


def test_calls_of_one_stream_follow_each_other_in_the_same_memory(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL, split_kv=3))
    first = launched(made)
    assert made.cuda.allocated.count(KEPT_BYTES) == 1
    assert launched(made) == first == launched(made, q_len=50)
    assert launched(made, stream=1) == first  # its other name
    assert made.cuda.allocated.count(KEPT_BYTES) == 1
    assert not made.framework.released


def test_other_streams_and_large_calls_have_their_own(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(plan(plans.FULL, split_kv=3))
    kept = launched(made)
    assert launched(made, stream=0x57) != kept
    monkeypatch.setattr(prepare, "KEPT_BYTES", 1 << 10)
    assert launched(made, q_len=70) != kept
    assert len(made.framework.released) == 2


def test_calls_at_once_share_nothing(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL, split_kv=3))
    launched(made)
    (prepared,) = made.kernel._launcher._prepared.values()
    kept = prepared.kept
    assert isinstance(kept, KeptWorkspaces)
    one, other = kept.take(), kept.take()
    assert abs(one - other) >= KEPT_BYTES
    kept.give_back(one)
    assert kept.take() == one
