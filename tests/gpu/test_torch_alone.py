"""A built package on a GPU with torch and NumPy alone: without CuPy, ml_dtypes, and, as a kernel repository, attncc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attncc.package import VariantPackage, prepare, write, write_hf_kernel
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SPEC = """attn 1
variant alone {
    input slope: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
}
"""
CALLS = """
import importlib.util, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import torch
spec = importlib.util.spec_from_file_location("alone_package", {file!r})
package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 300, 64, device="cuda").bfloat16().requires_grad_() for _ in range(3))
slope = torch.linspace(0.01, 0.1, 4, device="cuda").requires_grad_()

def dense(q, k, v, slope):
    i = torch.arange(300, device="cuda")
    scores = q.float() @ k.float().mT / 8 - slope[:, None, None] * (i[:, None] - i)
    return scores.masked_fill(i[:, None] < i, -torch.inf).softmax(-1) @ v.float()

given = q, k, v, slope
compiled = torch.compile(lambda q, k, v, slope: package.alone(q, k, v, slope=slope), fullgraph=True)
for call in (lambda *x: package.alone(*x[:3], slope=x[3]), compiled):
    found, wanted = call(*given), dense(*given)
    dout = torch.randn_like(wanted)
    pairs = [(found, wanted), *zip(*(torch.autograd.grad((out * dout).sum(), given) for out in (found, wanted)))]
    for a, b in pairs:
        error = ((a.float() - b.float()).norm() / b.float().norm()).item()
        assert error < 0.01, error
print("good")
"""


@pytest.fixture
def packages(tmp_path: Path) -> tuple[VariantPackage, ...]:
    spec = tmp_path / "alone.attn"
    spec.write_text(SPEC)
    arch = cuda().arch
    archs = ["sm_90a" if arch == "sm_90" else arch]
    return prepare(spec, archs=archs, dtypes=["bf16"], head_dims=[64], backward=True)


def run(folder: Path, *blocked: str) -> None:
    code = CALLS.format(blocked=blocked, file=str(folder / "__init__.py"))
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("good"), done.stderr[-3000:]


def test_packages_need_no_cupy(packages: tuple[VariantPackage, ...], tmp_path: Path) -> None:
    write(packages, tmp_path / "package")
    run(tmp_path / "package", "cupy", "ml_dtypes")


def test_kernel_repositories_need_no_attncc(packages: tuple[VariantPackage, ...], tmp_path: Path) -> None:
    write_hf_kernel(packages, tmp_path / "repository")
    run(tmp_path / "repository" / "build" / "torch-universal", "cupy", "ml_dtypes", "attncc")
