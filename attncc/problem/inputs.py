"""Checks what a call brings for the variant's inputs: names, element types, ranks and axis lengths."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..diagnostics import did_you_mean
from ..ir import Axis, Input, Type
from .call_arguments import APPENDED, ARGUMENTS, STREAM, Call
from .facts import ArrayFacts, Signature
from .other_words import help_with
from .problem import Problem
from .refusal import check_device, not_an_array, refused, shape_text, type_text

POSITION_TAGS = ("q", "kv", "pos")

_OF_BACKWARD = ("dlse", "deterministic")  # arguments of `backward` alone
_NOT_HERE = "leave it out: kernels take it, but not the calls that ranks share"
_APPENDED_BEFORE = "write new rows before the call: by attncc.append, or in JAX by cache.at[…].set(…)"
LAYOUT_HELP = "bhsd is [batch, heads, length, head dim], bshd is [batch, length, heads, head dim]"

ANY_NUMBER = (float, int, bool)
_NUMBERS: dict[Type, tuple[type, ...]] = {Type.FLOAT: (float, int), Type.INT: (int,), Type.BOOL: (bool,)}


def check_inputs(signature: Signature, call: Call, problem: Problem, needed: Collection[str] | None = None) -> None:
    """AttnccError for the first input that is unknown, missing, or doesn't suit its declaration.

    `needed` names those that may not be left out; None stands for all.
    """
    check_names(signature, [name for name, _ in call.inputs])
    _check_missing(signature, call, signature.inputs.keys() if needed is None else needed)
    for name, facts in call.inputs:
        declared = signature.inputs[name]
        if declared.axes:
            _check_array(signature, call, problem, declared, facts)
        else:
            _check_scalar(signature, call, declared, facts)
    if not problem.packed and problem.q_len != problem.kv_len:
        check_positions(signature, problem.q_len, problem.kv_len)


def merges(declared: Input) -> bool:
    """Whether packed batches pass the input with `batch` and its position axis as one packed axis."""
    tags = {axis.tag for axis in declared.axes}
    return "batch" in tags and not tags.isdisjoint(POSITION_TAGS)


def merged(declared: Input, problem: Problem) -> bool:
    """Whether a call does so: its position axis is of q in a batch whose queries are packed, or of k of packed keys."""
    of_q = any(axis.tag == "q" for axis in declared.axes)
    return merges(declared) and (problem.packed if of_q else problem.packs_keys)


def passed_axes(declared: Input, problem: Problem) -> tuple[Axis, ...]:
    """The axes that a call's array has: those declared, without `batch` where packing merges it."""
    if merged(declared, problem):
        return tuple(axis for axis in declared.axes if axis.tag != "batch")
    return declared.axes


def declaration(declared: Input) -> str:
    """The input as its declaration wrote it: `slope: f32[head]`."""
    axes = f"[{', '.join(map(str, declared.axes))}]" if declared.axes else ""
    return f"{declared.name}: {declared.dtype}{axes}"


def check_positions(signature: Signature, q_len: int, kv_len: int) -> None:
    """A611 where an input's `pos` axis is indexed by q_idx though queries and keys aren't the same positions."""
    for name in signature.positions_by_q_idx:
        if q_len != kv_len:
            raise refused(
                "A611",
                f"the variant reads `{name}` at q_idx, but its axis `pos` counts key positions",
                expected="q_len = kv_len, where both agree",
                came=f"q_len {q_len}, kv_len {kv_len}",
                help=f"write q_pos instead of q_idx where the variant indexes `{name}`",
            )


def check_names(signature: Signature, names: Iterable[str]) -> None:
    """A608 for the first of these keywords of a call, apart from those that all calls have, that isn't an input."""
    unknown = [name for name in names if name not in signature.inputs]
    if unknown:
        apart = (item.name for item in (STREAM, *APPENDED))
        known = {*signature.inputs, *ARGUMENTS, *apart, *_OF_BACKWARD} - {unknown[0]}
        raise refused(
            "A608",
            f"`{unknown[0]}` is not an argument of {signature.variant.name}",
            expected=_declarations(signature),
            came=", ".join(unknown),
            help=_help_with_name(signature, unknown[0], known),
        )


def _help_with_name(signature: Signature, name: str, known: Collection[str]) -> str:
    if name in ARGUMENTS:
        return _NOT_HERE
    if any(name == item.name for item in APPENDED):
        return _APPENDED_BEFORE
    return help_with(name, signature.variant) or did_you_mean(name, known)


def _check_missing(signature: Signature, call: Call, needed: Collection[str]) -> None:
    given = {name for name, _ in call.inputs}
    missing = [
        name for name, item in signature.inputs.items() if name in needed and name not in given and item.default is None
    ]
    if missing:
        came = ", ".join(sorted(given)) or "none"
        expected = _declarations(signature)
        raise refused("A607", f"input `{missing[0]}` is missing", expected=expected, came=came, help=_pass(missing))


def _declarations(signature: Signature) -> str:
    return ", ".join(map(declaration, signature.inputs.values())) or "no inputs"


def _pass(names: list[str]) -> str:
    return "pass " + ", ".join(f"{name}=…" for name in names)


def check_dtype(signature: Signature, declared: Input, facts: ArrayFacts) -> None:
    """A604 where an input's array has not the type that its declaration asks for."""
    allowed = signature.input_dtypes(declared)
    if facts.dtype not in allowed:
        raise refused(
            "A604",
            f"input `{declared.name}` has the wrong element type",
            expected=f"{' or '.join(allowed)}, for {declaration(declared)}",
            came=facts.dtype,
            help=f"convert `{declared.name}` once, outside the call",
        )


