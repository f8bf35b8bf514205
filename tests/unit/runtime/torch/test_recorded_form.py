"""Calls with gradients on a GPU, of a form that came before: they launch what the first ones launch, and save the same.

The GPU only takes notes, and torch's tensors on the CPU are taken for its own.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any

import pytest

from attncc import api
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.problem.call_arguments import ARGUMENTS
from attncc.runtime.frameworks import arrays
from attncc.runtime.kernel import Kernel
from tests.unit.runtime.conftest import Bench, MakeBench

torch = pytest.importorskip("torch")

from tests.unit.runtime.torch.drawn_calls import Watching  # noqa: E402  (needs torch)
from tests.unit.runtime.torch.on_gpu import OnGpu  # noqa: E402

BATCH, HEADS, KV_HEADS, ROWS, D = 2, 4, 2, 32, 16
CAUSAL = "keep if q_pos >= kv_idx"
FORMS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "causal": (CAUSAL, dict),
    "lse": (CAUSAL, lambda: {"return_lse": True}),
    "bshd": (CAUSAL, lambda: {"layout": "bshd"}),
    "scale": (CAUSAL, lambda: {"scale": 0.5}),
    "sigmoid": (f"normalize sigmoid\n{CAUSAL}", dict),
    "inputs": (
        "input width: i32\ninput slope: f32[head] learnable\ninput doc: i32[batch, kv]\ninput cap: f32 learnable\n"
        "keep if q_pos - kv_idx < width and doc[b, kv_idx] > 0\nscore = cap * tanh((score - slope[h] * kv_idx) / cap)",
        lambda: {"slope": ones(HEADS), "doc": torch.ones(BATCH, ROWS, dtype=torch.int32), "cap": 2.0, "width": 7},
    ),
    "packed": (CAUSAL, lambda: {"cu_seqlens_q": starts(), "cu_seqlens_kv": starts()}),
    "offset": (CAUSAL, lambda: {"q_offset": 3}),
    "seed": ("dropout 0.5", lambda: {"seed": 3}),
}


def ones(count: int) -> Any:
    return torch.ones(count, requires_grad=True)


def starts() -> Any:
    return torch.tensor([0, 5, ROWS], dtype=torch.int32)


@pytest.fixture
def make(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Bench]]:
    framework = OnGpu()
    for kind in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(arrays.known_frameworks, kind, framework)

    def made(lines: str) -> Bench:
        variant = api.parse(f"attn 1\nvariant form {{\n{lines}\n}}\n").variant
        sizes = {"dtype": "fp16", "head_dim": D, "value_head_dim": D, "target": "sm_90"}
        return bench(*(make_plan(variant, pass_name=name, **sizes) for name in ("forward", "backward", "backward_dq")))

    yield made


def leaves(packed: bool = False, rows: int = ROWS) -> list[Any]:
    lead = () if packed else (BATCH,)
    shapes = ((*lead, heads, rows, D) for heads in (HEADS, KV_HEADS, KV_HEADS))
    return [torch.zeros(shape, dtype=torch.float16, requires_grad=True) for shape in shapes]


def operands(given: dict[str, Any]) -> list[Any]:
    made = leaves("cu_seqlens_q" in given)
    return [x.transpose(1, 2) for x in made] if given.get("layout") == "bshd" else made


def called(bench: Bench, given: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """One call and its backward pass: out, the node, and by name each array that kernels should have been given."""
    bench.cuda.launches.clear()
    q, k, v = operands(given)
    result = bench.kernel(q, k, v, **given)
    found = result if given.get("return_lse") else (result,)
    douts = [torch.zeros_like(x) for x in found]
    learned = {name: x for name, x in given.items() if getattr(x, "requires_grad", False)}
    gradients = torch.autograd.grad(found, (q, k, v, *learned.values()), douts)
    dq, dk, dv = gradients[:3]
    seen = {"q": q, "k": k, "v": v, "out": found[0], "dout": douts[0], "dq": dq, "dk": dk, "dv": dv}
    if given.get("return_lse"):
        seen |= {"lse": found[1], "dlse": douts[1]}
    seen |= {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
    assert [x.shape for x in gradients] == [x.shape for x in (q, k, v, *learned.values())]
    return found[0], found[0].grad_fn.name(), seen


def told(launches: list[Any]) -> list[Any]:
    """What launches were given, but for where arrays are."""
    return [
        (item.kernel, item.grid, item.stream, {name: _unplaced(value) for name, value in item.params.items()})
        for item in launches
    ]


def _unplaced(value: Any) -> Any:
    return "an address" if isinstance(value, int) and value > 1 << 32 else str(value)


@pytest.mark.parametrize("form", FORMS)
def test_known_forms_launch_what_first_calls_launch(make: Callable[[str], Bench], form: str) -> None:
    lines, given = FORMS[form]
    bench = make(lines)
    first, others = None, []
    for number in range(6):
        _, node, seen = called(bench, given())
        params = [launch.params for launch in bench.cuda.launches]
        for name, array in seen.items():
            wanted = {values[name] for values in params if values.get(name)}
            assert wanted == {array.data_ptr()}, (number, name)
        first = first or told(bench.cuda.launches)
        assert told(bench.cuda.launches) == first
        others.append(node)
    assert others == ["AttentionBackward"] * 2 + ["KnownAttentionBackward"] * 4
    assert bench.kernel._backward is not None and bench.kernel._backward._known is not None


@pytest.mark.parametrize("form", FORMS)
def test_known_forms_save_what_first_calls_save(make: Callable[[str], Bench], form: str) -> None:
    """In that order: a checkpoint holds what a second run saves against what the first did."""
    lines, given = FORMS[form]
    bench, packed = make(lines), []

    def pack(tensor: Any) -> Any:
        packed[-1].append((tensor.shape, tensor.stride(), tensor.dtype))
        return tensor

    for _ in range(4):
        packed.append([])
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            called(bench, given())
    assert packed[0] == packed[1] == packed[2] == packed[3] != []


@pytest.fixture
def known(make: Callable[[str], Bench]) -> Bench:
    made = make(FORMS["inputs"][0])
    for _ in range(4):
        called(made, inputs())
    return made


def inputs() -> dict[str, Any]:
    return FORMS["inputs"][1]()


def test_numbers_are_those_of_the_call(known: Bench) -> None:
    called(known, inputs() | {"cap": 5.0, "width": 11, "scale": 3.0})
    called(known, inputs() | {"cap": 6.0, "width": 12})
    main = [launch.params for launch in known.cuda.launches if "cap_value" in launch.params]
    assert len(main) >= 2 and all((item["cap_value"], item["width_value"]) == (6.0, 12) for item in main)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"scale": float("nan")}, "A619"),
    "a bool": ({"cap": True}, "A610"),
    "an unknown layout": ({"layout": "sbhd"}, "A618"),
    "one too many": ({"more": 1.0}, "A608"),
    "None for an input": ({"slope": None}, "A6"),
    "another length": ({"slope": torch.ones(HEADS + 1)}, "A609"),
    "an input that isn't learnable": ({"doc": torch.ones(BATCH, ROWS, requires_grad=True)}, "A6"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_wrong_is_refused(known: Bench, change: str) -> None:
    changed, code = REFUSED[change]
    known.cuda.launches.clear()
    with pytest.raises(AttnccError, match=code):
        known.kernel(*leaves(), **(inputs() | changed))
    assert not known.cuda.launches
    assert called(known, inputs())[1] == "KnownAttentionBackward"


def test_a_scale_that_changes_is_judged_in_each_call(make: Callable[[str], Bench]) -> None:
    bench = make(CAUSAL)
    for _ in range(4):
        called(bench, {"scale": 0.5})
    with pytest.raises(AttnccError, match="A619"):
        bench.kernel(*leaves(), scale=float("inf"))
    assert called(bench, {"scale": 0.25})[1] == "KnownAttentionBackward"


def test_other_forms_are_served_between(known: Bench) -> None:
    q, k, v = leaves()
    with torch.no_grad():
        assert known.kernel(q, k, v, **inputs()).grad_fn is None
    assert known.kernel(q, k, v, **inputs()).grad_fn is not None
    assert known.kernel(q, k.detach(), v, **inputs()).requires_grad
    assert known.kernel(q, *leaves()[1:], **(inputs() | {"slope": torch.ones(HEADS)})).requires_grad
    longer = FORMS["inputs"][1]() | {"doc": torch.ones(BATCH, ROWS + 8, dtype=torch.int32)}
    assert known.kernel(*leaves(rows=ROWS + 8), **longer).shape[-2] == ROWS + 8
    assert called(known, inputs())[1] == "KnownAttentionBackward"


def test_training_and_evaluation_in_turns(make: Callable[[str], Bench]) -> None:
    bench = make(CAUSAL)
    for _ in range(3):
        nodes = [called(bench, {})[1] for _ in range(4)]
        assert nodes[2:] == ["KnownAttentionBackward"] * 2
        with torch.no_grad():
            for _ in range(4):
                bench.kernel(*leaves())


def test_what_torch_does_to_calls_is_seen(known: Bench) -> None:
    """Transforms, and tangents of forward mode."""
    q, k, v = leaves()
    read = known.kernel._launcher._known
    assert read is not None
    defaults = signature(Kernel.__call__).parameters
    given = (q, k, v, inputs(), *(defaults[name].default for name in ARGUMENTS))
    assert read.read(given) is not None
    seen = []
    for transform in (torch.func.grad, torch.func.vmap):
        transform(lambda x: (seen.append(read.read(given)), x.sum())[1])(torch.ones(3, 3))
    assert seen == [None, None]
    with torch.autograd.forward_ad.dual_level(), pytest.raises(AttnccError, match="A652"):
        known.kernel(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v, **inputs())


@pytest.mark.parametrize("calls", [0, 1, 3, 5])
def test_a_tangent_is_refused_however_many_calls_came_before(make: Callable[[str], Bench], calls: int) -> None:
    bench, (q, k, v) = make(CAUSAL), [x.detach() for x in leaves()]
    for _ in range(calls):
        bench.kernel(q, k, v)
    bench.cuda.launches.clear()
    with torch.autograd.forward_ad.dual_level():
        for given in (q, k, v):
            dual = torch.autograd.forward_ad.make_dual(given, torch.ones_like(given))
            with pytest.raises(AttnccError, match="tangent"):
                bench.kernel(*(dual if x is given else x for x in (q, k, v)))
        with torch.no_grad(), pytest.raises(AttnccError, match="tangent"):
            bench.kernel(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v)
    assert not bench.cuda.launches


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_wrong_is_refused_where_operators_are_watched(known: Bench, change: str) -> None:
    """There a call is an operator, but judged as any other."""
    changed, code = REFUSED[change]
    known.cuda.launches.clear()
    for needs_gradients in (True, False):
        given = [x.requires_grad_(needs_gradients) for x in leaves()]
        with Watching(), pytest.raises(AttnccError, match=code):
            known.kernel(*given, **(inputs() | changed))
    assert not known.cuda.launches


def test_a_second_derivative_is_refused(known: Bench) -> None:
    q, k, v = leaves()
    out = known.kernel(q, k, v, **inputs())
    first = torch.autograd.grad(out.sum(), q, create_graph=True)[0]
    with pytest.raises(AttnccError, match="A652"):
        first.sum().backward()


def test_autograd_is_told_of_out_in_every_call(make: Callable[[str], Bench]) -> None:
    bench, (q, k, v) = make(CAUSAL), [x.detach() for x in leaves()]
    out = torch.empty_like(q)
    for calls in range(5):
        before = out._version
        assert bench.kernel(q, k, v, out=out) is out and out._version > before, calls
    assert bench.kernel._launcher._known is not None


def test_gradients_that_flow_otherwise(make: Callable[[str], Bench]) -> None:
    """Into lse alone, repeated over columns, from a graph that is kept, into some operands only."""
    bench = make(CAUSAL)
    for _ in range(4):
        called(bench, {"return_lse": True})
    q, k, v = leaves()
    out, lse = bench.kernel(q, k, v, return_lse=True)
    assert out.grad_fn.name() == "KnownAttentionBackward"
    assert torch.autograd.grad(lse.sum(), q, retain_graph=True)[0].shape == q.shape
    assert torch.autograd.grad(out.sum(), (k, v), retain_graph=True)[1].shape == v.shape
    assert torch.autograd.grad(out, v, torch.zeros_like(out))[0].shape == v.shape
    with pytest.raises(RuntimeError, match="a second time"):
        torch.autograd.grad(out.sum(), q)


def test_operands_that_changed_meanwhile_are_seen(known: Bench) -> None:
    q, k, v = (x * 1 for x in leaves())
    out = known.kernel(q, k, v, **inputs())
    k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_node_holds_tensors_as_torch_asks_for_it(known: Bench) -> None:
    """Hooks that put saved tensors elsewhere free the memory of what they took."""
    q, k, v = (x * 1 for x in leaves())
    given = inputs()
    held = [weakref.ref(x) for x in (q, k, v, given["doc"])]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        out = known.kernel(q, k, v, **given)
    assert out.grad_fn.name() == "KnownAttentionBackward"
    del q, k, v, given
    assert [item() for item in held] == [None] * 4


# -------------------------------------------------------------------- layers of transformers


@pytest.fixture
def layer(make: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What transformers calls for a layer. Its kernels are in `benches`, and in `looks` the mods looked through."""
    pytest.importorskip("transformers")
    from attncc.flex import attention, entries
    from attncc.integrations import transformers as integration

    benches: dict[str, Bench] = {}
    looks = []

    def compiled(text: str, **_: Any) -> Any:
        if text not in benches:
            benches[text] = make(text.partition("{")[2].rpartition("}")[0])
        return benches[text].kernel

    def contents(*mods: Any) -> Any:
        looks.append(mods)
        return Contents(*mods)

    Contents = attention.Contents  # noqa: N806
    monkeypatch.setattr(attention, "cache", attention.Cache())
    monkeypatch.setattr(entries, "compile", compiled)
    monkeypatch.setattr(attention, "Contents", contents)

    def run(mask: Any, *operands: Any, **given: Any) -> Any:
        found = partial(integration.attention, torch.nn.Identity(), *operands, mask)
        return found(**{"scaling": 0.25, "dropout": 0.0, **given})[0]

    run.benches, run.looks = benches, looks  # type: ignore[attr-defined]
    return run


