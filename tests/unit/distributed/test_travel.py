"""What searches estimate: looked at node by node or all at once, and against loops. No thread helps with it."""

from __future__ import annotations

import time

import numpy as np
import pytest

import attncc
from attncc.distributed import Machine, plan
from attncc.distributed.products import ALONE, product
from attncc.distributed.travel import Travel, without_each

MACHINES = [(1, 1), (4, 1), (6, 3), (8, 2), (4, 4)]
MASKS, EACH = 2, 3


@pytest.mark.parametrize("count", range(1, 8))
def test_the_maximum_of_all_others(count: int) -> None:
    x = np.random.default_rng(count).integers(0, 9, (2, count, 5)).astype(np.float32)
    wanted = [np.delete(x, i, axis=1).max(axis=1, initial=0) for i in range(count)]
    assert np.array_equal(without_each(x), np.stack(wanted, axis=1))


def drawn(machine: Machine) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What ranks want, their chunks, and the owners."""
    rng, chunks = np.random.default_rng(machine.ranks), machine.ranks * EACH
    owners = rng.permutation(np.repeat(np.arange(machine.ranks), EACH))
    wanted = rng.integers(0, 64, (MASKS, machine.ranks, chunks)).astype(np.float32)
    wanted[rng.random(wanted.shape) < 0.5] = 0
    return wanted, np.argsort(owners, kind="stable").reshape(-1, EACH), owners


@pytest.mark.parametrize(("ranks", "nodes"), MACHINES)
def test_travel(ranks: int, nodes: int) -> None:
    machine = Machine(ranks, nodes)
    wanted, members, owners = drawn(machine)
    found = Travel.of(wanted, members, owners, machine)
    for mask in range(MASKS):
        close, far, taken = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
        for rank in range(ranks):
            for chunk, owner in enumerate(owners):
                rows = wanted[mask, rank, chunk]
                if machine.same_node[rank, owner]:
                    close[rank] += rows if rank != owner else 0
                else:
                    of_node = wanted[mask, machine.same_node[rank], chunk]
                    far[rank] += rows
                    taken[rank] += rows and rows * of_node.max() / of_node.sum()
        assert np.array_equal(found.close[mask], close)
        assert np.array_equal(found.far[mask], far)
        assert found.taken[mask] == pytest.approx(taken)
        assert found.to_ranks[mask].sum() == close.sum()
        assert found.to_nodes[mask].sum() == pytest.approx(taken.sum())


@pytest.mark.parametrize(("ranks", "nodes"), MACHINES[1:])
def test_travel_after_a_swap_is_that_of_the_new_owners(ranks: int, nodes: int) -> None:
    machine, rng = Machine(ranks, nodes), np.random.default_rng(0)
    wanted, members, owners = drawn(machine)
    found = Travel.of(wanted, members, owners, machine)
    i, j = 0, int(np.flatnonzero(owners != owners[0])[0])
    swapped = owners[[i, j]]
    owners[i], owners[j] = owners[j], owners[i]
    members = np.argsort(owners, kind="stable").reshape(-1, EACH)
    wanted[:, swapped] = rng.integers(0, 64, (MASKS, 2, len(owners)))
    of_nodes = np.unique(machine.node[swapped])
    found = found.after(of_nodes, wanted[:, machine.ranks_of(of_nodes)], members, owners, machine)
    for own, other in zip(found, Travel.of(wanted, members, owners, machine), strict=True):
        assert np.array_equal(own, other)


def test_products_in_parts() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 64, (2, 8, 300)), rng.integers(0, 2, (2, 300, 512))
    assert a.shape[1] * b.shape[1] * b.shape[2] > ALONE
    assert np.array_equal(product(a.astype(np.float32), b.astype(np.float32)), a @ b)


def test_plans_are_made_by_the_calling_thread_alone() -> None:
    """BLAS would wake a thread for each core, and each takes processor time until it sleeps again."""
    masks = [(attncc.parse("causal"), 1), (attncc.parse("sliding_window", width=4096), 1)]
    lengths = [30000, 1000, 3000, 9000, 500, 22036]

    def of_others() -> float:
        """The share of processor time that other threads take."""
        start, own = time.process_time(), time.thread_time()
        plan(masks, lengths, ranks=32, nodes=4, heads=(64, 8))
        own = time.thread_time() - own
        return (time.process_time() - start - own) / own

    assert any(of_others() < 0.1 for _ in range(3))
