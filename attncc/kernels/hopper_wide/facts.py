"""What a kernel of wide heads on Hopper is beyond its tiles. Thread blocks share out keys as those of decode do.

Of a block two warpgroups multiply, with the same 64 rows: they take turns with the tiles of keys, of which one makes S
and P, and each holds half of the columns of O. A warp of one more loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...problem import Problem
from ..crossings import NEVER, Chip, Crossings
from ..decode.facts import Decode, LaidOut
from ..hopper.panels import PANEL_COLUMNS, STEP
from ..hopper.warpgroup_rows import WarpgroupRows
from ..pages import fits_boxes
from ..parameters import Parameter, ints
from ..products import Product
from ..shared import Parts
from ..wide_heads import WideHeads
from .shared import (
    MULTIPLYING_WARPS,
    first_panels,
    half_panels,
    key_panels,
    latent_panels,
    latent_stages,
    merging_bytes,
    most_stages,
    shared_parts,
)
from .teams import ANYWHERE, cut

if TYPE_CHECKING:
    from ..instruction_cost import Steps

# What a thread block's second part takes besides its own tiles, by times of an H200 (docs/notebook/2026-11-serving.md):
# loads begin anew, its rows are stored and merged. In tiles, and for head dims 576 and 512, the only ones timed.
_PART_TILES = 4
# Multiprocessors that work for each that teams leave idle, at least. A guess: only two teams were timed, and 132
# multiprocessors leave none over. It changes times, not results.
_BUSY_FOR_IDLE = 10


class HopperWide(WideHeads, WarpgroupRows, Decode):
    """Of a plan of the pass `forward`."""

    other_registers = 32

    @property
    def template(self) -> str:
        return "hopper_wide/hopper_wide.cu.j2"

    def serves(self, problem: Problem) -> bool:
        return True

    @property
    def calls(self) -> str:
        return (
            f"more rows than fit a tile of decode, and all over many keys: on an H200 {Crossings().wide_keys} or more"
        )

    def takes_few_rows(self, problem: Problem, crossings: Crossings) -> bool:
        """By times of an H200: latents come faster by TMA, although most of a tile is empty then."""
        return problem.kv_len >= crossings.wide_keys

    def fits_pages(self, problem: Problem) -> bool:
        return fits_boxes(self.plan.block_kv, problem)

    # ------------------------------------------------------------ the kernel

    @property
    def warp_keys(self) -> int:
        return self.plan.block_kv

    @property
    def multiplying_warps(self) -> int:
        """All but the one that loads."""
        return MULTIPLYING_WARPS

    @property
    def key_panels(self) -> int:
        return key_panels(self.plan.build)

    @property
    def half_panels(self) -> int:
        """Of V, that a warpgroup has the columns of O of."""
        return half_panels(self.plan.build)

    @property
    def latent_panels(self) -> int:
        """Of K, where V is its first columns."""
        return latent_panels(self.plan.build)

    @property
    def latent_stages(self) -> int:
        """Tiles of K in flight where V is its first columns, which calls tell by where k and v are."""
        return latent_stages(self.plan, self.plan.build)

    @property
    def most_stages(self) -> int:
        """Of either way."""
        return most_stages(self.plan, self.plan.build)

    @property
    def steps(self) -> Steps:
        from ..instruction_cost import steps  # analyses expressions: calls of built kernels needn't load that

        return steps(self.plan.variant, MULTIPLYING_WARPS, 1, self.warp_keys // 8)

    @property
    def loads_by_tma(self) -> bool:
        return True

    @property
    def first_panels(self) -> int:
        """Of K, as many as V has at most: where V is the first columns of K, they come as V."""
        return first_panels(self.plan.build)

    @property
    def products(self) -> dict[str, Product]:
        """S = Q K^T by panels, of which the last may have fewer columns. O += P V takes a warpgroup's own P from
        registers, and that of the other from shared memory."""
        plan, columns = self.plan, self.half_panels * PANEL_COLUMNS
        steps, of_panel = plan.padded_head_dim // STEP, PANEL_COLUMNS // STEP
        output = Product("multiply_probs_values", columns, plan.block_kv // STEP, transposed_b=True)
        return {
            "scores": Product("multiply_panel", plan.block_kv, of_panel),
            "last_scores": Product("multiply_last_panel", plan.block_kv, steps - (self.key_panels - 1) * of_panel),
            "own_output": Product("multiply_own_probs_values", columns, output.steps, True, transposed_b=True),
            "output": output,
        }

    # ------------------------------------------------------------ the launch

    def shared_out(self, problem: Problem, chip: Chip) -> dict[str, int | float]:
        """Among teams of thread blocks; and by how many units runs may be longer that end with items (teams.cuh). Those
        that have parts of an item share its rows to merge them, so that it takes as long however many they are."""
        slack = _PART_TILES if self._few_queries(problem) else ANYWHERE
        own = {"teams": self._teams(problem, chip.multiprocessors), "run_slack": slack}
        return super().shared_out(problem, chip) | {"most_parts": NEVER} | own

    def _few_queries(self, problem: Problem) -> bool:
        """Of which all blocks of rows see about the same keys."""
        return not (self.splits or problem.packed or problem.q_len > self.plan.block_q)

    def _teams(self, problem: Problem, multiprocessors: int) -> int:
        """One for each block of rows of few queries, unless that leaves many multiprocessors idle."""
        teams = self.q_blocks(problem)
        idle = multiprocessors % max(teams, 1)
        some = self._few_queries(problem) and 1 < teams <= multiprocessors
        return teams if some and idle * _BUSY_FOR_IDLE <= multiprocessors else 1

    def laid_out(
        self, problem: Problem, units: Sequence[int], chip: Chip, blocks: int, *, alike: bool
    ) -> Iterator[LaidOut]:
        shared = self.shared_out(problem, chip)
        teams, slack = int(shared["teams"]), int(shared["run_slack"])
        if self.splits:
            yield from super().laid_out(problem, units, chip, blocks, alike=alike)
            return
        for team in range(teams):
            items = range(team, len(units), teams)  # one of each head, or all
            of_team = [units[item] for item in items]
            yield cut(items, of_team, blocks // teams, problem.batch, problem.num_kv_heads, slack=slack)

    def _parameters(self) -> Iterator[Parameter]:
        yield from super()._parameters()
        yield from ints("teams", "run_slack")

    @property
    def launched_registers(self) -> int:
        """Of each thread, while all three warpgroups do alike."""
        return 168

    @property
    def producer_registers(self) -> int:
        """Of each thread of the warpgroup that loads, while it does: more where it tests tiles."""
        return 72 if self.uses_tile_kind else 56

    @property
    def consumer_registers(self) -> int:
        """Of each thread that multiplies, meanwhile."""
        return (3 * self.launched_registers - self.producer_registers) // 2 // 8 * 8

    @property
    def register_limit(self) -> tuple[int, str]:
        most = f"what two warpgroups get when the one that loads keeps {self.producer_registers}"
        return self.consumer_registers, most

    def accumulators(self) -> dict[str, int]:
        """S, half of O, and P in the dtype."""
        keys, columns = self.plan.block_kv, self.half_panels * PANEL_COLUMNS
        return {"score": keys // 2, "out": columns // 2, "prob": keys // 4}

    def shared_parts(self) -> Parts:
        return shared_parts(self.plan, self.plan.build)

    @property
    def ring_bytes(self) -> int:
        """Of tiles of K and V."""
        return merging_bytes(self.plan, self.plan.build) - self.query_bytes

    @property
    def query_bytes(self) -> int:
        return self.plan.block_q * self.key_panels * PANEL_COLUMNS * self.plan.element_bytes

    @property
    def result_bytes(self) -> int:
        """Q and the ring: where parts are merged, barriers stay."""
        return merging_bytes(self.plan, self.plan.build)
