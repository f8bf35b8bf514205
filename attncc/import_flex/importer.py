"""From targets to the text of a `.attn` file: find the mods, read them, guess their inputs, write, check."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..diagnostics import Diagnostic, Diagnostics
from ..semantics.load import load
from ..source import SourceFile
from ..syntax.formatter import format_source
from .calls import bind_mod, body
from .draft import Draft
from .inputs import Inputs, declared_inputs, lengths, may_count_from_the_end, reads_both_ways
from .layout import Line
from .machine import Machine
from .naming import variant_name
from .rules import RULES
from .targets import Mod, find_mods
from .terms import Score, Symbol, walk
from .values import Block


@dataclass(frozen=True)
class Imported:
    """A formatted, checked `.attn` text, and what the check warns of."""

    text: str
    warnings: tuple[Diagnostic, ...]


def import_flex(targets: Sequence[str], inputs: Iterable[str] = (), name: str | None = None) -> Imported:
    """One variant that computes what FlexAttention does with these mods: the masks AND-ed, the scores in order.

    A target is `FILE.py:function`, where the function is a mod or returns one; `inputs` declare captured values, as in
    `doc:i32[batch, pos]`. The Python text is read and never run.
    AttnccError A7xx with everything that can't be taken, or A0xx for an input that isn't `.attn`.
    """
    declared = declared_inputs(inputs)
    found = Diagnostics()
    machine = Machine(found, RULES, {name: lengths(item) for name, item in declared.items()})
    mods = [mod for target in targets for mod in find_mods(machine, target)]
    mods.sort(key=lambda mod: not mod.is_mask)
    keeps = _read(machine, mods)
    found.raise_errors()
    wanted = name or "_".join(dict.fromkeys(mod.name for mod in mods))
    draft = Draft(keeps, machine.scores, Inputs(declared, found), found)
    targets = list(dict.fromkeys(mod.target for mod in mods))
    text = draft.text(variant_name(wanted), _notes(draft, targets))
    found.raise_errors()
    source = SourceFile(f"{wanted}.attn", format_source(SourceFile(f"{wanted}.attn", text)))
    return Imported(source.text, load(source).warnings)


def _read(machine: Machine, mods: Sequence[Mod]) -> list[Line]:
    """What the mask_mods keep. What the score_mods compute becomes score lines of the machine."""
    keeps: list[Line] = []
    for mod in mods:
        with machine.mode(inside=True):
            scope = bind_mod(machine, mod.function, mod.is_mask, mod.span)
            result = body(machine, mod.function, scope)
            node = _last_return(mod.function.node) if isinstance(result, Block) else mod.function.node
            term = machine.number(result, machine.span(node, mod.function.scope))
        if term is None:
            continue
        if mod.is_mask:
            keeps.append(Line(term, machine.tick()))
        elif not (isinstance(term, Score) and term.version == len(machine.scores)):
            machine.score_line(term)
    return keeps


def _last_return(node: ast.FunctionDef | ast.Lambda) -> ast.expr | ast.stmt:
    """What a mod returns, for errors of a tensor that it returns."""
    returns = [item for item in ast.walk(node) if isinstance(item, ast.Return)]
    return max(returns, key=lambda item: item.lineno) if returns else node


def _notes(draft: Draft, targets: Sequence[str]) -> Iterator[str]:
    terms = list(walk(*draft.layout.roots))
    yield f"Imported from FlexAttention: {', '.join(targets)}."
    if any(isinstance(term, Symbol) and term.name == "q_idx" for term in terms):
        yield _ALIGNMENT
    if any(line.comment.startswith("a guess") for line in draft.inputs.values()):
        yield _GUESSES
    if any(reads_both_ways(uses) and item not in draft.declared for item, uses in draft.uses.items()):
        yield _POSITIONS
    if may_count_from_the_end(draft.layout.roots):
        yield _NEGATIVE


_ALIGNMENT = (
    "q_idx is the query's own index, as in FlexAttention: top-left aligned, query 0 beside key 0. Where q_len differs "
    "from kv_len (decoding, chunks), q_pos is the query's place among the keys."
)
_GUESSES = "A guess is made from how the mod uses an input: change dtype or axes where it is wrong."
_POSITIONS = (
    "An axis that q_idx and kv_idx both read is `_`, any length. Write `pos` if q_len = kv_len in every call: lengths "
    "are checked then, and batches can be packed."
)
_NEGATIVE = "An index below 0 reads 0 here; PyTorch would count it from the end."
