"""The GPU of this machine, as `machine.Machine` has it: arrays are there, and calls are timed by events."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiler import CompiledStore, Specification
from ..diagnostics import AttnccError, Diagnostic
from ..runtime.cuda import nvrtc
from ..runtime.cuda.driver import Device, driver
from ..runtime.cuda.timing import CuPyStopwatch, Launch, Windows, copies_beyond_cache
from ..runtime.frameworks.transfer import ABSENT, to_gpu, to_host, usable_cupy
from ..runtime.kernel import Kernel
from ..runtime.store.store import Configuration
from ..schedule.plan import UNCLUSTERED, OwnKernel
from ..version import __version__, installed
from .candidates import TunedKernel
from .work import Work

_PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "torch", "numpy")

Array = Any  # of CuPy or torch


class Gpu:
    """One GPU. `cold`: each call takes other arrays, so many that none are still in the L2 cache.

    AttnccError A503 without a GPU, A517 without a CuPy that can use it; A525 for e4m3 without a torch that can: CuPy
    has no such arrays.
    """

    def __init__(self, work: Work, tuned: TunedKernel, *, cold: bool = False) -> None:
        self._work, self._tuned, self._build, self._cold = work, tuned, tuned.build, cold
        self._arrays: TorchArrays | CuPyArrays = TorchArrays() if work.dtype == ABSENT else CuPyArrays()

    # ------------------------------------------------------------ what it is

    @cached_property
    def device(self) -> Device:
        return driver().device(0)

    @property
    def name(self) -> str:
        return self.device.name

    def environment(self) -> Mapping[str, Any]:
        return self._environment

    @cached_property
    def _environment(self) -> dict[str, Any]:
        device = self.device
        return {
            "device": device.name,
            "capability": device.capability,
            "multiprocessors": device.multiprocessors,
            "driver, power limit, SM clock limit": _smi("driver_version,power.limit,clocks.max.sm"),
            "nvrtc": nvrtc.version(),
            "attncc": __version__,
            "packages": {name: version for name in _PACKAGES if (version := installed(name))},
        }

    # ------------------------------------------------------------ time

    def clock(self) -> float:
        return time.monotonic()

    def window(self, launch: Launch, repeats: int, before: int = 0) -> float:
        return self._stopwatch.window(launch, repeats, before)

    @cached_property
    def _stopwatch(self) -> Windows:
        return self._arrays.stopwatch()

    # ------------------------------------------------------------ calls

    def launch(self, specification: Specification) -> Launch:
        kernel = self._kernel(specification)
        turns = cycle([self._call(kernel, operands, self._work, self._inputs) for operands in self._copies])
        return lambda: next(turns)()  # noqa: PLW0108  (the next one at each launch)

    def results(self, specification: Specification, small: Work) -> Sequence[NDArray[Any]]:
        kernel, inputs = self._kernel(specification), self._moved(small)
        found: Any = self._call(kernel, self._operands(small, inputs), small, inputs)()
        arrays = (found.dq, found.dk, found.dv) if small.is_backward else (found,)
        return tuple(map(self._arrays.to_host, arrays))

    def _kernel(self, specification: Specification) -> Kernel:
        """Compiled, so that no call waits for that."""
        build, store = self._build, CompiledStore(specification, self._configuration, (self._build.target,))
        if self._work.is_backward:
            for own in (OwnKernel(), UNCLUSTERED):
                configuration = self._configuration._replace(**own._asdict())
                if build.target in store.targets(configuration):
                    store.machine_codes(store.backward_plans(configuration, build.target))
        else:
            store.compile_now()
        return Kernel(store)

    def _call(self, kernel: Kernel, operands: tuple[Array, ...], work: Work, inputs: Mapping[str, Array]) -> Launch:
        options = {**inputs, **work.options}
        if not work.is_backward:
            return partial(kernel, *operands, **options)
        return partial(kernel.backward, *operands, deterministic=work.deterministic, **options)

    @cached_property
    def _forward(self) -> Kernel:
        """What gives a backward pass its out and lse."""
        plain = self._tuned.specification.without_unasked_decode()
        return Kernel(CompiledStore(plain, self._configuration, (self._build.target,)))

    @property
    def _configuration(self) -> Configuration:
        return self._tuned.configuration

    # ------------------------------------------------------------ arrays

    @cached_property
    def _copies(self) -> list[tuple[Array, ...]]:
        """Operands of the work, which all launches share."""
        first = self._operands(self._work, self._inputs)
        if not self._cold:
            return [first]
        operand_bytes = sum(item.nbytes for item in first if item is not None)
        more = copies_beyond_cache(operand_bytes, self.device.l2_bytes) - 1
        return [first, *(self._operands(self._work, self._inputs) for _ in range(more))]

    def _operands(self, work: Work, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """q, k and v; of a backward pass dout, q, k, v, out and lse."""
        q, k, v = map(self._arrays.to_gpu, work.qkv)
        if not work.is_backward:
            return q, k, v
        softmax = work.variant.normalize == "softmax"
        made = self._forward(q, k, v, return_lse=softmax, **inputs, **work.options)
        out, lse = made if softmax else (made, None)
        return self._arrays.to_gpu(work.dout), q, k, v, out, lse

    @cached_property
    def _inputs(self) -> dict[str, Array]:
        return self._moved(self._work)

    def _moved(self, work: Work) -> dict[str, Array]:
        return {
            name: self._arrays.to_gpu(value) if isinstance(value, np.ndarray) else value
            for name, value in work.inputs.items()
        }


class CuPyArrays:
    """Arrays of CuPy, on its current stream."""

    def __init__(self) -> None:
        usable_cupy()  # before anything is compiled

    def to_gpu(self, array: NDArray[Any]) -> Array:
        return to_gpu(array)

    def to_host(self, array: Array) -> NDArray[Any]:
        return to_host(array)

    def stopwatch(self) -> Windows:
        return CuPyStopwatch()


class TorchArrays:
    """Tensors of torch, on its current stream."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError:
            raise _no_torch("torch isn't installed") from None
        if not torch.cuda.is_available():
            raise _no_torch(f"torch {torch.__version__} can't use the GPU here")
        self._torch: Any = torch

    def to_gpu(self, array: NDArray[Any]) -> Array:
        narrow = {"float8_e4m3fn": "uint8", "bfloat16": "int16"}.get(array.dtype.name)
        if narrow is None:
            return self._torch.from_numpy(np.array(array, order="C")).cuda()
        bits = np.array(array, order="C").view(narrow)
        return self._torch.from_numpy(bits).cuda().view(getattr(self._torch, array.dtype.name))

    def to_host(self, array: Array) -> NDArray[Any]:
        host: NDArray[Any] = array.float().cpu().numpy()
        return host

    def stopwatch(self) -> Windows:
        from ..bench.stopwatch import TorchStopwatch

        return TorchStopwatch()


def _no_torch(why: str) -> AttnccError:
    return AttnccError(
        Diagnostic(
            "A525",
            "schedules of e4m3 kernels can't be timed here",
            notes=(f"CuPy has no such arrays, and {why}",),
            help="install a torch for this GPU's driver, or tune another --dtype",
        )
    )


def _smi(fields: str) -> str | None:
    """What nvidia-smi says of the first GPU; None where it isn't there or fails."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
