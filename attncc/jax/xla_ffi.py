"""XLA's interface for foreign functions by ctypes: what XLA calls is Python, and no C compiler is needed.

The structures are those of xla/ffi/api/c_api.h, version 0.1; DeviceOrdinal_Get came with a later 0.x. XLA appends
fields and functions, and checks versions when a handler is registered.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_Pointer, _Size, _Int, _Int64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64

_VERSION = (0, 1)
_METADATA = 1  # XLA_FFI_Extension_Metadata
_COMMAND_BUFFER_COMPATIBLE = 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE
_INVALID_ARGUMENT = 3  # XLA_FFI_Error_Code
INITIALIZE = 2  # XLA_FFI_ExecutionStage: before a program runs, and before it is recorded in a CUDA graph
EXECUTE = 3

# Members of XLA_FFI_Api, counted in functions from Error_Create.
_ERROR_CREATE, _STREAM_GET, _DEVICE_ORDINAL_GET = 0, 4, 17


class _Version(ctypes.Structure):
    _fields_ = (("size", _Size), ("extension", _Pointer), ("major", _Int), ("minor", _Int))


class _Metadata(ctypes.Structure):
    _fields_ = (("size", _Size), ("version", _Version), ("traits", ctypes.c_uint32))


class _Extension(ctypes.Structure):
    """XLA_FFI_Metadata_Extension."""

    _fields_ = (("size", _Size), ("type", _Int), ("next", _Pointer), ("metadata", ctypes.POINTER(_Metadata)))


class _Api(ctypes.Structure):
    _fields_ = (
        ("size", _Size),
        ("extension", _Pointer),
        ("version", _Version),
        ("internal", _Pointer),
        ("functions", _Pointer * (_DEVICE_ORDINAL_GET + 1)),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("size", _Size),
        ("extension", _Pointer),
        ("dtype", _Int),
        ("data", _Pointer),
        ("rank", _Int64),
        ("dims", ctypes.POINTER(_Int64)),
    )


class _Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = (
        ("size", _Size),
        ("extension", _Pointer),
        ("count", _Int64),
        ("types", _Pointer),
        ("items", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Scalar(ctypes.Structure):
    _fields_ = (("dtype", _Int), ("value", ctypes.POINTER(_Int64)))


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", _Size),
        ("extension", _Pointer),
        ("count", _Int64),
        ("types", _Pointer),
        ("names", _Pointer),
        ("items", ctypes.POINTER(ctypes.POINTER(_Scalar))),
    )


class _CallFrame(ctypes.Structure):
    _fields_ = (
        ("size", _Size),
        ("extension", ctypes.POINTER(_Extension)),
        ("api", ctypes.POINTER(_Api)),
        ("context", _Pointer),
        ("stage", _Int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    )


class _ErrorCreate(ctypes.Structure):
    _fields_ = (("size", _Size), ("extension", _Pointer), ("message", ctypes.c_char_p), ("code", _Int))


class _Get(ctypes.Structure):
    """XLA_FFI_Stream_Get_Args, and XLA_FFI_DeviceOrdinal_Get_Args, whose answer takes the first half of `found`."""

    _fields_ = (("size", _Size), ("extension", _Pointer), ("context", _Pointer), ("found", ctypes.c_uint64))


_Function = ctypes.CFUNCTYPE(_Pointer, _Pointer)
_Handler = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_CallFrame))


class Frame:
    """One call by XLA."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @property
    def stage(self) -> int:
        return int(self._frame.stage)

    @property
    def call(self) -> int:
        """The only attribute, an int64."""
        return int(self._frame.attributes.items[0].contents.value[0])

    @property
    def arguments(self) -> list[int]:
        """The addresses of the operands."""
        return _addresses(self._frame.arguments)

    @property
    def results(self) -> list[int]:
        """The addresses of the results."""
        return _addresses(self._frame.results)

    @property
    def stream(self) -> int:
        """The handle of the CUDA stream to queue work on."""
        return self._get(_STREAM_GET)

    @property
    def ordinal(self) -> int:
        """The number of the GPU, as CUDA counts them in this process."""
        return self._get(_DEVICE_ORDINAL_GET) & 0xFFFFFFFF

    def _get(self, number: int) -> int:
        asked = _Get(ctypes.sizeof(_Get), None, self._frame.context, 0)
        error = _function(self._frame, number)(ctypes.addressof(asked))
        if error:
            raise RuntimeError(f"XLA's function {number} for handlers failed")
        return int(asked.found)


def handler(work: Callable[[Frame], None]) -> Any:
    """What XLA can call: it runs `work`, whose exceptions become XLA's errors. It must live as long as the process.

    It says that its calls may be recorded in CUDA graphs (command buffers): equal calls launch equal kernels.
    """

    def entry(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if frame.extension and frame.extension.contents.type == _METADATA:
                _describe(frame.extension.contents.metadata.contents)
            else:
                work(Frame(frame))
        except BaseException as error:  # nothing may unwind through XLA
            return _error(frame, f"attncc: {error}")
        return None

    return _Handler(entry)


def _addresses(buffers: Any) -> list[int]:
    items = buffers.items
    return [items[number].contents.data or 0 for number in range(buffers.count)]


def _describe(metadata: Any) -> None:
    metadata.version.major, metadata.version.minor = _VERSION
    metadata.traits = _COMMAND_BUFFER_COMPATIBLE


def _error(frame: Any, message: str) -> int | None:
    text = _ErrorCreate(ctypes.sizeof(_ErrorCreate), None, message.encode(), _INVALID_ARGUMENT)
    made: int | None = _function(frame, _ERROR_CREATE)(ctypes.addressof(text))
    return made


def _function(frame: Any, number: int) -> Any:
    return _Function(frame.api.contents.functions[number])
