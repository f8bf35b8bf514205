"""How much a file may hold, so that every file is answered within seconds. docs/language.md lists the limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from .. import ir
from ..diagnostics import AttnccError, Diagnostic
from ..source import Span
from ..syntax import ast
from .workspace import Measure, measure

# Counts that nobody writes by hand. Each is several times what a shipped spec has, and costs less than 0.3 s.
MAX_IMPORTS = 64  # of a file
MAX_MASKS = 512
MAX_VARIANTS = 128
MAX_SCHEDULES = 256
MAX_LINES = 512  # statements of a variant or a mask
MAX_INPUTS = 64  # of a variant: each has up to nine kernel parameters, which are 4 KB in all
MAX_SETTINGS = 32  # of a schedule
MAX_CANDIDATES = 64  # of a knob

# Work that grows faster than the text. Each limit is what `attncc check` does in about two seconds on one core.
MAX_COMBINATIONS = 512  # of candidates, of all schedules of a file: each is judged as a plan of its own, in about 1 ms
MAX_STEPS_OF_FILE = 100_000  # expressions lowered, of all variants: masks and loops within loops multiply
# Of the keep lines of all variants, masks and lets written out: each line is solved for bounds, and commands that
# choose tiles do so for several. Shipped specs have at most 418.
MAX_KEEP_PARTS = 3_000
MAX_TILE_PARTS = 8_000  # those of each schedule's variant, times the tiles that its candidates have: one analysis each

# What a kernel computes for a pair: shipped specs have at most 130. With it grows all that is proven and printed for
# each kernel, and NVRTC's time more than in proportion.
MAX_OPERATIONS = 1_500  # of a variant's lines, masks and loops written out, equal ones counted once

_GUESSED_TILES = 8  # that are looked at where a schedule doesn't name them: as many as families have
_TILE_KNOBS = ("block_q", "block_kv")


def check_module(module: ast.Module) -> None:
    """AttnccError A011 with the first thing that a file has too much of."""
    items = module.items
    schedules = [item for item in items if isinstance(item, ast.Schedule)]
    _at_most(MAX_IMPORTS, module.imports, "imports", "put what they bring into fewer files")
    _at_most(MAX_MASKS, [item for item in items if isinstance(item, ast.Mask)], "masks", _FILES)
    _at_most(MAX_VARIANTS, [item for item in items if isinstance(item, ast.Variant)], "variants", _FILES)
    _at_most(MAX_SCHEDULES, schedules, "schedules", _FILES)
    for item in items:
        if isinstance(item, ast.Variant):
            _at_most(MAX_LINES, item.statements, "lines", _TABLE)
            inputs = [line for line in item.statements if isinstance(line, ast.Input)]
            _at_most(MAX_INPUTS, inputs, "inputs", "bring several in one tensor")
        elif isinstance(item, ast.Mask) and isinstance(item.body, tuple):
            _at_most(MAX_LINES, item.body, "lines", _TABLE)
    _check_candidates(schedules)


def _check_candidates(schedules: Iterable[ast.Schedule]) -> None:
    combinations = 0
    for schedule in schedules:
        _at_most(MAX_SETTINGS, schedule.settings, "settings", "name each knob once")
        for setting in schedule.settings:
            if len(setting.values) > MAX_CANDIDATES:
                _refuse(f"{len(setting.values)} candidates", MAX_CANDIDATES, setting.span, _FEWER)
        combinations += prod(len(setting.values) for setting in schedule.settings)
        if combinations > MAX_COMBINATIONS:
            what = f"{combinations} combinations of candidates"
            _refuse(what, MAX_COMBINATIONS, schedule.name.span, _FEWER)


def check_steps(steps: int, node: ast.Variant) -> None:
    """AttnccError A011 once the variants of a file have taken too many steps, each copy of a mask counted."""
    if steps > MAX_STEPS_OF_FILE:
        what = "more expressions, masks and loops written out,"
        _refuse(what, MAX_STEPS_OF_FILE, node.name.span, "use shorter loops and fewer masks of masks, or more files")


def check_keep_parts(parts: int, span: Span) -> None:
    """AttnccError A011 with the line up to which the keep lines of some variants have too many parts."""
    if parts > MAX_KEEP_PARTS:
        _refuse(f"{parts} parts of keep lines", MAX_KEEP_PARTS, span, _TABLE)


def check_parts(variants: Sequence[ir.Variant], schedules: Iterable[ast.Schedule]) -> None:
    """AttnccError A011 where the lines of a file's variants, or the tiles that they are analysed for, are too much."""
    parts: dict[str, int] = {}
    for variant in variants:
        parts[variant.name] = _keep_parts(variant)
        if variant.span is not None:
            check_keep_parts(sum(parts.values()), variant.span)
        _check_operations(variant)
    work, guessed = 0, set()
    for schedule in schedules:
        name, tiles = schedule.variant.name, _tiles(schedule)
        if tiles is None:  # all such schedules of a variant are analysed for the same tiles
            tiles = 0 if name in guessed else _GUESSED_TILES
            guessed.add(name)
        work += parts.get(name, 0) * tiles
        if work > MAX_TILE_PARTS:
            what = f"{work} parts of keep lines, times the tiles that candidates have,"
            _refuse(what, MAX_TILE_PARTS, schedule.name.span, _FEWER)


def _keep_parts(variant: ir.Variant) -> int:
    measures: dict[str, Measure] = {}
    for let in variant.lets.values():
        measures[let.name] = measure(let.value, measures)
    return sum(measure(keep.condition, measures).nodes for keep in variant.keeps)


def _check_operations(variant: ir.Variant) -> None:
    roots = [*(keep.condition for keep in variant.keeps), *(score.value for score in variant.scores)]
    lets = (let.value for let in ir.needs(variant, *roots))
    operations = sum(isinstance(node, ir.Apply | ir.Load) for node in ir.walk(*roots, *lets))
    if operations > MAX_OPERATIONS and variant.span is not None:
        what = f"{operations} operations for each pair, in keep and score lines,"
        _refuse(what, MAX_OPERATIONS, variant.span, _TABLE)


def _tiles(schedule: ast.Schedule) -> int | None:
    """The tiles that a mask is analysed for; None where the schedule names none."""
    counts: Mapping[str, int] = {setting.knob.name: len(setting.values) for setting in schedule.settings}
    if not counts.keys() & set(_TILE_KNOBS):
        return None
    return prod(counts.get(name, _GUESSED_TILES) for name in _TILE_KNOBS)


_FILES = "write them into several files"
_TABLE = "bring what is long as an input"
_FEWER = "name fewer candidates"


def _at_most(most: int, items: Sequence[ast.Node], what: str, advice: str) -> None:
    if len(items) > most:
        _refuse(f"{len(items)} {what}", most, items[most].span, advice)


def _refuse(what: str, most: int, span: Span, advice: str) -> None:
    raise AttnccError(Diagnostic("A011", f"{what} are more than attncc takes: {most}", span, help=advice))
