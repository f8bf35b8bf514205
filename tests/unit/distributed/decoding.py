"""Few queries over caches that processes share, with gloo, on the executor: what each process of a test runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared
from attncc import synthetic
from attncc.problem import Problem
from tests.library.cases import SPECS
from tests.library.library import CASES
from tests.unit.distributed.sharing import HEADS, RANKS

BATCH, ROOM, DIM = 4, 96, 16
LENGTHS = (96, 41, 5, 64)  # keys of each sequence
TURN = 8

SUNK = """attn 1
import masks
variant sunk {
    input slope: f32[head]
    input logit: f32[head]
    keep if causal()
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
}
"""
PLACED = """attn 1
import masks
variant placed {
    input bias: f32[kv]
    keep if kv_idx < 4 or window(30) or kv_idx == kv_len - 1
    score = score + bias[kv_idx] + 0.01 * kv_len
}
"""


@dataclass(frozen=True)
class Case:
    name: str
    spec: str
    consts: dict[str, Any] = field(default_factory=dict)
    interleave: int | None = None
    rows: int = 2  # of q
    dtype: str = "fp32"
    layout: str = "bhsd"
    result: str = "all"
    page: int | None = None
    offset: int | None = None  # back from where the last query would be at the last key; with turns, of all queries

    @property
    def kernel(self) -> attncc.Kernel:
        return attncc.compile(self.spec, dtype=self.dtype, head_dim=DIM, **self.consts)


def cases() -> Iterator[Case]:
    consts = {case.spec: case.consts[0] for case in CASES}
    for number, spec in enumerate(SPECS):
        if spec != "dropout_attention" and "dropout" not in attncc.parse(spec, **consts.get(spec, {})).variant.show():
            yield Case(f"{spec}", spec, consts.get(spec, {}), interleave=TURN if number % 2 else None)
    window: dict[str, Any] = {"spec": "sliding_window", "consts": {"width": 20}}
    for interleave in (None, TURN):
        kind = "turns" if interleave else "neighbours"
        yield Case(f"causal {kind}", "causal", interleave=interleave)
        yield Case(f"window {kind}", **window, interleave=interleave, rows=1)
        yield Case(f"placed {kind}", PLACED, interleave=interleave)
        yield Case(f"sunk {kind}", SUNK, interleave=interleave)
        yield Case(f"pages {kind}", **window, interleave=interleave, page=8)
        yield Case(f"bshd {kind}", "prefix_lm", interleave=interleave, layout="bshd")
        yield Case(f"bf16 {kind}", **window, interleave=interleave, dtype="bf16")
        yield Case(f"heads {kind}", SUNK, interleave=interleave, result="heads")
        yield Case(f"heads bshd {kind}", SUNK, interleave=interleave, result="heads", layout="bshd")
        yield Case(f"offset {kind}", "causal", interleave=interleave, offset=3)
        yield Case(f"no lse {kind}", "sigmoid_attention", interleave=interleave, result="heads")
        yield Case(f"fp64 {kind}", "causal", interleave=interleave, dtype="fp64")
        yield Case(f"many rows {kind}", "causal", interleave=interleave, rows=40)


@dataclass(frozen=True)
class Call:
    """Arrays that all processes draw alike: the whole cache in layout bhsd."""

    q: Any
    k: Any
    v: Any
    inputs: dict[str, Any]

    @classmethod
    def of(cls, case: Case) -> Call:
        problem, rng = Problem(BATCH, *HEADS, case.rows, ROOM, DIM, DIM), np.random.default_rng(0)
        q, k, v = (_tensor(x, case.dtype) for x in synthetic.qkv(problem, case.dtype, rng))
        inputs = synthetic.inputs(case.kernel.variant, problem, rng)
        return cls(q, k, v, {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()})


def _tensor(x: Any, dtype: str) -> Any:
    kind = {"bf16": torch.bfloat16, "fp64": torch.float64}.get(dtype, torch.float32)
    return torch.from_numpy(x.astype(np.float64)).to(kind)


def starts_of(ranks: int) -> Any:
    """Ranks have parts of sequences that differ, none at all of some."""
    rng = np.random.default_rng(ranks)
    found = np.sort(rng.integers(0, 60, (ranks, BATCH)), axis=0)
    found[0] = 0
    found[1, 2] = 50  # all of the third sequence on rank 0
    found[:, 1] = 0  # all of the second on the last rank
    found = np.maximum.accumulate(found, axis=0)
    return torch.from_numpy(found.astype(np.int32))


def own_keys(case: Case, starts: Any, rank: int, ranks: int) -> list[Any]:
    """Of each sequence the keys that a rank holds, by their definition."""
    keys = [np.arange(length) for length in LENGTHS]
    if case.interleave is not None:
        return [each[each // case.interleave % ranks == rank] for each in keys]
    begins = [*starts.numpy(), np.full(BATCH, ROOM)]
    return [each[(each >= begins[rank][b]) & (each < begins[rank + 1][b])] for b, each in enumerate(keys)]


def cache_of(x: Any, keys: list[Any]) -> Any:
    """The rank's rows of the whole cache, and NaN behind them."""
    own = torch.full((BATCH, x.shape[1], ROOM, x.shape[-1]), torch.nan, dtype=x.dtype)
    for b, rows in enumerate(keys):
        own[b, :, : len(rows)] = x[b, :, torch.from_numpy(rows)]
    return own


