"""Runs every kernel of every spec, of all passes and families, for compute-sanitizer. Not a test.

    python -m tests.gpu.sanitizer --compile
    export PYTORCH_NO_CUDA_MEMORY_CACHING=1
    compute-sanitizer --tool memcheck  --error-exitcode 1 python -m tests.gpu.sanitizer
    compute-sanitizer --tool racecheck --error-exitcode 1 python -m tests.gpu.sanitizer

The first command builds each spec as `attncc build --decode --backward` does, bf16 at head dim 128, one at 256 too, for
the GPU's portable target and on Hopper for sm_90a, on all cores; the others load what it made, so that the tool sees
launches alone. Lengths end within a tile, and there are packed batches of an empty and a
short sequence. With the variable each tensor is an allocation of its own, so that a read beyond its end is seen;
without it the script refuses to run. `--part 2/5` takes the second of five parts; names of specs take these.
`tests.gpu.sanitizer_cases` has the other dtypes, head dims and layouts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch

from attncc import synthetic
from attncc.kernels.decode.facts import Decode
from attncc.kernels.helpers import transposition
from attncc.package import build
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.call import persistent, prepare
from attncc.runtime.cuda.driver import Function, driver
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.package_store import PackageStore
from attncc.runtime.store.store import Configuration, MachineCode
from attncc.schedule.plan import KernelPlan
from tests.devices import Cuda
from tests.gpu.cases import SPECS

BUILT = Path(gettempdir()) / "attncc_sanitizer"
DTYPE, HEAD_DIM = "bf16", 128
DENSE = Problem(1, 4, 2, 200, 333, HEAD_DIM, HEAD_DIM)
LONG = replace(DENSE, kv_len=2100)  # beyond the lengths that may have kernels of their own
PACKED = Problem(
    3, 4, 2, 200, 333, HEAD_DIM, HEAD_DIM, packed=True, q_starts=(0, 23, 23, 200), kv_starts=(0, 150, 160, 333)
)
DECODE = Problem(1, 4, 2, 3, 1500, HEAD_DIM, HEAD_DIM)  # enough keys that they are split
ROWS_18, ROWS_34 = replace(DECODE, q_len=9), replace(DECODE, q_len=17)  # calls with kernels for many rows
TILES_2D = Problem(1, 4, 2, 256, 256, HEAD_DIM, HEAD_DIM)  # whole rows of each 2-D grid
MANY = Problem(2, 70, 70, 200, 333, HEAD_DIM, HEAD_DIM)  # more blocks than a GPU holds
MANY_SPEC = "causal"
PAIRED = Problem(2, 4, 2, 600, 422, HEAD_DIM, HEAD_DIM)  # even numbers of blocks, of queries and of keys
PAIRED_SPECS = (  # whose thread blocks load for each other, forward or backward
    "full", "causal", "causal_top_left", "decode", "flash_attention_1", "mla", "prefix_lm", "sink_attention",
)  # fmt: skip
WIDE_SPEC, WIDE_DIM = "causal", 256  # where backward kernels share the work in other ways
E4M3_SPECS, E4M3_DIMS = ("full", "causal"), (64, 128, 256)  # each with tiles of its own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--part", default="1/1", metavar="I/N")
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    specs = options.specs[number - 1 :: parts]
    targets = _targets()
    if options.compile:
        _compile(specs, targets)
    elif os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1":
        parser.error("set PYTORCH_NO_CUDA_MEMORY_CACHING=1")
    else:
        prepare.KEPT_BYTES = 0  # each workspace is an allocation of its own too
        _run(specs, targets)


def _targets() -> tuple[str, ...]:
    portable = Cuda(torch).target
    return (portable, "sm_90a") if portable == "sm_90" else (portable,)


# -------------------------------------------------------------------- before the tool starts


def _compile(specs: Sequence[str], targets: Sequence[str]) -> None:
    """Each spec in a process of its own, one of as many as there are cores: much of the work holds Python's lock."""
    start = time.perf_counter()
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        counts = list(pool.map(partial(_build, targets), specs))
    print(f"{sum(counts)} kernels of {len(specs)} specs in {time.perf_counter() - start:.1f} s, in {BUILT}")


