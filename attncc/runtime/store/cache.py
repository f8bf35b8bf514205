"""Compiled kernels, kept by content: the text, the flags, the target and the NVRTC version make the key.

An entry is one file, `<key>.kernel`: the sha256 of the rest, a line of JSON (the resource report), the cubin. It is
written beside its place and renamed, so that processes may race; both write the same. Nothing is ever stale, and the
whole folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from concurrent.futures import Future
from dataclasses import asdict
from functools import cache
from pathlib import Path

from ...diagnostics import Diagnostic, warn
from ..cuda import nvrtc
from ..cuda.nvrtc import Cubin, Resources

OVERRIDE = "ATTNCC_CACHE"  # environment: the folder to use
_FORMAT = "2"  # of entries; part of the key
_DIGEST_BYTES = 32


def folder() -> Path:
    """Where entries are kept: `$ATTNCC_CACHE`, else the user's cache folder of this platform."""
    override = os.environ.get(OVERRIDE)
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("attncc")) / "kernels"


def submit_cached(text: str, target: str, name: str = "kernel.cu") -> Future[Cubin]:
    """What an earlier compilation of any process has kept of `nvrtc.submit`, or else begins to compile. Errors are the
    same.

    A damaged entry is compiled again and replaced, with warning A508; a folder that can't be written costs only
    the time to compile, and warning A509 once.
    """
    kept_in = folder()
    kept = _read(kept_in / _name(text, target, nvrtc.version()))
    if kept is None:
        return nvrtc.submit(
            text, target, name, done=lambda cubin: _write(kept_in / _name(text, target, cubin.nvrtc), cubin)
        )
    found: Future[Cubin] = Future()
    found.set_result(kept)
    return found


def compile_cached(text: str, target: str, name: str = "kernel.cu") -> Cubin:
    """The result of `submit_cached`."""
    return nvrtc.wait(submit_cached(text, target, name))


def _name(text: str, target: str, version: str) -> str:
    parts = (_FORMAT, version, *nvrtc.options(target), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest() + ".kernel"


def _read(path: Path) -> Cubin | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        return _unpack(data)
    except (ValueError, TypeError, KeyError) as error:
        warn(
            Diagnostic(
                "A508",
                f"the cached kernel {path} is damaged ({error}); it is compiled again",
                help="nothing is lost; if it happens often, look at the disk, or set ATTNCC_CACHE to another folder",
                severity="warning",
            )
        )
        return None


def _pack(cubin: Cubin) -> bytes:
    header = json.dumps({"nvrtc": cubin.nvrtc, "resources": asdict(cubin.resources)})
    body = header.encode() + b"\n" + cubin.image
    return hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> Cubin:
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("wrong checksum")
    header, _, image = body.partition(b"\n")
    fields = json.loads(header)
    resources = {**fields["resources"], "messages": tuple(fields["resources"]["messages"])}
    return Cubin(image, Resources(**resources), fields["nvrtc"])


def _write(path: Path, cubin: Cubin) -> None:
    write_file(path, _pack(cubin))


def write_file(path: Path, data: bytes) -> None:
    """A whole file of the cache, or none. Where the folder can't be written, warning A509 once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        _warn_unwritable(str(path.parent), str(error))


@cache
def _warn_unwritable(parent: str, reason: str) -> None:
    """Once for each folder and reason in a process."""
    warn(
        Diagnostic(
            "A509",
            f"compiled kernels can't be kept in {parent}: {reason}",
            notes=("everything works, but each process compiles its kernels afresh",),
            help="make the folder writable, or set ATTNCC_CACHE to one that is",
            severity="warning",
        )
    )