def paged(x: Any, page: int) -> Any:
    """A pool whose pages are those of all sequences, in an order of their own; with the table."""
    pages = x.unflatten(2, (-1, page)).movedim(2, 1).flatten(0, 1)
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(pages)))
    table = torch.empty_like(order)
    table[order] = torch.arange(len(order))
    return pages[order], table.view(BATCH, -1).to(torch.int32)


def laid_out(case: Case, x: Any) -> Any:
    return x if case.layout == "bhsd" else x.transpose(1, 2).contiguous()


def given(case: Case, call: Call, keys: list[Any] | None) -> tuple[list[Any], dict[str, Any]]:
    """The operands and keywords of a call over some keys; None: all, which are neighbours."""
    k, v = (x if keys is None else cache_of(x, keys) for x in (call.k, call.v))
    more: dict[str, Any] = {"kv_lens": torch.tensor(LENGTHS, dtype=torch.int32), "layout": case.layout, **call.inputs}
    if case.page is not None:
        (k, table), (v, _) = paged(k, case.page), paged(v, case.page)
        more["block_table"] = table
    if case.offset is not None:
        more["q_offset"] = case.offset if case.interleave else more["kv_lens"] - case.rows - case.offset
    return [laid_out(case, x) for x in (call.q, k, v)], more


def difference(case: Case, found: Any, wanted: Any) -> str:
    found, wanted = found.double(), wanted.double()
    finite = wanted.isfinite()
    if found.shape != wanted.shape or not torch.equal(found[~finite], wanted[~finite]):
        return "other shapes or infinities; "
    error = (found[finite] - wanted[finite]).abs().max() / wanted[finite].abs().max().clamp(min=1)
    return "" if error <= {"bf16": 1e-2}.get(case.dtype, 5e-6) else f"differs by {error:.2g}; "


