"""What an earlier call left in memory that ranks share never shows, also while rows of this call are on their way."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import PEERS, run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import late  # noqa: E402  (needs torch)


@pytest.mark.skipif(not PEERS, reason="processes can't copy into each other's memory")
def test_rows_of_an_earlier_call_never_show(tmp_path: Path) -> None:
    run_ranks(late.process, (str(tmp_path),), late.WORLD)
    for rank in range(late.WORLD):
        for before, (slow, at_once) in torch.load(tmp_path / f"{rank}.pt").items():
            assert all(map(torch.equal, slow, at_once)), (rank, before)
