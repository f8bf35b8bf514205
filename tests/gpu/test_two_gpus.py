"""Two GPUs in one process: a call belongs to the GPU of its arrays, whichever is the current one.

So do the machine code that it launches, the memory, counters and maps that are kept for it, and its graphs.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.resources import folder
from attncc.runtime.cuda.device import best_target
from attncc.schedule.schedule import Schedule
from attncc.schedule.target import TARGETS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

GPUS = (0, 1)
HALF_A_SECOND = 1_000_000_000  # of torch's clock
TRAINED = """attn 1
variant trained_on_two {
    input slope: f32[head] learnable
    input logit: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
    dropout 0.25
}
"""


@pytest.fixture(autouse=True)
def _two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if len({torch.cuda.get_device_name(number) for number in GPUS}) > 1:
        pytest.skip("needs two GPUs of one kind, whose results have the same bits")


def normal(*shape: int) -> Any:
    return torch.randn(shape, device="cuda:0").bfloat16()


def moved(given: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: x.to(f"cuda:{number}") if isinstance(x, torch.Tensor) else x for name, x in given.items()}


def everywhere(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Copies of a call's arguments on each GPU, complete for all of their streams."""
    found = [moved(given, number) for number in GPUS]
    wait()
    return found


def wait() -> None:
    for number in GPUS:
        torch.cuda.synchronize(number)


def same(one: Any, other: Any) -> bool:
    return torch.equal(one.cpu(), other.cpu())


Call = tuple[Callable[..., Any], dict[str, Any]]


def persistent() -> Call:
    """By maps, its blocks claimed from a counter."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the family hopper runs on sm_90a alone")
    schedule = Schedule("hopper", "causal", "forward", "sm_90a", (("family", ("hopper",)),))
    own = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=64, arch="sm_90a", schedule=schedule)
    return own, {name: normal(2, 16, 4096, 64) for name in "qkv"}


def split() -> Call:
    """Two launches, with partial results between them."""
    own = attncc.compile(folder("specs") / "decode.attn", dtype="bf16", head_dim=64)
    return own, {"q": normal(2, 8, 1, 64), "k": normal(2, 2, 3000, 64), "v": normal(2, 2, 3000, 64)}


def with_prepass() -> Call:
    """The order of documents is verified by a launch before; cap and seed are read where the kernel runs."""
    own = attncc.compile(folder("specs") / "alibi_documents.attn", dtype="bf16", head_dim=64)
    doc = torch.arange(256, dtype=torch.int32, device="cuda:0").div(100, rounding_mode="floor").expand(2, 256)
    numbers = {"cap": torch.tensor(30.0, device="cuda:0"), "seed": torch.tensor(5, device="cuda:0")}
    return own, {"doc": doc, "slope": torch.rand(8, device="cuda:0"), **numbers} | {
        name: normal(2, 8, 256, 64) for name in "qkv"
    }


def carried() -> Call:
    """State that is too large to be kept."""
    own = attncc.compile(folder("specs") / "flash_attention_1.attn", dtype="bf16", head_dim=64)
    return own, {name: normal(2, 8, 1024, 64) for name in "qkv"}


CALLS = [persistent, split, with_prepass, carried]


@pytest.mark.parametrize("made", CALLS)
def test_calls_alternate(made: Callable[[], Call]) -> None:
    """On default streams, on others and on such as are given: as on one GPU alone."""
    call, given = made()
    expected, each, found = call(**given), everywhere(given), []
    side = [torch.cuda.Stream(number) for number in GPUS]
    for current in GPUS:
        with torch.cuda.device(current):
            for number in (0, 1, 1, 0, 1):
                found += [call(**each[number]), call(**each[number], stream=side[number])]
                found.append(call(**each[number], stream=torch.cuda.default_stream(number)))
                with torch.cuda.stream(side[number]), torch.cuda.device(current):
                    found.append(call(**each[number]))
    wait()
    assert [out.get_device() for out in found] == [number for number in (0, 1, 1, 0, 1) for _ in range(4)] * 2
    assert all(same(out, expected) for out in found)


def test_results_are_on_the_gpu_of_the_arrays_again_and_again() -> None:
    """Memory is allocated by two ways of torch's, one of which knows the current GPU alone."""
    call, given = with_prepass()
    for number in (0, 1, 1, 0):
        for current in (0, 1, 0):
            with torch.cuda.device(current):
                out, lse = call(return_lse=True, **moved(given, number))
                assert {out.get_device(), lse.get_device()} == {number}


