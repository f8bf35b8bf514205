"""Copies into other ranks' memory, and flags that tell of them: no thread block takes part.

What a rank queues is in two orders: that of its calls, and that of its copies. On a GPU these are the current stream
and one of the engine's own: `cuMemcpy2DAsync` runs on copy engines, so an attention kernel that holds all
multiprocessors delays no copy, and streams write and wait for flags (`cuStreamWriteValue32`, `cuStreamWaitValue32`).
On the CPU all of it happens at once, in memory that processes share.
"""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from ..problem.refusal import refused
from ..runtime.cuda.driver import driver
from .moves import Move

Tensor = Any
Prepared = Any  # moves whose targets are known; their source may lie elsewhere each time
_WORD = 2**32
_UNIFIED = 4  # CUmemorytype: any address
_NO_TIME = 2  # CU_EVENT_DISABLE_TIMING
_ORDERED = "x86_64", "amd64"  # processors whose writes are seen in their order
_ADDRESS, _COUNT, _SIZE = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_size_t


class Memory(NamedTuple):
    """Bytes that all ranks of a group can write to: own ones, and each rank's address, as this process has it."""

    own: Tensor
    addresses: list[int]
    mapped: Any  # while it lives


class Engine(Protocol):
    """Flags are words of 32 bits that only grow, modulo 2**32."""

    def allocate(self, size: int, group: Any) -> Memory:
        """Set to 0. All ranks of the group call this together."""
        ...

    def is_recorded(self) -> bool:
        """Whether a graph records the current order."""
        ...

    def prepared(self, found: Sequence[Move]) -> Prepared: ...

    def follow(self) -> None:
        """Copies from here on come after what the current order has so far."""
        ...

    def join(self) -> None:
        """The current order goes on after the copies so far."""
        ...

    def copy(self, found: Prepared, source: int) -> None:
        """From this address on, in the order of copies."""
        ...

    def tell(self, flag: int, value: int, *, copies: bool) -> None:
        """Writes a flag after all that one of the orders has so far."""
        ...

    def wait(self, flag: int, value: int, *, copies: bool) -> None:
        """One of the orders goes on when a flag has at least this value."""
        ...


def engine_of(device: Any, group: Any) -> Engine:
    return OnDevice(device) if torch.device(device).type == "cuda" else OnHost(_timeout(group))


def meet(group: Any) -> None:
    """All ranks have come here."""
    dist.all_gather_object([None] * dist.get_world_size(group), None, group)


# -------------------------------------------------------------------- GPUs


def _side(name: str) -> list[tuple[str, Any]]:
    before = [(f"{name}_x", _SIZE), (f"{name}_y", _SIZE), (f"{name}_type", ctypes.c_int)]
    pointers = [(f"{name}_host", ctypes.c_void_p), (name, _ADDRESS), (f"{name}_array", ctypes.c_void_p)]
    return [*before, *pointers, (f"{name}_pitch", _SIZE)]


class _Copy(ctypes.Structure):
    """CUDA_MEMCPY2D"""

    _fields_ = (
        *_side("source"),
        *_side("target"),
        *(("width", _SIZE), ("height", _SIZE)),
    )

    @classmethod
    def of(cls, move: Move) -> _Copy:
        return cls(
            source_type=_UNIFIED,
            source_pitch=move.source_pitch,
            target_type=_UNIFIED,
            target=move.target,
            target_pitch=move.target_pitch,
            width=move.width,
            height=move.height,
        )


