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
from dataclasses import asdict
from functools import cache
from pathlib import Path

from ..diagnostics import Diagnostic, warn
from .nvrtc import Cubin, Resources, library, options

OVERRIDE = "ATTNCC_CACHE"  # environment: the folder to use
_FORMAT = "1"  # of entries; part of the key
_DIGEST_BYTES = 32


def folder() -> Path:
    """Where entries are kept: `$ATTNCC_CACHE`, else the user's cache folder of this platform."""
    override = os.environ.get(OVERRIDE)
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("attncc")) / "kernels"


def compile_cached(text: str, target: str, name: str = "kernel.cu") -> Cubin:
    """`Nvrtc.compile`, or what an earlier call of any process has kept of it. Errors are those of `Nvrtc.compile`.

    A damaged entry is compiled again and replaced, with warning A508; a folder that can't be written costs only
    the time to compile, and warning A509 once.
    """
    path = folder() / f"{_key(text, target)}.kernel"
    kept = _read(path)
    if kept is None:
        kept = library().compile(text, target, name)
        _write(path, kept)
    return kept


def _key(text: str, target: str) -> str:
    parts = (_FORMAT, library().version, *options(target), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_pack(cubin))
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
