"""Products that a warpgroup makes with one instruction (wgmma), as data: codegen prints a CUDA function for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """`name`(sum, a, b, accumulate): sum (+)= A B for 64 rows and `columns`, over `steps` of 32 bytes of a row of A.

    A lies in shared memory or in registers. `transposed_b`: what is summed over are B's rows. `b_rows`: of the tile
    that B is, where the product may be too wide for one instruction and is made in two.
    """

    name: str
    columns: int
    steps: int
    a_in_registers: bool = False
    transposed_b: bool = False
    b_rows: int | None = None