class OnDevice:
    """The copy engines of one GPU. Memory is torch's symmetric memory; multicast is never asked for."""

    def __init__(self, device: Any) -> None:
        self._device = torch.device(device)
        self._context, self._driver = driver().device(self._device.index).context, driver()
        api = ctypes.CDLL("libcuda.so.1")
        self._copy: Callable[..., int] = api.cuMemcpy2DAsync_v2
        self._write: Callable[..., int] = api.cuStreamWriteValue32_v2
        self._wait: Callable[..., int] = api.cuStreamWaitValue32_v2
        api.cuMemcpy2DAsync_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        for function in (api.cuStreamWriteValue32_v2, api.cuStreamWaitValue32_v2):
            function.argtypes = [ctypes.c_void_p, _ADDRESS, _COUNT, ctypes.c_uint]
        # Isn't of torch's documented interface: where it is missing, what is takes longer.
        self._current: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream", lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream
        )
        self._stream = torch.cuda.Stream(self._device)
        self._raw = self._stream.cuda_stream
        # torch's own would ask for the current stream as an object each time.
        self._record: Callable[..., int] = api.cuEventRecord
        self._wait_event: Callable[..., int] = api.cuStreamWaitEvent
        api.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        api.cuStreamWaitEvent.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        self._before, self._after = (self._event(api.cuEventCreate) for _ in range(2))

    def allocate(self, size: int, group: Any) -> Memory:
        from torch.distributed import _symmetric_memory as symmetric

        own = symmetric.empty(size, dtype=torch.uint8, device=self._device)
        handle = symmetric.rendezvous(own, group or dist.group.WORLD)
        own.zero_()
        torch.cuda.synchronize(self._device)
        meet(group)
        inside = own.data_ptr() - handle.buffer_ptrs[handle.rank]
        return Memory(own, [address + inside for address in handle.buffer_ptrs], handle)

    def is_recorded(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    def prepared(self, found: Sequence[Move]) -> Prepared:
        copies = [(_Copy.of(move), move.source) for move in found]
        return [(copy, ctypes.addressof(copy), offset) for copy, offset in copies]

    def _event(self, create: Callable[..., int]) -> int:
        """One for as long as the process lives."""
        made = ctypes.c_void_p()
        self._done(create, ctypes.byref(made), _NO_TIME)
        return made.value or 0

    def follow(self) -> None:
        self._done(self._record, self._before, self._order(copies=False))
        self._done(self._wait_event, self._raw, self._before, 0)

    def join(self) -> None:
        self._done(self._record, self._after, self._raw)
        self._done(self._wait_event, self._order(copies=False), self._after, 0)

    def copy(self, found: Prepared, source: int) -> None:
        for copy, address, offset in found:
            copy.source = source + offset
            self._done(self._copy, address, self._raw)

    def tell(self, flag: int, value: int, *, copies: bool) -> None:
        self._done(self._write, self._order(copies), flag, value % _WORD, 0)

    def wait(self, flag: int, value: int, *, copies: bool) -> None:
        self._done(self._wait, self._order(copies), flag, value % _WORD, 0)  # 0: until it is as large, or larger

    def _order(self, copies: bool) -> int:
        return self._raw if copies else self._current(self._device.index)

    def _done(self, function: Callable[..., int], *arguments: Any) -> None:
        result = function(*arguments)
        if result:
            self._driver.again(result, self._context, function, *arguments)


def why_no_peers(device: Any, group: Any) -> str:
    """Why this rank can't copy into the memory of the others of the group; empty if it can."""
    if torch.device(device).type != "cuda":
        kept = platform.machine().lower() in _ORDERED
        return "" if kept else f"{platform.machine()}, where a flag may be seen before the rows that it tells of"
    try:
        from torch.distributed import _symmetric_memory as symmetric
    except ImportError as error:
        return f"torch has no symmetric memory: {error}"
    if not hasattr(symmetric, "rendezvous"):
        return "this torch has no symmetric memory"
    here, count = torch.device(device).index or 0, torch.cuda.device_count()
    apart = [other for other in range(count) if other != here and not torch.cuda.can_device_access_peer(here, other)]
    return f"GPU {here} can't reach the memory of GPU {apart[0]}" if apart else ""


# -------------------------------------------------------------------- CPU


class OnHost:
    """Files in memory that all processes of a host map. Waits for flags take `timeout` seconds at most."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def allocate(self, size: int, group: Any) -> Memory:
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.NamedTemporaryFile(dir=folder, prefix="attncc-") as file:
            answers = [("", "")] * dist.get_world_size(group)
            dist.all_gather_object(answers, (file.name, _reserved(file.fileno(), size)), group)
            names = [name for name, _ in answers]
            why = [f"rank {rank}: {why}" for rank, (_, why) in enumerate(answers) if why]
            if why:
                expected = f"{size} bytes beside {file.name}"
                raise refused("A726", "ranks have no memory to share", expected=expected, came=why[0])
            mapped = [torch.from_file(name, shared=True, size=size, dtype=torch.uint8) for name in names]
            meet(group)
        return Memory(mapped[dist.get_rank(group)], [x.data_ptr() for x in mapped], mapped)

    def is_recorded(self) -> bool:
        return False

    def prepared(self, found: Sequence[Move]) -> Prepared:
        return found

    def follow(self) -> None: ...

    def join(self) -> None: ...

    def copy(self, found: Prepared, source: int) -> None:
        for move in found:
            for number in range(move.height):
                from_ = source + move.source + number * move.source_pitch
                ctypes.memmove(move.target + number * move.target_pitch, from_, move.width)

    def tell(self, flag: int, value: int, *, copies: bool) -> None:
        _COUNT.from_address(flag).value = value % _WORD

    def wait(self, flag: int, value: int, *, copies: bool) -> None:
        word, until = _COUNT.from_address(flag), time.monotonic() + self._timeout
        while (word.value - value) % _WORD >= _WORD // 2:
            if time.monotonic() > until:
                raise refused("A726", "another rank doesn't answer", expected="rows of K and V", came="none in time")
            time.sleep(1e-5)


def _reserved(file: int, size: int) -> str:
    """Makes a file so long. Why it can't be; empty if it can. A file that is only said to be long ends the process when
    it is written to, and the memory behind it is full."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, max(size, 1))
        os.truncate(file, size)
    except OSError as error:
        return str(error)
    return ""


def _timeout(group: Any) -> float:
    """The group's, in seconds. It isn't of torch's documented interface."""
    try:
        found = (group or dist.group.WORLD)._get_backend(torch.device("cpu")).options._timeout
    except (AttributeError, RuntimeError):
        found = dist.distributed_c10d.default_pg_timeout
    return float(found.total_seconds() if isinstance(found, timedelta) else timedelta(minutes=30).total_seconds())
