"""Who hands rows on inside a node, against loops; affinity of several nodes at once, against one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.distributed.assign import affinity
from attncc.distributed.machine import Machine
from attncc.distributed.relays import MOST_TOGETHER, TURNS, Routes

MACHINES = [(1, 1), (4, 1), (4, 2), (6, 3), (8, 2), (4, 4)]
BLOCKS, CHUNKS = 5, 6  # of a chunk; of a rank


def by_loops(wanted: np.ndarray, owner: np.ndarray, machine: Machine) -> dict[tuple[int, int], int]:
    """By receiver and block the sender."""
    found = {}
    for node in range(machine.nodes):
        members = [rank for rank in range(machine.ranks) if machine.node[rank] == node]
        far = [b for b, rank in enumerate(owner) if machine.node[rank] != node and wanted[members, b].any()]
        together = min(max(len(far) // (TURNS * len(members)), 1), MOST_TOGETHER)
        for block, rank in enumerate(owner):
            asking = [member for member in members if wanted[member, block] and member != rank]
            relay = asking[far.index(block) // together % len(asking)] if block in far else int(rank)
            for member in asking:
                found[member, block] = int(rank) if member == relay else relay
    return found


@pytest.mark.parametrize(("ranks", "nodes"), MACHINES)
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_routes(ranks: int, nodes: int, share: float) -> None:
    rng, machine = np.random.default_rng(ranks + nodes), Machine(ranks, nodes)
    owner = np.repeat(rng.permutation(np.repeat(np.arange(ranks), CHUNKS)), BLOCKS)
    wanted = rng.random((ranks, len(owner))) < share
    rows = np.tile([64] * (BLOCKS - 1) + [24], len(owner) // BLOCKS)
    routes, wanted_from = Routes.of(wanted, owner, machine), by_loops(wanted, owner, machine)
    count, found = np.zeros((ranks, ranks), np.int64), {}
    for (receiver, block), sender in wanted_from.items():
        count[receiver, sender] += rows[block]
    assert np.array_equal(routes.rows(rows, BLOCKS), count)
    for runs, is_direct in zip(routes.runs(), (True, False), strict=True):
        for receiver, sender, first, last in zip(*(x.tolist() for x in runs), strict=True):
            for block in range(first, last + 1):
                assert owner[block] == owner[first] and (owner[block] == sender) == is_direct
                found[receiver, block] = sender
        assert np.array_equal(np.lexsort((runs.first, runs.sender, runs.receiver)), np.arange(len(runs.first)))
    assert found == wanted_from


@pytest.mark.parametrize("nodes", [1, 2])
def test_groups_don_t_see_each_other(nodes: int) -> None:
    rng, machine = np.random.default_rng(nodes), Machine(4, nodes)
    work, rows = rng.random((3, 16)), rng.integers(0, 64, (3, 16, 32)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.7] = 0
    together = affinity(work, rows, machine)
    for group in range(3):
        alone = affinity(work[group : group + 1], rows[group : group + 1], machine)[0]
        assert np.array_equal(alone, together[group])
        assert np.array_equal(np.bincount(alone), [4] * 4)
