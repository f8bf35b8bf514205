"""Attention shared by processes with gloo, on the executor, against one process: what each process of a test runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared
from attncc import synthetic
from attncc.distributed.lengths import Lengths
from attncc.ir import Variant
from attncc.problem import Problem
from tests.library.cases import SPECS
from tests.library.library import CASES
from tests.random_variants.calls import random_call
from tests.random_variants.variants import random_variant
from tests.ranks import PEERS

RANKS = (2, 3, 4)
ROWS = 96  # of q and k: they divide by each number of ranks, and by twice that
HEADS, DIM = (4, 2), 16
RANDOM = range(12)

LEARNED = """attn 1
variant learned {
    input slope: f32[head] learnable
    input half:  f32[3] learnable
    input row:   f32[batch, q] learnable
    input key:   f32[kv] learnable
    input logit: f32[head] learnable
    keep if window(20)
    score = score - slope[h] * (q_pos - kv_idx) + half[kv_idx % 3] + row[b, q_idx] + key[kv_idx]
    sink logit
}
""".replace("variant", "import masks\nvariant", 1)
SUNK = """attn 1
import masks
variant sunk {
    input slope: f32[head] learnable
    input logit: f32[head] learnable
    keep if causal()
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
}
"""
PLACED = """attn 1
variant placed {
    input third: f32[3] learnable
    input shared: f32[q] learnable
    keep if q_idx >= kv_idx or q_len - q_idx < 5
    score = score + third[q_idx % 3] + shared[q_idx]
}
"""


@dataclass(frozen=True)
class Case:
    """A call: of `lengths` as plans take them. `random`: the seed of a random variant in the place of `spec`."""

    name: str
    spec: str
    consts: dict[str, Any] = field(default_factory=dict)
    lengths: Any = ROWS
    batch: int | None = 2
    dtype: str = "fp32"
    layout: str = "bhsd"
    keep_kv: bool = False
    random: int | None = None
    nodes: int = 1  # of four ranks
    grouped: bool = False  # heads of k travel one after the other
    value_dim: int = DIM
    strided: bool = False  # heads of q, k and v are neighbours in memory, as of a projection, and rows apart

    @property
    def kernel(self) -> attncc.Kernel:
        dims = {"head_dim": DIM, "value_head_dim": self.value_dim}
        return attncc.compile(self.spec, dtype=self.dtype, **dims, **self.consts)

    def problem(self) -> Problem:
        shape = Lengths.of(self.lengths)
        dims = DIM, self.value_dim
        if not shape.packed:
            return Problem(self.batch or 1, *HEADS, shape.q_rows, shape.kv_rows, *dims, layout=self.layout)
        whole = Problem(len(shape.q), *HEADS, shape.q_rows, shape.kv_rows, *dims, layout=self.layout, packed=True)
        return whole.with_starts(shape.q_starts, shape.kv_starts)


def cases() -> Iterator[Case]:
    consts = {case.spec: case.consts[0] for case in CASES}
    yield from (Case(spec, spec, consts.get(spec, {})) for spec in SPECS)
    yield from (Case(f"random {seed}", random_variant(seed).text, random=seed) for seed in RANDOM)
    packed = [20, 41, 0, 35], ([10, 20, 18], [30, 30, 36])
    for number, lengths in enumerate(packed):
        for spec in ("causal", "causal_top_left", "dropout_attention", "documents_prefix_lm"):
            yield Case(f"{spec} packed {number}", spec, lengths=lengths, batch=None)
    yield Case("fewer queries", "causal", lengths=(48, 96))
    yield Case("bshd", "sliding_window", {"width": 20}, layout="bshd")
    yield Case("packed bshd", "causal", lengths=packed[0], batch=None, layout="bshd")
    yield Case("bf16", "sliding_window", {"width": 20}, dtype="bf16")
    yield Case("kept", "sliding_window", {"width": 20}, keep_kv=True)
    yield Case("fp64", "causal", dtype="fp64")
    yield Case("wide values", "causal", value_dim=24, layout="bshd", grouped=True)
    yield Case("wide values nodes", "sliding_window", {"width": 60}, value_dim=24, nodes=2)
    yield Case("strided packed", "causal", lengths=packed[0], batch=None, strided=True)
    yield Case("strided grouped", "causal", dtype="bf16", strided=True, grouped=True)
    yield Case("learned", LEARNED)
    yield Case("sunk", SUNK)
    yield Case("placed", PLACED)
    yield Case("placed packed", PLACED, lengths=packed[0], batch=None)
    yield Case("query_bias packed", "query_bias", lengths=packed[0], batch=None)
    yield Case("learned packed", LEARNED, lengths=packed[0], batch=None)
    for spec, consts in (("causal", {}), ("full", {}), ("dropout_attention", {}), ("sliding_window", {"width": 60})):
        yield Case(f"{spec} nodes", spec, consts, nodes=2, keep_kv=spec == "full")
    yield Case("packed nodes", "causal", lengths=packed[0], batch=None, layout="bshd", nodes=2)
    yield Case("learned nodes", LEARNED, nodes=2)
    for name, spec in (("causal", "causal"), ("learned", LEARNED), ("sunk", SUNK), ("placed", PLACED)):
        yield Case(f"{name} grouped", spec, grouped=True, keep_kv=name == "sunk")
    yield Case("window grouped", "sliding_window", {"width": 20}, layout="bshd", dtype="bf16", grouped=True)
    yield Case("packed grouped", LEARNED, lengths=packed[0], batch=None, layout="bshd", grouped=True)
    yield Case("nodes grouped", "causal", nodes=2, grouped=True)


@dataclass(frozen=True)
class Call:
    """Arrays that all processes draw alike."""

    q: Any
    k: Any
    v: Any
    dout: Any
    inputs: dict[str, Any]
    seed: int | None

    @classmethod
    def of(cls, case: Case, variant: Variant) -> Call:
        problem, rng = case.problem(), np.random.default_rng(0)
        if case.random is not None:
            drawn = random_call(variant, problem, case.dtype, case.random)
            return cls(*map(_tensor, (drawn.q, drawn.k, drawn.v, drawn.dout)), drawn.inputs, drawn.seed)
        q, k, v = map(_tensor, synthetic.qkv(problem, case.dtype, rng))
        dout = torch.from_numpy(rng.standard_normal(problem.out_shape)).to(q.dtype)
        inputs = synthetic.inputs(variant, problem, rng)
        return cls(q, k, v, dout, inputs, 7 if variant.dropout is not None else None)

    def given(self, variant: Variant) -> dict[str, Any]:
        """Inputs as a call takes them: tensors of their own, which want gradients where they are learnable."""
        tensors = {name: _tensor(np.asarray(value)) for name, value in self.inputs.items()}
        return {name: x.requires_grad_(variant.input(name).learnable) for name, x in tensors.items()}


def _tensor(x: Any) -> Any:
    """A copy, of NumPy's bfloat16 too."""
    return torch.from_numpy(np.array(x, np.float32 if x.dtype == "bfloat16" else x.dtype)).to(
        getattr(torch, str(x.dtype))
    )


