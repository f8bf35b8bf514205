"""Checks the arguments of `attncc.append` before anything is written, and reads the problem's sizes off them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..ir import MAX_LENGTH
from .bind import check_array, check_last_axis, check_layout, page_rows
from .call_arguments import ARGUMENTS
from .facts import KV_DTYPES, ArrayFacts
from .problem import Problem
from .quantized import SCALES, check_scales
from .refusal import refused, shape_text
from .strides import repeats
from .values import known_lengths, known_starts

_DTYPES = ("float16", "bfloat16", "float32")
_HOST_DTYPES = (*_DTYPES, "float64")
_SAME_HELP = "caches, new rows and q have one element type, and live on one device"
_NARROW_HELP = "a cache of 8 bits holds k and v in one type; k_new, v_new and q have another one, of 16 bits or more"


class Append(NamedTuple):
    """The arrays of one call, or their facts: rotary is `cos` and `sin`."""

    k_cache: Any
    v_cache: Any
    k_new: Any
    v_new: Any
    kv_lens: Any
    block_table: Any = None
    cu_seqlens_q: Any = None
    cos: Any = None
    sin: Any = None
    q: Any = None
    k_scale: Any = None
    v_scale: Any = None

    def given(self) -> Iterator[tuple[str, Any]]:
        """Those that the call brings, by name."""
        return ((name, value) for name, value in zip(self._fields, self, strict=True) if value is not None)


def split_rotary(rotary: Any, interleaved: Any, q: Any) -> tuple[Any, Any]:
    """cos and sin, or two None. AttnccError A627 where `rotary` is no pair, or q or `interleaved` comes without it."""
    if not isinstance(interleaved, bool):
        raise _bad_rotary("`interleaved` can't be used", "True or False", f"{interleaved!r:.60}")
    if rotary is None:
        if interleaved:
            what, expected = "`interleaved` comes without `rotary`", "rotary=(cos, sin) beside it"
            raise _bad_rotary(what, expected, "rotary=None", "pass cos and sin, or leave interleaved out")
        if q is not None:
            raise _bad_rotary("`rotary` is missing", "rotary=(cos, sin) beside q", "q alone", "leave q away")
        return None, None
    if not isinstance(rotary, tuple | list) or len(rotary) != 2 or any(item is None for item in rotary):
        raise _bad_rotary("`rotary` can't be used", "a pair (cos, sin)", f"{rotary!r:.60}")
    return rotary[0], rotary[1]


def check_appended(call: Append, q_offset: Any) -> None:
    """Of a call of a kernel that brings new rows. AttnccError A628 where it lacks what goes with them, or says where
    queries are."""
    expected = "k_new, v_new and kv_lens together, and rotary and interleaved only with them"
    if call.k_new is None and call.v_new is None:
        name = "interleaved" if call.q is None else "rotary"  # q is there to be rotated
        help_ = f"pass k_new=… and v_new=…, or leave {name} out"
        raise refused("A628", f"`{name}` comes without new rows", expected=expected, came="no k_new", help=help_)
    missing = [name for name in ("k_new", "v_new", "kv_lens") if getattr(call, name) is None]
    if missing:
        what = f"new rows come without `{missing[0]}`"
        raise refused("A628", what, expected=expected, came=f"no {' and no '.join(missing)}")
    if q_offset is not None:
        help_ = "leave q_offset out: the last query is at the last key; or call attncc.append first"
        raise refused("A628", "new rows come with `q_offset`", expected="no q_offset", came="q_offset", help=help_)


def bind_append(call: Append, layout: object) -> Problem:
    """The problem that a call poses, by the facts of its arrays: `q_len` are the new rows, `kv_len` is the room that
    each sequence has. Looks at no array's contents.

    AttnccError A6xx for the first argument that can't be used.
    """
    check_layout(layout)
    for name in ("k_cache", "v_cache", "k_new", "v_new", "q"):
        if getattr(call, name) is not None:
            _check_operand(call, name, getattr(call, name))
    problem = _sizes(call, str(layout))
    _check_shapes(call, problem)
    for name in ("cu_seqlens_q", "kv_lens", "block_table"):
        argument, facts = ARGUMENTS[name], getattr(call, name)
        if facts is not None:
            assert argument.shape is not None
            check_array(argument, argument.shape, facts, problem)
            _check_device(call, name, facts)
    for name in SCALES:
        if getattr(call, name) is not None:
            _check_scale(call, name, problem)
    if call.cos is not None:
        _check_angles(call)
    return problem


def _check_operand(call: Append, name: str, facts: ArrayFacts) -> None:
    rank = 3 if call.cu_seqlens_q is not None and not name.endswith("cache") else 4
    if len(facts.shape) != rank:
        came = f"rank {len(facts.shape)}, shape {shape_text(facts.shape)}"
        help_ = "rows that are packed have rank 3 and come with cu_seqlens_q; all others, and caches, have rank 4"
        raise refused("A601", f"`{name}` has the wrong rank", expected=f"rank {rank}", came=came, help=help_)
    narrow = name.endswith("cache") and call.k_cache.dtype in KV_DTYPES.values()
    own = call.k_cache.dtype if narrow else _rows_dtype(call)
    allowed: tuple[str, ...] = (own,) if narrow else _HOST_DTYPES if facts.device == "cpu" else _DTYPES
    if facts.dtype != own or own not in allowed:
        expected = own if own in allowed else " or ".join(allowed)
        what = f"`{name}` has the wrong element type"
        help_ = _NARROW_HELP if call.k_cache.dtype in KV_DTYPES.values() else _SAME_HELP
        raise refused("A604", what, expected=expected, came=facts.dtype, help=help_)
    _check_device(call, name, facts)
    check_last_axis(name, facts)
    if name.endswith("cache") and repeats(facts.shape, facts.strides):
        what, expected = f"`{name}` has strides that can't be written", "no stride of 0"
        raise refused("A617", what, expected=expected, came=f"strides {shape_text(facts.strides)}")


def _rows_dtype(call: Append) -> str:
    """The element type of new rows and of q: the caches', unless these have 8 bits."""
    narrow = call.k_cache.dtype in KV_DTYPES.values()
    return str(call.k_new.dtype if narrow else call.k_cache.dtype)


