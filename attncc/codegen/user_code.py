"""`UserCode`: what a variant means, as CUDA text that the templates print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..analysis.algebra.algebra import FALSE, TRUE
from ..analysis.algebra.places import PLACE_SYMBOLS, by_places, rows_apart
from ..analysis.grid_2d import Grid2D
from ..analysis.mask.key_sets import (
    Common,
    KeepMask,
    KeySet,
    LaneKeys,
    common_parts,
    keep_masks,
    of_columns,
    pairwise_masks,
)
from ..analysis.mask.shared_tests import ask_for_ids
from ..analysis.score.distances import by_distance
from ..analysis.score.score_form import NEAR_SERIES, ScoreForm, distance_form, score_form
from ..descales import descaled, score_descale, value_descale
from ..first_query import first_query
from ..ir import Expr, Keep, Let, Load, Score, Statement, Type, needs, reads, root_of, show, symbol
from ..kernels.instruction_cost import LONG_TEST, looks_up_pairs, shares_tests, test_cost
from ..kernels.registry import backward_facts, facts_of
from ..schedule.plan import KernelPlan
from ..statements import AXIS_INDEX
from . import form_code, gradients, key_lines, structs, tile_code
from .expressions import Lowering
from .floats import connect
from .functions import Body, Fields, Interner
from .key_bits import BITS, BitPrinter
from .key_lines import KeyLine
from .nodes import BOOL, INT, LONG, Level, Node

_ID_TYPES = (INT, LONG, BOOL)
_OWN_PLACE = re.compile(r"\brow\.(q_idx|h)\b")


@dataclass(frozen=True)
class UserCode:
    """CUDA text: whole structs and functions, each with its comment; empty where the plan has no use for one."""

    includes: str  # `#include` lines of the leaf files that the functions need
    params_struct: str
    context: str  # struct Context, make_context
    row: str  # struct Row, make_row
    keep: str  # what of the mask must be tested for each pair
    keep_at: str  # backward, in 2-D tiles: all of the mask, for a pair by its places on the grid; `keep` is empty
    keep_apart: str  # keep_rows, keep_columns: what of that looks at rows alone, or columns; `keep_at` has the rest
    rows_alike: str  # rows_alike, row_of_lane: where rows that have the same values keep the same keys by such tests
    score_entries: str  # struct ScoreEntry, ScoreEntries: what score lines read at keys, where a lane reads it ahead
    keep_entries: str  # struct KeepEntry, KeepEntries: the same for `keep`
    keep_sixteen: str  # backward for Hopper: KeepEntry, `keep` that takes it, keep_sixteen, sixteen_in_pieces
    row_values: str  # taking_values: backward for Hopper, not in 2-D tiles, where keep lines look something up
    tests_hold: str  # tests_hold: where whole ranges of keys may be known to pass them
    keep_bits: str  # and the rest of it, for all keys of a lane at once
    column_bits: str  # but for what is the same in all tiles of a window
    score: str  # score_mod; of backward passes struct ScoreGradient, score_gradient
    score_form: str  # score_form_holds, score_factor, score_bias
    near: bool  # near_score_factor is there too: a shorter one for smaller products
    masks_last: bool  # whether the mask may come after the exponents: of all tiles they are made in one way
    whole_tile: str  # the template for score lines of whole tiles; with distances two rows of a lane share what is read
    learned: str  # backward: struct Learned
    bounds: str  # struct KvBounds, kv_bounds; or QBounds, q_bounds
    tile_kind: str
    dropout: str  # dropout_threshold
    first_query: str  # where a launch has a part of the queries, and there is dropout
    sink: str  # sink_logit
    value_descale: str  # of 8-bit operands

    @property
    def functions(self) -> str:
        """The structs and functions of the variant, in order; not the includes and Params."""
        mask = (self.keep, self.keep_sixteen, self.keep_apart, self.keep_at, self.keep_bits, self.column_bits)
        scores = (self.score, self.score_form, self.learned)
        read = self.score_entries, self.keep_entries
        of_rows = (self.dropout, self.first_query, self.sink, self.value_descale)
        of_tiles = self.bounds, self.tile_kind, self.tests_hold
        parts = (self.context, self.row, self.rows_alike, self.row_values, *read, *mask, *scores, *of_tiles, *of_rows)
        return "\n\n".join(part for part in parts if part)


def user_code(
    plan: KernelPlan, masks: Iterable[KeepMask] | None = None, *, tests_tiles: bool | None = None
) -> UserCode:
    """Prints a plan's variant. `masks` say what of its keep lines are key sets: by default, as much as can be.

    `tests_tiles`: for a kernel that calls `tile_kind`, as the plan's own may or may not.
    """
    tests = facts_of(plan).uses_tile_kind if tests_tiles is None else tests_tiles
    return _Printer(plan).print(tuple(_masks(plan) if masks is None else masks), tests)


def _masks(plan: KernelPlan) -> Iterable[KeepMask]:
    """Key sets serve where the keys of a row stand in a row of the scores."""
    if plan.is_backward:
        return pairwise_masks(plan.variant)
    return keep_masks(plan.variant, plan.block_kv, LaneKeys.of(plan.grid_2d))


def _parts(keys: KeySet, same: bool) -> KeySet | None:
    """What of a set is the same in all tiles of a window, or what isn't."""
    found = tuple(part for part in common_parts(keys) if of_columns(part) == same)
    return None if not found else found[0] if len(found) == 1 else Common(found)


