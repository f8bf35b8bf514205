"""What a package holds: for each variant its plans, its CUDA files and the text of its `__init__.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from ..codegen.render import KernelSource
from ..compiler import NO_DEFINES, Defines, Specification, check_cache_dtype, check_dtype, check_targets, specify
from ..diagnostics import warn
from ..kernels.candidates import Candidates
from ..kernels.kernel_names import kernel_name, separate_dq_name
from ..kernels.launched import kernel_names
from ..kernels.registry import facts_of
from ..machine_code import kernel_sources
from ..problem.shared_prefix import may_share
from ..quoting import json_text
from ..runtime.store.package_store import PLAN_SUFFIX
from ..runtime.store.store import Configuration
from ..schedule.plan import BACKWARD_PASSES, OWN_KERNELS, UNCLUSTERED, KernelPlan, OwnKernel
from ..schedule.plan_json import to_json
from ..semantics.constants import checked_defines
from ..semantics.load import load
from ..semantics.reach import Folders
from ..settle import Settled
from ..source import SourceFile
from ..spec_text import read
from .text import RUNTIME, init_text, root_text

DEFAULT_ARCHS = ("sm_80", "sm_90a")
DEFAULT_DTYPES = ("bf16",)
DEFAULT_HEAD_DIMS = (64, 128)


@dataclass(frozen=True)
class VariantPackage:
    """One variant of a package: a plan for each configuration, target and pass."""

    specification: Specification
    origin: str  # where the spec was read, as generated files show it
    candidates: tuple[Candidates, ...]
    plans: tuple[KernelPlan, ...]  # the first of each kernel, until compilation has settled it; see `launched`
    rendered: Mapping[str, KernelSource] = field(default_factory=dict)  # kernels of the plans, by name, if any
    runtime: str = RUNTIME  # the module that runs it

    @property
    def name(self) -> str:
        return self.specification.variant.name

    @property
    def kernel_names(self) -> set[str]:
        """Those of every kernel of the plans."""
        return {name for plan in self.plans for name in kernel_names(plan)}

    @cached_property
    def sources(self) -> dict[str, tuple[KernelSource, str]]:
        """Every CUDA file by name, and the target that it is for. Kernels that several plans need stand once."""
        return {
            name: (source, plan.target)
            for plan in self.plans
            for name, source in kernel_sources(plan, self.rendered.get(kernel_name(plan))).items()
        }

    def settled(self, found: Mapping[str, Settled]) -> VariantPackage:
        """The package with the plans that compilation has chosen, by the names of kernels."""
        names = [kernel_name(item.first) for item in self.candidates]
        own = [found[name] for name in names if name in found]
        rendered = {kernel_name(item.plan): item.source for item in own}
        return replace(self, plans=launched(item.plan for item in own), rendered=rendered)

    def files(self) -> dict[str, str]:
        """The texts of the variant's folder, by file name: all of it but the machine code and the manifest."""
        texts = {"__init__.py": init_text(self.specification.variant, self.plans, self.origin, self.runtime)}
        texts |= {f"{name}.cu": source.text for name, (source, _) in self.sources.items()}
        return texts | {f"{kernel_name(plan)}{PLAN_SUFFIX}": plan_text(plan) for plan in self.plans}


def launched(plans: Iterable[KernelPlan]) -> tuple[KernelPlan, ...]:
    """Those that calls may run: without the passes `backward_dq` whose work `backward` does."""
    given = tuple(plans)
    separate = {separate_dq_name(plan) for plan in given if facts_of(plan).separates_dq}
    return tuple(plan for plan in given if plan.pass_name != "backward_dq" or kernel_name(plan) in separate)


