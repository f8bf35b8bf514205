"""CUDA text to machine code with NVRTC, the compiler in NVIDIA's wheels: no GPU, no host compiler, no CUDA toolkit.

NVRTC compiles in parallel from several threads of one process (two threads on two cores: 1.8 times as fast).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from ..source import SourceFile, Span

OVERRIDE = "ATTNCC_NVRTC"  # environment: the path of a libnvrtc to use instead of the installed ones
_SYSTEM_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12")
_LOCATED = re.compile(r"^(?P<path>.+?)\((?P<line>\d+)\): (?P<kind>error|catastrophic error)[^:]*: (?P<text>.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas says of one kernel."""

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


@cache
def library() -> Nvrtc:
    """The newest NVRTC that can be loaded. AttnccError A501 if there is none."""
    override = os.environ.get(OVERRIDE)
    tried = []
    for name in [override] if override else [*_wheel_libraries(), *_SYSTEM_LIBRARIES]:
        try:
            return Nvrtc(name)
        except OSError as error:
            tried.append(f"{name}: {error}")
    if override:
        what = f"the NVRTC that {OVERRIDE} names can't be loaded"
        fix = f"set {OVERRIDE} to the path of a libnvrtc, or unset it to use the installed one"
        raise AttnccError(Diagnostic("A501", what, notes=tuple(tried), help=fix))
    raise AttnccError(
        Diagnostic(
            "A501",
            "NVRTC, the compiler from CUDA text to machine code, is not installed",
            notes=tuple(tried),
            help="pip install 'attncc[cuda13]' (driver 580 or newer), or 'attncc[cuda12]'; no GPU is needed to compile",
        )
    )


def _wheel_libraries() -> list[str]:
    """libnvrtc of the wheels nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12, newest first."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for root in roots for path in Path(root).glob("*/lib/libnvrtc.so.*")]
    plain = [path for path in found if path.name.startswith("libnvrtc.so.")]
    return [str(path) for path in sorted(plain, key=lambda path: int(path.suffix[1:]), reverse=True)]


class Nvrtc:
    """One loaded libnvrtc. Methods may be called from any thread."""

    def __init__(self, name: str) -> None:
        # NVRTC opens its built-ins by name alone, which finds those of a wheel only once they are loaded.
        if "/" in name:
            for builtins in Path(name).parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
        self._api = ctypes.CDLL(name)
        if not hasattr(self._api, "nvrtcVersion"):
            raise OSError("it is a library, but no libnvrtc")
        self._api.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._api.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def targets(self) -> tuple[str, ...]:
        """Targets that this version compiles for, such as sm_80; those with an `a` are not listed apart."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        values = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", values)
        return tuple(f"sm_{value}" for value in values)

    def compile(self, text: str, target: str, name: str = "kernel.cu") -> Cubin:
        """Compiles one self-contained kernel.

        AttnccError: A502 if this NVRTC doesn't know the target, A901 if it refuses the text.
        """
        self._check_target(target)
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            return self._compile(program, target)
        finally:
            self._api.nvrtcDestroyProgram(ctypes.byref(program))

    def _compile(self, program: ctypes.c_void_p, target: str) -> Cubin:
        flags = [flag.encode() for flag in options(target)]
        start = time.perf_counter()
        result = self._api.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        seconds = time.perf_counter() - start
        log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
        if result:
            raise AttnccError(_refusal(log or self._api.nvrtcGetErrorString(result).decode(), target))
        return Cubin(self._read(program, "nvrtcGetCUBIN"), read_log(log, seconds), self.version)

    def _check_target(self, target: str) -> None:
        known = self.targets()
        if target.rstrip("a") not in known:
            raise AttnccError(
                Diagnostic(
                    "A502",
                    f"NVRTC {self.version} doesn't compile for {target}",
                    notes=(f"it knows {', '.join(known)}",),
                    help="install a newer NVRTC: pip install 'attncc[cuda13]'",
                )
            )

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(what, program, data)
        return data.raw

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._api, function)(*arguments)
        if result:
            text = self._api.nvrtcGetErrorString(result).decode()
            raise AttnccError(Diagnostic("A902", f"{function} of NVRTC {self.version} failed: {text}"))


def options(target: str) -> tuple[str, ...]:
    """The flags of every compilation. `-lineinfo` carries `#line` to profilers and leaves the machine code as it is."""
    return (f"-arch={target}", "--std=c++17", "-default-device", "-lineinfo", "--ptxas-options=-v")


def read_log(log: str, seconds: float) -> Resources:
    """The resource report in a compilation's log; of several functions, the most of each."""

    def most(pattern: str) -> int:
        return max(map(int, re.findall(pattern, log)), default=0)

    return Resources(
        registers=most(r"Used (\d+) registers"),
        spill_stores=most(r"(\d+) bytes spill stores"),
        spill_loads=most(r"(\d+) bytes spill loads"),
        shared_bytes=most(r"(\d+) bytes smem"),
        compile_seconds=round(seconds, 3),
        messages=tuple(dict.fromkeys(_messages(log))),
    )


def _messages(log: str) -> Iterator[str]:
    for line in log.splitlines():
        if re.search(r"\(C\d{4}\)|\bwarning\b", line) and not line.startswith("Remark:"):
            yield line.strip()


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
