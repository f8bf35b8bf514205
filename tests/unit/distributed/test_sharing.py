"""Every spec of the library and random variants, shared by 2, 3 and 4 processes: equal to one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import sharing  # noqa: E402  (needs torch)

Troubles = dict[str, dict[str, str]]


def troubles(folder: Path, *, rest: bool) -> list[Troubles]:
    """Of each process, by ranks and case. Four are started once for all, since each takes seconds to import torch."""
    run_ranks(sharing.process, (str(folder), rest), max(sharing.RANKS))
    return [json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(max(sharing.RANKS))]


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ranks_together_find_what_one_process_does(tmp_path: Path, rest: bool) -> None:
    of_all = troubles(tmp_path, rest=rest)
    for ranks in sharing.RANKS:
        wanted = {case.name for case, numbers in sharing.chosen(rest=rest) if ranks in numbers}
        of_ranks = [found[str(ranks)] for found in of_all[:ranks]]
        assert all(found.keys() == wanted for found in of_ranks)
        assert [(name, text) for found in of_ranks for name, text in found.items() if text] == []