@dataclass(frozen=True)
class Found:
    """out, lse, dq, dk, dv, and the gradients of inputs by name; of all rows."""

    tensors: dict[str, Any]

    @classmethod
    def of(cls, kernel: Any, given: dict[str, Any], operands: list[Any], dout: Any) -> Found:
        softmax = kernel.variant.normalize == "softmax"
        result = kernel(*operands, return_lse=softmax, **given)
        out, lse = result if softmax else (result, None)
        loss = (out * dout).sum()
        if lse is not None:  # rows that keep nothing have none
            loss = loss + torch.where(lse.isinf(), 0, lse * lse).sum() / 10
        loss.backward()
        found = {"out": out.detach(), "dq": operands[0].grad, "dk": operands[1].grad, "dv": operands[2].grad}
        found |= {} if lse is None else {"lse": lse.detach()}
        return cls(found | {name: x.grad for name, x in given.items() if getattr(x, "grad", None) is not None})


def one_process(case: Case, kernel: attncc.Kernel, call: Call) -> Found:
    operands = [x.clone().requires_grad_() for x in (call.q, call.k, call.v)]
    shape, given = case.problem(), call.given(kernel.variant)
    more: dict[str, Any] = {"layout": case.layout, "seed": call.seed}
    if shape.packed:
        starts = ("cu_seqlens_q", shape.q_starts), ("cu_seqlens_kv", shape.kv_starts)
        more |= {name: torch.tensor(value, dtype=torch.int32) for name, value in starts}
    return Found.of(_With(kernel, more), given, operands, call.dout)


class _With:
    """A kernel whose calls have further arguments."""

    def __init__(self, kernel: Any, more: dict[str, Any], variant: Variant | None = None) -> None:
        self._kernel, self._more, self.variant = kernel, more, variant or kernel.variant

    def __call__(self, *operands: Any, **given: Any) -> Any:
        return self._kernel(*operands, **self._more, **given)


