"""What can't be shared is told, on all ranks; and options of `shard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import PEERS, run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import refusals  # noqa: E402  (needs torch)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(refusals.process, (str(folder),), 2)
    return [json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(2)]


@pytest.mark.parametrize("name", refusals.REFUSED)
def test_told_on_all_ranks(found: list[dict[str, Any]], name: str) -> None:
    _, code = refusals.REFUSED[name]
    assert [each.get(name) for each in found] == [code, code]


def test_a_dead_rank_is_told_in_time(found: list[dict[str, Any]]) -> None:
    assert found[0]["a dead rank"] < refusals.TIMEOUT + 10
    assert not PEERS or refusals.SOON <= found[0]["a dead peer"] < refusals.SOON + 10


@pytest.mark.parametrize("transport", refusals.TRANSPORTS)
def test_a_backward_pass_that_fails_on_one_rank_is_told_to_others_in_time(
    found: list[dict[str, Any]], transport: str
) -> None:
    """Not before the group's timeout: docs/distributed.md says so."""
    (waited, seconds), (failed, _) = (each[f"failing backward, {transport}"] for each in found)
    assert failed == "OutOfMemoryError"
    assert waited == ("AttnccError" if transport == "peer" else "RuntimeError")
    assert refusals.SOON * 0.9 <= seconds < refusals.SOON + 10


def test_options(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["options"] == dict.fromkeys(each["options"], True)
