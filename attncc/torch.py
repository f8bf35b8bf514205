"""attncc in PyTorch: `Attention`, a module whose parameters are a variant's learnable inputs.

Kernels themselves take torch tensors, and autograd records the call where those require a gradient: a function needs
nothing but `attncc.compile`, or a built package. This module is for what a model keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .ir import Const, Input, Load
from .problem.facts import INPUT_DTYPES
from .problem.inputs import declaration
from .problem.refusal import refused, shape_text
from .runtime.kernel import Kernel

__all__ = ["Attention"]


class Attention(torch.nn.Module):  # type: ignore[misc]  # torch's types aren't read here
    """One kernel, with the learnable inputs of its variant as parameters.

        attention = Attention(kernel, slope=torch.full((8,), 0.1), cap=30.0)      # both `learnable`
        out = attention(q, k, v, doc=doc)

    `kernel` comes from `attncc.compile`, or is the function of a built package. Every learnable input needs its first
    value: a tensor of the input's shape, a number for a scalar, or a Parameter, which is then shared. Other inputs may
    be given here too, to be buffers, or at each call. A parameter bears the input's name, or `input_` and that name
    where a Module has an attribute of the name.

    In eval mode there is no dropout: a rate that is an input is 0 then, and where it is a const of the variant,
    `in_eval` must be a kernel of the same variant without it. AttnccError A656 for what doesn't suit.
    """

    def __init__(
        self,
        kernel: Any,
        *,
        scale: float | None = None,
        layout: str = "bhsd",
        in_eval: Any = None,
        **inputs: Any,
    ) -> None:
        super().__init__()
        self.kernel = _kernel(kernel)
        self.in_eval = None if in_eval is None else _kernel(in_eval)
        self.scale, self.layout = scale, layout
        declared = {item.name: item for item in self.kernel.variant.inputs}
        _check(declared, inputs)
        self._places = {name: name if not hasattr(self, name) else f"input_{name}" for name in inputs}
        self._dtypes = {name: getattr(torch, INPUT_DTYPES[declared[name].dtype]) for name in inputs}
        dropout = self.kernel.variant.dropout
        self._constant_dropout = isinstance(dropout, Const)
        self._rate = dropout.input if isinstance(dropout, Load) else None
        for name, value in inputs.items():
            self._keep(declared[name], value)

    def _keep(self, item: Input, value: Any) -> None:
        place, dtype = self._places[item.name], self._dtypes[item.name]
        if item.learnable:
            own = isinstance(value, torch.nn.Parameter)
            self.register_parameter(place, value if own else torch.nn.Parameter(torch.as_tensor(value, dtype=dtype)))
        elif isinstance(value, torch.Tensor):
            self.register_buffer(place, value)
        else:
            setattr(self, place, value)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        seed: torch.Tensor | int | None = None,
        return_lse: bool = False,
        **inputs: Any,
    ) -> Any:
        """out, or (out, lse): see `attncc.Kernel`. Inputs given here take the place of those the module holds."""
        given = {name: self._held(name, q.dtype) for name in self._places if name not in inputs}
        if not self.training and self._rate is not None:
            inputs = {**inputs, self._rate: 0.0}
            given.pop(self._rate, None)
        return self._chosen()(
            q,
            k,
            v,
            scale=self.scale,
            layout=self.layout,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
            seed=seed,
            return_lse=return_lse,
            **given,
            **inputs,
        )

    def _held(self, name: str, operands: torch.dtype) -> Any:
        """An input that the module holds, in the type that the kernel takes: `.half()` changes parameters."""
        value = getattr(self, self._places[name])
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.to(torch.float64 if operands == torch.float64 else self._dtypes[name])

    def _chosen(self) -> Kernel:
        if self.training or not self._constant_dropout:
            return self.kernel
        if self.in_eval is None:
            raise refused(
                "A656",
                f"{self.kernel.variant.name} has dropout that can't be turned off in eval mode",
                expected="in_eval=a kernel of the variant without dropout",
                came="in_eval=None",
                help="or make the rate an input: `input rate: f32`, `dropout rate`",
            )
        return self.in_eval

    def extra_repr(self) -> str:
        return repr(self.kernel)


def _kernel(given: Any) -> Kernel:
    """A kernel, or that of a built package's function."""
    kernel = given if isinstance(given, Kernel) else getattr(getattr(given, "package", None), "kernel", None)
    if not isinstance(kernel, Kernel):
        expected = "what attncc.compile gives, or a function of a built package"
        raise refused("A656", "`kernel` is not a kernel", expected=expected, came=type(given).__qualname__)
    return kernel


def _check(declared: Mapping[str, Input], inputs: Mapping[str, Any]) -> None:
    for name in inputs:
        if name not in declared:
            known = ", ".join(map(declaration, declared.values())) or "no inputs"
            raise refused("A608", f"`{name}` is not an input of the variant", expected=known, came=name)
    for name, item in declared.items():
        if item.learnable and name not in inputs:
            what = f"the learnable input `{name}` has no first value"
            raise refused("A656", what, expected=f"a value for {declaration(item)}", came="none")
        if name in inputs:
            _check_shape(item, inputs[name])


def _check_shape(item: Input, value: Any) -> None:
    shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
    lengths = [axis.length for axis in item.axes]
    fits = len(shape) == len(lengths) and all(
        length in (None, size) for length, size in zip(lengths, shape, strict=True)
    )
    if not fits:
        raise refused(
            "A656",
            f"the value of input `{item.name}` has the wrong shape",
            expected=declaration(item),
            came=shape_text(shape),
        )
