"""`shared_prefix` on the CPU: results are those of the call without it, and what can't be true is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from attncc import api
from attncc.compiler import NO_DEFINES, load_specification
from attncc.diagnostics import AttnccError
from attncc.ir import reads, show
from attncc.kernels.over_prefix import over_prefix
from attncc.kernels.shared_prefix import GROUP, LENGTHS, Q_LEN, whole_tiles
from attncc.runtime.store.store import Configuration

BATCH, HEADS, KV_HEADS, ROOM, D, PREFIX = 3, 4, 2, 48, 32, 21
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"
SCALED = "attn 1\nvariant scaled {\n    scale 1.0 / kv_len\n}\n"
DROPPED = "attn 1\nvariant dropped {\n    dropout 0.5\n}\n"


def call(*, paged: bool = False, layout: str = "bhsd", q_len: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    given: dict[str, Any] = {"q": normal(BATCH, HEADS, q_len, D), "kv_lens": np.int32([48, 23, 30]), "layout": layout}
    for name in "kv":
        rows = normal(BATCH, KV_HEADS, ROOM, D)
        rows[1:, :, :PREFIX] = rows[:1, :, :PREFIX]
        given[name] = rows
    if paged:
        given["block_table"] = np.int32([[0, 1, 2, 3, 4, 5], [0, 1, 6, 7, -1, -1], [0, 1, 8, 9, -1, -1]])
        for name in "kv":
            pool = np.full((10, KV_HEADS, 8, D), np.nan, np.float32)
            for b, line in enumerate(given["block_table"]):
                for number, page in enumerate(line):
                    if page >= 0:
                        pool[page] = given[name][b, :, 8 * number : 8 * number + 8]
            given[name] = pool
    if layout == "bshd":
        for name in "qkv":
            given[name] = np.ascontiguousarray(given[name].swapaxes(1, 2))
    return given


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_results_are_those_without_it(layout: str, paged: bool) -> None:
    kernel, given = attncc.compile(CAUSAL, dtype="fp32", head_dim=D), call(paged=paged, layout=layout)
    out = kernel(**given, shared_prefix=PREFIX)
    assert np.array_equal(out, kernel(**given))
    q, k, v = (given.pop(name) for name in "qkv")
    expected, _ = api.parse(CAUSAL).reference(q, k, v, **given, shared_prefix=PREFIX)
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shared_prefix": 2.0}, "expected an int"),
        ({"shared_prefix": True}, "came bool True"),
        ({"shared_prefix": -1}, "came int -1"),
        ({"shared_prefix": PREFIX + 1}, "sequence 1 is too short"),
        ({"shared_prefix": ROOM + 1}, "at most 48, the keys that there is room for"),
        ({"kv_lens": None}, "calls without a cache"),
        ({"q_offset": 30}, "`q_offset`"),
    ],
)
@pytest.mark.parametrize("paged", [False, True])
def test_what_is_refused(change: dict[str, Any], said: str, paged: bool) -> None:
    kernel = attncc.compile(CAUSAL, dtype="fp32", head_dim=D)
    given = {**call(paged=paged), "shared_prefix": PREFIX, **change}
    if given["kv_lens"] is None and paged:
        pytest.skip("pages need lengths, with a prefix or without")
    with pytest.raises(AttnccError, match="A631") as caught:
        kernel(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("name", ["k", "v"])
def test_rows_that_differ_are_refused(name: str, paged: bool) -> None:
    kernel, given = attncc.compile(CAUSAL, dtype="fp32", head_dim=D), call(paged=paged)
    place = (8, 0, PREFIX - 16 - 1, 5) if paged else (2, 0, PREFIX - 1, 5)
    given[name][place] += 1
    with pytest.raises(AttnccError, match=f"`{name}` aren't the same in all sequences"):
        kernel(**given, shared_prefix=PREFIX)
    kernel(**given, shared_prefix=PREFIX - 1)


@pytest.mark.parametrize(("text", "said"), [(SCALED, "depends on kv_len"), (DROPPED, "dropout")])
def test_variants_that_share_none(text: str, said: str) -> None:
    kernel = attncc.compile(text, dtype="fp32", head_dim=D)
    with pytest.raises(AttnccError, match=f"A631.*{said}"):
        kernel(**call(), shared_prefix=PREFIX, **({"seed": 1} if text == DROPPED else {}))


@pytest.mark.parametrize(
    ("name", "masks"),
    [("causal", 0), ("softcap", 0), ("alibi", 0), ("speculative_tree", 0), ("sliding_window", 1), ("documents", 1)],
)
def test_what_all_rows_keep_of_the_prefix_needs_no_mask(name: str, masks: int) -> None:
    specification, _ = load_specification(name, None, NO_DEFINES)
    assert len(over_prefix(specification.variant).keeps) == masks


def test_the_variant_over_the_prefix() -> None:
    text = """attn 1
variant all_names {
    input bias: f32[batch, head]
    input logit: f32[head]
    let far = q_pos - kv_idx + num_heads
    keep if far < kv_len + q_len + b
    score = score + bias[b, h] * far
    sink logit
}
"""
    variant = api.parse(text).variant
    seen = over_prefix(variant)
    assert [item.name for item in seen.inputs] == ["bias", "logit", LENGTHS, Q_LEN, GROUP]
    assert all(axis.tag is None for item in seen.inputs for axis in item.axes)
    assert seen.sink is None
    expressions = [*(item.condition for item in seen.keeps), *(item.value for item in seen.scores)]
    assert reads(seen, *expressions).isdisjoint({"b", "h", "q_pos", "q_len", "num_heads"})
    assert show(seen.scores[0].value).startswith("(score + (bias[((q_idx // shared_prefix__group) // ")


def test_the_plans_of_both_launches() -> None:
    specification, _ = load_specification("causal", None, NO_DEFINES)
    over, behind = specification.plans(Configuration("bf16", 128, 128, True, None, True), "sm_90a")
    assert (over.pass_name, over.family, over.split_kv, over.skip) == ("forward", "hopper", None, "never")
    assert (behind.pass_name, behind.variant) == ("decode", specification.variant)
    assert over.prefixed and behind.prefixed and over.build.prefixed


@pytest.mark.parametrize(("keys", "whole"), [(127, 0), (128, 128), (32768, 32768), (400, 384)])
def test_whole_tiles(keys: int, whole: int) -> None:
    assert whole_tiles(keys, 128, 64) == whole
