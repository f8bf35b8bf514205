"""Traced mods as a `.attn` text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..diagnostics import AttnccError, Diagnostic, Diagnostics
from ..import_flex.draft import Draft
from ..import_flex.inputs import Input, Inputs
from ..import_flex.kinds import Kinds
from ..import_flex.layout import Line
from ..import_flex.machine import ScoreLine
from ..import_flex.naming import Naming, variant_name
from ..import_flex.terms import Captured
from ..source import SourceFile
from ..syntax.formatter import format_source
from .inputs import Recipe, Source, Sources
from .keys import Contents
from .tracer import Tracer


@dataclass(frozen=True)
class Traced:
    """The text of one variant, and where its inputs are found: by name the source, and whether it gets a gradient."""

    text: str
    inputs: Mapping[str, tuple[Source, bool]]
    recipe: Recipe
    sink: str = ""  # the input that is the sink's logits
    dropout: str = ""  # and the one that is dropout's rate


@dataclass(frozen=True)
class Settings:
    """What a variant has beside its mods: the dtype of a sink's logits ("" for none), and whether there is dropout."""

    sink: str = ""
    dropout: bool = False


NO_SETTINGS = Settings()


def trace(
    score_mod: Any, mask_mods: Sequence[Any], contents: Contents, device: Any, score_dtype: Any, *, settings: Settings
) -> Traced:
    """Runs the mods on symbols.

    AttnccError A713 for what `.attn` lacks, A705 and A707 from the writer, A711 for what is too deep for the stack.
    """
    try:
        sources = Sources(contents, device, score_dtype == torch.float64)
        return trace_by(Tracer(sources, device, score_dtype), score_mod, mask_mods, settings)
    except RecursionError:
        what = "what the mods compute is nested too deep"
        help = "write a loop over many steps as one expression, or compute a part of it outside of the mod"
        raise AttnccError(Diagnostic("A711", what, help=help)) from None


def trace_by(tracer: Tracer, score_mod: Any, mask_mods: Sequence[Any], settings: Settings) -> Traced:
    """The same by this tracer."""
    sources = tracer.sources
    keeps = [Line(tracer.mask(mod), tracer.tick()) for mod in mask_mods]
    scores = []
    if score_mod is not None:
        scores.append(ScoreLine(tracer.score(score_mod), tracer.tick()))
    found = Diagnostics()
    inputs = _Inputs(found)
    draft = Draft(keeps, scores, inputs, found)
    mods = [*mask_mods, *([] if score_mod is None else [score_mod])]
    names = list(dict.fromkeys(map(_name, mods))) or ["full"]
    sink = draft.naming.fresh("sink_logit", "input") if settings.sink else ""
    rate = draft.naming.fresh("dropout_rate", "input") if settings.dropout else ""
    text = draft.text(
        variant_name("_".join(names)),
        [f"Traced from FlexAttention: {', '.join(names)}."],
        [f"{sink}: {settings.sink}[head] learnable"] * bool(sink) + [f"{rate}: f32"] * bool(rate),
        [f"sink {sink}"] * bool(sink) + [f"dropout {rate}"] * bool(rate),
    )
    found.raise_errors()
    where = {line.name: (sources.inputs[item], "learnable" in line.declaration) for item, line in draft.inputs.items()}
    return Traced(format_source(SourceFile("<traced>", text)), where, sources.recipe, sink, rate)


class _Inputs(Inputs):
    """Inputs that are known: axes of any length, and dtypes as the tensors have them."""

    def __init__(self, found: Diagnostics) -> None:
        super().__init__({}, found)

    def write(self, kinds: Kinds, naming: Naming, learnable: frozenset[Captured]) -> dict[Captured, Input]:
        return {item: self._line(item, naming, item in learnable) for item in self.uses}

    def _line(self, item: Captured, naming: Naming, learnable: bool) -> Input:
        rank = len(self.uses[item][0].indices)
        axes = f"[{', '.join('_' * rank)}]" if rank else ""
        declaration = f"{item.dtype}{axes}{' learnable' if learnable else ''}"
        return Input(naming.fresh(item.name, "input"), declaration, "")


def _name(mod: Any) -> str:
    """What a mod is called, for the variant's name."""
    while hasattr(mod, "func"):
        mod = mod.func
    name = str(getattr(mod, "__name__", type(mod).__name__))
    return "mod" if "<" in name else name
