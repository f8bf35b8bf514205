"""Whether each row of queries keeps a key: proven by a witness, a key for which the mask's normal form is true."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ...ir import OFFSET_SYMBOL, Expr, Let, Symbol, Variant, needs, symbol, walk
from ..algebra.algebra import TRUE, Algebra
from ..algebra.canonical import Canonical

_MOST_NODES = 2000  # of keep lines and lets: each witness takes as long as their normal form


class KeptRows(Enum):
    """For which lengths, of at least one key, every row keeps a key whatever the inputs hold."""

    ALL_LENGTHS = "all"
    OWN_KEY = "q_len <= kv_len"  # then each query's position, and its index, are a key's: the one that it keeps
    NOT_PROVEN = "not proven"


def kept_rows(variant: Variant) -> KeptRows:
    """What is proven whatever inputs hold. With q_len > kv_len, the first queries have no key of their own."""
    written = [keep.condition for keep in variant.keeps]
    if len(list(walk(*written, *(let.value for let in needs(variant, *written))))) > _MOST_NODES:
        return KeptRows.NOT_PROVEN
    if any(_holds(variant, witness) for witness in ("first", "last")):
        return KeptRows.ALL_LENGTHS
    own = any(_holds(variant, witness) for witness in ("q_pos", "q_idx"))
    return KeptRows.OWN_KEY if own else KeptRows.NOT_PROVEN


def _holds(variant: Variant, witness: str) -> bool:
    canonical = _Witness(Algebra(variant, 1, 1), variant.lets, witness)
    return all(canonical.of(keep.condition) is TRUE for keep in variant.keeps)


class _Witness(Canonical):
    """Normal forms in which one key stands for kv_idx: the `first`, the `last`, or that at the query's `q_pos` or
    `q_idx`, of which there is one where there are at least as many keys as queries."""

    def __init__(self, algebra: Algebra, lets: Mapping[str, Let], witness: str) -> None:
        super().__init__(algebra, lets)
        self._witness = witness

    def _symbol(self, node: Symbol) -> Expr:
        algebra = self._algebra
        own = self._witness in ("q_pos", "q_idx")
        if node.name == "kv_len" and own:
            return algebra.add(algebra.symbol("q_len"), algebra.symbol("keys_ahead"))
        if node.name == OFFSET_SYMBOL:  # what is said is said of calls that don't give it
            ahead = algebra.sub(algebra.symbol("kv_len"), algebra.symbol("q_len"))
            return algebra.symbol("keys_ahead") if own else ahead
        if node.name != "kv_idx":
            return super()._symbol(node)
        if self._witness == "first":
            return algebra.number(0)
        if self._witness == "last":
            return algebra.sub(algebra.symbol("kv_len"), algebra.number(1))
        return self.of(symbol(self._witness))
