from __future__ import annotations

import re
from dataclasses import replace

import pytest

from attncc.codegen import render as module
from attncc.codegen.render import assemble, render
from attncc.diagnostics import AttnccError
from attncc.kernels import legality
from tests import plans


def test_a_kernel_source_says_what_a_launch_needs() -> None:
    plan = plans.plan(plans.CAUSAL, "bf16", 64, 64, block_q=64, block_kv=64, warps=4)
    source = render(plan)
    assert (source.name, source.entry) == ("causal_forward_bf16_d64_sm_80", "causal_forward")
    assert (source.threads, source.shared_bytes) == (128, sum(legality.shared_memory(plan).values()))
    assert 'extern "C" __global__' in source.text
    assert "causal_forward(const __grid_constant__ Params params)" in source.text
    assert render(replace(plan, value_head_dim=128)).name == "causal_forward_bf16_d64x128_sm_80"


def test_the_text_is_deterministic_and_self_contained() -> None:
    plan = plans.plan(plans.ALIBI, "bf16", 64, 64, block_q=64, block_kv=64, warps=4)
    text = render(plan).text
    assert text == render(plan).text
    assert "#include" not in text and "//%" not in text and "${" not in text
    assert not re.search(r"[ \t]\n|\n\n\n|\r", text)
    assert text.startswith("// alibi, forward pass: bf16, head dim 64, for sm_80.\n") and text.endswith("}\n")


def test_each_leaf_file_is_inlined_once() -> None:
    text = '#include "memory/load.cuh"\n#include "common/element.cuh"\n#include "memory/load.cuh"\nint x;\n'
    found = assemble(text, "k")
    assert [line for line in found.splitlines() if line.startswith("// ----")] == [
        "// ---- element.cuh",
        "// ---- load.cuh",
    ]
    assert found.count("struct bf16") == 1
    assert found.count("float load(const float* address)") == 1
    assert found.index("struct bf16") < found.index("float load(const float* address)") < found.index("int x;")


def test_line_marks_name_the_file() -> None:
    text = render(plans.plan(plans.CAUSAL, "bf16", 64, 64, block_q=64, block_kv=64, warps=4)).text
    assert "#line restore" not in text


def test_a_template_that_fails_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "user_code", lambda plan: object())
    with pytest.raises(AttnccError, match=r"A903.*forward_q_outer.cu.j2 failed: UndefinedError"):
        render(plans.plan(plans.CAUSAL, "bf16", 64, 64))
