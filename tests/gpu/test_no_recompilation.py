"""Nothing is rendered, compiled or loaded while sizes and numbers are swept: counted where each of them happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import attncc
from attncc import machine_code
from attncc.codegen import render
from attncc.runtime.cuda.driver import Driver
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

# A window, a prefix, a sink and a cap that calls bring, a causal diagonal that they shift, documents, and slopes.
SWEPT = """attn 1
variant swept {
    input width: i32
    input prefix: i32
    input offset: i32
    input cap: f32
    input slope: f32[head]
    input doc: i32[batch, pos] nondecreasing
    let distance = q_pos - kv_idx + offset
    keep if 0 <= distance < width or kv_idx < prefix
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = score - slope[h] * distance
    score = cap * tanh(score / cap)
}
"""
NEIGHBOURS = """attn 1
variant neighbours {
    input columns: i32
    input reach: i32
    keep if abs(q_idx // columns - kv_idx // columns) <= reach
    keep if abs(q_idx % columns - kv_idx % columns) <= reach
}
"""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counting(*arguments: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **keywords)

        monkeypatch.setattr(owner, name, counting)

    count(render, "_fill")
    count(machine_code, "submit_cached")
    count(Driver, "load")
    return counts


def kernel(text: str, family: str) -> Any:
    target = "sm_90a" if family == "hopper" else cuda().target
    if target == "sm_90a" and cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    name = text.split()[3]
    schedule = f"schedule tested for {name} on {target} {{ family = {family} }}\n"
    return attncc.compile(text + schedule, dtype="bf16", head_dim=64, arch=target)


def shapes() -> Iterator[tuple[int, int, int, int]]:
    """Batch, query heads, q_len, kv_len."""
    for batch, heads in ((1, 2), (3, 8)):
        for q_len, kv_len in ((1, 1), (1, 777), (64, 64), (333, 444), (1000, 1000), (2048, 4096)):
            yield batch, heads, q_len, kv_len


def swept(call: Callable[..., Any]) -> None:
    for number, (batch, heads, q_len, kv_len) in enumerate(shapes()):
        q, k = (
            torch.randn(batch, n, length, 64, device="cuda").bfloat16() for n, length in ((heads, q_len), (2, kv_len))
        )
        doc = torch.arange(kv_len, device="cuda").div(100, rounding_mode="floor").int().repeat(batch, 1)
        numbers = {"width": 7 * number + 1, "prefix": 13 * number, "offset": number - 4, "cap": 2.0 + number}
        slope = torch.rand(heads, device="cuda")
        call(q, k, k, doc=doc, slope=slope, **numbers)
        tensors = {name: torch.tensor(value, device="cuda") for name, value in numbers.items()}
        tensors = {name: x if x.is_floating_point() else x.int() for name, x in tensors.items()}
        call(q, k, k, doc=doc, slope=slope, **tensors)


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_windows_prefixes_offsets_caps_and_lengths(family: str, counted: Counter[str]) -> None:
    made = kernel(SWEPT, family)
    made.load()
    assert counted["_fill"] and counted["load"]  # else nothing is counted
    counted.clear()
    swept(made)
    torch.cuda.synchronize()
    assert not counted


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_neighbourhoods_of_any_size(family: str, counted: Counter[str]) -> None:
    made = kernel(NEIGHBOURS, family)
    made.load()
    counted.clear()
    for columns in (8, 13, 32, 64):
        for reach in (1, 3, 6):
            q = torch.randn(1, 2, columns * columns, 64, device="cuda").bfloat16()
            made(q, q, q, columns=columns, reach=reach)
    torch.cuda.synchronize()
    assert not counted
