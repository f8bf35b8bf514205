"""Kernels of wide heads for Hopper on an emulated GPU: warpgroups take turns with tiles and share the columns of O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc.analysis.cost.roofline import DEVICES
from attncc.balance import balance
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, decode_parts, forward, problem_of
from tests.unit.templates.test_emulated_caches import cache, in_pages
from tests.unit.templates.test_emulated_decode import CHECKERED, CU, FULL, GROUPED
from tests.unit.templates.test_emulated_kernels import (
    CAUSAL,
    DOCUMENTS,
    DROPPED,
    EVERYTHING,
    SIGMOID,
    WINDOW,
    check,
    qkv,
)
from tests.unit.templates.test_emulated_wide import LINEAR, SOFTCAP, as_latents, judge, wide

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

SINK = "attn 1\nvariant sunk {\n    input logit: f32[head]\n    keep if q_pos >= kv_idx\n    sink logit\n}\n"


def hopper(text: str, head_dims: tuple[int, int], *, dtype: str = "bf16", **changes: Any) -> KernelPlan:
    plan = wide(text, head_dims, dtype=dtype, target="sm_90a", **changes)
    assert plan.family == "hopper_wide"
    return plan


@pytest.mark.parametrize(
    "head_dims", [(264, 264), (576, 512), (320, 320), (512, 512), (384, 40), (576, 16), (448, 448)]
)
def test_head_dims(head_dims: tuple[int, int]) -> None:
    """Halves of V that aren't alike among them; where K and V have one stage each, warpgroups share it."""
    dtype = "fp16" if head_dims[0] % 3 else "bf16"
    plan = hopper(CAUSAL, head_dims, dtype=dtype)
    judge(plan, Call(*qkv(plan, (2, 2, 70), (2, 1, 290)), blocks=4))


def test_stages() -> None:
    apart: dict[tuple[int, int], tuple[int, int]] = {}
    for head_dims in ((264, 264), (320, 320), (384, 384), (512, 512), (576, 512)):
        plan = hopper(CAUSAL, head_dims)
        facts: Any = facts_of(plan)
        apart[head_dims] = plan.stages, facts.latent_stages
    assert apart == {(264, 264): (2, 2), (320, 320): (2, 2), (384, 384): (1, 2), (512, 512): (1, 2), (576, 512): (1, 2)}


@pytest.mark.parametrize(
    "text", [FULL, SOFTCAP, DOCUMENTS, DROPPED, SIGMOID, LINEAR, CHECKERED, GROUPED, EVERYTHING, WINDOW, SINK]
)
@pytest.mark.parametrize("q_len", [2, 40])
def test_masks_scores_and_what_else_there_is(text: str, q_len: int) -> None:
    plan = hopper(text, (320, 264))
    heads, rng = 6, np.random.default_rng(2)
    doc = np.sort(rng.integers(0, 4, (2, 330)).astype(np.int32))
    slope, logit = (0.1 * rng.standard_normal((2, heads))).astype(np.float32)
    known = {"doc": doc, "slope": slope, "logit": logit}
    inputs = {item.name: known[item.name] for item in plan.variant.inputs}
    judge(plan, Call(*qkv(plan, (2, heads, q_len), (2, 2, 330)), scale=-0.1, seed=5, inputs=inputs, blocks=5, order=3))


@pytest.mark.slow
@pytest.mark.parametrize("kv_len", [0, 1, 63, 64, 65, 128, 129, 192, 321, 450])
@pytest.mark.parametrize("head_dims", [(576, 512), (264, 264)])
def test_numbers_of_tiles(head_dims: tuple[int, int], kv_len: int) -> None:
    """The last pair of tiles may have one alone; one thread block has them all."""
    plan = hopper(FULL, head_dims)
    judge(plan, Call(*qkv(plan, (1, 3, 5), (1, 1, kv_len)), blocks=1))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, -0.2, 3.0])
