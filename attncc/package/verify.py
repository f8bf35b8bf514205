"""What a build has written is read again before it takes the place of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from ..runtime.store.package_store import PLAN_SUFFIX, read_plan

_ELF = b"\x7fELF"


def verify(folder: Path, files: Mapping[str, bytes], entries: Mapping[str, str]) -> None:
    """AttnccError A910 if a file of a variant isn't what was to be written, if its Python text can't be compiled, if
    the store would refuse a plan, or if a cubin lacks its kernel (`entries`, by file name)."""
    for name, content in files.items():
        if (folder / name).read_bytes() != content:
            raise _wrong(name, "it reads differently than it was written", "look at the disk")
    try:
        compile(files["__init__.py"], "__init__.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _wrong("__init__.py", f"it is not Python: {error}", _REPORT) from None
    for name, content in files.items():
        if name.endswith(PLAN_SUFFIX):
            try:
                read_plan(name.removesuffix(PLAN_SUFFIX), content)
            except (ValueError, RecursionError) as error:
                raise _wrong(name, f"it can't be read: {error}", _REPORT) from None
    for name, entry in entries.items():
        if not holds_kernel(files[name], entry):
            raise _wrong(name, f"it is no machine code of {entry}", _REPORT)


def holds_kernel(image: bytes, entry: str) -> bool:
    """Whether it is an ELF file with a section for the code of a kernel."""
    return image.startswith(_ELF) and b".text.%s\0" % entry.encode() in image


_REPORT = "this is a defect of attncc: please report it with the .attn file"


def _wrong(name: str, what: str, advice: str) -> AttnccError:
    return AttnccError(
        Diagnostic("A910", f"the build made a file that can't be right: {name}", notes=(what,), help=advice)
    )
