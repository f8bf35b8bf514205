"""The rows of the meaning table that speak of gradients, under schedules of the backward passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import philox, reference
from tests.devices import Device
from tests.kernels import without_decode
from tests.meaning.variants import VARIANTS, source

# Settings of schedules for `backward` and `backward_dq`. hopper: what sm_90a has by default.
SCHEDULES = {
    "default": "",
    "small": "block_q = 16 block_kv = 32 warps = 1 stages = 1",
    "no_skip": "skip = never",
    "hopper": None,
}

LEARNABLE = {
    "learned_slope": "input slope: f32[head] learnable\nkeep if causal()\nscore = score - slope[h] * (q_pos - kv_idx)",
    "learned_cap": "input cap: f32 learnable\nkeep if causal()\nscore = cap * tanh(score / cap)",
    "learned_table": "input table: f32[head, 9] learnable\nscore = score + table[h, clamp(q_pos - kv_idx, -4, 4) + 4]",
    "learned_of_four_axes": "input table: f32[kv_head, 2, _, 3] learnable\nkeep if kv_idx > q_idx - 4 and q_idx != 2\n"
    "score = score + table[kv_h, q_idx % 2, kv_idx, q_idx % 3]",
    "learned_keys": "input bias: f32[batch, pos] learnable\nscore = score * 0.5 + bias[b, kv_idx] * score",
    "learned_rows": "input bias: f16[batch, q] learnable\nscore = score * bias[b, q_idx]\nnormalize sigmoid",
    "learned_sink": "input logit: f32[head] learnable\nkeep if kv_idx < q_idx - 3\nsink logit",
}


@cache
def kernel(text: str, dtype: str, head_dim: int, value_head_dim: int, arch: str | None) -> Any:
    return without_decode(text, dtype=dtype, head_dim=head_dim, value_head_dim=value_head_dim, arch=arch)


@dataclass(frozen=True)
class Backward:
    """The gradients of a call by variant's name, as NumPy arrays in fp64; everything is put on the device first."""

    device: Device
    settings: str | None

    def text(self, name: str) -> str:
        if name in LEARNABLE:
            body = f"attn 1\n\nimport masks\n\nvariant {name} {{\n{LEARNABLE[name]}\n}}\n"
        else:
            body = source(name, None, "")
        if not self.settings:
            return body
        passes = (f"schedule {p} for {name} {p} on {self.device.target} {{ {self.settings} }}" for p in PASSES)
        return body + "\n".join(passes) + "\n"

    def kernel(self, name: str, q: Any, v: Any) -> Any:
        dtype = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}[str(q.dtype)]
        arch = "sm_90a" if self.settings is None else self.device.arch
        return kernel(self.text(name), dtype, q.shape[-1], v.shape[-1], arch if self.device.arch else None)

    def __call__(
        self,
        name: str,
        dout: Any,
        q: Any,
        k: Any,
        v: Any,
        *,
        dlse: Any = None,
        deterministic: bool = False,
        **call: Any,
    ) -> dict[str, Any]:
        own, put = self.kernel(name, q, v), self.device.put
        arrays = {key: put(value) if isinstance(value, np.ndarray) else value for key, value in call.items()}
        softmax = own.variant.normalize == "softmax"
        q, k, v = map(put, (q, k, v))
        out, lse = own(q, k, v, return_lse=True, **arrays) if softmax else (own(q, k, v, **arrays), None)
        given = {"dlse": None if dlse is None else put(dlse), "deterministic": deterministic}
        found = own.backward(put(dout), q, k, v, out, lse, **given, **arrays)
        parts = {"q": found.dq, "k": found.dk, "v": found.dv, **found.inputs}
        return {key: self.device.get(value) for key, value in parts.items()}

    def judge(self, name: str, dout: Any, q: Any, k: Any, v: Any, **call: Any) -> dict[str, Any]:
        """The gradients, after asserting the accuracy rule for each of them."""
        found = self(name, dout, q, k, v, **call)
        call.pop("deterministic", None)
        variant = attncc.parse(self.text(name)).variant
        exact, plain = (f(variant, dout, q, k, v, **call) for f in (reference.backward, reference.baseline_backward))
        dtype = {"float16": "fp16", "float32": "fp32"}[str(q.dtype)]
        for key in ("q", "k", "v"):
            own, other = (getattr(item, f"d{key}") for item in (plain, exact))
            accuracy = reference.accuracy(found[key], own, other, dtype)
            assert accuracy.holds, (name, key, str(accuracy))
        for key, value in exact.inputs.items():
            accuracy = reference.accuracy(found[key], plain.inputs[key], value, dtype)
            assert accuracy.max_error <= accuracy.max_limit, (name, key, str(accuracy))  # too few for a mean
        return found


