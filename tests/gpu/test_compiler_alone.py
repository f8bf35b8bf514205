"""Machine code is the same whatever ran in this process before: cuDNN changes options of a libnvrtc that it shares."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attncc.codegen.render import render
from attncc.compiler import load_specification
from attncc.resources import folder
from attncc.runtime.cuda import nvrtc
from attncc.runtime.store.store import Configuration

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CLEAN = "import json; from tests.gpu import test_compiler_alone as test; print(json.dumps(test.compiled()))"


def compiled() -> list[Any]:
    """Digest, registers and spills of backward kernels of `full`, two plans for each of two targets."""
    specification, _ = load_specification(folder("specs") / "full.attn", None, {})
    found = []
    for target in ("sm_80", "sm_90a"):
        keys, *_ = specification.backward_candidates(Configuration("bf16", 128, 128), target)
        for plan, _ in zip(keys.plans(), range(2), strict=False):
            source = render(plan)
            cubin = nvrtc.compile_text(source.text, target, f"{source.name}.cu")
            taken = cubin.resources
            digest = hashlib.sha256(cubin.image).hexdigest()
            found.append([digest, taken.registers, taken.spill_stores, taken.spill_loads])
    return found


@pytest.fixture(scope="module")
def clean() -> list[Any]:
    """The same from a process in which nothing else ran."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", CLEAN], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def cudnn(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def flex(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)(q, k, v)


def fa4(q: Any, k: Any, v: Any) -> Any:
    cute = pytest.importorskip("flash_attn.cute")
    return cute.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)))[0]


@pytest.mark.parametrize("peer", [cudnn, flex, fa4], ids=lambda peer: peer.__name__)
def test_the_same_after_others_ran(clean: list[Any], peer: Callable[..., Any]) -> None:
    q, k, v = (torch.randn(1, 4, 512, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    peer(q, k, v).sum().backward()
    torch.cuda.synchronize()
    assert compiled() == clean
    assert compiled() == clean  # nor does NVRTC 13 answer from its own cache, which drivers keep
