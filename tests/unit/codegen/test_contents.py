from __future__ import annotations

import re

import pytest

from attncc.codegen.contents import with_contents
from attncc.kernels.candidates import make_plan
from attncc.machine_code import kernel_sources
from attncc.schedule.plan import KernelPlan
from tests.printed import variant

BEGIN = {"parameters": "struct Params {", "leaf code": "// ----", "the kernel": 'extern "C" __global__'}
RULE = f"// {'-' * 64}"


def causal(target: str, pass_name: str) -> KernelPlan:
    sizes = {"dtype": "bf16", "head_dim": 128, "value_head_dim": 128}
    return make_plan(variant("keep if causal()"), **sizes, target=target, pass_name=pass_name)


def entries(text: str) -> list[tuple[int, str]]:
    """Each line number of a table with what is said to be there."""
    lines = text.split("\n")
    start = lines.index("// Contents, by line:") + 1
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("// "))
    table = lines[start:end]
    found: list[tuple[int, str]] = []
    for line in table:
        if part := re.match(r"// +(\d+)  (?:  )?(Flash.*?|[^:]+)( \.\.\.|:.*)?$", line):
            found.append((int(part[1]), part[2]))
        found += [
            (int(number), name) for name, number in re.findall(r"([\w.]+) (\d+)(?:,|$)", line) if "Flash" not in line
        ]
    return found


TEXT = f"""\
// what, for whom
// Written by somebody

{RULE} sizes

constexpr int ONE = 1;

{RULE} leaf code

// ---- some.cuh

struct Some {{
}};

// ---- more.cuh

{RULE} causal

struct Params {{
    int a;
}};

DEVICE bool keep(
    int a) {{
}}

{RULE} the kernel

extern "C" __global__ k() {{
    // FlashAttention-2, Algorithm 1, line 8: S = Q K^T
    x();
}}
"""


def test_each_part_stands_where_the_table_says() -> None:
    text = with_contents(TEXT)
    lines = text.split("\n")
    assert lines[:5] == [*TEXT.split("\n")[:2], "//", "// Contents, by line:", "//    11  sizes"]
    assert "//    15  leaf code: some.cuh 17, more.cuh 22" in lines
    assert "//    24  causal: Params 26, keep 30" in lines
    assert lines[30 - 1] == "DEVICE bool keep(" and lines[11 - 1].endswith(" sizes")
    assert "//    37    FlashAttention-2, Algorithm 1, line 8: S = Q K^T" in lines
    assert lines[37 - 1].strip() == "// FlashAttention-2, Algorithm 1, line 8: S = Q K^T"


def test_a_table_of_several_lines_counts_itself() -> None:
    leaves = "".join(f"// ---- number_{number}.cuh\n\n" for number in range(40))
    text = with_contents(f"// what\n\n{leaves}")
    lines = text.split("\n")
    for number, name in entries(text):
        assert name in lines[number - 1] or name == "leaf code"
    assert len(entries(text)) == 41


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_tables_of_kernels_are_right(target: str, pass_name: str) -> None:
    plan = causal(target, pass_name)
    for text in (source.text for source in kernel_sources(plan).values()):
        lines = text.split("\n")
        found = entries(text)
        for number, name in found:
            line = lines[number - 1]
            assert name in line or (name in BEGIN and line.startswith(BEGIN[name]))
        assert "the kernel" in {name for _, name in found}
        assert [number for number, _ in found] == sorted(number for number, _ in found)
        assert set(re.findall(r"^// ---- (\S+)$", text, re.M)) <= {name for _, name in found}


@pytest.mark.parametrize(
    ("target", "pass_name", "step"),
    [
        ("sm_80", "forward", "FlashAttention-2, Algorithm 1, line 8: S = Q K^T"),
        ("sm_80", "decode", "Flash-Decoding, step 1"),
        ("sm_80", "backward", "FlashAttention-2, Algorithm 2, line 10: S^T = K Q^T"),
        ("sm_90a", "forward", "FlashAttention-3, Algorithm 2, line 12: wait for S_next"),
        ("sm_90a", "backward", "FlashAttention-2, Algorithm 2, line 10: S^T = K Q^T"),
    ],
)
def test_main_loops_name_the_paper(target: str, pass_name: str, step: str) -> None:
    plan = causal(target, pass_name)
    text = next(iter(kernel_sources(plan).values())).text
    assert re.search(rf"^// +\d+    {re.escape(step)}", text, re.M)
