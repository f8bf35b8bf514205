"""The compiler's own process: NVRTC and nothing else.

NVRTC has options that hold for a whole process, and libraries such as cuDNN share one libnvrtc with whoever else loaded
it. So attncc never loads it into the user's process. `nvrtc_pool` runs this file by its path, with `python -I -S`:
no site-packages, no variables of Python, no module of attncc. It imports little, since each import delays a first call.

Messages in both directions are lists of byte strings: how many there are, then the length and the bytes of each.

    request   text, name, target, options …, or nothing, to ask for the version alone; with `-arch=compute_…` the
              reply holds PTX where a cubin stands otherwise
    reply     "compiled", version, seconds, log, cubin
              "version", version
              "refused", log                          the text has errors
              "unknown target", version, targets …
              "out of memory"
              "no library", why …                     a line for each that was tried
              "failed", function, version, why        anything else that NVRTC says
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Callable
from time import perf_counter

_OUT_OF_MEMORY = 1  # of nvrtcResult
_DIE_WITH_PARENT, _SIGKILL = 1, 9  # prctl's PR_SET_PDEATHSIG
_FIRST_WITH_OWN_CACHE = 13  # major version of NVRTC


def send(descriptor: int, fields: list[bytes]) -> None:
    """BrokenPipeError if the other side is gone."""
    head = struct.pack(f"<I{len(fields)}Q", len(fields), *map(len, fields))
    rest = memoryview(head + b"".join(fields))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int, wait: Callable[[], None] = lambda: None) -> list[bytes]:
    """EOFError if the other side is gone. `wait` is called before each read."""

    def read(size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            wait()
            piece = os.read(descriptor, min(size - len(pieces), 1 << 20))
            if not piece:
                raise EOFError
            pieces += piece
        return bytes(pieces)

    (count,) = struct.unpack("<I", read(4))
    return [read(size) for size in struct.unpack(f"<{count}Q", read(8 * count))]


class _Failed(Exception):
    """A call of NVRTC that failed; the reply that says so."""


class _Nvrtc:
    """One loaded libnvrtc. OSError if the file can't be loaded, or is another library."""

    def __init__(self, name: str) -> None:
        # NVRTC opens its built-ins by name alone, which finds those of a wheel only once they are loaded.
        if "/" in name:
            folder = os.path.dirname(name)  # noqa: PTH120  (pathlib takes as long to import as all else here)
            for file in os.listdir(folder):  # noqa: PTH208
                if file.startswith("libnvrtc-builtins.so."):
                    ctypes.CDLL(f"{folder}/{file}")
        self._api = ctypes.CDLL(name)
        if not hasattr(self._api, "nvrtcVersion"):
            raise OSError("it is a library, but no libnvrtc")
        self._api.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._api.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self._major, self.version = major.value, f"{major.value}.{minor.value}".encode()

    def compile(self, text: bytes, name: bytes, target: bytes, options: list[bytes]) -> list[bytes]:
        targets = self._targets()
        if target.rstrip(b"a") not in targets:  # those with an `a` are not listed apart
            return [b"unknown target", self.version, *targets]
        if self._major >= _FIRST_WITH_OWN_CACHE:
            options = [*options, b"--no-cache"]  # what comes from NVRTC's cache has no resource report
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text, name, 0, None, None)
        try:
            return self._compile(program, options)
        finally:
            self._api.nvrtcDestroyProgram(ctypes.byref(program))

    def _compile(self, program: ctypes.c_void_p, options: list[bytes]) -> list[bytes]:
        start = perf_counter()
        try:
            self._call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
        except _Failed:
            log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0")
            if log:
                return [b"refused", log]
            if _is_full():  # then ptxas fails without a word
                raise MemoryError from None
            raise
        seconds = str(perf_counter() - start).encode()
        log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0")
        virtual = any(option.startswith(b"-arch=compute_") for option in options)
        image = self._read(program, "nvrtcGetPTX" if virtual else "nvrtcGetCUBIN")
        return [b"compiled", self.version, seconds, log, image]

    def _targets(self) -> list[bytes]:
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        values = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", values)
        return [b"sm_%d" % value for value in values]

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(what, program, data)
        return data.raw

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._api, function)(*arguments)
        if result == _OUT_OF_MEMORY:
            raise MemoryError
        if result:
            why = self._api.nvrtcGetErrorString(result)
            raise _Failed([b"failed", function.encode(), self.version, why])


def _load(names: list[str]) -> _Nvrtc:
    """The first that can be loaded."""
    tried = []
    for name in names:
        try:
            return _Nvrtc(name)
        except OSError as error:
            tried.append(f"{name}: {error}".encode())
    raise _Failed([b"no library", *tried])


def _limit(memory: int) -> None:
    """No more address space than that, and no file of all memory where NVRTC crashes."""
    for what, size in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def _is_full() -> bool:
    """Whether this process has once had nine tenths of the address space that it may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        peak = next((int(line.split()[1]) << 10 for line in file if line.startswith(b"VmPeak:")), 0)
    return limit != resource.RLIM_INFINITY and peak > 0.9 * limit


def _take_pipes() -> tuple[int, int]:
    """The pipes of requests and replies. What a library prints goes where errors go, not among the replies."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, replies


def main(parent: str, memory: str, *names: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, _SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before
            return
    _limit(int(memory))
    requests, replies = _take_pipes()
    library = None
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            library = library or _load(list(names))
            text, name, target, *options = request or [b"", b"", b""]
            reply = library.compile(text, name, target, options) if request else [b"version", library.version]
        except _Failed as failed:
            reply = failed.args[0]
        except MemoryError:
            reply = [b"out of memory"]
        send(replies, reply)


if __name__ == "__main__":
    main(*sys.argv[1:])
