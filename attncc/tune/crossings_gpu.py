"""The GPU of this machine as `crossings.Forms` has it: graphs of calls over keys that come from HBM."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..compiler import CompiledStore, load_specification
from ..kernels.crossings import Chip, Crossings
from ..kernels.decode.facts import Decode
from ..kernels.kernel_names import kernel_name
from ..kernels.live_tiles import most_tiles
from ..kernels.registry import facts_of, targets_of
from ..library import find
from ..runtime.call.decode_launch import decode_grid
from ..runtime.cuda import nvrtc
from ..runtime.cuda.device import best_target
from ..runtime.cuda.driver import driver
from ..runtime.cuda.nvrtc_pool import jobs
from ..runtime.cuda.timing import CuPyStopwatch, Launch, copies_beyond_cache
from ..runtime.frameworks.transfer import usable_cupy
from ..runtime.kernel import Kernel
from ..runtime.store.loaded_kernels import KernelLoader, LoadedKernels
from ..runtime.store.store import Configuration
from ..schedule.plan import OWN_KERNELS, OwnKernel
from ..threads import DaemonThreads
from ..version import __version__
from .points import POINTS, Sample

DTYPE = "fp16"  # CuPy has no bf16; both take the same time
WINDOW_MS, SETTLE_MS = 4.0, 2.0


class _Kind(NamedTuple):
    """Of calls that have the same kernels."""

    head_dims: tuple[int, int]
    causal: bool


def _kind(sample: Sample) -> _Kind:
    return _Kind(sample.head_dims, sample.causal)


@dataclass(frozen=True)
class _Graph:
    launch: Launch
    milliseconds: float  # roughly


class CrossingsGpu:
    """One GPU. AttnccError A503 without a GPU, A517 without a CuPy that can use it, A501 without NVRTC."""

    def __init__(self) -> None:
        self.device = driver().device(0)
        self._cupy = usable_cupy()
        self._stopwatch = CuPyStopwatch()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._kernels: dict[tuple[_Kind, Crossings], Kernel] = {}
        self._loaders: dict[tuple[_Kind, Crossings], KernelLoader] = {}
        self._sample: Sample | None = None  # of these graphs
        self._graphs: dict[Hashable, _Graph] = {}  # by form
        self._arrays: list[tuple[Any, Any, Any, Any]] = []  # that these read and write

    @property
    def multiprocessors(self) -> int:
        return self.device.multiprocessors

    def about(self) -> Mapping[str, Any]:
        """What the times mean nothing without."""
        return {
            "measured": time.strftime("%Y-%m-%d"),
            "multiprocessors": self.multiprocessors,
            "dtype": DTYPE,
            "attncc": __version__,
            "nvrtc": nvrtc.version(),
        }

    def clock(self) -> float:
        return time.monotonic()

    def prepare(self) -> None:
        """Compiles all kernels that calls may get, in processes: forward and decode, and those of some decode calls."""
        own_kernels = (OwnKernel(), *OWN_KERNELS)
        wanted = [
            (store, store.configurations[0]._replace(**own._asdict()))
            for store in self._stores.values()
            for own in own_kernels
        ]
        with DaemonThreads(jobs()) as threads:
            for made in [threads.submit(self._compile, *item) for item in wanted]:
                made.result()

    def form(self, sample: Sample, crossings: Crossings) -> Hashable:
        """The kernel; of decode kernels also how thread blocks share out the keys."""
        loaded = self._loaded(sample, crossings)
        problem = sample.problem
        plan = loaded.plan(problem)
        facts, name = facts_of(plan), kernel_name(plan)
        if not isinstance(facts, Decode):
            return name
        resident = self.multiprocessors * loaded.function(name).resident_blocks
        units = [max(most_tiles(plan, problem), 1)] * facts.items(problem)  # under a mask about
        grid = decode_grid(facts, problem, resident)
        laid = facts.laid_out(problem, units, loaded.chip, grid, alike=True)
        return name, grid, tuple(own.runs for own in laid)

    def window(self, sample: Sample, crossings: Crossings) -> float:
        if sample != self._sample:
            self._sample = None
            self._arrays = self._copies(sample)
            self._sample = sample
        form = self.form(sample, crossings)
        if form not in self._graphs:
            self._graphs[form] = self._recorded(self._kernel(sample, crossings))
        graph = self._graphs[form]
        repeats, before = (max(1, round(length / graph.milliseconds)) for length in (WINDOW_MS, SETTLE_MS))
        with self._stream:
            return self._stopwatch.window(graph.launch, repeats, before) / len(self._arrays)

    # ------------------------------------------------------------ kernels

    @cached_property
    def _target(self) -> str:
        found = best_target(targets_of(DTYPE), self.device.capability)
        assert found is not None  # there are portable kernels for every GPU that a driver is for
        return found

    @cached_property
    def _stores(self) -> dict[_Kind, CompiledStore]:
        kinds = {_kind(sample) for point in POINTS for sample in point.samples(Chip(self.multiprocessors))}
        return {kind: self._store(kind) for kind in kinds}

    def _store(self, kind: _Kind) -> CompiledStore:
        path = find("causal" if kind.causal else "full")
        assert path is not None
        return CompiledStore(load_specification(path, None, {})[0], _configuration(kind.head_dims), (self._target,))

    def _compile(self, store: CompiledStore, configuration: Configuration) -> None:
        if self._target in store.targets(configuration):
            store.machine_codes(store.plans(configuration, self._target))

    def _kernel(self, sample: Sample, crossings: Crossings) -> Kernel:
        """One whose calls get the forms that these points give them."""
        key = _kind(sample), crossings
        if key not in self._kernels:
            store = self._stores[_kind(sample)]
            self._loaders[key] = KernelLoader(store, crossings=crossings)
            self._kernels[key] = Kernel(store, (self._loaders[key], KernelLoader(store, backward=True)))
        return self._kernels[key]

    def _loaded(self, sample: Sample, crossings: Crossings) -> LoadedKernels:
        self._kernel(sample, crossings)
        loader = self._loaders[_kind(sample), crossings]
        return loader.serving(_configuration(sample.head_dims), self.device.ordinal, sample.problem)

    # ------------------------------------------------------------ calls

    def _recorded(self, kernel: Kernel) -> _Graph:
        """A graph of calls on all copies of the arrays."""
        with self._stream:
            q, k, v, out = self._arrays[0]
            kernel(q, k, v, out=out)  # loads its machine code
            self._stream.begin_capture()
            for q, k, v, out in self._arrays:
                kernel(q, k, v, out=out)
            graph = self._stream.end_capture()

            def launch() -> None:
                graph.launch(self._stream)

            self._stopwatch.window(launch, 2)
            return _Graph(launch, self._stopwatch.window(launch, 2))

    def _copies(self, sample: Sample) -> list[tuple[Any, Any, Any, Any]]:
        """Of the arrays of a call: so many that they fill the L2 cache more than once."""
        self._arrays, self._graphs = [], {}  # those of the sample before, whose memory is free then
        first = self._drawn(sample, 0)
        read = first[1].nbytes + (0 if sample.latent else first[2].nbytes)
        copies = copies_beyond_cache(read, self.device.l2_bytes)
        return [first, *(self._drawn(sample, seed) for seed in range(1, copies))]

    def _drawn(self, sample: Sample, seed: int) -> tuple[Any, Any, Any, Any]:
        """q, k, v and out."""
        problem, random = sample.problem, self._cupy.random.default_rng(seed)

        def normal(heads: int, rows: int, columns: int) -> Any:
            return random.standard_normal((problem.batch, heads, rows, columns), "float32").astype("float16")

        with self._stream:
            q = normal(problem.num_heads, problem.q_len, problem.head_dim)
            k = normal(problem.num_kv_heads, problem.kv_len, problem.head_dim)
            if sample.latent:
                v = k[..., : problem.value_head_dim]
            else:
                v = normal(problem.num_kv_heads, problem.kv_len, problem.value_head_dim)
            return q, k, v, self._cupy.empty(problem.out_shape, "float16")


def _configuration(head_dims: tuple[int, int]) -> Configuration:
    return Configuration(DTYPE, *head_dims)
