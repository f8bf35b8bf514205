"""Wide heads on Hopper: two warpgroups by TMA and wgmma. What test_wide.py asks of latents, caches and pages goes
through these kernels there; here are numbers of tiles, repetitions, pages, and both families beside each other."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import attncc
from attncc.kernels.hopper_wide.facts import HopperWide
from attncc.problem import Problem
from attncc.schedule.schedule import Schedule

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LATENTS, ROW = 512, 576


@pytest.fixture(autouse=True)
def hopper() -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs sm_90a")


@cache
def compiled(spec: str, family: str, head_dim: int, value_head_dim: int, dtype: str = "bf16") -> Any:
    schedule = Schedule("family", spec, "forward", "sm_90a", (("family", (family,)),))
    return attncc.compile(
        spec, dtype=dtype, head_dim=head_dim, value_head_dim=value_head_dim, arch="sm_90a", schedule=schedule
    )


def mla(family: str = "hopper_wide") -> Any:
    return compiled("mla_decode", family, ROW, LATENTS)


def normal(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").to(dtype or torch.bfloat16)


@pytest.mark.parametrize("kv_len", [1, 63, 64, 65, 128, 129, 500, 5000])
@pytest.mark.parametrize(("heads", "q_len"), [(128, 1), (40, 2)])
def test_numbers_of_tiles(heads: int, q_len: int, kv_len: int) -> None:
    """Latents that are loaded once have the bits of values that lie elsewhere, and are as exact as they can be."""
    from tests.gpu.accuracy import check_forward
    from tests.gpu.torch_oracle import Arguments

    q, k = normal(2, heads, q_len, ROW), normal(2, 1, kv_len, ROW, seed=1)
    v = k[..., :LATENTS]
    out, lse = mla()(q, k, v, return_lse=True)
    problem = Problem(2, heads, 1, q_len, kv_len, ROW, LATENTS)
    check_forward(out, lse, Arguments(attncc.parse("mla_decode").variant, problem, q, k, v, {}, seed=0), "bf16")
    assert torch.equal(out, mla()(q, k, v.contiguous()))


@pytest.mark.parametrize(
    ("spec", "dtype", "head_dims", "heads", "q_len", "kv_len"),
    [
        ("causal", "bf16", (512, 512), (4, 2), 300, 300),
        ("causal", "bf16", (320, 320), (6, 2), 100, 1000),
        ("softcap", "fp16", (512, 512), (8, 1), 70, 700),
    ],
)
def test_values_apart(  # noqa: PLR0917
    spec: str, dtype: str, head_dims: tuple[int, int], heads: tuple[int, int], q_len: int, kv_len: int
) -> None:
    """One stage of K and of V, or two."""
    from tests.gpu.accuracy import check_forward
    from tests.gpu.torch_oracle import Arguments

    of = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    q = normal(2, heads[0], q_len, head_dims[0], dtype=of)
    k, v = (normal(2, heads[1], kv_len, size, seed=size + 1, dtype=of) for size in head_dims)
    out, lse = compiled(spec, "hopper_wide", *head_dims, dtype)(q, k, v, return_lse=True)
    problem = Problem(2, *heads, q_len, kv_len, *head_dims)
    check_forward(out, lse, Arguments(attncc.parse(spec).variant, problem, q, k, v, {}, seed=0), dtype)


def test_repetitions_have_the_same_bits() -> None:
    """Many parts, which come in any order, and thread blocks that begin anew with barriers and registers."""
    lengths = torch.tensor([4000, 1, 0, 129, 8192, 700], dtype=torch.int32, device="cuda")
    q, k = normal(6, 128, 1, ROW), normal(6, 1, 8192, ROW, seed=1)
    for b, length in enumerate(lengths.tolist()):
        k[b, :, length:] = torch.nan
    out = mla()(q, k, k[..., :LATENTS], kv_lens=lengths)
    assert out.isfinite().all() and (out[2] == 0).all()
    for _ in range(300):
        assert torch.equal(out, mla()(q, k, k[..., :LATENTS], kv_lens=lengths))
    torch.testing.assert_close(out, mla("wide")(q, k, k[..., :LATENTS], kv_lens=lengths), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("page", [8, 64, 200])
def test_pages(page: int) -> None:
    """Boxes of 8 rows and of 64; the table is in an order of its own."""
    blocks = 1600 // page
    table = torch.randperm(3 * blocks, generator=torch.Generator().manual_seed(0)).reshape(3, blocks)
    k = normal(3, 1, 1600, ROW, seed=1)
    pool = torch.empty(3 * blocks, 1, page, ROW, device="cuda", dtype=k.dtype)
    pool[table.flatten().cuda()] = k.reshape(-1, 1, page, ROW)
    lengths = torch.tensor([1600, 77, 1001], dtype=torch.int32, device="cuda")
    q = normal(3, 128, 1, ROW)
    found = mla()(q, pool, pool[..., :LATENTS], kv_lens=lengths, block_table=table.to("cuda", torch.int32))
    assert torch.equal(found, mla()(q, k, k[..., :LATENTS], kv_lens=lengths))


def test_few_rows_over_many_keys() -> None:
    """16 rows of 64 in a tile: the default over so many keys, as with the family given."""
    from tests.gpu.accuracy import check_forward
    from tests.gpu.torch_oracle import Arguments

    q, k = normal(3, 16, 1, ROW), normal(3, 1, 6000, ROW, seed=1)
    v = k[..., :LATENTS]
    kernel = attncc.compile("mla_decode", dtype="bf16", head_dim=ROW, value_head_dim=LATENTS, arch="sm_90a")
    out, lse = kernel(q, k, v, return_lse=True)
    problem = Problem(3, 16, 1, 1, 6000, ROW, LATENTS)
    check_forward(out, lse, Arguments(attncc.parse("mla_decode").variant, problem, q, k, v, {}, seed=0), "bf16")
    assert torch.equal(out, mla()(q, k, v))


def paged(k: Any, page: int = 64) -> dict[str, Any]:
    """The rows of k in pages, in an order of their own, and the table."""
    batch, blocks = k.shape[0], -(-k.shape[2] // page)
    table = torch.randperm(batch * blocks, generator=torch.Generator().manual_seed(0)).reshape(batch, blocks).cuda()
    pool = torch.full((batch * blocks, 1, page, ROW), torch.nan, device="cuda", dtype=k.dtype)
    padded = torch.nn.functional.pad(k, (0, 0, 0, blocks * page - k.shape[2]), value=torch.nan)
    pool[table.flatten()] = padded.reshape(-1, 1, page, ROW)
    return {"k": pool, "v": pool[..., :LATENTS], "block_table": table.int()}


@pytest.mark.parametrize(
    ("batch", "heads", "q_len", "kv_len"),
    [(1, 128, 1, 9000), (16, 128, 1, 2000), (64, 128, 1, 700), (150, 128, 1, 300), (9, 40, 1, 1000), (7, 128, 2, 999)],
)
def test_who_knows_lengths_changes_no_bit(batch: int, heads: int, q_len: int, kv_len: int) -> None:
    """Lengths that are equal are shared out alike, on the device and where the host knows them."""
    q, k = normal(batch, heads, q_len, ROW), normal(batch, 1, kv_len, ROW, seed=1)
    lengths = torch.full((batch,), kv_len, dtype=torch.int32, device="cuda")
    known = mla()(q, k, k[..., :LATENTS])
    assert torch.equal(known, mla()(q, k, k[..., :LATENTS], kv_lens=lengths))
    assert torch.equal(known, mla()(q, **paged(k), kv_lens=lengths))
    torch.testing.assert_close(known, mla("wide")(q, k, k[..., :LATENTS]), rtol=1e-2, atol=1e-2)


LENGTHS = {
    "one long": [9000] + [200] * 19,
    "near": [2048 - 17 * b for b in range(20)],
    "far": [1, 0, 64, 65, 8999, 3000, 129, 4095, 0, 1] * 2,
    "short": [1] * 20,
    "none": [0] * 20,
    "many": [(b * 977) % 3000 for b in range(20)],
}


@pytest.mark.parametrize(("heads", "q_len"), [(128, 1), (128, 3), (16, 1)])
@pytest.mark.parametrize("pages", [False, True])
def test_one_graph_for_all_lengths(heads: int, q_len: int, pages: bool) -> None:
    """Teams of thread blocks find their runs anew; NaN is behind each length. Against the portable kernel."""
    q, k = normal(20, heads, q_len, ROW), normal(20, 1, 9000, ROW, seed=1)
    lengths = torch.zeros(20, dtype=torch.int32, device="cuda")
    given = paged(k) if pages else {"k": k.clone(), "v": None}
    rows, whole = given["k"], given["k"].clone()
    given |= {"v": rows[..., :LATENTS], "kv_lens": lengths}
    mla()(q, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = mla()(q, **given)
    for chosen in LENGTHS.values():
        lengths.copy_(torch.tensor(chosen))
        rows.copy_(whole)
        for b, length in enumerate(chosen):
            if not pages:
                rows[b, :, length:] = torch.nan
            else:
                first, inside = divmod(length, 64)
                rows[given["block_table"][b, first:].long()[1 if inside else 0 :]] = torch.nan
                if inside:
                    rows[given["block_table"][b, first].long(), :, inside:] = torch.nan
        graph.replay()
        found = out.clone()
        graph.replay()
        assert found.isfinite().all() and torch.equal(found, out)
        expected = mla("wide")(q, k, k[..., :LATENTS], kv_lens=lengths)
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("pages", [False, True])
def test_clusters_change_no_bit(pages: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thread blocks that load keys for each other, and those that load for themselves; parts that begin many times."""
    q, k = normal(70, 128, 1, ROW), normal(70, 1, 2000, ROW, seed=1)
    lengths = torch.randint(0, 2001, (70,), generator=torch.Generator().manual_seed(0)).to("cuda", torch.int32)
    given = paged(k) if pages else {"k": k, "v": k[..., :LATENTS]}
    together = mla()(q, **given, kv_lens=lengths)
    for _ in range(50):
        assert torch.equal(together, mla()(q, **given, kv_lens=lengths))
    monkeypatch.setattr(HopperWide, "paired", lambda *_: False)
    own = type(mla())(mla().store)  # prepares its calls anew
    assert torch.equal(together, own(q, **given, kv_lens=lengths))
