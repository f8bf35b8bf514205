"""PyTorch on a GPU: autograd, torch.compile, CUDA graphs, autocast, checkpoints. Kernels are judged elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.runtime.cuda.device import best_target
from attncc.schedule.target import TARGETS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SPEC = """attn 1
variant trained {
    input slope: f32[head] learnable
    input cap:   f32
    input rate:  f32
    keep if 0 <= q_pos - kv_idx < 200
    score = cap * tanh((score - slope[h] * (q_pos - kv_idx)) / cap)
    dropout rate
}
"""
HEADS, ROWS = 8, 384


def kernel(dtype: str = "bf16") -> Any:
    return attncc.compile(SPEC, dtype=dtype, head_dim=64)


def operands(dtype: Any = torch.bfloat16) -> tuple[Any, ...]:
    torch.manual_seed(0)
    shapes = ((2, HEADS, ROWS, 64), (2, HEADS // 2, ROWS, 64), (2, HEADS // 2, ROWS, 64))
    tensors = [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]
    return (*tensors, torch.rand(HEADS, device="cuda").requires_grad_())


def call(q: Any, k: Any, v: Any, slope: Any, **more: Any) -> Any:
    return kernel()(q, k, v, slope=slope, **{"cap": 20.0, "rate": 0.125, **more})


def gradients(function: Callable[..., Any], **more: Any) -> list[Any]:
    leaves = operands()
    return list(torch.autograd.grad((function(*leaves, **more).float() ** 2).sum(), leaves))


def close(one: list[Any], other: list[Any]) -> None:
    """Up to the order in which sums were made."""
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2 * b.float().abs().max().item())


def test_autograd_gives_what_backward_gives() -> None:
    q, k, v, slope = operands()
    out, lse = call(q, k, v, slope, seed=5, return_lse=True)
    dout, dlse = torch.randn_like(out), torch.randn_like(lse)
    found = torch.autograd.grad((out, lse), (q, k, v, slope), (dout, dlse))
    arrays = [x.detach() for x in (q, k, v)]
    given = {"slope": slope.detach(), "cap": 20.0, "rate": 0.125, "seed": 5}
    expected = kernel().backward(dout, *arrays, out.detach(), lse.detach(), dlse=dlse, **given)
    close(list(found), [expected.dq, expected.dk, expected.dv, expected.inputs["slope"]])


@pytest.mark.parametrize("more", [{}, {"return_lse": True}, {"layout": "bshd"}], ids=["out", "lse", "bshd"])
def test_calls_of_a_known_form_have_the_gradients_of_first_ones(more: dict[str, Any]) -> None:
    """From the third call on, the node is another, which runs the kernels itself. Each has contents of its own."""
    own = attncc.compile(SPEC, dtype="bf16", head_dim=64)
    nodes = []
    for number in range(5):
        leaves = [(x * (1 + number / 4)).detach().requires_grad_() for x in operands()]
        arrays = [x.transpose(1, 2) if more.get("layout") == "bshd" else x for x in leaves[:3]]
        given = {"slope": leaves[3], "cap": 20.0 + number, "rate": 0.125, "seed": number, **more}
        result = own(*arrays, **given)
        out, lse = result if more.get("return_lse") else (result, None)
        nodes.append(out.grad_fn.name())
        flowing = [torch.randn_like(x) for x in (out, lse) if x is not None]
        found = torch.autograd.grad([x for x in (out, lse) if x is not None], [*arrays, leaves[3]], flowing)
        with torch.no_grad():
            plain = [x.detach() for x in arrays]
            quiet = {**given, "slope": leaves[3].detach(), "return_lse": True}
            expected_out, expected_lse = own(*plain, **quiet)
            del quiet["return_lse"]
            dlse = flowing[1] if len(flowing) > 1 else None
            expected = own.backward(flowing[0], *plain, expected_out, expected_lse, dlse=dlse, **quiet)
        assert torch.equal(out, expected_out) and (lse is None or torch.equal(lse, expected_lse))
        close(list(found), [expected.dq, expected.dk, expected.dv, expected.inputs["slope"]])
    assert nodes[0] == "AttentionBackward" and nodes.count("KnownAttentionBackward") >= 1


def test_deterministic_algorithms() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        one, other = (gradients(call, seed=5) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    close(one, gradients(call, seed=5))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_without_a_graph_break(backend: str) -> None:
    own = kernel()

    def model(q: Any, k: Any, v: Any, slope: Any) -> Any:
        return own(q * 2, k, v, slope=slope, cap=20.0, rate=0.125, seed=5) + 1

    close(gradients(torch.compile(model, fullgraph=True, backend=backend)), gradients(model))


def test_checkpoints_replay_dropout() -> None:
    from torch.utils.checkpoint import checkpoint

    def plain(*args: Any) -> Any:
        torch.manual_seed(9)
        return call(*args)

    def again(*args: Any) -> Any:
        torch.manual_seed(9)
        return checkpoint(call, *args, use_reentrant=False)

    close(gradients(again), gradients(plain))


def test_autocast() -> None:
    leaves = operands(torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        out = call(*leaves, seed=5)
    assert out.dtype == torch.bfloat16
    found = torch.autograd.grad((out.float() ** 2).sum(), leaves)
    assert all(x.dtype == torch.float32 for x in found)
    close(list(found), gradients(call, seed=5))


def test_a_training_step_in_a_graph() -> None:
    """Each replay draws a seed of its own, and drops in the backward pass what it dropped in the forward pass."""
    leaves = operands()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(call(*leaves).float().sum(), leaves)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(*leaves)
        (dv,) = torch.autograd.grad(out.float().sum(), leaves[2])
    results = []
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        results.append((out.clone(), dv.clone()))
    assert not torch.equal(results[0][0], results[1][0])
    for own_out, own_dv in results:
        # sum(dV * V) is sum(O): both follow from the pairs that were kept.
        left, right = (own_dv.double() * leaves[2].double()).sum(), own_out.double().sum()
        assert abs(left - right) < 2e-2 * own_out.double().abs().sum()


def test_recorded_calls_run_on_the_given_stream() -> None:
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()

    def aside(*leaves: Any) -> Any:
        """Streams aren't ordered by the call: who gives one does that."""
        side.wait_stream(current)
        out = call(*leaves, seed=5, stream=side)
        current.wait_stream(side)
        return out

    close(gradients(aside), gradients(call, seed=5))


