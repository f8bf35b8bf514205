"""What is proven of a mask and of each of its lines, as users see it where they point."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..checks import tile_rules, tile_shares, what_is_proven
from ..diagnostics import AttnccError
from ..ir import Keep, Score, Variant, reads


def of_variant(variant: Variant) -> str:
    """Markdown: what is proven, and shares of tiles."""
    lines = "\n".join(f"- {line}" for line in _proven(variant))
    return f"{_shares(variant)}\n\n{lines}" if variant.keeps else lines


def of_line(variant: Variant, keep: Keep) -> str:
    """The same of one keep line, and shares for all lines together."""
    if len(variant.keeps) == 1:
        return of_variant(variant)
    lines = f"All keep lines of `{variant.name}`: {_shares(variant)}"
    return f"This line alone: {of_variant(_alone(variant, keep))}\n\n{lines}"


def _alone(variant: Variant, keep: Keep) -> Variant:
    """The variant with no other keep line, and without what its mask doesn't read: no score, no input for it."""
    others = [item for item in variant.statements if isinstance(item, Keep | Score) and item is not keep]
    read = reads(variant, keep.condition)
    inputs = tuple(item for item in variant.inputs if item.name in read)
    statements = tuple(item for item in variant.statements if item not in others)
    return replace(variant, inputs=inputs, statements=statements, sink=None, scale=None, dropout=None)


@lru_cache(maxsize=256)
def _proven(variant: Variant) -> list[str]:
    return what_is_proven(variant, tile_rules(variant))


@lru_cache(maxsize=256)
def _shares(variant: Variant) -> str:
    try:
        found = tile_shares(variant, tile_rules(variant))
    except AttnccError as error:  # no call of that size can be: an axis has another length
        return f"no shares of tiles: {error.diagnostics[0].message}"
    of = found["of"]
    parts = ", ".join(f"{_percent(found[kind])} {kind}" for kind in ("empty", "partial", "full"))
    sizes = f"{of['block_q']} x {of['block_kv']} tiles, q_len = kv_len = {of['q_len']}, {of['heads']} heads"
    read = reads(variant, *(keep.condition for keep in variant.keeps))
    inputs = "".join(f"; {name}: {how}" for name, how in found["drawn"].items() if name in read)
    return f"**{parts}** ({sizes}{inputs})"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"
