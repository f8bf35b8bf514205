"""`attncc.append`: the step before attention over a cache, in one launch."""

from __future__ import annotations

from threading import Lock
from typing import Any, cast

from .codegen.render import render_helper
from .diagnostics import AttnccError, Diagnostic
from .executor.append import append as append_on_host
from .kernels.helpers.append import kernel
from .machine_code import compiled
from .problem.appended import Append, bind_append, know_rows, split_rotary
from .problem.arrays import array_facts
from .problem.bind import check_layout
from .problem.overlap import elements_meet
from .problem.refusal import not_an_array, refused, type_text
from .runtime.call.append import AppendLauncher, shares_memory
from .runtime.cuda.device import best_target
from .runtime.cuda.driver import Driver, Function, driver
from .runtime.frameworks.arrays import framework_of, is_array, is_foreign, is_traced
from .runtime.frameworks.framework import DeviceFramework, Framework, HostFramework
from .schedule.target import TARGETS

Array = Any  # of NumPy, CuPy or torch

_NEEDED = 5  # of the arrays of a call, the first

_lock = Lock()
_functions: dict[tuple[str, str, int], Function] = {}
_frameworks: dict[tuple[type, ...], Framework] = {}  # by the types of a call's arrays
_launchers: dict[Framework, AppendLauncher] = {}


def append(
    k_cache: Array,
    v_cache: Array,
    k_new: Array,
    v_new: Array,
    kv_lens: Array,
    *,
    block_table: Array | None = None,
    cu_seqlens_q: Array | None = None,
    rotary: tuple[Array, Array] | None = None,
    interleaved: bool = False,
    q: Array | None = None,
    layout: str = "bhsd",
) -> Array | None:
    """Writes new keys and values into a cache, in place; keys, and q if given, are rotated first. Gives the rotated q.

    `kv_lens`, int32 [batch], are the lengths after the call, as the kernel takes them: with n new rows, those of
    sequence b stand at kv_lens[b] - n, …, kv_lens[b] - 1. Rows before position 0 are padding: nothing is written for
    them, and in the result they are 0. k_new is [batch, kv_heads, n, head dim], v_new and q alike; with `cu_seqlens_q`,
    int32 [batch + 1], rows of all sequences are packed, [heads, all rows, head dim]. Layout "bshd" exchanges heads and
    rows. The caches are [batch, kv_heads, room, head dim], with `block_table` pools of pages, as kernels take them.
    `rotary` is (cos, sin), fp32 or of k's type, [positions, rotary dim / 2]: the first rotary dim columns are rotated
    (RoPE, Su et al. 2021), column i with column i + rotary dim / 2 (GPT-NeoX, Llama), or `interleaved`, 2i with 2i + 1
    (GPT-J). Sums are in fp32.

    Arrays are NumPy's, CuPy's or torch's, of fp16, bf16 or fp32 (on the CPU also fp64). On a GPU it is one launch on
    the current stream, without a look at any contents: a length or page that can't be writes nothing, and positions
    beyond cos and sin make NaN. CUDA graphs may hold it. Nothing has gradients.

    AttnccError A6xx before anything is written; A5xx where no kernel can be compiled.
    """
    call = Append(
        k_cache, v_cache, k_new, v_new, kv_lens, block_table, cu_seqlens_q, *split_rotary(rotary, interleaved, q), q
    )
    if not is_traced():
        return _run(call, layout, interleaved)
    import torch

    return torch.compiler.disable(_run)(call, layout, interleaved)  # a break in the graph: it writes in place


def _run(call: Append, layout: str, interleaved: bool) -> Array | None:
    check_layout(layout)
    framework = _framework(call)
    ordinal = framework.ordinal(call.k_cache)
    if ordinal < 0:
        return _run_on_host(cast(HostFramework, framework), call, layout, interleaved)
    launcher = _launchers.get(framework)
    if launcher is None:
        launcher = _launchers.setdefault(framework, AppendLauncher(cast(DeviceFramework, framework), _loaded))
    return launcher.run(ordinal, call, layout, interleaved=interleaved)


def _framework(call: Append) -> Framework:
    """That of all arrays. AttnccError A622 for what is none, A654 for several, A655 where arrays can't be written."""
    kinds = tuple(map(type, call))
    framework = _frameworks.get(kinds)
    if framework is None:
        framework = _frameworks[kinds] = _find_framework(call)
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
            raise refused("A654", what, expected="arrays all of one framework", came=came)
    return framework


def _run_on_host(framework: HostFramework, call: Append, layout: str, interleaved: bool) -> Array | None:
    for name, array in call.given():
        facts = framework.facts(array)
        if facts.device != "cpu":
            what = f"`{name}` is on another device than `k_cache`"
            raise refused("A605", what, expected="cpu", came=facts.device)
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
    return None if out is None else framework.from_numpy(out)


def _loaded(dtype: str, angles: str, ordinal: int) -> tuple[Driver, Function]:
    """The kernel, compiled for a GPU and loaded there once. AttnccError A505 for a GPU that no target serves."""
    gpu = driver()
    device = gpu.device(ordinal)
    with _lock:
        key = dtype, angles, ordinal
        if key not in _functions:
            target = best_target(TARGETS, device.capability)
            if target is None:
                raise AttnccError(Diagnostic("A505", f"no kernel can be made for {device.name}"))
            code = compiled(render_helper(kernel(dtype, angles, target)), target).code
            gpu.check_version(code.nvrtc)
            _functions[key] = gpu.load(device, code.image, code.entry, code.threads, code.shared_bytes)
        return gpu, _functions[key]