def views() -> list[Any]:
    """As transformers has them."""
    shapes = ((BATCH, ROWS, heads, D) for heads in (HEADS, KV_HEADS, KV_HEADS))
    return [torch.zeros(shape, dtype=torch.float16).transpose(1, 2).requires_grad_() for shape in shapes]


def padded() -> Any:
    """As transformers makes it for each forward pass."""
    from attncc.integrations import transformers as integration

    kept = torch.ones(BATCH, ROWS, dtype=torch.bool)
    return integration.mask(BATCH, ROWS, ROWS, attention_mask=kept)


def test_a_mask_is_looked_through_once_for_all_layers(layer: Any) -> None:
    nodes = []
    for number in range(2):
        mask, before = padded(), len(layer.looks)
        for _ in range(4):
            q, k, v = views()
            out = layer(mask, q, k, v)
            nodes.append(out.grad_fn.next_functions[0][0].name())
            main = next(iter(layer.benches.values())).cuda.launches[-1].params
            assert (main["q"], main["k"], main["v"]) == (q.data_ptr(), k.data_ptr(), v.data_ptr())
            assert main["out"] == out.data_ptr() and main["scale"] == 0.25
            torch.autograd.grad(out, (q, k, v), torch.zeros_like(out))
        assert len(layer.looks) == before + 1, number
    assert len(layer.benches) == 1 and nodes.count("KnownAttentionBackward") == 6


