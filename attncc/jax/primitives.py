"""Calls as two primitives of JAX: forward and backward. Programs for a CPU and for a GPU hold different buffers, so
each platform has its lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..problem.call_arguments import READ
from ..problem.facts import numpy_dtype
from ..problem.refusal import refused
from .calls import TARGET, Backward, Forward, Work, known, number_of
from .form import ArrayForm, Form, reads_sequence

GIVEN = ("dout", "out", "lse", "dlse")  # what a backward call takes before the operands, where it is there


def forward(operands: Sequence[Any], form: Form, *, with_lse: bool) -> list[Any]:
    """out, and lse."""
    found: list[Any] = _forward.bind(*operands, form=form, with_lse=with_lse)
    return found


def backward(given: Sequence[Any], names: tuple[str, ...], operands: Sequence[Any], form: Form) -> list[Any]:
    """The gradients of q, k, v and learnable arrays; `names` are those of what is given, out of `GIVEN`."""
    found: list[Any] = _backward.bind(*given, *operands, form=form, given=names)
    return found


def _forward_work(avals: Sequence[Any], form: Form, with_lse: bool) -> Work:
    return Forward(form, tuple(map(ArrayForm.of, avals)), with_lse)


def _backward_work(avals: Sequence[Any], form: Form, given: tuple[str, ...]) -> Work:
    return Backward(form, given, tuple(map(ArrayForm.of, avals)))


def _results(work: Callable[..., Work], *avals: Any, **params: Any) -> list[Any]:
    """The abstract results: they vary over the axes of a mesh as the first operand does."""
    made, like = work(avals, **params).results, avals[0]
    return [_shaped_like(like, form) for form in made]


def _shaped_like(like: Any, form: ArrayForm) -> Any:
    sharding = NamedSharding(like.sharding.mesh, PartitionSpec(*[None] * len(form.shape)))
    return like.update(shape=form.shape, dtype=numpy_dtype(form.dtype), weak_type=False, sharding=sharding)


# ------------------------------------------------------------------ programs


def _on_host(work: Callable[..., Work], *operands: Any, **params: Any) -> list[Any]:
    """The program of a call on the CPU."""
    call = work(operands, **params)
    return _foreign(call, call.results, operands)


def _on_device(work: Callable[..., Work], *operands: Any, **params: Any) -> list[Any]:
    """The program of a call on a GPU: rows filled up, the call, its results taken from its buffers."""
    call = work(operands, **params)
    device = known(number_of(call)).on(_a_gpu())
    padded = [_filled(operand, device.columns.get(place)) for place, operand in enumerate(operands)]
    return device.finished(_foreign(call, device.buffers, padded))


def _foreign(call: Work, buffers: Sequence[ArrayForm], operands: Sequence[Any]) -> list[Any]:
    shapes = [jax.ShapeDtypeStruct(form.shape, numpy_dtype(form.dtype)) for form in buffers]
    return list(jax.ffi.ffi_call(TARGET, shapes)(*operands, call=np.int64(number_of(call))))


def _a_gpu() -> int:
    """The number of a GPU of this process: programs are traced for any, and all are of one model."""
    return int(jax.local_devices(backend="cuda")[0].local_hardware_id)


def _filled(operand: Any, columns: int | None) -> Any:
    if columns is None or columns == operand.shape[-1]:
        return operand
    return jnp.pad(operand, [(0, 0)] * (operand.ndim - 1) + [(0, columns - operand.shape[-1])])


# ------------------------------------------------------------------ vmap


def _batched(bind: Any, operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
    """A mapped call: one call on a larger batch, where that is the same, else one call after the other."""
    form: Form = params["form"]
    given = params.get("given", ())
    names = (*given, *form.names)
    size = next(operand.shape[dim] for operand, dim in zip(operands, dims, strict=True) if dim is not None)
    if _folds(form, names, operands, dims):
        alone = () if given else ("k", "v")
        folded = [
            _fold(x, dim, size, _batch_axis(form, name), name in alone)
            for name, x, dim in zip(names, operands, dims, strict=True)
        ]
        results = bind.bind(*folded, **params)
        return [_unfolded(x, size) for x in results], [0] * len(results)
    mapped = [x for x, dim in zip(operands, dims, strict=True) if dim is not None]
    leading = [dim for dim in dims if dim is not None]

    def one(entries: Sequence[Any]) -> list[Any]:
        rest = iter(entries)
        found: list[Any] = bind.bind(
            *(x if dim is None else next(rest) for x, dim in zip(operands, dims, strict=True)), **params
        )
        return found

    results = jax.lax.map(one, [jnp.moveaxis(x, dim, 0) for x, dim in zip(mapped, leading, strict=True)])
    return results, [0] * len(results)


def _folds(form: Form, names: Sequence[str], operands: Sequence[Any], dims: Sequence[int | None]) -> bool:
    """Whether a larger batch gives the same: no argument tells of the batch, no results depend on a sequence's number,
    arrays that are the same for all sequences aren't mapped, and no gradient is a sum over the sequences."""
    if any(name in READ for name in form.arrays) or reads_sequence(form.variant):
        return False
    of_backward = names[0] == GIVEN[0]
    inputs = form.inputs
    shared = [name for name in form.learnable if all(axis.tag != "batch" for axis in inputs[name].axes)]
    if of_backward and shared:
        return False
    return all(dim is None or _batch_axis(form, name) is not None for name, dim in zip(names, dims, strict=True))


def _batch_axis(form: Form, name: str) -> int | None:
    """The place of the batch axis of an operand; None if it has none."""
    if name in ("q", "k", "v", *GIVEN):
        return 0
    tags = [axis.tag for axis in form.inputs[name].axes] if name in form.inputs else []
    return tags.index("batch") if "batch" in tags else None


def _fold(operand: Any, dim: int | None, size: int, axis: int | None, may_serve_all: bool) -> Any:
    """The mapped axis and the batch axis as one."""
    if axis is None or (dim is None and may_serve_all and operand.shape[0] == 1):
        return operand
    if dim is None:
        operand = jnp.broadcast_to(jnp.expand_dims(operand, axis), _inserted(operand.shape, axis, size))
    else:
        operand = jnp.moveaxis(operand, dim, axis)
    shape = operand.shape
    return operand.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _inserted(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis:])


def _unfolded(result: Any, size: int) -> Any:
    return result.reshape(size, result.shape[0] // size, *result.shape[1:])


# ------------------------------------------------------------------ registration


def _no_derivative(*_: Any, **__: Any) -> Any:
    raise refused(
        "A652",
        "the gradients of an attention call were differentiated again",
        expected="first derivatives alone: those of gradients are not computed",
        came="a second derivative",
        help="pass the gradients through jax.lax.stop_gradient",
    )


def _primitive(name: str, work: Callable[..., Work], options: tuple[str, ...]) -> Any:
    primitive = Primitive(name)
    primitive.multiple_results = True
    run = jax.jit(primitive.bind, static_argnames=options)
    primitive.def_impl(run)
    primitive.def_abstract_eval(partial(_results, work))
    for platform, program in (("cpu", _on_host), ("cuda", _on_device)):
        lowering = mlir.lower_fun(partial(program, work), multiple_results=True)
        mlir.register_lowering(primitive, lowering, platform=platform)
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    ad.primitive_jvps[primitive] = _no_derivative
    return primitive


_forward = _primitive("attncc_forward", _forward_work, ("form", "with_lse"))
_backward = _primitive("attncc_backward", _backward_work, ("form", "given"))
