"""The mask analysis against brute force, random predicates x random boxes: never unsound, nearly all decided."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileRules
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import Expr, Keep, Search, Variant, walk
from tests.examples import examples

from .masks import (
    Boxes,
    boolean,
    kept_pairs,
    mask_of,
    pair_sums,
    pick,
    random_boxes,
    random_environment,
    random_variant,
    rule_tables,
    without_starts,
)

BLOCKS = (5, 16, 32, 48, 64, 96, 128)
VARIANTS, TILES = 1000, 50

Sizes = tuple[tuple[int, int], tuple[int, int]]  # q_len and kv_len, block_q and block_kv


def random_sizes(random: np.random.Generator) -> Sizes:
    blocks = int(pick(random, BLOCKS)), int(pick(random, BLOCKS))
    q_len, kv_len = (int(length) for length in random.integers(1, 400, 2))
    return (kv_len if random.random() < 0.4 else q_len, kv_len), blocks


@dataclass(frozen=True)
class Trial:
    """One variant with its rules, on some tiles of one random problem; what brute force and the rules say of them."""

    name: str
    rules: TileRules
    mask: Array
    boxes: Boxes
    values: Environment

    @classmethod
    def make(
        cls,
        name: str,
        variant: Variant,
        random: np.random.Generator,
        *,
        packed: bool = False,
        inner: str = "kv",
        sizes: Sizes | None = None,
        tiles: int = TILES,
        **contents: bool,
    ) -> Trial:
        (q_len, kv_len), (block_q, block_kv) = sizes or random_sizes(random)
        rules = analyse(variant, block_q, block_kv, inner)
        environment = random_environment(random, q_len, kv_len, **contents)
        boxes = random_boxes(random, (q_len, kv_len), (block_q, block_kv), tiles)
        start = int(random.integers(0, 300)) if packed else 0
        tables = rule_tables(rules, environment, start, random)
        values = Environment(
            {**environment.symbols, **boxes.symbols(), "q_start": start, "kv_start": start},
            {**environment.inputs, **tables},
        )
        return cls(
            f"{name}, blocks {block_q} {block_kv}\n{variant.show_lowered()}",
            rules,
            mask_of(variant, environment),
            boxes,
            values,
        )

    @cached_property
    def sums(self) -> Array:
        return pair_sums(self.mask)

    def value(self, rule: Expr) -> Array:
        return np.broadcast_to(evaluate(rule, self.values), self.boxes.q_first.shape)

    def kept(self, kv_first: Array | None = None, kv_last: Array | None = None) -> Array:
        """How many pairs brute force keeps in the rows of each tile, from kv_first to kv_last (default: the tile's)."""
        box = self.boxes
        first = box.kv_first if kv_first is None else kv_first
        return kept_pairs(self.sums, Boxes(box.q_first, box.q_last, first, box.kv_last if kv_last is None else kv_last))

    def bounds(self) -> tuple[Array, Array, Array, Array]:
        rules = self.rules
        begin, end, first, last = (
            self.value(rule) for rule in (rules.kv_begin, rules.kv_end, rules.full_begin, rules.full_end)
        )
        return begin, end, first, last

    def check_sound(self) -> None:
        """No kept pair is dropped, by tile or by bounds, and nothing is called full that isn't."""
        begin, end, full_begin, full_end = self.bounds()
        kv_len = self.mask.shape[1]
        assert all(((x >= 0) & (x <= kv_len)).all() for x in (begin, end, full_begin, full_end)), self.name
        kept = self.kept()
        assert not (kept[~self.value(self.rules.any_kept)]).any(), self.name
        assert (kept == self.boxes.pairs)[self.value(self.rules.all_kept)].all(), self.name
        everything = self.kept(np.zeros_like(begin), np.full_like(end, kv_len - 1))
        # An empty range is asked for as one that ends before it begins: kept_pairs gives 0 for it.
        inside = self.kept(begin, np.maximum(end, begin) - 1)
        assert (inside == everything).all(), self.name
        rows = self.boxes.q_last - self.boxes.q_first + 1
        full = self.kept(full_begin, np.maximum(full_end, full_begin) - 1)
        assert (full == rows * np.maximum(full_end - full_begin, 0)).all(), self.name
        if self.rules.rows_never_empty:
            assert self.mask.any(axis=1).all(), self.name

    def check_exact(self) -> None:
        """Every tile as kernels lay them is told to be EMPTY or FULL where brute force finds it so."""
        kept, laid, (empty, full) = self.kept(), self.boxes.laid(), self.decided()
        assert (empty == (kept == 0))[laid].all(), self.name
        assert (full == (kept == self.boxes.pairs))[laid & (kept > 0)].all(), self.name

    def check_rows_sound(self) -> None:
        """The same of the rows that matter to each block of keys; where they suffice, tile rules find nothing more."""
        assert self.rules.q_bounds is not None
        names = ("q_begin", "q_end", "full_begin", "full_end")
        begin, end, full_begin, full_end = (self.value(getattr(self.rules.q_bounds, name)) for name in names)
        box, q_len = self.boxes, self.mask.shape[0]
        assert all(((x >= 0) & (x <= q_len)).all() for x in (begin, end, full_begin, full_end)), self.name

        def kept(first: Array, end: Array) -> Array:
            return kept_pairs(self.sums, Boxes(first, np.maximum(end, first) - 1, box.kv_first, box.kv_last))

        assert (kept(begin, end) == kept(np.zeros_like(begin), np.full_like(end, q_len))).all(), self.name
        keys = box.kv_last - box.kv_first + 1
        assert (kept(full_begin, full_end) == keys * np.maximum(full_end - full_begin, 0)).all(), self.name
        if self.rules.bounds_suffice:
            outside = (box.q_last < begin) | (box.q_first >= end) | (begin >= end)
            inside = (box.q_first >= full_begin) & (box.q_last < full_end)
            assert not (~self.value(self.rules.any_kept) & ~outside).any(), f"bounds don't suffice: {self.name}"
            assert not (self.value(self.rules.all_kept) & ~inside & ~outside).any(), (
                f"bounds don't suffice: {self.name}"
            )

    def decided(self) -> tuple[Array, Array]:
        """Tiles that the bounds and the tile rule find EMPTY, and FULL."""
        begin, end, full_begin, full_end = self.bounds()
        box = self.boxes
        empty = (box.kv_last < begin) | (box.kv_first >= end) | (begin >= end)
        full = (box.kv_first >= full_begin) & (box.kv_last < full_end)
        tile_empty, tile_full = ~self.value(self.rules.any_kept), self.value(self.rules.all_kept)
        if self.rules.bounds_suffice:
            assert not (tile_empty & ~empty).any(), f"bounds don't suffice: {self.name}"
            assert not (tile_full & ~full & ~empty).any(), f"bounds don't suffice: {self.name}"
        return empty | tile_empty, full | tile_full


@pytest.mark.parametrize("numbers", examples(VARIANTS, every_day=VARIANTS // 4))
def test_random_masks_are_sound_and_nearly_all_decided(numbers: range) -> None:
    """50,000 pairs of a predicate and a tile: each sound; 98 % of the tiles as kernels lay them are decided."""
    decidable = decided = 0
    for index in numbers:
        random = np.random.default_rng((2025, index))
        trial = Trial.make(f"mask {index}", random_variant(random), random)
        trial.check_sound()
        kept, laid, (empty, full) = trial.kept(), trial.boxes.laid(), trial.decided()
        decidable += np.count_nonzero(laid & ((kept == 0) | (kept == trial.boxes.pairs)))
        decided += np.count_nonzero(laid & (empty & (kept == 0) | full & (kept == trial.boxes.pairs)))
    assert decidable > 5 * len(numbers)
    assert decided >= 0.98 * decidable, f"{decided} of {decidable}"


@pytest.mark.parametrize("numbers", examples(500, every_day=90))
def test_rows_of_a_block_of_keys_are_sound(numbers: range) -> None:
    """The loop bounds of kernels that go over rows for each block of keys, dense and packed, inputs of any size."""
    for index in numbers:
        random = np.random.default_rng((11, index))
        where = {"packed": index % 3 == 1, "extreme": index % 3 == 2}
        trial = Trial.make(f"mask {index} by keys", random_variant(random), random, inner="q", **where)
        trial.check_rows_sound()


@pytest.mark.parametrize("numbers", examples(150, every_day=30))
def test_packed_batches_are_sound(numbers: range) -> None:
    """Sequences that lie on packed axes: min/max tables hold neighbours, and blocks begin anywhere."""
    for index in numbers:
        random = np.random.default_rng((7, index))
        Trial.make(f"packed mask {index}", random_variant(random), random, packed=True).check_sound()


@pytest.mark.parametrize("numbers", examples(100, every_day=25))
@pytest.mark.parametrize("packed", [False, True])
def test_sorted_hints_are_sound_true_or_false(packed: bool, numbers: range) -> None:
    """Inputs declared nondecreasing, most of which are."""
    decided = searched = 0
    for index in numbers:
        random = np.random.default_rng((10, index))
        variant = random_variant(random, hints=True)
        extreme = random.random() < 0.1
        trial = Trial.make(f"hints {index}", variant, random, packed=packed, extreme=extreme, hints=True)
        trial.check_sound()
        searched += any(isinstance(node, Search) for node in walk(*trial.rules.bounds))
        if trial.rules.sorted_hints:
            decided += np.count_nonzero(np.logical_or(*trial.decided()))
    assert searched > 0.3 * len(numbers) and decided > 4 * len(numbers)


@pytest.mark.parametrize("numbers", examples(200, every_day=45))
def test_inputs_at_the_ends_of_their_dtypes_are_sound(numbers: range) -> None:
    """Sums with them wrap in the mask itself; the rules must not take them for integers without bounds."""
    for index in numbers:
        random = np.random.default_rng((6, index))
        Trial.make(f"extreme {index}", random_variant(random), random, extreme=True).check_sound()


def test_comparisons_of_floats_are_partial_and_sound() -> None:
    for index in range(60):
        random = np.random.default_rng((8, index))
        condition = boolean(random, 2, floats=5)
        variant = random_variant(random)
        mixed = Variant("floats", inputs=variant.inputs, statements=(Keep(condition), *variant.statements[:1]))
        Trial.make(f"floats {index}", mixed, random).check_sound()


@pytest.mark.parametrize("numbers", examples(100, every_day=40))
def test_rules_read_no_positions_of_pairs(numbers: range) -> None:
    """Bounds read the q side of the tile alone, tile rules its four ends; lets and q_pos are written out."""
    for index in numbers:
        random = np.random.default_rng((9, index))
        rules = analyse(random_variant(random), 32, 64)
        for bound in (rules.kv_begin, rules.kv_end, rules.full_begin, rules.full_end):
            assert not without_starts(bound) & {"kv_first", "kv_last", "q_idx", "kv_idx", "q_pos"}
        of_keys = analyse(random_variant(random), 32, 64, "q").q_bounds
        for bound in (of_keys.q_begin, of_keys.full_begin, of_keys.full_end, of_keys.q_end):
            assert not without_starts(bound) & {"q_first", "q_last", "q_idx", "kv_idx", "q_pos"}
        for rule in (rules.any_kept, rules.all_kept):
            assert not without_starts(rule) & {"q_idx", "kv_idx", "q_pos"}
