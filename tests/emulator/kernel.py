"""Generated CUDA on the CPU: a host compiler builds it against `device.hpp`, which stands in for the GPU.

It is for tests that have no GPU: what threads, warps and barriers do is emulated, one instruction at a time, so
problems must be small. What inline assembly does is said again here, in C++; all other text runs as it is.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncc.codegen.render import KernelSource
from attncc.kernels.parameters import Parameter, struct_format

COMPILER = shutil.which("g++")
_HERE = Path(__file__).parent
_PARTS = ("device", "hopper")
_HEADERS = tuple(f"{part}.hpp" for part in _PARTS)  # those that kernels begin with
_ALWAYS = (
    "-std=c++17", "-w", "-Wno-psabi", "-fPIC", "-fno-gnu-unique", "-U_FORTIFY_SOURCE",
    "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables",
)  # fmt: skip
_MAP = "const __grid_constant__ TensorMap"  # in the head of kernels that load by TMA
_PRODUCT = "wgmma.mma_async"  # in kernels with wgmma

Body = tuple[str, str, str]
# Bodies of the functions that hold inline assembly: name, a word of the parameters where it is overloaded, body.
_BODIES = (
    ("copy_async", "", "issue_copy(target, source, true);"),
    ("copy_async_or_zero", "", "issue_copy(target, source, exists);"),
    ("copy_once_or_zero", "", "issue_copy(target, source, exists);"),
    ("evict_first", "", "return 0;"),
    ("copy_async_of_place", "", "issue_copy(target, source, place >= 0);"),
    ("copy_float_if", "", "if (wanted) shared_at<float>(target) = exists ? *source : 0;"),
    ("store_word_if", "", "if (wanted) shared_at<unsigned>(address) = word;"),
    ("copy_commit", "", "close_group();"),
    ("copy_wait", "", "wait_groups(PENDING);"),
    ("load_matrices", "", "read_matrices(x, address, false);"),
    ("load_matrices_transposed", "", "read_matrices(x, address, true);"),
    ("load_float4", "", "return shared_at<float4>(address);"),
    ("load_float2", "", "return shared_at<float2>(address);"),
    ("load_word", "", "return shared_at<unsigned>(address);"),
    ("store_word", "", "shared_at<unsigned>(address) = word;"),
    ("load_words", "", "memcpy(x, &shared_at<uint4>(address), 16);"),
    ("store_words", "unsigned address", "memcpy(&shared_at<uint4>(address), x, 16);"),
    ("log2_approximate", "", "return log2f(x);"),
    ("exp2_flushed", "", "const float y = exp2f(x); return y < 0x1p-126f ? 0 : y;"),
    ("fast_reciprocal", "", "return 1 / x;"),
    ("uniform", "int x", "return same_in_warp(x);"),
    ("opaque", "", "return x;"),
    ("zero_here", "", "return 0;"),
    ("opaque_long", "", "return x;"),
    ("opaque_pointer", "", "return x;"),
    ("opaque_float", "", "return x;"),
    ("block_index", "", "return blockIdx.x;"),
    ("thread_index", "", "return threadIdx.x;"),
    ("wide_product", "", "return (unsigned long long)a * b;"),
    ("not_below", "", "return (a % 65536 >= b % 65536 ? 65535 : 0) | (a >> 16 >= b >> 16 ? 65535u << 16 : 0);"),
    ("add_float", "", "counts.added += 4, *address += x;"),
    ("add_four", "", "counts.added += 16; for (int i = 0; i < 4; ++i) address[i] += x[i];"),
    ("pack_two", "", "return float_to_quarter(low) | float_to_quarter(high) << 8;"),
    (
        "take_part",
        "words",
        "for (unsigned& x : words) { const unsigned pair = x >> 16 * part;"
        " x = float_to_half(quarter_to_float(pair)) | (unsigned)float_to_half(quarter_to_float(pair >> 8)) << 16; }",
    ),
    (
        "widened",
        "unsigned short",
        "return float_to_half(quarter_to_float(bytes)) | (unsigned)float_to_half(quarter_to_float(bytes >> 8)) << 16;",
    ),
    ("widened_upper", "", "return widened((unsigned short)(word >> 16));"),
    ("pack_fp16", "", "return float_to_half(low) | (unsigned)float_to_half(high) << 16;"),
    ("multiply_fp16", "", "multiply(sum, a, b0, b1, half_to_float);"),
    (
        "multiply_add_fp16",
        "",
        "unsigned sum = 0; for (int bits = 0; bits < 32; bits += 16) sum |= (unsigned)float_to_half(fmaf("
        "half_to_float(a >> bits), half_to_float(b >> bits), half_to_float(c >> bits))) << bits; return sum;",
    ),
    ("to_float", "fp16", "return half_to_float(x.bits);"),
    ("load_relaxed", "", "yield(); return *address;"),
    ("store_relaxed", "", "*address = x;"),
    ("order_memory", "", ""),
    ("take_bits", "", "yield(); const int before = *word; *word |= bits; return before;"),
    ("publish_more", "", "yield(); if (publishes) *word += more;"),
    ("published", "", "yield(); return *word;"),
    ("warpgroup_count", "", "return count_named(barrier, yes);"),
    ("let_others_begin", "", ""),
    ("wait_for_kernel_ahead", "", "end_kernel_ahead();"),
    ("await_kernel_ahead", "", "end_kernel_ahead();"),
    ("count_arrival", "", "return atomicInc(counter, most);"),
    ("count_more", "", "return atomicAdd(counter, more);"),
    ("end_count", "", "*counter = 0;"),
    (
        "change_count",
        "",
        "yield(); const unsigned before = *counter; if (before == from) *counter = to; return before;",
    ),
    ("counted", "", "yield(); return *counter;"),  # who waits in vain goes on: thread blocks run one after the other
    ("count_finished", "", "if (threadIdx.x % 32 == 0) *count += more;"),
    ("wait_for_count", "", "if (*count != all) __builtin_trap();"),  # kernels run one after the other
    ("load_if", "unsigned char", "return inside && *address != 0;"),
    ("load_if", "int*", "return inside ? *address : 0;"),
    ("load_if", "long long", "return inside ? *address : 0;"),
    ("load_if", "float*", "return inside ? *address : 0;"),
    ("load_if", "Half", "return inside ? to_float(*address) : 0;"),
)
# The same for Hopper.
_HOPPER_BODIES = (
    ("barrier_init", "", "init_barrier(barrier, arrivals);"),
    ("barrier_init_done", "", ""),
    ("barrier_end", "", "end_barrier(barrier);"),
    ("last_arrival", "", "return arrives && arrive_last(barrier);"),
    ("barrier_test", "", "return phase_over(barrier, parity);"),
    ("elected_lane", "", "return threadIdx.x % 32 == 0;"),
    ("barrier_arrive", "", "arrive(barrier, 0);"),
    ("barrier_arrive_expecting", "", "arrive(barrier, bytes);"),
    ("barrier_wait", "", "wait_for_phase(barrier, parity);"),
    ("named_arrive", "", "join_named(id, threads);"),
    ("named_wait", "", "meet_named(id, threads);"),
    ("tma_prefetch", "", ""),
    ("tma_fetch_ahead", "", ""),
    ("tma_fetch_5d_ahead", "", ""),
    ("tma_load", "", "load_box(target, &map, barrier, {column, row, 0, head, batch});"),
    ("tma_load_5d", "", "load_box(target, &map, barrier, {column, inner, outer, head, batch});"),
    ("tma_load_for_both", "", "load_box_for_all(target, &map, barrier, {column, row, 0, head, batch});"),
    ("cluster_blocks", "", "return cluster_size();"),
    ("cluster_rank", "", "return block_rank;"),
    ("cluster_wait", "", "meet_cluster();"),
    ("place_in", "", "return address | rank << 24;"),
    ("barrier_arrive_there", "", "arrive_at(place & 0xffffff, place >> 24);"),
    ("send_to", "", "send_bytes(target, &shared_at<uint4>(source), bytes, barrier, rank);"),
    ("send_word_to", "", "send_bytes(target, &word, 4, barrier, rank);"),
    ("bulk_load", "", "load_bytes(target, source, bytes, barrier);"),
    ("bulk_load_for_both", "", "load_bytes_for_all(target, source, bytes, barrier);"),
    ("bulk_store", "", "memcpy(target, &shared_at<uint4>(source), bytes);"),
    ("fence_async", "", ""),
    ("wgmma_fence", "", ""),
    ("wgmma_commit", "", ""),
    ("wgmma_wait", "", "finish_all_products();"),
    ("pin", "", ""),
    ("pin_operand", "", ""),
    ("forget", "", ""),
    ("moved", "", "return x;"),
    ("give_registers", "", ""),
    ("take_registers", "", ""),
    ("take_word", "", "return shared_at<int>(address);"),
    ("take", "unsigned address", "T x; memcpy(&x, &shared_at<uint4>(address), sizeof(T)); return x;"),
    ("store_matrices_transposed", "", "store_transposed(address, x);"),
    ("store_matrices", "", "write_matrices(address, x);"),
    ("put_pair", "", "shared_at<uint2>(address) = {(unsigned)x, (unsigned)y};"),
    ("put_four", "", "shared_at<uint4>(address) = {(unsigned)x, (unsigned)y, (unsigned)z, (unsigned)w};"),
    ("take_pair", "", "const uint2 pair = shared_at<uint2>(address); x = pair.x, y = pair.y;"),
    ("take_four", "", "const uint4 four = shared_at<uint4>(address); x = four.x, y = four.y, z = four.z, w = four.w;"),
)
_FUNCTION = re.compile(r"__forceinline__ [\w* ]+\b(\w+)\(([^;{}]*)\)[\w ]*\{")  # its name and parameters
# Of functions on one line: to inline such a body takes the host compiler less time than a function of its own.
_SHORT = re.compile(r"__forceinline__(?=[^\n{}]*\{[^\n{}]{0,100}\}$)", re.M)
_NARROW = {"bf16": ("float_to_bf16", "bf16_to_float"), "fp16": ("float_to_half", "half_to_float")}


def run(
    source: KernelSource,
    parameters: tuple[Parameter, ...],
    values: Mapping[str, float],
    blocks: int,
    maps: bytes = b"",
    *,
    cluster: int = 1,
    order: int = 0,
) -> None:
    """Launches a kernel. `values` holds a value for each parameter, an address where it is a pointer; `maps` the tensor
    maps that it takes before them. So many blocks are a cluster. `order`: in which order they run (device.hpp)."""
    library = _built(source.text, source.entry)
    packed = struct.pack(struct_format(parameters), *(values[item.name] for item in parameters))
    assert library.size_of_params() == len(packed)
    library.run(packed, maps, blocks, source.threads, ctypes.c_size_t(source.shared_bytes), 1, cluster, order)


@contextmanager
def behind_kernel_ahead(*arrays: NDArray[Any], threads: int = 0) -> Iterator[None]:
    """Launches whose blocks begin while the kernel ahead is at work on these arrays: garbage, until all threads of a
    block have waited for it (`await_kernel_ahead`), or so many. The emulator aborts if one is written before.
    """
    bounds = [np.lib.array_utils.byte_bounds(array) for array in arrays]
    ranges = [number for low, high in bounds for number in (low, high - low)]
    put = ctypes.CDLL(str(_device())).put_kernel_ahead
    put((ctypes.c_size_t * len(ranges))(*ranges), len(bounds), threads)
    try:
        yield
    finally:
        put(None, 0, 0)


@dataclass(frozen=True)
class Counts:
    """Bytes of all launches since they were last taken: see device.hpp."""

    read: int
    arrived: int
    added: int


def take_counts() -> Counts:
    found = (ctypes.c_longlong * 3)()
    ctypes.CDLL(str(_device())).take_counts(found)
    return Counts(*found)


def evaluate(text: str, includes: str) -> ctypes.CDLL:
    """Plain C++ over leaf files, such as `extern "C" int f(...)`; `includes` is the text of the files."""
    return _compiled("device.hpp", _on_host(includes) + text, "text")


def prepare() -> Path:
    """Compiles what all kernels share. The folder of that, where compiled kernels lie as well: `ENTRY-DIGEST.so`."""
    device = _device()
    for header in _HEADERS:
        _make(device.parent / f"{header}.gch", "-O0", "-x", "c++-header", str(_HERE / header))
    return device.parent


@cache
def _built(text: str, entry: str) -> ctypes.CDLL:
    hopper, maps = _for_hopper(text), text.count(_MAP)
    of_maps = f"memcpy(given_maps, maps, {maps} * sizeof(TensorMap)), " if maps else ""
    of_hopper = f"{of_maps}before_block = begin_block, between_turns = deliver;"
    arguments = [f"given_maps[{number}]" for number in range(maps)] + ["given"]
    return _compiled(
        "hopper.hpp" if hopper else "device.hpp",
        f"""{_on_host(text)}
{"static TensorMap given_maps[4];" if maps else "static char given_maps[1];"}
static Params given;
static void body() {{
    {entry}({", ".join(arguments)});
}}
extern "C" int size_of_params() {{ return sizeof(Params); }}
extern "C" void run(
    const void* params, const void* maps, int blocks, int threads, size_t shared_bytes, unsigned seed, int cluster,
    unsigned order) {{
    memcpy(&given, params, sizeof(Params));
    {of_hopper if hopper else ""}
    launch(body, blocks, threads, shared_bytes, seed, cluster, order);
}}
""",
        entry,
    )


def _compiled(header: str, text: str, name: str) -> ctypes.CDLL:
    """The header, and the device behind it, are compiled once and kept, as libraries are. Kernels are linked with the
    device alone: to read the standard library again takes as long as a small kernel."""
    folder = prepare()
    built = folder / f"{name[:100]}-{_digest(header + text)}.so"
    if not built.exists():
        source = built.with_suffix(f".{os.getpid()}.cpp")  # other processes may be at the same kernel
        source.write_text(f'#include "{header}"\n{text}')
        options = ("-O0", "-shared", "-nostdlib", f"-Wl,-rpath,{folder}", f"-I{folder}", f"-I{_HERE}")
        _make(built, *options, str(source), str(_device()))
        source.rename(built.with_suffix(".cpp"))
    return ctypes.CDLL(str(built))


@cache
def _device() -> Path:
    """The library of the device, in a folder for it and for what is linked with it."""
    ours = "".join(path.read_text() for path in sorted(_HERE.glob("*.[ch]pp"))) + str(_ALWAYS)
    folder = Path(gettempdir()) / f"attncc-emulated-{_digest(ours)}"
    folder.mkdir(exist_ok=True)
    fast = ("-O3", "-march=native", "-ffp-contract=off")
    return _make(folder / "libdevice.so", *fast, "-shared", *(str(_HERE / f"{part}.cpp") for part in _PARTS))


def _make(built: Path, *options: str) -> Path:
    """What the host compiler makes, unless it is there; other processes may make it at the same time."""
    if not built.exists():
        assert COMPILER is not None
        new = built.with_suffix(f".{os.getpid()}")
        subprocess.run([COMPILER, *_ALWAYS, "-o", str(new), *options], check=True)
        new.rename(built)
    return built


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _on_host(text: str) -> str:
    text = re.sub(r"^#(line|define DEVICE) .*$", "", text, flags=re.M)
    text = re.sub(r"\bDEVICE\b", "__device__ __forceinline__", text)
    text = _with_bodies(text, [*_BODIES, *_bodies_of_element(text)])
    text = re.sub(r"extern __shared__ .* (\w+)\[\];", r"unsigned char* \1 = shared_memory;", text)
    text = _SHORT.sub("ATTNCC_INLINED", text)
    left = re.search(r"^.*\n.*\basm\b", re.sub(r"//.*", "", text), re.M)
    assert left is None, f"inline assembly without a stand-in: {left[0]}"
    return text


def _for_hopper(text: str) -> bool:
    return _MAP in text or _PRODUCT in text


def _bodies_of_element(text: str) -> Iterator[Body]:
    """Of functions that depend on the dtype; of kernels with TMA or wgmma all for Hopper as well."""
    element, quarters = re.search(r"using Element = (\w+16);", text), "pack_two" in text
    if element:
        narrow, widen = _NARROW[element[1]]
        yield "pack", "", f"return {narrow}(low) | (unsigned){narrow}(high) << 16;"
        each = ", ".join(f"{widen}({x} >> bits)" for x in "abc")
        sums = f"for (int bits = 0; bits < 32; bits += 16) sum |= (unsigned){narrow}(fmaf({each})) << bits;"
        yield "multiply_add", "unsigned a", f"unsigned sum = 0; {sums} return sum;"
        yield "mma", "", f"multiply(sum, a, b0, b1, {'half_to_float' if quarters else widen});"
        widen = "quarter_to_float" if quarters else widen
    if _for_hopper(text):
        yield from _HOPPER_BODIES
        for name in set(re.findall(r"\b(\w+_async)\(float[^{}]*\{\s*asm", text)):
            transposed = str(("gradient" in name or "probs" in name) and not quarters).lower()
            yield name, "", f"{_product(text, name)}, {transposed}, {widen});"


def _product(text: str, name: str) -> str:
    """The beginning of the body of a product: its steps, A in registers or in shared memory."""
    start = text.index(f" {name}(float")
    function = text[start : text.index("#undef STEP", start)]
    a = "a + ASteps::at(step)" if "A_IN_SMEM(" in function else "a[step]"
    steps = f"for (int step = 0; step < {function.count('STEP(')}; ++step)"
    return f"{steps} start_product(sum, {a}, b + BSteps::at(step), step > 0 || accumulate"


def _with_bodies(text: str, bodies: Iterable[Body]) -> str:
    """The text with these in place of the bodies of the functions of that name, whose parameters hold that word."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for name, word, body in bodies:
        by_name.setdefault(name, []).append((word, body))
    pieces, end = [], 0
    for match in _FUNCTION.finditer(text):
        found = next((body for word, body in by_name.get(match[1], ()) if word in match[2]), None)
        if match.start() >= end and found is not None:
            pieces += [text[end : match.end()], f" {found} }}"]
            end = _closing(text, match.end())
    return "".join(pieces) + text[end:]


def _closing(text: str, start: int) -> int:
    """The place after the brace that closes the block which `start` is in."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[start], 0)
        start += 1
    return start
