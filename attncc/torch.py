"""attncc in PyTorch: `Attention`, a module whose parameters are a variant's learnable inputs, and `operator`.

Kernels themselves take torch tensors, and autograd records the call where those require a gradient: a function needs
nothing but `attncc.compile`, or a built package. This module is for what a model keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .ir import Const, Input, Load, Type, Variant
from .problem.bind import check_layout
from .problem.facts import INPUT_DTYPES, Signature
from .problem.inputs import declaration
from .problem.refusal import refused, shape_text
from .problem.values import check_values
from .runtime.kernel import Kernel, kernel_of
from .runtime.torch.autograd import operator_name
from .runtime.torch.recordable import is_number
from .runtime.torch.torch_operator import NAMESPACE

__all__ = ["Attention", "operator"]


def operator(kernel: Any) -> Any:
    """The operator that a kernel's calls are in torch's graphs; takes what `Attention` takes. For policies of selective
    checkpoints, and called before `torch.export.load`, which must know the operators that it reads.

    AttnccError A656 for what is no kernel.
    """
    return getattr(getattr(torch.ops, NAMESPACE), operator_name(kernel_of("kernel", kernel).token)).default


class Attention(torch.nn.Module):  # type: ignore[misc]  # torch's types aren't read here
    """One kernel, with the learnable inputs of its variant as parameters.

        attention = Attention(kernel, slope=torch.full((8,), 0.1), cap=30.0)      # both `learnable`
        out = attention(q, k, v, doc=doc)

    `kernel` comes from `attncc.compile`, or is the function of a built package. Every learnable input needs its first
    value: a tensor of the input's shape or what makes one (a list, a NumPy array), a number for a scalar, or a
    Parameter, which is then shared. Other inputs may be given here too, to be buffers, or at each call. A parameter
    bears the input's name, or `input_` and that name where a Module has an attribute of the name.

    In eval mode there is no dropout: a rate that is an input is 0 then, and where it is a const of the variant,
    `in_eval` must be a kernel of the same variant without it. AttnccError A608, A618, A619 and A656 for what doesn't
    suit.
    """

    def __init__(
        self,
        kernel: Any,
        /,
        *,
        scale: float | None = None,
        layout: str = "bhsd",
        in_eval: Any = None,
        **inputs: Any,
    ) -> None:
        super().__init__()
        self.kernel = kernel_of("kernel", kernel)
        self.in_eval = None if in_eval is None else kernel_of("in_eval", in_eval)
        self.scale, self.layout = scale, layout
        _check_call(self.kernel.variant, scale, layout)
        declared = {item.name: item for item in self.kernel.variant.inputs}
        _check_names(declared, inputs)
        self._places = {name: name if not hasattr(self, name) else f"input_{name}" for name in inputs}
        self._dtypes = {name: getattr(torch, INPUT_DTYPES[declared[name].dtype]) for name in inputs}
        dropout = self.kernel.variant.dropout
        self._constant_dropout = isinstance(dropout, Const)
        self._rate = dropout.input if isinstance(dropout, Load) else None
        for name, value in inputs.items():
            self._keep(declared[name], _first_value(declared[name], value))

    def _keep(self, item: Input, value: Any) -> None:
        place, dtype = self._places[item.name], self._dtypes[item.name]
        if item.learnable:
            own = isinstance(value, torch.nn.Parameter)  # what isn't one is copied: modules made of it learn apart
            self.register_parameter(place, value if own else torch.nn.Parameter(_copied(value, dtype)))
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
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        q_offset: torch.Tensor | int | None = None,
        k_scale: torch.Tensor | None = None,
        v_scale: torch.Tensor | None = None,
        seed: torch.Tensor | int | None = None,
        return_lse: bool = False,
        **inputs: Any,
    ) -> Any:
        """out, or (out, lse): see `attncc.Kernel`. Inputs, scale and layout given here take the place of those the
        module holds."""
        given = {name: self._held(name, q.dtype) for name in self._places if name not in inputs}
        if not self.training and self._rate is not None:
            inputs = {**inputs, self._rate: 0.0}
            given.pop(self._rate, None)
        return self._chosen()(
            q,
            k,
            v,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_kv=cu_seqlens_kv,
            kv_lens=kv_lens,
            block_table=block_table,
            q_offset=q_offset,
            k_scale=k_scale,
            v_scale=v_scale,
            seed=seed,
            return_lse=return_lse,
            **{"scale": self.scale, "layout": self.layout, **given, **inputs},
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


def _check_call(variant: Variant, scale: Any, layout: Any) -> None:
    check_layout(layout)
    check_values(Signature(variant), {}, seed=0, scale=scale)


def _check_names(declared: Mapping[str, Input], inputs: Mapping[str, Any]) -> None:
    if "in_eval" in declared:
        raise refused(
            "A656",
            "the variant has an input `in_eval`, which is also an argument of the module",
            expected="an input of another name",
            came=declaration(declared["in_eval"]),
            help="rename the input",
        )
    for name in inputs:
        if name not in declared:
            known = ", ".join(map(declaration, declared.values())) or "no inputs"
            raise refused("A608", f"`{name}` is not an input of the variant", expected=known, came=name)
    for name, item in declared.items():
        if item.learnable and name not in inputs:
            what = f"the learnable input `{name}` has no first value"
            raise refused("A656", what, expected=f"a value for {declaration(item)}", came="none")


def _first_value(item: Input, value: Any) -> Any:
    """A tensor of the input's shape and sort; for a scalar also a number."""
    if not item.axes and is_number(value, item.type):
        return value
    given = isinstance(value, torch.Tensor)
    tensor = value if given else _as_tensor(item, value)
    kept = isinstance(value, torch.nn.Parameter) or (given and not item.learnable)
    if not _suits(item, tensor.dtype, converts=not kept):
        came = str(tensor.dtype).removeprefix("torch.")
        what = f"the value of input `{item.name}` has the wrong element type"
        raise refused("A656", what, expected=declaration(item), came=came)
    _check_shape(item, tuple(tensor.shape))
    return tensor if given else tensor.to(getattr(torch, INPUT_DTYPES[item.dtype]))


def _copied(value: Any, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.as_tensor(value, dtype=dtype).detach()
    return tensor.clone(memory_format=torch.contiguous_format)


def _as_tensor(item: Input, value: Any) -> torch.Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"the value of input `{item.name}` is neither a tensor nor a number"
        came = type(value).__qualname__
        raise refused("A656", what, expected=f"a value for {declaration(item)}", came=came) from None


def _suits(item: Input, dtype: torch.dtype, *, converts: bool) -> bool:
    """Whether tensors of this type can be an input's value: each float can, for all are converted in the call. What
    `converts` before takes ints too, for floats and for ints of another width."""
    is_int = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    if item.type is Type.FLOAT:
        return dtype.is_floating_point or (converts and is_int)
    return dtype == getattr(torch, INPUT_DTYPES[item.dtype]) or (converts and is_int and item.type is Type.INT)


def _check_shape(item: Input, shape: tuple[int, ...]) -> None:
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