def _build(targets: Sequence[str], spec: str) -> int:
    head_dims = [HEAD_DIM, WIDE_DIM] if spec == WIDE_SPEC else [HEAD_DIM]
    built = build(
        _file(spec),
        BUILT / spec,
        archs=targets,
        dtypes=[DTYPE],
        head_dims=head_dims,
        decode=True,
        backward=True,
        jobs=1,
    )
    if spec in E4M3_SPECS and "sm_90a" in targets:
        built += build(
            _file(spec), BUILT / f"{spec}_e4m3", archs=["sm_90a"], dtypes=["e4m3"], head_dims=E4M3_DIMS, jobs=1
        )
    return sum(len(item.resources) for item in built)


def _file(spec: str) -> Path:
    return folder("specs") / f"{spec}.attn"


# -------------------------------------------------------------------- under the tool


class Launches:
    """Which kernels were launched, by name, of all that stores gave out."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}  # by machine code
        self.launched: set[str] = set()
        self._loaded: dict[int, str] = {}  # by the handle of the function
        self._driver = driver()
        self._load, self._start = self._driver.load, self._driver.start
        self._driver.load, self._driver.start = self._loading, self._starting  # type: ignore[method-assign]

    def _loading(self, device: Any, image: bytes, *rest: Any) -> Function:
        function = self._load(device, image, *rest)
        self._loaded[function.handle] = self.names[image]
        return function

    def _starting(self, config: Any, function: Any, *rest: Any) -> int:
        self.launched.add(self._loaded[function.value])
        return self._start(config, function, *rest)


class OnePass(PackageStore):
    """A spec's kernels for one target: of forward calls those of one pass, which so runs calls of all sizes."""

    def __init__(self, built: str, target: str, pass_name: str, launches: Launches) -> None:
        (variant,) = (path.parent for path in (BUILT / built).glob("*/manifest.json"))
        super().__init__(variant)
        self._target, self._pass, self._launches = target, pass_name, launches

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(target for target in super().targets(configuration) if target == self._target)

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        return tuple(plan for plan in super().plans(configuration, target) if plan.pass_name == self._pass)

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        codes = super().machine_codes(plans)
        self._launches.names |= {code.image: name for name, code in codes.items()}
        return codes


def _run(specs: Sequence[str], targets: Sequence[str]) -> None:
    start, launches = time.perf_counter(), Launches()
    for spec in specs:
        for target in targets:
            for what, run in _runs(spec, target, launches):
                run()
                torch.cuda.synchronize()
                print(f"{time.perf_counter() - start:6.1f} s  {spec} {target} {what}", flush=True)
    _report(specs, launches.launched)


def _runs(spec: str, target: str, launches: Launches) -> Iterator[tuple[str, Callable[[], None]]]:
    def kernel(pass_name: str, built: str = spec) -> Kernel:
        return Kernel(OnePass(built, target, pass_name, launches))

    forward = kernel("forward")
    yield "dense", partial(_call, forward, DENSE, deterministic=False)
    yield "packed", partial(_call, forward, PACKED, deterministic=True)
    if spec == MANY_SPEC:
        yield "many blocks", partial(_call, forward, MANY, deterministic=False)
    if spec in PAIRED_SPECS:
        yield "pairs of blocks", partial(_call_paired, kernel("forward"))
    decode, of_one_block = kernel("decode"), kernel("decode")
    for problem in (DECODE, ROWS_18, ROWS_34):
        yield f"decode of {problem.q_len} queries", partial(_call_decode, decode, problem, one_block=False)
        yield "the same, one block a multiprocessor", partial(_call_decode, of_one_block, problem, one_block=True)
    if spec == WIDE_SPEC:
        yield "wide dense", partial(_call, forward, _wide(DENSE), deterministic=False)
        yield "wide packed", partial(_call, forward, _wide(PACKED), deterministic=True)
        for problem in (DECODE, ROWS_18, ROWS_34):
            yield f"wide decode of {problem.q_len} queries", partial(_call, decode, _wide(problem))
    tiles_2d = kernel("patches")
    if tiles_2d._store.plans(Configuration(DTYPE, HEAD_DIM, HEAD_DIM), target):
        yield "patches", partial(_call, tiles_2d, TILES_2D, deterministic=False)
    if spec in E4M3_SPECS and target == "sm_90a":
        e4m3 = kernel("forward", f"{spec}_e4m3")
        for head_dim, problem in product(E4M3_DIMS, (DENSE, LONG, PACKED)):
            sized = replace(problem, head_dim=head_dim, value_head_dim=head_dim)
            yield f"e4m3 {head_dim}", partial(_call, e4m3, sized, dtype="e4m3")
            yield f"e4m3 {head_dim}, V ahead", partial(_call_values_ahead, kernel("forward", f"{spec}_e4m3"), sized)


