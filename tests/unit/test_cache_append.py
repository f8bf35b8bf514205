"""attncc.append on the CPU: places, rotation, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from attncc import reference
from attncc.diagnostics import AttnccError
from tests.appended import DENSE_NEW, LENGTHS, NEW, ROOM, Case, angles, arrays_of, keys_of, options
from tests.plans import CAUSAL

PAGES = pytest.mark.parametrize("page", [None, 1, 7, 16, 64])
ROWS = pytest.mark.parametrize(("packed", "layout"), [(False, "bhsd"), (False, "bshd"), (True, "bhsd"), (True, "bshd")])


def new_rows(case: Case, x: np.ndarray, b: int) -> np.ndarray:
    """The rows of a sequence that become keys, [heads, rows, head dim]."""
    x = x if case.packed else x[b]
    heads_first = x if case.layout == "bhsd" else x.swapaxes(0, 1)
    if case.packed:
        return heads_first[:, sum(NEW[:b]) : sum(NEW[: b + 1])]
    return heads_first[:, max(DENSE_NEW - LENGTHS[b], 0) :]


def turned(case: Case, x: np.ndarray, first: int) -> np.ndarray:
    """The same by complex numbers, in fp64, row 0 at position `first`."""
    assert case.rotary_dim is not None
    pairs = case.rotary_dim // 2
    cos, sin = (table[first : first + x.shape[1]].astype(np.float64) for table in angles(case))
    x, kept = x[..., : 2 * pairs].astype(np.float64), x[..., 2 * pairs :].astype(np.float64)
    by_pairs = x.reshape(*x.shape[:-1], pairs, 2) if case.interleaved else np.stack(np.split(x, 2, -1), -1)
    numbers = (by_pairs[..., 0] + 1j * by_pairs[..., 1]) * (cos + 1j * sin)
    both = np.stack([numbers.real, numbers.imag], -1)
    found = both.reshape(x.shape) if case.interleaved else both.swapaxes(-1, -2).reshape(x.shape)
    return np.concatenate([found, kept], -1)


@PAGES
@ROWS
def test_new_rows_go_behind_the_others(page: int | None, packed: bool, layout: str) -> None:
    """To their places and nowhere else."""
    case = Case("fp32", page, packed, layout)
    given = arrays_of(case)
    assert attncc.append(**given, **options(case)) is None
    for name, of in (("k_cache", "k_new"), ("v_cache", "v_new")):
        written = 0
        for b, (found, length) in enumerate(zip(keys_of(case, given, name), LENGTHS, strict=True)):
            rows = new_rows(case, given[of], b)
            first = length - rows.shape[1]
            assert np.array_equal(found[:, first:length], rows)
            assert np.isnan(found[:, :first]).all() and np.isnan(found[:, length:]).all()
            written += rows.size
        assert np.isfinite(given[name]).sum() == written


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [32, 16, 6])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
@ROWS
def test_rotation(packed: bool, layout: str, dtype: str, rotary_dim: int, interleaved: bool) -> None:
    case = Case(dtype, 7, packed, layout, rotary_dim, interleaved)
    given = arrays_of(case)
    q = attncc.append(**given, **options(case))
    tolerance = {"fp16": 2e-3, "bf16": 2e-2, "fp32": 1e-6, "fp64": 1e-14}[dtype]
    assert q.dtype == given["q"].dtype and q.shape == given["q"].shape
    for b, (found, length) in enumerate(zip(keys_of(case, given, "k_cache"), LENGTHS, strict=True)):
        for result, rows in ((None, new_rows(case, given["k_new"], b)), (q, new_rows(case, given["q"], b))):
            first = length - rows.shape[1]
            own = found[:, first:length] if result is None else new_rows(case, result, b)
            np.testing.assert_allclose(own.astype(np.float64), turned(case, rows, first), atol=tolerance)
            assert np.array_equal(own[..., rotary_dim:], rows[..., rotary_dim:])


def test_rows_without_a_position_are_zeros() -> None:
    """Padding on the left, and rows of no sequence."""
    dense, packed = Case("fp32", rotary_dim=32), Case("fp32", rotary_dim=32, packed=True)
    q = attncc.append(**arrays_of(dense), **options(dense))
    for b, length in enumerate(LENGTHS):
        before = max(DENSE_NEW - length, 0)
        assert not q[b, :, :before].any() and q[b, :, before:].all()
    q = attncc.append(**arrays_of(packed), **options(packed))
    assert q[:, : sum(NEW)].all() and not q[:, sum(NEW) :].any()


def test_int64_lengths_and_angles_of_the_keys_type() -> None:
    case = Case("bf16", 16, True, rotary_dim=32, angles="bf16")
    given, wide = arrays_of(case), arrays_of(case)
    q = attncc.append(**given, **options(case))
    other = attncc.append(
        **{name: x.astype(np.int64) if x.dtype == np.int32 else x for name, x in wide.items()}, **options(case)
    )
    assert np.array_equal(q, other) and wide["k_cache"].tobytes() == given["k_cache"].tobytes()


def test_attention_over_the_cache_is_that_over_all_keys() -> None:
    """Chunk by chunk, with the same kv_lens for append and kernel."""
    kernel = attncc.compile("causal", dtype="fp32", head_dim=32)
    case, rng = Case("fp32", rotary_dim=32), np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, heads, 24, 32)).astype(np.float32) for heads in (6, 2, 2))
    pools = [np.full((20, 2, 4, 32), np.nan, np.float32) for _ in range(2)]
    table, rotary = rng.permutation(20).reshape(2, 10).astype(np.int32), angles(case)
    whole = [turned(case, x.reshape(-1, 24, 32), 0).reshape(x.shape) for x in (q, k)]
    wanted, _ = reference.forward(CAUSAL, *whole, v)
    for rows in (slice(0, 11), slice(11, 12), slice(12, 24)):
        where = {"kv_lens": np.full(2, rows.stop, np.int32), "block_table": table}
        turned_q = attncc.append(*pools, k[:, :, rows], v[:, :, rows], **where, rotary=rotary, q=q[:, :, rows])
        np.testing.assert_allclose(kernel(turned_q, *pools, **where), wanted[:, :, rows], atol=1e-5)


def changed(case: Case, **changes: Any) -> None:
    attncc.append(**{**arrays_of(case), **options(case), **changes})


PAGED, DENSE, PACKED = (
    Case("fp32", 8, rotary_dim=32),
    Case("fp32", rotary_dim=32),
    Case("fp32", None, True, rotary_dim=32),
)
TABLE = arrays_of(PAGED)["block_table"]
NO_PAGE = np.where(np.arange(5) == 4, -1, TABLE)  # where the new keys of the first sequence are to go
FLOATS = np.zeros((len(LENGTHS), 2, DENSE_NEW, 32), np.float32)
COS, SIN = angles(DENSE)


@pytest.mark.parametrize(
    ("case", "changes", "code", "text"),
    [
        (DENSE, {"kv_lens": np.int32([ROOM + 1, 5, 5, 5, 5])}, "A625", "no length of its sequence"),
        (DENSE, {"kv_lens": np.int32([-1, 5, 5, 5, 5])}, "A625", "no length of its sequence"),
        (DENSE, {"kv_lens": np.int32([5, 5])}, "A625", "isn't a list of lengths"),
        (PAGED, {"block_table": NO_PAGE}, "A625", "names pages that there aren't, for sequence 0"),
        (PAGED, {"block_table": np.where(TABLE >= 0, 1000, -1).astype(np.int32)}, "A625", "names pages"),
        (PAGED, {"block_table": TABLE[:2]}, "A625", "isn't a table of pages"),
        (PACKED, {"cu_seqlens_q": np.int32([0, 5, 3, 7, 8, 9])}, "A616", "isn't a list of sequence starts"),
        (DENSE, {"rotary": (COS[:39], SIN[:39])}, "A627", "ends before the keys of sequence 0"),
        (DENSE, {"rotary": (COS, SIN[:39])}, "A627", "don't go together"),
        (DENSE, {"rotary": (COS[:, :0], SIN[:, :0])}, "A627", "`cos` can't be used"),
        (DENSE, {"rotary": (np.ones((40, 17), np.float32),) * 2}, "A627", "`cos` can't be used"),
        (DENSE, {"rotary": (COS.astype(np.float64), SIN)}, "A627", "`cos` can't be used"),
        (DENSE, {"rotary": COS}, "A627", "`rotary` can't be used"),
        (DENSE, {"rotary": None}, "A627", "`rotary` is missing"),
        (DENSE, {"interleaved": 1}, "A627", "`interleaved` can't be used"),
        (DENSE, {"layout": "sbhd"}, "A618", "`layout`"),
        (DENSE, {"layout": "bshd"}, "A602", "shape of"),
        (DENSE, {"k_new": FLOATS[0]}, "A601", "`k_new` has the wrong rank"),
        (DENSE, {"k_new": FLOATS.astype(np.float16)}, "A604", "`k_new` has the wrong element type"),
        (DENSE, {"k_new": FLOATS.swapaxes(2, 3).copy().swapaxes(2, 3)}, "A606", "`k_new`"),
        (DENSE, {"v_new": FLOATS[:, :1]}, "A602", "`v_new`"),
        (DENSE, {"k_new": [1.0]}, "A622", "`k_new` is not an array"),
        (DENSE, {"k_cache": np.broadcast_to(np.float32(0), (5, 2, ROOM, 32))}, "A606", "`k_cache`"),
        (
            DENSE,
            {"k_cache": np.broadcast_to(np.zeros((5, 1, ROOM, 32), np.float32), (5, 2, ROOM, 32))},
            "A617",
            "strides",
        ),
    ],
)
def test_what_cannot_be_is_refused(case: Case, changes: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(AttnccError, match=code) as raised:
        changed(case, **changes)
    assert text in str(raised.value)


@pytest.mark.parametrize("shape", [(0, 2, 8, 32), (2, 2, 0, 32)], ids=str)
def test_caches_without_rows(shape: tuple[int, ...]) -> None:
    """NumPy gives arrays without elements strides of 0."""
    cache, new, lengths = np.zeros(shape, np.float32), np.ones((shape[0], 2, 1, 32), np.float32), np.zeros(shape[0])
    assert attncc.append(cache, cache.copy(), new, new, lengths.astype(np.int32)) is None


def test_pages_without_rows_are_refused() -> None:
    pool, new = np.zeros((3, 2, 0, 32), np.float32), np.ones((2, 2, 1, 32), np.float32)
    with pytest.raises(AttnccError, match=r"A625(.|\n)*the pages of `k_cache` have no rows"):
        attncc.append(pool, pool.copy(), new, new, np.zeros(2, np.int32), block_table=np.zeros((2, 4), np.int32))


def test_scales_of_a_pool_without_pages() -> None:
    """All new rows are padding."""
    pool, new = np.zeros((0, 2, 8, 32), np.int8), np.ones((2, 2, 1, 32), np.float32)
    where = {"kv_lens": np.zeros(2, np.int32), "block_table": np.zeros((2, 0), np.int32)}
    assert attncc.append(pool, pool.copy(), new, new, **where, k_scale=np.ones((0, 2), np.float32)) is None


def test_help_is_right_for_caches_of_8_bits() -> None:
    """New rows have another type than the cache."""
    pool, lengths = np.zeros((2, 2, 8, 32), np.int8), np.ones(2, np.int32)
    with pytest.raises(AttnccError, match=r"A604(.|\n)*`k_new`(.|\n)*have another one, of 16 bits or more"):
        attncc.append(pool, pool.copy(), pool[:, :, :1].copy(), pool[:, :, :1].copy(), lengths)


def test_what_is_missing_is_asked_for() -> None:
    """There is nothing to convert."""
    rows = np.ones((2, 2, 8, 32), np.float32)
    with pytest.raises(AttnccError, match=r"A622(.|\n)*came NoneType\n.*help: pass kv_lens=…$"):
        attncc.append(rows, rows.copy(), rows.copy(), rows.copy(), None)


def test_caches_are_written_alone() -> None:
    """Not over what is read, and not where nobody may write. Halves of one array are two caches."""
    given = arrays_of(DENSE)
    locked = given["k_cache"].copy()
    locked.flags.writeable = False
    for changes in ({"k_cache": locked}, {"k_new": given["k_cache"][:, :, :DENSE_NEW]}, {"v_cache": given["k_cache"]}):
        sizes = {"v_new": given["k_new"]} if "v_cache" in changes else {}
        with pytest.raises(AttnccError, match="A617"):
            attncc.append(**{**given, **changes, **sizes}, **options(DENSE))
    both = np.full((5, 2, 2, ROOM, 32), np.nan, np.float32)
    halves = {"k_cache": both[:, 0], "v_cache": both[:, 1], "v_new": given["k_new"]}
    attncc.append(**{**given, **halves}, **options(DENSE))
    assert np.isfinite(both[:, 0]).sum() == np.isfinite(both[:, 1]).sum() > 0


def test_entries_that_get_no_key_are_not_read() -> None:
    """Pages of earlier keys may be gone, as behind a window."""
    given = arrays_of(PAGED)
    table = given["block_table"].copy()
    table[0, :4] = -1  # its new keys stand in its last page
    attncc.append(**{**given, "block_table": table}, **options(PAGED))


@pytest.mark.parametrize("rotary_dim", [32, 12])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rotation_is_that_of_transformers(dtype: str, rotary_dim: int) -> None:
    """GPT-NeoX's and Llama's halves, GPT-J's pairs. Theirs rounds after each operation."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.models.gptj import modeling_gptj
    from transformers.models.llama import modeling_llama

    element, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, 32, generator=generator).to(element) for heads in (4, 2, 2))
    cos, sin = (torch.tensor(table).to(element) for table in angles(Case(rotary_dim=rotary_dim)))
    for interleaved in (False, True):
        caches = [torch.full((2, 2, ROOM, 32), torch.nan, dtype=element) for _ in range(2)]
        lens = torch.tensor([9, 30])
        found = attncc.append(*caches, k, v, lens, rotary=(cos, sin), interleaved=interleaved, q=q)
        for b, rows in enumerate((slice(0, 9), slice(21, 30))):
            for x, own in ((q[b : b + 1], found[b]), (k[b : b + 1], caches[0][b, :, rows])):
                part, c, s = x[..., :rotary_dim], cos[None, rows], sin[None, rows]
                if interleaved:  # theirs is [batch, rows, heads, columns]
                    wanted = modeling_gptj.apply_rotary_pos_emb(part.transpose(1, 2), s, c).transpose(1, 2)
                else:
                    both = (torch.cat([table, table], -1) for table in (c, s))
                    wanted, _ = modeling_llama.apply_rotary_pos_emb(part, part, *both)
                wanted = torch.cat([wanted, x[..., rotary_dim:]], -1)[0]
                tolerance = 1e-6 if dtype == "float32" else 3e-2
                torch.testing.assert_close(own, wanted, rtol=0, atol=tolerance)


