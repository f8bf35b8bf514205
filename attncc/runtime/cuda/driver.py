"""The CUDA driver through ctypes: devices, loading of cubins, launches. Needs no CuPy, no torch, no CUDA runtime.

Work runs in each device's primary context, the one that CuPy and torch use, so their pointers and streams are valid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from ...diagnostics import AttnccError, Diagnostic

# The oldest driver for each major version of CUDA, as NVIDIA names its releases.
OLDEST_DRIVERS = {12: "525", 13: "580"}
OLDEST_CUDA = (12, 0)

_MULTIPROCESSORS, _L2_BYTES, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 38, 75, 76  # CUdevice_attribute
_MAX_DYNAMIC_SHARED_BYTES = 8  # CUfunction_attribute
MAX_GRID = 2**31 - 1  # blocks of a launch

TENSOR_MAP_BYTES = 128  # of a CUtensorMap, and the alignment that it asks for
_TENSOR_MAP_ALIGNMENT = 64
# Of cuTensorMapEncodeTiled: boxes aren't interleaved, are swizzled in 128 bytes, come in lines of 128 bytes through the
# L2 cache, and hold zeros for what lies outside the tensor.
_MAP_MODES = (0, 3, 2, 0)

# Handles of default streams, which name one in each context. The legacy one has two, and is never recorded in a graph.
LEGACY_STREAM = (0, 1)
THREADS_STREAM = 2  # one for each thread
_DEFAULT_STREAMS = (*LEGACY_STREAM, THREADS_STREAM)
_WRONG_CONTEXT = (201, 400)  # CUresult: invalid context, invalid handle

_Pointer = ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `capability` is 80, 86, 90, 100, ... and `context` the handle of its primary context."""

    ordinal: int
    name: str
    capability: int
    multiprocessors: int
    l2_bytes: int
    context: int


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel, loaded on one device. `threads` and `shared_bytes` are those of each of its blocks."""

    handle: int
    context: int
    threads: int
    shared_bytes: int
    resident_blocks: int  # that one multiprocessor holds at once


class TensorMap(NamedTuple):
    """A CUtensorMap in host memory, as launches pass it. It is valid as long as this object lives."""

    address: int
    memory: ctypes.Array[ctypes.c_char]


@dataclass(frozen=True, slots=True)
class TensorBox:
    """A tensor in elements as TMA sees it, its base apart: axes from the fastest, whose stride is 1, to the slowest.

    `dtype` is a CUtensorMapDataType, `strides` bytes of all axes but the first, `box` what one load brings.
    """

    dtype: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


class _StreamQuestion:
    """What stream it is, asked by one thread at a time. Made ahead: that takes as long as to ask."""

    def __init__(self, api: ctypes.CDLL) -> None:
        self._stream, self._recorded, self._number = _Pointer(), ctypes.c_int(), ctypes.c_uint64()
        self._is_capturing = partial(api.cuStreamIsCapturing, self._stream, ctypes.byref(self._recorded))
        self._get_id = partial(api.cuStreamGetId, self._stream, ctypes.byref(self._number))

    def ask(self, stream: int) -> int | None:
        """See `Driver.stream_id`."""
        self._stream.value = stream
        if self._is_capturing() or self._recorded.value or self._get_id():
            return None
        return self._number.value


@cache
def driver() -> Driver:
    """The driver of this machine. AttnccError A503 if it has none, or no GPU."""
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        raise AttnccError(_no_gpu("no NVIDIA driver is installed", str(error))) from None


class Driver:
    """One loaded libcuda. Methods may be called from any thread."""

    def __init__(self, api: ctypes.CDLL) -> None:
        self._api = api
        result = api.cuInit(0)
        if result:
            raise AttnccError(_no_gpu("the NVIDIA driver finds no GPU", self._describe(result)))
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.cuda_version = (version.value // 1000, version.value % 1000 // 10)
        if self.cuda_version < OLDEST_CUDA:  # has no launches with attributes, no ids of streams
            raise AttnccError(self._too_old("attncc", OLDEST_CUDA[0]))
        self._devices: dict[int, Device] = {}
        self.start: Callable[..., int] = api.cuLaunchKernelEx
        self._current: Callable[..., int] = api.cuCtxGetCurrent
        self._zero: Callable[..., int] = api.cuMemsetD32Async
        api.cuMemsetD32Async.argtypes = [ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, _Pointer]
        self._questions: list[_StreamQuestion] = []

    def capabilities(self) -> set[int]:
        """The compute capabilities of this machine's GPUs. Makes no context, which would take memory on each."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return {self._capability(self._handle(ordinal)) for ordinal in range(count.value)}

    def device(self, ordinal: int) -> Device:
        """The GPU with this number, as the frameworks count them, with its primary context."""
        found = self._devices.get(ordinal)
        if found is None:
            found = self._devices[ordinal] = self._open(ordinal)
        return found

    def check_version(self, nvrtc: str) -> None:
        """AttnccError A504 if the driver is too old for cubins of this NVRTC version."""
        major = int(nvrtc.partition(".")[0])
        if major <= self.cuda_version[0]:
            return
        raise AttnccError(self._too_old(f"a kernel compiled by NVRTC {nvrtc}", major))

    def _too_old(self, what: str, major: int) -> Diagnostic:
        oldest, own = OLDEST_DRIVERS.get(major, f"that of CUDA {major}"), self.cuda_version[0]
        other = f", or install 'attncc[cuda{own}]' and build again" if own in OLDEST_DRIVERS else ""
        return Diagnostic(
            "A504",
            f"the driver is too old: {what} needs driver {oldest} or newer",
            notes=(f"the installed driver supports CUDA {own}.{self.cuda_version[1]}",),
            help=f"update the driver to {oldest}{other}",
        )

    def load(self, device: Device, image: bytes, entry: str, threads: int, shared_bytes: int) -> Function:
        """Loads a cubin and finds its kernel. `shared_bytes` is the dynamic shared memory of a block."""
        module, function = _Pointer(), _Pointer()
        with self._entered(device.context):
            self._call("cuModuleLoadData", ctypes.byref(module), image)
            self._call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
            if shared_bytes:
                self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
            resident = self._resident_blocks(function, threads, shared_bytes)
        assert function.value is not None
        return Function(function.value, device.context, threads, shared_bytes, resident)

    def _resident_blocks(self, function: ctypes.c_void_p, threads: int, shared_bytes: int) -> int:
        count = ctypes.c_int()
        dynamic = ctypes.c_size_t(shared_bytes)
        self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), function, threads, dynamic)
        return count.value

    def again(self, result: int, context: int, function: Callable[..., int], *arguments: object) -> None:
        """Calls a function once more, in its context, if its result says that another was current, or none.

        A kernel that another GPU's default stream is given is refused, so calls look for the right one only then; other
        streams know theirs. AttnccError A510 for other results than 0.
        """
        if result in _WRONG_CONTEXT:
            with self._entered(context):
                result = function(*arguments)
        if result:
            raise AttnccError(self._failure(function.__name__, result, ""))

    def tensor_maps(self, context: int, form: TensorBox) -> Callable[[int], TensorMap]:
        """What makes the map of a tensor of this form from where it starts. Models have theirs in many places, so all
        that is the same lies ready.

        It raises AttnccError A510 if the driver refuses the map.
        """
        rank, encode = len(form.sizes), self._api.cuTensorMapEncodeTiled
        sizes, strides = (ctypes.c_uint64 * rank)(*form.sizes), (ctypes.c_uint64 * (rank - 1))(*form.strides)
        box, steps = (ctypes.c_uint32 * rank)(*form.box), (ctypes.c_uint32 * rank)(*[1] * rank)
        dtype, rest = form.dtype, (sizes, strides, box, steps, *_MAP_MODES)

        def made(base: int) -> TensorMap:
            memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
            address = -(-ctypes.addressof(memory) // _TENSOR_MAP_ALIGNMENT) * _TENSOR_MAP_ALIGNMENT
            arguments = _Pointer(address), dtype, rank, _Pointer(base), *rest
            result = encode(*arguments)
            if result:
                self.again(result, context, encode, *arguments)
            return TensorMap(address, memory)

        return made

    def zero(self, context: int, address: int, stream: int, words: int = 1) -> None:
        """Sets words of 4 bytes of device memory to 0, in the order of the stream.

        A launch names its device by its kernel, this by its stream alone: the default streams, which each context has,
        are those of the current one.
        """
        if stream in _DEFAULT_STREAMS and not self._is_current(context):
            with self._entered(context):
                self._call("cuMemsetD32Async", address, 0, words, stream)
            return
        result = self._zero(address, 0, words, stream)
        if result:
            self.again(result, context, self._zero, address, 0, words, stream)

    def allocate(self, device: Device, size: int) -> int:
        """The address of that many bytes of device memory, which stay until the process ends."""
        address = ctypes.c_uint64()
        with self._entered(device.context):
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def zeros(self, device: Device, words: int) -> int:
        """The address of words of 4 bytes that are 0, on every stream from now on, until the process ends."""
        address = self.allocate(device, 4 * words)
        with self._entered(device.context):
            self.zero(device.context, address, 0, words)
            self._call("cuCtxSynchronize")
        return address

    @contextmanager
    def profiled(self, device: Device) -> Iterator[None]:
        """What is launched meanwhile, a profiler sees that waits to be told."""
        with self._entered(device.context):
            self._call("cuCtxSynchronize")
            self._call("cuProfilerStart")
            yield
            self._call("cuCtxSynchronize")
            self._call("cuProfilerStop")

    def stream_id(self, stream: int) -> int | None:
        """A number that no other stream of the process ever has; None while work on the stream is recorded in a graph.

        Not of default streams.
        """
        try:
            question = self._questions.pop()
        except IndexError:
            question = _StreamQuestion(self._api)
        found = question.ask(stream)
        self._questions.append(question)
        return found

    def _open(self, ordinal: int) -> Device:
        handle, context, name = self._handle(ordinal), _Pointer(), ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), handle)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        multiprocessors, l2_bytes = (self._attribute(handle, attribute) for attribute in (_MULTIPROCESSORS, _L2_BYTES))
        capability = self._capability(handle)
        return Device(ordinal, name.value.decode(), capability, multiprocessors, l2_bytes, context.value or 0)

    def _handle(self, ordinal: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(handle), ordinal)
        return handle

    def _capability(self, device: ctypes.c_int) -> int:
        return 10 * self._attribute(device, _CAPABILITY_MAJOR) + self._attribute(device, _CAPABILITY_MINOR)

    def _attribute(self, device: ctypes.c_int, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def _is_current(self, context: int) -> bool:
        current = _Pointer()
        return not self._current(ctypes.byref(current)) and current.value == context

    @contextmanager
    def _entered(self, context: int) -> Iterator[None]:
        """Makes a context this thread's current one for a while, as another device's may be, or none."""
        current = _Pointer()
        self._call("cuCtxGetCurrent", ctypes.byref(current))
        if current.value == context:
            yield
            return
        self._call("cuCtxPushCurrent_v2", _Pointer(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(_Pointer()))

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._api, function)(*arguments)
        if result:
            raise AttnccError(self._failure(function, result, ""))

    def _failure(self, function: str, result: int, detail: str) -> Diagnostic:
        return Diagnostic(
            "A510",
            f"{function} failed: {self._describe(result)}",
            notes=(detail,) if detail else (),
            help="if an earlier kernel is the cause, CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer finds which",
        )

    def _describe(self, result: int) -> str:
        text = ctypes.c_char_p()
        self._api.cuGetErrorString(result, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} (CUDA error {result})"


def _no_gpu(what: str, detail: str) -> Diagnostic:
    return Diagnostic(
        "A503",
        f"a kernel can't be launched here: {what}",
        notes=(detail,),
        help="NumPy arrays and CPU tensors run without a GPU",
    )