def test_maxima_that_move_late(scale: float) -> None:
    """Keys grow along the sequence, so each tile finds larger scores than those before."""
    plan = hopper(FULL, (288, 272))
    q, k, v = qkv(plan, (1, 2, 40), (1, 1, 400))
    grown = (k.astype(np.float32) * np.linspace(0.1, 4, 400)[:, None]).astype(k.dtype)
    judge(plan, Call(q, grown, v, scale=scale, blocks=1))


@pytest.mark.parametrize("blocks", [1, 4, 13])
@pytest.mark.parametrize("split_kv", [None, 3, 1])
def test_packed_batches(split_kv: int | None, blocks: int) -> None:
    """Sequences without rows, without keys, and one much longer than the others: parts are cut anywhere."""
    plan = hopper(CAUSAL, (272, 264), split_kv=split_kv)
    check(plan, Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, blocks=blocks, order=blocks))


@pytest.mark.parametrize("text", [CAUSAL, DOCUMENTS])
@pytest.mark.parametrize("page", [8, 64, 192])
def test_caches(text: str, page: int) -> None:
    """Lengths of 0 and 1 among them; behind a sequence's last key is NaN."""
    plan = hopper(text, (320, 264))
    check(plan, Call(**cache(plan, 40)))
    if text == CAUSAL:
        check(plan, Call(**cache(plan, 40), q_offset=np.int32([100, 300, 0, -70])))
        check(replace(plan, paged=True), Call(**in_pages(cache(plan, 40), page)))


@pytest.mark.parametrize(("heads", "q_len"), [(50, 1), (128, 1), (20, 2)])
@pytest.mark.parametrize("blocks", [2, 7])
def test_latents_are_loaded_once(heads: int, q_len: int, blocks: int) -> None:
    """MLA: V is a view of K. Tiles that serve as both give the bits that those loaded apart do."""
    plan = hopper(CAUSAL, (576, 512))
    arrays = cache(plan, q_len)
    q = np.random.default_rng(1).standard_normal((4, heads, q_len, 576), np.float32).astype(arrays["k"].dtype)
    arrays = as_latents(arrays | {"q": q}, 512)
    pages = as_latents(in_pages(arrays, 16), 512)
    for own, given in ((plan, arrays), (replace(plan, paged=True), pages)):
        check(own, Call(**given, blocks=blocks))
        found = []
        for values in (given["v"], given["v"].copy()):
            kernel.take_counts()
            found.append((forward(own, Call(**given | {"v": values}, blocks=blocks)), kernel.take_counts().read))
        (latents, of_latents), (apart, of_both) = found
        for x, y in zip(latents, apart, strict=True):
            np.testing.assert_array_equal(x.view(np.uint8), y.view(np.uint8))
        assert of_latents < 0.8 * of_both


@pytest.mark.slow
def test_equal_keys_and_values() -> None:
    """Of 320 columns: a tile of K has a panel of zeros more, the second half of V."""
    plan = hopper(CAUSAL, (320, 320))
    arrays = cache(plan, 40)
    check(plan, Call(**arrays | {"v": arrays["k"]}))