def test_no_synchronisation_in_a_training_step() -> None:
    leaves = operands()
    torch.autograd.grad(call(*leaves).float().sum(), leaves)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(call(*leaves).float().sum(), leaves)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("backward", [True, False])
def test_built_packages(backward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients are those of what `attncc.compile` gives; without a backward pass calls are refused when they are
    recorded, not when gradients flow."""
    name, (major, minor) = f"trained_{backward}", torch.cuda.get_device_capability()
    target = best_target(TARGETS, 10 * major + minor)
    (tmp_path / "trained.attn").write_text(SPEC)
    command = [
        sys.executable,
        "-m",
        "attncc",
        "build",
        str(tmp_path / "trained.attn"),
        "-o",
        str(tmp_path / name),
        "--arch",
        str(target),
    ]
    command += ["--dtype", "bf16", "--head-dim", "64", *(["--backward"] if backward else [])]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(attncc.__file__).parent.parent)
    monkeypatch.syspath_prepend(str(tmp_path))
    trained = importlib.import_module(name).trained

    def packaged(q: Any, k: Any, v: Any, slope: Any, **more: Any) -> Any:
        return trained(q, k, v, slope=slope, cap=20.0, rate=0.125, **more)

    if backward:
        close(gradients(packaged, seed=5), gradients(call, seed=5))
        return
    with pytest.raises(attncc.AttnccError, match="A520"):
        packaged(*operands(), seed=5)
    with torch.no_grad():
        assert torch.equal(packaged(*operands(), seed=5), call(*operands(), seed=5))


def test_the_example_trains_as_the_dense_formula_does() -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "train_characters.py"
    spec = importlib.util.spec_from_file_location("train_characters", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules["train_characters"] = example
    spec.loader.exec_module(example)
    text = example.Text.of(example.make_text(100_000))
    runs = {kind: example.train(kind, example.GPU, text, 40, "cuda") for kind in ("attncc", "dense")}
    own, dense = (sum(run.losses[-10:]) / 10 for run in runs.values())
    assert own == pytest.approx(dense, abs=0.05)
