"""A kernel that served other calls does what a new one does: random sequences of calls, on the GPU that takes notes.

What a kernel keeps between calls must never show: each call, and its backward pass, is made by a kernel that has a past
and by one that has none. Launches, results and errors are the same.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from attncc import api
from attncc.kernels.candidates import make_plan
from attncc.runtime.frameworks import arrays
from attncc.runtime.kernel import Kernel
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeCuda

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

from tests.unit.runtime.torch import drawn_calls  # noqa: E402
from tests.unit.runtime.torch.drawn_calls import Words, drawn, first, keywords, mode, operands  # noqa: E402
from tests.unit.runtime.torch.on_gpu import OnGpu  # noqa: E402

# Of a kernel: the target, its lines, and the inputs that these declare.
KERNELS: dict[str, tuple[str, str, dict[str, str]]] = {
    "causal": ("sm_90", "keep if q_pos >= kv_idx", {}),
    "hopper": ("sm_90a", "keep if q_pos >= kv_idx", {}),
    "sigmoid": ("sm_90", "normalize sigmoid\nkeep if q_pos >= kv_idx", {}),
    "inputs": (
        "sm_90",
        "input slope: f32[head] learnable\ninput doc: i32[batch, kv]\ninput cap: f32 learnable\ninput width: i32\n"
        "keep if q_pos - kv_idx < width and doc[b, kv_idx] > 0\nscore = cap * tanh((score - slope[h] * kv_idx) / cap)",
        {"slope": "f32[head]", "doc": "i32[batch, kv]", "cap": "f32", "width": "i32"},
    ),
    "dropout": ("sm_90", "input rate: f32\ndropout rate", {"rate": "f32"}),
}
STEPS = 40
UNNAMED = ("lse alone", "repeated gradient")  # uses in which a gradient flows back that autograd made


@pytest.fixture
def make(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Bench]]:
    framework = OnGpu()
    for kind in (torch.Tensor, torch.nn.Parameter, drawn_calls.Sub):
        monkeypatch.setitem(arrays.known_frameworks, kind, framework)

    def made(name: str) -> Bench:
        target, lines, _ = KERNELS[name]
        variant = api.parse(f"attn 1\nvariant form {{\n{lines}\n}}\n").variant
        sizes: dict[str, Any] = {"dtype": "fp16", "head_dim": drawn_calls.D, "value_head_dim": drawn_calls.D}
        passes = ("forward", "backward", "backward_dq")
        found = bench(*(make_plan(variant, pass_name=name, target=target, **sizes) for name in passes))
        found.framework, found.cuda.launches = framework, Launches(framework, found.cuda)
        return found

    yield made


class Launches(list[Any]):
    """What the driver launches, told when it does, with names for addresses."""

    def __init__(self, framework: OnGpu, cuda: FakeCuda) -> None:
        super().__init__()
        self._framework, self._cuda = framework, cuda

    def append(self, launch: Any) -> None:
        maps = [{name: self._place(value) for name, value in self._cuda.maps[at].items()} for at in launch.maps]
        params = {name: self._place(value) for name, value in launch.params.items()}
        super().append((launch.kernel, launch.grid, launch.stream, launch.early, launch.paired, params, maps))

    def _place(self, value: Any) -> Any:
        return self._framework.name(value) if isinstance(value, int) and 1 << 32 < value < 1 << 48 else str(value)


class Story:
    """What a kernel does with a call: the launches with names for addresses, results, errors."""

    def __init__(self, bench: Bench, kernel: Kernel, words: Words, inputs: dict[str, str]) -> None:
        self.told: list[Any] = []
        self._bench, self._kernel, self._words = bench, kernel, words
        bench.cuda.launches.clear()
        bench.framework.forget()
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._tell("error", self._run, inputs)

    def _run(self, inputs: dict[str, str]) -> None:
        words = self._words
        given = operands(words)
        named = keywords(words, inputs, given["q"])
        held = {**given, **{name: value for name, value in named.items() if isinstance(value, torch.Tensor)}}
        with mode(words["mode"]):
            if words["mode"] == "dual level":
                given = {name: _dual(x) if words[name] == "dual" else x for name, x in given.items()}
                named = {name: _dual(x) if words.get(f"input {name}") == "dual" else x for name, x in named.items()}
            self._bench.framework.give_names(held)
            result = self._called(given, named)
        results = result if isinstance(result, tuple) else (result,)
        self._bench.framework.give_names(dict(zip(("out", "lse"), results, strict=False)))
        self.told += [_told(x) for x in results]
        self._launched()
        self._use(results, [*given.values(), *named.values()])

    def _called(self, given: dict[str, Any], named: dict[str, Any]) -> Any:
        use = self._words["use"]
        if use == "checkpoint":
            from torch.utils.checkpoint import checkpoint

            return checkpoint(self._kernel, *given.values(), use_reentrant=False, **named)
        if use == "hooks":
            with torch.autograd.graph.saved_tensors_hooks(self._put_elsewhere, lambda x: x):
                return self._kernel(*given.values(), **named)
        return self._kernel(*given.values(), **named)

    def _put_elsewhere(self, saved: Any) -> Any:
        framework, copy = self._bench.framework, saved.detach().clone()
        framework.give_names({f"saved {framework.name(saved.data_ptr())}": copy})
        return copy

    def _use(self, results: Any, given: list[Any]) -> None:
        use = self._words["use"]
        learned = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_sparse]
        if use == "nothing" or not any(x.requires_grad for x in results) or not learned:
            return
        learned = learned[-1:] if use == "some" else learned
        flowing = [x for x in results if x.requires_grad]
        flowing = flowing[-1:] if use == "lse alone" else flowing
        gradients = [torch.ones_like(x) for x in flowing]
        if use == "repeated gradient":
            gradients = [torch.ones((), dtype=x.dtype).expand(x.shape) for x in flowing]
        if use == "changed":
            with torch.no_grad():
                learned[0].add_(1)
        if use == "out changed":
            with torch.no_grad():
                results[0].add_(1)
        self._bench.framework.give_names({f"d{place}": x for place, x in enumerate(gradients)})
        retained = {"retain_graph": True} if use == "retained" else {}
        retained |= {"create_graph": True} if use == "again differentiated" else {}
        again = use in ("twice", "retained")
        inner = {"backward without grad mode": "no_grad", "backward in autocast": "autocast half"}.get(use, "grad")
        for _ in range(1 + again):
            with mode(inner):
                found = torch.autograd.grad(flowing, learned, gradients, **retained)
            self._bench.framework.give_names({f"gradient {place}": x for place, x in enumerate(found)})
            self.told += [_told(x) for x in found]
            self._launched()
        if use == "again differentiated":
            torch.autograd.grad(found[0].float().sum(), learned)

    def _tell(self, what: str, run: Callable[..., Any], *given: Any) -> None:
        try:
            run(*given)
        except Exception as error:  # whatever it is: both kernels must say the same
            self._launched()
            self.told.append((what, type(error).__name__, re.sub(r"0x[0-9a-f]+|Known", "", str(error))))

    def _launched(self) -> None:
        self.told += self._bench.cuda.launches
        self._bench.cuda.launches.clear()


def _dual(x: Any) -> Any:
    return forward_ad.make_dual(x, torch.ones_like(x))


def _told(x: Any) -> Any:
    if x is None:
        return None
    node = x.grad_fn and x.grad_fn.name().replace("Known", "")
    return type(x), tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.is_leaf, node, x.is_inference()


def check(bench: Bench, name: str, seed: int) -> None:
    """One sequence of calls."""
    inputs, random, old = KERNELS[name][2], Random(f"{name} {seed}"), Kernel(bench.kernel.store)
    words, past = first(inputs), []
    for _ in range(STEPS):
        words = drawn(words, inputs, random)
        past.append({name: word for name, word in words.items() if word is not first(inputs)[name]})
        with_past = Story(bench, old, words, inputs).told
        new = Story(bench, Kernel(bench.kernel.store), words, inputs).told
        assert with_past == new, (seed, past)
        assert "nowhere" not in str(with_past) or words["use"] in UNNAMED, (seed, past)
        if new and new[-1][0] == "error" and random.random() < 0.5:
            words = first(inputs)


@pytest.mark.parametrize("name", KERNELS)
def test_the_past_of_a_kernel_never_shows(make: Callable[[str], Bench], name: str) -> None:
    check(make(name), name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_more_pasts(make: Callable[[str], Bench], name: str) -> None:
    bench = make(name)
    for seed in range(1, 12):
        check(bench, name, seed)
