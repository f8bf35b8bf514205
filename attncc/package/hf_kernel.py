"""Packages that Hugging Face's `kernels` library loads: a folder `build/torch-universal/` that needs torch and NumPy
alone, since it brings the part of attncc that runs kernels. CPU tensors need ml_dtypes, too."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from ..quoting import json_text
from ..version import __version__
from .text import MARK
from .variant_package import VariantPackage
from .writer import Advance, BuiltVariant, write

# What runs built packages, out of attncc's modules.
RUNTIME_PARTS = frozenset({
    "analysis", "descales", "diagnostics", "evaluate", "executor", "first_query", "ir", "kernels", "operators",
    "philox", "plausible", "problem", "quoting", "resources", "runtime", "schedule", "show", "source", "statements",
    "synthetic", "threads", "version",
})  # fmt: skip

_VARIANT = Path("build") / "torch-universal"  # for any backend that torch has
_RUNTIME = "_attncc"
_ATTNCC = Path(__file__).resolve().parent.parent


def write_hf_kernel(
    packages: Sequence[VariantPackage],
    out: Path,
    *,
    version: int = 1,
    jobs: int | None = None,
    advance: Advance | None = None,
) -> tuple[BuiltVariant, ...]:
    """Compiles and writes a kernel repository to `out`, whose name is the kernel's; see `writer.write`.

    `version` is the number that `kernels.get_kernel(…, version=…)` asks for. AttnccError A523 for a folder whose name
    no kernel can have.
    """
    name = out.resolve().name
    if not _is_kernel_name(name):
        raise AttnccError(
            Diagnostic(
                "A523",
                f"no kernel repository can be named {name}",
                notes=("expected small letters, digits and hyphens, a letter first",),
                help="choose another folder with -o, such as my-attention",
            )
        )
    alone = [replace(package, runtime=f"..{_RUNTIME}.runtime.package") for package in packages]
    return write(
        alone, out / _VARIANT, jobs=jobs, advance=advance, finish=lambda folder: _finish(folder, name, version)
    )


def _is_kernel_name(name: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) is not None


def _finish(folder: Path, name: str, version: int) -> None:
    """Adds the runtime and what the library reads."""
    for path, content in _runtime():
        target = folder / _RUNTIME / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    metadata = {
        "id": f"_{name.replace('-', '_')}_cuda_{_digest(folder)}",  # the name of the module, unique to this build
        "name": name,
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    (folder / "metadata.json").write_text(json_text(metadata, indent=2) + "\n", encoding="ascii")


def _runtime() -> Iterator[tuple[Path, bytes]]:
    """The files of the runtime, by path."""
    yield Path("__init__.py"), f'{MARK} {__version__}.\n"""The part of attncc that runs kernels."""\n'.encode()
    for path in sorted(_ATTNCC.rglob("*.py")):
        relative = path.relative_to(_ATTNCC)
        if relative.with_suffix("").parts[0] in RUNTIME_PARTS:
            yield relative, path.read_bytes()


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(folder)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:12]