@pytest.mark.parametrize("given_default", [True, False], ids=["the default stream", "a side stream"])
def test_a_given_stream_of_the_other_gpu_is_used(given_default: bool) -> None:
    call, given = split()
    expected, (_, there) = call(**given), everywhere(given)
    side = torch.cuda.Stream(1)
    wanted, other = torch.cuda.default_stream(1), side
    if not given_default:
        wanted, other = other, wanted
    out = torch.zeros_like(there["q"])
    wait()
    call(**there, stream=wanted)  # what it loads and allocates isn't to wait
    with torch.cuda.stream(other):
        assert not out.any()
    wait()
    with torch.cuda.stream(wanted):
        torch.cuda._sleep(HALF_A_SECOND)
    call(**there, out=out, stream=wanted)
    assert not wanted.query()
    with torch.cuda.stream(other):
        assert not out.any()  # what was queued waits behind
    wanted.synchronize()
    assert same(out, expected)


@pytest.mark.parametrize("made", CALLS)
def test_graphs(made: Callable[[], Call]) -> None:
    """Of each GPU one, recorded while either is the current one, and replayed with new contents."""
    call, given = made()
    each, graphs = everywhere(given), []
    for number, other in ((0, 0), (1, 1), (0, 1), (1, 0)):
        call(**each[number])
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(number)), torch.cuda.device(other):
            out = call(**each[number])
        graphs.append((graph, out))
    for name in "qkv":
        each[0][name].copy_(torch.randn_like(each[0][name]))
        each[1][name].copy_(each[0][name])
    wait()
    for current in GPUS:
        with torch.cuda.device(current):
            for graph, out in graphs:
                out.zero_()
                wait()
                graph.replay()
            expected = [call(**each[number]) for number in GPUS]
        wait()
        assert same(*expected)
        assert all(same(out, expected[0]) for _, out in graphs)


def test_threads() -> None:
    """Two for each GPU, which never made one the current one, on default streams and others."""
    call, given = persistent()
    expected, each = call(**given), everywhere(given)

    def work(number: int) -> bool:
        mine, stream = each[number % 2], torch.cuda.Stream(number % 2) if number < 2 else None
        found = [call(**mine, stream=stream) for _ in range(100)]
        torch.cuda.synchronize(number % 2)
        return all(same(out, expected) for out in found[::10])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


# -------------------------------------------------------------------- gradients