def _check_device(call: Append, name: str, facts: ArrayFacts) -> None:
    own = call.k_cache.device
    if facts.device != own:
        what = f"`{name}` is on another device than `k_cache`"
        raise refused("A605", what, expected=own, came=facts.device, help="all arrays of a call live on one device")


def _sizes(call: Append, layout: str) -> Problem:
    heads, length = (-3, -2) if layout == "bhsd" else (-2, -3)
    packed, table = call.cu_seqlens_q is not None, call.block_table
    page = None if table is None else page_rows("k_cache", call.k_cache, length)
    return Problem(
        batch=max((*call.cu_seqlens_q.shape, 0)[0] - 1, 0) if packed else call.k_new.shape[0],
        num_heads=0 if call.q is None else call.q.shape[heads],
        num_kv_heads=call.k_new.shape[heads],
        q_len=call.k_new.shape[length],
        kv_len=call.k_cache.shape[length] * (1 if table is None else (0, *table.shape)[-1]),
        head_dim=call.k_new.shape[-1],
        value_head_dim=call.v_new.shape[-1],
        layout=layout,
        packed=packed,
        cached=True,
        page=page,
    )


def _check_shapes(call: Append, problem: Problem) -> None:
    rows, caches = call.k_new.shape, call.k_cache.shape
    like = f"as k_new {shape_text(rows)} and k_cache {shape_text(caches)} have it in layout {problem.layout}"
    shapes = {
        "v_new": problem.rows_shape(problem.num_kv_heads, problem.q_len, problem.value_head_dim),
        "q": problem.rows_shape(problem.num_heads, problem.q_len, problem.head_dim),
        "k_cache": problem.keys_shape(caches[0], problem.head_dim),
        "v_cache": problem.keys_shape(caches[0], problem.value_head_dim),
    }
    for name, expected in shapes.items():
        facts = getattr(call, name)
        if facts is not None and facts.shape != expected:
            what = f"the shape of `{name}` doesn't go with the others"
            raise refused("A602", what, expected=f"{shape_text(expected)}, {like}", came=shape_text(facts.shape))
    if problem.kv_len > MAX_LENGTH:
        most = f"at most {MAX_LENGTH} positions"
        raise refused("A615", "`k_cache` is too long", expected=most, came=problem.kv_len)


