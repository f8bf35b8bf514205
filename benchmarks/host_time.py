"""Host time of one call, and from import to the first result.

    python -m benchmarks.host_time [--out FOLDER]

The queue is kept short (a few launches of a tiny problem, then a synchronisation outside the timed region), so that
only the caller's own work is timed. The median over many calls counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attncc

from .forward import SPECS
from .measure import RESULTS, table, write

CALLS = 8
ROUNDS = 300
MORE_BLOCKS = "causal, more blocks than the GPU holds"
VERIFIED = "alibi_documents, verified first"

# Runs in a fresh process: CUDA is started first, so that only the package's own cost is timed.
FIRST_CALL = """
import sys, time, torch
q, k, v = (torch.randn(1, 8, 128, 64, device="cuda").bfloat16() for _ in range(3))
torch.cuda.synchronize()
sys.path.insert(0, {folder!r})
start = time.perf_counter()
from generated import causal
imported = time.perf_counter()
causal(q, k, v)
torch.cuda.synchronize()
print(imported - start, time.perf_counter() - imported)
"""


def microseconds(call: Callable[[], object]) -> float:
    """Median host time of one call."""
    samples = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(samples)


def calls() -> dict[str, Callable[[], object]]:
    """Tiny problems: what a call costs the host does not depend on their size, but for whether blocks are claimed, and
    whether there are so many keys that a launch of its own verifies that documents are in order."""
    q, k, v = (torch.randn(2, 8, 128, 64, device="cuda").bfloat16() for _ in range(3))
    out, long, few = (
        torch.randn(shape, device="cuda").bfloat16() for shape in (q.shape, (8, 2, 16384, 64), (8, 2, 128, 64))
    )
    slope = torch.rand(8, device="cuda")
    doc = torch.zeros(2, 128, dtype=torch.int32, device="cuda")
    keys = torch.randn(2, 8, 512, 64, device="cuda").bfloat16()
    docs = torch.zeros(2, 512, dtype=torch.int32, device="cuda")
    causal = attncc.compile(SPECS / "causal.attn", dtype="bf16", head_dim=64)
    documents = attncc.compile(SPECS / "alibi_documents.attn", dtype="bf16", head_dim=64)

    def sdpa(q: Any = q, k: Any = k, v: Any = v) -> Any:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def trained(call: Callable[..., Any]) -> list[Any]:
        return list(torch.autograd.grad(call(*leaves), leaves, out))

    return {
        "causal": lambda: causal(q, k, v),
        MORE_BLOCKS: lambda: causal(long, few, few),
        "causal, out=": lambda: causal(q, k, v, out=out),
        "causal, lse": lambda: causal(q, k, v, return_lse=True),
        "alibi_documents": lambda: documents(q, k, v, slope=slope, doc=doc, cap=30.0, seed=1),
        VERIFIED: lambda: documents(q, keys, keys, slope=slope, doc=docs, cap=30.0, seed=1),
        "causal, recorded": lambda: causal(*leaves),
        "causal, recorded, and its gradients": lambda: trained(causal),
        "FA2 (SDPA)": sdpa,
        "FA2 (SDPA), recorded": lambda: sdpa(*leaves),
        "FA2 (SDPA), recorded, and its gradients": lambda: trained(sdpa),
    }


def first_call() -> dict[str, float]:
    """Milliseconds to import a generated package and to its first result, CUDA already up; the median of 5."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "attncc", "build", str(SPECS / "causal.attn"), "-o", f"{folder}/generated"]
        subprocess.run([*build, "--arch", "sm_90", "--head-dim", "64"], check=True, stdout=subprocess.DEVNULL)
        command = [sys.executable, "-c", FIRST_CALL.format(folder=folder)]
        env = os.environ | {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}  # kept, as of what is installed
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        runs = [subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout for _ in range(5)]
    imported, launched = zip(*(map(float, line.split()) for line in runs), strict=True)
    return {"import": statistics.median(imported) * 1e3, "first call": statistics.median(launched) * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    timed = calls()
    rows: list[dict[str, Any]] = [{"what": what, "microseconds": microseconds(call)} for what, call in timed.items()]
    with torch.cuda.stream(torch.cuda.Stream()):
        rows.append({"what": "the same on a side stream", "microseconds": microseconds(timed[MORE_BLOCKS])})
    rows += [{"what": what, "microseconds": value * 1e3} for what, value in first_call().items()]
    path = write("host_time", rows, options.out)
    print(f"{path}\n{table(('us', 'what'), [(row['microseconds'], row['what']) for row in rows])}")


if __name__ == "__main__":
    main()
