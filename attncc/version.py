"""The version of attncc, which the texts that it writes name, and those of packages beside it."""

from __future__ import annotations

__version__ = "0.2.0"


def installed(package: str) -> str | None:
    """The version of a package; None where it isn't installed."""
    from importlib import metadata  # takes a while, and most imports of attncc ask for nothing

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