def _check_scalar(signature: Signature, call: Call, declared: Input, facts: ArrayFacts | type) -> None:
    if isinstance(facts, ArrayFacts):
        if facts.shape:
            expected = f"a number or a 0-d array, for {declaration(declared)}"
            came = f"shape {shape_text(facts.shape)}"
            raise refused("A601", f"input `{declared.name}` has the wrong rank", expected=expected, came=came)
        check_dtype(signature, declared, facts)
        check_device(call.q, f"input `{declared.name}`", facts)
    elif facts not in _NUMBERS[declared.type]:
        kinds = " or ".join(kind.__name__ for kind in _NUMBERS[declared.type])
        raise refused(
            "A610",
            f"input `{declared.name}` is not a number of its type",
            expected=f"{kinds if facts in ANY_NUMBER else 'a number or a 0-d array'}, for {declaration(declared)}",
            came=type_text(facts),
        )


def _check_array(signature: Signature, call: Call, problem: Problem, declared: Input, facts: ArrayFacts | type) -> None:
    if not isinstance(facts, ArrayFacts):
        expected = f"an array, for {declaration(declared)}"
        if facts not in ANY_NUMBER:
            raise not_an_array(declared.name, facts, expected)
        help = f"pass an array; on the command line a file, as in -i {declared.name}={declared.name}.npy"
        raise refused("A601", f"input `{declared.name}` is a number", expected=expected, came=facts.__name__, help=help)
    check_dtype(signature, declared, facts)
    check_device(call.q, f"input `{declared.name}`", facts)
    _check_mergeable(problem, declared)
    axes = passed_axes(declared, problem)
    if len(facts.shape) != len(axes):
        expected = f"rank {len(axes)} {shape_of(axes)}, for {declaration(declared)}"
        came = f"rank {len(facts.shape)}, shape {shape_text(facts.shape)}"
        help_ = _help_with_rank(problem, declared, axes, len(facts.shape))
        raise refused("A601", f"input `{declared.name}` has the wrong rank", expected=expected, came=came, help=help_)
    for axis, length in zip(axes, facts.shape, strict=True):
        _check_axis(problem, declared, axis, length)


def _help_with_rank(problem: Problem, declared: Input, axes: tuple[Axis, ...], rank: int) -> str:
    """What to do where the first axis is missing, because all sequences or heads have the same values, or is merged."""
    if axes != declared.axes:
        return "packed batches pass it as q, k and v: all sequences on one axis, without `batch`"
    if rank + 1 == len(axes) and axes[0].tag in ("batch", "head", "kv_head"):
        sizes = ", ".join([str(expected_length(problem, declared, axes[0])), *["-1"] * rank])
        same = f"where all have the same values: {declared.name}[None].expand({sizes}) in torch"
        return f"{same}, or declare `{declared.name}` without `{axes[0].tag}`"
    return ""


def shape_of(axes: tuple[Axis, ...]) -> str:
    return f"[{', '.join(map(str, axes))}]"


def _check_mergeable(problem: Problem, declared: Input) -> None:
    tags = [axis.tag for axis in declared.axes]
    if problem.packed and "batch" in tags and sum(tag in POSITION_TAGS for tag in tags) > 1:
        raise refused(
            "A621",
            f"input `{declared.name}` can't be used with packed batches",
            expected="at most one of the axes q, kv and pos beside batch",
            came=declaration(declared),
            help="call the kernel without cu_seqlens, or compute the value from inputs with one position axis",
        )


def _check_axis(problem: Problem, declared: Input, axis: Axis, length: int) -> None:
    expected = expected_length(problem, declared, axis)
    if expected is None or length == expected or (axis.tag == "pos" and length > expected):
        return
    raise refused(
        "A609",
        f"axis `{axis}` of input `{declared.name}` has the wrong length",
        expected=f"{'at least ' if axis.tag == 'pos' else ''}{expected}, for {declaration(declared)}",
        came=length,
        help=_help_with(problem, declared, axis, length),
    )


def _help_with(problem: Problem, declared: Input, axis: Axis, length: int) -> str:
    """What to do about an axis of the wrong length: lengths where heads are expected, or the other way round, come from
    q, k and v in another layout than the call says."""
    if axis.tag is None:
        return ""
    swapped = {"head": problem.q_len, "kv_head": problem.kv_len, "q": problem.num_heads}
    if length == 1 and axis.tag not in POSITION_TAGS:
        return "an axis of stride 0 repeats values: broadcast_to, or expand in torch"
    if axis.tag == "head" and length == problem.num_kv_heads:
        instead = f"declare {declared.name}[kv_head] and read it at kv_h"
        return f"query heads count, not key heads: repeat its values, or {instead}"
    if not problem.packed and axis.tag != "batch" and length == swapped.get(axis.tag, problem.num_kv_heads):
        return f"check `layout`: {LAYOUT_HELP}"
    if axis.tag == "pos":
        return "`pos` counts key positions, one for each row of k" + (" there is room for" if problem.cached else "")
    return ""


def expected_length(problem: Problem, declared: Input, axis: Axis) -> int | None:
    """The length an axis must have (`pos`: at least); None: any. Packed batches share an axis without `batch` between
    sequences of any length."""
    if axis.tag is None:
        return axis.length
    packed = problem.packed if axis.tag == "q" else problem.packs_keys
    if packed and axis.tag in POSITION_TAGS and not merges(declared):
        return None
    lengths = {
        "batch": problem.batch,
        "head": problem.num_heads,
        "kv_head": problem.num_kv_heads,
        "q": problem.q_len,
    }
    return lengths.get(axis.tag, problem.kv_len)
