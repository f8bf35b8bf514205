from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.ir import Keep, Variant, apply, const, symbol
from attncc.reference import mask
from tests.plans import ALIBI, CAUSAL, DOCUMENTS, FULL, HEADWISE, arguments, declared, load


def test_mask_of_causal_does_not_depend_on_batch_or_head() -> None:
    kept = mask(CAUSAL, 3, 5)
    np.testing.assert_array_equal(kept, np.tri(3, 5, 2, dtype=bool)[None, None])
    assert mask(CAUSAL, 3, 5, batch=4, num_heads=2).shape == (1, 1, 3, 5)


def test_full_attention_keeps_all() -> None:
    assert mask(FULL, 2, 3).all()
    assert mask(FULL, 0, 3).shape == (1, 1, 0, 3)


def test_batch_is_read_from_an_input() -> None:
    doc = arguments(DOCUMENTS, 3, 1, 90)["doc"]
    kept = mask(DOCUMENTS, 90, 90, doc=doc)
    expected = (doc[:, :, None] == doc[:, None, :]) & np.tri(90, dtype=bool)
    np.testing.assert_array_equal(kept, expected[:, None])


def test_heads_are_given() -> None:
    kept = mask(HEADWISE, 50, 100, num_heads=3)
    expected = [np.arange(100) <= np.arange(50)[:, None] + 50 + 24 * h for h in range(3)]
    np.testing.assert_array_equal(kept, np.array(expected)[None])


BY_KEY_HEAD = Variant("by_key_head", statements=(Keep(apply("eq", symbol("kv_h"), const(1))),))


def test_a_needed_size_must_be_known() -> None:
    with pytest.raises(AttnccError, match="A620") as error:
        mask(HEADWISE, 4, 4)
    assert "num_heads" in str(error.value)
    with pytest.raises(AttnccError, match=r"num_kv_heads=…"):
        mask(BY_KEY_HEAD, 4, 4, num_heads=6)
    kept = mask(BY_KEY_HEAD, 4, 4, num_heads=6, num_kv_heads=2)
    np.testing.assert_array_equal(kept[0, :, 0, 0], [False, False, False, True, True, True])


SCALED = Variant(
    "scaled",
    inputs=(declared("limit", "f32", "kv_head"), declared("unused", "f32")),
    statements=(Keep(apply("gt", symbol("scale"), load("limit", symbol("kv_h")))),),
)


def test_scale_and_head_dim_in_a_mask() -> None:
    limit = np.array([0.2, 0.3], np.float32)
    kept = mask(SCALED, 1, 1, num_heads=4, head_dim=16, limit=limit)
    np.testing.assert_array_equal(kept.ravel(), [True, True, False, False])


def test_inputs_that_no_keep_line_reads_may_be_left_out() -> None:
    np.testing.assert_array_equal(mask(ALIBI, 4, 4), mask(CAUSAL, 4, 4))
    assert mask(ALIBI, 4, 4, slope=np.ones(7, np.float32)).shape == (1, 1, 4, 4)


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("A607", {}),
        ("A608", {"doc": np.zeros((1, 9), np.int32), "dok": 1}),
        ("A609", {"doc": np.zeros((1, 8), np.int32)}),
        ("A604", {"doc": np.zeros((1, 9), np.float32)}),
        ("A601", {"doc": np.zeros(9, np.int32)}),
        ("A609", {"doc": np.zeros((1, 9), np.int32), "batch": 2}),
    ],
)
def test_bad_inputs_are_refused(code, given) -> None:
    with pytest.raises(AttnccError, match=code) as error:
        mask(DOCUMENTS, 9, 9, **given)
    assert "doc" in str(error.value)


@pytest.mark.parametrize(("sizes", "code"), [({"num_heads": 3, "num_kv_heads": 2}, "A602")])
def test_bad_sizes_are_refused(sizes, code) -> None:
    with pytest.raises(AttnccError, match=code):
        mask(BY_KEY_HEAD, 4, 4, **sizes)
    for length in (-1, True, 4.0):
        with pytest.raises(AttnccError, match="A615"):
            mask(CAUSAL, length, 4)


def test_numbers_beyond_their_type_are_refused() -> None:
    prefix = attncc.parse("attn 1\nvariant prefix {\n    input length: i64\n    keep if kv_idx < length\n}\n")
    for wide in (2**63, -(2**70)):
        with pytest.raises(AttnccError, match=r"A610.*`length`"):
            prefix.mask(4, 4, length=wide)
    assert prefix.mask(4, 4, length=2).sum() == 8


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_floats_of_masks_are_f32(dtype: str) -> None:
    """fp64 sees differences between floats that are equal in f32, which kernels compute masks in."""
    text = "attn 1\nvariant slanted {\n    input share: f32[head]\n    keep if kv_idx / 10 >= 0.1 * q_idx\n"
    text += "    keep if kv_idx <= q_idx + 3 or share[h] * 0.1 <= 0.3\n}\n"
    variant, share = attncc.parse(text), np.asarray([3, 4], np.float32)
    kept = variant.mask(40, 40, share=share)
    q_idx, kv_idx = (place.astype(np.float32) for place in np.ogrid[:40, :40])
    by_distance = kv_idx / np.float32(10) >= np.float32(0.1) * q_idx
    expected = [by_distance, by_distance & (kv_idx <= q_idx + 3)]
    assert (kept == np.asarray(expected)[None]).all()
    kinds = variant.tile_map(40, 40, 8, 8, share=share)
    assert not kept.reshape(2, 5, 8, 5, 8).any(axis=(2, 4))[(kinds == 0)[0]].any()
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 40, 16)).astype({"fp32": "f4", "fp64": "f8"}[dtype])
    out = attncc.compile(text, dtype=dtype, head_dim=16)(q, k, v, share=share)
    np.testing.assert_allclose(out, variant.reference(q, k, v, share=share)[0], atol=1e-5)
