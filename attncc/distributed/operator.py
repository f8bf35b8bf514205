"""The call of `shard` as two operators of torch's dispatcher: forward, with its autograd formula, and backward.

autograd records them, and torch.compile keeps them in its graphs. A compiled graph holds no objects, so they find what
they run by a text, and inputs come as lists: tensors, numbers, and the names of both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import torch
from torch.library import custom_op

from ..runtime.frameworks.tensor_observer import steers, watched
from ..runtime.torch.torch_operator import NAMESPACE, no_second_derivative
from .call_parts import Options
from .launches import Saved, ToBackward

Tensor = Any

_CALL = "Tensor[] tensors, Scalar[] numbers, str names, float? scale, str layout, Tensor? seed, SymInt? seed_number"
_SIGN, _WORD = 2**63, 2**64
_NUMBERS = 6  # arguments after the tensors of `_CALL`


class Results(NamedTuple):
    """`lse` is empty without softmax; `k` and `v` are None unless the backward pass is to have them, at full length."""

    out: Tensor
    lse: Tensor
    k: Tensor | None
    v: Tensor | None


class Found(NamedTuple):
    """Gradients of own rows, and of learnable inputs that came as tensors, in their order."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    inputs: list[Tensor]


class Shared(Protocol):
    """What the operators run, which is a `ContextParallel`. `kv_rows`: own rows of k, and those of all ranks."""

    softmax: bool
    keep_kv: bool
    learnable: frozenset[str]
    kv_rows: tuple[int, int]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, options: Options) -> Results: ...

    def backward(self, given: Saved, back: ToBackward, options: Options, *, deterministic: bool) -> Found: ...


_shared: WeakValueDictionary[str, Shared] = WeakValueDictionary()
_numbers = itertools.count()


def token_of(shared: Shared) -> str:
    """A new text, by which the operators find it as long as it lives."""
    token = f"context parallel {next(_numbers)}"
    _shared[token] = shared
    return token


