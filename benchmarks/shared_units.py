"""What each process of `benchmarks.shared_attention` does: units, one after the other, each told in a line of JSON.

A unit that raises ends its process: a collective that others wait in would never end. The parent starts all again.
"""

from __future__ import annotations

import json
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared
from attncc.distributed.call_parts import Options

from .torch_context_parallel import flex, sdpa
from .zigzag_ring import ZigzagRing

Tensor = Any
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


@dataclass(frozen=True)
class Settings:
    """Sizes. `rows` of timed sequences, `checked` of those that are compared with one GPU."""

    backend: str
    folder: str
    rows: int
    checked: int
    runs: int  # that must have the same bits
    heads: tuple[int, int] = (32, 8)
    head_dim: int = 128
    transport: str = "auto"
    timed: int = 5
    before: int = 2
    loops: int = 3  # calls of a measurement, at least
    least: float = 40.0  # ms that it takes, if 50 calls do: else the host's part of the first call counts
    settle: float = 200.0  # ms of the same calls ahead, which aren't timed: so long clocks take to settle

    @property
    def device(self) -> str:
        return "cuda" if self.backend == "nccl" else "cpu"

    @classmethod
    def tiny(cls, backend: str, folder: str) -> Settings:
        return cls(backend, folder, 512, 256, 3, (4, 2), 64, timed=1, before=0, loops=1, settle=0)