PASSES = ("backward", "backward_dq")


@pytest.fixture(params=list(SCHEDULES))
def backward(device: Device, request: pytest.FixtureRequest) -> Backward:
    settings = SCHEDULES[request.param]
    if settings is None and (device.name == "cpu" or device.target != "sm_90"):
        pytest.skip("the family hopper runs on sm_90a alone")
    return Backward(device, settings)


def call_of(name: str, batch: int, heads: int, q_len: int, kv_len: int) -> dict[str, Any]:
    """Inputs for a variant of `VARIANTS` or `LEARNABLE`."""
    rng = np.random.default_rng(3)
    text = VARIANTS.get(name) or LEARNABLE.get(name, "")
    known = {
        "input bias: f32[head]": ("bias", rng.standard_normal(heads)),
        "input bias: f32[batch, pos]": ("bias", rng.standard_normal((batch, kv_len))),
        "input bias: f16[batch, q]": ("bias", rng.standard_normal((batch, q_len)).astype(np.float16)),
        "input logit": ("logit", rng.standard_normal(heads)),
        "input table: f32": ("table", rng.standard_normal((heads, 9))),
        "input far": ("far", np.arange(kv_len) % 3 == 0),
        "input slope": ("slope", rng.random(heads) / 4),
        "input doc": ("doc", np.broadcast_to(np.arange(kv_len) // 20, (batch, kv_len)).astype(np.int32)),
        "input gate": ("gate", rng.random((batch, q_len)) < 0.5),
        "input table: i32": ("table", rng.integers(0, 3, 50).astype(np.int32)),
        "input table: f32[kv_head": ("table", rng.standard_normal((heads // 2, 2, kv_len, 3))),
    }
    found = {key: value for start, (key, value) in known.items() if start in text}
    found = {key: x.astype(np.float32) if x.dtype == np.float64 else x for key, x in found.items()}
    numbers = {"input cap": ("cap", 5.0), "input rate": ("rate", 0.25), "input zero": ("zero", 0)}
    found |= {key: value for start, (key, value) in numbers.items() if start in text}
    return found | ({"seed": 7} if "dropout" in text else {})


@pytest.mark.parametrize("name", [*VARIANTS, *LEARNABLE])
def test_every_variant_keeps_the_accuracy_rule(backward, draw, name) -> None:
    q, k, v, dout = draw(2, 4, 75, 32), draw(2, 2, 90, 32), draw(2, 2, 90, 32), draw(2, 4, 75, 32)
    call = call_of(name, 2, 4, 75, 90)
    softmax = "normalize" not in (VARIANTS.get(name) or LEARNABLE.get(name, ""))
    if softmax:
        call["dlse"] = draw(2, 4, 75, dtype=np.float32)
    backward.judge(name, dout, q, k, v, **call)
    backward.judge(name, dout, q, k, v, deterministic=True, **call)


@pytest.mark.parametrize("scale", [0.0, -0.5, 2.0])
@pytest.mark.parametrize("name", ["causal", "sigmoids", "unnormalised"])
def test_scale_of_any_sign(backward, draw, name, scale) -> None:
    """What the mask takes out stays out, whatever the scale makes of its score."""
    q, k, v, dout = draw(1, 2, 50, 32), draw(1, 2, 90, 32), draw(1, 2, 90, 32), draw(1, 2, 50, 32)
    for deterministic in (False, True):
        backward.judge(name, dout, q, k, v, scale=scale, deterministic=deterministic)


@pytest.mark.parametrize("name", ["after_three", "nothing"])
def test_gradients_of_rows_with_nothing_kept(backward, draw, name) -> None:
    q, k, v, dout = draw(1, 2, 40, 32), draw(1, 2, 50, 32), draw(1, 2, 50, 32), draw(1, 2, 40, 32)
    found = backward(name, dout, q, k, v, dlse=draw(1, 2, 40, dtype=np.float32))
    empty_rows, empty_keys = (slice(0, 4), slice(36, None)) if name == "after_three" else (slice(None),) * 2
    assert not found["q"][:, :, empty_rows].any()
    assert not found["k"][:, :, empty_keys].any()
    assert not found["v"][:, :, empty_keys].any()
    assert all(np.isfinite(array).all() for array in found.values())


def test_scores_of_minus_infinity_have_no_gradient(backward, draw) -> None:
    q, k, v, dout = draw(1, 2, 33, 32), draw(1, 2, 70, 32), draw(1, 2, 70, 32), draw(1, 2, 33, 32)
    far = np.arange(70) % 3 == 0
    found = backward("infinite", dout, q, k, v, far=far)
    assert not found["k"][:, :, far].any()
    assert not found["v"][:, :, far].any()
    found = backward("infinite", dout, q, k, v, far=np.ones(70, bool))
    assert not any(array.any() for array in found.values())


@pytest.mark.parametrize(
    ("head_dim", "value_head_dim", "heads"), [(64, 64, (6, 2)), (72, 40, (3, 1)), (128, 64, (4, 4))]
)
def test_head_dims_and_groups(backward, draw, head_dim, value_head_dim, heads) -> None:
    if backward.settings and "block_q" in backward.settings and head_dim > 64:
        pytest.skip("one warp holds no more")
    q, k, v = draw(1, heads[0], 50, head_dim), draw(1, heads[1], 131, head_dim), draw(1, heads[1], 131, value_head_dim)
    backward.judge("causal", draw(1, heads[0], 50, value_head_dim), q, k, v)


def test_layouts_and_strides(backward, draw) -> None:
    q, k, v, dout = draw(2, 4, 45, 32), draw(2, 2, 60, 32), draw(2, 2, 60, 32), draw(2, 4, 45, 32)
    one = backward("causal", dout, q, k, v, deterministic=True)
    swapped = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (dout, q, k, v))
    other = backward("causal", *swapped, layout="bshd", deterministic=True)
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key].swapaxes(1, 2))


def test_packed_batches_are_their_sequences(backward, draw) -> None:
    """Also where a neighbour holds what isn't finite."""
    q, k, v, dout = draw(4, 70, 32), draw(2, 90, 32), draw(2, 90, 32), draw(4, 70, 32)
    k[:, 30:55], v[:, 30:55] = np.nan, np.inf
    starts = {"cu_seqlens_q": np.array([0, 20, 20, 70], np.int32)}
    starts["cu_seqlens_kv"] = np.array([0, 30, 55, 90], np.int32)
    found = backward("causal_dropout", dout, q, k, v, seed=3, **starts)
    alone = backward("causal_dropout", *(x[None, :, :20] for x in (dout, q)), k[None, :, :30], v[None, :, :30], seed=3)
    np.testing.assert_allclose(found["q"][:, :20], alone["q"][0], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found["k"][:, :30], alone["k"][0], rtol=2e-3, atol=2e-3)
    assert np.isfinite(found["q"]).all()
    assert not found["v"][:, 30:55].any()


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 5), (5, 0), (1, 1), (1, 300)])
def test_lengths_at_the_edge(backward, draw, q_len, kv_len) -> None:
    q, k, v = draw(1, 2, q_len, 32), draw(1, 1, kv_len, 32), draw(1, 1, kv_len, 32)
    found = backward.judge("causal", draw(1, 2, q_len, 32), q, k, v)
    assert (q_len and kv_len) or not any(array.any() for array in found.values())


