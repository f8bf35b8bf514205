"""Checks the arguments of a call before anything is launched, and reads the problem's sizes off them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..diagnostics import AttnccError
from ..ir import MAX_LENGTH
from .call_arguments import ARGUMENTS, Call, CallArgument, Shape, Sort
from .facts import KERNEL_DTYPES, LAYOUTS, ArrayFacts, Signature, out_dtype
from .inputs import LAYOUT_HELP, check_inputs, check_names
from .problem import Problem
from .quantized import cache_dtypes, check_quantized
from .refusal import check_device, refused, shape_text, type_text
from .shared_prefix import check_shared_prefix
from .strides import contiguous, repeats

_PACKED_HELP = "rows that are packed have rank 3 and come with cu_seqlens_q or cu_seqlens_kv; all others have rank 4"
_FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn")


def bind(signature: Signature, call: Call) -> Problem:
    """The problem that a call poses. Looks at facts alone, never at array contents.

    AttnccError A6xx for the first argument that doesn't suit the kernel.
    """
    check_layout(call.layout)
    check_names(signature, [name for name, _ in call.inputs])
    _check_packing(call)
    for name, facts in _operands(call):
        _check_operand(signature, call, name, facts)
    problem = _sizes(call)
    _check_operand_shapes(signature, call, problem)
    for argument in ARGUMENTS.values():
        _check_argument(argument, call, problem)
    check_quantized(call, problem)
    check_shared_prefix(signature, call, problem)
    check_inputs(signature, call, problem)
    _check_results(signature, call, problem)
    return problem


def _operands(call: Call) -> Iterator[tuple[str, ArrayFacts]]:
    yield from (("q", call.q), ("k", call.k), ("v", call.v))


def check_layout(layout: object) -> None:
    """A618 for what is none."""
    if not isinstance(layout, str) or layout not in LAYOUTS:  # an array is compared entry by entry
        expected = " or ".join(map(repr, LAYOUTS))
        raise refused("A618", "`layout` is unknown", expected=expected, came=repr(layout), help=LAYOUT_HELP)


def _check_packing(call: Call) -> None:
    if call.block_table is not None and call.kv_lens is None:
        raise refused(
            "A625",
            "`kv_lens` is missing",
            expected="kv_lens beside block_table",
            came="block_table alone",
            help="pass how many keys each sequence has: int32 [batch], on q's device",
        )
    if call.kv_lens is not None:
        if call.cu_seqlens_kv is not None:
            raise refused(
                "A625",
                "`kv_lens` and `cu_seqlens_kv` can't both be given",
                expected="kv_lens for a cache, cu_seqlens_kv for packed keys",
                came="both",
                help="leave one away; packed queries over a cache need cu_seqlens_q and kv_lens",
            )
        return
    if (call.cu_seqlens_q is None) != (call.cu_seqlens_kv is None):
        missing, given = ("q", "kv") if call.cu_seqlens_q is None else ("kv", "q")
        raise refused(
            "A616",
            f"`cu_seqlens_{missing}` is missing",
            expected="both of cu_seqlens_q and cu_seqlens_kv, or neither",
            came=f"cu_seqlens_{given} alone",
            help="pass the same array twice where queries and keys are the same sequences; packed queries over a cache "
            "come with kv_lens",
        )


def _check_operand(signature: Signature, call: Call, name: str, facts: ArrayFacts) -> None:
    packed = call.cu_seqlens_q is not None and (name == "q" or call.kv_lens is None)
    rank = 3 if packed else 4
    if len(facts.shape) != rank:
        came = f"rank {len(facts.shape)}, shape {shape_text(facts.shape)}"
        raise refused("A601", f"`{name}` has the wrong rank", expected=f"rank {rank}", came=came, help=_PACKED_HELP)
    _check_dtype(signature, name, facts)
    check_device(call.q, f"`{name}`", facts)
    if signature.dtype is not None:
        check_last_axis(name, facts)


def check_last_axis(name: str, facts: ArrayFacts) -> None:
    """AttnccError A606 for entries that don't stand one behind the other."""
    if facts.strides and facts.strides[-1] != 1 and 0 not in facts.shape:
        raise refused(
            "A606",
            f"the last axis of `{name}` isn't contiguous",
            expected="a stride of 1 element on the last axis",
            came=f"strides {shape_text(facts.strides)}",
            help=f"pass a copy: ascontiguousarray({name}), or {name}.contiguous() in torch",
        )


