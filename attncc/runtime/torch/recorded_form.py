"""Calls of one form that torch's autograd records, where an earlier call of that form was checked.

Such a call is read once, by code written for its form, and is one node of autograd's graph, which runs the kernels
itself. It saves the tensors that the node of any other call does, in their order: torch.utils.checkpoint compares what
a call saves with what it saved the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ...ir import Variant
from ...problem.call_arguments import RECORDED, Arguments, Given
from ..call.launch import Run
from ..frameworks.framework import Array
from .tokens import RecordedKernel
from .torch_operator import TorchOperators, flattened, no_forward_mode, readable

_PLACES = {name: place for place, name in enumerate(Arguments._fields)}
_OPERANDS = 3  # of the node's arguments: the form, the call and its pointers stand before q
_INPUTS, _RETURN_LSE = _PLACES["inputs"], _PLACES["return_lse"]


class RecordedForm:
    """Records calls that have the form of `call`. `run` launches them, and gives out, and lse where there is one."""

    def __init__(self, kernel: RecordedKernel, operators: TorchOperators, call: Arguments, run: Run) -> None:
        self._kernel, self._operators, self._run = kernel, operators, run
        self._run_backward = kernel.backward_again
        self._plain: tuple[Given, Given] = (), ()  # of the last call without inputs: its others, as given and as kept
        variant = kernel.variant
        self._softmax, self._return_lse = variant.normalize == "softmax", call.return_lse
        learnable = [item.name for item in variant.inputs if item.learnable]
        self._inputs, self._arguments = _tensors(variant, call)
        names = [item.name for item in variant.inputs if item.name in self._inputs]
        places = (3 + names.index(name) if name in names else None for name in learnable)
        self._gradients = [*range(3), *places]
        self._count = _OPERANDS + 3 + len(names) + len(self._arguments)
        # What is wanted of the node where that is dq, dk and dv, and nothing else is made.
        self._all_of_three = None if learnable else (False,) * _OPERANDS + (True,) * 3
        import torch

        self._apply = _apply()
        self._is_deterministic = torch.are_deterministic_algorithms_enabled
        self._is_grad_enabled = torch.is_grad_enabled
        self._is_compiling = torch.compiler.is_dynamo_compiling

    def __call__(self, given: Given, values: list[Any]) -> Any:
        """The results of a call, whose pointers and numbers are `values`."""
        if not self._inputs and not self._arguments:
            return self._apply(self, given, values, given[0], given[1], given[2])
        inputs = given[_INPUTS]
        return self._apply(
            self,
            given,
            values,
            *given[:_INPUTS],
            *[inputs[name] for name in self._inputs],
            *[given[place] for place in self._arguments],
        )

    # ------------------------------------------------------------ what the node does

    def forward(self, ctx: Any, given: Given, values: list[Any], *arrays: Array) -> Any:
        found = self._run(given, values)
        out, lse = found if self._softmax else (found, arrays[0].new_empty(0))
        ctx.save_for_backward(out, lse, *arrays)
        ctx.set_materialize_grads(False)
        # No object for each call: those of all layers are what Python's garbage collection walks through.
        ctx.form, ctx.others, ctx.deterministic = self, self._others(given), self._is_deterministic()
        return found if self._return_lse else out

    def backward(self, ctx: Any, dout: Any, dlse: Any) -> tuple[Any, ...]:
        """A gradient for each argument of the node, from those of out and lse."""
        out, lse, *arrays = ctx.saved_tensors
        needed, deterministic = ctx.needs_input_grad, ctx.deterministic
        call = self._call(arrays, ctx.others)
        made: Sequence[Array] | None = None
        if not (dout is None or self._is_grad_enabled() or self._is_compiling()):
            made = self._again(call, out, lse if self._softmax else None, dout, dlse, deterministic)
        if made is None:
            run = self._operators.backward_run(dout, dlse)
            flat = flattened(self._kernel.variant.inputs, Arguments(*call), deterministic)
            made = list(run(dout, dlse, out, lse, *flat))
        if needed == self._all_of_three:
            return (None, None, None, *made)
        gradients: list[Any] = [None] * self._count
        for place, gradient in zip(self._gradients, made, strict=True):
            if place is not None and needed[_OPERANDS + place]:
                gradients[_OPERANDS + place] = gradient
        return tuple(gradients)

    def _again(  # noqa: PLR0917
        self, call: Given, out: Array, lse: Array | None, dout: Array, dlse: Array | None, deterministic: bool
    ) -> list[Array] | None:
        """The gradients where the call's form is known, perhaps by a copy of dout that kernels can read."""
        dlse = dlse if self._softmax else None
        made = self._run_backward(call, dout, out, lse, dlse, deterministic)
        if made is None and (copy := readable(dout)) is not dout:
            return self._run_backward(call, copy, out, lse, dlse, deterministic)
        return made

    # ------------------------------------------------------------ calls without their tensors

    def _others(self, given: Given) -> Given:
        """What a call has besides its tensors, which the node must not keep in any other way than torch's."""
        if given[_INPUTS] or self._arguments:
            return self._stripped(given[_INPUTS:])
        (last, kept), others = self._plain, given[_INPUTS:]
        if others != last:
            kept = self._stripped(others)
            self._plain = others, kept
        return kept

    def _stripped(self, others: Given) -> Given:
        kept = list(others)
        if self._inputs:
            kept[0] = {name: value for name, value in kept[0].items() if name not in self._inputs}
        for place in self._arguments:
            kept[place - _INPUTS] = None
        kept[_RETURN_LSE - _INPUTS] = False
        return tuple(kept)

    def _call(self, arrays: Sequence[Array], others: Given) -> Given:
        if len(arrays) == _INPUTS:
            return (*arrays, *others)
        call, more = [*arrays[:_INPUTS], *others], iter(arrays[_INPUTS:])
        call[_INPUTS] = {**call[_INPUTS], **{name: next(more) for name in self._inputs}}
        for place in self._arguments:
            call[place] = next(more)
        return tuple(call)


def _tensors(variant: Variant, call: Arguments) -> tuple[list[str], list[int]]:
    """Which inputs are tensors, and which other arguments, by their places: in the order of the operators' schema."""
    import torch

    inputs = [item.name for item in variant.inputs if isinstance(call.inputs.get(item.name), torch.Tensor)]
    names = [item.name for item in RECORDED if isinstance(getattr(call, item.name), torch.Tensor)]
    return inputs, [_PLACES[name] for name in names]


@cache
def _apply() -> Any:
    """What makes a node, found when torch is there.

    Without `setup_context`, for which torch asks for the signature of `forward` in every call, and without what
    `torch.autograd.Function` does for transforms before it makes a node: their tensors are of no form that is known.
    """
    import torch

    class KnownAttention(torch.autograd.Function):  # type: ignore[misc]  # torch's types aren't read here
        @staticmethod
        def forward(ctx: Any, form: RecordedForm, given: Given, values: list[Any], *arrays: Array) -> Any:
            return form.forward(ctx, given, values, *arrays)

        @staticmethod
        def backward(ctx: Any, dout: Any, dlse: Any = None) -> tuple[Any, ...]:
            gradients: tuple[Any, ...] = ctx.form.backward(ctx, dout, dlse)
            return gradients

        jvp = staticmethod(no_forward_mode)

    return super(torch.autograd.Function, KnownAttention).apply