def _check_scale(call: Append, name: str, problem: Problem) -> None:
    if call.k_cache.dtype not in KV_DTYPES.values():
        expected, help_ = f"caches of {' or '.join(KV_DTYPES.values())}", "leave it out"
        what = f"`{name}` comes with a cache that has no scales"
        raise refused("A629", what, expected=expected, came=call.k_cache.dtype, help=help_)
    argument, facts = ARGUMENTS[name], getattr(call, name)
    assert argument.shape is not None
    check_array(argument, argument.shape, facts, problem)
    check_scales(name, facts, problem, call.k_cache.shape[0])
    _check_device(call, name, facts)


def _check_angles(call: Append) -> None:
    for name in ("cos", "sin"):
        facts, dtypes = getattr(call, name), dict.fromkeys((_rows_dtype(call), "float32"))
        pairs = facts.shape[-1] if len(facts.shape) == 2 else 0
        if facts.dtype not in dtypes or not 0 < 2 * pairs <= call.k_new.shape[-1]:
            raise _bad_rotary(
                f"`{name}` can't be used",
                f"{' or '.join(dtypes)} [positions, rotary dim / 2], rotary dim at most {call.k_new.shape[-1]}",
                f"{facts.dtype}, shape {shape_text(facts.shape)}",
            )
        _check_device(call, name, facts)
        check_last_axis(name, facts)
    if call.cos.shape != call.sin.shape or call.cos.dtype != call.sin.dtype:
        came = " and ".join(f"{facts.dtype} {shape_text(facts.shape)}" for facts in (call.cos, call.sin))
        raise _bad_rotary("`cos` and `sin` don't go together", "one shape and one element type", came)


def _bad_rotary(what: str, expected: str, came: str, help_: str = "") -> Exception:
    return refused("A627", what, expected=expected, came=came, help=help_)


def know_rows(problem: Problem, arrays: Mapping[str, Any]) -> Problem:
    """The problem with lengths and starts known, from NumPy arrays. AttnccError A616, A625, A627 for contents that
    can't be."""
    known = replace(
        problem,
        q_starts=known_starts("cu_seqlens_q", arrays.get("cu_seqlens_q"), problem.q_len),
        kv_lens=known_lengths(arrays["kv_lens"], problem),
    )
    cos = arrays.get("cos")
    for b, _, new, _, length, _ in known.sequences():
        if cos is not None and new and length > len(cos):
            what, expected = f"`rotary` ends before the keys of sequence {b}", "a row of cos and sin for each position"
            raise _bad_rotary(what, expected, f"{len(cos)} rows, {length} keys", "make cos and sin longer")
        if problem.page is not None:
            _check_pages(b, arrays, problem.page, range(max(length - new, 0), length))
    return known


def _check_pages(b: int, arrays: Mapping[str, Any], page: int, positions: range) -> None:
    """A625 if the table names no page for one of the positions."""
    if not positions:
        return
    first, last = positions[0] // page, positions[-1] // page
    used, pages = arrays["block_table"][b, first : last + 1], len(arrays["k_cache"])
    if used.min() < 0 or used.max() >= pages:
        raise refused(
            "A625",
            f"`block_table` names pages that there aren't, for sequence {b}",
            expected=f"0 to {pages - 1} in entries {first} to {last}, which get its new keys",
            came=str(used.tolist()),
            help="give the sequence pages before its new keys come",
        )
