"""What is read of machine code; that ptxas says the same of every kernel is asked of each compilation."""

from __future__ import annotations

import pytest

from attncc.runtime.cuda import nvrtc
from attncc.runtime.cuda.cubin import CubinError, Usage, code_bytes, read_usage
from tests import elf

TWO_KERNELS = """
extern "C" __global__ void small(float* p) {
    __shared__ float a[64];
    a[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = a[63 - threadIdx.x];
}
extern "C" __global__ void array(float* p, int n) {
    __shared__ float a[256];
    extern __shared__ float b[];
    float local[40], sum = 0;  // in local memory, as its index isn't known; no spill
    for (int i = 0; i < 40; i++) local[i] = p[i] * n;
    for (int i = 0; i < 40; i++) sum += local[int(p[i])];
    a[threadIdx.x] = b[threadIdx.x] = sum;
    __syncthreads();
    p[threadIdx.x] = a[255 - threadIdx.x] + b[0];
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100", "sm_120"])
def test_the_most_of_several_kernels(target: str) -> None:
    cubin = nvrtc.compile_text(TWO_KERNELS, target)
    usage = read_usage(cubin.image, target)
    assert usage == Usage(cubin.resources.registers, 160, 0, 0, 1024)


def test_spills_are_told_from_other_local_memory() -> None:
    wide = "".join(f"float x{i} = p[{i}];" for i in range(200)) + "__syncthreads();"
    added = "".join(f"p[{i}] = x{i} * x{(i + 9) % 200};" for i in range(200))
    text = f'extern "C" __global__ void __launch_bounds__(1024) spill(float* p) {{ {wide} {added} }}'
    usage = read_usage(nvrtc.compile_text(text, "sm_80").image, "sm_80")
    assert usage.registers == 64
    assert usage.spill_stores >= 4 * (200 - 64)
    assert usage.spill_loads >= usage.spill_stores


@pytest.fixture(scope="module")
def image() -> bytes:
    return nvrtc.compile_text(TWO_KERNELS, "sm_80").image


@pytest.mark.parametrize("what", ["nothing", "text", "cut", "cut early", "no attributes", "no kernel"])
def test_other_files_have_no_usage(image: bytes, what: str) -> None:
    damaged = {
        "nothing": b"",
        "text": b"PTX" * 100,
        "cut": image[: len(image) // 2],
        "cut early": image[:20],
        "no attributes": image.replace(b".nv.info\0", b".nv.xxxx\0"),
        "no kernel": image.replace(b"\x04\x2f\x08\0", b"\x04\x7f\x08\0"),
    }[what]
    with pytest.raises(CubinError):
        read_usage(damaged, "sm_80")


def test_code_is_measured() -> None:
    assert code_bytes(elf.image(123)) == 16 * 123
    with pytest.raises(CubinError):
        code_bytes(b"cubin")
