"""`wrap`: a kernel as a function of JAX arrays, with its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..descales import descaled
from ..ir import Input, Type
from ..problem.bind import check_return_lse
from ..problem.call_arguments import ARGUMENTS, ARRAYS, SCALARS, Arguments
from ..problem.gradients import check_deterministic
from ..problem.inputs import declaration
from ..problem.quantized import kv_dtype
from ..problem.refusal import not_an_array, refused
from ..problem.swapped_axes import warn_of_swapped_axes
from ..runtime.kernel import Kernel, kernel_of
from . import primitives
from .form import ArrayForm, Form, is_wide

_NUMBERS = (bool, int, float)
_INT32 = np.iinfo(np.int32)
_EXPECTED = "a JAX or NumPy array"
_UNUSED = {
    "out": "take the result that the call returns",
    "block_table": "gather the pages first, or call the kernel with torch or CuPy arrays",
    "k_scale": "multiply k before, or call the kernel with torch or CuPy arrays",
    "v_scale": "multiply v before, or call the kernel with torch or CuPy arrays",
    "shared_prefix": "leave it out: results are the same",
}


def wrap(kernel: Any) -> Attention:
    """A function of JAX arrays that runs a kernel: what `attncc.compile` gives, or a function of a built package.

    It works under jit, grad, vmap and shard_map, on CPUs by the executor. AttnccError A656 for what is no kernel.
    """
    return Attention(kernel_of("kernel", kernel))


class Attention:
    """One kernel as a function of JAX arrays. `wrap` makes them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __repr__(self) -> str:
        return f"<attncc.jax {self.kernel!r}>"

    def __call__(
        self, q: Any, k: Any, v: Any, *, return_lse: bool = False, deterministic: bool = False, **keywords: Any
    ) -> Any:
        """Attention of q, k and v: out, or (out, lse) with return_lse. Arguments and inputs are those of the kernel.

        q is [batch, heads, q_len, head dim] in layout "bhsd", [batch, q_len, heads, head dim] in "bshd", and so are k
        and v; all may leave the batch axis out, inputs with them. lse is fp32 [batch, heads, q_len].
        `seed` is a number, an array of one integer, or a key of jax.random. `scale` and scalar inputs that come as
        numbers are constants of the program; arrays have gradients if they are learnable. Where kernels read
        int32, int64 arrays must hold numbers that fit: those of NumPy are checked, JAX's wrap around.
        `deterministic`: gradients are bit for bit the same in every run.
        AttnccError A5xx, A6xx while JAX traces the call.
        """
        check_return_lse(return_lse)
        check_deterministic(deterministic)
        call = Arguments.of(q, k, v, keywords, ARGUMENTS)
        _refuse_unused(call)
        alone = np.ndim(q) == 3 and call.cu_seqlens_q is None and call.cu_seqlens_kv is None
        form, operands = self._read(call, alone, return_lse, deterministic)
        shapes = tuple(map(ArrayForm.of, operands))
        _refuse_narrow(*shapes[:2])
        bound = form.bound(shapes)
        warn_of_swapped_axes(form.variant.name, shapes[0].facts, bound.problem)
        results = _attention(form, tuple(varying(operands)))
        if alone:
            results = tuple(result[0] for result in results)
        return results if return_lse else results[0]

    def _read(
        self, call: Arguments, alone: bool, return_lse: bool, deterministic: bool
    ) -> tuple[Form, tuple[Any, ...]]:
        """The form of a call, and its operands."""
        read = _Read([_array(name, value, alone) for name, value in (("q", call.q), ("k", call.k), ("v", call.v))])
        declared = {item.name: item for item in self.kernel.variant.inputs}
        for name, value in call.inputs.items():
            read.input(declared.get(name), name, value, alone=alone)
        for name in ARGUMENTS:
            read.argument(name, getattr(call, name))
        arguments = tuple(read.statics), tuple(read.numbers), tuple(read.names)
        return Form(self.kernel, *arguments, bool(return_lse), bool(deterministic)), tuple(read.operands)