def call(token: str, q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """out and lse, recorded by autograd or kept in a graph."""
    seed, number = (options.seed, None) if _is(options.seed) else (None, options.seed)
    if number is not None and number >= _SIGN:  # a seed of 64 bits counts as its two's complement
        number -= _WORD
    flat = *_flat(options.inputs), options.scale, options.layout, seed, number
    if _has_to_be_operator(q):
        out, lse, _, _ = getattr(torch.ops, NAMESPACE).context_parallel(token, q, k, v, *flat)
        return out, lse
    out, lse = _apply(token, q, k, v, *flat[1:], *flat[0])
    return out, lse


def _has_to_be_operator(q: Tensor) -> bool:
    """Whether torch watches what runs, or q's type says what operators do. All else is a node, in less of the host's
    time."""
    functional = torch._C._are_functorch_transforms_active()
    return torch.compiler.is_compiling() or functional or watched(torch) or steers(type(q))


def _flat(inputs: Mapping[str, Any]) -> tuple[list[Tensor], list[Any], str]:
    tensors = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
    numbers = [name for name in inputs if name not in tensors]
    names = f"{','.join(tensors)};{','.join(numbers)}"
    return [inputs[name] for name in tensors], [inputs[name] for name in numbers], names


def _options(flat: Sequence[Any]) -> Options:
    tensors, numbers, names, scale, layout, seed, number = flat
    of_tensors, of_numbers = (text.split(",") if text else [] for text in names.split(";"))
    inputs = dict(zip((*of_tensors, *of_numbers), (*tensors, *numbers), strict=True))
    return Options(inputs, scale, layout, seed if number is None else number)


@custom_op(  # type: ignore[untyped-decorator]
    f"{NAMESPACE}::context_parallel",
    mutates_args=(),
    schema=f"(str token, Tensor q, Tensor k, Tensor v, {_CALL}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _forward(token: str, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    with torch.no_grad():
        found = _shared[token].forward(q, k, v, _options(flat))
    return tuple(q.new_empty(0) if x is None else x for x in found)


@custom_op(  # type: ignore[untyped-decorator]
    f"{NAMESPACE}::context_parallel_backward",
    mutates_args=(),
    schema="(str token, Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"bool deterministic, {_CALL}) -> (Tensor, Tensor, Tensor, Tensor[])",
)
def _backward(token: str, dout: Tensor, dlse: Tensor, *saved: Any) -> tuple[Any, ...]:
    return _run_backward(token, dout, dlse, *saved)


def _run_backward(token: str, dout: Tensor, dlse: Tensor, *saved: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, deterministic, *flat = saved
    shared, dout = _shared[token], torch.zeros_like(out) if dout is None else dout.contiguous()
    given = Saved(q, k, v, out, lse if shared.softmax else None)
    back = ToBackward(dout, dlse.contiguous() if dlse is not None and shared.softmax else None)
    with torch.no_grad():
        return tuple(shared.backward(given, back, _options(flat), deterministic=deterministic))


class _Node(torch.autograd.Function):  # type: ignore[misc]  # torch's types aren't read here
    """The forward operator in the graph that autograd builds while it runs. Tensors of the call come last."""

    @staticmethod
    def forward(ctx: Any, token: str, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
        rest, tensors = flat[:_NUMBERS], list(flat[_NUMBERS:])
        # Detached, since launches know a form of each: the same with and without gradients.
        results = _shared[token].forward(q.detach(), k.detach(), v.detach(), _options((tensors, *rest)))
        _keep(ctx, (token, q, k, v, tensors, *rest), results)
        return results.out, results.lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, dlse: Tensor) -> tuple[Any, ...]:
        run = _run_backward if not torch.is_grad_enabled() else _operator_backward
        none, dq, dk, dv, inputs, *_ = _gradients(ctx, dout, dlse, run)
        return none, dq, dk, dv, *[None] * _NUMBERS, *inputs


# Without what `torch.autograd.Function` does for transforms first: where any is on, a call is an operator.
_apply = super(torch.autograd.Function, _Node).apply


# -------------------------------------------------------------------- shapes and gradients


def _fake_forward(token: str, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    shared, options = _shared[token], _options(flat)
    *lead, rows, heads = q.shape[:-1] if options.layout == "bshd" else (*q.shape[:-3], q.shape[-2], q.shape[-3])
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    lse = q.new_empty((*lead, heads, rows), dtype=wide) if shared.softmax else q.new_empty(0)
    kept = (_of_rows(x, options, shared.kv_rows[1]) if shared.keep_kv else x.new_empty(0) for x in (k, v))
    return q.new_empty((*q.shape[:-1], v.shape[-1])), lse, *kept


def _fake_backward(token: str, dout: Tensor, dlse: Tensor, *saved: Any) -> tuple[Any, ...]:
    q, k, v, _, _, _, *flat = saved
    shared, options = _shared[token], _options(flat)
    dk, dv = (_of_rows(x, options, shared.kv_rows[0]) for x in (k, v))
    learned = [x.new_empty(x.shape) for name, x in options.inputs.items() if name in shared.learnable and _is(x)]
    return q.new_empty(q.shape), dk, dv, learned


def _of_rows(x: Tensor, options: Options, rows: int) -> Tensor:
    axis = options.axis % x.dim()
    return x.new_empty((*x.shape[:axis], rows, *x.shape[axis + 1 :]))


def _is(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """torch checks that nobody writes into what is saved."""
    ctx.token, q, k, v, tensors, *ctx.flat = inputs
    out, lse, *whole = output
    k, v = whole if _shared[ctx.token].keep_kv else (k, v)
    ctx.save_for_backward(q, k, v, out, lse, *tensors)
    ctx.set_materialize_grads(False)


def _by_formula(ctx: Any, dout: Tensor, dlse: Tensor, *_: Any) -> tuple[Any, ...]:
    return _gradients(ctx, dout, dlse, _operator_backward)


def _operator_backward(*arguments: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(torch.ops, NAMESPACE).context_parallel_backward(*arguments)
    return found


def _gradients(ctx: Any, dout: Tensor, dlse: Tensor, run: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()
    dq, dk, dv, found = run(ctx.token, dout, dlse, q, k, v, out, lse, deterministic, tensors, *ctx.flat)
    learnable, learned = _shared[ctx.token].learnable, iter(found)
    names = ctx.flat[1].partition(";")[0].split(",")
    inputs = [next(learned) if name in learnable else None for name, _ in zip(names, tensors, strict=False)]
    return None, dq, dk, dv, inputs, [None] * len(ctx.flat[0]), *[None] * (len(ctx.flat) - 1)


_forward.register_fake(_fake_forward)
_backward.register_fake(_fake_backward)
_forward.register_autograd(_by_formula, setup_context=_keep)
_backward.register_autograd(no_second_derivative)
