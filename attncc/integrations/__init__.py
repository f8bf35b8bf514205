"""Adapters to libraries that hand their attention over: a module for each, imported when it is first used."""

from __future__ import annotations

from typing import Any

_MODULES = ("transformers",)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module(f".{name}", __name__)