def _check_dtype(signature: Signature, name: str, facts: ArrayFacts) -> None:
    allowed = _FLOATS if signature.dtype is None else (KERNEL_DTYPES[signature.dtype],)
    if name in ("k", "v"):
        allowed = tuple(dict.fromkeys((*allowed, *cache_dtypes(signature.dtype))))
    if facts.dtype not in allowed:
        own = next((short for short, full in KERNEL_DTYPES.items() if full == facts.dtype), None)
        own = None if own == "fp64" and facts.device != "cpu" else own  # which runs on the CPU alone
        raise refused(
            "A604",
            f"`{name}` has the wrong element type",
            expected=" or ".join(allowed),
            came=facts.dtype,
            help=f"convert `{name}`" + (f', or build the kernel for "{own}"' if own else ""),
        )


def _sizes(call: Call) -> Problem:
    packed = call.cu_seqlens_q is not None
    heads, length = (-3, -2) if call.layout == "bhsd" else (-2, -3)
    table = call.block_table
    return Problem(
        batch=max(_first_axis(call.cu_seqlens_q) - 1, 0) if call.cu_seqlens_q is not None else call.q.shape[0],
        num_heads=call.q.shape[heads],
        num_kv_heads=call.k.shape[heads],
        q_len=call.q.shape[length],
        kv_len=call.k.shape[length] * (1 if table is None else _last_axis(table)),
        head_dim=call.q.shape[-1],
        value_head_dim=call.v.shape[-1],
        layout=call.layout,
        packed=packed,
        cached=call.kv_lens is not None,
        page=None if table is None else page_rows("k", call.k, length),
        has_offset=call.q_offset is not None,
        shared_prefix=call.shared_prefix,
    )


def page_rows(name: str, pool: ArrayFacts, axis: int) -> int:
    """The rows of each page of a pool. AttnccError A625 for none: no key has a page then."""
    rows = pool.shape[axis]
    if rows == 0:
        what, came = f"the pages of `{name}` have no rows", f"shape {shape_text(pool.shape)}"
        raise refused("A625", what, expected="at least one row in each page", came=came)
    return rows


def _first_axis(facts: ArrayFacts) -> int:
    return facts.shape[0] if facts.shape else 0


def _last_axis(facts: ArrayFacts) -> int:
    return facts.shape[-1] if facts.shape else 0


def _check_operand_shapes(signature: Signature, call: Call, problem: Problem) -> None:
    for name, built, came in (
        ("q", signature.head_dim, problem.head_dim),
        ("v", signature.value_head_dim, problem.value_head_dim),
    ):
        if built is not None and came != built:
            option = "head_dim" if name == "q" else "value_head_dim"
            dims = (problem.head_dim, problem.value_head_dim)
            build = f"attncc build FILE --head-dim {':'.join(map(str, dict.fromkeys(dims)))}"
            fix = f"compile the kernel with {option}={came}; for a package: {build}" if came else ""
            raise refused("A603", f"`{name}` has the wrong head dim", expected=built, came=came, help=fix)
    kv_heads = problem.num_kv_heads
    _check_shape("k", call.k, problem.keys_shape(call.k.shape[0], problem.head_dim), problem)
    _check_shape("v", call.v, problem.keys_shape(call.k.shape[0], problem.value_head_dim), problem)
    if kv_heads == 0 or problem.num_heads % kv_heads:
        raise refused(
            "A602",
            "the heads of `q` don't share the heads of `k` evenly",
            expected="as many query heads as key heads, or a multiple",
            came=f"{problem.num_heads} query heads, {kv_heads} key heads, in layout {call.layout}",
            help=f"check `layout`: {LAYOUT_HELP}",
        )
    for name, length in (("q", problem.q_len), ("k", problem.kv_len)):
        if length > MAX_LENGTH:
            raise refused("A615", f"`{name}` is too long", expected=f"at most {MAX_LENGTH} positions", came=length)


def _check_shape(name: str, facts: ArrayFacts, expected: tuple[int, ...], problem: Problem) -> None:
    """k and v have the batch of q, or, where it isn't packed, batch 1 and serve all sequences."""
    alone = problem.packs_keys or problem.page is not None
    if facts.shape != expected and (alone or facts.shape != (1, *expected[1:])):
        raise refused(
            "A602",
            f"the shape of `{name}` doesn't go with the others",
            expected=f"{shape_text(expected)}, as q and k have it in layout {problem.layout}",
            came=shape_text(facts.shape),
            help="k and v that are pools of pages come with block_table" if problem.cached and not alone else "",
        )