@dataclass
class _Read:
    """What was read of a call so far: operands, of which those after q, k and v have names, and constants."""

    operands: list[Any]
    names: list[str] = field(default_factory=list)
    numbers: list[tuple[str, Any]] = field(default_factory=list)  # inputs that are constants of the program
    statics: list[tuple[str, Any]] = field(default_factory=list)  # the same of arguments

    def _operand(self, name: str, array: Any) -> None:
        self.operands.append(array)
        self.names.append(name)

    def input(self, declared: Input | None, name: str, value: Any, *, alone: bool) -> None:
        """`alone`: arrays leave the batch axis out."""
        if declared is None or _is_number(value):  # unknown ones are refused by their names
            self.numbers.append((name, _plain(value) if _is_number(value) else 0))
            return
        tags = [axis.tag for axis in declared.axes]
        added = alone and "batch" in tags and np.ndim(value) == len(tags) - 1
        array = _array(name, value, added, tags.index("batch") if added else 0)
        if declared.dtype == "i32":
            _check_narrow("A610", name, value)
            array = _narrowed(array)
        self._operand(name, array)

    def argument(self, name: str, value: Any) -> None:
        _check_narrow(ARGUMENTS[name].code, name, value)
        if name in ARRAYS and value is not None:
            self._operand(name, _narrowed(_array(name, value)))
        elif name in SCALARS and value is not None and not _is_number(value):
            self._operand(name, _words(name, value) if is_wide(name) else _narrowed(_array(name, value)))
        elif name not in ("out", "return_lse", *ARRAYS):
            self.statics.append((name, _plain(value)))


def _refuse_unused(call: Arguments) -> None:
    """AttnccError A655 for arguments that programs of JAX have no place for."""
    for name, help in _UNUSED.items():
        value, default = getattr(call, name), ARGUMENTS[name].default
        if value is not default:
            came, expected = type(value).__qualname__, f"{name}={default}"
            raise refused("A655", f"`{name}` can't be used with JAX arrays", expected=expected, came=came, help=help)


def _refuse_narrow(q: ArrayForm, k: ArrayForm) -> None:
    """AttnccError A655 for caches of 8 bits, whose scales have no place here."""
    if kv_dtype(q.facts, k.facts) is not None:
        help_ = "convert k and v to q's type, or call the kernel with torch or CuPy arrays"
        what = "a cache of 8 bits can't be used with JAX arrays"
        raise refused("A655", what, expected=f"k and v of {q.dtype}", came=k.dtype, help=help_)


def _is_number(value: Any) -> bool:
    return isinstance(value, (*_NUMBERS, np.generic))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _array(name: str, value: Any, add_batch: bool = False, axis: int = 0) -> Any:
    if not isinstance(value, jax.Array | np.ndarray):
        raise not_an_array(name, type(value), _EXPECTED)
    array = jnp.asarray(value)
    return jnp.expand_dims(array, axis) if add_batch else array


def _narrowed(array: Any) -> Any:
    """int64, which JAX has where it is asked to, as int32."""
    return array.astype(jnp.int32) if array.dtype == jnp.int64 else array


def _check_narrow(code: str, name: str, value: Any) -> None:
    """AttnccError with this code for a number of a NumPy int64 array that int32 can't hold. While JAX traces, nobody
    sees the numbers of its own arrays."""
    if not isinstance(value, np.ndarray) or value.dtype != np.int64 or is_wide(name):
        return
    beyond = value[(value < _INT32.min) | (value > _INT32.max)]
    if beyond.size:
        what, expected = f"`{name}` has a number that int32 can't hold", f"numbers from {_INT32.min} to {_INT32.max}"
        raise refused(code, what, expected=expected, came=beyond.flat[0])


