"""CUDA text to machine code with NVRTC, the compiler in NVIDIA's wheels: no GPU, no host compiler, no CUDA toolkit.

NVRTC runs in processes of its own (`nvrtc_pool`). This one never loads it: cuDNN, among others, changes options of the
libnvrtc that it finds in its process, and kernels compiled there afterwards were slower.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from ...diagnostics import AttnccError, Diagnostic
from ...source import SourceFile, Span
from . import nvrtc_pool
from .cubin import CubinError, Usage, read_usage
from .nvrtc_pool import Reply

OVERRIDE = "ATTNCC_NVRTC"  # environment: the path of a libnvrtc to use instead of the installed ones
_COMMON_OPTIONS = ("--std=c++17", "-default-device", "-lineinfo")
_SYSTEM_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")
T = TypeVar("T")

_LOCATED = re.compile(r"^(?P<path>.+?)\((?P<line>\d+)\): (?P<kind>error|catastrophic error)[^:]*: (?P<text>.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes, as its machine code has it, and what ptxas says of it."""

    registers: int  # for each thread
    spill_stores: int  # bytes
    spill_loads: int  # bytes
    shared_bytes: int  # static shared memory
    compile_seconds: float
    messages: tuple[str, ...] = ()  # warnings and the C75xx performance notes of ptxas, one line each

    @property
    def losses(self) -> tuple[str, ...]:
        """The notes that say that products of a warpgroup don't overlap."""
        return tuple(message for message in self.messages if "(C75" in message)


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one target, and the version of the NVRTC that made it (a driver must be at least as new)."""

    image: bytes = field(repr=False)
    resources: Resources
    nvrtc: str  # "13.0"


def submit(
    text: str, target: str, name: str = "kernel.cu", done: Callable[[Cubin], None] = lambda cubin: None
) -> Future[Cubin]:
    """Begins to compile one self-contained kernel. `done` gets what comes of it, in another thread.

    The result is an AttnccError where there is no Cubin: A501 without NVRTC, A502 if it doesn't know the target, A901
    if it refuses the text, A902 if it fails otherwise, A906 to A908 from its process (`nvrtc_pool`), A909 if its report
    of resources is missing or wrong.
    """
    request = [part.encode() for part in (text, name, target, *options(target))]
    pool = nvrtc_pool.pool(_libraries())

    def finish(reply: Reply) -> Cubin:
        cubin = _cubin(reply, target)
        done(cubin)
        return cubin

    return pool.submit(f"{name} for {target}", request, finish)


def compile_text(text: str, target: str, name: str = "kernel.cu") -> Cubin:
    """The result of `submit`."""
    return wait(submit(text, target, name))


def compile_to_ptx(text: str, target: str, name: str = "kernel.cu") -> str:
    """The PTX of one self-contained kernel: what ptxas makes `submit`'s machine code of. The same errors."""
    flags = (f"-arch={target.replace('sm_', 'compute_')}", *_COMMON_OPTIONS)
    request = [part.encode() for part in (text, name, target, *flags)]
    pool = nvrtc_pool.pool(_libraries())
    return wait(pool.submit(f"{name} for {target}", request, lambda reply: _ptx(reply, target)))


def _ptx(reply: Reply, target: str) -> str:
    *_, image = _checked(reply, target)
    return image.rstrip(b"\0").decode()


def wait(future: Future[T]) -> T:
    """The result of a compilation, which ends where Ctrl-C ends the waiting."""
    try:
        return future.result()
    except BaseException:
        nvrtc_pool.abandon(future)
        raise


def version() -> str:
    """That of the NVRTC which will compile, such as 13.0. Wheels have it in the name of a file; others are asked."""
    libraries = _libraries()
    return _version_of_wheel(libraries[0]) or _version_asked(libraries)


@cache
def _version_of_wheel(library: str) -> str | None:
    if "/" not in library:
        return None
    found = {path.name.partition(".so.")[2] for path in Path(library).parent.glob("libnvrtc-builtins.so.*")}
    return found.pop() if len(found) == 1 else None


@cache
def _version_asked(libraries: tuple[str, ...]) -> str:
    return nvrtc_pool.pool(libraries).submit("its version", [], lambda reply: _checked(reply, "")[1].decode()).result()


def _libraries() -> tuple[str, ...]:
    """Paths and names to try, in this order."""
    override = os.environ.get(OVERRIDE)
    if not override:
        return (*_wheel_libraries(), *_SYSTEM_LIBRARIES)
    return (str(Path(override).absolute()) if "/" in override else override,)


