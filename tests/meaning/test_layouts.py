"""Layouts, strides, packed batches, sizes: the meaning table's rows on how arrays come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from tests.meaning.variants import DECODE


@pytest.fixture
def qkv(draw) -> tuple[np.ndarray, ...]:
    return draw(2, 4, 45, 32), draw(2, 2, 77, 32), draw(2, 2, 77, 32)


def call(attend, name: str, arrays: Any, **keywords: Any) -> np.ndarray:
    """out of arrays that are on the device already, in layout bhsd."""
    out = attend.device.get(attend.kernel(name)(*arrays, **keywords))
    return out.swapaxes(1, 2) if keywords.get("layout") == "bshd" else out


def test_bshd(attend, device, qkv) -> None:
    expected = attend("causal", *qkv)
    swapped = [device.put(item.swapaxes(1, 2)) for item in qkv]
    np.testing.assert_array_equal(call(attend, "causal", swapped, layout="bshd"), expected)


def test_bshd_arrays_seen_as_bhsd(attend, device, qkv) -> None:
    """A transposed view is only another set of strides."""
    expected = attend("causal", *qkv)
    swapped = [device.put(item.swapaxes(1, 2)).swapaxes(1, 2) for item in qkv]
    np.testing.assert_array_equal(call(attend, "causal", swapped), expected)


def test_a_fused_projection(attend, device, draw) -> None:
    """q, k and v are slices of one [batch, length, 3, heads, head_dim] array."""
    fused = draw(2, 50, 3, 4, 32)
    expected = attend("causal", *(fused[:, :, i].swapaxes(1, 2) for i in range(3)))
    held = device.put(fused)
    arrays = [held[:, :, i] for i in range(3)]
    np.testing.assert_array_equal(call(attend, "causal", arrays, layout="bshd"), expected)


def test_broadcast_keys(attend, device, qkv) -> None:
    q, k, v = qkv
    expected = attend("causal", q, np.repeat(k[:1, :1], 2, 1).repeat(2, 0), np.repeat(v[:1, :1], 2, 1).repeat(2, 0))
    seen = [device.broadcast(device.put(item[:1, :1]), item.shape) for item in (k, v)]
    np.testing.assert_array_equal(call(attend, "causal", [device.put(q), *seen]), expected)


@pytest.mark.parametrize("offset", [1, 3, 8])
def test_rows_that_are_not_aligned(attend, device, qkv, offset) -> None:
    """Bases and strides that aren't multiples of 16 bytes."""
    expected = attend("causal", *qkv)
    wide = [np.zeros((*item.shape[:-1], 35 + offset), np.float16) for item in qkv]
    for space, item in zip(wide, qkv, strict=True):
        space[..., offset : offset + 32] = item
    arrays = [device.put(space)[..., offset : offset + 32] for space in wide]
    np.testing.assert_array_equal(call(attend, "causal", arrays), expected)


def test_out_may_be_a_strided_view(attend, device, qkv) -> None:
    expected = attend("causal", *qkv)
    space = device.full((2, 45, 4, 48), np.nan, np.float16)
    out = space[..., :32].swapaxes(1, 2)
    result = attend.kernel("causal")(*map(device.put, qkv), out=out)
    np.testing.assert_array_equal(device.get(result), expected)
    np.testing.assert_array_equal(device.get(out), expected)
    assert np.isnan(device.get(space)[..., 32:]).all()  # nothing is written beside it


def test_last_stride_must_be_one(attend, device, qkv) -> None:
    _, k, v = map(device.put, qkv)
    wide = device.full((2, 4, 45, 64), 0.5, np.float16)
    with pytest.raises(attncc.AttnccError, match="q"):
        attend.kernel("causal")(wide[..., ::2], k, v)


def test_strided_inputs(attend, device, draw, qkv) -> None:
    slope = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    expected = attend("alibi", *qkv, slope=slope)
    held = device.put(np.repeat(slope, 3))[::3]
    out = call(attend, "alibi", list(map(device.put, qkv)), slope=held)
    np.testing.assert_array_equal(out, expected)