def _words(name: str, value: Any) -> Any:
    """A seed as two words of 32 bits, the low one first: those of an integer, or bits drawn by a key of jax.random."""
    if not isinstance(value, jax.Array | np.ndarray):
        raise not_an_array(name, type(value), f"a number, {_EXPECTED} of one integer, or a key of jax.random")
    seed = value if isinstance(value, jax.Array) else jnp.asarray(value)
    if jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.shape == ():
        return jax.random.bits(seed, (2,), jnp.uint32)
    if seed.shape != () or seed.dtype not in (jnp.int32, jnp.uint32, jnp.int64, jnp.uint64):
        expected = "a number, an array of one integer of 32 or 64 bits, or a key of jax.random"
        came = f"{seed.dtype}{list(seed.shape)}"
        raise refused(ARGUMENTS[name].code, f"`{name}` can't be used", expected=expected, came=came)
    if seed.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(seed, jnp.uint32)
    low = jax.lax.bitcast_convert_type(seed, jnp.uint32)
    high = jax.lax.bitcast_convert_type(seed >> 31, jnp.uint32) if seed.dtype == jnp.int32 else jnp.uint32(0)
    return jnp.stack([low, high])


def varying(operands: Sequence[Any]) -> list[Any]:
    """The operands, each varying over all axes of a mesh that one of them varies over: within shard_map, arrays that
    are the same on all devices then get the sum of the devices' gradients."""
    varies = [jax.typeof(operand).manual_axis_type.varying for operand in operands]
    union = frozenset[Any]().union(*varies)
    missing = [tuple(union - own) for own in varies]
    return [jax.lax.pcast(x, axes, to="varying") if axes else x for x, axes in zip(operands, missing, strict=True)]


# ------------------------------------------------------------------ gradients


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(form: Form, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(primitives.forward(operands, form, with_lse=form.return_lse))


def _forward(form: Form, operands: tuple[Any, ...]) -> tuple[Any, Any]:
    _check_perturbed(form, operands)
    values = tuple(operand.value for operand in operands)
    results = primitives.forward(values, form, with_lse=form.is_softmax)
    return tuple(results[: 1 + form.return_lse]), (values, results)


def _check_perturbed(form: Form, operands: Sequence[Any]) -> None:
    """AttnccError A652 where a gradient is wanted that a call doesn't give."""
    wanted = [
        name
        for name, operand in zip(form.names, operands, strict=True)
        if operand.perturbed and jnp.issubdtype(operand.value.dtype, jnp.floating)
    ]
    if wanted and descaled(form.variant):
        raise refused(
            "A652",
            "kernels of e4m3 have no gradients",
            expected="arrays that none is taken of",
            came=f"a gradient of {wanted[0]}",
            help="pass jax.lax.stop_gradient(…), or train with a kernel of another dtype",
        )
    for name in wanted:
        if name in form.inputs and not form.inputs[name].learnable and form.inputs[name].type is Type.FLOAT:
            shown = declaration(form.inputs[name])
            raise refused(
                "A652",
                f"a gradient of input `{name}` is wanted, which isn't learnable",
                expected=f"input {shown} learnable",
                came=f"input {shown}",
                help=f"declare it learnable, or pass jax.lax.stop_gradient({name})",
            )


def _backward(form: Form, residuals: Any, cotangents: Sequence[Any]) -> tuple[tuple[Any, ...]]:
    operands, (out, *lse) = residuals
    dout, *dlse = cotangents
    results = {"dout": jnp.zeros_like(out) if isinstance(dout, SymbolicZero) else dout, "out": out}
    if form.is_softmax:
        results["lse"] = lse[0]
        if dlse and not isinstance(dlse[0], SymbolicZero):
            results["dlse"] = dlse[0]
    given = varying([*results.values(), *operands])
    count = len(results)
    found = primitives.backward(given[:count], tuple(results), given[count:], form)
    gradients = dict(zip(("q", "k", "v", *form.learnable), found, strict=True))
    return (tuple(gradients.get(name) for name in form.names),)


_attention.defvjp(_forward, _backward, symbolic_zeros=True)