@cache
def _wheel_libraries() -> tuple[str, ...]:
    """libnvrtc of the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, newest first."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for root in roots for path in Path(root).glob("*/lib/libnvrtc.so.*")]
    plain = [path for path in found if path.name.startswith("libnvrtc.so.")]
    return tuple(str(path) for path in sorted(plain, key=lambda path: int(path.suffix[1:]), reverse=True))


def options(target: str) -> tuple[str, ...]:
    """The flags of every compilation. `-lineinfo` carries `#line` to profilers and leaves the machine code as it is."""
    return (f"-arch={target}", *_COMMON_OPTIONS, "--ptxas-options=-v")


def _cubin(reply: Reply, target: str) -> Cubin:
    _, version, seconds, log, image = _checked(reply, target)
    resources = read_resources(image, log.decode(errors="replace"), target, float(seconds))
    return Cubin(image, resources, version.decode())


def _checked(reply: Reply, target: str) -> Reply:
    """The same reply, if it is none of those that are errors (`nvrtc_worker`)."""
    if reply[0] in (b"compiled", b"version"):
        return reply
    match [part.decode(errors="replace") for part in reply]:
        case ["no library", *tried]:
            raise AttnccError(_no_library(tuple(tried)))
        case ["unknown target", version, *known]:
            raise AttnccError(_unknown_target(target, version, known))
        case ["refused", log]:
            raise AttnccError(_refusal(log, target))
        case ["failed", function, version, why]:
            help_ = "compile fewer kernels at once (--jobs 1); if it stays, install NVRTC again"
            raise AttnccError(Diagnostic("A902", f"{function} of NVRTC {version} failed: {why}", help=help_))
        case other:
            raise AssertionError(f"NVRTC's process replies {other}")


def read_resources(image: bytes, log: str, target: str, seconds: float) -> Resources:
    """What the machine code holds. AttnccError A909 unless the log of ptxas agrees.

    Spills are held against it by kind alone: ptxas counts them before it copies the ends of some blocks, so that the
    code may hold a few more of the same instructions.
    """
    try:
        usage = read_usage(image, target)
        said = _usage_in_log(log)
    except CubinError as error:
        raise AttnccError(_wrong_report(target, str(error))) from None
    if _without_counts(said) != _without_counts(usage):
        raise AttnccError(_wrong_report(target, f"ptxas says {said}", f"the machine code has {usage}"))
    return Resources(
        registers=usage.registers,
        spill_stores=usage.spill_stores,
        spill_loads=usage.spill_loads,
        shared_bytes=usage.shared_bytes,
        compile_seconds=round(seconds, 3),
        messages=tuple(dict.fromkeys(_messages(log))),
    )


def _without_counts(usage: Usage) -> Usage:
    return replace(usage, spill_stores=usage.spill_stores > 0, spill_loads=usage.spill_loads > 0)


def _usage_in_log(log: str) -> Usage:
    """As `read_usage` has it. CubinError if a line is missing; of shared memory only kernels with some have one."""

    def numbers(pattern: str) -> list[int]:
        found = [int(number) for number in re.findall(pattern, log)]
        if not found:
            raise CubinError(f"its log lacks a line of {pattern}")
        return found

    return Usage(
        registers=max(numbers(r"Used (\d+) registers")),
        stack_bytes=max(numbers(r"(\d+) bytes stack frame")),
        spill_stores=sum(numbers(r"(\d+) bytes spill stores")),
        spill_loads=sum(numbers(r"(\d+) bytes spill loads")),
        shared_bytes=max(map(int, re.findall(r"(\d+) bytes smem", log)), default=0),
    )


def _messages(log: str) -> Iterator[str]:
    for line in log.splitlines():
        if re.search(r"\(C\d{4}\)|\bwarning\b", line) and not line.startswith("Remark:"):
            yield line.strip()


def _no_library(tried: tuple[str, ...]) -> Diagnostic:
    if os.environ.get(OVERRIDE):
        what = f"the NVRTC that {OVERRIDE} names can't be loaded"
        fix = f"set {OVERRIDE} to the path of a libnvrtc, or unset it to use the installed one"
        return Diagnostic("A501", what, notes=tried, help=fix)
    return Diagnostic(
        "A501",
        "NVRTC, the compiler from CUDA text to machine code, is not installed",
        notes=tried,
        help="pip install 'attncc[cuda13]' (driver 580 or newer), or 'attncc[cuda12]'; no GPU is needed to compile",
    )


def _unknown_target(target: str, version: str, known: list[str]) -> Diagnostic:
    return Diagnostic(
        "A502",
        f"NVRTC {version} doesn't compile for {target}",
        notes=(f"it knows {', '.join(known)}",),
        help="install a newer NVRTC: pip install 'attncc[cuda13]'",
    )


def _wrong_report(target: str, *notes: str) -> Diagnostic:
    return Diagnostic(
        "A909",
        f"what a kernel for {target} takes of registers and memory can't be told",
        notes=notes,
        help="use an NVRTC that attncc was tested with: pip install 'attncc[cuda13]'; please report this",
    )


def _refusal(log: str, target: str) -> Diagnostic:
    first = _LOCATED.search(log)
    return Diagnostic(
        "A901",
        f"NVRTC refuses the generated code for {target}: {first['text'] if first else 'no error line'}",
        span=_source_line(first["path"], int(first["line"])) if first else None,
        notes=tuple(line for line in log.splitlines() if line.strip()),
        help="this is a defect of attncc: please report it with the .attn file",
    )


def _source_line(path: str, line: int) -> Span | None:
    """The whole line of a `.attn` file that `#line` named, if the file can still be read."""
    if not path.endswith(".attn"):
        return None
    try:
        source = SourceFile.read(Path(path))
        text = source.line(line)
    except (OSError, UnicodeDecodeError, IndexError):
        return None
    start = sum(len(source.line(number)) + 1 for number in range(1, line))
    return Span(source, start, start + len(text))
