"""Compiles and writes packages. A folder appears whole or not at all, whatever interrupts the build."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..compiler import NO_DEFINES, Defines, compiled
from ..diagnostics import AttnccError, Diagnostic
from ..runtime.nvrtc import Resources
from ..runtime.package_store import MANIFEST, PLAN_SUFFIX
from ..runtime.store import MachineCode, kernel_name
from ..source import SourceFile
from .package import DEFAULT_ARCHS, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS, VariantPackage, prepare
from .staging import check_replaceable, earlier_variants, staged
from .text import root_text

Compiled = tuple[MachineCode, Resources]
Advance = Callable[[str], None]  # called with the name of each kernel that is done


@dataclass(frozen=True)
class BuiltVariant:
    """A variant that was written to `folder`, with what ptxas said of each of its kernels."""

    name: str
    folder: Path
    resources: Mapping[str, Resources]


def build(
    spec: Path | str | SourceFile,
    out: Path | str = "generated",
    *,
    archs: Sequence[str] = DEFAULT_ARCHS,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    head_dims: Sequence[int | tuple[int, int]] = DEFAULT_HEAD_DIMS,
    defines: Defines = NO_DEFINES,
    jobs: int | None = None,
    advance: Advance | None = None,
) -> tuple[BuiltVariant, ...]:
    """`write(prepare(spec, …), out, …)`: all variants of one spec, as a package in the folder `out`."""
    packages = prepare(spec, archs=archs, dtypes=dtypes, head_dims=head_dims, defines=defines)
    return write(packages, Path(out), jobs=jobs, advance=advance)


def write(
    packages: Sequence[VariantPackage], out: Path, *, jobs: int | None = None, advance: Advance | None = None
) -> tuple[BuiltVariant, ...]:
    """Compiles every kernel, `jobs` at a time (all cores), then writes one folder for each variant and `__init__.py`.

    Variants of the same names are replaced, others that earlier builds left in `out` stay. Interrupted or failing, it
    leaves `out` as it was. AttnccError A512 if there is no variant, A519 if two have one name, A515 if `out` holds
    something else under these names, A516 if it can't be written, A5xx or A9xx from the compiler.
    """
    _check_names(packages)
    check_replaceable(out, [package.name for package in packages])
    codes = _compile(packages, jobs or os.cpu_count() or 1, advance)
    try:
        return tuple(_write_all(packages, out, codes))
    except OSError as error:
        raise AttnccError(
            Diagnostic("A516", f"{out} can't be written: {error}", help="choose another folder with -o")
        ) from None


def _check_names(packages: Sequence[VariantPackage]) -> None:
    """AttnccError A512 if there is nothing to build, A519 if two variants would share a folder."""
    if not packages:
        what = "there is no variant to build: what was given holds masks alone"
        raise AttnccError(Diagnostic("A512", what, help="build the files that import them"))
    origins: dict[str, str] = {}
    for package in packages:
        if package.name in origins:
            raise AttnccError(
                Diagnostic(
                    "A519",
                    f"two variants of one package are named {package.name}",
                    notes=(f"one is in {origins[package.name]}", f"one is in {package.origin}"),
                    help="rename one, or build them to two folders with -o",
                )
            )
        origins[package.name] = package.origin


def _compile(packages: Iterable[VariantPackage], jobs: int, advance: Advance | None) -> dict[str, Compiled]:
    sources = {name: item for package in packages for name, item in package.sources.items()}
    codes: dict[str, Compiled] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(compiled, *item): name for name, item in sources.items()}
        try:
            for done in as_completed(running):
                codes[running[done]] = done.result()
                if advance is not None:
                    advance(running[done])
        except BaseException:  # the first failure, or Ctrl-C: what hasn't begun won't
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return codes


def _write_all(packages: Sequence[VariantPackage], out: Path, codes: Mapping[str, Compiled]) -> Iterator[BuiltVariant]:
    with staged(out) as folder:
        for package in packages:
            _write_variant(folder / package.name, package, codes)
        names = {package.name for package in packages} | set(earlier_variants(out))
        (folder / "__init__.py").write_text(root_text(names), encoding="utf-8")
    for package in packages:
        resources = {name: codes[name][1] for name in package.sources}
        yield BuiltVariant(package.name, out / package.name, resources)


def _write_variant(folder: Path, package: VariantPackage, codes: Mapping[str, Compiled]) -> None:
    folder.mkdir()
    for name, text in package.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in package.sources:
        (folder / f"{name}.cubin").write_bytes(codes[name][0].image)
    manifest = {
        "attncc": __version__,
        "variant": package.name,
        "kernels": {name: _entry(package, name, *codes[name]) for name in package.sources},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _entry(package: VariantPackage, name: str, code: MachineCode, resources: Resources) -> dict[str, Any]:
    """What the manifest says of a kernel. Sizes are bytes; `shared_bytes` is all that a block takes."""
    has_plan = name in map(kernel_name, package.plans)
    return {
        "target": package.sources[name][1],
        "entry": code.entry,
        "threads": code.threads,
        "registers": resources.registers,
        "spill_stores": resources.spill_stores,
        "spill_loads": resources.spill_loads,
        "shared_bytes": resources.shared_bytes + code.shared_bytes,
        "dynamic_shared_bytes": code.shared_bytes,
        "compile_seconds": resources.compile_seconds,
        "messages": list(resources.messages),
        "plan": f"{name}{PLAN_SUFFIX}" if has_plan else None,
        "nvrtc": code.nvrtc,
    }
