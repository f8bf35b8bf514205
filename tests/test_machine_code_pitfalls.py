"""What ptxas must not make of a kernel is found in machine code; `test_generated_compiles` looks for it everywhere."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from attncc import parse
from attncc.codegen.render import render
from attncc.kernels.candidates import make_candidates
from attncc.runtime.cuda.nvrtc import compile_text
from attncc.schedule.plan import Build
from attncc.schedule.target import TARGETS
from tests.machine_code import conditional_common_values, kernels

pytestmark = pytest.mark.slow

KERNEL = """
extern "C" __global__ void kernel(int* x) {
    int least = 7, all = 7;
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 3; @p redux.sync.min.s32 %0, %2, 0xffffffff; }"
                 : "+r"(least) : "r"(x[32]), "r"(x[threadIdx.x]));
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 3; @!p redux.sync.or.b32 %0, %2, 0xffffffff; }"
                 : "+r"(all) : "r"(x[33]), "r"(x[threadIdx.x]));
    x[threadIdx.x] = least + all + __reduce_or_sync(~0u, x[threadIdx.x]);
}
"""


def disassembled(image: bytes, path: Path) -> str:
    path.write_bytes(image)
    tool = next(file for file in metadata.files("nvidia-cuda-nvdisasm") or () if file.name == "nvdisasm")
    return subprocess.run([tool.locate(), "-c", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_common_values_under_a_predicate_are_found(target: str, tmp_path: Path) -> None:
    """As many as the disassembler shows. On some targets the least value has an instruction of its own."""
    image = compile_text(KERNEL, target).image
    text = disassembled(image, tmp_path / "kernel.cubin")
    assert len(re.findall(r"[ @!UP\d] REDUX", text)) >= 2
    assert conditional_common_values(image) == len(re.findall(r"@!?U?P\d\s+REDUX", text)) >= 1
    assert sum(map(len, kernels(image))) == len(re.findall(r"^ *(?:/\*\w{4,}\*/).*;", text, re.M))


@pytest.mark.parametrize("paged", [pytest.param(False, marks=pytest.mark.slow), True])
def test_wide_heads_ask_tma_by_one_lane(paged: bool, tmp_path: Path) -> None:
    """Where ptxas doesn't know that one lane is left, each load is a loop over lanes."""
    build = Build("forward", "sm_90a", "bf16", 576, 512)
    plan = replace(make_candidates(parse("mla_decode").variant, build).first, paged=paged)
    assert plan.family == "hopper_wide"
    text = disassembled(compile_text(render(plan).text, "sm_90a").image, tmp_path / "kernel.cubin")
    loads = re.findall(r"UTMALDG[^;]*;.*\n.*", text)
    assert len(loads) >= 9 and not [load for load in loads if "BRA.U.ANY" in load]


@pytest.mark.parametrize(("spec", "dtype"), [("causal", "bf16"), pytest.param("full", "e4m3", marks=pytest.mark.slow)])
def test_forward_kernels_ask_tma_by_one_lane(spec: str, dtype: str, tmp_path: Path) -> None:
    plan = make_candidates(parse(spec).variant, Build("forward", "sm_90a", dtype, 128, 128)).first
    assert plan.family == "hopper"
    text = disassembled(compile_text(render(plan).text, "sm_90a").image, tmp_path / "kernel.cubin")
    assert text.count("UTMALDG") >= 5 and "BRA.U.ANY" not in text