def test_bits_dont_depend_on_who_comes_last() -> None:
    plan = hopper(CAUSAL, (272, 264))
    call = Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, blocks=11)
    first = forward(plan, call)
    for order in range(1, 4):
        again = forward(plan, replace(call, order=order))
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(first, again, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 70])
def test_pieces_that_dont_divide_a_tile(group: int) -> None:
    """Three thread blocks share the 64 rows of a tile to merge them: the last piece leaves the next tile's rows alone,
    which may be merged before it."""
    plan = hopper(FULL, (272, 264))
    judge(plan, Call(*qkv(plan, (1, group, 140 // group), (1, 1, 129)), blocks=9, order=1))


def of_lengths(plan: KernelPlan, heads: int, q_len: int, lengths: tuple[int, ...]) -> Call:
    """A cache with room for one key more than the longest has, and NaN behind each."""
    q, k, v = qkv(plan, (len(lengths), heads, q_len), (len(lengths), 1, max(lengths) + 1))
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    return Call(q, k, v, kv_lens=np.int32(lengths), order=1)


def parts_of(plan: KernelPlan, call: Call) -> int:
    """How many parts `attncc explain` foretells."""
    lengths = tuple(call.kv_lens.tolist()) if call.kv_lens is not None else (call.k.shape[-2],) * call.batch
    device = replace(DEVICES["h200"], multiprocessors=call.multiprocessors)
    return balance(plan, replace(problem_of(plan, call), kv_lens=lengths), {}, device).parts


@pytest.mark.parametrize(("heads", "kv_len", "parts"), [(70, 640, 3), (140, 130, 2), (70, 70, 2), (50, 640, 5)])
def test_equal_lengths(heads: int, kv_len: int, parts: int) -> None:
    """Each thread block has one part of one item, of as many tiles as the others or one less. Lengths on the device
    give the same bits."""
    plan = hopper(FULL, (272, 264))
    blocks = parts * -(-heads // 64)
    call = Call(*qkv(plan, (1, heads, 1), (1, 1, kv_len)), blocks=blocks, multiprocessors=blocks, order=1)
    judge(plan, call)
    *found, count = decode_parts(plan, call)
    assert count == parts_of(plan, call) == parts * -(-heads // 64)
    *again, count = decode_parts(plan, replace(call, kv_lens=np.int32([kv_len])))
    assert count == parts * -(-heads // 64)
    assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize(
    ("heads", "q_len", "lengths", "blocks", "parts"),
    [
        (50, 1, (700, 64, 1, 0, 300), 9, 6),  # one team; of 11 and 5 tiles parts of 3, others whole
        (140, 1, (700, 1, 300, 0), 12, None),  # three teams of four
        (70, 2, (520, 1, 0, 1030, 129), 15, None),  # two queries, which see other keys
        (40, 3, (130, 65, 64, 0), 21, None),  # ten thread blocks each, and one that is left over
        (70, 1, (130,) * 5, 4, 0),  # three whole sequences for two thread blocks of a team
        (70, 1, (1000, 30, 1, 0, 990, 64), 4, None),  # runs that end anywhere
    ],
)
@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_teams(  # noqa: PLR0917
    text: str, heads: int, q_len: int, lengths: tuple[int, ...], blocks: int, parts: int | None
) -> None:
    """Blocks of rows with thread blocks of their own; runs that end with items, and those that don't. Of sequences
    without keys, or one; the bits are those of any order of thread blocks."""
    plan = hopper(text, (272, 264))
    call = replace(of_lengths(plan, heads, q_len, lengths), blocks=blocks, multiprocessors=blocks)
    judge(plan, call)
    *found, count = decode_parts(plan, call)
    assert count == parts_of(plan, call)
    assert parts is None or count == parts
    for order in (0, 2, 3):
        again = forward(plan, replace(call, order=order))
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(found, again, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(260, 131, 1, 0), (260, 260, 260, 260), (200, 260, 193, 230)])
def test_teams_over_pages(lengths: tuple[int, ...]) -> None:
    """Latents in pages have the bits of contiguous ones, and what isn't in use is NaN."""
    plan = hopper(CAUSAL, (576, 512))
    arrays = cache(plan, 1, lengths)
    q = np.random.default_rng(1).standard_normal((4, 128, 1, 576), np.float32).astype(arrays["k"].dtype)
    arrays = as_latents(arrays | {"q": q}, 512)
    call = Call(**arrays, blocks=16, multiprocessors=16)
    judge(plan, call)
    paged = replace(call, **as_latents(in_pages(arrays, 64), 512))
    for x, y in zip(forward(plan, call), forward(replace(plan, paged=True), paged), strict=True):
        np.testing.assert_array_equal(x.view(np.uint8), y.view(np.uint8))
