"""The torch oracle against the NumPy reference: two implementations that share no evaluator. Needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest

from attncc import reference, synthetic
from attncc.ir import Variant
from attncc.problem.problem import Problem
from attncc.resources import folder
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.meaning.variants import VARIANTS, source

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the problems are tiny: threads would only wait for each other

SPECS = folder("specs")
FILES = sorted(path.name for path in SPECS.glob("*.attn") if path.stem != "masks")

DENSE = Problem(2, 6, 2, 37, 53, 24, 40)
PACKED = Problem(3, 4, 2, 60, 71, 16, 16, packed=True, q_starts=(0, 20, 20, 60), kv_starts=(0, 31, 40, 71))


def variant_of(name: str) -> Variant:
    if name in VARIANTS:
        return load(SourceFile(name, source(name, None, "sm_90"))).variants[0]
    return load(SourceFile.read(SPECS / name)).variants[0]


@pytest.mark.parametrize("name", ["full", "causal", "squared_score", "softcap", "trigonometric", "sink_attention"])
def test_lse_bound(name: str) -> None:
    """Scores that are off as far as they may be, all up, all down, all away from 0, or by chance: no lse goes beyond
    the bound. It is met where they go up and nothing is made of them, and nearly where they are squared."""
    from tests.gpu.torch_oracle import Arguments, lse_bound, oracle

    precision, variant, problem = 2**-10, variant_of(f"{name}.attn"), Problem(2, 3, 3, 37, 53, 53, 8)
    rng = np.random.default_rng(5)
    inputs = {key: torch.from_numpy(x) for key, x in synthetic.inputs(variant, problem, rng).items()}
    scores = torch.from_numpy(4 * rng.standard_normal((2, 3, 37, 53)))
    keys, values = torch.eye(53, dtype=torch.float64).expand(2, 3, 53, 53), torch.zeros(2, 3, 53, 8)

    def call(scores: object) -> Arguments:
        """Queries that are their scores."""
        return Arguments(variant, problem, scores, keys, values, inputs, scale=1.0)

    exact, off = oracle(call(scores))[1], precision * scores.abs().amax(-1, keepdim=True)
    bound = lse_bound(call(scores), precision)
    directions = (1, -1, scores.sign(), torch.from_numpy(rng.choice([-1.0, 1.0], scores.shape)))
    errors = torch.stack([oracle(call(scores + off * signs))[1] - exact for signs in directions]).nan_to_num(0).abs()
    assert (errors <= bound + 1e-12).all()
    if name in ("full", "squared_score"):
        assert (errors.amax(0) >= 0.99 * bound).all()


@pytest.mark.parametrize("problem", [DENSE, PACKED], ids=["dense", "packed"])
@pytest.mark.parametrize("name", [*FILES, *VARIANTS])
def test_agrees_with_the_reference(name: str, problem: Problem) -> None:
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    variant = variant_of(name)
    rng = np.random.default_rng(5)
    q, k, v = synthetic.qkv(problem, "fp16", rng)
    inputs = synthetic.inputs(variant, problem, rng)
    call = {"seed": 3} if variant.dropout is not None else {}
    if problem.packed:
        call |= {
            "cu_seqlens_q": np.array(problem.q_starts, np.int32),
            "cu_seqlens_kv": np.array(problem.kv_starts, np.int32),
        }
    exact, lse = reference.forward(variant, q, k, v, **call, **inputs)
    plain, _ = reference.baseline(variant, q, k, v, **call, **inputs)

    tensors = [torch.from_numpy(item) for item in (q, k, v)]
    arguments = Arguments(variant, problem, *tensors, {key: torch.from_numpy(x) for key, x in inputs.items()}, seed=3)
    out, own_lse = oracle(arguments)
    np.testing.assert_allclose(out.numpy(), exact, rtol=1e-9, atol=1e-11)
    if lse is not None:
        np.testing.assert_allclose(own_lse.numpy(), lse, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(baseline(arguments, torch.float16).numpy(), plain.astype(float), rtol=3e-3, atol=3e-3)
