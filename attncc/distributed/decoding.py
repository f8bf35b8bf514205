"""`decode`: few queries over caches that ranks share. Each attends to its own keys; lse merges what they find.

Every rank has all of q, k and v of its own keys alone. All else that a call brings is what one GPU would be given.
Nothing waits for the device, so a call may stand in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..compiler import CompiledStore
from ..diagnostics import AttnccError
from ..ir import Variant, reads
from ..partial_results import merged
from ..problem.refusal import refused, shape_text
from ..runtime.kernel import Kernel, kernel_of
from .agreement import check_alike
from .key_places import KV_OFFSET, Turns, depends_on_place, with_places
from .plan_data import key_of

Tensor = Any
RESULTS = ("all", "heads")
_ALIGNED = 16  # bytes


def decode(kernel: Any, group: Any = None, *, interleave: int | None = None, result: str = "all") -> ShardedDecode:
    """A kernel whose calls attend to keys that the ranks of a group hold together.

    `group`: a process group or a DeviceMesh of one dimension; None: all processes. All of its ranks call this alike.
    `interleave`: ranks take turns, so many keys each (key j is on rank `j // interleave % ranks`). Without it each rank
    holds neighbours, and calls say where these begin. `result`: "all" heads on each rank, or on each the ranks' share
    of "heads", the first to rank 0.

    AttnccError A725 where the variant or an argument can't be used; A722 where ranks differ.
    """
    group = group.get_group() if hasattr(group, "get_group") else group
    ranks = dist.get_world_size(group)
    if interleave is not None and (not isinstance(interleave, int) or interleave < 1):
        raise refused("A725", "`interleave` can't be used", expected="a number of keys, or None", came=repr(interleave))
    if result not in RESULTS:
        raise refused("A725", "`result` can't be used", expected=" or ".join(RESULTS), came=repr(result))
    own = kernel_of("kernel", kernel)
    _check_variant(own.variant)
    turns = None if interleave is None else Turns(interleave, ranks)
    check_alike((key_of(own.variant), own.configurations, interleave, result), group, "A722", "kernels or options")
    return ShardedDecode(own, group, turns, result)


def _check_variant(variant: Variant) -> None:
    """A725 for what partial results can't give."""
    if variant.dropout is not None:
        what = "dropout, whose bits belong to places that kernels count from a rank's first key"
        raise _not_shared(variant, what, "decode with a variant without dropout")
    read = [item.condition for item in variant.keeps] + [item.value for item in variant.scores]
    if variant.sink is not None and variant.sink in reads(variant, *read):
        what = f"the sink `{variant.sink}`, which other lines read too: it must count on one rank alone"
        raise _not_shared(variant, what, "give the lines an input of their own, with the same values")


def _not_shared(variant: Variant, came: str, help_: str) -> Exception:
    what = f"{variant.name} can't attend to keys of several ranks"
    return refused("A725", what, expected="a variant whose partial results add up", came=f"one with {came}", help=help_)