def test_dropout_replays_the_pairs_of_the_forward_pass(backward, draw) -> None:
    """With equal scores dV is the transpose of the dropped weights times dO: dO's ones pick them out."""
    rows, keys = 70, 130
    q, k, v = np.zeros((1, 2, rows, 32), np.float16), np.zeros((1, 2, keys, 32), np.float16), draw(1, 2, keys, 32)
    columns = []
    for first in range(0, rows, 32):
        dout, width = np.zeros((1, 2, rows, 32), np.float16), min(32, rows - first)
        dout[:, :, first : first + width, :width] = np.eye(width)
        columns.append(backward("dropped", dout, q, k, v, rate=0.25, seed=5)["v"][..., :width])
    weights = np.concatenate(columns, axis=-1).swapaxes(-1, -2)
    kept = philox.keep_mask(5, 192, np.arange(2), np.arange(rows), np.arange(keys))[None]
    np.testing.assert_array_equal(weights > 0, kept)
    np.testing.assert_allclose(weights[kept], 256 / 192 / keys, rtol=2e-3)


def test_deterministic_gradients_are_the_same_bit_for_bit(backward, draw) -> None:
    q, k, v, dout = draw(2, 4, 200, 32), draw(2, 2, 260, 32), draw(2, 2, 260, 32), draw(2, 4, 200, 32)
    call = {"table": draw(4, 9, dtype=np.float32), "deterministic": True}
    one, other = (backward("learned_table", dout, q, k, v, **call) for _ in range(2))
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key])
