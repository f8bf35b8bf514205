"""Which built-in names a variant reads, indices apart that a cut of its inputs makes right."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Expr, Load, Local, Symbol, Variant

IsCut = Callable[[Load, int], bool]


def read_names(variant: Variant, is_cut: IsCut) -> set[str]:
    """Of keep and score lines, of the lets that these read, and of the scale. `is_cut`: whether a load's index, by its
    number, is one that needs no look, since the launch's own rows of the input are what stands there.
    """
    lets, names, seen = variant.lets, set[str](), set[Expr]()
    pending = [item.condition for item in variant.keeps] + [item.value for item in variant.scores]
    pending += [] if variant.scale is None else [variant.scale]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Symbol):
            names.add(node.name)
        if isinstance(node, Local):
            pending.append(lets[node.name].value)
        pending += [
            child for number, child in enumerate(node.children) if not (isinstance(node, Load) and is_cut(node, number))
        ]
    return names
