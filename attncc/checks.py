"""Everything that can be said of a file without building it: what `attncc check` and editors show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .diagnostics import AttnccError, Diagnostic
from .source import SourceFile, read_text

if TYPE_CHECKING:
    from .analysis.mask.kept_rows import KeptRows
    from .analysis.rules import TileRules
    from .compiler import Specification
    from .ir import Variant
    from .schedule.plan import KernelPlan
    from .schedule.schedule import Schedule
    from .semantics.constants import Defines
    from .semantics.imports import Reader
    from .semantics.load import Program
    from .semantics.reach import Folders

# Tiles that the mask is judged by, and the kernels that schedules are judged by: what `attncc build` does by default.
BLOCKS = (128, 128)
HEAD_DIMS = (64, 128)
DTYPE = "bf16"
LENGTH, HEADS = 4096, 2  # of the call whose tiles are counted


@dataclass(frozen=True)
class Checked:
    """What was found. `program`: None where the text has errors, those of its schedules excepted."""

    program: Program | None
    rules: tuple[tuple[Variant, TileRules], ...]  # of each variant
    diagnostics: tuple[Diagnostic, ...]

    @property
    def has_errors(self) -> bool:
        return any(item.severity == "error" for item in self.diagnostics)


def checked(source: SourceFile, defines: Defines, allow_imports: Folders = (), read: Reader = read_text) -> Checked:
    """Checks names, types, masks and schedules. `read` gives the text of an imported file."""
    from .semantics.load import load

    warnings: tuple[Diagnostic, ...] = ()
    try:
        program = load(source, defines, allow_imports, read)
        warnings = program.warnings
        rules = tuple((variant, tile_rules(variant)) for variant in program.variants)
    except AttnccError as error:
        return Checked(None, (), (*warnings, *error.diagnostics))
    return Checked(program, rules, (*warnings, *schedule_errors(program)))


def tile_rules(variant: Variant) -> TileRules:
    """Those of the tiles that the mask is judged by."""
    from .analysis.mask.tiles import analyse

    return analyse(variant, *BLOCKS)


def proof(variant: Variant, rules: TileRules) -> dict[str, Any]:
    """What `--format json` says of a variant: what is proven of its mask, and which share of tiles that decides."""
    return {
        "variant": variant.name,
        "loop_bounds_suffice": rules.bounds_suffice,
        "tests_tiles": rules.decides and not rules.bounds_suffice,
        "min_max_tables": [table.input for table in rules.min_max_tables],
        "verified_nondecreasing": list(rules.sorted_hints),
        "rows": _kept_rows(variant, rules).name.lower(),
        "undecided": [{"line": _line(variant, index), "reason": reason} for index, reason in rules.undecided],
        "tiles": tile_shares(variant, rules),
    }


def what_is_proven(variant: Variant, rules: TileRules) -> list[str]:
    """The same in words, without shares: a line each."""
    lines = [_skipping(variant, rules)]
    if rules.min_max_tables:
        tables = ", ".join(min_max_table.input for min_max_table in rules.min_max_tables)
        lines.append(f"a pre-pass makes min/max tables of {tables}")
    if rules.sorted_hints:
        hinted = " and ".join(rules.sorted_hints)
        lines.append(f"a pre-pass verifies that {hinted} never decrease{'s' * (len(rules.sorted_hints) == 1)}")
    if variant.keeps:
        lines.append(_ROWS[_kept_rows(variant, rules).name])
    for index, reason in rules.undecided:
        lines.append(f"line {_line(variant, index) or '?'} leaves tiles partial: {reason}")
    return lines


_ROWS = {  # whether each row keeps a key
    "ALL_LENGTHS": "every row keeps a key where there are keys, whatever the lengths and inputs",
    "OWN_KEY": "every row keeps a key where q_len <= kv_len, whatever the inputs",
    "NOT_PROVEN": "for some lengths or inputs a row keeps nothing, or it isn't proven otherwise: "
    "it gives 0, and lse -inf",
}


def _skipping(variant: Variant, rules: TileRules) -> str:
    if not variant.keeps:
        return "keeps every pair; no mask code at all"
    if not rules.decides:
        return "no tile can be proven empty or full; every tile evaluates the mask"
    if rules.bounds_suffice:
        return "tiles are skipped by loop bounds alone"
    return "tiles are skipped by loop bounds and a test of each tile"


def tile_shares(variant: Variant, rules: TileRules) -> dict[str, Any]:
    """Of a call with `LENGTH` queries and keys, by inputs that are drawn."""
    from .analysis.mask.grid import pieces, tally
    from .analysis.rules import TileKind
    from .explain import sequences
    from .plausible import drawn
    from .problem import Problem

    problem = Problem(1, HEADS, HEADS, LENGTH, LENGTH, HEAD_DIMS[0], HEAD_DIMS[0])
    inputs = drawn(variant, problem, 0, {})
    found = sequences(variant, rules, problem, {name: item.array for name, item in inputs.items()})
    counts = [tally(pieces(rules, seen, *BLOCKS), HEADS).kinds for seen, _ in found]
    total = sum(sum(kinds.values()) for kinds in counts)
    shares = {kind.name.lower(): sum(kinds[kind] for kinds in counts) / total for kind in TileKind}
    sizes = {"q_len": LENGTH, "kv_len": LENGTH, "heads": HEADS, "block_q": BLOCKS[0], "block_kv": BLOCKS[1]}
    return {**shares, "of": sizes, "drawn": {name: item.how for name, item in inputs.items()}}


def schedule_errors(program: Program) -> list[Diagnostic]:
    """Every A4 of a file: bad lines of its schedules, and each candidate that no kernel can have."""
    if not program.schedules:
        return []  # what follows loads all families of kernels
    from .compiler import Specification
    from .schedule.schedule import from_ast

    judged: list[Schedule] = []
    found: list[Diagnostic] = []
    for node in program.schedules:
        try:
            judged.append(from_ast(node))
        except AttnccError as error:
            found += error.diagnostics
    for variant in program.variants:
        own = tuple(schedule for schedule in judged if schedule.variant == variant.name)
        for schedule in own:
            found += _impossible(Specification(variant, own), schedule)
    return found


def _impossible(specification: Specification, schedule: Schedule) -> list[Diagnostic]:
    """What is wrong with the candidates that run, and with those that are wrong in every combination."""
    wrong = [(candidate.chosen, _refusal(specification, candidate)) for candidate in schedule.candidates()]
    found = list(wrong[0][1])
    for name, values in schedule.settings:
        for value in values:
            refusals = [refusal for chosen, refusal in wrong if chosen[name] == value]
            found += refusals[0] if all(refusals) else ()
    return list({(item.code, item.message): item for item in found}.values())


def _refusal(specification: Specification, schedule: Schedule) -> tuple[Diagnostic, ...]:
    """Why some kernel of the schedule can't be, for the least head dim for which it can't."""
    for head_dim in _head_dims(schedule):
        try:
            _first_plan(specification, schedule, head_dim)
        except AttnccError as error:
            return error.diagnostics
    return ()


def _head_dims(schedule: Schedule) -> tuple[int, ...]:
    """Those of the family that it names, if it names one."""
    from .kernels.registry import find

    family = find(str(schedule.chosen.get("family")), schedule.pass_name)
    return HEAD_DIMS if family is None else family.judged_by


def _first_plan(specification: Specification, schedule: Schedule, head_dim: int) -> KernelPlan:
    """The first that the schedule's kernel may have. Whether there are 2-D tiles depends on the pass whose calls they
    serve, and so on the schedule of that."""
    from .kernels.candidates import make_candidates, make_tiles_2d
    from .schedule.plan import TILES_2D_PASSES, Build

    served = {in_2d: name for name, in_2d in TILES_2D_PASSES.items()}.get(schedule.pass_name)
    build = Build(served or schedule.pass_name, schedule.target, DTYPE, head_dim, head_dim)
    if served is None:
        return make_candidates(specification.variant, build, schedule).first
    tiles_1d = make_candidates(specification.variant, build, specification.schedule(served, schedule.target))
    tiles_2d = make_tiles_2d(tiles_1d, schedule)
    assert tiles_2d is not None  # a schedule for what can't be is refused
    return tiles_2d.first


def _kept_rows(variant: Variant, rules: TileRules) -> KeptRows:
    from .analysis.mask.kept_rows import KeptRows, kept_rows

    return KeptRows.ALL_LENGTHS if rules.rows_never_empty or not variant.keeps else kept_rows(variant)


def _line(variant: Variant, keep: int) -> int | None:
    span = variant.keeps[keep].span
    return span.line if span else None
