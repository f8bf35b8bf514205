"""Caches that 2, 3 and 4 processes share: equal to one process that has all keys, for every spec of the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.distributed.key_places import depends_on_place

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch without gloo", allow_module_level=True)

from tests.ranks import run_ranks  # noqa: E402  (needs torch)
from tests.unit.distributed import decoding  # noqa: E402  (needs torch)


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ranks_together_find_what_one_process_does(tmp_path: Path, rest: bool) -> None:
    run_ranks(decoding.process, (str(tmp_path), rest), 4)
    found: list[dict[str, Any]] = [json.loads(Path(tmp_path, f"{rank}.json").read_text("utf-8")) for rank in range(4)]
    for ranks in decoding.RANKS:
        wanted = {case.name for case, numbers in decoding.chosen(rest=rest) if ranks in numbers}
        assert all(each[str(ranks)].keys() == wanted for each in found[:ranks])
        assert [(name, text) for each in found for name, text in each[str(ranks)].items() if text] == []
    if not rest:
        assert all(each["appended"] for each in found)
        codes = {name: code for name, (_, code) in decoding.REFUSED.items()}
        assert [each["refused"] for each in found[:2]] == [codes, codes]


def moves(condition: str) -> bool:
    text = f"attn 1\nimport masks\nvariant x {{\n    input n: i32[_]\n    keep if n[h] >= 0 and ({condition})\n}}\n"
    return depends_on_place(attncc.parse(text).variant)


@pytest.mark.parametrize(
    "condition",
    ["causal()", "window(20)", "(q_pos - kv_idx) % 4 == 0", "3 * q_pos - 3 * kv_idx < n[b]", "q_idx < 3",
     "-kv_idx >= -q_pos", "2 * (kv_idx + 1) == 2 * q_pos"],
)  # fmt: skip
def test_differences_need_no_place(condition: str) -> None:
    assert not moves(condition)


@pytest.mark.parametrize(
    "condition",
    ["kv_idx < 4", "q_pos // 8 == kv_idx // 8", "q_pos + kv_idx > 3", "2 * q_pos >= kv_idx", "n[kv_idx] > 0",
     "kv_len > 8", "q_pos * kv_idx > 0", "q_pos < n[b]"],
)  # fmt: skip
def test_places_are_seen(condition: str) -> None:
    assert moves(condition)
