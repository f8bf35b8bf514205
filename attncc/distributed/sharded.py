"""`shard`: one attention over the ranks of a group, each with its own rows of q, k and v."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import ref

import torch
import torch.distributed as dist

from ..problem.refusal import refused, shape_text
from ..runtime.kernel import Kernel, kernel_of
from .launches import Given, Options, ToBackward, launches_of
from .plan_data import digest_of
from .planning import Plan
from .transport import Exchange

Tensor = Any
GRADIENTS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shard(
    kernel: Any, group: Any = None, *, plan: Plan, keep_kv: bool = False, gradients: str = "fp32"
) -> ContextParallel:
    """A kernel whose calls take the rows that this rank owns.

    `group`: a process group or a DeviceMesh of one dimension; None: all processes. All of its ranks call this, with
    equal plans. `keep_kv`: received rows stay for the backward pass, which fetches them again otherwise. `gradients`:
    what dK and dV of others' rows travel in, "fp32" or "bf16".

    AttnccError A722 if ranks have different plans or the plan is of another kernel or number of ranks; A724 where a GPU
    can't compute the variant by parts.
    """
    own = kernel_of("kernel", kernel)
    group = group.get_group() if hasattr(group, "get_group") else group
    if gradients not in GRADIENTS:
        raise refused("A722", "`gradients` can't be used", expected="fp32 or bf16", came=repr(gradients))
    _check_ranks(plan, group)
    return ContextParallel(own, group, plan, keep_kv=keep_kv, gradients=GRADIENTS[gradients])


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

    def __init__(self, kernel: Kernel, group: Any, plan: Plan, *, keep_kv: bool, gradients: Any) -> None:
        self.kernel, self.group, self.plan = kernel, group, plan
        self.keep_kv, self.gradients = keep_kv, gradients
        self.rank = dist.get_rank(group)
        self.mask = plan.mask(kernel.variant)
        self.exchanges: dict[tuple[Any, str], Exchange] = {}
        self._launches: dict[Any, Any] = {}
        self._seen: dict[str, tuple[Any, int]] = {}  # inputs of the mask that were compared with the plan's

    def rows(self, *, of: str = "q") -> Tensor:
        """The rows that this rank owns, of "q" or "kv", counted over all sequences: int64."""
        return torch.from_numpy(self.plan.rows(self.rank, of=of))

    def positions(self) -> Tensor:
        """Of each own row of q its place among the keys of its sequence, as rotary embeddings want it: int64."""
        return torch.from_numpy(self.plan.positions(self.rank))

    def shard(self, x: Tensor, dim: int, *, of: str = "q") -> Tensor:
        """This rank's rows of a tensor that all ranks have whole; rows of "q" or of "kv"."""
        self._check_length(x, dim, self.plan.lengths.q_rows if of == "q" else self.plan.lengths.kv_rows, "x")
        return x.index_select(dim, self.rows(of=of).to(x.device))

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

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # compiled graphs break around the collectives
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
        AttnccError A721 for other lengths than the plan's, A612 for a missing seed, A6xx as the kernel.
        """
        options = Options(inputs, scale, layout, seed)
        each = self.plan.lengths.q_rows // self.plan.ranks, self.plan.lengths.kv_rows // self.plan.ranks
        for name, x, rows in (("q", q, each[0]), ("k", k, each[1]), ("v", v, each[1])):
            self._check_length(x, options.axis, rows, name)
        if self.kernel.variant.dropout is not None and seed is None:
            expected = "an int, the same on all ranks, which must drop by the same bits"
            raise refused("A612", "`seed` is missing", expected=expected, came="None")
        self._check_inputs(inputs)
        learnable = [item.name for item in self.kernel.variant.inputs if item.learnable]
        tensors = [name for name in learnable if isinstance(inputs.get(name), torch.Tensor)]
        out, lse = _Attention.apply(_Call(self, options, tensors), q, k, v, *(inputs[name] for name in tensors))
        return (out, lse) if return_lse else out

    def _check_length(self, x: Tensor, dim: int, rows: int, name: str) -> None:
        """A721: what is no tensor of so many rows."""
        if not isinstance(x, torch.Tensor) or x.dim() < abs(dim) or x.shape[dim] != rows:
            came = shape_text(tuple(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__
            expected = f"a tensor with {rows} rows on axis {dim}"
            raise refused("A721", f"`{name}` has other rows than the plan", expected=expected, came=came)

    def _check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """A722: what the mask reads isn't what the plan was made of. A tensor is looked at once, and when it changed:
        on a GPU that waits for it."""
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
            if isinstance(value, torch.Tensor):
                self._seen[name] = ref(value), value._version

    def _was_seen(self, name: str, value: Any) -> bool:
        tensor, version = self._seen.get(name, (None, None))
        return tensor is not None and tensor() is value and version == value._version

    def exchange(self, like: Tensor, options: Options) -> Exchange:
        key = like.device, options.layout
        if key not in self.exchanges:
            self.exchanges[key] = Exchange(self.plan, self.mask, self.group, options.axis, like.device)
        return self.exchanges[key]

    def launches(self, device: Any) -> Any:
        if device not in self._launches:
            self._launches[device] = launches_of(self.kernel, self.plan, self.rank, device)
        return self._launches[device]


class _Call(NamedTuple):
    """`learned` names the inputs that come apart, as tensors that may want gradients."""

    cp: ContextParallel
    options: Options
    learned: list[str]

    def with_inputs(self, values: Iterable[Tensor]) -> Options:
        """What autograd saved stands in place of what the call gave: torch checks that nobody wrote into it."""
        inputs = {**self.options.inputs, **dict(zip(self.learned, values, strict=True))}
        return replace(self.options, inputs=inputs)


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch's types aren't read here
    """Fetches K and V, computes own rows; gives dK and dV back to their owners."""

    @staticmethod
    def forward(ctx: Any, call: _Call, q: Tensor, *others: Tensor) -> Any:
        k, v, *learned = others
        cp, options = call.cp, call.options
        k_whole, v_whole = cp.exchange(k, options).fetch(k, v)
        out, lse = cp.launches(q.device).forward(q, k_whole, v_whole, options)
        ctx.call, ctx.has_lse = call, lse is not None
        kept = (k_whole, v_whole) if cp.keep_kv else (k, v)
        ctx.save_for_backward(q, *kept, out, *([lse] if lse is not None else []), *learned)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dout: Tensor, dlse: Tensor) -> Any:
        cp = ctx.call.cp
        q, k, v, out, *more = ctx.saved_tensors
        lse, learned = (more[0], more[1:]) if ctx.has_lse else (None, more)
        options = ctx.call.with_inputs(learned)
        exchange, launches = cp.exchange(k, options), cp.launches(q.device)
        k_whole, v_whole = (k, v) if cp.keep_kv else exchange.fetch(k, v)
        given = Given(q, k_whole, v_whole, out, lse)
        dout = torch.zeros_like(out) if dout is None else dout.contiguous()
        back = ToBackward(dout, dlse.contiguous() if dlse is not None else None)
        deterministic = torch.are_deterministic_algorithms_enabled()
        found = launches.backward(given, back, options, deterministic=deterministic)
        wide = found.dk.dtype == torch.float64
        dk, dv = exchange.give_back(found.dk, found.dv, torch.float64 if wide else cp.gradients)
        inputs = [
            _summed(found.inputs[name], cp.group).to(x.dtype) for name, x in zip(ctx.call.learned, learned, strict=True)
        ]
        return None, found.dq, dk.to(k.dtype), dv.to(v.dtype), *inputs


def _summed(x: Tensor, group: Any) -> Tensor:
    """The sum over ranks; in fp32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).contiguous()
    dist.all_reduce(wide, group=group)
    return wide