@pytest.fixture(params=["compiled", "package"])
def trained(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One kernel, or one function of a package that was built."""
    if request.param == "compiled":
        return attncc.compile(TRAINED, dtype="bf16", head_dim=64)
    major, minor = torch.cuda.get_device_capability()
    target = str(best_target(TARGETS, 10 * major + minor))
    source = tmp_path / "spec.attn"
    source.write_text(TRAINED)
    command = [sys.executable, "-m", "attncc", "build", str(source), "-o", str(tmp_path / "for_two_gpus")]
    command += ["--arch", target, "--dtype", "bf16", "--head-dim", "64", "--backward"]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(attncc.__file__).parent.parent)
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module("for_two_gpus").trained_on_two


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def leaves() -> dict[str, Any]:
    torch.manual_seed(0)
    small = {"slope": torch.rand(8, device="cuda:0"), "logit": torch.randn(8, device="cuda:0")}
    return {"q": normal(2, 8, 384, 64), "k": normal(2, 4, 384, 64), "v": normal(2, 4, 384, 64), **small}


def test_gradients_of_both_at_once(trained: Any, deterministic: None) -> None:
    """One backward pass through both: autograd has a thread for each GPU."""

    def recorded(number: int) -> tuple[Any, list[Any]]:
        own = {name: x.to(f"cuda:{number}").requires_grad_() for name, x in leaves().items()}
        return trained(**own, seed=5).float().square().sum(), list(own.values())

    loss, arrays = recorded(0)
    expected = torch.autograd.grad(loss, arrays)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            (loss, here), (other, there) = map(recorded, GPUS)
            found = torch.autograd.grad(loss + other.to("cuda:0"), here + there)
        wait()
        for number in GPUS:
            own = found[5 * number : 5 * number + 5]
            assert {x.get_device() for x in own} == {number}
            assert all(map(same, own, expected))


def test_backward_calls_alternate(trained: Any) -> None:
    given = leaves()
    out, lse = trained(**given, seed=5, return_lse=True)
    each = everywhere(given | {"out": out, "lse": lse, "dout": torch.randn_like(out)})
    side = [torch.cuda.Stream(number) for number in GPUS]
    found = []
    for current in GPUS:
        with torch.cuda.device(current):
            for number in (0, 1, 1, 0):
                for stream in (None, side[number], torch.cuda.default_stream(number)):
                    found.append(trained.backward(**each[number], seed=5, deterministic=True, stream=stream))
    wait()
    gradients = [[item.dq, item.dk, item.dv, *item.inputs.values()] for item in found]
    assert [own[0].get_device() for own in gradients] == [number for number in (0, 1, 1, 0) for _ in range(3)] * 2
    assert all(same(x, y) for own in gradients for x, y in zip(own, gradients[0], strict=True))


def test_a_training_step_in_a_graph_of_the_other_gpu(trained: Any, deterministic: None) -> None:
    own = {name: x.to("cuda:1").requires_grad_() for name, x in leaves().items()}

    def step() -> Any:
        return torch.autograd.grad(trained(**own, seed=5).float().square().sum(), list(own.values()))

    expected, graph = step(), torch.cuda.CUDAGraph()
    wait()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(1)):
        found = step()
    graph.replay()
    wait()
    assert all(map(same, found, expected))


# -------------------------------------------------------------------- arguments of both


@pytest.mark.parametrize("records", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("name", ["k", "v", "doc", "slope", "cap", "seed"])
def test_an_argument_of_the_other_gpu_is_named(name: str, records: bool) -> None:
    call, given = with_prepass()
    call(**given)  # a form that is known
    given["q"].requires_grad_(records)
    with pytest.raises(attncc.AttnccError, match=rf"A605.*`{name}` is on another device than `q`"):
        call(**given | {name: given[name].to("cuda:1")})


@pytest.mark.parametrize("name", ["out", "cu_seqlens_q", "cu_seqlens_kv"])
def test_out_or_cu_seqlens_of_the_other_gpu_are_named(name: str) -> None:
    call = attncc.compile(folder("specs") / "flash_attention_1.attn", dtype="bf16", head_dim=64)
    starts, q = torch.tensor([0, 10, 100], dtype=torch.int32, device="cuda:0"), normal(8, 100, 64)
    given = {"q": q, "k": q, "v": q, "cu_seqlens_q": starts, "cu_seqlens_kv": starts, "out": torch.empty_like(q)}
    call(**given)
    with pytest.raises(attncc.AttnccError, match=rf"A605.*`{name}` is on another device than `q`"):
        call(**given | {name: given[name].to("cuda:1")})


@pytest.mark.parametrize("name", ["dout", "k", "out", "lse", "dlse", "slope"])
def test_a_backward_argument_of_the_other_gpu_is_named(name: str) -> None:
    own, given = attncc.compile(TRAINED, dtype="bf16", head_dim=64), leaves()
    out, lse = own(**given, seed=5, return_lse=True)
    given |= {"dout": torch.randn_like(out), "out": out, "lse": lse, "dlse": torch.randn_like(lse)}
    own.backward(**given, seed=5)
    with pytest.raises(attncc.AttnccError, match=rf"A605.*`{name}` is on another device than `q`"):
        own.backward(**given | {name: given[name].to("cuda:1")}, seed=5)


def test_a_stream_of_the_other_gpu_is_refused() -> None:
    call, given = split()
    with pytest.raises(attncc.AttnccError, match=r"A651"):
        call(**given, stream=torch.cuda.Stream(1))


# -------------------------------------------------------------------- CuPy


def test_cupy_arrays() -> None:
    """On default streams and given ones, with copies where arrays aren't aligned; splits have a workspace."""
    cupy = pytest.importorskip("cupy")
    call = attncc.compile(folder("specs") / "decode.attn", dtype="fp16", head_dim=64)
    rng = cupy.random.default_rng(0)
    given = {
        name: rng.standard_normal((2, heads, length, 64), dtype=cupy.float32).astype(cupy.float16)
        for name, heads, length in (("q", 8, 1), ("k", 2, 3000), ("v", 2, 3000))
    }
    expected, each, side = cupy.asnumpy(call(**given)), [], []
    for number in GPUS:
        with cupy.cuda.Device(number):
            shifted = cupy.empty(given["q"].size + 1, cupy.float16)[1:].reshape(given["q"].shape)
            shifted[...] = cupy.asarray(cupy.asnumpy(given["q"]))
            each.append({"q": shifted, **{name: cupy.asarray(cupy.asnumpy(given[name])) for name in "kv"}})
            side.append(cupy.cuda.Stream(non_blocking=True))
    wait()
    found = []
    for current in GPUS:
        with cupy.cuda.Device(current):
            for number in (0, 1, 1, 0):
                found += [call(**each[number]), call(**each[number], stream=side[number])]
                found.append(call(**each[number], stream=torch.cuda.default_stream(number)))
    wait()
    assert [out.device.id for out in found] == [number for number in (0, 1, 1, 0) for _ in range(3)] * 2
    assert all((cupy.asnumpy(out) == expected).all() for out in found)
    with pytest.raises(attncc.AttnccError, match=r"A605.*`v` is on another device than `q`"):
        call(**each[0] | {"v": each[1]["v"]})


def test_cupy_arrays_on_a_given_stream_of_the_other_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    call = attncc.compile(folder("specs") / "full.attn", dtype="fp16", head_dim=64)
    with cupy.cuda.Device(1):
        q, stream = cupy.ones((1, 4, 200, 64), cupy.float16), cupy.cuda.Stream(non_blocking=True)
        out = cupy.zeros_like(q)
        assert not out.any()
    call(q, q, q)  # loads it
    wait()
    seen = torch.cuda.ExternalStream(stream.ptr, device=1)
    for _ in range(2):  # it is as good as new behind a call
        with torch.cuda.stream(seen):
            torch.cuda._sleep(HALF_A_SECOND)
        call(q, q, q, out=out, stream=stream)
        assert not seen.query()
        with cupy.cuda.Device(1):
            assert not out.any()
            stream.synchronize()
            assert out.all()
            out[...] = 0
        wait()


def test_cupy_graphs() -> None:
    """The memory of splits lives as long as the graph."""
    cupy = pytest.importorskip("cupy")
    call = attncc.compile(folder("specs") / "decode.attn", dtype="fp16", head_dim=64)
    with cupy.cuda.Device(1):
        q, k = cupy.ones((2, 8, 1, 64), cupy.float16), cupy.random.rand(2, 2, 3000, 64).astype(cupy.float16)
        expected, stream = call(q, k, k), cupy.cuda.Stream(non_blocking=True)
        wait()
        with stream:
            stream.begin_capture()
            out = call(q, k, k)
            graph = stream.end_capture()
        graph.launch(stream=stream)
        stream.synchronize()
        assert (out == expected).all()