def test_layers_that_differ_are_judged(layer: Any) -> None:
    mask = padded()
    for _ in range(4):
        layer(mask, *views())
    q, k, v = views()
    assert layer(mask, q, k, v, scaling=0.5).shape == (BATCH, ROWS, HEADS, D)
    assert next(iter(layer.benches.values())).cuda.launches[-1].params["scale"] == 0.5
    with pytest.raises(AttnccError, match="A714"):
        layer(mask, q[0], k, v)
    with pytest.raises(AttnccError, match="A6"):
        layer(mask, q, k[:, :, :8], v)
    with pytest.raises(AttnccError, match="A619"):
        layer(mask, q, k, v, scaling=float("nan"))
    with torch.no_grad():
        assert layer(mask, q, k, v).grad_fn is None
    capped = layer(mask, q, k, v, softcap=3.0)
    assert capped.shape == (BATCH, ROWS, HEADS, D) and len(layer.benches) == 2
    columns = q.transpose(2, 3).contiguous().transpose(2, 3)  # rows that aren't contiguous: copied, as ever
    assert layer(mask, columns, k, v).shape == (BATCH, ROWS, HEADS, D)
    assert next(iter(layer.benches.values())).cuda.launches[-1].params["q"] != columns.data_ptr()


def _flowing(kind: str, out: Any) -> Any:
    """A gradient of out: as calls had it before, or so that the backward pass has another form."""
    if kind == "transposed":
        return torch.zeros_like(out.transpose(1, 2).contiguous()).transpose(1, 2)
    if kind == "misaligned":
        return torch.zeros(out.numel() + 1, dtype=out.dtype)[1:].view(out.shape)
    return out.new_zeros(1).expand(out.shape) if kind == "repeated" else torch.zeros_like(out)


