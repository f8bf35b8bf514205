"""The gradients that the GPU suite compares with are those of `attncc.reference`; no GPU is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from attncc import reference, synthetic
from attncc.problem import Problem
from attncc.resources import folder

torch = pytest.importorskip("torch")

SPECS = ("softcap", "relative_bias", "dropout_attention", "sink_attention", "silu_attention", "alibi_documents")


@pytest.mark.parametrize("spec", SPECS)
def test_gradients(spec: str) -> None:
    from tests.gpu import torch_backward
    from tests.gpu.torch_oracle import Arguments

    variant = attncc.parse(folder("specs") / f"{spec}.attn").variant
    problem, rng = Problem(2, 4, 2, 40, 50, 16, 16), np.random.default_rng(1)
    inputs = synthetic.inputs(variant, problem, rng)
    shapes = ((2, 4, 40, 16), (2, 2, 50, 16), (2, 2, 50, 16), (2, 4, 40, 16))
    q, k, v, dout = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    softmax = variant.normalize == "softmax"
    dlse = rng.standard_normal((2, 4, 40)).astype(np.float32) if softmax else None
    given: dict[str, Any] = {**inputs, "dlse": dlse} | ({} if variant.dropout is None else {"seed": 5})
    expected = reference.backward(variant, dout, q, k, v, **given)
    plain = reference.baseline_backward(variant, *(x.astype(np.float16) for x in (dout, q, k, v)), **given)

    def tensor(array: Any) -> Any:
        return None if array is None else torch.from_numpy(np.asarray(array))

    tensors = {name: tensor(array) for name, array in inputs.items()}
    call = Arguments(variant, problem, tensor(q), tensor(k), tensor(v), tensors, seed=5)
    exact = torch_backward.oracle(call, tensor(dout), tensor(dlse))
    rounded = torch_backward.baseline(call, tensor(dout), tensor(dlse), torch.float16)
    for name in ("dq", "dk", "dv"):
        np.testing.assert_allclose(getattr(exact, name), getattr(expected, name), atol=1e-12)
        errors = [np.abs(np.float64(getattr(x, name)) - getattr(expected, name)).mean() for x in (rounded, plain)]
        assert 0.5 < errors[0] / errors[1] < 2, "of the size that attncc's own baseline has"
    for name, found in exact.inputs.items():
        np.testing.assert_allclose(found, expected.inputs[name], atol=1e-12)


LEARNABLE = (
    "batch_bias", "graphormer_edge", "graphormer_spatial", "head_and_query_bias", "head_factor", "key_bias",
    "query_bias", "relative_bias", "selected_attention", "sink_attention",
)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "packed"), [("batch_bias", False), ("sink_attention", False), *((spec, True) for spec in LEARNABLE)]
)
def test_the_baseline_of_learnable_inputs(spec: str, packed: bool) -> None:
    """It is near the oracle, in fp32 very near; whoever returns nothing, or all but a tenth of it, isn't."""
    from tests.gpu import torch_backward
    from tests.gpu.accuracy import judge
    from tests.gpu.torch_oracle import Arguments

    variant = attncc.parse(folder("specs") / f"{spec}.attn").variant
    starts = {"q_starts": (0, 40, 40, 53), "kv_starts": (0, 50, 62, 87)} if packed else {}
    lengths = (53, 87) if packed else (40, 50)
    problem = Problem(3 if packed else 2, 4, 2, *lengths, 16, 16, packed=packed, **starts)
    torch.manual_seed(3)
    lead = () if packed else (2,)
    q, k, v, dout = (torch.randn(*lead, heads, lengths[heads == 2], 16).half() for heads in (4, 2, 2, 4))
    dlse = torch.randn(*lead, 4, lengths[0])
    drawn = synthetic.inputs(variant, problem, np.random.default_rng(1))
    call = Arguments(variant, problem, q, k, v, {name: torch.from_numpy(x) for name, x in drawn.items()})
    exact = torch_backward.oracle(call, dout, dlse).inputs
    plain, precise = (torch_backward.baseline(call, dout, dlse, kind) for kind in (torch.float16, torch.float32))
    for name, gradient in exact.items():
        given = {"terms": plain.terms[name], "spread": plain.spread[name]}
        for own, good in ((precise.inputs[name], True), (0.9 * gradient, False), (0 * gradient, False)):
            judged = judge(own, plain.inputs[name], gradient, "fp16", **given)
            assert (judged.max_error <= judged.max_limit) == good, (name, judged)
        torch.testing.assert_close(precise.inputs[name], gradient, rtol=1e-4, atol=1e-4)
        assert float(plain.spread[name].max()) < 0.02 * float(gradient.abs().max())