def _check_argument(argument: CallArgument, call: Call, problem: Problem) -> None:
    """What its record says of an array that is read, or of a number; `bind` asks of options and results itself."""
    facts = getattr(call, argument.name, None)
    if facts is None or argument.sort not in (Sort.ARRAY, Sort.SCALAR):
        return
    if isinstance(facts, ArrayFacts):
        if argument.shape is not None:
            check_array(argument, argument.shape, facts, problem)
        else:
            check_scalar(argument, facts)
        check_device(call.q, f"`{argument.name}`", facts)
    elif facts is not int:
        raise _no_scalar(argument, type_text(facts))


def check_array(argument: CallArgument, shape: Shape, facts: ArrayFacts, problem: Problem) -> None:
    """AttnccError, with the argument's code, for an array of another shape or type than its record says."""
    if argument.sort is Sort.SCALAR and not facts.shape:
        return check_scalar(argument, facts)
    came = (*facts.shape, 0, 0)
    lengths = tuple(came[axis] if length is None else length for axis, length in enumerate(shape.lengths(problem)))
    steps = zip(lengths, facts.strides, contiguous(lengths), strict=False)
    in_place = shape.strided or 0 in facts.shape or all(size <= 1 or stride == step for size, stride, step in steps)
    fits, kind = facts.shape == lengths and in_place, "" if shape.strided else "contiguous "
    if not fits or facts.dtype not in argument.dtypes:
        axes = f"{shape.axes} = {_lengths_text(shape, problem)}"
        copied = facts.shape == lengths and facts.dtype in argument.dtypes
        copy = f"pass a copy: ascontiguousarray({argument.name}), or {argument.name}.contiguous() in torch"
        raise refused(
            argument.code,
            f"`{argument.name}` {shape.unfit}",
            expected=f"a {kind}{' or '.join(argument.dtypes)} array of shape {axes}",
            came=f"{facts.dtype}, shape {shape_text(facts.shape)}, strides {shape_text(facts.strides)}",
            help=copy if copied else shape.help,
        )


def _lengths_text(shape: Shape, problem: Problem) -> str:
    return "[" + ", ".join("any" if length is None else str(length) for length in shape.lengths(problem)) + "]"


def check_scalar(argument: CallArgument, facts: ArrayFacts) -> None:
    """A6xx where an array can't be the number of an argument."""
    if facts.shape != () or facts.dtype not in argument.dtypes:
        raise _no_scalar(argument, f"{facts.dtype}, shape {shape_text(facts.shape)}")


def _no_scalar(argument: CallArgument, came: str) -> AttnccError:
    shapes = "0-d" if argument.shape is None else f"0-d or {argument.shape.axes}"
    expected = f"an int or a {shapes} {' or '.join(argument.dtypes)} array"
    return refused(argument.code, f"`{argument.name}` can't be used", expected=expected, came=came)


def check_return_lse(value: object) -> None:
    """AttnccError A614 for what is neither true nor false."""
    if not (isinstance(value, int | np.bool_) and value in (False, True)):
        raise refused("A614", "`return_lse` can't be used", expected="True or False", came=f"{value!r:.60}")


def _check_results(signature: Signature, call: Call, problem: Problem) -> None:
    check_return_lse(call.return_lse)
    if call.return_lse and signature.variant.normalize != "softmax":
        raise refused(
            "A614",
            "`return_lse` has no meaning for this variant",
            expected="return_lse=False",
            came=f"return_lse=True with `normalize {signature.variant.normalize}`, which has no row sum",
            help="only softmax has a log-sum-exp",
        )
    if call.out is not None:
        _check_out(call, call.out, problem)


def _check_out(call: Call, out: ArrayFacts, problem: Problem) -> None:
    dtype = out_dtype(call.q.dtype)
    if out.shape != problem.out_shape or out.dtype != dtype:
        raise refused(
            "A617",
            "`out` can't hold the result",
            expected=f"{dtype}, shape {shape_text(problem.out_shape)}",
            came=f"{out.dtype}, shape {shape_text(out.shape)}",
        )
    check_device(call.q, "`out`", out)
    if (0 not in out.shape and out.strides[-1] != 1) or repeats(out.shape, out.strides):
        raise refused(
            "A617",
            "`out` has strides that can't be written",
            expected="a stride of 1 on the last axis, and no stride of 0",
            came=f"strides {shape_text(out.strides)}",
        )
