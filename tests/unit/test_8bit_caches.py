"""Caches of 8 bits on the CPU: what calls mean, what is refused, and what frameworks, packages and `explain` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import attncc
from attncc import reference
from attncc.diagnostics import AttnccError
from attncc.package import prepare
from attncc.problem.facts import KV_DTYPES, numpy_dtype
from attncc.reference.accuracy import accuracy
from tests.test_cli import unwrapped

Array = NDArray[Any]
KINDS = pytest.mark.parametrize("kv_dtype", KV_DTYPES)
LENGTHS = np.int32([50, 64])
SPEC = Path(__file__).resolve().parents[2] / "specs" / "causal.attn"


def kernel(dtype: str = "bf16") -> Any:
    return attncc.compile("causal", dtype=dtype, head_dim=32)


def pool(kv_dtype: str, seed: int = 0) -> dict[str, Array]:
    """A call over nine pages of 16 keys, of which the last is nobody's and holds NaN, as its scales do."""
    rng = np.random.default_rng(seed)
    k, v = (rng.uniform(-120, 120, (9, 2, 16, 32)).astype(numpy_dtype(KV_DTYPES[kv_dtype])) for _ in range(2))
    k_scale, v_scale = rng.uniform(0.005, 0.02, (2, 9, 2)).astype(np.float32)
    k_scale[8] = v_scale[8] = np.nan
    if kv_dtype == "e4m3":
        k[8] = v[8] = np.nan
    q = rng.standard_normal((2, 4, 3, 32), np.float32).astype(ml_dtypes.bfloat16)
    table = np.int32([[3, 1, 0, 7], [2, 6, 5, 4]])
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    return {"q": q, "k": k, "v": v, "kv_lens": LENGTHS, "block_table": table, **scales}


def widened(given: dict[str, Array]) -> dict[str, Array]:
    """The same call with the numbers that k and v stand for, in fp64."""
    wide = {name: given[name].astype(np.float64) for name in ("q", "k", "v")}
    for name in ("k", "v"):
        scale = given[f"{name}_scale"].astype(np.float64)
        wide[name] *= scale[:, :, None, None]
    return {**wide, "kv_lens": given["kv_lens"], "block_table": given["block_table"]}


@KINDS
def test_scales_of_pages(kv_dtype: str) -> None:
    given = pool(kv_dtype)
    variant = attncc.parse("causal").variant
    oracle, _ = reference.forward(variant, **given)
    exact, _ = reference.forward(variant, **widened(given))
    np.testing.assert_allclose(oracle, exact, rtol=1e-12, atol=1e-12)
    baseline, _ = reference.baseline(variant, **given)
    assert accuracy(kernel()(**given), baseline, oracle, "bf16").holds


@KINDS
@pytest.mark.parametrize("form", ["sequences", "one row", "absent"])
def test_scales_of_a_contiguous_cache(form: str, kv_dtype: str) -> None:
    rng = np.random.default_rng(1)
    k, v = (rng.uniform(-2, 2, (2, 2, 40, 32)).astype(numpy_dtype(KV_DTYPES[kv_dtype])) for _ in range(2))
    q = rng.standard_normal((2, 4, 5, 32), np.float32).astype(np.float16)
    rows = {"sequences": 2, "one row": 1}.get(form)
    scale = None if rows is None else rng.uniform(0.3, 2, (rows, 2)).astype(np.float32)
    out = kernel("fp16")(q, k, v, kv_lens=np.int32([40, 17]), k_scale=scale, v_scale=scale)
    factor = np.float64(1) if scale is None else scale.astype(np.float64)[:, :, None, None]
    wide = (x.astype(np.float64) * factor for x in (k, v))
    exact, _ = attncc.parse("causal").reference(q.astype(np.float64), *wide, kv_lens=np.int32([40, 17]))
    np.testing.assert_allclose(out.astype(np.float64), exact, atol=4e-3, rtol=2e-3)


