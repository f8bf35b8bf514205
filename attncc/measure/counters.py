"""Which counters of a GPU say what a launch moved, by their raw names in Nsight Compute.

`lts` is a slice of the L2 cache, whose sectors are of 32 bytes; `tex` are the units of multiprocessors that load and
store, TMA included; `xbar2l1tex` is the multiprocessors' side of the crossbar. A load for both blocks of a cluster
leaves the L2 cache once and comes out of the crossbar twice; so does what blocks of a cluster send each other, and what
TMA fills with zeros. A GPU with an L2 cache in two halves also moves sectors between them: `lts__t_sectors_op_read`
counts these too, and so isn't asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECTOR = 32  # bytes
TMA_CAPABILITY = 90


@dataclass(frozen=True)
class Quantity:
    """Bytes of one kind: the sum of some counters, each times a factor. `name`: as `io_model.Predicted.totals` has it,
    where it is predicted."""

    name: str
    what: str
    counters: Mapping[str, int]

    def bytes(self, values: Mapping[str, float]) -> int:
        return round(sum(values[name] * factor for name, factor in self.counters.items()))


QUANTITIES = (
    Quantity("hbm_reads", "HBM to L2", {"dram__bytes_read.sum": 1}),
    Quantity("hbm_writes", "L2 to HBM", {"dram__bytes_write.sum": 1}),
    Quantity("l2_reads", "read from L2", {"lts__t_sectors_srcunit_tex_op_read.sum": SECTOR}),
    Quantity("sm_reads", "arriving at SMs", {"l1tex__m_xbar2l1tex_read_bytes.sum": 1}),
    Quantity("sm_writes", "written to L2", {"lts__t_sectors_srcunit_tex_op_write.sum": SECTOR}),
    Quantity("reductions", "added in L2", {"lts__t_sectors_srcunit_tex_op_red.sum": SECTOR}),
    Quantity(
        "local",
        "local memory",
        {
            "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": SECTOR,
            "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": SECTOR,
        },
    ),
)
# What not every version of Nsight Compute knows: left out where it refuses them.
OPTIONAL = (Quantity("tma", "of these by TMA", {"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 1}),)


def names(quantities: Sequence[Quantity]) -> list[str]:
    """The counters of quantities, each once."""
    return list(dict.fromkeys(name for quantity in quantities for name in quantity.counters))


def asked(capability: int, *, optional: bool = True) -> tuple[Quantity, ...]:
    """What is counted on a GPU."""
    return QUANTITIES + (OPTIONAL if optional and capability >= TMA_CAPABILITY else ())
