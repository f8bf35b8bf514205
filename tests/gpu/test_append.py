"""attncc.append on a GPU, against NumPy: caches in pages and not, all kinds of rotation, graphs, streams."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError
from tests.appended import ROOM, Case, arrays_of, options
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

KINDS = [(None, False), (32, False), (32, True), (16, False), (16, True), (20, False), (6, True)]
TYPES = [("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp16", "fp16"), ("fp32", "fp32")]
TOLERANCE = {"bf16": 1e-2, "fp16": 1e-3, "fp32": 1e-6}  # a rounding: sums are contracted here


def on_gpu(given: dict[str, Any], chosen: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    device, rotary = cuda(), chosen["rotary"]
    arrays = {name: device.put(x) for name, x in given.items()}
    return arrays, chosen | {"rotary": None if rotary is None else tuple(map(device.put, rotary))}


def compare(case: Case, found: Any, arrays: dict[str, Any]) -> None:
    """The result and the caches with NumPy's, NaN where that has it. What isn't rotated has the same bits."""
    given, device = arrays_of(case), cuda()
    wanted = attncc.append(**given, **options(case))
    assert (found is None) == (wanted is None)
    if wanted is not None:
        assert found.dtype == arrays["q"].dtype
        np.testing.assert_allclose(
            device.get(found), wanted.astype(np.float64), rtol=TOLERANCE[case.dtype], atol=TOLERANCE[case.dtype]
        )
    keys = device.get(arrays["k_cache"])
    np.testing.assert_allclose(
        keys, given["k_cache"].astype(np.float64), rtol=TOLERANCE[case.dtype], atol=TOLERANCE[case.dtype]
    )
    kept = slice(case.rotary_dim or 0, None)
    assert np.array_equal(keys[..., kept], given["k_cache"].astype(np.float64)[..., kept], equal_nan=True)
    values = given["v_cache"].astype(np.float64)
    assert np.array_equal(device.get(arrays["v_cache"]), values, equal_nan=True)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("page", [None, 1, 7, 16, 64])
def test_caches_and_queries(page: int | None, packed: bool, layout: str) -> None:
    for (rotary_dim, interleaved), (dtype, angles) in product(KINDS, TYPES):
        case = Case(dtype, page, packed, layout, rotary_dim, interleaved, angles)
        arrays, chosen = on_gpu(arrays_of(case), options(case))
        compare(case, attncc.append(**arrays, **chosen), arrays)


def test_head_dims_and_bases_that_are_not_aligned() -> None:
    case = Case("bf16", 7, True, rotary_dim=12, head_dim=13, value_head_dim=5)
    arrays, chosen = on_gpu(arrays_of(case), options(case))
    compare(case, attncc.append(**arrays, **chosen), arrays)
    case = Case("bf16", 7, True, rotary_dim=32)
    arrays, chosen = on_gpu(arrays_of(case), options(case))
    buffer = torch.empty(arrays["k_cache"].numel() + 1, dtype=torch.bfloat16, device="cuda")
    arrays["k_cache"] = buffer[1:].view(arrays["k_cache"].shape).copy_(arrays["k_cache"])
    compare(case, attncc.append(**arrays, **chosen), arrays)


def test_real_sizes() -> None:
    """A chunk of a prompt beside steps of decode: 32 heads on 8, head dim 128, pages of 64."""
    generator = torch.Generator("cuda").manual_seed(0)
    lengths, new = [9000, 4097, 1, 64, 20_000], [8192, 1, 1, 1, 1]
    blocks = [-(-length // 64) for length in lengths]
    table = torch.full((5, max(blocks)), -1, dtype=torch.int32)
    numbers = torch.randperm(sum(blocks), generator=torch.Generator().manual_seed(0)).split(blocks)
    for row, own in zip(table, numbers, strict=True):
        row[: len(own)] = own
    pools = [torch.full((sum(blocks), 8, 64, 128), torch.nan, device="cuda").bfloat16() for _ in range(2)]
    q, k, v = (torch.randn(h, sum(new), 128, generator=generator, device="cuda").bfloat16() for h in (32, 8, 8))
    turns = torch.arange(20_000, device="cuda")[:, None] * 10_000 ** -(torch.arange(0, 128, 2, device="cuda") / 128)
    where = {"kv_lens": torch.tensor(lengths, device="cuda"), "block_table": table.cuda()}
    where["cu_seqlens_q"] = torch.tensor([0, *np.cumsum(new)], device="cuda")
    found = attncc.append(*pools, k, v, **where, rotary=(turns.cos(), turns.sin()), q=q)
    for b, (length, rows) in enumerate(zip(lengths, torch.arange(sum(new)).split(new), strict=True)):
        positions = torch.arange(length - len(rows), length)
        places = table[b, positions // 64].long().cuda(), slice(None), (positions % 64).cuda()
        own, cos, sin = rows.cuda(), turns[positions.cuda()].cos(), turns[positions.cuda()].sin()
        for x, result in ((q, found[:, own]), (k, pools[0][places].transpose(0, 1))):
            first, second = x[:, own].float().chunk(2, -1)
            wanted = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
            torch.testing.assert_close(result.float(), wanted, rtol=1e-2, atol=1e-2)
        assert torch.equal(pools[1][places].transpose(0, 1), v[:, own])
    assert torch.isfinite(pools[0]).sum() == k.numel()


@pytest.mark.parametrize("apart", [True, False])
def test_one_graph_serves_all_lengths(apart: bool) -> None:
    """append and kernel, one step after the other or by one call: lengths and tables change between replays."""
    kernel = attncc.compile("causal", dtype="fp32", head_dim=32)
    case = Case("fp32", rotary_dim=32)
    rotary = on_gpu({}, options(case))[1]["rotary"]
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(3, heads, 30, 32, generator=generator, device="cuda") for heads in (6, 2, 2))
    pools = [torch.full((36, 2, 4, 32), torch.nan, device="cuda") for _ in range(2)]
    lens = torch.zeros(3, dtype=torch.int32, device="cuda")
    table = torch.randperm(36).reshape(3, 12).to("cuda", torch.int32)
    step = [x[:, :, :1].clone() for x in (q, k, v)]

    def run() -> Any:
        lens.add_(1)
        where = {"kv_lens": lens, "block_table": table}
        if apart:
            turned = attncc.append(*pools, *step[1:], **where, rotary=rotary, q=step[0])
            return kernel(turned, *pools, **where)
        return kernel(step[0], *pools, **where, k_new=step[1], v_new=step[2], rotary=rotary)

    run()
    lens.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    found = []
    for row in range(30):
        for target, source in zip(step, (q, k, v), strict=True):
            target.copy_(source[:, :, row : row + 1])
        graph.replay()
        found.append(out.clone())
    caches = [torch.full((3, 2, ROOM, 32), torch.nan, device="cuda") for _ in range(2)]
    turned = attncc.append(*caches, k, v, torch.full_like(lens, 30), rotary=rotary, q=q)
    wanted = kernel(turned, *(x[:, :, :30].contiguous() for x in caches))
    torch.testing.assert_close(torch.cat(found, 2), wanted, rtol=1e-5, atol=1e-5)


def test_numbers_that_cannot_be_write_nothing_outside() -> None:
    wild = np.array([-(2**31), -1, ROOM + 1, 2**30, 2**31 - 1, 2, 39], np.int32)
    for page, packed, seed in product((None, 1, 7), (False, True), range(10)):
        case, rng = Case("fp32", page, packed, rotary_dim=32), np.random.default_rng(seed)
        given = arrays_of(case)
        for name in {"kv_lens", "block_table", "cu_seqlens_q"} & given.keys():
            places = rng.random(given[name].shape) < 0.5
            given[name] = np.where(places, rng.choice(wild, given[name].shape), given[name]).astype(np.int32)
        arrays, chosen = on_gpu(given, options(case))
        around = {}
        for name in ("k_cache", "v_cache"):
            around[name] = torch.full((3, arrays[name].numel()), 7.0, device="cuda")
            arrays[name] = around[name][1].view(arrays[name].shape)
        attncc.append(**arrays, **chosen)
        assert all((x[::2] == 7).all() for x in around.values())


def test_impossible_lengths_and_positions_make_nan() -> None:
    case = Case("fp32", rotary_dim=32)
    arrays, chosen = on_gpu(arrays_of(case), options(case))
    arrays["kv_lens"][1], arrays["kv_lens"][4] = ROOM + 1, -1
    found = attncc.append(**arrays, **chosen | {"rotary": tuple(x[:38].contiguous() for x in chosen["rotary"])})
    for b in (1, 4):
        assert found[b].isnan().all() and arrays["k_cache"][b].isnan().all()
    assert found[0, :, 3:].isnan().all() and found[0, :, :3].isfinite().all()
    assert found[2:4].isfinite().all()


def test_the_current_stream_and_int64_arrays() -> None:
    case = Case("bf16", 16, True, rotary_dim=32)
    arrays, chosen = on_gpu(arrays_of(case), options(case))
    arrays = {name: x.long() if x.dtype == torch.int32 else x for name, x in arrays.items()}
    late = arrays["k_new"].clone()
    arrays["k_new"].zero_()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        arrays["k_new"].copy_(late)
        found = attncc.append(**arrays, **chosen)
    stream.synchronize()
    compare(case, found, arrays)


def test_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy")
    case = Case("fp16", 7, rotary_dim=32)
    arrays = {name: cupy.asarray(x) for name, x in arrays_of(case).items()}
    found = attncc.append(**arrays, rotary=tuple(map(cupy.asarray, options(case)["rotary"])))
    assert isinstance(found, cupy.ndarray)
    as_torch = {name: torch.from_dlpack(x) for name, x in arrays.items()}
    compare(case, torch.from_dlpack(found), as_torch)


def test_what_is_refused_before_a_launch() -> None:
    case = Case("fp32", rotary_dim=32)
    arrays, chosen = on_gpu(arrays_of(case), options(case))
    for changes, code in (
        ({"kv_lens": arrays["kv_lens"].cpu()}, "A605"),
        ({"k_new": arrays["k_cache"][:, :, :5]}, "A617"),
        ({"k_new": arrays["k_new"].double()}, "A604"),
        ({"k_new": arrays["k_new"].clone().requires_grad_()}, "A652"),
    ):
        with pytest.raises(AttnccError, match=code):
            attncc.append(**{**arrays, **changes}, **chosen)
    assert arrays["k_cache"].isnan().all()