class _Printer:
    """Prints the functions that read Context and Row first: they say what those two must hold."""

    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.facts = facts_of(plan)
        self.variant = plan.variant
        self.lowering = Lowering(plan)
        self.interner = Interner()
        self.fields = Fields(self.interner)

    def print(self, masks: tuple[KeepMask, ...], tests_tiles: bool) -> UserCode:
        """Each function may add fields to Context and Row, and leaf files: these are printed last."""
        plan, lowering, fields = self.plan, self.lowering, self.fields
        by_place = plan.is_backward and plan.grid_2d is not None
        keep_apart, keep_at = self.kept_by_places(plan.grid_2d) if by_place and plan.grid_2d is not None else ("", "")
        tests = [mask.each for mask in masks if mask.each is not None]
        asked = {mask.keep: mask.each for mask in masks if mask.each is not None and not by_place}
        keep_lines = () if plan.is_backward else self.keep_lines(asked)
        keep_entries = self.entries(keep_lines)
        keep = self.keep(asked, keep_lines)
        keep_sixteen = self.keep_sixteen(asked)
        rows_alike = "" if keep_lines else self.rows_alike(keep, tests)
        row_values = self.row_values()
        keep_bits, column_bits = self.all_bits({mask.keep: mask.keys for mask in masks if mask.keys is not None})
        score_lines = self.score_lines()
        score_entries = self.entries(score_lines)
        score, form, learned = self.score_gradient() if plan.is_backward else self.scores(score_lines)
        of_tiles = Lowering(plan, of_rows=False) if self.facts.packs_heads else lowering
        bounds = tile_code.loop_bounds(plan, of_tiles, fields) if tile_code.bounds_needed(plan) else ""
        kind = tile_code.tile_kind(plan, of_tiles, fields) if tests_tiles and tile_code.kind_needed(plan) else ""
        hold = tile_code.tests_hold(plan, tests, lowering, fields) if rows_alike else ""
        dropout, moved, sink, descale = self.dropout(), self.first_query(), self.sink(), self.value_descale()
        row = structs.row(fields, self.facts.packs_heads)
        context = structs.context(fields, self.scale(), self.descale())
        leaves = {
            "tiles/tile_kind.cuh": kind,
            "score/score_form.cuh": form,
            "score/near_factor.cuh": self.near_form is not None,
            "score/distances.cuh": "distances" in self.whole_tile,
            "score/scores_read.cuh": score_lines or keep_lines,
            key_lines.LEAF: score_lines or keep_lines,
            key_lines.ROW_LEAF: keep_sixteen,
            self._learned_leaf(): learned,
        }
        return UserCode(
            includes=self._includes(leaf for leaf, is_needed in leaves.items() if is_needed),
            params_struct=structs.params_struct(self.facts.parameters()),
            context=context,
            row=row,
            keep=keep,
            keep_at=keep_at,
            keep_apart=keep_apart,
            rows_alike=rows_alike,
            score_entries=score_entries,
            keep_entries=keep_entries,
            keep_sixteen=keep_sixteen,
            row_values=row_values,
            tests_hold=hold,
            keep_bits=keep_bits,
            column_bits=column_bits,
            score=score,
            score_form=form,
            near=self.near_form is not None,
            masks_last=self.masks_last,
            whole_tile=self.whole_tile,
            learned=learned,
            bounds=bounds,
            tile_kind=kind,
            dropout=dropout,
            first_query=moved,
            sink=sink,
            value_descale=descale,
        )

    def _includes(self, leaves: Iterable[str]) -> str:
        paths = sorted(self.interner.includes | {*leaves}, key=lambda path: path.rpartition("/")[2])
        return "\n".join(f'#include "{path}"' for path in paths)

    def _learned_leaf(self) -> str:
        twice = self.plan.is_backward and backward_facts(self.plan).adds_pairs_twice
        return "learned/learned_runs.cuh" if twice else "learned/learned.cuh"

    def score_gradient(self) -> tuple[str, str, str]:
        """Of backward passes: the gradient of the score lines, no form, and what sums those of learnable inputs."""
        score = gradients.score_gradient(self.plan, self.lowering, self.fields)
        return score, "", gradients.learned(self.plan, self.lowering, self.fields)

    def scores(self, lines: tuple[KeyLine, ...]) -> tuple[str, str, str]:
        """Of forward passes: the score lines, their form, and nothing that learns."""
        score = self.score(lines) if self.variant.scores else ""
        if self.form is None:
            return score, "", ""
        return score, form_code.functions(self.form, self.near_form, self.lowering, self.fields), ""

    # ---------------------------------------------------------------- functions of elements

    def score_lines(self) -> tuple[KeyLine, ...]:
        """What score lines read at keys, where that is read ahead of them."""
        if not self.facts.reads_key_lines or not self.variant.scores or self.whole_tile != "pairs":
            return ()
        roots = {score.value: score.span for score in self.variant.scores}
        return key_lines.find("Score", self.variant, roots, self.lowering)

    def keep_lines(self, tests: Mapping[Keep, Expr]) -> tuple[KeyLine, ...]:
        """The same of the tests of pairs, where these aren't made once for several rows."""
        called = test_cost(self.variant) > LONG_TEST
        if not self.facts.reads_key_lines or called or shares_tests(self.variant):
            return ()
        return key_lines.find("Keep", self.variant, {test: keep.span for keep, test in tests.items()}, self.lowering)

    def entries(self, lines: tuple[KeyLine, ...]) -> str:
        return key_lines.code(lines, self.lowering, self.fields) if lines else ""

    def keep(self, tests: Mapping[Keep, Expr], lines: tuple[KeyLine, ...] = ()) -> str:
        lowering = self.reading(lines)
        nodes = {keep: lowering.lower(test) for keep, test in tests.items()}
        called = bool(nodes) and test_cost(self.variant) > LONG_TEST
        context, row = ("Context", "Row") if called else ("Context&", "Row&")  # values come in registers
        head = f"bool keep(const Params& params, const {context} ctx, const {row} row, int kv_idx{_read(lines)})"
        return self._mask(head, nodes, BOOL, called=called)

    def keep_sixteen(self, tests: Mapping[Keep, Expr]) -> str:
        """Backward: `keep` for what is read of a row at 16 keys at once, and `keep_sixteen`. What all rows share is few
        loads in any case."""
        lines = self.keep_lines(tests) if self.plan.is_backward else ()
        if not any(item.of_row for item in lines):
            return ""
        head, sixteen = key_lines.code_of_rows(lines, self.lowering, self.fields)
        return "\n\n".join((head, self.keep(tests, lines), sixteen))

    def reading(self, lines: tuple[KeyLine, ...]) -> Lowering:
        """For a function that finds in `read` what is read at keys."""
        return Lowering(self.plan, read={item.load: item.entry for item in lines}) if lines else self.lowering

    def kept_by_places(self, grid_2d: Grid2D) -> tuple[str, str]:
        """`keep_apart` and `keep_at`."""
        tests = {keep: by_places(keep.condition, self.variant.lets, grid_2d) for keep in self.variant.keeps}
        parts = {keep: rows_apart(test, grid_2d) for keep, test in tests.items()}
        of_rows, of_columns, left = ({keep: found[kind] for keep, found in parts.items()} for kind in range(3))
        keep_at = self.tested("keep_at", PLACE_SYMBOLS, left) if {*left.values()} != {TRUE} else ""
        if {*of_rows.values(), *of_columns.values()} == {TRUE}:
            return "", keep_at
        rows, columns = (tuple(name for name in PLACE_SYMBOLS if axis in name) for axis in ("row", "column"))
        apart = self.tested("keep_rows", rows, of_rows), self.tested("keep_columns", columns, of_columns)
        return "\n\n".join(apart), keep_at

    def tested(self, name: str, places: Sequence[str], tests: Mapping[Keep, Expr]) -> str:
        """A function of places, which returns whether all of some tests hold."""
        some = [keep for keep, test in tests.items() if test != TRUE] or list(tests)[:1]
        nodes = {keep: self.lowering.lower(tests[keep]) for keep in some}
        arguments = ", ".join(f"int {place}" for place in places)
        return self._mask(f"bool {name}(const Params& params, const Context& ctx, {arguments})", nodes, BOOL)

    def rows_alike(self, keep: str, tests: Sequence[Expr]) -> str:
        """After `keep`, which has said what of a row it reads: fields. The forward passes alone have a use for it."""
        fields = self.fields.of_level[Level.ROW]
        comparable = all(node.ctype in _ID_TYPES for node in fields) and not _OWN_PLACE.search(keep)
        if self.plan.is_backward or not (comparable and ask_for_ids(self.variant, tests)):
            return ""
        return structs.rows_alike(fields.values())

    def row_values(self) -> str:
        """The same: what its keep lines look up."""
        return structs.row_values(self.fields) if self.facts.keeps_row_values and looks_up_pairs(self.variant) else ""

    def all_bits(self, sets: Mapping[Keep, KeySet]) -> tuple[str, str]:
        """`keep_bits`, and `column_bits` where tiles are windows."""
        if self.plan.rules.columns is None:
            return self.bits("keep_bits", sets), ""
        of_tile, of_all = ({keep: _parts(keys, same) for keep, keys in sets.items()} for same in (False, True))
        return self.bits("keep_bits", of_tile), self.bits("column_bits", of_all)

    def bits(self, name: str, sets: Mapping[Keep, KeySet | None]) -> str:
        printer = BitPrinter(self.lowering, self.plan.block_kv, LaneKeys.of(self.plan.grid_2d))
        nodes = {keep: printer.node(keys) for keep, keys in sets.items() if keys is not None}
        head = f"unsigned {name}(const Params& params, const Context& ctx, const Row& row, int kv_idx)"
        return self._mask(head, nodes, BITS)

    def _mask(self, head: str, nodes: Mapping[Keep, Node], ctype: str, *, called: bool = False) -> str:
        """A function that returns what is common to the parts of some keep lines; nothing if there are none."""
        if not nodes:
            return ""
        first, *others = nodes.values()
        if not others:
            return self._function(head, first, tuple(nodes), called=called)
        named = [
            node if node.is_leaf or node.named else node.called(f"keep_{number}", keep.span)
            for number, (keep, node) in enumerate(nodes.items(), start=1)
        ]
        return self._function(head, connect("and", tuple(named), ctype), tuple(nodes), called=called)

    def score(self, lines: tuple[KeyLine, ...]) -> str:
        """Score lines in order; the lets that read the score are lowered where they stand among them."""
        *_, last = self.variant.scores
        lowering = self.reading(lines)
        for statement in self.variant.statements:
            if isinstance(statement, Let) and "score" in reads(self.variant, statement.value):
                lowering.define(statement.name)
            elif isinstance(statement, Score):
                lowering.rescore(self._scored(lowering, statement, statement is last))
        parameters = "const Params& params, const Context& ctx, const Row& row, int kv_idx, float score"
        head = f"float score_mod({parameters}{_read(lines)})"
        return self._function(head, lowering.score, self.variant.scores)

    @cached_property
    def form(self) -> ScoreForm | None:
        """The cheap form of the score lines, if they have one. fp32 keeps the exact one."""
        plan = self.plan
        exact = plan.dtype == "fp32" or not self.variant.scores
        form = None if exact else score_form(self.variant, plan.block_q, plan.block_kv)
        if form is None and not exact and self.facts.shares_distances:
            form = distance_form(self.variant)
        if form is None or (plan.grid_2d is not None and form.holds != TRUE):  # its ends are those of a range
            return None
        # They know no row.
        if self.facts.packs_heads and "h" in reads(self.variant, form.holds, form.argument, *form.terms):
            return None
        return form

    @cached_property
    def near_form(self) -> ScoreForm | None:
        """The form for smaller products."""
        plan = self.plan
        if self.form is None or not self.facts.has_near_form:
            return None
        return score_form(self.variant, plan.block_q, plan.block_kv, NEAR_SERIES)

    @property
    def masks_last(self) -> bool:
        if not self.variant.scores:
            return True
        return self.form is not None and self.form.holds == TRUE and len(self.form.terms) == 1

    @property
    def whole_tile(self) -> str:
        """The template for score lines of tiles that are kept whole."""
        form = self.form
        if form is None:
            return "pairs"
        by_table = form.holds != TRUE and len(form.terms) == 1 and form.degree == 0 and by_distance(form.bias)
        if not by_table or not self.facts.shares_distances:
            return "form"
        return "distances_apart" if form.holds == FALSE else "distances"

    def _scored(self, lowering: Lowering, statement: Score, is_last: bool) -> Node:
        node = lowering.lower(statement.value)
        if is_last or node.is_leaf:
            return node
        return node.called(f"score_{self.variant.scores.index(statement) + 1}", statement.span)

    def _function(
        self, head: str, root: Node, statements: tuple[Keep, ...] | tuple[Score, ...], *, called: bool = False
    ) -> str:
        """A function that returns `root`; above it, the source of its statements and of the lets that they read."""
        root = self.interner.intern(root)
        span = statements[-1].span if len(statements) == 1 or isinstance(statements[-1], Score) else None
        body = Body(self.fields, Level.ELEMENT, [(root, span)])
        body.add(f"return {body.value(root, span)};")
        return structs.make_function(head, body.lines, self._sources(statements), called=called)

    def _sources(self, statements: tuple[Keep, ...] | tuple[Score, ...]) -> Iterator[str]:
        roots = map(root_of, statements)
        wanted = {item.name for item in needs(self.variant, *roots)}
        for statement in self.variant.statements:
            if statement in statements or (isinstance(statement, Let) and statement.name in wanted):
                yield _source(statement)

    # ---------------------------------------------------------------- uniform functions

    def dropout(self) -> str:
        rate = self.variant.dropout
        if rate is None:
            return ""
        body = Body(self.fields, Level.UNIFORM, [])
        text = body.value(self.interner.intern(self.lowering.lower(rate)))
        body.add(f"const float rate = {text};")
        body.add("return (unsigned)fminf(fmaxf(rintf(256.0f * (1.0f - rate)), 1.0f), 256.0f);")
        comment = "A probability is kept iff its random byte is below this: the keep rate in steps of 1/256."
        return structs.make_function("unsigned dropout_threshold(const Params& params)", body.lines, [comment])

    def first_query(self) -> str:
        place = first_query(self.variant)
        if place is None:
            return ""
        head = "int first_query(const Params& params, const Context& ctx)"
        return self._of_head(head, place, "What q_idx 0 is in the whole sequence, as dropout counts.")

    def sink(self) -> str:
        name = self.variant.sink
        if name is None:
            return ""
        axes = self.variant.input(name).axes
        indices = tuple(symbol(AXIS_INDEX[axis.tag or "head"]) for axis in axes)
        level, row = (Level.ROW, ", const Row& row") if self.facts.packs_heads else (Level.UNIFORM, "")
        head = f"float sink_logit(const Params& params, const Context& ctx{row})"
        return self._of_head(head, Load(Type.FLOAT, name, indices), f"sink {name}", level)

    def value_descale(self) -> str:
        if not descaled(self.variant):
            return ""
        head = "float value_descale(const Params& params, const Context& ctx)"
        return self._of_head(head, value_descale(), "What v of this sequence and head stands for, in its own units.")

    def _of_head(self, head: str, value: Expr, comment: str, level: Level = Level.UNIFORM) -> str:
        node = self._uniform(value)
        body = Body(self.fields, level, [(node, None)])
        body.add(f"return {body.value(node)};")
        return structs.make_function(head, body.lines, [comment])

    def scale(self) -> Node | None:
        return None if self.variant.scale is None else self._uniform(self.variant.scale)

    def descale(self) -> Node | None:
        return self._uniform(score_descale()) if descaled(self.variant) else None

    def _uniform(self, value: Expr) -> Node:
        return self.interner.intern(self.lowering.lower(value))


def _read(lines: tuple[KeyLine, ...]) -> str:
    """The parameter of a function that finds there what is read at keys."""
    return f", const {lines[0].kind}Entry& read" if lines else ""


def _source(statement: Statement) -> str:
    """A statement as the user wrote it; as IR if the plan came without its source."""
    if statement.span is not None:
        return statement.span.one_line
    match statement:
        case Let():
            return f"let {statement.name} = {show(statement.value)}"
        case Keep():
            return f"keep if {show(statement.condition)}"
        case Score():
            return f"score = {show(statement.value)}"
