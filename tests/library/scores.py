"""What the specs make of a score, from their definitions: each case draws inputs and gives the scores that follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attncc.evaluate import Array
from tests.library.cases import Random, distance, int32

Drawn = tuple[dict[str, Any], Array]  # inputs, and the new scores


@dataclass(frozen=True)
class Scores:
    """scale * q.k, fp64 [batch, heads, q_len, kv_len], and what to draw inputs with."""

    values: Array
    random: Random

    @property
    def distance(self) -> Array:
        return distance(*self.values.shape[-2:])

    def per_head(self, values: Any) -> Array:
        return np.asarray(values, float)[:, None, None]

    def normal(self, *shape: int) -> Array:
        """In fp32, as inputs are."""
        return self.random.standard_normal(shape).astype(np.float32)


CASES: dict[str, Callable[[Scores], Drawn]] = {}


def case(*specs: str) -> Callable[[Callable[[Scores], Drawn]], Callable[[Scores], Drawn]]:
    def register(draw: Callable[[Scores], Drawn]) -> Callable[[Scores], Drawn]:
        CASES.update(dict.fromkeys(specs, draw))
        return draw

    return register


@case("alibi")
def alibi(scores: Scores) -> Drawn:
    slope = np.float32(2.0) ** -np.arange(1, scores.values.shape[1] + 1, dtype=np.float32)
    return {"slope": slope}, scores.values - scores.per_head(slope) * scores.distance


def slopes(heads: int) -> list[float]:
    return [2 ** (-8 * head / heads) for head in range(1, heads + 1)]


@case("alibi_signed")
def alibi_signed(scores: Scores) -> Drawn:
    return {}, scores.values - scores.per_head(slopes(scores.values.shape[1])) * scores.distance


@case("alibi_symmetric")
def alibi_symmetric(scores: Scores) -> Drawn:
    return {}, scores.values - scores.per_head(slopes(scores.values.shape[1])) * np.abs(scores.distance)


@case("alibi_documents")
def alibi_documents(scores: Scores) -> Drawn:
    batch, heads, _, kv_len = scores.values.shape
    doc = np.sort(scores.random.integers(0, 3, (batch, kv_len)), axis=1)
    slope = scores.normal(heads)
    biased = scores.values - scores.per_head(slope) * scores.distance
    return {"slope": slope, "doc": int32(doc), "cap": np.float32(2.0)}, 2 * np.tanh(biased / 2)


@case("softcap")
def softcap(scores: Scores) -> Drawn:
    return {}, 50 * np.tanh(scores.values / 50)


@case("sigmoid_attention")
def sigmoid_attention(scores: Scores) -> Drawn:
    return {}, scores.values - math.log(scores.values.shape[-1])


@case("relative_bias")
def relative_bias(scores: Scores) -> Drawn:
    """Entry 128 is distance 0; keys after the query have the entries above it."""
    bias = scores.normal(scores.values.shape[1], 257)
    return {"bias": bias}, scores.values + bias[:, 128 - np.clip(scores.distance, -128, 128)]


@case("sandwich")
def sandwich(scores: Scores) -> Drawn:
    """The inner products of sinusoidal embeddings, in a table that ends before the longest distances."""
    heads, width = scores.values.shape[1], 16
    places = np.arange(max(scores.values.shape[-2:]))[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    embedding = np.concatenate([np.sin(places), np.cos(places)], axis=1)
    table = (embedding @ embedding[0]).astype(np.float32)[: max(len(places) - 2, 1)]
    apart = np.abs(scores.distance)
    bias = np.where(apart < len(table), table[np.minimum(apart, len(table) - 1)], 0.0)
    ratios = [8 * (head + 1) / heads for head in range(heads)]
    return {"bias": table}, scores.values + bias / scores.per_head(ratios)


@case("graphormer_spatial")
def graphormer_spatial(scores: Scores) -> Drawn:
    batch, heads, q_len, kv_len = scores.values.shape
    distances = scores.random.integers(0, 9, (batch, q_len, kv_len))
    bias = scores.normal(heads, 9)
    return {"distance": int32(distances), "bias": bias}, scores.values + np.stack([bias[:, own] for own in distances])


@case("graphormer_edge")
def graphormer_edge(scores: Scores) -> Drawn:
    batch, heads, q_len, kv_len = scores.values.shape
    kinds = scores.random.integers(0, 4, (batch, q_len, kv_len, 5))
    edges = scores.random.integers(0, 6, (batch, q_len, kv_len))
    weight = scores.normal(heads, 5, 4)
    changed = scores.values.copy()
    for b, i, j in np.ndindex(edges.shape):
        path = [weight[:, step, kinds[b, i, j, step]].astype(float) for step in range(edges[b, i, j])]
        changed[b, :, i, j] += np.mean(path, axis=0) if path else 0
    return {"kind": int32(kinds), "edges": int32(edges), "weight": weight}, changed


@case("relu_attention")
def relu_attention(scores: Scores) -> Drawn:
    return {}, np.where(scores.values > 0, scores.values, 0) / scores.values.shape[-1]


@case("gelu_attention")
def gelu_attention(scores: Scores) -> Drawn:
    """The score times the probability that a normal number is below it."""
    below = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
    return {}, scores.values * below(scores.values)


@case("silu_attention")
def silu_attention(scores: Scores) -> Drawn:
    return {}, scores.values / (1 + np.exp(-scores.values)) / scores.values.shape[-1]


@case("doubled_score")
def doubled_score(scores: Scores) -> Drawn:
    return {}, scores.values + scores.values


@case("squared_score")
def squared_score(scores: Scores) -> Drawn:
    return {}, scores.values**2


@case("relative_distance", "relative_causal")
def relative_distance(scores: Scores) -> Drawn:
    return {}, scores.values + scores.distance


@case("head_factor")
def head_factor(scores: Scores) -> Drawn:
    factor = scores.normal(scores.values.shape[1])
    return {"factor": factor}, np.einsum("bhij,h->bhij", scores.values, factor.astype(float))


@case("trigonometric")
def trigonometric(scores: Scores) -> Drawn:
    return {}, np.sin(np.cos(scores.values)) + np.tan(np.arange(len(scores.values)))[:, None, None, None]


@case("batch_bias")
def batch_bias(scores: Scores) -> Drawn:
    bias = scores.normal(len(scores.values))
    return {"bias": bias}, np.stack([own + float(added) for own, added in zip(scores.values, bias, strict=True)])


@case("head_and_query_bias")
def head_and_query_bias(scores: Scores) -> Drawn:
    _, heads, q_len, _ = scores.values.shape
    of_head, of_query = scores.normal(heads), scores.normal(q_len)
    added = of_head.astype(float)[:, None] + of_query.astype(float)
    return {"head_bias": of_head, "query_bias": of_query}, scores.values + added[:, :, None]


@case("query_bias")
def query_bias(scores: Scores) -> Drawn:
    batch, _, q_len, _ = scores.values.shape
    bias = scores.normal(batch, q_len)
    return {"bias": bias}, scores.values + bias.astype(float)[:, None, :, None]


@case("key_bias")
def key_bias(scores: Scores) -> Drawn:
    batch, _, _, kv_len = scores.values.shape
    bias = scores.normal(batch, kv_len)
    return {"bias": bias}, scores.values + bias.astype(float)[:, None, None, :]


@case("selected_attention")
def selected_attention(scores: Scores) -> Drawn:
    """A key of the pool that is named n times weighs n times; the keys after the pool weigh once."""
    batch, heads, q_len, kv_len = scores.values.shape
    pool_len = kv_len // 2
    selected = scores.random.integers(-1, max(pool_len, 1), (batch, q_len, 16))
    times = np.ones((batch, 1, q_len, kv_len))
    for b, row, key in np.ndindex(batch, q_len, pool_len):
        times[b, 0, row, key] = np.count_nonzero(selected[b, row] == key)
    inputs = {
        "pool_len": pool_len,
        "selected": int32(selected),
        "doc": np.zeros((batch, kv_len), np.int32),
        "sink_logit": scores.normal(heads),
    }
    with np.errstate(divide="ignore"):
        return inputs, scores.values + np.log(times)


@case("sink_attention")
def sink_attention(scores: Scores) -> Drawn:
    return {"sink_logit": scores.normal(scores.values.shape[1])}, scores.values
