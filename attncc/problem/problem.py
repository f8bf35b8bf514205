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
    q_offset: int  # q_pos - q_idx

    @classmethod
    def whole(cls, b: int, q_len: int, kv_len: int) -> Sequence:
        """All rows of a dense batch, the last query at the last key."""
        return cls(b, 0, q_len, 0, kv_len, kv_len - q_len)


@dataclass(frozen=True)
class Problem:
    """The sizes of one call. In packed batches `q_len` and `kv_len` are all rows of q and of k, as in the kernels'
    parameters, and `q_starts`, `kv_starts` hold cu_seqlens where the host knows it (None: on the device).

    Where k and v are a cache, `kv_len` is the room that each sequence has, and `kv_lens` how much of it is in use.
    """

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
    cached: bool = False  # k and v are a cache, also of packed queries
    kv_lens: tuple[int, ...] | None = None
    page: int | None = None  # rows of a page, where the cache is a pool of pages
    has_offset: bool = False  # the call says what q_pos is beyond q_idx
    q_offsets: tuple[int, ...] | None = None
    shared_prefix: int = 0  # keys that all sequences share, the first of each

    @property
    def packs_keys(self) -> bool:
        """Whether k and v have no batch axis."""
        return self.packed and not self.cached

    @property
    def varies(self) -> bool:
        """Whether sequences may have different lengths."""
        return self.packed or self.cached

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
        """Keys of each sequence; of packed batches the mean, of a cache all there is room for."""
        return -(-self.kv_len // max(self.batch, 1)) if self.packs_keys else self.kv_len

    def q_blocks(self, block_q: int, rows_each: int = 1) -> int:
        """The grid's q blocks for one head, of so many rows for each query: exact if dense, else a bound that needs no
        look at cu_seqlens."""
        rows = self.q_len * rows_each
        return rows // block_q + self.batch if self.packed else -(-rows // block_q)

    def rows_shape(self, heads: int, length: int, *last: int) -> tuple[int, ...]:
        """The shape of an array in this call's layout, e.g. of q: `rows_shape(num_heads, q_len, head_dim)`."""
        middle = (heads, length) if self.layout == "bhsd" else (length, heads)
        return (*middle, *last) if self.packed else (self.batch, *middle, *last)

    def keys_shape(self, pages: int, head_dim: int) -> tuple[int, ...]:
        """The shape of k or v; of a pool, of so many pages."""
        lead, length = (self.batch, self.kv_len) if self.page is None else (pages, self.page)
        middle = (self.num_kv_heads, length) if self.layout == "bhsd" else (length, self.num_kv_heads)
        return (*middle, head_dim) if self.packs_keys else (lead, *middle, head_dim)

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
        """The sequences of the batch; the host must know where they start, their lengths and offsets."""
        for b in range(self.batch):
            q_start, q_len = self._rows(b, self.packed, self.q_starts, self.q_len)
            kv_start, kv_len = self._rows(b, self.packs_keys, self.kv_starts, self.kv_len)
            if self.cached:
                assert self.kv_lens is not None, "kv_lens is on the device"
                kv_len = self.kv_lens[b]
            offset = kv_len - q_len
            if self.has_offset:
                assert self.q_offsets is not None, "q_offset is on the device"
                offset = self.q_offsets[b]
            yield Sequence(b, q_start, q_len, kv_start, kv_len, offset)

    @staticmethod
    def _rows(b: int, packed: bool, starts: tuple[int, ...] | None, length: int) -> tuple[int, int]:
        """Where the rows of a sequence start, and how many there are."""
        if not packed:
            return 0, length
        assert starts is not None, "cu_seqlens are on the device"
        return starts[b], starts[b + 1] - starts[b]
