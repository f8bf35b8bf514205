"""`Problem`: the sizes of one call, once its arguments were found good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple


class Sequence(NamedTuple):
    """One sequence of the batch and the rows of q and of k, v that belong to it (starts are 0 in dense batches)."""

    b: int
    q_start: int
    q_len: int
    kv_start: int
    kv_len: int


@dataclass(frozen=True)
class Problem:
    """The sizes of one call. In packed batches `q_len` and `kv_len` are all rows of q and of k, as in the kernels'
    parameters, and `q_starts`, `kv_starts` hold cu_seqlens where the host knows it (None: on the device)."""

    batch: int
    num_heads: int
    num_kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_head_dim: int
    layout: str = "bhsd"
    packed: bool = False
    q_starts: tuple[int, ...] | None = None
    kv_starts: tuple[int, ...] | None = None

    @property
    def group(self) -> int:
        """Query heads for each key head; 1 where there are none at all."""
        return max(self.num_heads // self.num_kv_heads, 1)

    @property
    def total_q(self) -> int:
        """Rows of q over the whole batch."""
        return self.q_len if self.packed else self.batch * self.q_len

    @property
    def rows(self) -> int:
        """Rows of q for each head and sequence; of packed batches the mean, since their lengths are on the device."""
        return -(-self.q_len // max(self.batch, 1)) if self.packed else self.q_len

    @property
    def keys(self) -> int:
        """Keys of each sequence; of packed batches the mean."""
        return -(-self.kv_len // max(self.batch, 1)) if self.packed else self.kv_len

    def q_blocks(self, block_q: int, rows_each: int = 1) -> int:
        """The grid's q blocks for one head, of so many rows for each query: exact if dense, else a bound that needs no
        look at cu_seqlens."""
        rows = self.q_len * rows_each
        return rows // block_q + self.batch if self.packed else -(-rows // block_q)

    def rows_shape(self, heads: int, length: int, *last: int) -> tuple[int, ...]:
        """The shape of an array in this call's layout, e.g. of q: `rows_shape(num_heads, q_len, head_dim)`."""
        middle = (heads, length) if self.layout == "bhsd" else (length, heads)
        return (*middle, *last) if self.packed else (self.batch, *middle, *last)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.rows_shape(self.num_heads, self.q_len, self.value_head_dim)

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """[batch, heads, q_len] in both layouts; packed: [heads, all rows]."""
        lead = () if self.packed else (self.batch,)
        return (*lead, self.num_heads, self.q_len)

    def with_starts(self, q_starts: tuple[int, ...], kv_starts: tuple[int, ...]) -> Problem:
        """The same packed problem, with cu_seqlens known to the host."""
        return replace(self, q_starts=q_starts, kv_starts=kv_starts)

    def sequences(self) -> Iterator[Sequence]:
        """The sequences of the batch; a packed problem must know its starts."""
        if not self.packed:
            yield from (Sequence(b, 0, self.q_len, 0, self.kv_len) for b in range(self.batch))
            return
        assert self.q_starts is not None and self.kv_starts is not None, "cu_seqlens are on the device"
        for b in range(self.batch):
            q_start, q_end = self.q_starts[b : b + 2]
            kv_start, kv_end = self.kv_starts[b : b + 2]
            yield Sequence(b, q_start, q_end - q_start, kv_start, kv_end - kv_start)
