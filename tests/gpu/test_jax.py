"""`attncc.jax` on a GPU: values and gradients in XLA's programs, of `jax_checks.py` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax_plugins.xla_cuda13", reason="needs jax[cuda13]")
pytestmark = pytest.mark.gpu

# Relative errors of rounding to bf16 or fp16; what is fp32, or the same bits.
ROUNDED = {
    "causal",
    "alibi_gradients",
    "filled_rows",
    "mapped",
    "one_query",
    "shared_keys",
    "replayed",
    "decoded_again",
}
EXACT = {"fp32": 1e-4, "dropout": 1e-3, "deterministic": 0.0}


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"  # programs of XLA run once
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": flags}
    command = [sys.executable, "-m", "tests.gpu.jax_checks"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    print(done.stderr[-4000:])
    assert done.returncode == 0
    return json.loads(done.stdout.splitlines()[-1])


def test_all_is_checked(errors: dict[str, dict[str, float]]) -> None:
    assert set(errors) == ROUNDED | set(EXACT) and all(errors.values())


@pytest.mark.parametrize("name", sorted(ROUNDED))
def test_results_are_right_to_rounding(errors: dict[str, dict[str, float]], name: str) -> None:
    assert all(error < 0.01 for error in errors[name].values()), errors[name]


@pytest.mark.parametrize("name", sorted(EXACT))
def test_results_are_exact(errors: dict[str, dict[str, float]], name: str) -> None:
    assert all(error <= EXACT[name] for error in errors[name].values()), errors[name]