def test_a_pool_with_a_page_for_each_sequence_has_scales_of_pages() -> None:
    """Tables name them in another order."""
    q = np.zeros((2, 2, 1, 32), ml_dtypes.bfloat16)
    ones = np.ones((2, 2, 16, 32), np.int8)
    scale = np.float32([[1, 1], [2, 2]])
    table, lengths = np.int32([[1], [0]]), np.int32([16, 16])
    out = kernel()(q, ones, ones, kv_lens=lengths, block_table=table, v_scale=scale)
    assert out[:, 0, 0, 0].astype(np.float32).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("A604", {"v": np.zeros((9, 2, 16, 32), ml_dtypes.bfloat16)}),
        ("A604", {"v": np.zeros((9, 2, 16, 32), ml_dtypes.float8_e4m3fn)}),
        ("A604", {"k": np.zeros((9, 2, 16, 32), np.uint8)}),
        ("A604", {"q": np.zeros((2, 4, 3, 32), np.int8)}),
        ("A629", {"k_scale": np.ones((3, 2), np.float32)}),
        ("A629", {"k_scale": np.ones((9, 1), np.float32)}),
        ("A629", {"v_scale": np.ones((9, 2), np.float64)}),
        ("A629", {"v_scale": np.ones((2, 2), np.float32)}),  # those of k belong to pages
        ("A622", {"v_scale": 0.5}),
    ],
)
def test_what_is_refused(code: str, changes: dict[str, Any]) -> None:
    with pytest.raises(AttnccError) as caught:
        kernel()(**pool("int8") | changes)
    assert caught.value.diagnostics[0].code == code


def test_scales_of_caches_that_have_none() -> None:
    q = np.zeros((2, 2, 4, 32), ml_dtypes.bfloat16)
    with pytest.raises(AttnccError, match="A629"):
        kernel()(q, q, q, k_scale=np.ones((2, 2), np.float32))
    caches = [np.zeros((2, 2, 4, 32), np.float32) for _ in range(4)]
    with pytest.raises(AttnccError, match="A629"):
        attncc.append(*caches, np.int32([4, 4]), k_scale=np.ones((2, 2), np.float32))


def test_no_gradients() -> None:
    given = pool("int8")
    del given["block_table"], given["k_scale"], given["v_scale"]
    given |= {"k": given["k"][:2], "v": given["v"][:2], "kv_lens": np.int32([16, 3])}
    out, lse = kernel()(**given, return_lse=True)
    with pytest.raises(AttnccError, match="A629"):
        kernel().backward(out, given["q"], given["k"], given["v"], out, lse, kv_lens=given["kv_lens"])


@KINDS
def test_new_rows_are_quantised_then_seen(kv_dtype: str) -> None:
    """A call with k_new gives what `append` and a call after it give; a page's scale holds for its rows."""
    given, twin = pool(kv_dtype), pool(kv_dtype)
    rng = np.random.default_rng(3)
    k_new, v_new = (rng.standard_normal((2, 2, 3, 32), np.float32).astype(ml_dtypes.bfloat16) for _ in range(2))
    out = kernel()(**given, k_new=k_new, v_new=v_new)
    where = {name: twin[name] for name in ("kv_lens", "block_table", "k_scale", "v_scale")}
    attncc.append(twin["k"], twin["v"], k_new, v_new, **where)
    assert all(given[name].tobytes() == twin[name].tobytes() for name in ("k", "v"))
    assert kernel()(**twin).tobytes() == out.tobytes()
    written = given["v"][4, :, 15].astype(np.float32) * given["v_scale"][4][:, None]  # the last key of sequence 1
    step = 1 if kv_dtype == "int8" else np.abs(given["v"][4, :, 15].astype(np.float32)) / 8
    limits = 0.51 * step * given["v_scale"][4][:, None] + 1e-3
    least, most = (
        bound * given["v_scale"][4][:, None] for bound in ((-448, 448) if kv_dtype == "e4m3" else (-128, 127))
    )
    assert (np.abs(written - np.clip(v_new[1, :, 2].astype(np.float32), least, most)) <= limits).all()


