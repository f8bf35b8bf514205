"""Shared attention in a model: DDP and FSDP2 beside it, compiled, checkpointed; and what goes on while rows travel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import training  # noqa: E402  (needs torch)

WAYS = ("ddp", "ddp, checkpointed", "ddp, compiled", "fsdp", "fsdp, checkpointed", "fsdp, compiled", "compiled")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(training.process, (str(folder),), training.WORLD)
    return [json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(training.WORLD)]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_one_process(found: list[dict[str, Any]], way: str) -> None:
    assert [each[way] for each in found] == [""] * training.WORLD


def test_launches_go_on_while_rows_travel(found: list[dict[str, Any]]) -> None:
    """A window of 12 over 64 rows: of 4 chunks of 8 rows, the second rank's first two look at the first rank's."""
    first, second = (next(each for each in found if each["rank"] == rank) for rank in range(2))
    assert first["order"] == [
        "begins",
        "forward 32",
        "arrived",
        "begins",
        "arrived",
        "begins",
        "backward 32",
        "arrived",
    ]
    assert second["order"] == [
        *("begins", "forward 16", "arrived", "forward 16"),
        *("begins", "arrived", "backward 16", "begins", "backward 16", "arrived"),
    ]
    assert first["order, kept"] == ["begins", "forward 32", "arrived", "begins", "backward 32", "arrived"]
    assert second["order, kept"] == [
        *("begins", "forward 16", "arrived", "forward 16"),
        *("backward 16", "begins", "backward 16", "arrived"),
    ]
