"""Compiles and writes packages. A folder appears whole or not at all, whatever interrupts the build."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..compiler import NO_DEFINES, Defines, no_variants
from ..diagnostics import AttnccError, Diagnostic
from ..kernels.candidates import Candidates
from ..kernels.kernel_names import kernel_name, separate_dq_name
from ..kernels.launched import structs
from ..kernels.parameters import struct_digest
from ..kernels.registry import facts_of
from ..machine_code import Compiled, compiled, other_kernels
from ..quoting import json_text
from ..runtime.cuda import nvrtc_pool
from ..runtime.cuda.nvrtc import Resources
from ..runtime.store.manifest import MANIFEST, digest
from ..runtime.store.package_store import CODE_SUFFIX, PLAN_SUFFIX
from ..semantics.reach import Folders
from ..settle import Settled, settle
from ..source import SourceFile
from ..threads import DaemonThreads
from ..version import __version__
from .staging import check_replaceable, earlier_variants, staged
from .text import lacking, root_text
from .variant_package import DEFAULT_ARCHS, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS, VariantPackage, prepare
from .verify import verify

T = TypeVar("T")
Advance = Callable[[str], None]  # called with the name of each kernel that is done
Finish = Callable[[Path], None]  # called with the package's folder once its variants are written


@dataclass(frozen=True)
class BuiltVariant:
    """A variant that was written to `folder`, with what ptxas said of each of its kernels, and which plans they got."""

    name: str
    folder: Path
    resources: Mapping[str, Resources]
    settled: Mapping[str, Settled]


def build(
    spec: Path | str | SourceFile,
    out: Path | str = "generated",
    *,
    archs: Sequence[str] = DEFAULT_ARCHS,
    dtypes: Sequence[str] = DEFAULT_DTYPES,
    head_dims: Sequence[int | tuple[int, int]] = DEFAULT_HEAD_DIMS,
    defines: Defines = NO_DEFINES,
    decode: bool = False,
    serving: bool = False,
    kv_dtypes: Sequence[str] = (),
    backward: bool = False,
    allow_imports: Folders = (),
    jobs: int | None = None,
    advance: Advance | None = None,
) -> tuple[BuiltVariant, ...]:
    """`write(prepare(spec, …), out, …)`: all variants of one spec, as a package in the folder `out`."""
    packages = prepare(
        spec,
        archs=archs,
        dtypes=dtypes,
        head_dims=head_dims,
        defines=defines,
        decode=decode,
        serving=serving,
        kv_dtypes=kv_dtypes,
        backward=backward,
        allow_imports=allow_imports,
    )
    return write(packages, Path(out), jobs=jobs, advance=advance)


def write(
    packages: Sequence[VariantPackage],
    out: Path,
    *,
    jobs: int | None = None,
    advance: Advance | None = None,
    finish: Finish | None = None,
) -> tuple[BuiltVariant, ...]:
    """Compiles every kernel, `jobs` at a time (all cores), then writes one folder for each variant and `__init__.py`.

    Where a schedule leaves the tiles open, a kernel gets the first of its candidates that is good. Variants of the
    same names are replaced, others that earlier builds left in `out` stay. `finish` adds files beside them.
    Interrupted or failing, it leaves `out` as it was. AttnccError A512 if there is no variant, A519 if two have one
    name, A515 if `out` holds something else under these names, A516 if it can't be written, A5xx or A9xx from the
    compiler.
    """
    _check_names(packages)
    with _writing(out):
        check_replaceable(out, [package.name for package in packages])
    with DaemonThreads(jobs or nvrtc_pool.jobs()) as pool:
        settled, others = _compile_all(packages, pool, advance or (lambda name: None))
    with _writing(out):
        return tuple(_write_all([item.settled(settled) for item in packages], out, settled, others, finish))


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """AttnccError A516 for what the file system refuses."""
    try:
        yield
    except OSError as error:
        what = f"{out} can't be written: {error.strerror or error}"
        raise AttnccError(Diagnostic("A516", what, help="choose another folder with -o")) from None


def _check_names(packages: Sequence[VariantPackage]) -> None:
    """AttnccError A512 if there is nothing to build, A519 if two variants would share a folder."""
    if not packages:
        raise no_variants("to build", "build the files that import them")
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


def _compile_all(
    packages: Sequence[VariantPackage], pool: DaemonThreads, advance: Advance
) -> tuple[dict[str, Settled], dict[str, Compiled]]:
    """The plans' own kernels, and those that their launches need besides, by name. No core waits for another: what
    takes longest begins, and the others, all small, follow as soon as a plan is settled."""
    kernels = {kernel_name(item.first): item for package in packages for item in package.candidates}
    wanted = {kernel_name(plan) for package in packages for plan in package.plans}
    settled: dict[str, Settled] = {}
    others: dict[str, Future[Compiled]] = {}
    while wanted:
        begin = sorted(wanted, key=lambda name: _work(kernels[name]), reverse=True)
        for name, item in _finished({name: pool.submit(settle, kernels[name]) for name in begin}, advance):
            settled[name] = item
            for other, what in other_kernels([item.plan]).items():
                if other not in others:
                    others[other] = pool.submit(compiled, *what)
        # A plan that isn't the first of its kernel may need another pass than that.
        plans = [item.plan for item in settled.values()]
        wanted = {separate_dq_name(plan) for plan in plans if facts_of(plan).separates_dq} - set(settled)
    return settled, dict(_finished(others, advance))


def _work(candidates: Candidates) -> tuple[int, str]:
    """What makes a kernel compile for long: its head dims, then its target; sm_90a comes last by name."""
    build = candidates.build
    return build.head_dim + build.value_head_dim, build.target


def _finished(running: Mapping[str, Future[T]], advance: Advance) -> Iterator[tuple[str, T]]:
    """The results as they come, by name; the first failure is raised at once."""
    names = {future: name for name, future in running.items()}
    for done in as_completed(names):
        result = done.result()
        advance(names[done])
        yield names[done], result


def _write_all(
    packages: Sequence[VariantPackage],
    out: Path,
    settled: Mapping[str, Settled],
    others: Mapping[str, Compiled],
    finish: Finish | None,
) -> Iterator[BuiltVariant]:
    codes = {name: item.compiled for name, item in settled.items()} | dict(others)
    with staged(out) as folder:
        for package in packages:
            reports = {
                name: settled[name].report() if name in settled else codes[name].report(target)
                for name, (_, target) in package.sources.items()
            }
            _write_variant(folder / package.name, package, codes, reports)
        names = {package.name for package in packages} | set(earlier_variants(out))
        (folder / "__init__.py").write_text(root_text(names), encoding="utf-8")
        if finish is not None:
            finish(folder)
    for package in packages:
        resources = {name: codes[name].resources for name in package.sources}
        own = {name: settled[name] for name in package.sources if name in settled}
        yield BuiltVariant(package.name, out / package.name, resources, own)


def _write_variant(
    folder: Path, package: VariantPackage, codes: Mapping[str, Compiled], reports: Mapping[str, dict[str, Any]]
) -> None:
    plans = {kernel_name(plan) for plan in package.plans}
    params = {name: struct_digest(fields) for plan in package.plans for name, fields in structs(plan).items()}
    kernels = {
        name: report | {"params": params[name], "plan": f"{name}{PLAN_SUFFIX}" if name in plans else None}
        for name, report in reports.items()
    }
    files = {name: text.encode("utf-8") for name, text in package.files().items()}
    files |= {f"{name}{CODE_SUFFIX}": codes[name].code.image for name in package.sources}
    manifest = {
        "attncc": __version__,
        "variant": package.name,
        "lacks": list(lacking(package.plans)),
        "kernels": kernels,
        "sha256": {name: digest(files[name]) for name in sorted(files) if name.endswith((CODE_SUFFIX, PLAN_SUFFIX))},
    }
    files[MANIFEST] = (json_text(manifest, indent=2) + "\n").encode("ascii")
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    verify(folder, files, {f"{name}{CODE_SUFFIX}": codes[name].code.entry for name in package.sources})
