"""Crossing points that `attncc tune --crossings` measured on a GPU: a file of JSON in the cache for each kind of GPU.

Every process of this machine reads them when it first loads kernels on such a GPU.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...diagnostics import Diagnostic, warn
from ...kernels.crossings import Chip, Crossings
from .cache import folder, write_file

if TYPE_CHECKING:
    from ...analysis.cost.roofline import Device

_FORMAT = 2  # 1 counted decode by thread blocks of the forward kernel


@dataclass(frozen=True)
class Measured:
    """What a file holds. `about`: the versions and the date that the times were taken with."""

    device: str  # as the driver names it
    crossings: Crossings
    about: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"device": self.device, "crossings": self.crossings._asdict(), "about": dict(self.about)}


def path_of(device: str) -> Path:
    """Where the points of a GPU of this name are kept."""
    return _folder() / (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")


def keep(measured: Measured) -> None:
    """Replaces what was known of this kind of GPU. Warning A509 where the cache can't be written."""
    content = {"format": _FORMAT, **measured.to_json()}
    write_file(path_of(measured.device), json.dumps(content, indent=2).encode() + b"\n")


def kept(device: str) -> Measured | None:
    """What was measured on GPUs of this name; None if nothing was, and with warning A529 if the file is damaged."""
    return _read(path_of(device))


def chip_of(device: str, multiprocessors: int) -> Chip:
    """A GPU of this name, with its own crossing points or else the usual ones."""
    found = kept(device)
    return Chip(multiprocessors) if found is None else Chip(multiprocessors, found.crossings)


def kept_like(device: Device) -> Measured | None:
    """What this machine has measured on a GPU of a kind that the roofline's table names, as `h200`."""
    for path in sorted(_folder().glob("*.json")):
        found = _read(path)
        if found is not None and _plain(device.name) in _plain(found.device):
            return found
    return None


def chip_like(device: Device) -> Chip:
    """A GPU of the roofline's table, with the crossing points that this machine has measured on one, if it has."""
    found = kept_like(device)
    return Chip(device.multiprocessors) if found is None else Chip(device.multiprocessors, found.crossings)


def _plain(name: str) -> str:
    return name.lower().replace(" ", "")


def _folder() -> Path:
    return folder() / "crossings"


def _read(path: Path) -> Measured | None:
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warn(
            Diagnostic(
                "A529",
                f"the crossing points in {path} can't be read, and the usual ones count: {error!r}",
                help="measure them again with `attncc tune --crossings`, or delete the file",
                severity="warning",
            )
        )
        return None


def _parsed(content: Any) -> Measured:
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']!r} in place of {_FORMAT}")
    points = {name: _point(name, value) for name, value in content["crossings"].items()}
    return Measured(str(content["device"]), Crossings(**points), dict(content["about"]))


def _point(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}, not a positive number")
    return value
