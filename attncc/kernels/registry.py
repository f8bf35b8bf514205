"""Finds the family of a plan. Each is loaded when it is first asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import cast

from ..schedule.families import FAMILIES, KINDS
from ..schedule.plan import FRAGMENT, Build, KernelPlan
from ..schedule.target import TARGETS
from .backward_facts import BackwardFacts
from .facts import Facts, ForwardFacts
from .family import Family


@cache
def load(name: str) -> Family:
    """The family in the folder of this name."""
    return cast(Family, import_module(f"{__package__}.{name}").FAMILY)


@cache
def find(kind: str, pass_name: str) -> Family | None:
    """That of a value of the knob `family`, and of a pass, if there is one."""
    named = (load(name) for name, value in FAMILIES.items() if value == kind)
    return next((family for family in named if pass_name in family.passes), None)


def why_not(kind: str, pass_name: str) -> str:
    """Why `find` finds nothing."""
    named = (load(name) for name, value in FAMILIES.items() if value == kind)
    return next(family.lacked_passes[pass_name] for family in named if pass_name in family.lacked_passes)


def kinds(build: Build, loop: str) -> tuple[str, ...]:
    """The values of the knob `family` that have such kernels, the fastest first."""
    found = {kind: find(kind, build.pass_name) for kind in dict.fromkeys(FAMILIES.values())}
    return tuple(kind for kind, family in found.items() if family is not None and family.lacks(build, loop) is None)


def most_general(build: Build, loop: str) -> str:
    """The kind whose refusal tells most, where none has such kernels: one that would have them on another target, or
    else in another loop order."""
    for kind in KINDS:
        family = find(kind, build.pass_name)
        if family is None or any(family.lacks(replace(build, target=name), loop) is None for name in TARGETS):
            return kind
    for kind in KINDS:  # one that would have them in another loop order
        family = find(kind, build.pass_name)
        if family is not None and any(family.lacks(replace(build, target=name), "q_outer") is None for name in TARGETS):
            return kind
    return KINDS[-1]


def targets_of(dtype: str, pass_name: str = "forward") -> tuple[str, ...]:
    """Those that have kernels of a dtype."""
    builds = (Build(pass_name, name, dtype, FRAGMENT, FRAGMENT) for name in TARGETS)
    return tuple(build.target for build in builds if kinds(build, "q_outer"))


def has_own_kernel(build: Build) -> bool:
    """Whether what `OwnKernel` tells of a build has a kernel of its own."""
    family = next((find(kind, build.pass_name) for kind in kinds(build, "q_outer")), None)
    return family is not None and family.has_own_kernel(build)


def family_of(plan: KernelPlan) -> Family:
    family = find(plan.family, plan.pass_name)
    assert family is not None, f"{plan.family} has no kernels of the pass {plan.pass_name}"
    return family


def facts_of(plan: KernelPlan) -> Facts:
    """What follows from a plan."""
    return family_of(plan).facts(plan)


def forward_facts(plan: KernelPlan) -> ForwardFacts:
    """The same of a plan of a forward pass."""
    return cast(ForwardFacts, facts_of(plan))


def backward_facts(plan: KernelPlan) -> BackwardFacts:
    """The same of a plan of a backward pass."""
    return cast(BackwardFacts, facts_of(plan))