class ShardedDecode:
    """What `decode` gives. `bytes_sent` and `bytes_received` count what went over the wire."""

    def __init__(self, kernel: Kernel, group: Any, turns: Turns | None, result: str) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        self.variant, self.turns, self.result = kernel.variant, turns, result
        self.placed = turns is not None or depends_on_place(kernel.variant)
        self.kernel = _placed(kernel, turns) if self.placed else kernel
        self.bytes_sent = self.bytes_received = 0
        self._agreed = set[Any]()  # forms of calls that all ranks have alike

    def own_lens(self, kv_lens: Tensor, kv_starts: Tensor | None = None) -> Tensor:
        """How many keys of each sequence this rank holds: int32 [batch].

        `kv_lens`, int32 [batch], counts those of all ranks; `kv_starts`: as in calls.
        """
        if self.turns is not None:
            rows, whole = self.turns.rows, self.turns.rows * self.turns.ranks
            rest = (kv_lens % whole - self.rank * rows).clamp(0, rows)
            return (kv_lens.div(whole, rounding_mode="floor") * rows + rest).to(torch.int32)
        assert kv_starts is not None
        first = self._first(kv_lens, kv_starts)
        own = kv_lens if self.rank == self.ranks - 1 else kv_lens.minimum(kv_starts[self.rank + 1])
        return (own - first).clamp(0).to(torch.int32)

    def _first(self, kv_lens: Tensor, kv_starts: Tensor | None) -> Tensor:
        """Where this rank's keys begin in each sequence."""
        if self.turns is not None:
            return torch.full_like(kv_lens, self.rank * self.turns.rows, dtype=torch.int32)
        assert kv_starts is not None
        return torch.zeros_like(kv_lens, dtype=torch.int32) if self.rank == 0 else kv_starts[self.rank].to(torch.int32)

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # compiled graphs break around the collective
    @torch.no_grad()  # type: ignore[untyped-decorator]
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        kv_lens: Tensor,
        kv_starts: Tensor | None = None,
        block_table: Tensor | None = None,
        q_offset: Any = None,
        scale: float | None = None,
        layout: str = "bhsd",
        return_lse: bool = False,
        **inputs: Any,
    ) -> Any:
        """Attention over the keys of all ranks: out, or (out, lse), the same bits on all ranks; without gradients.

        q is the same on all ranks. k and v are this rank's cache, contiguous or pages with their `block_table`.
        `kv_lens`, int32 [batch], and `q_offset` are those of whole sequences, and so are inputs, of which those along
        `kv` and `pos` may be longer. `kv_starts`, int32 [ranks, batch], is there without `interleave` alone: rank r
        holds the keys from kv_starts[r] to before kv_starts[r + 1], the last rank all others, rank 0 the first. A rank
        may hold none of a sequence.

        AttnccError A725 for what isn't such, A721 where ranks bring q of other shapes, A6xx as the kernel.
        """
        self._check(q, kv_lens, kv_starts, layout)
        first, rows = self._first(kv_lens, kv_starts), q.shape[-2 if layout == "bhsd" else -3]
        if isinstance(q_offset, int):
            q_offset = torch.full_like(kv_lens, q_offset)  # filled there: a copy couldn't stand in a CUDA graph
        place = (kv_lens - rows if q_offset is None else q_offset).to(torch.int32)
        moved = place.expand_as(first) if self.turns is not None else place - first
        softmax = self.variant.normalize == "softmax"
        found = self.kernel(
            q,
            k,
            v,
            kv_lens=self.own_lens(kv_lens, kv_starts),
            block_table=block_table,
            q_offset=moved.contiguous(),
            scale=scale,
            layout=layout,
            return_lse=softmax,
            **self._inputs(inputs, first, kv_lens),
        )
        out, lse = self._together(found[0], found[1], layout) if softmax else self._together(found, None, layout)
        return (out, lse) if return_lse else out

    def _check(self, q: Tensor, kv_lens: Tensor, kv_starts: Tensor | None, layout: str) -> None:
        form = tuple(q.shape), q.dtype, layout, None if kv_starts is None else tuple(kv_starts.shape)
        if form in self._agreed:
            return
        wanted = None if self.turns is not None else (self.ranks, *kv_lens.shape)
        came = None if kv_starts is None else tuple(kv_starts.shape)
        if came != wanted:
            expected = "None, since ranks take turns" if wanted is None else f"int32, shape {shape_text(wanted)}"
            shown = "None" if came is None else f"shape {shape_text(came)}"
            raise refused("A725", "`kv_starts` can't be used", expected=expected, came=shown)
        if q.dim() != 4:
            raise self._no_query(q, "rank 4")
        heads = q.shape[1 if layout == "bhsd" else 2]
        if self.result == "heads" and heads % self.ranks:
            raise self._no_query(q, f"rank 4, heads that {self.ranks} ranks can share")
        check_alike(form, self.group, "A721", "queries")
        self._agreed.add(form)

    def _no_query(self, q: Tensor, expected: str) -> AttnccError:
        return refused("A725", "`q` can't be used", expected=expected, came=f"shape {shape_text(tuple(q.shape))}")

    def _inputs(self, inputs: Mapping[str, Any], first: Tensor, kv_lens: Tensor) -> dict[str, Any]:
        """The sink counts on rank 0 alone: elsewhere it is so low that it weighs nothing, yet finite."""
        more, sink = dict(inputs), self.variant.sink
        if sink in more and self.rank:
            more[sink] = torch.full_like(more[sink], torch.finfo(more[sink].dtype).min / 2)
        if self.placed:
            more[KV_OFFSET] = torch.stack([first, kv_lens.to(torch.int32)], dim=1)
        return more

    def _together(self, out: Tensor, lse: Tensor | None, layout: str) -> tuple[Tensor, Tensor | None]:
        axis = 1 if layout == "bhsd" else 2
        shares = self.ranks if self.result == "heads" else 1
        outs = out.chunk(shares, axis)
        lses = None if lse is None else lse.chunk(shares, 1)
        sent = [[outs[i], *([] if lses is None else [lses[i]])] for i in range(shares)]
        received = self._exchanged([_packed(parts) for parts in sent])
        parts = [_unpacked(row, sent[0]) for row in received]
        if lses is None:
            wide = torch.promote_types(out.dtype, torch.float32)
            total = torch.zeros_like(parts[0][0], dtype=wide)
            for part in parts:
                total += part[0]
            return total.to(out.dtype), None
        return merged(torch, [part[0] for part in parts], [part[1] for part in parts], layout)

    def _exchanged(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        """What each rank sends to this one: of one row the same to all, else each rank its own."""
        size = rows[0].numel()
        into = rows[0].new_empty(self.ranks * size)
        self.bytes_sent += (self.ranks - 1) * size
        self.bytes_received += (self.ranks - 1) * size
        if len(rows) == 1:
            dist.all_gather_into_tensor(into, rows[0], group=self.group)
        else:
            dist.all_to_all_single(into, torch.cat(list(rows)), group=self.group)
        found: Sequence[Tensor] = into.view(self.ranks, size).unbind()
        return found


def _placed(kernel: Kernel, turns: Turns | None) -> Kernel:
    """The kernel of the variant that reads the places of a rank's keys. A725 where there is no compiler for it."""
    if not isinstance(kernel.store, CompiledStore):
        raise refused(
            "A725",
            f"{kernel.variant.name} needs another kernel, that knows the places of a rank's keys",
            expected="what attncc.compile gives",
            came="a function of a built package",
            help="compile it, or hold neighbouring keys on a rank and write masks and scores of q_pos - kv_idx alone",
        )
    store = kernel.store.changed(lambda variant: with_places(variant, turns))
    store.compile_now()
    return Kernel(store)


def _packed(parts: Sequence[Tensor]) -> Tensor:
    """Bytes, each part's filled up to a multiple that all types can begin at."""
    flat = [part.contiguous().flatten().view(torch.uint8) for part in parts]
    return torch.cat([torch.nn.functional.pad(x, (0, -x.numel() % _ALIGNED)) for x in flat])


def _unpacked(row: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    found, begin = [], 0
    for part in like:
        size = part.numel() * part.element_size()
        found.append(row[begin : begin + size].view(part.dtype).view(part.shape))
        begin += size + -size % _ALIGNED
    return found