def test_traffic_counts_bytes_of_8_bits() -> None:
    from attncc import executor
    from attncc.kernels.candidates import make_plan

    dims = {"dtype": "bf16", "head_dim": 32, "value_head_dim": 32, "target": "sm_80"}
    plan = make_plan(attncc.parse("causal").variant, **dims)
    given = pool("int8")
    narrow = executor.run(plan, *(given.pop(name) for name in ("q", "k", "v")), **given).traffic
    q, k, v = (pool("int8")[name].astype(ml_dtypes.bfloat16) for name in ("q", "k", "v"))
    whole = executor.run(plan, q, k, v, kv_lens=given["kv_lens"], block_table=given["block_table"]).traffic
    assert [2 * narrow.reads[name] for name in ("k", "v")] == [whole.reads[name] for name in ("k", "v")]
    assert narrow.reads["q"] == whole.reads["q"]


@KINDS
def test_torch(kv_dtype: str) -> None:
    """Tensors on the CPU, as they come, under autocast, and in a graph of torch.compile."""
    torch = pytest.importorskip("torch")
    given = pool(kv_dtype)
    bits = {2: (np.int16, torch.bfloat16), 1: (np.uint8, getattr(torch, KV_DTYPES[kv_dtype]))}
    tensors = {}
    for name, array in given.items():
        raw, dtype = bits.get(array.dtype.itemsize, (array.dtype, None))
        tensor = torch.from_numpy(array.view(raw))
        tensors[name] = tensor if dtype is None else tensor.view(dtype)
    expected = torch.from_numpy(kernel()(**given).astype(np.float32))
    assert torch.equal(kernel()(**tensors).float(), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = tensors | {"q": tensors["q"].float()}
        assert torch.equal(kernel()(**wide).float(), expected)
    made = kernel()

    @torch.compile(backend="eager", fullgraph=True)
    def traced(call: dict[str, Any]) -> Any:
        return made(**call)

    assert torch.equal(traced(tensors).float(), expected)
    tensors["q"].requires_grad_()
    with pytest.raises(AttnccError, match="A652"):
        kernel()(**tensors)
    with torch.no_grad():
        kernel()(**tensors)


def test_jax_refuses_them() -> None:
    jax = pytest.importorskip("jax")
    import attncc.jax

    q = jax.numpy.zeros((1, 2, 4, 32), "bfloat16")
    narrow = jax.numpy.zeros((1, 2, 4, 32), "int8")
    for given in ({}, {"k_scale": jax.numpy.ones((1, 2))}):
        with pytest.raises(AttnccError, match="A655"):
            attncc.jax.wrap(kernel())(q, narrow, narrow, **given)


def test_what_a_package_has() -> None:
    """A pair for each dtype, target and kind of cache; its append kernels with --serving."""
    asked = {"archs": ("sm_80",), "head_dims": (64,)}
    (alone,) = prepare(SPEC, **asked, kv_dtypes=("int8",))
    assert {name for name in alone.kernel_names if "kv_int8" in name} == {
        "causal_forward_bf16_d64_kv_int8_sm_80", "causal_decode_bf16_d64_kv_int8_sm_80",
    }  # fmt: skip
    (serving,) = prepare(SPEC, **asked, kv_dtypes=("e4m3", "int8"), serving=True)
    added = {name for name in serving.kernel_names if "_kv_" in name}
    assert len(added) == 2 * (2 + 2 + 2)  # forward and decode, the same for pages, and append with two types of angles
    assert "append_bf16_fp32_kv_e4m3_sm_80" in added
    assert "over caches of int8" in alone.files()["__init__.py"]
    with pytest.raises(AttnccError, match="A410"):
        prepare(SPEC, **asked, dtypes=("fp32",), kv_dtypes=("int8",))
    with pytest.raises(AttnccError, match="head dims above 256 have no caches of int8"):
        prepare(SPEC, archs=("sm_80",), head_dims=((576, 512),), kv_dtypes=("int8",))


def test_explain_counts_half_the_bytes() -> None:
    def explained(*options: str) -> str:
        sizes = ["--q-len", "1", "--kv-len", "8192", "--heads", "8", "--kv-heads", "2", "--head-dim", "128"]
        return unwrapped("explain", "causal", *sizes, "--no-compile", "--kv-lens", "8192", *options)

    assert "8.389 MB of K and V" in explained()
    assert "4.194 MB of K and V" in explained("--kv-dtype", "int8")
    assert "over a cache of int8" in explained("--kv-dtype", "int8")
