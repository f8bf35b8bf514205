"""Writes new keys and values into a cache, wherever the arrays are: `attncc.append`, and calls that bring `k_new`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, cast

from ...executor.append import append as append_on_host
from ...problem.appended import Append, bind_append, know_rows, split_rotary
from ...problem.arrays import array_facts
from ...problem.bind import check_layout
from ...problem.overlap import elements_meet
from ...problem.refusal import EXCHANGED, not_an_array, refused, type_text
from ..cuda.driver import Driver, Function, driver
from ..frameworks.arrays import framework_of, is_array, is_foreign, is_traced, no_stream_here, stream_handle
from ..frameworks.framework import Array, DeviceFramework, Framework, HostFramework
from ..store.store import MachineCode
from .append import AppendLauncher, shares_memory

_NEEDED = 5  # of the arrays of a call, the first


# Of a dtype, that of angles, a compute capability such as 90, and the type of a cache of 8 bits.
FindCode = Callable[[str, str, int, str | None], MachineCode]


class _Kernels:
    """The kernels, each loaded once on a GPU. `find` raises AttnccError A505 where there is none for it."""

    def __init__(self, find: FindCode) -> None:
        self._find, self._lock = find, Lock()
        self._loaded: dict[tuple[str, str, int, str | None], Function] = {}

    def __call__(self, dtype: str, angles: str, ordinal: int, kv_dtype: str | None) -> tuple[Driver, Function]:
        gpu = driver()
        with self._lock:
            key = dtype, angles, ordinal, kv_dtype
            if key not in self._loaded:
                device = gpu.device(ordinal)
                code = self._find(dtype, angles, device.capability, kv_dtype)
                gpu.check_version(code.nvrtc)
                self._loaded[key] = gpu.load(device, code.image, code.entry, code.threads, code.shared_bytes)
            return gpu, self._loaded[key]


class Appender:
    """Runs such calls, on a GPU with the machine code that `find` gives. Threads may share it."""

    def __init__(self, find: FindCode) -> None:
        self._load = _Kernels(find)
        self._frameworks: dict[tuple[type, ...], Framework] = {}  # by the types of a call's arrays
        self._launchers: dict[Framework, AppendLauncher] = {}

    def run(
        self, call: Append, rotary: Any, *, interleaved: bool = False, layout: str = "bhsd", stream: Any = None
    ) -> Array | None:
        """The rotated q, or None without q. `call` has no cos and sin yet: `rotary` is the pair, or None."""
        cos, sin = split_rotary(rotary, interleaved, call.q)
        given = call._replace(cos=cos, sin=sin)
        if not is_traced():
            return self._run(given, layout, interleaved, stream)
        import torch

        # A break in the graph: it writes in place.
        return torch.compiler.disable(self._run)(given, layout, interleaved, stream)

    def _run(self, call: Append, layout: str, interleaved: bool, stream: Any) -> Array | None:
        check_layout(layout)
        framework = self._framework(call)
        ordinal = framework.ordinal(call.k_cache)
        if ordinal < 0:
            if stream is not None:
                raise no_stream_here(stream)
            return _run_on_host(cast(HostFramework, framework), call, layout, interleaved)
        device = cast(DeviceFramework, framework)
        launcher = self._launchers.get(framework)
        if launcher is None:
            launcher = self._launchers.setdefault(framework, AppendLauncher(device, self._load))
        if stream is None:
            return launcher.run(ordinal, call, layout, interleaved=interleaved)
        with device.on_stream(stream_handle(stream, ordinal), ordinal):
            return launcher.run(ordinal, call, layout, interleaved=interleaved)

    def _framework(self, call: Append) -> Framework:
        """That of all arrays. AttnccError A622 for what is none, A654 for several, A655 where they can't be written."""
        kinds = tuple(map(type, call))
        framework = self._frameworks.get(kinds)
        if framework is None:
            framework = self._frameworks[kinds] = _find_framework(call)
        return framework


def _find_framework(call: Append) -> Framework:
    if is_foreign(call.k_cache):
        raise refused(
            "A655",
            "`k_cache` can't be written",
            expected="an array of NumPy, CuPy or torch",
            came=type_text(type(call.k_cache)),
        )
    framework = framework_of(call.k_cache, "k_cache")
    for number, (name, array) in enumerate(zip(call._fields, call, strict=True)):
        if array is None and number >= _NEEDED:
            continue
        if not is_array(array):
            raise not_an_array(name, type(array), "an array, as k_cache is")
        if is_foreign(array) or framework_of(array, name) is not framework:
            what, came = f"`{name}` is an array of another framework than `k_cache`", type_text(type(array))
            raise refused("A654", what, expected="arrays all of one framework", came=came, help=EXCHANGED)
    return framework


def _run_on_host(framework: HostFramework, call: Append, layout: str, interleaved: bool) -> Array | None:
    for name, array in call.given():
        facts = framework.facts(array)
        if facts.device != "cpu":
            what = f"`{name}` is on another device than `k_cache`"
            help_ = "all arrays of a call live on one device"
            raise refused("A605", what, expected="cpu", came=facts.device, help=help_)
    arrays = {name: framework.to_numpy(array) for name, array in call.given()}
    problem = bind_append(Append(**{name: array_facts(name, array) for name, array in arrays.items()}), layout)
    for cache in ("k_cache", "v_cache"):
        if not arrays[cache].flags.writeable:
            what, came = f"`{cache}` is read-only", "a read-only array"
            raise refused("A617", what, expected="an array that can be written", came=came)
        for name, array in arrays.items():
            if name != cache and elements_meet(arrays[cache], array):
                raise shares_memory(cache, name)
    out = append_on_host(know_rows(problem, arrays), arrays, interleaved=interleaved)
    framework.written(call.k_cache)
    framework.written(call.v_cache)
    return None if out is None else framework.from_numpy(out)
