"""What one call costs and why: tiles, FLOPs, bytes of each loop order, roofline, shared memory, registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .analysis.algebra.algebra import FALSE, TRUE
from .analysis.cost import cost
from .analysis.cost.roofline import Device, Roofline, roofline
from .analysis.mask.grid import Tally, TileGrid, classified, pieces, rule_tables, tally
from .analysis.mask.normal_form import is_large
from .analysis.mask.tiles import analyse, analyse_tiles_2d
from .analysis.rules import TileKind, TileRules
from .analysis.tiles_2d.tally_2d import tally_2d, tile_kinds_2d
from .evaluate import Array, Environment
from .executor.run import plan_grid, skips, workload
from .ir import Keep, Search, Variant, const, symbol, walk
from .kernels import legality
from .kernels.candidates import make_plan
from .kernels.decode.facts import Decode
from .kernels.helpers.tile_lists import TileLists
from .kernels.live_tiles import most_tiles
from .kernels.registry import facts_of, forward_facts, kinds
from .kernels.splits import choose_splits
from .problem import Problem
from .problem.masks import bind_mask
from .runtime.store.crossings import Measured, chip_like, kept_like
from .schedule.plan import DTYPE_BYTES, KernelPlan
from .schedule.schedule import Schedule
from .schedule.target import TARGETS

LATENTS = "V in K"  # the order of calls whose v is the first columns of k, where a kernel loads those once
MOST_LINES = 32  # of a mask: of more nobody asks which leaves tiles PARTIAL, and each takes an analysis of its own
MOST_NODES = 500  # the same of their conditions
# Operations of keep lines on pairs, for all that is counted: more takes seconds, and an estimate serves as well.
MOST_WORK = 1e8


@dataclass(frozen=True)
class Order:
    """One way to compute it. `bytes_moved` counts reads and writes of HBM; Standard attention has no tiles."""

    name: str
    blocks: tuple[int, int] | None  # block_q, block_kv
    flops: int  # those that the tensor cores do
    bytes_moved: int
    tiles: Mapping[str, int]
    roofline: Roofline


@dataclass(frozen=True)
class Explanation:
    """Everything that `attncc explain` prints of a plan and a problem."""

    plan: KernelPlan
    problem: Problem
    device: Device
    pairs: int
    kept_pairs: int
    counted: bool  # all of them; else in some rows, chosen at random
    useful_flops: int
    beside: tuple[KernelPlan, ...]  # of decode calls: the plans of those with other numbers of rows
    splits: int  # of each row's keys; where the call chooses, what it is expected to choose
    orders: tuple[Order, ...]
    partial_tiles: tuple[int, ...]  # of the plan's kernel: how many each keep line would leave PARTIAL by itself

    @property
    def computed_pairs(self) -> int:
        """Pairs in the tiles that the plan's kernel doesn't skip; kept ones are among them."""
        own = next(order for order in self.orders if order.name == self.plan.loop)
        block_q, block_kv = min(self.plan.block_q, self.problem.q_len), min(self.plan.block_kv, self.problem.kv_len)
        live = sum(count for kind, count in own.tiles.items() if kind != "empty")
        return min(live * block_q * block_kv, self.pairs)

    @property
    def way_out(self) -> str:
        return way_out(self.plan, self.problem)

    @property
    def shared_memory(self) -> dict[str, int]:
        """Bytes by part."""
        return legality.shared_memory(self.plan)

    @property
    def filled(self) -> list[tuple[str, int, int]]:
        """The operands that each call on a GPU copies, to fill up their rows: their columns, those of the copies."""
        plan = self.plan
        k_columns, v_columns = plan.kv_columns
        keys = [("q and k", plan.head_dim, k_columns)]
        if k_columns != plan.stored_head_dim:
            keys = [("q", plan.head_dim, plan.stored_head_dim), ("k", plan.head_dim, k_columns)]
        rows = [*keys, ("v", plan.value_head_dim, v_columns)]
        return [(names, own, columns) for names, own, columns in rows if own != columns]

    @property
    def crossings(self) -> Measured | None:
        """The crossing points by which calls get their kernel, if this machine has measured them; else the usual ones
        count."""
        return kept_like(self.device)

    def to_json(self) -> dict[str, Any]:
        """The numbers, for programs. Times are in seconds."""
        plan, crossings = self.plan, self.crossings
        names = (
            *("dtype", "kv_dtype", "target", "lengths", "loop", "block_q", "block_kv", "warps", "stages", "split_kv"),
            "skip",
        )
        return {
            "variant": plan.variant.name,
            "problem": asdict(self.problem),
            "device": self.device.name,
            "plan": {
                "pass": plan.pass_name,
                "calls": facts_of(plan).calls,
                **{name: getattr(plan, name) for name in names},
                "grid_2d": None if plan.grid_2d is None else asdict(plan.grid_2d),
            },
            "beside": [{"calls": facts_of(item).calls, "tiles": item.tiles} for item in self.beside],
            "crossings": None if crossings is None else crossings.to_json(),
            "filled": {names: columns for names, _, columns in self.filled},
            "splits": self.splits,
            "pairs": self.pairs,
            "kept_pairs": self.kept_pairs,
            "kept_pairs_counted": self.counted,
            "computed_pairs": self.computed_pairs,
            "useful_flops": self.useful_flops,
            "tiles": self.way_out,
            "partial_tiles": list(self.partial_tiles),
            "orders": [{**asdict(order), "seconds": order.roofline.seconds} for order in self.orders],
            "shared_memory": self.shared_memory,
            "shared_memory_limit": TARGETS[plan.target].shared_bytes,
        }


def explain(
    plan: KernelPlan, problem: Problem, inputs: Mapping[str, Any], device: Device, beside: tuple[KernelPlan, ...] = ()
) -> Explanation:
    """Counts for a dense problem. Inputs that the keep lines read must be there; see `analysis.cost`. `beside` is told.

    AttnccError A6xx for inputs that don't suit.
    """
    work, element_bytes = workload(plan, problem), DTYPE_BYTES[plan.dtype]
    pairs = problem.batch * problem.num_heads * problem.q_len * problem.kv_len
    (kept, counted), splits = kept_pairs(plan, problem, inputs), expected_splits(plan, problem, device)

    def tiled(name: str, of: KernelPlan, work: cost.Workload = work) -> Order:
        distinct = tallies(of, problem, inputs)
        seen = distinct * (problem.batch // len(distinct))
        if of.loop == "kv_outer":
            traffic = cost.kv_outer_traffic(work, seen)
        else:
            traffic = cost.q_outer_traffic(work, seen, splits if of is plan else 1, facts_of(of).row_heads(problem))
        flops = cost.executed_flops(work, seen)
        tiles = {kind.name.lower(): sum(tally.kinds[kind] for tally in seen) for kind in TileKind}
        bound = roofline(flops, traffic, device, element_bytes)
        return Order(name, (of.block_q, of.block_kv), flops, traffic.total, tiles, bound)

    traffic, flops = cost.standard_traffic(work), cost.useful_flops(work, pairs)
    bound = roofline(flops, traffic, device, element_bytes)
    orders = [Order("standard", None, flops, traffic.total, {}, bound)]
    orders += [tiled(name, of) for name, of in _tiled_plans(plan).items()]
    if forward_facts(plan).latent_stages:
        orders.append(tiled(LATENTS, plan, replace(work, v_in_k=True)))
    useful, partial = cost.useful_flops(work, kept), partial_tiles(plan, problem, inputs)
    return Explanation(plan, problem, device, pairs, kept, counted, useful, beside, splits, tuple(orders), partial)


def way_out(plan: KernelPlan, problem: Problem) -> str:
    """Which of the ways to skip tiles the kernel takes, and why not a cheaper one, or a dearer."""
    if not plan.variant.keeps:
        return "all whole, there is no mask"
    if plan.skip == "never":
        return "none is skipped, as the schedule asks"
    if plan.rules.columns is not None:
        return "windows of the grid, which begin at the first row and column that a block of queries looks at"
    if plan.rules.bounds_suffice:
        searched = any(isinstance(node, Search) for node in walk(*plan.rules.bounds))
        found = "a binary search for each block of queries" if searched else "in closed form"
        return f"loop bounds, {found}: they decide all that can be told"
    if not forward_facts(plan).tile_lists:
        reads = "its schedule asks for it" if plan.skip == "in_kernel" else "the test costs less than a launch"
        return f"tested in the kernel, 32 at once, beyond what loop bounds tell; {reads}"
    size = TileLists.of(plan, problem).bytes
    reads = "its schedule asks for it" if plan.skip == "lists" else "the test of a tile reads tensors"
    return f"listed by a pre-pass in each call, {size} bytes, beyond what loop bounds tell; {reads}"


def partial_tiles(plan: KernelPlan, problem: Problem, inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """For each keep line the tiles, over all heads, that stay PARTIAL and would if there were no other line.

    So a tile may count for several lines; each is a reason why its mask must be evaluated. Not of windows, which begin
    where all lines together say, nor of masks of more than `MOST_LINES` or `MOST_NODES`.
    """
    keeps = plan.variant.keeps
    if not skips(plan) or plan.rules.columns is not None or len(keeps) > MOST_LINES:
        return ()
    if len(keeps) == 1:
        distinct = tallies(plan, problem, inputs)
        return (sum(tally.kinds[TileKind.PARTIAL] for tally in distinct) * (problem.batch // len(distinct)),)
    if sum(1 for _ in walk(*(keep.condition for keep in keeps))) > MOST_NODES:
        return ()
    alone = [_with_one(plan.variant, keep) for keep in keeps]
    count = _partial_alone if plan.grid_2d is None else _partial_tiles_alone
    return tuple(count(plan, alone, problem, inputs))


def _with_one(variant: Variant, keep: Keep) -> Variant:
    """The variant without its other keep lines."""
    statements = tuple(item for item in variant.statements if not isinstance(item, Keep) or item is keep)
    return replace(variant, statements=statements)


def _partial_tiles_alone(
    plan: KernelPlan, variants: list[Variant], problem: Problem, inputs: Mapping[str, Any]
) -> list[int]:
    """The same of 2-D tiles."""
    blocks, grid_2d, counts = (plan.block_q, plan.block_kv), plan.grid_2d, [0] * len(variants)
    assert grid_2d is not None
    rules = [analyse_tiles_2d(variant, *blocks, grid_2d) for variant in variants]
    alone = [sequences(*pair, problem, inputs) for pair in zip(variants, rules, strict=True)]
    whole = sequences(plan.variant, plan.rules, problem, inputs)
    for number, (seen, _) in enumerate(whole):
        own = [
            tile_kinds_2d(of, found[min(number, len(found) - 1)][0], blocks, grid_2d)
            for of, found in zip(rules, alone, strict=True)
        ]
        for piece in tile_kinds_2d(plan.rules, seen, blocks, grid_2d):
            for line, others in enumerate(own):
                counts[line] += _both_partial(piece, next(others), problem)
    return [count * (problem.batch // len(whole)) for count in counts]


def _partial_alone(plan: KernelPlan, variants: list[Variant], problem: Problem, inputs: Mapping[str, Any]) -> list[int]:
    """Of the plan's PARTIAL tiles those that are so by the rules of variants with fewer keep lines."""
    blocks, counts = (plan.block_q, plan.block_kv), [0] * len(variants)
    alone = [replace(plan, variant=variant, rules=analyse(variant, *blocks)) for variant in variants]
    own = [[seen for seen, _ in sequences(item.variant, item.rules, problem, inputs)] for item in alone]
    whole = sequences(plan.variant, plan.rules, problem, inputs)
    for number, (seen, _) in enumerate(whole):
        for piece in plan_pieces(plan, seen):
            if not (piece.kinds == TileKind.PARTIAL).any():
                continue
            for line, (item, found) in enumerate(zip(alone, own, strict=True)):
                environment, single = found[min(number, len(found) - 1)], item.tests_tiles
                other = classified(item.rules, environment, blocks, *piece.tiles, single_tiles=single)
                counts[line] += _both_partial(piece.kinds, other.kinds, problem)
    return [count * (problem.batch // len(whole)) for count in counts]


def _both_partial(kinds: NDArray[np.uint8], others: NDArray[np.uint8], problem: Problem) -> int:
    """The tiles of a piece, over all heads, that are PARTIAL by two sets of rules."""
    both = (kinds == TileKind.PARTIAL) & (others == TileKind.PARTIAL)
    heads: int = both.shape[0]
    return int(np.count_nonzero(both)) * (problem.num_heads // heads)


def kept_pairs(plan: KernelPlan, problem: Problem, inputs: Mapping[str, Any]) -> tuple[int, bool]:
    """Over all sequences and heads; and whether they were counted, or estimated from some rows."""
    plan = _in_1d(plan)  # a mask keeps the same pairs, whatever tiles they lie in
    distinct = sequences(plan.variant, plan.rules, problem, inputs)
    work = MOST_WORK / (len(distinct) * -(-problem.q_len // plan.block_q))
    found = [
        cost.sampled_pairs(
            plan.variant, piece, environment, problem.num_heads, work / np.size(environment.symbols["h"])
        )
        for seen, environment in distinct
        for piece in plan_pieces(plan, seen)
    ]
    kept = sum(pairs for pairs, _ in found) * (problem.batch // len(distinct))
    return round(kept), all(exact for _, exact in found)


def _in_1d(plan: KernelPlan) -> KernelPlan:
    """The plan with 1-D tiles of the same size."""
    if plan.grid_2d is None:
        return plan
    return replace(plan, grid_2d=None, rules=analyse(plan.variant, plan.block_q, plan.block_kv))


def expected_splits(plan: KernelPlan, problem: Problem, device: Device) -> int:
    """The splits of a dense launch. Where it chooses them, an estimate: what registers allow isn't known here."""
    if plan.split_kv is not None:
        return plan.split_kv
    facts, resident = facts_of(plan), capacity(plan, device)
    blocks, tiles = facts.heads(problem) * facts.q_blocks(problem), most_tiles(plan, problem)
    if isinstance(facts, Decode):
        return facts.parts(problem, tiles, chip_like(device), resident)
    return choose_splits(blocks, tiles, resident)


def capacity(plan: KernelPlan, device: Device) -> int:
    """Thread blocks that the GPU holds at once, as if each thread had all registers that it may have."""
    target = TARGETS[plan.target]
    by_shared = target.shared_bytes // sum(legality.shared_memory(plan).values())
    by_registers = target.registers_per_block // (facts_of(plan).threads * target.max_registers_per_thread)
    return device.multiprocessors * max(min(by_shared, by_registers), 1)


def _tiled_plans(plan: KernelPlan) -> dict[str, KernelPlan]:
    """The plan, its counterpart in the other loop order, and FlashAttention's Algorithm 1 with the paper's blocks: they
    count no registers, and so are larger than a kernel's. Of a large mask the plan alone."""
    if not compares_orders(plan.variant):
        return {plan.loop: plan}
    elements = TARGETS[plan.target].shared_bytes // DTYPE_BYTES[plan.dtype]
    block_q, block_kv = cost.paper_blocks(elements, plan.head_dim)
    rules = analyse(plan.variant, block_q, block_kv, searches=False)
    paper = replace(plan, loop="kv_outer", block_q=block_q, block_kv=block_kv, rules=rules, grid_2d=None)
    return {
        "Algorithm 1": paper,
        **{item.loop: item for item in sorted((plan, *_counterpart(plan)), key=lambda item: item.loop)},
    }


def compares_orders(variant: Variant) -> bool:
    """Whether all loop orders are told of: of a large mask each may take an analysis of its own."""
    return not is_large(variant)


def _counterpart(plan: KernelPlan) -> list[KernelPlan]:
    """The plan in the other loop order. Not every dtype has kernels of both."""
    other = "q_outer" if plan.loop == "kv_outer" else "kv_outer"
    if not kinds(plan.build, other):
        return []
    schedule = Schedule("other", plan.variant.name, "forward", plan.target, (("loop", (other,)),))
    return [
        make_plan(
            plan.variant,
            dtype=plan.dtype,
            head_dim=plan.head_dim,
            value_head_dim=plan.value_head_dim,
            target=plan.target,
            schedule=schedule,
        )
    ]


def sequences(
    variant: Variant, rules: TileRules, problem: Problem, inputs: Mapping[str, Array]
) -> list[tuple[Environment, Environment]]:
    """Of each sequence, what its tile rules read, and what its keep lines read.

    A single pair where the mask doesn't depend on the sequence. AttnccError A6xx for inputs that don't suit.
    """
    sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "head_dim")}
    bound = bind_mask(variant, problem.q_len, problem.kv_len, inputs, sizes)
    maps = rule_tables(rules, variant, bound.problem, inputs)
    found = []
    for environment in bound.environments():
        tables = {**environment.inputs, **maps}
        seen = Environment(environment.symbols, tables, environment.lets, environment.float_dtype)
        found.append((seen, environment))
    return found


def plan_pieces(plan: KernelPlan, environment: Environment) -> Iterator[TileGrid]:
    """The tiles of a sequence as the plan's kernel sees them, in pieces."""
    if skips(plan):
        return pieces(plan.rules, environment, plan.block_q, plan.block_kv, single_tiles=plan.tests_tiles)
    return iter([plan_grid(plan, environment)])


def tallies(plan: KernelPlan, problem: Problem, inputs: Mapping[str, Array]) -> list[Tally]:
    """The tiles of each sequence as the plan's kernel sees them; of one alone, where all sequences have the same."""
    distinct = sequences(plan.variant, plan.rules, problem, inputs)
    if plan.grid_2d is None:
        return [tally(plan_pieces(plan, seen), problem.num_heads) for seen, _ in distinct]
    blocks, rules = (plan.block_q, plan.block_kv), plan.rules if skips(plan) else _without_tests(plan.rules)
    return [tally_2d(rules, seen, problem.num_heads, blocks, plan.grid_2d) for seen, _ in distinct]


def _without_tests(rules: TileRules) -> TileRules:
    """Rules by which every tile is PARTIAL."""
    return replace(rules, any_kept=TRUE, all_kept=FALSE, kv_begin=const(0), kv_end=symbol("kv_len"), columns=None)
