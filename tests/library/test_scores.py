"""Every spec with a score line, another normaliser or a sink, against dense attention in fp64 written here."""

from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc import resources
from attncc.api import ParsedVariant
from attncc.evaluate import Array
from attncc.ir import Variant
from tests.library.cases import SPECS, parsed
from tests.library.scores import CASES, Scores

LENGTHS = [(7, 7), (5, 12), (12, 5), (1, 9), (33, 40), (1, 1)]
BATCH, HEADS, KV_HEADS, HEAD_DIM, VALUE_HEAD_DIM = 2, 6, 2, 16, 8


def normal_qkv(random: np.random.Generator, q_len: int, kv_len: int) -> list[Array]:
    shapes = (HEADS, q_len, HEAD_DIM), (KV_HEADS, kv_len, HEAD_DIM), (KV_HEADS, kv_len, VALUE_HEAD_DIM)
    return [random.standard_normal((BATCH, *shape)) for shape in shapes]


def raw_scores(q: Array, k: Array) -> Array:
    """q.k / sqrt(head_dim); three query heads share a key head."""
    return np.einsum("bhid,bhjd->bhij", q, np.repeat(k, q.shape[1] // k.shape[1], axis=1)) / np.sqrt(q.shape[-1])


def weights(scores: Array, kept: Array, normalize: str, sink: Array | None) -> tuple[Array, Array | None]:
    """The weights of the keys, and the log of the sum that softmax divides by; -inf where nothing is kept."""
    masked = np.where(kept, scores, -np.inf)
    if normalize == "sigmoid":
        return 1 / (1 + np.exp(-masked)), None
    if normalize == "none":
        return np.where(kept, scores, 0), None
    total = np.exp(masked).sum(axis=-1)
    if sink is not None:
        total = total + np.exp(sink.astype(float))[:, None]
    weighed = np.divide(np.exp(masked), total[..., None], out=np.zeros_like(masked), where=total[..., None] > 0)
    with np.errstate(divide="ignore"):
        return weighed, np.log(total)


def without_dropout(spec: str) -> ParsedVariant:
    lines = resources.read("specs", f"{spec}.attn").splitlines(keepends=True)
    return attncc.parse("".join(line for line in lines if not line.strip().startswith("dropout")))


def changes_scores(variant: Variant) -> bool:
    return bool(variant.scores) or variant.sink is not None or variant.normalize != "softmax"


def test_every_spec_that_changes_scores_has_a_case() -> None:
    assert set(CASES) == {spec for spec in SPECS if changes_scores(parsed(spec).variant)}


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("spec", CASES)
def test_scores(spec: str, lengths: tuple[int, int]) -> None:
    random, variant = np.random.default_rng(lengths), without_dropout(spec)
    q, k, v = normal_qkv(random, *lengths)
    inputs, scores = CASES[spec](Scores(raw_scores(q, k), random))
    kept = variant.mask(*lengths, **inputs)
    weighed, lse = weights(scores, kept, variant.variant.normalize, inputs.get(variant.variant.sink or ""))
    out, own_lse = variant.reference(q, k, v, **inputs)
    np.testing.assert_allclose(out, weighed @ np.repeat(v, HEADS // KV_HEADS, axis=1), rtol=1e-9, atol=1e-12)
    assert (own_lse is None) == (lse is None)
    if lse is not None:
        np.testing.assert_allclose(own_lse, lse, rtol=1e-9, atol=1e-12)


def test_mla_decode_is_mla_absorbed() -> None:
    """Keys and values of all heads are products of the same latents, with which queries and results are multiplied in
    their place."""
    random = np.random.default_rng(0)
    shapes = [(2, 4, 3, 24), (2, 4, 3, 8), (2, 1, 13, 40), (2, 1, 13, 8), (4, 40, 24), (4, 40, 16)]
    q, q_rope, latents, k_rope, keys_of, values_of = (random.standard_normal(shape) for shape in shapes)
    k = np.concatenate([latents @ keys_of, np.repeat(k_rope, 4, axis=1)], axis=-1)
    expected, lse = parsed("mla").reference(np.concatenate([q, q_rope], axis=-1), k, latents @ values_of)
    absorbed = np.concatenate([q @ keys_of.swapaxes(-1, -2), q_rope], axis=-1)
    cache = np.concatenate([latents, k_rope], axis=-1)
    variant = parsed("mla_decode", (("columns", 32),))
    out, own_lse = variant.reference(absorbed, cache, cache[..., :40])
    np.testing.assert_allclose(out @ values_of, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own_lse, lse, rtol=1e-9, atol=1e-12)


def test_mla_is_two_products() -> None:
    """Content and rotary parts, the latter shared by all heads, with one scale and causal."""
    random = np.random.default_rng(0)
    shapes = [(2, 4, 9, 24), (2, 4, 13, 24), (2, 4, 9, 8), (2, 1, 13, 8), (2, 4, 13, 16)]
    q, k, q_rope, k_rope, v = (random.standard_normal(shape) for shape in shapes)
    products = np.einsum("bhid,bhjd->bhij", q, k) + np.einsum("bhid,bxjd->bhij", q_rope, k_rope)
    weighed, lse = weights(products / np.sqrt(32), np.tri(9, 13, 4, dtype=bool), "softmax", None)
    wide_k = np.concatenate([k, np.repeat(k_rope, 4, axis=1)], axis=-1)
    out, own_lse = parsed("mla").reference(np.concatenate([q, q_rope], axis=-1), wide_k, v)
    np.testing.assert_allclose(out, weighed @ v, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own_lse, lse, rtol=1e-9, atol=1e-12)