def test_tensors_on_the_cpu_are_written_in_place() -> None:
    torch = pytest.importorskip("torch")
    case = Case("fp32", 7, True, rotary_dim=32)
    plain, given = arrays_of(case), arrays_of(case)
    tensors = {name: torch.from_numpy(x) for name, x in given.items()}
    rotary = tuple(map(torch.from_numpy, angles(case)))
    found = attncc.append(**tensors, rotary=rotary)
    wanted = attncc.append(**plain, rotary=angles(case))
    assert np.array_equal(found.numpy(), wanted)
    assert np.array_equal(tensors["k_cache"].numpy(), plain["k_cache"], equal_nan=True)
    with pytest.raises(AttnccError, match="A652"):
        attncc.append(**{**tensors, "k_new": tensors["k_new"].clone().requires_grad_()}, rotary=rotary)
    with pytest.raises(AttnccError, match="A654"):
        attncc.append(**{**tensors, "k_new": given["k_new"]}, rotary=rotary)


def test_torch_compile_calls_it_between_graphs() -> None:
    torch = pytest.importorskip("torch")
    case = Case("fp32", 7, True, rotary_dim=32)
    tensors = {name: torch.from_numpy(x) for name, x in arrays_of(case).items()}
    rotary = tuple(map(torch.from_numpy, angles(case)))

    @torch.compile(backend="eager")
    def step(k_new: Any) -> Any:
        return attncc.append(**{**tensors, "k_new": 2 * k_new}, rotary=rotary).sum() * 2

    found, keys = step(tensors["k_new"]), tensors["k_cache"].clone()
    tensors["k_cache"].fill_(torch.nan)
    wanted = attncc.append(**{**tensors, "k_new": 2 * tensors["k_new"]}, rotary=rotary).sum() * 2
    assert torch.equal(found, wanted) and torch.equal(keys.nan_to_num(), tensors["k_cache"].nan_to_num())


