"""How fast a kernel computes and rows travel: what plans weigh against each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Machine:
    """`ranks` GPUs on `nodes` nodes, neighbours on one node.

    `flops`: what a kernel reaches on one GPU, in FLOP/s. `nvlink` and `network`: bytes/s that one GPU receives, and at
    the same time sends, within its node and from other nodes. The defaults are of H100 SXM nodes: 650 TFLOP/s forward,
    360 GB/s, one 400 Gbit/s adapter for each GPU. `launch`: seconds that one more launch takes, of the host and
    until its last thread blocks are done, by timelines of two H200s (docs/notebook/2026-11-several-gpus.md).
    """

    ranks: int
    nodes: int = 1
    flops: float = 650e12
    nvlink: float = 360e9
    network: float = 45e9
    launch: float = 50e-6

    @cached_property
    def node(self) -> NDArray[np.int64]:
        """The node of each rank."""
        return np.arange(self.ranks) // (self.ranks // self.nodes)

    @cached_property
    def same_node(self) -> NDArray[np.bool_]:
        """[ranks, ranks]"""
        return np.asarray(self.node[:, None] == self.node)

    def ranks_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ranks of some nodes, one node after the other."""
        size = self.ranks // self.nodes
        return np.asarray((nodes[:, None] * size + np.arange(size)).ravel())
