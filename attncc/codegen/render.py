"""A plan becomes one readable CUDA file that compiles alone: Jinja2 template, printed functions, leaf code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from .. import resources
from ..diagnostics import AttnccError, Diagnostic
from ..kernels import legality
from ..kernels.helpers.helper import HelperKernel
from ..kernels.kernel_names import kernel_name
from ..kernels.registry import facts_of
from ..schedule.plan import KernelPlan
from ..schedule.target import TARGETS
from . import header
from .contents import with_contents
from .empty_calls import without_empty_calls
from .layout import laid_out
from .line_marks import restored
from .structs import params_struct
from .thin_layers import without_thin_layers
from .unused import LEAF_END, without_unused
from .user_code import user_code
from .wgmma import products

_INCLUDE = re.compile(r'^#include "(\w+/\w+\.cuh)"\n', re.M)  # a path in templates/


@dataclass(frozen=True)
class KernelSource:
    """One CUDA file: `name` is its stem, `entry` the kernel's name in it; `shared_bytes` is dynamic shared memory."""

    name: str
    text: str
    entry: str
    threads: int
    shared_bytes: int


def render(plan: KernelPlan) -> KernelSource:
    """The kernel of a plan. The text depends on the plan, the templates and the paths of the spec alone."""
    facts, entry, name = facts_of(plan), f"{plan.variant.name}_{plan.pass_name}", kernel_name(plan)
    text = _fill(
        facts.template,
        name,
        plan=plan,
        facts=facts,
        dtype=plan.dtype,
        tile_order=plan.tile_order,
        entry=entry,
        code=user_code(plan),
        header=header.of_plan(plan),
        wgmma=products(facts),
        vector_atomics=TARGETS[plan.target].vector_atomics,
    )
    return KernelSource(name, text, entry, facts.threads, sum(legality.shared_memory(plan).values()))


def render_helper(helper: HelperKernel) -> KernelSource:
    """A kernel that runs before or after that of a plan."""
    entry, facts = helper.entry, helper.facts
    values: dict[str, Any] = {"entry": entry, "threads": helper.threads, "header": header.of_prepass(helper.what)}
    if facts is not None:
        plan = facts.plan
        values |= {"plan": plan, "facts": facts, "dtype": plan.dtype, "tile_order": plan.tile_order}
    if facts is not None and helper.prints_variant:
        values |= {"code": user_code(facts.plan, tests_tiles=True)}
    else:
        values |= {"params_struct": params_struct(helper.parameters)}
    text = _fill(helper.template, helper.name, **values, **helper.values)
    return KernelSource(helper.name, text, entry, helper.threads, helper.shared_bytes)


def _fill(path: str, name: str, /, **values: Any) -> str:
    try:
        text = _environment().get_template(path).render(values)
    except jinja2.TemplateError as error:
        raise AttnccError(
            Diagnostic(
                "A903",
                f"the template {path} failed: {type(error).__name__}: {error}",
                help="this is a defect of attncc: please report it with the .attn file",
            )
        ) from error
    return assemble_kernel(text, name)


def assemble(text: str, name: str) -> str:
    """A file from its text: leaf files in place of their `#include`s, `#line` marks resolved to `name`.cu."""
    return restored(_squeezed(_inlined(text).replace(f"{LEAF_END}\n", "")), f"{name}.cu")


def assemble_kernel(text: str, name: str) -> str:
    """The same for a kernel: without what it doesn't use, laid out to be read, with a table of contents."""
    needed = without_unused(without_thin_layers(without_empty_calls(_inlined(text))))
    return restored(with_contents(laid_out(_squeezed(needed))), f"{name}.cu")


def _inlined(text: str) -> str:
    """The text with each leaf file in place of its first `#include`, under its name."""
    seen: set[str] = set()

    def leaf(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        content = resources.read("templates", *name.split("/"))
        before = _INCLUDE.match(content)  # what a leaf needs stands above it
        needed = ""
        while before is not None:
            needed += leaf(before)
            content = content[before.end() :]
            before = _INCLUDE.match(content)
        return f"{needed}\n// ---- {name.split('/')[1]}\n\n{content.strip()}\n\n{LEAF_END}\n"

    return _INCLUDE.sub(leaf, text)


def _squeezed(text: str) -> str:
    """One empty line where several would follow each other, none inside a brace or below the name of a leaf file;
    nothing in empty braces, no blanks at the ends of lines."""
    # Patterns begin with fixed text, which `re` finds at once, and look behind for what must stand before it.
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    text = re.sub(r"\{\n\n+", "{\n", text)
    text = re.sub(r"(// ---- (?<=^// ---- )\S+\n)\n+", r"\1", text, flags=re.M)
    text = re.sub(r"\n\n+(?= *\};?\n)", "\n", text)
    text = re.sub(r"\{(?<=[) ]\{)\n *\}", "{}", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    """Line statements and `${}`, so that a template stays CUDA to an editor. Undefined names are errors."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.folder("templates")),
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="//%",
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
