"""The Python text of a package: one function for each variant, with its arguments and what they mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ..codegen.line_marks import shown_path
from ..ir import Input, Variant
from ..problem.call_arguments import APPENDED, ARGUMENTS, STREAM, Arguments
from ..quoting import python_comment, python_docstring
from ..schedule.plan import KernelPlan
from ..version import __version__

MARK = "# Written by attncc"  # how a file begins that a build may replace

_WIDTH = 100

# What a package without some kernels does in their place, by the option of `attncc build` that makes them.
_LACKING = {
    "decode": "decode (calls with few queries run the forward kernel)",
    "serving": "serving (block_table, shared_prefix and k_new raise A505 on a GPU)",
    "backward": "backward (gradients of arrays on a GPU raise A520)",
}

# What a call with new rows does first. No input has a name that begins with `_`.
_APPEND = """\
    if k_new is not None or v_new is not None or rotary is not None or interleaved is not False:
        _new = k_new, v_new, rotary, interleaved
        _where = kv_lens, block_table, cu_seqlens_q, q_offset, layout, stream, k_scale, v_scale
        q = _package.kernel.appended(q, k, v, _new, *_where)
"""


_COMMON = (*ARGUMENTS.values(), STREAM, *APPENDED)  # arguments of every variant, in the order of signatures


def lacking(plans: Sequence[KernelPlan]) -> tuple[str, ...]:
    """The options whose kernels a package of these plans has not. Of e4m3 there are none but for pages."""
    made = {plan.pass_name for plan in plans} | {"serving" for plan in plans if plan.paged}
    return tuple(name for name in _LACKING if name not in made and plans[0].dtype != "e4m3")


def root_text(names: Iterable[str]) -> str:
    """The package's own `__init__.py`: `from generated import causal` gives the callable."""
    ordered = sorted(names)
    imports = "".join(f"from .{name} import {name}\n" for name in ordered)
    exported = "".join(f'    "{name}",\n' for name in ordered)
    return (
        f"{MARK} {__version__}. Do not edit: `attncc build` writes this file anew.\n"
        f'"""Attention kernels, one function for each variant."""\n\n{imports}\n__all__ = [\n{exported}]\n'
    )


RUNTIME = "attncc.runtime.package"  # what the files of variants import


def init_text(variant: Variant, plans: Sequence[KernelPlan], origin: str, runtime: str = RUNTIME) -> str:
    """The `__init__.py` of one variant."""
    common = (f"{item.declaration}," for item in _COMMON)
    parameters = textwrap.indent("\n".join([*map(_parameter, variant.inputs), *common]), "    ")
    names = [item.name for item in variant.inputs]
    of_call = "_inputs" if names else "_unknown"
    passed = "".join(f"            {name},\n" for name in ("q", "k", "v", of_call, *Arguments._fields[4:]))
    brought = ", given as _given" * bool(names)
    return (
        f"{MARK} {__version__} from {python_comment(shown_path(origin))}. "
        "Do not edit: `attncc build` writes this file anew.\n"
        f"{_docstring(_module_lines(variant, plans), '')}\n\n"
        "from __future__ import annotations\n\n"
        f"from {runtime} import Array, Package, Scalar, Stream, Unknown{brought}\n\n"
        "_package = Package(__file__)\n\n\n"
        f"{_export(plans)}"
        f"def {variant.name}(\n    q: Array,\n    k: Array,\n    v: Array,\n    *,\n{parameters}\n"
        "    **_unknown: Unknown,  # refused by the kernel, with the name that was meant\n) -> Array:\n"
        f"{_docstring(_function_lines(variant), '    ')}\n"
        f"{_APPEND}{_inputs(names)}"
        f"    return _package.kernel.called(\n        (\n{passed}        ),\n        stream,\n    )\n"
    )


def _inputs(names: Sequence[str]) -> str:
    """Makes `_inputs`, those that the call brings: a kernel says which are missing, and which it doesn't know."""
    if not names:
        return ""
    shown = "".join(f'        "{name}": {name},\n' for name in names)
    *above, last = textwrap.wrap(" or ".join(f"{name} is None" for name in names), _WIDTH)
    condition = "(\n" + "".join(f"        {line}\n" for line in (*above, last)) + "    )" if above else last
    return (
        f"    _inputs = {{\n{shown}        **_unknown,\n    }}\n"
        f"    if {condition}:\n        _inputs = _given(**_inputs)\n"
    )


