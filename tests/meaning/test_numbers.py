"""lse, scale, normalizers, large scores, dtypes, head dims: the meaning table's rows on numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import attncc
from attncc import reference
from tests.meaning.variants import source


def scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / np.sqrt(q.shape[-1])


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_lse_is_natural_fp32_and_head_first_in_both_layouts(attend, device, draw, layout) -> None:
    q, k, v = draw(2, 3, 45, 32), draw(2, 3, 70, 32), draw(2, 3, 70, 32)
    exact = scores(q, k)
    exact = np.log(np.exp(exact).sum(-1))
    arrays = [item if layout == "bhsd" else item.swapaxes(1, 2) for item in (q, k, v)]
    _, lse = attend.kernel("full")(*map(device.put, arrays), layout=layout, return_lse=True)
    assert str(lse.dtype).removeprefix("torch.") == "float32"
    np.testing.assert_allclose(device.get(lse), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("scale", [0.0, -0.5, 0.01, 2.0])
def test_scale_of_any_sign(attend, draw, scale) -> None:
    q, k, v = draw(1, 2, 50, 32), draw(1, 2, 90, 32), draw(1, 2, 90, 32)
    attend.judge("causal", q, k, v, scale=scale)


def test_the_calls_scale_beats_the_variants(attend, draw) -> None:
    q, k, v = draw(1, 2, 50, 32), draw(1, 2, 90, 32), draw(1, 2, 90, 32)
    own, halved = attend("half_scale", q, k, v), attend("full", q, k, v, scale=0.5 / np.sqrt(32))
    np.testing.assert_array_equal(own, halved)
    np.testing.assert_array_equal(attend("half_scale", q, k, v, scale=0.3), attend("full", q, k, v, scale=0.3))


@pytest.mark.parametrize("name", ["sigmoids", "unnormalised"])
def test_normalizers_without_row_sums(attend, draw, name) -> None:
    q, k, v = draw(1, 4, 50, 32), draw(1, 2, 90, 32), draw(1, 2, 90, 32)
    attend.judge(name, q, k, v)
    with pytest.raises(attncc.AttnccError, match="return_lse"):
        attend(name, q, k, v, lse=True)


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_of_ten_thousand(attend, draw, sign) -> None:
    """The running maximum grows by thousands from key to key, in either direction, and nothing overflows."""
    q, k, v = draw(1, 1, 20, 32), draw(1, 1, 100, 32), draw(1, 1, 100, 32)
    q[..., :], k[..., :] = 0, 0
    q[..., 0] = 100
    k[0, 0, :, 0] = sign * np.linspace(-100, 100, 100)
    out, lse = attend("full", q, k, v, scale=1.0, lse=True)
    best = 99 if sign > 0 else 0
    np.testing.assert_array_equal(out, np.broadcast_to(v[:, :, best : best + 1].astype(np.float64), out.shape))
    np.testing.assert_allclose(lse, 1e4, rtol=1e-6)


def test_all_scores_equally_low(attend, draw) -> None:
    q, k, v = draw(1, 1, 20, 32), draw(1, 1, 64, 32), draw(1, 1, 64, 32)
    q[..., :], k[..., :] = 0, 0
    q[..., 0], k[..., 0] = 100, -100
    out, lse = attend("full", q, k, v, scale=1.0, lse=True)
    np.testing.assert_allclose(out, np.broadcast_to(v.astype(np.float64).mean(2, keepdims=True), out.shape), atol=2e-3)
    np.testing.assert_allclose(lse, -1e4 + np.log(64), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=["fp16", "bf16", "fp32"])
def test_dtypes(attend, draw, dtype) -> None:
    q, k, v = draw(1, 4, 65, 32, dtype=dtype), draw(1, 2, 130, 32, dtype=dtype), draw(1, 2, 130, 32, dtype=dtype)
    attend.judge("causal", q, k, v)


def test_fp64_on_the_cpu_alone(draw) -> None:
    q, k, v = (draw(1, 2, 30, 24, dtype=np.float64) for _ in range(3))
    kernel = attncc.compile(source("causal", None, "sm_90"), dtype="fp64", head_dim=24)
    exact, _ = attncc.parse(source("causal", None, "sm_90")).reference(q, k, v)
    np.testing.assert_allclose(kernel(q, k, v), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_any_group_of_heads(attend, draw, group) -> None:
    """V holds the number of its head, so out tells which one each query head read."""
    q, k = draw(2, 2 * group, 33, 32), draw(2, 2, 40, 32)
    v = np.broadcast_to(np.arange(1, 3)[:, None, None], (2, 2, 40, 32)).astype(np.float16)
    out = attend("causal", q, k, v)
    np.testing.assert_allclose(
        out[:, :, :, 0], np.broadcast_to(np.repeat([1, 2], group)[:, None], out.shape[:3]), rtol=2e-3
    )


@pytest.mark.parametrize("head_dims", [(16, 16), (24, 24), (40, 72), (96, 32), (136, 136), (192, 128), (256, 256)])
def test_head_dims(device, draw, head_dims) -> None:
    head_dim, value_head_dim = head_dims
    text, dims = source("causal", None, device.target), {"head_dim": head_dim, "value_head_dim": value_head_dim}
    kernel = attncc.compile(text, dtype="fp16", arch=device.arch, **dims)
    q, k, v = draw(1, 4, 70, head_dim), draw(1, 2, 90, head_dim), draw(1, 2, 90, value_head_dim)
    out = device.get(kernel(*map(device.put, (q, k, v))))
    variant = attncc.parse(text).variant
    exact, plain = reference.forward(variant, q, k, v)[0], reference.baseline(variant, q, k, v)[0]
    accuracy = reference.accuracy(out, plain, exact, "fp16")
    assert accuracy.holds, accuracy


@pytest.mark.parametrize("cap", [0.5, 30.0, np.array(2.0, np.float32)], ids=["low", "high", "array"])
def test_scalar_inputs_as_numbers_and_arrays(attend, draw, cap) -> None:
    q, k, v = draw(1, 2, 50, 32), draw(1, 2, 70, 32), draw(1, 2, 70, 32)
    attend.judge("softcap", q, k, v, cap=cap)
