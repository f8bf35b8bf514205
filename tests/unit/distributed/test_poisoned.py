"""No result depends on memory before it was written, whatever plans had it before and however late ranks are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import PEERS, run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import poisoned  # noqa: E402  (needs torch)


@pytest.mark.skipif(not PEERS, reason="processes can't copy into each other's memory")
def test_memory_that_is_not_written_yet_never_shows(tmp_path: Path) -> None:
    run_ranks(poisoned.process, (str(tmp_path),), poisoned.WORLD)
    for rank in range(poisoned.WORLD):
        found = json.loads(Path(tmp_path, f"{rank}.json").read_text("utf-8"))
        assert len(found) == len(poisoned.NAMES) * poisoned.ROUNDS * 2
        assert {name: wrong for name, wrong in found.items() if wrong} == {}