def _wide(problem: Problem) -> Problem:
    return replace(problem, head_dim=WIDE_DIM, value_head_dim=WIDE_DIM)


def _call(kernel: Kernel, problem: Problem, deterministic: bool | None = None, dtype: str = DTYPE) -> None:
    """A forward call, and if `deterministic` tells how, a backward one. Arrays are made on the CPU: the tool needn't
    look at kernels of torch."""
    rng, device, softmax = np.random.default_rng(1), Cuda(torch), kernel.variant.normalize == "softmax"
    q, k, v = (device.put(item) for item in synthetic.qkv(problem, dtype, rng))
    drawn = synthetic.inputs(kernel.variant, problem, rng)
    keywords: dict[str, Any] = {name: device.put(array) for name, array in drawn.items()}
    if kernel.variant.dropout is not None:
        keywords["seed"] = 5
    if problem.packed:
        keywords["cu_seqlens_q"] = device.put(np.asarray(problem.q_starts, np.int32))
        keywords["cu_seqlens_kv"] = device.put(np.asarray(problem.kv_starts, np.int32))
    result = kernel(q, k, v, return_lse=softmax, **keywords)
    if deterministic is not None:
        out, lse = result if softmax else (result, None)
        dout = device.put(synthetic.qkv(problem, DTYPE, rng)[0])
        dlse = device.put(rng.standard_normal(lse.shape, np.float32)) if lse is not None else None
        kernel.backward(dout, q, k, v, out, lse, dlse=dlse, deterministic=deterministic, **keywords)


def _call_decode(kernel: Kernel, problem: Problem, *, one_block: bool) -> None:
    """As calls run for which one thread block fills a multiprocessor, or others."""
    rule = Decode._takes_one_block
    Decode._takes_one_block = lambda *_: one_block  # type: ignore[method-assign]
    _call(kernel, problem)
    Decode._takes_one_block = rule  # type: ignore[method-assign]


def _call_paired(kernel: Kernel) -> None:
    """As large calls run. Of the other backward calls most have a kernel of their own."""
    rows, persistent.PAIRED_ROWS = persistent.PAIRED_ROWS, 0
    _call(kernel, PAIRED, deterministic=False)
    persistent.PAIRED_ROWS = rows


def _call_values_ahead(kernel: Kernel, problem: Problem) -> None:
    """As large calls run, for which a launch before transposes V."""
    share, transposition.SHARE = transposition.SHARE, float("inf")
    _call(kernel, problem, dtype="e4m3")
    transposition.SHARE = share


def _report(specs: Sequence[str], launched: set[str]) -> None:
    """How many of these specs' kernels were launched, and which weren't.

    Built with kernels that add up dQ in order, `backward_dq` is for calls that there are none of.
    """
    folders = [BUILT / name for spec in specs for name in (spec, f"{spec}_e4m3")]
    built = {path.stem for built_in in folders for path in built_in.glob("*/*.cubin")}
    print(f"launched {len(launched & built)} of {len(built)}")
    print(f"not launched: {', '.join(sorted(built - launched)) or 'none'}")


if __name__ == "__main__":
    main()
