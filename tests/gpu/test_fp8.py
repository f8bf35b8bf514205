"""e4m3 on the GPU: every spec that it serves against fp64 on the quantised inputs, over a covering design."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attncc.compiler import load_specification
from attncc.resources import folder
from attncc.runtime.call import prepare
from attncc.runtime.kernel import Kernel
from tests.devices import Device, cuda
from tests.gpu.accuracy import judge
from tests.gpu.cases import LENGTHS, SPECS, Case, cases
from tests.gpu.kernels import forward_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEAD_DIMS = ((64, 64), (128, 128), (256, 256), (192, 128), (96, 96), (80, 80), (16, 16))
# Tensor cores of Hopper shift the 32 products of an e4m3 instruction, and the sum so far, to the largest exponent among
# them and keep 13 bits below it (DeepSeek-V3 Technical Report, 2024, section 3.3.2). What each loses, up to 2^-13 of
# the sum, partly cancels: over a head dim of 128 up to 2^-10.9 of a score were measured.
SCORE_PRECISION = 2.0**-10
NO_KERNEL = {"decode"}  # its schedule asks for the decode pass


def _served(spec: str) -> bool:
    variant = load_specification(folder("specs") / f"{spec}.attn", None, {})[0].variant
    return variant.normalize == "softmax" and variant.dropout is None and spec not in NO_KERNEL


def _cases() -> tuple[Case, ...]:
    """Those of bf16 in `cases`, each head dim by turns."""
    found = [case for case in cases(LENGTHS) if case.dtype == "bf16" and case.loop == "q_outer" and _served(case.spec)]
    return tuple(
        replace(case, dtype="e4m3", family="hopper", head_dims=HEAD_DIMS[number % len(HEAD_DIMS)])
        for number, case in enumerate(dict.fromkeys(found))
    )


CASES = _cases()


@pytest.fixture(scope="module")
def device() -> Device:
    found = cuda()
    if found.target != "sm_90":
        pytest.skip("e4m3 kernels run on sm_90a alone")
    return found


@pytest.mark.parametrize("ahead", [False, True], ids=["in kernel", "ahead"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: Case, ahead: bool, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """With descales, as quantised tensors have them; without them where nothing is packed and there is one split. V is
    transposed by the kernel, or by a launch before, whatever would pay."""
    from tests.gpu.calls import call

    monkeypatch.setattr(prepare, "pays", lambda plan, problem: ahead)
    descales = {} if case.splits == 1 and not case.packed else _descales(case)
    kernel = Kernel(forward_kernel(case, device.target)._store)  # has prepared no call
    out, lse, arguments = call(case, kernel, device.target, descales)
    check(out, lse, _descaled(arguments, descales))


def test_flat_rows_and_spikes(device: Device) -> None:
    """Rows of equal scores, whose sum of probabilities is large, and keys whose score is far above all before them."""
    import attncc
    from attncc.problem import Problem
    from tests.gpu.torch_oracle import Arguments

    kernel = attncc.compile(folder("specs") / "full.attn", dtype="e4m3", head_dim=128, arch="sm_90a")
    q, k, v = (torch.randn(1, 2, 3000, 128, device="cuda") for _ in range(3))
    q[:, 0] = 0
    k[:, 1, 2500] *= 20
    k[:, 1, 300] *= 12
    q, k, v = (x.to(torch.float8_e4m3fn) for x in (q, k, v))
    out, lse = kernel(q, k, v, return_lse=True)
    variant = attncc.parse(folder("specs") / "full.attn").variant
    check(out, lse, Arguments(variant, Problem(1, 2, 2, 3000, 3000, 128, 128), *(x.double() for x in (q, k, v)), {}))


def check(out: Any, lse: Any, arguments: Any) -> None:
    """The rule, with P alone rounded in the baseline: an error at most twice its largest and 1.1 times its mean.

    lse as exact as the tensor cores' scores allow, see SCORE_PRECISION and `lse_bound`.
    """
    from tests.gpu.torch_oracle import baseline, lse_bound, oracle

    exact, exact_lse = oracle(arguments)
    accuracy = judge(out, baseline(arguments, torch.float8_e4m3fn), exact, "e4m3")
    print(accuracy)
    assert accuracy.holds, accuracy
    error = torch.where(lse.double() == exact_lse, 0, (lse.double() - exact_lse).abs())  # rows of -inf among them
    allowed = 1e-3 + lse_bound(arguments, SCORE_PRECISION)
    assert (error <= allowed).all(), (error.max(), (error / allowed).max())


def _descales(case: Case) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(3)
    shape = (case.problem.batch, case.problem.num_kv_heads)
    return {
        f"{name}_descale": torch.rand(shape, generator=generator, device="cuda") * 1.5 + 0.3 for name in ("q", "k", "v")
    }


def _descaled(arguments: Any, descales: dict[str, Any]) -> Any:
    """What the oracle takes: q, k and v as the numbers that they stand for, in fp64."""
    problem, arrays = arguments.problem, {}
    for name in ("q", "k", "v"):
        array = getattr(arguments, name).double()
        factor = descales.get(f"{name}_descale")
        if factor is not None:
            factor = factor.double().repeat_interleave(array.shape[-3] // factor.shape[1], dim=1)
            for sequence in problem.sequences():
                start, length = (
                    (sequence.q_start, sequence.q_len) if name == "q" else (sequence.kv_start, sequence.kv_len)
                )
                rows = array if problem.packed else array[sequence.b]
                rows[:, start : start + length] *= factor[sequence.b][:, None, None]
        arrays[name] = array
    return replace(arguments, **arrays)


def test_specs_are_served() -> None:
    assert len([spec for spec in SPECS if _served(spec)]) > 10