LENGTHS = [(17, 40), (0, 9), (33, 33), (1, 64), (20, 0), (50, 12)]
# All fit a tile of DECODE's, which so runs each of them, and all at once.
OF_DECODE = [(7, 40), (0, 9), (3, 330), (1, 64), (8, 0), (5, 12)]


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("name", ["causal", "documents", "gated"])
def test_packed_batches_equal_their_sequences(attend, device, draw, name, layout) -> None:
    """All lengths differ, some are 0: out and lse of each sequence equal those of a dense call with it alone, to the
    last bit unless sizes choose what runs: by default a short sequence alone runs decode, and whether documents are in
    order isn't verified of few keys alone, so that tiles of 16 queries and few keys begin elsewhere."""
    lengths = OF_DECODE if attend.settings == DECODE else LENGTHS
    moves = name == "documents" and device.arch is not None and "block_q = 16" in (attend.settings or "")
    tolerance = {"rtol": 2**-9, "atol": 2**-12} if moves or attend.settings is None else {"rtol": 0}
    rng = np.random.default_rng(3)
    parts = [(draw(4, q, 32), draw(2, kv, 32), draw(2, kv, 32)) for q, kv in lengths]
    extra = [_inputs(name, q, kv, rng) for q, kv in lengths]
    packed = [np.concatenate(items, axis=1) for items in zip(*parts, strict=True)]
    inputs = {key: device.put(np.concatenate([item[key] for item in extra])) for key in extra[0]}
    cu_q, cu_kv = (np.cumsum([0, *each]).astype(np.int32) for each in zip(*lengths, strict=True))
    arrays = [device.put(item if layout == "bhsd" else item.swapaxes(0, 1)) for item in packed]
    starts = {"cu_seqlens_q": device.put(cu_q), "cu_seqlens_kv": device.put(cu_kv)}
    out, lse = attend.kernel(name)(*arrays, layout=layout, return_lse=True, **starts, **inputs)
    out, lse = device.get(out), device.get(lse)
    out = out if layout == "bhsd" else out.swapaxes(0, 1)
    for i, (q, k, v) in enumerate(parts):
        rows = slice(cu_q[i], cu_q[i + 1])
        one = {key: value[None] for key, value in extra[i].items()}
        alone, alone_lse = attend(name, q[None], k[None], v[None], lse=True, **one)
        np.testing.assert_allclose(out[:, rows], alone[0], **tolerance)
        np.testing.assert_allclose(lse[:, rows], alone_lse[0], **tolerance)


def _inputs(name: str, q_len: int, kv_len: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The inputs of one sequence, without their batch axis."""
    if name == "documents":
        return {"doc": np.sort(rng.integers(0, 3, kv_len)).astype(np.int32)}
    return {"gate": rng.random(q_len) < 0.5} if name == "gated" else {}


def test_lengths_of_zero(attend, draw) -> None:
    q, k = draw(2, 2, 0, 32), draw(2, 2, 40, 32)
    assert attend("causal", q, k, k).shape == (2, 2, 0, 32)
    q, k = draw(2, 2, 40, 32), draw(2, 2, 0, 32)
    out, lse = attend("causal", q, k, k, lse=True)
    assert np.all(out == 0)
    assert np.all(np.isneginf(lse))


def test_one_kernel_serves_all_sizes(attend, draw) -> None:
    """Batch, heads, group and lengths are run-time values of one compiled kernel."""
    for batch, heads, kv_heads, q_len, kv_len in [
        (1, 1, 1, 1, 1),
        (3, 6, 2, 1, 300),
        (1, 8, 1, 150, 20),
        (2, 5, 5, 64, 64),
    ]:
        q = draw(batch, heads, q_len, 32)
        k, v = draw(batch, kv_heads, kv_len, 32), draw(batch, kv_heads, kv_len, 32)
        attend.judge("causal", q, k, v)
