"""Caches of 8 bits on a GPU, by the accuracy rule. Rows, pages and scales that no sequence uses hold NaN, or 127."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import attncc
from attncc import reference
from attncc.problem.facts import KERNEL_DTYPES, KV_DTYPES, numpy_dtype
from attncc.reference.accuracy import accuracy
from tests.appended import Case, arrays_of, options

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

Array = NDArray[Any]
DEVICE = "cuda"
HEADS, KV_HEADS, ROOM, D = 8, 2, 1024, 128
LENGTHS = np.int32([ROOM, 333, 1, 0])
MOST = {"e4m3": 448, "int8": 127}
CASES = [("bf16", "int8", 16), ("fp16", "e4m3", None), ("bf16", "e4m3", 64)]


def put(array: Array) -> Any:
    """On the GPU; torch has no views of ml_dtypes' types."""
    if array.dtype.name not in ("bfloat16", "float8_e4m3fn"):
        return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)
    bits = np.ascontiguousarray(array).view(np.int16 if array.itemsize == 2 else np.uint8)
    return torch.from_numpy(bits).to(DEVICE).view(getattr(torch, array.dtype.name))


def get(tensor: Any) -> Array:
    return np.asarray(tensor.double().cpu().numpy())


def cache(dtype: str, kv_dtype: str, page: int | None, rows: int) -> dict[str, Array]:
    """A call over keys and values of about 1."""
    rng = np.random.default_rng(0)
    narrow, batch = numpy_dtype(KV_DTYPES[kv_dtype]), len(LENGTHS)
    given = {"q": rng.standard_normal((batch, HEADS, rows, D), np.float32).astype(numpy_dtype(KERNEL_DTYPES[dtype]))}
    given["kv_lens"] = LENGTHS
    pages = batch if page is None else sum(-(-int(length) // page) for length in LENGTHS) + 2
    length = ROOM if page is None else page
    used = LENGTHS[:, None] > np.arange(ROOM) if page is None else np.ones((pages, length), bool)
    if page is not None:
        numbers = iter(rng.permutation(pages))
        given["block_table"] = np.full((batch, ROOM // page), -1, np.int32)
        for b, count in enumerate(-(-LENGTHS // page)):
            given["block_table"][b, :count] = [next(numbers) for _ in range(count)]
            used[given["block_table"][b, :count]] = (LENGTHS[b] > np.arange(count * page)).reshape(count, page)
        used[list(numbers)] = False
    for name in "kv":
        largest = rng.uniform(2, 5, (pages, KV_HEADS)).astype(np.float32)
        scale = np.where(used.any(1)[:, None] | (page is None), largest / MOST[kv_dtype], np.float32(np.nan))
        numbers_of = (
            rng.standard_normal((pages, KV_HEADS, length, D), np.float32) / (largest / MOST[kv_dtype])[..., None, None]
        )
        limited = np.clip(np.rint(numbers_of) if kv_dtype == "int8" else numbers_of, -MOST[kv_dtype], MOST[kv_dtype])
        unused = np.nan if kv_dtype == "e4m3" else 127
        given[name] = np.where(used[:, None, :, None], limited, unused).astype(narrow)
        given[f"{name}_scale"] = scale.astype(np.float32)
    return given


@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize(("dtype", "kv_dtype", "page"), CASES)
def test_decode_and_prefill(dtype: str, kv_dtype: str, page: int | None, rows: int) -> None:
    kernel = attncc.compile("causal", dtype=dtype, head_dim=D)
    given = cache(dtype, kv_dtype, page, rows)
    out, lse = kernel(**{name: put(array) for name, array in given.items()}, return_lse=True)
    oracle, oracle_lse = reference.forward(kernel.variant, **given)
    baseline, _ = reference.baseline(kernel.variant, **given)
    found = accuracy(get(out), baseline, oracle, dtype)
    assert found.holds, str(found)
    np.testing.assert_allclose(get(lse), oracle_lse, atol=2e-5, rtol=2e-6)


@pytest.mark.parametrize(("normalizer", "kv_dtype", "page"), [("none", "e4m3", None), ("sigmoid", "int8", 16)])
def test_probabilities_of_any_size(normalizer: str, kv_dtype: str, page: int | None) -> None:
    """Beyond fp16's range, in which products are; of head dims that leave parts of panels empty."""
    text = f"attn 1\nvariant sized {{\n    keep if q_pos >= kv_idx\n    normalize {normalizer}\n}}\n"
    kernel = attncc.compile(text, dtype="bf16", head_dim=48, value_head_dim=80)
    given = cache("bf16", kv_dtype, page, 1)
    given |= {"q": given["q"][..., :48], "k": given["k"][..., :48], "v": given["v"][..., :80]}
    scale = 1e4 if normalizer == "none" else -3.0  # of sigmoids many are near 0
    out = kernel(**{name: put(array) for name, array in given.items()}, scale=scale)
    oracle, _ = reference.forward(kernel.variant, **given, scale=scale)
    baseline, _ = reference.baseline(kernel.variant, **given, scale=scale)
    found = accuracy(get(out), baseline, oracle, "bf16")
    assert found.holds, str(found)


@pytest.mark.parametrize(("dtype", "kv_dtype", "page"), CASES)
def test_every_number_is_widened_exactly(dtype: str, kv_dtype: str, page: int | None) -> None:
    """One key each: the output is its value. A NaN is one. Kernels serve pages of any size: here of one row."""
    kernel = attncc.compile("causal", dtype=dtype, head_dim=D)
    numbers = np.arange(256, dtype=np.uint8).view(numpy_dtype(KV_DTYPES[kv_dtype])).reshape(2, 1, 1, D)
    q = np.zeros((2, 1, 1, D), numpy_dtype(KERNEL_DTYPES[dtype]))
    tables = {"kv_lens": np.int32([1, 1]), "block_table": np.int32([[0], [1]])} if page is not None else {}
    where = {name: put(array) for name, array in tables.items()}
    out = get(kernel(put(q), put(np.zeros_like(numbers)), put(numbers), **where))
    assert np.array_equal(out, numbers.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_append_has_the_bits_of_the_executor(kv_dtype: str) -> None:
    """Without rotation, whose sums are contracted on a GPU."""
    for page, layout in ((None, "bhsd"), (7, "bshd"), (16, "bhsd")):
        case = Case("bf16", page, page == 7, layout, kv_dtype=kv_dtype)
        ours, theirs = ({name: array.copy() for name, array in arrays_of(case).items()} for _ in range(2))
        tensors = {name: put(array) for name, array in ours.items()}
        attncc.append(**tensors, **options(case))
        attncc.append(**theirs, **options(case))
        for name in ("k_cache", "v_cache"):
            assert tensors[name].view(torch.uint8).cpu().numpy().tobytes() == theirs[name].tobytes(), (case, name)


def test_one_graph_serves_all_lengths() -> None:
    """New rows are quantised into pages, then seen; lengths change between replays."""
    kernel = attncc.compile("causal", dtype="bf16", head_dim=D)
    given = {name: put(array) for name, array in cache("bf16", "int8", 16, 1).items()}
    given["k_scale"], given["v_scale"] = (torch.nan_to_num(given[name], 0.03) for name in ("k_scale", "v_scale"))
    given["block_table"].clamp_(min=0)
    news = [torch.randn(len(LENGTHS), KV_HEADS, 1, D, device=DEVICE).bfloat16() for _ in range(2)]
    fresh = {name: given[name].clone() for name in ("k", "v")}

    def step() -> Any:
        return kernel(**given, k_new=news[0], v_new=news[1])

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for lengths in ([7, 900, 64, 1], [1024, 1, 16, 33]):
        given["kv_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        for name in ("k", "v"):
            given[name].copy_(fresh[name])
        graph.replay()
        found = out.clone()
        for name in ("k", "v"):
            given[name].copy_(fresh[name])
        assert torch.equal(found, step())
        assert torch.isfinite(found).all()
