"""The NVRTC binding: compiles without a GPU, reads the resource report, maps refusals to diagnostics."""

from __future__ import annotations

import _ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.cuda import nvrtc
from attncc.runtime.cuda.cubin import Usage

KERNEL = """
extern "C" __global__ void __launch_bounds__(128) copy(float* out, const float* in, int n) {
    __shared__ float staged[100];
    staged[threadIdx.x % 100] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = staged[(threadIdx.x + 1) % 100];
}
"""

# More live values than registers: 300 running products.
SPILLING = (
    'extern "C" __global__ void __launch_bounds__(1024) spill(float* p, int n) {\n'
    + "".join(f"float x{i} = p[{i} + threadIdx.x];" for i in range(300))
    + "for (int j = 0; j < n; j++) {"
    + "".join(f"x{i} = x{i} * x{(i + 1) % 300} + x{(i + 7) % 300};" for i in range(300))
    + "}\n"
    + "".join(f"p[{i} + threadIdx.x] = x{i};" for i in range(300))
    + "}"
)

LOG_OF_PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'copy' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'copy'
ptxas info    : Function properties for copy
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used REGISTERS registers, used 1 barriers, 400 bytes smem
a.cu(3): warning #177-D: variable "x" was declared but never referenced
Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_every_target_gives_a_cubin_and_its_resources(target: str) -> None:
    cubin = nvrtc.compile_text(KERNEL, target)
    assert cubin.image.startswith(b"\x7fELF")
    assert cubin.resources.shared_bytes >= 400
    assert 4 <= cubin.resources.registers <= 64
    assert (cubin.resources.spill_stores, cubin.resources.spill_loads) == (0, 0)
    assert cubin.nvrtc == nvrtc.version()


def test_spills_are_reported() -> None:
    resources = nvrtc.compile_text(SPILLING, "sm_80").resources
    assert resources.registers == 64  # 65536 registers over 1024 threads
    assert resources.spill_stores > 0
    assert resources.spill_loads > 0


@pytest.fixture(scope="module")
def compiled() -> nvrtc.Cubin:
    return nvrtc.compile_text(KERNEL, "sm_90a")


def test_machine_code_and_log_say_the_same(compiled: nvrtc.Cubin) -> None:
    registers = compiled.resources.registers
    log = LOG_OF_PTXAS.replace("REGISTERS", str(registers))
    resources = nvrtc.read_resources(compiled.image, log, "sm_90a", 0.25)
    assert resources == nvrtc.Resources(registers, 0, 0, 400, 0.25, resources.messages)
    assert [message[:30] for message in resources.messages] == [
        "ptxas info    : (C7510) Potent",
        "a.cu(3): warning #177-D: varia",
    ]


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("REGISTERS", "250"),
        ("0 bytes stack", "8 bytes stack"),
        ("0 bytes spill stores", "4 bytes spill stores"),
        ("0 bytes spill loads", "4 bytes spill loads"),
        ("400 bytes smem", "404 bytes smem"),
        ("Used REGISTERS registers", ""),  # a line is missing, as all are in what NVRTC takes from its own cache
        ("0 bytes spill stores", ""),
        (LOG_OF_PTXAS, ""),
    ],
)
def test_nothing_is_assumed_where_they_differ(compiled: nvrtc.Cubin, said: str, instead: str) -> None:
    log = LOG_OF_PTXAS.replace(said, instead).replace("REGISTERS", str(compiled.resources.registers))
    with pytest.raises(AttnccError, match="A909"):
        nvrtc.read_resources(compiled.image, log, "sm_90a", 0.25)


def test_the_same_text_again_gives_its_resources_again(compiled: nvrtc.Cubin) -> None:
    """NVRTC 13 has a cache of its own, which would give the machine code without the log."""
    again = nvrtc.compile_text(KERNEL, "sm_90a")
    assert again.image == compiled.image
    assert again.resources.registers == compiled.resources.registers


def test_an_error_points_at_the_attn_line(tmp_path: Path) -> None:
    spec = tmp_path / "mine.attn"
    spec.write_text("attn 1\nvariant v {\n    keep if q_pos >= kv_idx\n}\n")
    text = f'#line 3 "{spec}"\n__device__ bool keep() {{ return nothing; }}\n' + KERNEL
    with pytest.raises(AttnccError) as caught:
        nvrtc.compile_text(text, "sm_80")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "A901"
    assert 'identifier "nothing" is undefined' in diagnostic.message
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.text) == (3, "    keep if q_pos >= kv_idx")


def test_an_error_in_generated_text_has_the_log_as_notes() -> None:
    with pytest.raises(AttnccError) as caught:
        nvrtc.compile_text("int broken(", "sm_80")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is None
    assert any("error: expected a" in note for note in diagnostic.notes)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(AttnccError, match=r"A502.*sm_20") as caught:
        nvrtc.compile_text(KERNEL, "sm_20")
    assert "sm_80" in caught.value.diagnostics[0].notes[0]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("/nowhere/libnvrtc.so.13", nvrtc.OVERRIDE),
        (_ctypes.__file__, nvrtc.OVERRIDE),  # a library that is no NVRTC
        ("", "attncc[cuda13]"),
    ],
)
def test_a_missing_nvrtc_names_what_to_mend(monkeypatch: pytest.MonkeyPatch, override: str, named: str) -> None:
    monkeypatch.setenv(nvrtc.OVERRIDE, override)
    monkeypatch.setattr(nvrtc, "_wheel_libraries", tuple)
    monkeypatch.setattr(nvrtc, "_SYSTEM_LIBRARIES", ("/nowhere/libnvrtc.so.12",))
    with pytest.raises(AttnccError, match=r"A501") as caught:
        nvrtc.compile_text(KERNEL, "sm_80")
    assert named in caught.value.diagnostics[0].help


def test_threads_may_compile_at_once() -> None:
    texts = [KERNEL.replace("+ 1", f"+ {number}") for number in range(6)]
    with ThreadPoolExecutor(3) as pool:
        images = list(pool.map(lambda text: nvrtc.compile_text(text, "sm_80").image, texts))
    again = [nvrtc.compile_text(text, "sm_80").image for text in texts]
    assert images == again
    assert len(set(images)) == 6


COUNTED = "ptxas info : Used 128 registers\n136 bytes stack frame, 428 bytes spill stores, 372 bytes spill loads"


def test_code_may_hold_more_spills_than_ptxas_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "read_usage", lambda image, target: Usage(128, 136, 428, 380, 0))
    assert nvrtc.read_resources(b"", COUNTED, "sm_90a", 0.25).spill_loads == 380


def test_code_without_spills_contradicts_a_log_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "read_usage", lambda image, target: Usage(128, 136, 428, 0, 0))
    with pytest.raises(AttnccError, match="A909"):
        nvrtc.read_resources(b"", COUNTED, "sm_90a", 0.25)
