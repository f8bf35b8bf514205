"""A kernel as two operators of torch's dispatcher: forward, with its autograd formula, and backward.

They are what autograd records, what torch.compile keeps in its graphs and what fake tensors run through. An operator's
arguments have fixed types, so an input that may be a number or a tensor is two arguments, of which one is None.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from inspect import signature
from typing import Any

from ...ir import Input, Type, Variant
from ...problem.call_arguments import RECORDED, Arguments, Sort
from ...problem.gradients import Gradients
from ...problem.refusal import refused
from ...problem.strides import axis_order, dense
from ...schedule.plan import stored
from ..call.backward_arguments import BackwardArguments
from ..frameworks.framework import Array
from ..frameworks.tensor_observer import steers, watched
from ..store.store import Configuration

NAMESPACE = __name__.partition(".")[0]  # attncc; a package that brings its own runtime has operators of its own

_NUMBERS = {Type.FLOAT: "float?", Type.INT: "SymInt?", Type.BOOL: "bool?"}
# Arguments of every call, by sort, as schemas declare them; a scalar is a tensor and a number, as inputs are.
_SCHEMAS = {
    Sort.NUMBER: ("float? {name}",),
    Sort.OPTION: ("{annotation} {name}",),
    Sort.ARRAY: ("Tensor? {name}",),
    Sort.SCALAR: ("Tensor? {name}", "SymInt? {name}_number"),
}
_TRAILING = (
    *(text.format(name=item.name, annotation=item.annotation) for item in RECORDED for text in _SCHEMAS[item.sort]),
    "bool deterministic",
)
_NAMES = tuple((item.name, item.sort is Sort.SCALAR, item.sort is Sort.NUMBER) for item in RECORDED)
_SIGN, _WORD = 2**63, 2**64


class TorchOperators:
    """The operators of one kernel, registered with torch under a name that tells variant and configurations.

    `forward` and `backward` run a call that torch doesn't record.
    """

    def __init__(
        self,
        variant: Variant,
        configurations: tuple[Configuration, ...],
        forward: Callable[[Arguments], Any],
        backward: Callable[[BackwardArguments], Gradients],
    ) -> None:
        self._run, self._run_backward = forward, backward
        self._softmax = variant.normalize == "softmax"
        self._inputs = variant.inputs
        self.name = _free_name(variant, configurations)
        self._register()

    # ------------------------------------------------------------ arguments

    def _arguments(self, flat: Sequence[Any]) -> tuple[Arguments, bool]:
        """The call that `flattened` made flat, with return_lse where there is one; and whether it is deterministic."""
        q, k, v, *rest = flat
        given = iter(rest)
        found = ((item.name, next(given) if item.axes else _either(given)) for item in self._inputs)
        inputs = {name: value for name, value in found if value is not None}
        own = {name: _either(given) if is_scalar else next(given) for name, is_scalar, _ in _NAMES}
        return Arguments(q, k, v, inputs, **own, return_lse=self._softmax), next(given)

    # ------------------------------------------------------------ registration

    def _register(self) -> None:
        from torch.library import custom_op

        given = f"Tensor q, Tensor k, Tensor v, {''.join(map(_declaration, self._inputs))}{', '.join(_TRAILING)}"
        results = ", ".join(["Tensor"] * (3 + len(self._learnable)))
        forward: Any = custom_op(
            f"{NAMESPACE}::{self.name}", self.run_forward, mutates_args=(), schema=f"({given}) -> (Tensor, Tensor)"
        )
        backward: Any = custom_op(
            f"{NAMESPACE}::{self.name}_backward",
            self.run_backward,
            mutates_args=(),
            schema=f"(Tensor? dout, Tensor? dlse, Tensor out, Tensor lse, {given}) -> ({results})",
        )
        forward.register_fake(self._fake_forward)
        backward.register_fake(self._fake_backward)
        forward.register_autograd(self._by_formula, setup_context=_keep)
        backward.register_autograd(no_second_derivative)
        self.forward, self.backward = forward._opoverload, backward._opoverload

    @property
    def _learnable(self) -> list[Input]:
        return [item for item in self._inputs if item.learnable]

    def run_forward(self, *flat: Any) -> tuple[Array, Array]:
        import torch

        call, _ = self._arguments(flat)
        with torch.no_grad():
            result = self._run(call)
        return result if self._softmax else (result, call.q.new_empty(0))

    def _fake_forward(self, *flat: Any) -> tuple[Array, Array]:
        import torch

        q, _, v = flat[:3]
        layout = self._arguments(flat)[0].layout
        dtype = torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype
        out = _like(q, (*q.shape[:-1], v.shape[-1]), dtype)
        if not self._softmax:
            return out, q.new_empty(0)
        *batch, heads, rows = q.shape[:-1] if layout == "bhsd" else (*q.shape[:-3], q.shape[-2], q.shape[-3])
        return out, q.new_empty(
            (*batch, heads, rows), dtype=torch.float64 if q.dtype == torch.float64 else torch.float32
        )

    def run_backward(self, dout: Any, dlse: Any, out: Array, lse: Any, *flat: Any) -> tuple[Array, ...]:
        import torch

        call, deterministic = self._arguments(flat)
        flowing = out.new_zeros(out.shape) if dout is None else readable(dout)
        if not self._softmax:
            lse = dlse = None
        elif dlse is not None:
            dlse = readable(dlse)
        arguments = BackwardArguments(call._replace(return_lse=False), flowing, out, lse, dlse, deterministic)
        with torch.no_grad():
            found = self._run_backward(arguments)
        return found.dq, found.dk, found.dv, *(found.inputs[item.name] for item in self._learnable)

    def _fake_backward(self, dout: Any, dlse: Any, out: Array, lse: Array, *flat: Any) -> tuple[Array, ...]:
        import torch

        call, _ = self._arguments(flat)
        given = [call.inputs.get(item.name) for item in self._learnable]
        learnable = [
            x.new_empty(x.shape) if isinstance(x, torch.Tensor) else out.new_empty((), dtype=torch.float32)
            for x in given
        ]
        return *(_like(x, x.shape, x.dtype) for x in (call.q, call.k, call.v)), *learnable

    def _by_formula(self, ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
        return self.gradients(ctx, dout, dlse, ctx.needs_input_grad, self.backward)

    def recorded(self, flat: Sequence[Any]) -> tuple[Array, Array]:
        """The forward operator as a node of the graph that autograd builds while it runs.

        It does what the operator's own formula does, which torch.compile takes, in half of the host's time.
        """
        results: tuple[Array, Array] = _node().apply(self, *flat)
        return results

    def backward_run(self, dout: Any, dlse: Any) -> Callable[..., tuple[Any, ...]]:
        """The backward operator, as a node of a graph runs it to which these gradients have come."""
        import torch

        if torch.is_grad_enabled():
            return partial(_once().apply, self)
        return self.backward if is_seen((dout, dlse)) else self.run_backward

    def gradients(
        self, ctx: Any, dout: Any, dlse: Any, needed: Sequence[bool], run: Callable[..., Any]
    ) -> tuple[Any, ...]:
        """The gradient of each argument of the forward operator that needs one, by `run`, the backward operator."""
        out, lse, *tensors = ctx.saved_tensors
        saved = iter(tensors)
        flat = [next(saved) if is_tensor else value for is_tensor, value in ctx.others]
        dq, dk, dv, *learnable = run(dout, dlse, out, lse, *flat)
        found, gradients = iter(learnable), [dq, dk, dv]
        for item in self._inputs:
            gradients.append(next(found) if item.learnable else None)
            gradients += [] if item.axes else [None]
        return tuple(
            gradient if wanted else None
            for gradient, wanted in zip(gradients + [None] * len(_TRAILING), needed, strict=True)
        )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Array, Array]) -> None:
    """Saves what the backward operator takes: the arguments of the forward one and its results."""
    import torch

    ctx.others = [(True, None) if isinstance(x, torch.Tensor) else (False, x) for x in inputs]
    ctx.save_for_backward(*output, *(x for x in inputs if isinstance(x, torch.Tensor)))
    ctx.set_materialize_grads(False)


def no_second_derivative(*_: Any) -> None:
    """The derivative of the backward operator with respect to whatever it takes."""
    raise refused(
        "A652",
        "the gradients of an attention call were differentiated again",
        expected="first derivatives alone: those of gradients are not computed",
        came="a second derivative",
        help="detach the gradients, or leave create_graph=True out",
    )


def no_forward_mode(*_: Any) -> None:
    raise refused(
        "A652",
        "there are no derivatives in forward mode",
        expected="first derivatives by backward()",
        came="a tensor with a tangent",
        help="use torch.autograd.grad, or torch.func.vjp in place of jvp",
    )


def _no_vmap(*_: Any) -> None:
    raise refused(
        "A650",
        "torch.func.vmap can't map an attention call",
        expected="a call outside of vmap, jacrev and hessian",
        came="what they pass for a tensor",
        help="the batch axis is what they would map: call the kernel once, on the whole batch",
    )


def is_seen(given: Sequence[Any]) -> bool:
    """True if torch must see this call as an operator, because something traces or records it; tensors come first.

    Otherwise the kernels run at once: the way through torch's dispatcher takes longer than the rest of a call.
    """
    import torch

    if torch.compiler.is_compiling() or watched(torch) or torch._C._are_functorch_transforms_active():
        return True
    if any(x is not None and x.is_meta for x in given[:2]):
        return True
    return any(steers(kind) for kind in set(map(type, given)) if issubclass(kind, torch.Tensor))


@cache
def _node() -> Any:
    """The class of nodes; made when torch is there."""
    import torch

    class Attention(torch.autograd.Function):  # type: ignore[misc]  # torch's types aren't read here
        @staticmethod
        def forward(operators: TorchOperators, *flat: Any) -> tuple[Array, Array]:
            run = operators.forward if is_seen(flat) else operators.run_forward
            results: tuple[Array, Array] = run(*flat)
            return results

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Array, Array]) -> None:
            ctx.operators, *flat = inputs
            _keep(ctx, tuple(flat), output)

        jvp = staticmethod(no_forward_mode)
        vmap = staticmethod(_no_vmap)

        @staticmethod
        def backward(ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
            operators = ctx.operators
            run = operators.backward_run(dout, dlse)
            return None, *operators.gradients(ctx, dout, dlse, ctx.needs_input_grad[1:], run)

    # torch asks for the signature in every call: made once, it takes half as long.
    Attention.forward.__signature__ = signature(Attention.forward)  # type: ignore[attr-defined]
    return Attention


@cache
def _once() -> Any:
    """The backward operator as a node, where gradients are recorded too: torch's functional transforms take no operator
    whose formula was registered."""
    import torch

    class AttentionBackward(torch.autograd.Function):  # type: ignore[misc]  # torch's types aren't read here
        @staticmethod
        def forward(operators: TorchOperators, *given: Any) -> tuple[Array, ...]:
            results: tuple[Array, ...] = operators.backward(*given)
            return results

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Array, ...]) -> None:
            ctx.set_materialize_grads(False)

        backward = staticmethod(no_second_derivative)
        vmap = staticmethod(_no_vmap)

    return AttentionBackward


def flattened(inputs: Sequence[Input], call: Arguments, deterministic: bool) -> list[Any]:
    """A call as the operators take it: tensors and numbers, in the order of their schema."""
    flat = [call.q, call.k, call.v]
    for item in inputs:
        value = call.inputs.get(item.name)  # None: its default
        flat += [value] if item.axes else _pair(value, item.type)
    for name, is_scalar, is_number in _NAMES:
        value = getattr(call, name)
        if is_scalar:
            flat += _pair(value, Type.INT)
        else:
            flat.append(float(value) if is_number and value is not None else value)
    return [*flat, deterministic]


def _pair(value: Any, kind: Type) -> list[Any]:
    """A tensor and a number, one of which is None."""
    if isinstance(value, int | float):  # asked first: torch.compile, which follows this, has numbers without attributes
        number = value
    elif value is None or hasattr(value, "requires_grad"):
        return [value, None]
    else:
        number = value.item() if hasattr(value, "item") else value  # a symbol that stands for a number has none
        if not isinstance(number, int | float):
            return [None, number]
    if kind is Type.INT and number >= _SIGN:  # a seed of 64 bits counts as its two's complement
        number -= _WORD
    return [None, float(number) if kind is Type.FLOAT else number]


def _either(given: Iterator[Any]) -> Any:
    """What `_pair` made two of."""
    tensor, number = next(given), next(given)
    return number if tensor is None else tensor


def _declaration(item: Input) -> str:
    if item.axes:
        return f"Tensor{'' if item.default is None else '?'} input_{item.name}, "
    return f"Tensor? input_{item.name}, {_NUMBERS[item.type]} number_{item.name}, "


def _like(tensor: Array, shape: Sequence[int], dtype: Any) -> Array:
    """A tensor whose axes lie in memory in the order of those of another, as a call gives it: on a GPU it may be a view
    of rows that are longer."""
    order, columns = axis_order(tensor.shape, tensor.stride()), shape[-1]
    whole = (*shape[:-1], stored(columns, tensor.element_size()) if tensor.is_cuda else columns)
    made = tensor.new_empty_strided(whole, dense(whole, order), dtype=dtype)
    return made if whole[-1] == columns else made[..., :columns]


def readable(tensor: Array) -> Array:
    """With a last axis that is contiguous, as kernels read it: autograd also hands on tensors that repeat a number."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


_taken: set[str] = set()


def _free_name(variant: Variant, configurations: tuple[Configuration, ...]) -> str:
    """The same in every process that makes the same kernels in the same order: compiled graphs are kept by it."""
    content = f"{variant.show_lowered()} {configurations}"
    base = f"{variant.name}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    name, number = base, 2
    while name in _taken:
        name, number = f"{base}_{number}", number + 1
    _taken.add(name)
    return name