def test_torch_compile_breaks_its_graph_at_new_rows() -> None:
    torch = pytest.importorskip("torch")
    kernel = attncc.compile("causal", dtype="fp32", head_dim=32)
    case = Case("fp32", 7, rotary_dim=32, value_head_dim=32)
    given = {name: torch.from_numpy(x) for name, x in arrays_of(case).items()}
    pools, rotary = (given.pop("k_cache"), given.pop("v_cache")), tuple(map(torch.from_numpy, angles(case)))

    def step(q: Any, **where: Any) -> Any:
        return kernel(q * 2, *pools, **where, rotary=rotary).nan_to_num() * 2

    wanted = step(**given)
    assert torch.equal(torch.compile(step, backend="eager")(**given), wanted)


# ---------------------------------------------------------------- as arguments of a kernel


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize(("page", "packed", "layout"), [(None, False, "bhsd"), (7, True, "bshd"), (16, False, "bshd")])
def test_a_kernel_appends_first(page: int | None, packed: bool, layout: str, rotary: bool) -> None:
    """Bit for bit what two calls give."""
    case = Case("fp32", page, packed, layout, rotary_dim=32 if rotary else None, value_head_dim=32)
    kernel = attncc.compile("causal", dtype="fp32", head_dim=32)
    apart, given = arrays_of(case), arrays_of(case)
    heads_first = {} if case.layout == "bhsd" else {"layout": "bshd"}
    q = given.get("q", given["k_new"])
    turned_q = attncc.append(**apart, **options(case))
    names = [name for name in ("kv_lens", "block_table", "cu_seqlens_q") if name in given]
    wanted = kernel(
        q if turned_q is None else turned_q,
        apart["k_cache"],
        apart["v_cache"],
        **{name: apart[name] for name in names},
        **heads_first,
    )
    found = kernel(
        q,
        given["k_cache"],
        given["v_cache"],
        **{name: given[name] for name in (*names, "k_new", "v_new")},
        **options(case),
    )
    assert np.array_equal(found, wanted, equal_nan=True) and np.isfinite(found).any()
    assert np.array_equal(given["k_cache"], apart["k_cache"], equal_nan=True)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"v_new": None}, "A628", "new rows come without `v_new`"),
        ({"k_new": None}, "A628", "new rows come without `k_new`"),
        ({"k_new": None, "v_new": None}, "A628", "`rotary` comes without new rows"),
        ({"k_new": None, "v_new": None, "rotary": None, "interleaved": True}, "A628", "or leave interleaved out"),
        ({"rotary": None, "interleaved": True}, "A627", "pass cos and sin, or leave interleaved out"),
        ({"kv_lens": None}, "A628", "new rows come without `kv_lens`"),
        ({"q_offset": 3}, "A628", "new rows come with `q_offset`"),
        ({"k_new": FLOATS[:, :, :, :16]}, "A602", "doesn't go with the others"),
        ({"interleaved": 1}, "A627", "`interleaved` can't be used"),
    ],
)
def test_new_rows_that_a_kernel_refuses(changes: dict[str, Any], code: str, text: str) -> None:
    kernel = attncc.compile("causal", dtype="fp32", head_dim=32)
    given = {**arrays_of(DENSE), **options(DENSE), **changes}
    cache = given.pop("k_cache")
    with pytest.raises(AttnccError, match=code) as caught:
        kernel(given.pop("q"), cache, given.pop("v_cache"), **given)
    assert text in str(caught.value) and np.isnan(cache).all()
