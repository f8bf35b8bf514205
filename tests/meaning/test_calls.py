"""Refusals, repeatability, what comes back: the meaning table's rows on calls."""

from __future__ import annotations

import numpy as np
import pytest

import attncc


def test_bitwise_reproducible(attend, draw) -> None:
    q, k, v = draw(2, 4, 150, 32), draw(2, 2, 333, 32), draw(2, 2, 333, 32)
    slope = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    first, first_lse = attend("alibi", q, k, v, slope=slope, lse=True)
    for _ in range(3):
        again, again_lse = attend("alibi", q, k, v, slope=slope, lse=True)
        np.testing.assert_array_equal(again, first)
        np.testing.assert_array_equal(again_lse, first_lse)


def test_the_same_kind_comes_back(attend, device, draw) -> None:
    q = device.put(draw(1, 2, 20, 32))
    out, lse = attend.kernel("causal")(q, q, q, return_lse=True)
    assert type(out) is type(q)
    assert type(lse) is type(q)
    assert (tuple(out.shape), out.dtype) == (tuple(q.shape), q.dtype)


def test_out_is_returned(attend, device, draw) -> None:
    q = device.put(draw(1, 2, 20, 32))
    out = device.full((1, 2, 20, 32), np.nan, np.float16)
    assert attend.kernel("causal")(q, q, q, out=out) is out


GOOD = (1, 2, 20, 32)

# What is wrong with a call, and the argument whose name the refusal must hold.
REFUSED = {
    "rank of q": (lambda a: {"q": a(2, 20, 32)}, "q"),
    "head dim of k": (lambda a: {"k": a(1, 2, 20, 16)}, "k"),
    "head dim of v": (lambda a: {"v": a(1, 2, 20, 40)}, "v"),
    "batch of k": (lambda a: {"k": a(2, 2, 20, 32)}, "k"),
    "length of v": (lambda a: {"v": a(1, 2, 21, 32)}, "v"),
    "heads not a multiple": (lambda a: {"k": a(1, 3, 20, 32), "v": a(1, 3, 20, 32)}, "k"),
    "dtype of q": (lambda a: {"q": a(*GOOD, dtype=np.float32)}, "q"),
    "dtype of k": (lambda a: {"k": a(*GOOD, dtype=np.float32)}, "k"),
    "missing input": (lambda a: {"slope": None}, "slope"),
    "unknown input": (lambda a: {"slop": a(2, dtype=np.float32)}, "slop"),
    "length of an input": (lambda a: {"slope": a(3, dtype=np.float32)}, "slope"),
    "rank of an input": (lambda a: {"slope": a(1, 2, dtype=np.float32)}, "slope"),
    "dtype of an input": (lambda a: {"slope": a(2, dtype=np.float16)}, "slope"),
    "number for a tensor": (lambda a: {"slope": 0.5}, "slope"),
    "shape of out": (lambda a: {"out": a(1, 2, 19, 32)}, "out"),
    "dtype of out": (lambda a: {"out": a(*GOOD, dtype=np.float32)}, "out"),
    "layout": (lambda a: {"layout": "sbhd"}, "layout"),
    "only one of cu_seqlens": (lambda a: {"cu_seqlens_q": a(2, dtype=np.int32)}, "cu_seqlens_kv"),
    "dtype of scale": (lambda a: {"scale": "big"}, "scale"),
    "not an array": (lambda a: {"q": [[1.0]]}, "q"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_bad_calls_are_refused_by_name(attend, device, mistake) -> None:
    def array(*shape: int, dtype: type = np.float16) -> object:
        return device.put(np.ones(shape, dtype))

    change, name = REFUSED[mistake]
    good = {"q": array(*GOOD), "k": array(*GOOD), "v": array(*GOOD), "slope": array(2, dtype=np.float32)}
    arguments = {key: value for key, value in {**good, **change(array)}.items() if value is not None}
    with pytest.raises(attncc.AttnccError) as refusal:
        attend.kernel("alibi")(**arguments)
    assert refusal.value.diagnostics[0].code.startswith("A6")
    assert f"`{name}`" in str(refusal.value)
    attend.kernel("alibi")(**good)


@pytest.mark.gpu
def test_arrays_on_two_devices_are_refused(draw) -> None:
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(draw(*GOOD))
    kernel = attncc.compile("attn 1\nvariant full {}\n", dtype="fp16", head_dim=32)
    with pytest.raises(attncc.AttnccError, match="`k`"):
        kernel(q.cuda(), q, q.cuda())