@dataclass(frozen=True)
class Mask:
    spec: str
    window: int | None = None
    packed: bool = False

    def lengths(self, rows: int) -> Any:
        """Documents of lognormal lengths, a median of 3000 of 32 thousand rows."""
        if not self.packed:
            return rows
        rng, found = np.random.default_rng(0), list[int]()
        while sum(found) < rows:
            drawn = int(np.clip(rng.lognormal(8, 1.2) * rows / 32768, 16, rows))
            found.append(min(drawn, rows - sum(found)))
        return found

    def consts(self, rows: int) -> dict[str, Any]:
        return {} if self.window is None else {"width": min(self.window, rows // 4)}

    def inputs(self, rows: int) -> dict[str, Any]:
        return {"prefix_len": np.array([rows // 4], np.int32)} if self.spec == "prefix_lm" else {}

    def kernel(self, settings: Settings, rows: int) -> attncc.Kernel:
        return attncc.compile(self.spec, dtype="bf16", head_dim=settings.head_dim, **self.consts(rows))

    def pairs(self, rows: int) -> float:
        """Kept pairs of a head."""
        if self.spec == "full":
            return float(rows) ** 2
        lengths = self.lengths(rows) if self.packed else [rows]
        causal = sum(x * (x + 1) / 2 for x in lengths)
        if self.spec == "prefix_lm":
            return float(causal + (rows // 4) * (rows // 4 - 1) / 2)
        width = self.consts(rows).get("width", rows)
        beyond = [max(x - width, 0) for x in lengths]
        return float(causal - sum(x * (x + 1) / 2 for x in beyond))

    def flex_mask(self, settings: Settings) -> Callable[..., Any]:
        rows, device = settings.rows, settings.device
        width = self.consts(rows).get("width", rows)
        if not self.packed:
            return lambda b, h, q, k: (q >= k) & (q - k < width)
        lengths = torch.tensor(self.lengths(rows))
        doc = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(device)
        return lambda b, h, q, k: (q >= k) & (doc[q] == doc[k])


MASKS = {
    "causal": Mask("causal"),
    "full": Mask("full"),
    "window 4096": Mask("sliding_window", 4096),
    "documents": Mask("causal", packed=True),
    "prefix": Mask("prefix_lm"),
    "dropout": Mask("dropout_attention"),
}
TIMED = ("causal", "full", "window 4096", "documents", "prefix")


class Units:
    """Of one process."""

    def __init__(self, settings: Settings, rank: int, ranks: int) -> None:
        self.settings, self.rank, self.ranks = settings, rank, ranks
        self.device = torch.device(settings.device, rank) if settings.device == "cuda" else torch.device("cpu")

    # ------------------------------------------------------------ a call

    def drawn(self, mask: Mask, rows: int) -> list[Tensor]:
        """q, k, v and dout, of all rows, the same on all ranks."""
        (heads, kv_heads), dim = self.settings.heads, self.settings.head_dim
        lead = () if mask.packed else (1,)
        found = []
        for number, count in enumerate((heads, kv_heads, kv_heads, heads)):
            generator = torch.Generator(self.device).manual_seed(number)
            drawn = torch.randn(*lead, count, rows, dim, generator=generator, device=self.device)
            found.append(drawn.bfloat16())
        return found

    def shared(self, mask: Mask, rows: int, **more: Any) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
        """The kernel, what ranks share, inputs of both, and arguments of one GPU alone. `more`: of the plan."""
        kernel, lengths = mask.kernel(self.settings, rows), mask.lengths(rows)
        sizes: dict[str, Any] = {"ranks": self.ranks, "heads": self.settings.heads, "head_dim": self.settings.head_dim}
        plan = shared.plan(kernel, lengths, batch=None if mask.packed else 1, **sizes, **more, **mask.inputs(rows))
        given: dict[str, Any] = {name: torch.from_numpy(x).to(self.device) for name, x in mask.inputs(rows).items()}
        given |= {"seed": 7} if mask.spec == "dropout_attention" else {}
        starts = torch.tensor(plan.lengths.q_starts, dtype=torch.int32, device=self.device)
        alone = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts} if mask.packed else {}
        return kernel, shared.shard(kernel, plan=plan, transport=self.settings.transport), given, alone

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def milliseconds(
        self, call: Callable[[], Any], loops: int, alone: int | None = None, ahead: int = 0
    ) -> tuple[float, float]:
        """Of one call of some, the slowest rank's, and of it the host's part; `alone`: the one rank that calls;
        `ahead`: calls before these."""
        spent = torch.zeros(2, dtype=torch.float64, device=self.device)
        dist.barrier()
        self.wait()
        calls = alone in (None, self.rank)
        for _ in range(ahead if calls else 0):
            call()
        if ahead:
            self.wait()
            dist.barrier()
            self.wait()
        if calls:
            start = time.perf_counter()
            for _ in range(loops):
                call()
            host = time.perf_counter() - start
            self.wait()
            spent += torch.tensor([time.perf_counter() - start, host], device=self.device) * 1e3 / loops
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        whole, host = spent.tolist()
        return whole, host

    def medians(
        self, calls: dict[str, Callable[[], Any]], alone: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, float]:
        """Of interleaved measurements; "host NAME": how long the host took."""
        spent: dict[str, list[float]] = {name: [] for label in calls for name in (label, f"host {label}")}
        loops, ahead = dict.fromkeys(calls, self.settings.loops), dict.fromkeys(calls, 0)
        for number in range(self.settings.before + self.settings.timed):
            for name, call in calls.items():
                found, host = self.milliseconds(call, loops[name], alone.get(name), ahead[name])
                if number >= self.settings.before:
                    spent[name].append(found)
                    spent[f"host {name}"].append(host)
                if number + 1 == self.settings.before:  # the same on all ranks, as `found` is
                    loops[name] = max(self.settings.loops, min(50, round(self.settings.least / found)))
                    ahead[name] = round(self.settings.settle / found)
        return {name: median(found) for name, found in spent.items()}

    # ------------------------------------------------------------ units

    def compile(self) -> dict[str, Any]:
        """Calls each kernel once, in both passes: later units find them in the cache. Ranks share the work."""
        start = time.perf_counter()
        wanted = [(mask, rows) for mask in MASKS.values() for rows in (self.settings.checked, self.settings.rows)]
        distinct = list({(item.spec, str(item.consts(rows))): (item, rows) for item, rows in wanted}.values())
        for some in (distinct[self.rank :: self.ranks], distinct):
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(self._compile, some))
            dist.barrier()
        return {"seconds": time.perf_counter() - start}

    def _compile(self, item: tuple[Mask, int]) -> None:
        mask, rows = item
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # each thread has its own
        kernel = mask.kernel(self.settings, rows)
        operands = [x[..., :256, :].contiguous() for x in self.drawn(Mask(mask.spec), 256)]
        given: dict[str, Any] = {name: torch.from_numpy(x).to(self.device) for name, x in mask.inputs(256).items()}
        given |= {"seed": 7} if mask.spec == "dropout_attention" else {}
        _gradients(kernel, operands, given)

    def check(self, name: str) -> dict[str, Any]:
        """out and gradients against one GPU; bytes against the plan's; the same bits again and again.

        Launches cost nothing in this plan, so heads travel in groups.
        """
        mask, rows = MASKS[name], self.settings.checked
        machine = shared.Machine(self.ranks, flops=1e13, launch=0)
        kernel, cp, given, alone = self.shared(mask, rows, machine=machine)
        whole = self.drawn(mask, rows)
        own = [cp.shard(x, -2, of=of) for x, of in zip(whole, ("q", "kv", "kv", "q"), strict=True)]
        torch.use_deterministic_algorithms(True)
        try:
            first = _gradients(cp, own, given)
            wrong = self._bytes_wrong(cp)
            wanted = _gradients(kernel, whole, {**given, **alone})
            errors = {}
            for label, mine, one in zip(("out", "dq", "dk", "dv"), first, wanted, strict=True):
                together = cp.unshard(mine, -2, of="kv" if label in ("dk", "dv") else "q")
                errors[label] = float((together.float() - one.float()).abs().max() / one.float().abs().max())
            other = sum(not _same(first, _gradients(cp, own, given)) for _ in range(self.settings.runs))
            by_collective = shared.shard(kernel, plan=cp.plan, transport="collective")
            apart = not _same(first, _gradients(by_collective, own, given))
        finally:
            torch.use_deterministic_algorithms(False)
        wrong += [f"{label} differs by {error:.2g}" for label, error in errors.items() if not error < 1e-2]
        wrong += [f"{other} of {self.settings.runs} runs have other bits"] if other else []
        wrong += ["all_to_all_single brings other bits"] if apart else []
        return {"wrong": wrong, "errors": errors, "runs": self.settings.runs, "heads in turn": cp.mask.groups}

    def _bytes_wrong(self, cp: Any) -> list[str]:
        (exchange,), one = cp.exchanges.values(), cp.plan.row_bytes
        received, sent = cp.mask.rows_received(cp.rank), cp.mask.sent[cp.rank] // one
        wide = 1 if cp.launches(self.device).keys_back.single else 2  # gradients of several launches are sums in fp32
        wanted = (2 * received + wide * sent) * one, (2 * sent + wide * received) * one  # K and V twice, gradients once
        came = exchange.bytes_received, exchange.bytes_sent
        return [] if came == wanted else [f"bytes received and sent {came}, by the plan {wanted}"]

    def time(self, name: str) -> dict[str, Any]:
        """One GPU, the first, beside all of them. "each": all compute the whole at the same time, each alone: what the
        slowest one and a shared supply of power cost."""
        return self._beside_one(MASKS[name], self._other_ways)

    def long(self, what: str) -> dict[str, Any]:
        """As `time`, of a mask at another length, "NAME at ROWS": ours, one GPU, and all GPUs each for itself."""
        name, _, rows = what.partition(" at ")
        settings = replace(self.settings, rows=int(rows), before=1, timed=3, loops=1)
        return Units(settings, self.rank, self.ranks)._beside_one(MASKS[name], lambda *_: {})

    def _other_ways(self, cp: Any, own: list[Tensor], given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        by_collective = shared.shard(cp.kernel, plan=cp.plan, transport="collective")
        return {
            "collective": lambda: by_collective(*own[:3], **given),
            "collective both": lambda: _gradients(by_collective, own, given),
            "exchange": lambda: self._exchange(cp, own),
        }

    def _beside_one(self, mask: Mask, more: Callable[..., dict[str, Callable[[], Any]]]) -> dict[str, Any]:
        """`more`: calls beside, of what `shard` gave, and this rank's tensors and inputs."""
        rows = self.settings.rows
        kernel, cp, given, alone = self.shared(mask, rows)
        whole = self.drawn(mask, rows)
        own = [cp.shard(x, -2, of=of) for x, of in zip(whole, ("q", "kv", "kv", "q"), strict=True)]
        found = self.medians(
            {  # what leaves GPUs idle comes last: clocks take a while to find what a limit of power allows
                "each": lambda: kernel(*whole[:3], **given, **alone),
                "all": lambda: cp(*own[:3], **given),
                "each both": lambda: _gradients(kernel, whole, {**given, **alone}),
                "all both": lambda: _gradients(cp, own, given),
                "one both": lambda: _gradients(kernel, whole, {**given, **alone}),
                "one": lambda: kernel(*whole[:3], **given, **alone),
                **more(cp, own, given),
            },
            alone={"one": 0, "one both": 0},
        )
        flops = 4 * mask.pairs(rows) * self.settings.heads[0] * self.settings.head_dim
        back = {kind: found[f"{kind} both"] - found[kind] for kind in ("one", "all", "each")}
        return {
            **{f"{kind} ms": value for kind, value in found.items()},
            "forward share": found["one"] / found["all"] / self.ranks,
            "backward share": back["one"] / back["all"] / self.ranks,
            "forward share of each": found["each"] / found["all"] / self.ranks,
            "backward share of each": back["each"] / back["all"] / self.ranks,
            "forward TFLOP/s a GPU": flops / found["all"] / self.ranks / 1e9,
            "backward TFLOP/s a GPU": 2.5 * flops / back["all"] / self.ranks / 1e9,
            "transport": type(next(iter(cp.exchanges.values()))).__name__,
            "assignment": cp.plan.tried[0].name,
            "groups": [cp.mask.groups, cp.mask.groups_back],
            "planned ms": cp.mask.exposed * 1e3,
        }

    def _exchange(self, cp: Any, own: list[Tensor]) -> None:
        """K and V of all heads, nothing computed."""
        heads = ((0, self.settings.heads[1]),)
        read = cp.launches(self.device).keys.others
        fetched = cp.exchange(own[1], Options({}, None, "bhsd", None)).fetch(*own[1:3], heads, read)
        fetched.wait(0)
        fetched.done()

    def ring(self, name: str) -> dict[str, Any]:
        """The zigzag ring on the same kernels; compared with one GPU first."""
        masked = name == "causal"
        kernels = [MASKS[each].kernel(self.settings, self.settings.rows) for each in ("causal", "full")]
        ring = ZigzagRing(*kernels, masked=masked)
        whole = self.drawn(MASKS[name], self.settings.checked)
        place = ring.rows(self.settings.checked).to(self.device)
        found = _gradients(ring, [x.index_select(2, place) for x in whole], {})
        wanted = _gradients(MASKS[name].kernel(self.settings, self.settings.checked), whole, {})
        errors = [
            float((mine.float() - one.index_select(2, place).float()).abs().max() / one.float().abs().max())
            for mine, one in zip(found, wanted, strict=True)
        ]
        place = ring.rows(self.settings.rows).to(self.device)
        own = [x.index_select(2, place) for x in self.drawn(MASKS[name], self.settings.rows)]
        return {**self._peer(ring, own), "wrong": [] if max(errors) < 2e-2 else [f"differs by {max(errors):.2g}"]}

    def sdpa(self, name: str) -> dict[str, Any]:
        from torch.nn.attention import SDPBackend

        kind, _, how = name.partition(" by ")
        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[how]
        whole = self.drawn(MASKS[kind], self.settings.rows)
        with sdpa(self._mesh(), whole[:3], causal=kind == "causal", backend=backend) as (call, own):
            return self._peer(call, [*own, torch.randn_like(own[0])])

    def flex(self, name: str) -> dict[str, Any]:
        mask = MASKS[name]
        whole = [x[None] if mask.packed else x for x in self.drawn(mask, self.settings.rows)]
        balance = {"causal": "head-tail", "documents": "blocks"}.get(name, "none")
        compiled = self.device.type == "cuda"
        call, own = flex(self._mesh(), whole[:3], mask.flex_mask(self.settings), balance=balance, compiled=compiled)
        return self._peer(call, [*own, torch.randn_like(own[0])])

    def _mesh(self) -> Any:
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.device.type, (self.ranks,))

    def _peer(self, call: Any, own: list[Tensor]) -> dict[str, Any]:
        calls = {"all": lambda: call(*own[:3]), "all both": lambda: _gradients(call, own, {})}
        return {f"{name} ms": value for name, value in self.medians(calls).items()}


def _gradients(call: Any, operands: list[Tensor], given: dict[str, Any]) -> list[Tensor]:
    """out, dq, dk, dv. The last operand is dout."""
    leaves = [x.detach().requires_grad_() for x in operands[:3]]
    out = call(*leaves, **given)
    out.backward(operands[3])
    return [out.detach(), *(x.grad for x in leaves)]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def process(  # noqa: PLR0917  (as torch.multiprocessing hands them over)
    rank: int, ranks: int, settings: Settings, units: list[str], meeting: str, deadline: float
) -> None:
    """Runs units until the `deadline` (of time.time)."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(4 if settings.device == "cuda" else 1)
    more: dict[str, Any] = {}
    if settings.device == "cuda":
        os.environ |= NO_MULTICAST
        torch.cuda.set_device(rank)
        more = {"device_id": torch.device("cuda", rank)}
    dist.init_process_group(settings.backend, init_method=f"file://{meeting}", rank=rank, world_size=ranks, **more)
    own = Units(settings, rank, ranks)
    for name in units:
        stop = torch.tensor([time.time() > deadline], dtype=torch.int32, device=own.device)
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if int(stop):
            break
        _told(settings, rank, name, _run(own, name))
    dist.barrier()
    dist.destroy_process_group()


def _run(own: Units, name: str) -> dict[str, Any]:
    """Ends the process if the unit raises."""
    kind, _, what = name.partition(" ")
    start = time.perf_counter()
    try:
        found = getattr(own, kind)(*([what] if what else []))
    except BaseException as error:
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
        traceback.print_exc()
        _told(own.settings, own.rank, name, {"error": text})
        os._exit(1)
    return {**found, "took s": round(time.perf_counter() - start, 1)}


def _told(settings: Settings, rank: int, name: str, found: dict[str, Any]) -> None:
    with Path(settings.folder, f"{rank}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"unit": name, **found}) + "\n")


def told(folder: str, ranks: int) -> Iterator[list[dict[str, Any]]]:
    """What each rank told so far."""
    for rank in range(ranks):
        path = Path(folder, f"{rank}.jsonl")
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        yield [json.loads(line) for line in lines if line.endswith("}")]
