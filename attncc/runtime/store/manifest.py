"""`manifest.json` of a built variant: what the build says of each kernel, and hashes of the files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

from ...diagnostics import AttnccError, Diagnostic
from ...version import __version__

MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _counts(most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and 0 <= value <= most


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


# Each entry has the first fields, which launches need, and may have the others.
_NEEDED: dict[str, Callable[[Any], bool]] = {
    "entry": _is_name,
    "nvrtc": _is_text,
    "threads": _counts(1024),
    "dynamic_shared_bytes": _counts(2**20),
}
_TOLD: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("registers", "spill_stores", "spill_loads", "shared_bytes"), _counts(2**31)),
    **dict.fromkeys(("target", "calls"), _is_text),
    "params": _is_digest,
    "compile_seconds": _is_time,
    "messages": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "choice": lambda value: isinstance(value, dict),
    "plan": lambda value: value is None or _is_text(value),
}


@dataclass(frozen=True)
class Manifest:
    """`version`: of the attncc that wrote it. `kernels`: what is told of each, by its name. `digests`: the SHA-256 of
    cubins and plans, by file name."""

    folder: Path
    version: str
    kernels: Mapping[str, Mapping[str, Any]]
    digests: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """That of a variant's folder; None where the build compiled nothing. AttnccError A507 if it is damaged."""
        try:
            found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            kernels, digests = _kernels(found), _digests(found)
            return cls(folder, str(found.get("attncc")), kernels, digests)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(folder, f"{MANIFEST}: {error}") from None

    def check(self, name: str, content: bytes) -> None:
        """AttnccError A507 if a file isn't the one that the build wrote."""
        if self.digests.get(name) != digest(content):
            raise damaged(self.folder, f"{name} is not the file that {MANIFEST} tells of")

    def check_params(self, name: str, params: str) -> None:
        """AttnccError A530 if a kernel takes other parameters than this attncc launches it with: those of this digest.
        Before packages told of them, kernels took others too."""
        if self.kernels[name].get("params") != params:
            what = f"the built package {self.folder} is of another version of attncc"
            notes = f"attncc {self.version} built it, this is {__version__}", f"{name} takes other parameters"
            raise AttnccError(Diagnostic("A530", what, notes=notes, help="build it again: attncc build FILE"))


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def damaged(folder: Path, what: str) -> AttnccError:
    return AttnccError(
        Diagnostic("A507", f"the built package {folder} is damaged: {what}", help="build it again: attncc build FILE")
    )


def _kernels(found: Any) -> dict[str, dict[str, Any]]:
    kernels = _table(found, "kernels")
    for name, entry in kernels.items():
        if not (_is_name(name) and isinstance(entry, dict)):
            raise ValueError(f"{name!r:.80} is no entry of a kernel")
        for field, holds in (*_NEEDED.items(), *_TOLD.items()):
            if not (holds(entry[field]) if field in entry else field in _TOLD):
                raise ValueError(f"`{field}` of {name} can't be {entry.get(field)!r:.80}")
    return kernels


def _digests(found: Any) -> dict[str, str]:
    digests = _table(found, "sha256")
    for name, value in digests.items():
        if not _is_digest(value):
            raise ValueError(f"`sha256` of {name!r:.80} can't be {value!r:.80}")
    return digests


def _table(found: Any, name: str) -> dict[str, Any]:
    table = found.get(name) if isinstance(found, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"it has no table `{name}`")
    return table
