"""The NVRTC binding: compiles without a GPU, reads the resource report, maps refusals to diagnostics."""

from __future__ import annotations

import _ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime import nvrtc

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
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'f'
ptxas info    : Function properties for f
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 400 bytes smem
a.cu(3): warning #177-D: variable "x" was declared but never referenced
Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_every_target_gives_a_cubin_and_its_resources(target: str) -> None:
    cubin = nvrtc.library().compile(KERNEL, target)
    assert cubin.image.startswith(b"\x7fELF")
    assert cubin.resources.shared_bytes >= 400
    assert 4 <= cubin.resources.registers <= 64
    assert (cubin.resources.spill_stores, cubin.resources.spill_loads) == (0, 0)
    assert cubin.nvrtc == nvrtc.library().version


def test_spills_are_reported() -> None:
    resources = nvrtc.library().compile(SPILLING, "sm_80").resources
    assert resources.registers == 64  # 65536 registers over 1024 threads
    assert resources.spill_stores > 0
    assert resources.spill_loads > 0


def test_the_report_is_read_from_the_log() -> None:
    resources = nvrtc.read_log(LOG_OF_PTXAS, 0.25)
    assert resources == nvrtc.Resources(168, 8, 12, 400, 0.25, resources.messages)
    assert [message[:30] for message in resources.messages] == [
        "ptxas info    : (C7510) Potent",
        "a.cu(3): warning #177-D: varia",
    ]


def test_an_error_points_at_the_attn_line(tmp_path: Path) -> None:
    spec = tmp_path / "mine.attn"
    spec.write_text("attn 1\nvariant v {\n    keep if q_pos >= kv_idx\n}\n")
    text = f'#line 3 "{spec}"\n__device__ bool keep() {{ return nothing; }}\n' + KERNEL
    with pytest.raises(AttnccError) as caught:
        nvrtc.library().compile(text, "sm_80")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "A901"
    assert 'identifier "nothing" is undefined' in diagnostic.message
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.text) == (3, "    keep if q_pos >= kv_idx")


def test_an_error_in_generated_text_has_the_log_as_notes() -> None:
    with pytest.raises(AttnccError) as caught:
        nvrtc.library().compile("int broken(", "sm_80")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is None
    assert any("error: expected a" in note for note in diagnostic.notes)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(AttnccError, match=r"A502.*sm_20") as caught:
        nvrtc.library().compile(KERNEL, "sm_20")
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
    monkeypatch.setattr(nvrtc, "_wheel_libraries", list)
    monkeypatch.setattr(nvrtc, "_SYSTEM_LIBRARIES", ("/nowhere/libnvrtc.so.12",))
    nvrtc.library.cache_clear()
    try:
        with pytest.raises(AttnccError, match=r"A501") as caught:
            nvrtc.library()
    finally:
        nvrtc.library.cache_clear()
    assert named in caught.value.diagnostics[0].help


def test_threads_may_compile_at_once() -> None:
    texts = [KERNEL.replace("+ 1", f"+ {number}") for number in range(6)]
    with ThreadPoolExecutor(3) as pool:
        images = list(pool.map(lambda text: nvrtc.library().compile(text, "sm_80").image, texts))
    again = [nvrtc.library().compile(text, "sm_80").image for text in texts]
    assert images == again
    assert len(set(images)) == 6
