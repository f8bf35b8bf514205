"""`benchmarks.fingerprints` tells changes of machine code from changes of text, names and line tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.runtime.cuda.cubin import sections
from attncc.runtime.cuda.nvrtc import compile_text, version
from benchmarks.cubin import compiler_version, fingerprint
from benchmarks.fingerprints import Found, differences, merged, read, write

TARGETS = ("sm_80", "sm_90a")
KERNEL = """
constexpr int STEP = 3;
struct Params { float* out; const float* in; int size; };
extern "C" __global__ void double_all(const __grid_constant__ Params params) {
    __shared__ float kept[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    kept[threadIdx.x] = i < params.size ? params.in[i] : 0.0f;
    __syncthreads();
    if (i < params.size) params.out[i] = 2.0f * kept[threadIdx.x ^ STEP];
}
"""


def hash_of(text: str, target: str) -> str:
    return fingerprint(compile_text(text, target).image)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "change",
    [
        ("", "// a line above\n#line 7 \"causal.attn\"\n"),
        ("double_all", "twice"),
        ("STEP", "A_LONGER_NAME"),
        ("constexpr", "constexpr int UNUSED = 5; struct S { static constexpr int M = 7; };\nconstexpr"),
    ],
    ids=["lines", "kernel", "constant", "unused"],
)  # fmt: skip
def test_text_and_names_dont_count(target: str, change: tuple[str, str]) -> None:
    before, after = change
    changed = KERNEL.replace(before, after) if before else after + KERNEL
    assert changed != KERNEL
    assert compile_text(changed, target).image != compile_text(KERNEL, target).image
    assert hash_of(changed, target) == hash_of(KERNEL, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "change",
    [
        ("2.0f *", "2.5f *"),
        ("STEP = 3", "STEP = 4"),
        ("kept[128]", "kept[256]"),
        ("int size;", "int size, more, most;"),
        ("__global__ void", "__global__ void __launch_bounds__(128)"),
    ],
    ids=["instruction", "constant", "shared", "parameters", "bounds"],
)
def test_code_and_what_it_is_loaded_with_do(target: str, change: tuple[str, str]) -> None:
    assert hash_of(KERNEL.replace(*change), target) != hash_of(KERNEL, target)


@pytest.mark.parametrize("target", TARGETS)
def test_tables_that_code_reads_count(target: str) -> None:
    """Entries that an index chooses stand in memory, in a constant bank or behind an address in one."""
    reads = KERNEL.replace("2.0f *", "TABLE[i & 3] *")
    for memory in ("__constant__", "__device__"):
        text = f"{memory} float TABLE[4] = {{1, 2, 3, 4}};" + reads
        assert hash_of(text.replace("3, 4}", "3, 5}"), target) != hash_of(text, target), memory


def test_sections_and_the_compiler_are_found() -> None:
    image = compile_text(KERNEL, "sm_80").image
    found = {section.name: section for section in sections(image)}
    assert found[".text.double_all"].kind == ".text"
    assert found[".nv.shared.double_all"].size >= 512
    assert compiler_version(image).startswith(version())


def test_differences_are_named() -> None:
    before, now = {"a": "1", "b": "2", "gone": "3"}, {"a": "1", "b": "4", "came": "5"}
    assert list(differences(before, now, whole=True)) == ["changed  b", "new      came", "gone     gone"]
    assert list(differences(before, now, whole=False)) == ["changed  b", "new      came"]


def test_files_are_sorted_and_read_again(tmp_path: Path) -> None:
    found = Found({"b": "2", "a": "1"}, frozenset({"13.0.88"}))
    write(tmp_path / "file.json", found)
    assert read(tmp_path / "file.json") == found
    assert (tmp_path / "file.json").read_text().index('"a"') < (tmp_path / "file.json").read_text().index('"b"')
    assert read(tmp_path / "none.json") == Found({})


def test_one_name_means_one_kernel() -> None:
    assert merged([Found({"a": "1"}), Found({"a": "1", "b": "2"})]).hashes == {"a": "1", "b": "2"}
    with pytest.raises(SystemExit, match="the name a"):
        merged([Found({"a": "1"}), Found({"a": "2"})])
