"""`shard`: one attention over the ranks of a group, each with its own rows of q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

from ..problem.call_arguments import Arguments
from ..problem.facts import Signature
from ..problem.inputs import check_names
from ..problem.refusal import refused, shape_text
from ..runtime.kernel import Kernel, kernel_of
from ..runtime.torch.recordable import lost_gradient
from . import operator
from .agreement import check_alike
from .call_parts import Heads, KeyRows, Options
from .launches import Saved, ToBackward, launches_of
from .plan_data import digest_of
from .planning import Plan
from .transport import Exchange, Fetched
from .transports import TRANSPORTS, exchange_of

Tensor = Any
GRADIENTS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shard(
    kernel: Any,
    group: Any = None,
    *,
    plan: Plan,
    keep_kv: bool = False,
    gradients: str = "fp32",
    transport: str = "auto",
) -> ContextParallel:
    """A kernel whose calls take the rows that this rank owns.

    `group`: a process group or a DeviceMesh of one dimension; None: all processes. All of its ranks call this, with
    equal plans. `keep_kv`: received rows stay for the backward pass, which fetches them again otherwise. `gradients`:
    what dK and dV of others' rows travel in, "fp32" or "bf16". `transport`: "peer", where ranks copy into each other's
    memory; "collective", by all_to_all_single; "auto": the first on GPUs that can.

    AttnccError A722 if ranks have different plans or the plan is of another kernel or number of ranks; A724 where a GPU
    can't compute the variant by parts; A726 from the first call if "peer" can't be.
    """
    own = kernel_of("kernel", kernel)
    group = group.get_group() if hasattr(group, "get_group") else group
    if gradients not in GRADIENTS:
        raise refused("A722", "`gradients` can't be used", expected="fp32 or bf16", came=repr(gradients))
    if transport not in TRANSPORTS:
        raise refused("A722", "`transport` can't be used", expected=", ".join(TRANSPORTS), came=repr(transport))
    _check_ranks(plan, group)
    return ContextParallel(own, group, plan, keep_kv=keep_kv, gradients=GRADIENTS[gradients], transport=transport)


def _check_ranks(plan: Plan, group: Any) -> None:
    size = dist.get_world_size(group)
    if size != plan.ranks:
        raise refused(
            "A722", "the plan is of another number of ranks", expected=f"{size}, the group's", came=plan.ranks
        )
    digests: list[str] = [""] * size
    dist.all_gather_object(digests, plan.digest, group)
    others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise refused(
            "A722",
            "ranks have different plans",
            expected=f"the plan of rank 0, {digests[0][:8]}, on all ranks",
            came=", ".join(f"{digests[rank][:8]} on rank {rank}" for rank in others[:4]),
            help="plan from the same lengths and inputs everywhere, or send Plan.to_json from one rank to the others",
        )


class ContextParallel:
    """What `shard` gives. `exchanges` counts bytes on the wire, by device and layout."""

    def __init__(
        self, kernel: Kernel, group: Any, plan: Plan, *, keep_kv: bool, gradients: Any, transport: str
    ) -> None:
        self.kernel, self.group, self.plan = kernel, group, plan
        self.keep_kv, self.gradients, self.transport = keep_kv, gradients, transport
        self.rank = dist.get_rank(group)
        self.mask = plan.mask(kernel.variant)
        self.exchanges: dict[tuple[Any, str], Exchange] = {}
        self._launches: dict[Any, Any] = {}
        self._rows: dict[tuple[Any, str], Tensor] = {}
        self.softmax = kernel.variant.normalize == "softmax"
        self.learnable = frozenset(item.name for item in kernel.variant.inputs if item.learnable)
        self.kv_rows = plan.lengths.kv_rows // plan.ranks, plan.lengths.kv_rows
        self._token = operator.token_of(self)
        self._seen: dict[str, tuple[Any, int]] = {}  # inputs of the mask that were compared with the plan's
        self._agreed = set[Any]()  # forms of calls that all ranks have alike

    def rows(self, *, of: str = "q") -> Tensor:
        """The rows that this rank owns, of "q" or "kv", counted over all sequences: int64."""
        return torch.from_numpy(self.plan.rows(self.rank, of=of))

    def positions(self) -> Tensor:
        """Of each own row of q its place among the keys of its sequence, as rotary embeddings want it: int64."""
        return torch.from_numpy(self.plan.positions(self.rank))

    def shard(self, x: Tensor, dim: int, *, of: str = "q") -> Tensor:
        """This rank's rows of a tensor that all ranks have whole; rows of "q" or of "kv"."""
        self._check_length(x, dim, self.plan.lengths.q_rows if of == "q" else self.plan.lengths.kv_rows, "x")
        return x.index_select(dim, self._rows_on(x.device, of))

    def _rows_on(self, device: Any, of: str) -> Tensor:
        """Kept: a copy to a GPU waits for the work before it."""
        key = device, of
        if key not in self._rows:
            self._rows[key] = self.rows(of=of).to(device)
        return self._rows[key]

    def unshard(self, x: Tensor, dim: int, *, of: str = "q") -> Tensor:
        """The whole tensor, on all ranks, of each one's rows; without gradient."""
        rows = [torch.from_numpy(self.plan.rows(rank, of=of)) for rank in range(self.plan.ranks)]
        self._check_length(x, dim, len(rows[0]), "x")
        mine = x.detach().movedim(dim, 0).contiguous()
        parts = [torch.empty_like(mine) for _ in rows]
        dist.all_gather(parts, mine, group=self.group)
        whole = torch.empty((sum(map(len, rows)), *mine.shape[1:]), dtype=x.dtype, device=x.device)
        whole[torch.cat(rows).to(x.device)] = torch.cat(parts)
        return whole.movedim(0, dim)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        layout: str = "bhsd",
        seed: Any = None,
        return_lse: bool = False,
        **inputs: Any,
    ) -> Any:
        """out of this rank's rows, or (out, lse), as `attncc.Kernel` gives them; recorded by autograd.

        q, k and v are this rank's rows; of a packed batch they have no batch axis, and the plan knows where sequences
        start. `inputs` are whole and the same on all ranks. Gradients of learnable inputs are summed over all ranks.
        torch.compile keeps the call in its graph. AttnccError A721 for other lengths than the plan's, A612 for a
        missing seed, A652 for a gradient that would be lost, A6xx as the kernel.
        """
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, torch.Tensor):
                raise refused(
                    "A721", f"`{name}` is no tensor of torch", expected="this rank's rows", came=type(x).__name__
                )
        loss = lost_gradient(torch, self.kernel.variant, Arguments(q, k, v, inputs))
        if loss:
            raise refused("A652", **loss)
        out, lse = operator.call(self._token, q, k, v, Options(inputs, scale, layout, seed))
        return (out, lse if self.softmax else None) if return_lse else out

    # ------------------------------------------------------------ what the operators run

    def forward(self, q: Tensor, k: Tensor, v: Tensor, options: Options) -> operator.Results:
        """Fetches K and V, computes own rows."""
        self._check(q, k, v, options)
        launches = self.launches(q.device)
        heads, read = self._heads(k, options, self.mask.groups), launches.keys.others
        if self.keep_kv:
            read = ((0, self.kv_rows[1]),)
        with self.exchange(k, options).fetch(k, v, heads, read) as fetched:
            out, lse = launches.forward(q, fetched, options)
            kept = fetched.kept() if self.keep_kv else (None, None)
        return operator.Results(out.contiguous(), q.new_empty(0) if lse is None else lse.contiguous(), *kept)

    def backward(self, given: Saved, back: ToBackward, options: Options, *, deterministic: bool) -> operator.Found:
        """Gives dK and dV back to their owners. `given` has k and v of own rows, or as they were kept."""
        exchange, k, v = self.exchange(given.k, options), given.k, given.v
        heads = self._heads(k, options, self.mask.groups_back)
        launches = self.launches(given.q.device)
        keys = launches.keys_back
        fetched = Fetched(k, v, heads, None) if self.keep_kv else exchange.fetch(k, v, heads, keys.others)
        giving = exchange.giving(k, v, heads, self._back_in(k, keys, exchange), keys)
        try:
            with fetched:
                found = launches.backward(given, fetched, back, options, giving, repeats=deterministic)
            dk, dv = giving.finished()
        finally:
            giving.done()
        learned = [(name, x) for name, x in options.inputs.items() if isinstance(x, torch.Tensor)]
        inputs = [_summed(found.inputs[name], self.group).to(x.dtype) for name, x in learned if name in self.learnable]
        return operator.Found(found.dq.contiguous(), dk, dv, inputs)

    def _back_in(self, k: Tensor, keys: KeyRows, exchange: Exchange) -> Any:
        """The type that gradients of others' rows travel in: what a single launch found stays in its own, unless that
        is wider."""
        single = keys.single and not exchange.hands_on and k.dtype.itemsize <= self.gradients.itemsize
        return k.dtype if single or k.dtype == torch.float64 else self.gradients

    def _heads(self, k: Tensor, options: Options, groups: tuple[int, ...]) -> tuple[Heads, ...]:
        """Which heads of k travel together: as planned, or all where the call has another number of them."""
        number = int(k.shape[-5 - options.axis])
        ends = [0, *accumulate(groups)]
        return tuple(pairwise(ends)) if ends[-1] == number else ((0, number),)

    def _check(self, q: Tensor, k: Tensor, v: Tensor, options: Options) -> None:
        each = self.plan.lengths.q_rows // self.plan.ranks, self.kv_rows[0]
        for name, x, rows in (("q", q, each[0]), ("k", k, each[1]), ("v", v, each[1])):
            self._check_length(x, options.axis, rows, name)
        if self.kernel.variant.dropout is not None and options.seed is None:
            expected = "an int, the same on all ranks, which must drop by the same bits"
            raise refused("A612", "`seed` is missing", expected=expected, came="None")
        self._check_inputs(options.inputs)
        self._check_ranks(q, k, v, options.layout)

    def _check_ranks(self, q: Tensor, k: Tensor, v: Tensor, layout: str) -> None:
        """A721: ranks bring other heads, sequences or types, so that rows would be written where they don't belong. The
        first call of each form waits for all ranks; one that a graph records can't."""
        form = *(tuple(x.shape) for x in (q, k, v)), q.dtype, k.dtype, v.dtype, layout
        if form in self._agreed or (q.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        check_alike(form, self.group, "A721", "q, k or v")
        self._agreed.add(form)

    def _check_length(self, x: Tensor, dim: int, rows: int, name: str) -> None:
        """A721: what is no tensor of so many rows."""
        if not isinstance(x, torch.Tensor) or x.dim() < abs(dim) or x.shape[dim] != rows:
            came = shape_text(tuple(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__
            expected = f"a tensor with {rows} rows on axis {dim}"
            help = f"pass this rank's rows: {name} = cp.shard({name}, dim={dim}) of what all ranks have whole"
            raise refused("A721", f"`{name}` has other rows than the plan", expected=expected, came=came, help=help)

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """A608: an argument that these calls don't have, which each launch would take as its own. A722: what the mask
        reads isn't what the plan was made of. A tensor is looked at once, and when it changed: on a GPU that waits for
        it."""
        check_names(Signature(self.kernel.variant), inputs)
        for name, digest in self.mask.inputs:
            value = inputs.get(name)
            if value is None or self._was_seen(name, value):
                continue  # the kernel refuses what is missing
            plain = value.detach().cpu() if isinstance(value, torch.Tensor) else value
            found = digest_of(plain.double() if getattr(plain, "dtype", None) is torch.bfloat16 else plain)
            if found != digest:
                raise refused(
                    "A722",
                    f"input `{name}` isn't what the plan was made of, so rows may be missing",
                    expected=f"values with the digest {digest}",
                    came=found,
                    help="make a plan for each batch whose masks differ",
                )
            if isinstance(value, torch.Tensor) and not value.is_inference():  # those don't tell when they change
                self._seen[name] = ref(value), value._version

    def _was_seen(self, name: str, value: Any) -> bool:
        tensor, version = self._seen.get(name, (None, None))
        return tensor is not None and tensor() is value and not value.is_inference() and version == value._version

    def exchange(self, like: Tensor, options: Options) -> Exchange:
        key = like.device, options.layout
        if key not in self.exchanges:
            self.exchanges[key] = exchange_of(
                self.transport, self.plan, self.mask, self.group, options.axis, like.device
            )
        return self.exchanges[key]

    def launches(self, device: Any) -> Any:
        if device not in self._launches:
            self._launches[device] = launches_of(self.kernel, self.plan, self.mask, self.rank, device)
        return self._launches[device]


def _summed(x: Tensor, group: Any) -> Tensor:
    """The sum over ranks; in fp32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()
    dist.all_reduce(wide, group=group)
    return wide
