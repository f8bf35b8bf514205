"""Generated CUDA on the CPU: a host compiler builds it against `device.hpp`, which stands in for the GPU.

It is for tests that have no GPU: what threads, warps and barriers do is emulated, one instruction at a time, so
problems must be small. What inline assembly does is said again here, in C++; all other text runs as it is.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir

from attncc.codegen.render import KernelSource
from attncc.schedule.parameters import Parameter, struct_format

COMPILER = shutil.which("g++")
_HERE = Path(__file__).parent

# Bodies of the functions that hold inline assembly: name, a word of the parameters where it is overloaded, body.
_BODIES = (
    ("copy_async", "", "issue_copy(target, source, true);"),
    ("copy_async_or_zero", "", "issue_copy(target, source, exists);"),
    ("copy_commit", "", "close_group();"),
    ("copy_wait", "", "wait_groups(PENDING);"),
    ("load_matrices", "", "read_matrices(x, address, false);"),
    ("load_matrices_transposed", "", "read_matrices(x, address, true);"),
    ("load_float4", "", "return shared_at<float4>(address);"),
    ("load_float2", "", "return shared_at<float2>(address);"),
    ("load_word", "", "return shared_at<unsigned>(address);"),
    ("store_word", "", "shared_at<unsigned>(address) = word;"),
    ("exp2_flushed", "", "const float y = exp2f(x); return y < 0x1p-126f ? 0 : y;"),
    ("fast_reciprocal", "", "return 1 / x;"),
    ("uniform", "int x", "return same_in_warp(x);"),
    ("opaque", "", "return x;"),
    ("block_index", "", "return blockIdx.x;"),
    ("thread_index", "", "return threadIdx.x;"),
    ("wide_product", "", "return (unsigned long long)a * b;"),
    ("not_below", "", "return (a % 65536 >= b % 65536 ? 65535 : 0) | (a >> 16 >= b >> 16 ? 65535u << 16 : 0);"),
    ("add_four", "", "for (int i = 0; i < 4; ++i) address[i] += x[i];"),
    ("to_float", "fp16", "return half_to_float(x.bits);"),
    ("load_if", "", "return inside ? load(address) : decltype(load(address))();"),
)
_NARROW = {"bf16": ("float_to_brain", "brain_to_float"), "fp16": ("float_to_half", "half_to_float")}


def run(source: KernelSource, parameters: tuple[Parameter, ...], values: Mapping[str, float], blocks: int) -> None:
    """Launches a kernel. `values` holds a value for each parameter, an address where it is a pointer."""
    library = _built(source.text, source.entry)
    packed = struct.pack(struct_format(parameters), *(values[item.name] for item in parameters))
    assert library.size_of_params() == len(packed)
    library.run(packed, blocks, source.threads, ctypes.c_size_t(source.shared_bytes), 1)


def evaluate(text: str, includes: str) -> ctypes.CDLL:
    """Plain C++ over leaf files, such as `extern "C" int f(...)`; `includes` is the text of the files."""
    return _compiled('#include "device.hpp"\n' + _on_host(includes) + text)


@cache
def _built(text: str, entry: str) -> ctypes.CDLL:
    return _compiled(
        f"""#include "device.hpp"
{_on_host(text)}
static Params given;
static void body() {{
    {entry}(given);
    fibers[current].done = true;
}}
extern "C" int size_of_params() {{ return sizeof(Params); }}
extern "C" void run(const void* params, int blocks, int threads, size_t shared_bytes, unsigned seed) {{
    memcpy(&given, params, sizeof(Params));
    launch(body, blocks, threads, shared_bytes, seed);
}}
"""
    )


def _compiled(text: str) -> ctypes.CDLL:
    assert COMPILER is not None
    key = sha256((text + (_HERE / "device.hpp").read_text()).encode()).hexdigest()[:16]
    library = Path(gettempdir()) / f"attncc-emulated-{key}.so"
    if not library.exists():
        source, built = library.with_suffix(".cpp"), library.with_suffix(".new")
        source.write_text(text)
        options = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", f"-I{_HERE}"]
        subprocess.run([COMPILER, *options, str(source), "-o", str(built)], check=True)
        built.rename(library)
    return ctypes.CDLL(str(library))


def _on_host(text: str) -> str:
    text = re.sub(r"^#line .*$", "", text, flags=re.M)
    for name, word, body in _BODIES:
        text = _with_body(text, name, word, body)
    element = re.search(r"using Element = (\w+16);", text)
    if element:
        narrow, widen = _NARROW[element[1]]
        text = _with_body(text, "pack", "", f"return {narrow}(low) | (unsigned){narrow}(high) << 16;")
        text = _with_body(text, "mma", "", f"multiply(sum, a, b0, b1, {widen});")
    text = re.sub(r"extern __shared__ .* shared\[\];", "unsigned char* shared = shared_memory;", text)
    assert not re.search(r"\basm\b", re.sub(r"//.*", "", text)), "inline assembly without a stand-in"
    return text


def _with_body(text: str, name: str, word: str, body: str) -> str:
    """The text with the bodies of the functions of that name, whose parameters hold `word`, replaced."""
    pieces, end = [], 0
    for match in re.finditer(rf"__forceinline__ [\w* ]+\b{name}\(([^;{{}}]*)\)[\w ]*\{{", text):
        if match.start() >= end and word in match[1]:
            pieces += [text[end : match.end()], f" {body} }}"]
            end = _closing(text, match.end())
    return "".join(pieces) + text[end:]


def _closing(text: str, start: int) -> int:
    """The place after the brace that closes the block which `start` is in."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[start], 0)
        start += 1
    return start
