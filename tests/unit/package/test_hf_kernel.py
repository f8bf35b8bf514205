"""`attncc build --package hf-kernel`: what Hugging Face's `kernels` library loads, without attncc and CuPy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attncc.cli import attncc
from attncc.diagnostics import AttnccError
from attncc.package import prepare, write_hf_kernel
from attncc.package.hf_kernel import RUNTIME_PARTS
from tests.test_layering import BUILT_PACKAGE_PARTS

SPEC = "attn 1\nvariant hf_sloped { input slope: f32[head] learnable  score = score - slope[h] * (q_pos - kv_idx) }\n"
SMALL = {"archs": ["sm_80"], "dtypes": ["fp32"], "head_dims": [16]}

# Runs without the libraries in `blocked`: attention of ones is one, that of a slope has a gradient.
LOADED = """
import sys
from pathlib import Path
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
{load}
import torch
q, k, v = (torch.ones(1, 2, 5, 16) for _ in range(3))
slope = torch.full((2,), 0.5, requires_grad=True)
out = kernel.hf_sloped(q, k, torch.arange(5.0)[:, None].expand(1, 2, 5, 16).contiguous(), slope=slope)
out.sum().backward()
assert (slope.grad > 0).all() and torch.allclose(kernel.hf_sloped(q, k, v, slope=slope.detach()), v)
assert any(name.startswith(kernel.__name__) for name in dir(torch.ops)), dir(torch.ops)
print("good")
"""
BY_THE_LIBRARY = "import kernels; kernel = kernels.get_local_kernel(Path({path!r}), backend='cpu')"
BY_HAND = """
import importlib.util, json
folder = Path({path!r}) / "build" / "torch-universal"
name = json.loads((folder / "metadata.json").read_text())["id"]
spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
kernel = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel)
"""


def spec_file(folder: Path) -> Path:
    path = folder / "hf_sloped.attn"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "sloped-attention"
    write_hf_kernel(prepare(spec_file(tmp_path_factory.mktemp("spec")), **SMALL), out)
    return out


_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def run(repository: Path, load: str) -> None:
    code = LOADED.format(blocked=["attncc", "cupy"], load=load.format(path=str(repository)))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=False, env=_ENVIRONMENT
    )
    assert done.stdout.strip().endswith("good"), done.stderr


def test_the_library_loads_it(repository: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("kernels")
    run(repository, BY_THE_LIBRARY)


def test_it_needs_torch_alone(repository: Path) -> None:
    pytest.importorskip("torch")
    run(repository, BY_HAND)


@pytest.mark.parametrize("again", ["hf_sloped", "other"])
def test_a_second_build_leaves_one_that_loads(again: str, repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / repository.name
    shutil.copytree(repository, out)
    spec = spec_file(tmp_path) if again == "hf_sloped" else "attn 1\nvariant other { keep if q_pos >= kv_idx }\n"
    write_hf_kernel(prepare(spec, **SMALL), out)
    run(out, BY_HAND)


def test_files(repository: Path) -> None:
    folder = repository / "build" / "torch-universal"
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["name"], metadata["version"], metadata["python-depends"]) == ("sloped-attention", 1, [])
    assert metadata["id"].startswith("_sloped_attention_cuda_") and metadata["id"].isidentifier()
    assert sorted(path.suffix for path in (folder / "hf_sloped").iterdir() if path.suffix == ".cubin") == [".cubin"]
    assert "from .._attncc.runtime.package import" in (folder / "hf_sloped" / "__init__.py").read_text()
    imports = [
        line
        for path in folder.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith(("import attncc", "from attncc"))
    ]
    assert imports == []


def test_it_brings_what_built_packages_load() -> None:
    assert RUNTIME_PARTS == BUILT_PACKAGE_PARTS


@pytest.mark.parametrize("name", ["My-Kernel", "my_kernel", "1-kernel", "kernel-"])
def test_names_that_no_kernel_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(AttnccError, match="A523"):
        write_hf_kernel(prepare(spec_file(tmp_path), **SMALL), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "my-attention"
    asked = ["build", str(spec_file(tmp_path)), "--package", "hf-kernel", "-o", str(out)]
    done = CliRunner().invoke(attncc, [*asked, "--arch", "sm_80", "--dtype", "fp32", "--head-dim", "16"])
    assert done.exit_code == 0, done.output
    assert (out / "build" / "torch-universal" / "metadata.json").exists()