def wire(case: Case, out: Any, lse: Any, ranks: int) -> int:
    """Bytes that each rank sends: its partial result, or the others' heads of it; parts are multiples of 16 bytes."""
    share = ranks if case.result == "heads" else 1
    sizes = [x.numel() * x.element_size() // share for x in (out, lse) if x is not None]
    return (ranks - 1) * sum(-(-size // 16) * 16 for size in sizes)


def trouble(case: Case, group: Any, ranks: int) -> str:
    kernel, call, rank = case.kernel, Call.of(case), dist.get_rank(group)
    softmax = kernel.variant.normalize == "softmax"
    operands, more = given(case, call, None)
    alone = kernel(*operands, **more, return_lse=softmax)
    out, lse = alone if softmax else (alone, None)
    size = wire(case, out, lse, ranks)
    if case.result == "heads":
        out = out.chunk(ranks, 1 if case.layout == "bhsd" else 2)[rank]
        lse = lse if lse is None else lse.chunk(ranks, 1)[rank]
    starts = starts_of(ranks) if case.interleave is None else None
    decode = shared.decode(kernel, group, interleave=case.interleave, result=case.result)
    operands, more = given(case, call, own_keys(case, starts, rank, ranks))
    found, found_lse = decode(*operands, **more, kv_starts=starts, return_lse=True)
    wrong = difference(case, found, out) + ("" if lse is None else difference(case, found_lse, lse))
    if case.result == "all":  # the same bits on all ranks
        copies = [torch.empty_like(found) for _ in range(ranks)]
        dist.all_gather(copies, found, group=group)
        wrong += "" if all(map(torch.equal, copies, [found] * ranks)) else "ranks have other bits; "
    return wrong + ("" if size == decode.bytes_sent == decode.bytes_received else f"{decode.bytes_sent} bytes sent; ")


def appended(group: Any, ranks: int) -> bool:
    """A cache that grows row by row, as docs/distributed.md says: whoever owns the new key writes it."""
    kernel, rows = attncc.compile("sliding_window", dtype="fp32", head_dim=DIM, width=20), 40
    decode = shared.decode(kernel, group, interleave=4)
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, rows, DIM, generator=rng) for heads in (4, 2, 2))
    caches = [torch.zeros(2, 2, rows, DIM) for _ in range(4)]  # own keys and values, all of them
    lengths, same = torch.zeros(2, dtype=torch.int32), True
    for row in range(rows):
        lengths = lengths + 1
        own, new = decode.own_lens(lengths), [x[:, :, row : row + 1] for x in (k, v)]
        attncc.append(*caches[:2], *new, kv_lens=torch.where(own > decode.own_lens(lengths - 1), own, 0))
        attncc.append(*caches[2:], *new, kv_lens=lengths)
        found = decode(q[:, :, row : row + 1], *caches[:2], kv_lens=lengths)
        wanted = kernel(q[:, :, row : row + 1], *caches[2:], kv_lens=lengths)
        same = same and torch.allclose(found, wanted, atol=1e-5)
    return same


def _other_kernels(rank: int, group: Any) -> None:
    shared.decode(attncc.compile("sliding_window", dtype="fp32", head_dim=DIM, width=20 + rank), group)


def _dropout(rank: int, group: Any) -> None:
    shared.decode(attncc.compile("dropout_attention", dtype="fp32", head_dim=DIM), group)


def _called(group: Any, interleave: int | None = 8, result: str = "all", heads: int = 4, **given: Any) -> None:
    kernel = attncc.compile("causal", dtype="fp32", head_dim=DIM)
    k = torch.zeros(2, 1, 32, DIM)
    lens = torch.tensor([9, 3], dtype=torch.int32)
    shared.decode(kernel, group, interleave=interleave, result=result)(
        torch.zeros(2, heads, 1, DIM), k, k, kv_lens=lens, **given
    )


REFUSED: dict[str, tuple[Any, str]] = {
    "other kernels": (_other_kernels, "A722"),
    "other options": (lambda rank, group: _called(group, 8 + rank), "A722"),
    "dropout": (_dropout, "A725"),
    "no turns": (lambda rank, group: _called(group, 0), "A725"),
    "no result": (lambda rank, group: _called(group, result="rows"), "A725"),
    "no starts": (lambda rank, group: _called(group, None), "A725"),
    "starts beside turns": (lambda rank, group: _called(group, kv_starts=torch.zeros(2, 2)), "A725"),
    "heads that don't divide": (lambda rank, group: _called(group, result="heads", heads=3), "A725"),
    "other queries": (lambda rank, group: _called(group, heads=4 + rank), "A721"),
}


def refusals(rank: int, group: Any) -> dict[str, str]:
    found = {}
    for name, (attempt, _) in REFUSED.items():
        try:
            attempt(rank, group)
        except attncc.AttnccError as error:
            found[name] = error.diagnostics[0].code
    return found


def chosen(*, rest: bool) -> Iterator[tuple[Case, tuple[int, ...]]]:
    for number, case in enumerate(cases()):
        own = 2 if case.result == "heads" else RANKS[number % len(RANKS)]  # heads divide by 2 and 4
        others = tuple(ranks for ranks in RANKS if ranks != own and (case.result == "all" or ranks != 3))
        yield case, others if rest else (own,)


def process(rank: int, folder: str, rest: bool) -> None:
    """Writes what differs, by ranks and case."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=max(RANKS))
    groups = {ranks: dist.new_group(list(range(ranks))) for ranks in RANKS}
    found: dict[str, Any] = {str(ranks): {} for ranks in RANKS}
    for case, numbers in chosen(rest=rest):
        for ranks in numbers:
            if rank < ranks:
                found[str(ranks)][case.name] = trouble(case, groups[ranks], ranks)
    if not rest:
        found["appended"] = appended(groups[4], 4)
        found["refused"] = refusals(rank, groups[2]) if rank < 2 else {}
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