@pytest.mark.parametrize("kind", ["as before", "transposed", "misaligned", "repeated", "lse too", "deterministic"])
def test_backward_calls_of_another_form_are_told_apart(make: Callable[[str], Bench], kind: str) -> None:
    """What flows back may change where the forward calls' form stays: launches are those of a kernel that is new."""

    def launched(bench: Bench) -> list[Any]:
        bench.cuda.launches.clear()
        torch.use_deterministic_algorithms(kind == "deterministic")
        q, k, v = leaves()
        out, lse = bench.kernel(q, k, v, return_lse=True)
        given = [_flowing(kind, out), torch.zeros_like(lse)] if kind == "lse too" else [_flowing(kind, out)]
        torch.autograd.grad((out, lse)[: len(given)], (q, k, v), given)
        return told(bench.cuda.launches)

    def known() -> Bench:
        torch.use_deterministic_algorithms(False)
        bench = make(CAUSAL)
        for _ in range(5):
            q, k, v = leaves()
            out, _ = bench.kernel(q, k, v, return_lse=True)
            torch.autograd.grad(out, (q, k, v), torch.zeros_like(out))
        assert bench.kernel._backward is not None and bench.kernel._backward._known is not None
        return bench

    try:
        assert launched(known()) == launched(make(CAUSAL))
    finally:
        torch.use_deterministic_algorithms(False)


def test_known_calls_run_few_functions(make: Callable[[str], Bench]) -> None:
    """Of attncc's, in Python: each takes a host a tenth to half a microsecond."""
    bench = make(CAUSAL)

    def functions(call: Callable[[], Any]) -> int:
        ran: list[str] = []

        def note(frame: Any, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and ("/attncc/runtime/" in code.co_filename or code.co_filename == "<string>"):
                ran.append(code.co_name)

        for _ in range(5):
            call()
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
        return len(ran)

    operands = leaves()
    plain = [x.detach() for x in operands]
    dout = torch.zeros_like(operands[0])
    forward = functions(lambda: bench.kernel(*plain))
    recorded = functions(lambda: bench.kernel(*operands))
    both = functions(lambda: torch.autograd.grad(bench.kernel(*operands), operands, dout))
    assert forward <= 8
    assert recorded <= 12
    assert both <= 31
