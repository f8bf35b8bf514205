"""attncc: an ahead-of-time compiler for attention.

    kernel = attncc.compile("causal", dtype="bf16", head_dim=64)
    out = kernel(q, k, v)

Everything here is imported when it is first used, so that a built package imports in milliseconds.
"""

from __future__ import annotations

from .version import __version__ as __version__

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from .api import compile, parse
    from .cache_append import append
    from .diagnostics import AttnccError, AttnccWarning
    from .flex import flex_attention, flex_spec
    from .partial_results import merge
    from .runtime.kernel import Kernel

__all__ = [
    "AttnccError", "AttnccWarning", "Kernel", "append", "compile", "flex_attention", "flex_spec", "merge", "parse",
]  # fmt: skip

_HOMES = {
    "AttnccError": ".diagnostics",
    "AttnccWarning": ".diagnostics",
    "Kernel": ".runtime.kernel",
    "append": ".cache_append",
    "compile": ".api",
    "flex_attention": ".flex",
    "flex_spec": ".flex",
    "merge": ".partial_results",
    "parse": ".api",
}

_MODULES = ("distributed", "integrations", "jax", "torch")  # users write `attncc.jax.wrap` after `import attncc`


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'attncc' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
