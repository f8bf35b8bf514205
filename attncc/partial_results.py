"""`attncc.merge`: attention over two sets of keys, from attention over each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from importlib import import_module
from math import inf
from typing import Any

from .problem.bind import check_layout
from .problem.refusal import refused

Array = Any  # of NumPy, CuPy or torch

_OWNERS = ("torch", "cupy", "numpy")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def merge(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array, *, layout: str = "bhsd") -> tuple[Array, Array]:
    """out and lse of attention over the keys of both calls, which have the same queries (Flash-Decoding, step 3).

    Each pair is what a kernel gives with return_lse=True: out [batch, heads, q_len, head dim] in layout "bhsd", or with
    heads and rows exchanged in "bshd"; packed batches leave the batch out. lse is [batch, heads, q_len] in both
    layouts, natural logarithms. Sums are in fp32, lse too; the new out has the dtype of out_a. A side that saw no key,
    whose lse is -inf, leaves the other as it is, bit for bit (fp64 is rounded to fp32); where both did, out is 0.
    Arrays are NumPy's, CuPy's or torch's; torch's autograd passes through it.

    AttnccError A602 for shapes that don't go together, A604 for arrays of no floats, A605 for two devices, A618 for an
    unknown layout, A654 for arrays of two frameworks.
    """
    check_layout(layout)
    xp = _namespace(out_a, lse_a, out_b, lse_b)
    _check_kinds({"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b})
    _check_shapes(out_a, lse_a, out_b, lse_b, layout)
    return merged(xp, (out_a, out_b), (lse_a, lse_b), layout)


def merged(xp: Any, outs: Sequence[Array], lses: Sequence[Array], layout: str) -> tuple[Array, Array]:
    """`merge` of any number of sets of keys, all at once: in their order, rounded once. `xp`: the arrays' framework."""
    lses = [_as(xp, lse, xp.float32) for lse in lses]
    largest = reduce(xp.maximum, lses)
    if xp.__name__ == "torch":
        largest = largest.detach()  # the result doesn't depend on it
    base = xp.where(largest == -inf, xp.zeros_like(largest), largest)
    weights = [xp.exp(lse - base) for lse in lses]
    total = sum(weights)
    seen = total != 0  # NaN too: of an invalid sequence, which must stay one
    total = xp.where(seen, total, xp.ones_like(total))
    lse = xp.where(seen, base + xp.log(total), xp.full_like(total, -inf))
    sides = (_weighted(xp, out, weight / total, layout) for out, weight in zip(outs, weights, strict=True))
    return _as(xp, sum(sides), outs[0].dtype), lse


def _weighted(xp: Any, out: Array, weight: Array, layout: str) -> Array:
    """A side's share. What has no weight counts as 0, whatever it is."""
    factor = (weight if layout == "bhsd" else xp.swapaxes(weight, -1, -2))[..., None]
    wide = _as(xp, out, xp.float32)
    return xp.where(factor == 0, xp.zeros_like(wide), wide * factor)


def _as(xp: Any, array: Array, dtype: Any) -> Array:
    return array.to(dtype) if xp.__name__ == "torch" else array.astype(dtype, copy=False)


def _namespace(*arrays: Array) -> Any:
    owners = {type(array).__module__.partition(".")[0] for array in arrays}
    if len(owners) == 1 and owners <= set(_OWNERS):
        return import_module(*owners)
    came = ", ".join(sorted(f"{type(array).__module__}.{type(array).__qualname__}" for array in arrays))
    raise refused("A654", "`merge` takes arrays of one framework", expected=" or ".join(_OWNERS), came=came)


def _check_kinds(arrays: Mapping[str, Array]) -> None:
    own = str(getattr(arrays["out_a"], "device", "cpu"))
    for name, array in arrays.items():
        dtype, device = str(array.dtype).removeprefix("torch."), str(getattr(array, "device", "cpu"))
        if dtype not in _FLOATS:
            help_ = "pass what a kernel gives with return_lse=True"
            what = f"`{name}` has the wrong element type"
            raise refused("A604", what, expected=" or ".join(_FLOATS), came=dtype, help=help_)
        if device != own:
            what, help_ = f"`{name}` is on another device than `out_a`", "all arrays of a call live on one device"
            raise refused("A605", what, expected=own, came=device, help=help_)


def _check_shapes(out_a: Array, lse_a: Array, out_b: Array, lse_b: Array, layout: str) -> None:
    *batch, heads, rows = lse_a.shape if len(lse_a.shape) > 1 else (*lse_a.shape, -1, -1)
    lead = (*batch, heads, rows) if layout == "bhsd" else (*batch, rows, heads)
    wanted = {"out_a": (out_a, lead), "out_b": (out_b, lead), "lse_b": (lse_b, tuple(lse_a.shape))}
    for name, (array, shape) in wanted.items():
        found = tuple(array.shape[:-1]) if name.startswith("out") else tuple(array.shape)
        if found != shape or (name == "out_b" and array.shape != out_a.shape):
            raise refused(
                "A602",
                f"the shape of `{name}` doesn't go with lse_a's",
                expected=f"{list(shape)}{' and the head dim of out_a' if name.startswith('out') else ''}",
                came=str(list(array.shape)),
            )
