"""Texts of kernels, each made once: many tests call one kernel, and its text takes as long as a small launch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache

from attncc.codegen.render import KernelSource, render, render_helper
from attncc.kernels.helpers.helper import HelperKernel

rendered = lru_cache(maxsize=200)(render)


@dataclass(frozen=True)
class _Asked:
    """A helper kernel, by all that its text depends on."""

    key: Hashable
    helper: HelperKernel = field(compare=False)


def rendered_helper(helper: HelperKernel) -> KernelSource:
    plan = None if helper.facts is None else helper.facts.plan
    named = helper.name, helper.template, helper.what, helper.entry, helper.parameters
    sizes = helper.threads, helper.shared_bytes, helper.prints_variant
    return _rendered_helper(_Asked((named, sizes, tuple(sorted(helper.values.items())), plan), helper))


@lru_cache(maxsize=200)
def _rendered_helper(asked: _Asked) -> KernelSource:
    return render_helper(asked.helper)