def _export(plans: Sequence[KernelPlan]) -> str:
    """The decorator, which tells what there are kernels for: dtype, head dim of q and k, head dim of v."""
    built = dict.fromkeys((plan.dtype, plan.head_dim, plan.value_head_dim) for plan in plans)
    rows = "".join(f'        ("{dtype}", {head_dim}, {value}),\n' for dtype, head_dim, value in built)
    return f"@_package.exported(\n    configurations=(\n{rows}    )\n)\n"


def _parameter(item: Input) -> str:
    kind = "Array" if item.axes else "Scalar"
    missing = "" if item.default is None else " | None = None"
    return f"{item.name}: {kind}{missing},  # {python_comment(_declared(item))}"


def _declared(item: Input) -> str:
    axes = f"[{', '.join(map(str, item.axes))}]" if item.axes else ""
    return f"{item.dtype}{axes}" + " nondecreasing" * item.nondecreasing + " learnable" * item.learnable


def _module_lines(variant: Variant, plans: Sequence[KernelPlan]) -> Iterator[str]:
    yield from _documentation(variant)
    yield ""
    yield from variant.show().split("\n")
    yield ""
    yield "Kernels:"
    for plan in plans:
        dims = f"{plan.head_dim}" if plan.head_dim == plan.value_head_dim else f"{plan.head_dim}:{plan.value_head_dim}"
        tile = f"{plan.block_q} x {plan.block_kv}"
        of = f"{plan.pass_name} {plan.dtype}{_caches_of(plan)}"
        yield f"    {of}, head dim {dims}, {plan.target}: {plan.loop}, tiles of {tile}"
    absent = lacking(plans)
    if absent:
        yield ""
        options, *without = " ".join(f"--{name}" for name in absent), *(_LACKING[name] for name in absent)
        listed = " and ".join(filter(None, [", ".join(without[:-1]), without[-1]]))
        yield from _filled(f"Without {listed}; `attncc build FILE {options}` makes them.")


def _caches_of(plan: KernelPlan) -> str:
    """What tells kernels of certain caches from those for all calls."""
    kind, kv_dtype = "pages" if plan.paged else "caches", "" if plan.kv_dtype is None else f" of {plan.kv_dtype}"
    over = f" over {kind}{kv_dtype}" if plan.paged or kv_dtype else ""
    rows = f" of {plan.least_rows} rows and more" if plan.least_rows else ""
    one_block = ", dense, with a thread block for each multiprocessor" * plan.one_block
    split = ", with splits of the keys" * plan.split + ", without clusters" * plan.unclustered
    return over + " with a shared prefix" * plan.prefixed + rows + one_block + split


def _function_lines(variant: Variant) -> Iterator[str]:
    yield from _documentation(variant)
    yield ""
    for name, text in _arguments(variant):
        yield from _filled(f"{name}: {text}", "    ")
    yield ""
    yield from _filled(
        "Arrays of int32 may come as int64, with numbers that fit in int32: each call copies them. The CPU refuses "
        "other numbers; a GPU takes their low 32 bits."
    )
    yield ""
    yield from _filled(
        "Returns out [batch, heads, q_len, value head dim] in q's dtype and framework, with return_lse (out, lse). "
        "A row that keeps no key is 0, its lse -inf. On a GPU the call returns at once; NumPy arrays and CPU tensors "
        "run on the CPU executor. Raises attncc.AttnccError before any launch if an argument doesn't suit."
    )
    yield ""
    yield from _filled(
        f"Torch tensors that require a gradient are recorded by autograd; `{variant.name}.backward(dout, q, k, v, out, "
        "lse, ...)` gives the gradients of any arrays: on a GPU where the package was built with --backward."
    )


def _documentation(variant: Variant) -> Iterator[str]:
    """The comment above the variant, its paragraphs filled."""
    text = variant.documentation.strip() or f"Attention variant {variant.name}."
    for number, paragraph in enumerate(text.split("\n\n")):
        yield from [""] * (number > 0)
        yield from _filled(" ".join(paragraph.split()))


def _arguments(variant: Variant) -> Iterator[tuple[str, str]]:
    yield "q", "[batch, heads, q_len, head dim]"
    yield "k, v", "[batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads"
    for item in variant.inputs:
        missing = "" if item.default is None else f", all {item.default:g} if not given"
        yield item.name, _declared(item) + ("" if item.axes else ", a number or a 0-d array") + missing
    for text, items in groupby(_COMMON, lambda item: item.described(variant)):
        yield ", ".join(item.name for item in items), text


def _filled(text: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH - 8, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def _docstring(lines: Iterable[str], indent: str) -> str:
    text = "\n".join(f"{indent}{line}".rstrip() for line in lines).strip()
    return f'{indent}"""{python_docstring(text)}\n{indent}"""'