def prepare(
    spec: Path | str | SourceFile,
    *,
    archs: Sequence[str] = DEFAULT_ARCHS,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    head_dims: Sequence[int | tuple[int, int]] = DEFAULT_HEAD_DIMS,
    defines: Defines = NO_DEFINES,
    decode: bool = False,
    backward: bool = False,
    serving: bool = False,
    kv_dtypes: Sequence[str] = (),
    variants: Iterable[str] | None = None,
    allow_imports: Folders = (),
) -> tuple[VariantPackage, ...]:
    """All variants of a spec, or those named, for every combination of targets, dtypes and head dims (a pair: of q and
    k, of values).

    With `decode` and `backward`, or where a variant has a schedule for them, the kernels of these passes too; without
    those of decode, calls with few queries run the forward kernel. `serving` asks for these, for kernels of caches in
    pages, in which calls bring a block_table, and for those of calls with shared_prefix, of both kinds of caches, where
    the variant may have such calls. `kv_dtypes`, of e4m3 and int8, adds to forward and decode kernels those for caches
    of 8 bits, and asks for those of decode. AttnccError with everything that is wrong with the spec's text, with these
    variants' schedules or with what is asked for. Nothing is compiled yet.
    """
    check_targets(archs)
    for dtype in dtypes:
        check_dtype(dtype, archs)
    source = spec if isinstance(spec, SourceFile) else read(spec)
    program = load(source, checked_defines(defines), allow_imports)
    for warning in program.warnings:
        warn(warning)
    dims = [item if isinstance(item, tuple) else (item, item) for item in head_dims]
    configurations = [
        Configuration(dtype, *pair, paged, kv_dtype, prefixed)
        for dtype, pair, (paged, kv_dtype, prefixed) in product(dtypes, dims, _caches(serving, kv_dtypes))
    ]
    for configuration in configurations:
        check_cache_dtype(configuration)
    names = [variant.name for variant in program.variants] if variants is None else variants
    found = [specify(program, name).serving(*dtypes) for name in names]
    if not (decode or serving or kv_dtypes):
        found = [item.without_unasked_decode() for item in found]
    return tuple(_package(item, source.path, configurations, archs, backward) for item in found)


def _caches(serving: bool, kv_dtypes: Sequence[str]) -> list[tuple[bool, str | None, bool]]:
    """What there are kernels for, as a configuration tells it: pages, type of 8 bits, shared prefix."""
    pages = (False, True) if serving else (False,)
    plain = [(paged, kv_dtype, False) for paged, kv_dtype in product(pages, (None, *kv_dtypes))]
    return plain + [(paged, None, True) for paged in pages if serving]


def _package(
    specification: Specification,
    origin: str,
    configurations: Iterable[Configuration],
    archs: Sequence[str],
    backward: bool,
) -> VariantPackage:
    variant = specification.variant
    own = (item for item in configurations if not item.prefixed or may_share(item.signature(variant)))
    wanted = list(product(dict.fromkeys(own), dict.fromkeys(archs)))
    found = [
        specification.candidates(configuration._replace(**own._asdict()), target)
        for (configuration, target), own in product(wanted, (OwnKernel(), *OWN_KERNELS))
    ]
    if backward or any(schedule.pass_name in BACKWARD_PASSES for schedule in specification.schedules):
        dense = [(configuration, target) for configuration, target in wanted if not configuration.serves_caches]
        found += [
            specification.backward_candidates(configuration._replace(**own._asdict()), target)
            for (configuration, target), own in product(dense, (OwnKernel(), UNCLUSTERED))
        ]
    kernels = tuple(item for several in found for item in several)
    return VariantPackage(specification, origin, kernels, launched(item.first for item in kernels))


def package_files(packages: Iterable[VariantPackage]) -> dict[str, str]:
    """The texts of a whole package, by path relative to its folder: what the repository's `generated/` holds."""
    files: dict[str, str] = {}
    names = []
    for package in packages:
        names.append(package.name)
        files |= {f"{package.name}/{name}": text for name, text in package.files().items()}
    return {"__init__.py": root_text(names), **files}


def plan_text(plan: KernelPlan) -> str:
    """A plan as JSON: a line for each of its facts, and for each part of the variant and of the tile rules."""
    return _json_text(to_json(plan), levels=2) + "\n"


def _json_text(value: Any, levels: int, indent: str = "") -> str:
    if not levels or not isinstance(value, dict):
        return json_text(value)
    inner = indent + " "
    items = (f"{inner}{json_text(key)}: {_json_text(item, levels - 1, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