def plan_of(case: Case, kernel: attncc.Kernel, call: Call, ranks: int) -> Any:
    dims = DIM, case.value_dim
    sizes: dict[str, Any] = {"batch": case.batch, "heads": HEADS, "head_dim": dims, "dtype": case.dtype}
    rows = Lengths.of(case.lengths).q_rows
    sizes |= {"ranks": ranks, "nodes": case.nodes, "chunk": rows // ranks // 2}
    if case.grouped:  # launches cost nothing, and work takes long enough to hide the exchange of a head
        sizes["machine"] = shared.Machine(ranks, case.nodes, flops=1e9, nvlink=1e8, network=1e8, launch=0)
    return shared.plan(kernel, case.lengths, **sizes, **call.inputs)


def many_processes(case: Case, cp: Any, call: Call) -> Found:
    """What all ranks find together."""
    axis, variant = -2 if case.layout == "bhsd" else -3, cp.kernel.variant
    operands = [cp.shard(x, axis, of=of) for x, of in ((call.q, "q"), (call.k, "kv"), (call.v, "kv"))]
    if case.strided:
        operands = [x.transpose(-3, -2).contiguous().transpose(-3, -2) for x in operands]
        assert not any(x.is_contiguous() for x in operands)
    operands = [x.requires_grad_() for x in operands]
    more = {"layout": case.layout, "seed": call.seed}
    found = Found.of(_With(cp, more, variant), call.given(variant), operands, cp.shard(call.dout, axis)).tensors
    axes = {"out": axis, "dq": axis, "dk": axis, "dv": axis, "lse": -1}
    return Found(
        {
            name: cp.unshard(x, axes[name], of="kv" if name in ("dk", "dv") else "q") if name in axes else x
            for name, x in found.items()
        }
    )


def bytes_trouble(case: Case, cp: Any) -> str:
    """K and V come once or twice, and gradients of as many rows as were received go back: in fp32 or wider, or
    in the type of the one launch that found them."""
    (exchange,) = cp.exchanges.values()
    one = cp.plan.row_bytes
    rows, sent = cp.mask.rows_received(cp.rank), cp.mask.sent[cp.rank] // one
    single = not exchange.hands_on and cp.launches(torch.device("cpu")).keys_back.single
    wide, fetched = one * (2 if case.dtype == "bf16" and not single else 1), (1 if case.keep_kv else 2) * one
    wanted = rows * fetched + sent * wide, sent * fetched + rows * wide
    came = exchange.bytes_received, exchange.bytes_sent
    if case.nodes > 1 and case.spec in ("causal", "full") and case.batch and not any(cp.mask.passed):
        return "no row is handed on inside a node"
    if case.grouped != (max(len(cp.mask.groups), len(cp.mask.groups_back)) > 1):
        return f"heads travel in groups of {cp.mask.groups} and {cp.mask.groups_back}"
    return "" if came == wanted else f"bytes received and sent: {came}, by the plan {wanted}"


def difference(together: Found, alone: Found) -> str:
    """What differs from one process; empty if nothing does."""
    wrong = ""
    for name, wanted in alone.tensors.items():
        found = together.tensors[name]
        most = 2e-5 if wanted.dtype in (torch.float32, torch.float64) else 2e-2  # each launch's part is rounded
        wrong += _error(name, found.double().numpy(), wanted.double().numpy(), most)
    return wrong


def other_bits(one: Found, other: Found) -> str:
    """Of another transport."""
    return "".join(f"{name} has other bits; " for name, x in one.tensors.items() if not x.equal(other.tensors[name]))


def _error(name: str, found: Any, wanted: Any, most: float) -> str:
    finite = np.isfinite(wanted)
    largest = max(np.abs(wanted[finite]).max(initial=0), 1)
    same = np.array_equal(found[~finite], wanted[~finite], equal_nan=True)
    error = np.abs(found[finite] - wanted[finite]).max(initial=0) / largest
    return "" if same and error <= most else f"{name} differs by {error:.2g}; "


class _Process:
    """One of four, of which the first two and three are groups, too. The first compiles, plans and compares."""

    def __init__(self, rank: int, groups: dict[int, Any]) -> None:
        self._rank, self._groups = rank, groups
        self.found: dict[int, dict[str, str]] = {ranks: {} for ranks in groups}

    def run(self, case: Case, of_ranks: Sequence[int]) -> None:
        shown: list[Any] = [None, None, None]
        if self._rank == 0:
            kernel = case.kernel
            call = Call.of(case, kernel.variant)
            alone = one_process(case, kernel, call)
            shown = [kernel, call, {ranks: plan_of(case, kernel, call, ranks).to_json() for ranks in of_ranks}]
        dist.broadcast_object_list(shown)
        kernel, call, plans = shown
        for ranks in of_ranks:
            if self._rank >= ranks:
                continue
            plan, group = shared.Plan.from_json(plans[ranks]), self._groups[ranks]
            cp = shared.shard(kernel, group, plan=plan, keep_kv=case.keep_kv, transport="collective")
            together = many_processes(case, cp, call)
            wrong = difference(together, alone) if self._rank == 0 else ""
            wrong += bytes_trouble(case, cp)
            if case.nodes == 1 and PEERS:
                peers = shared.shard(kernel, group, plan=plan, keep_kv=case.keep_kv, transport="peer")
                wrong += other_bits(together, many_processes(case, peers, call)) + bytes_trouble(case, peers)
            self.found[ranks][case.name] = wrong


def chosen(*, rest: bool) -> Iterator[tuple[Case, tuple[int, ...]]]:
    """Each case, and how many ranks share it: one number each day, the others where the `rest` is asked for."""
    for number, case in enumerate(cases()):
        own = RANKS[number % len(RANKS)] if case.nodes == 1 else 4
        if rest and case.nodes > 1:
            continue
        yield case, tuple(ranks for ranks in RANKS if (ranks != own) is rest)


def process(rank: int, folder: str, rest: bool) -> None:
    """Writes what differs, by ranks and case."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # A723: small sequences are often needed everywhere
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=max(RANKS))
    own = _Process(rank, {ranks: dist.new_group(list(range(ranks))) for ranks in RANKS})
    for case, ranks in chosen(rest=rest):
        own.run(case, ranks)
    Path(folder, f"{rank}.json").write_text(json.dumps(own.found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
