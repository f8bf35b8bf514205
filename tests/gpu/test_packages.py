"""Packages for serving on a GPU: each call of tests/serving_calls.py gives the bits that compiled kernels give.

By torch without CuPy and ml_dtypes; by a kernel repository without attncc, too; by CuPy; and by a CUDA graph that
records the first call of a package.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.package import VariantPackage, prepare, write, write_hf_kernel
from attncc.runtime.store.package_store import PackageStore
from tests.devices import cuda
from tests.serving_calls import BUILDS, ROWS_BY_NAME, SPEC, VARIANTS, Row, tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]

# Makes the calls of a file in a process without some libraries, and compares with the results in it.
ALONE = """
import importlib.util, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import torch
spec = importlib.util.spec_from_file_location("alone", {file!r})
alone = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)

def on_gpu(x):
    return tuple(map(on_gpu, x)) if isinstance(x, tuple) else x.cuda() if isinstance(x, torch.Tensor) else x

def same(a, b):
    if isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.cpu().contiguous().view(torch.uint8), b.view(torch.uint8))
    return a == b

differing = []
for name, variant, given, wanted in torch.load({calls!r}):
    given = dict((key, on_gpu(value)) for key, value in given.items())
    try:
        found = getattr(alone, variant)(**given)
        found = [found, given["k"], given["v"]]
    except Exception as error:
        found = str(error)
    if not same(found, wanted):
        differing.append((name, found if isinstance(found, str) else ""))
assert not differing, differing
print("good")
"""


def on_gpu(value: Any) -> Any:
    return tuple(map(on_gpu, value)) if isinstance(value, tuple) else getattr(value, "cuda", lambda: value)()


def tensors(row: Row) -> dict[str, Any]:
    """The call, on the CPU."""
    q, k, v, given = row.operands()
    return {name: tensor(value) for name, value in {"q": q, "k": k, "v": v, **given}.items()}


def on_cpu(value: Any) -> Any:
    return tuple(map(on_cpu, value)) if isinstance(value, tuple) else value.cpu().contiguous()


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return {name: attncc.compile(SPEC, variant=name, dtype="fp16", head_dim=64) for name in VARIANTS}


@pytest.fixture(scope="module")
def packages() -> list[VariantPackage]:
    arch = cuda().arch
    archs = ["sm_90a" if arch == "sm_90" else arch]
    return [package for asked in BUILDS for package in prepare(SPEC, archs=archs, **asked)]


@pytest.fixture(scope="module")
def built(packages: list[VariantPackage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """First of all: it compiles all kernels beside each other."""
    folder = tmp_path_factory.mktemp("built") / "package_for_serving"
    write(packages, folder)
    return folder


@pytest.fixture(scope="module")
def results(built: Path, kernels: dict[str, Any]) -> dict[str, Any]:
    """What compiled kernels give, and what they leave in k and v; the texts of errors."""
    found: dict[str, Any] = {}
    for name, row in ROWS_BY_NAME.items():
        given = {key: on_gpu(value) for key, value in tensors(row).items()}
        try:
            result = kernels[row.variant](**given)
        except AttnccError as error:
            assert error.diagnostics[0].code == row.code, name
            found[name] = str(error)
        else:
            assert row.code is None, name
            out = result[0] if isinstance(result, tuple) else result
            assert out.isfinite().all() and out.count_nonzero(), name
            found[name] = [on_cpu(result), on_cpu(given["k"]), on_cpu(given["v"])]
    return found


@pytest.fixture(scope="module")
def calls(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("calls") / "calls.pt"
    torch.save([(name, row.variant, tensors(row), results[name]) for name, row in ROWS_BY_NAME.items()], path)
    return path


@pytest.mark.parametrize("name", [name for name, row in ROWS_BY_NAME.items() if row.code is None and "prefix" in name])
def test_prefixes_change_no_result(results: dict[str, Any], kernels: dict[str, Any], name: str) -> None:
    """Up to the order of sums."""
    row = ROWS_BY_NAME[name]
    given = {key: on_gpu(value) for key, value in tensors(row).items() if key != "shared_prefix"}
    wanted = on_cpu(kernels[row.variant](**given))
    torch.testing.assert_close(results[name][0], wanted, atol=3e-3, rtol=3e-3)


def run_alone(file: Path, calls: Path, *blocked: str) -> None:
    code = ALONE.format(blocked=blocked, file=str(file), calls=str(calls))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("good"), done.stderr[-3000:]


def test_torch_without_cupy(built: Path, calls: Path) -> None:
    run_alone(built / "__init__.py", calls, "cupy", "ml_dtypes")


def test_repositories_without_attncc(packages: list[VariantPackage], calls: Path, tmp_path: Path) -> None:
    write_hf_kernel(packages, tmp_path / "for-serving")
    file = tmp_path / "for-serving" / "build" / "torch-universal" / "__init__.py"
    run_alone(file, calls, "cupy", "ml_dtypes", "attncc")


@pytest.fixture(scope="module")
def package(built: Path) -> Any:
    sys.path.insert(0, str(built.parent))
    yield importlib.import_module(built.name)
    sys.path.remove(str(built.parent))


def test_cupy(package: Any, results: dict[str, Any]) -> None:
    """But for e4m3, which CuPy's arrays can't hold."""
    cupy = pytest.importorskip("cupy")

    def array(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(array, value))
        return cupy.asarray(value) if isinstance(value, np.ndarray) else value

    for name, row in ROWS_BY_NAME.items():
        if row.code is None and "e4m3" not in name:
            q, k, v, given = row.operands()
            q, k, v = map(array, (q, k, v))
            found = getattr(package, row.variant)(q, k, v, **{key: array(value) for key, value in given.items()})
            wanted, *_ = results[name]
            pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),)
            assert all(cupy.asnumpy(a).tobytes() == b.numpy().tobytes() for a, b in pairs), name


@pytest.mark.parametrize("name", ["pages bhsd, shared_prefix", "kv_lens bhsd, shared_prefix", "tree in pages"])
def test_a_graph_records_the_first_call(package: Any, results: dict[str, Any], name: str) -> None:
    """`load` has loaded its kernels: those of pages and of shared prefixes, too."""
    row = ROWS_BY_NAME[name]
    folder = Path(package.__file__).parent / row.variant
    function = attncc.Kernel(PackageStore(folder))
    function.load(0)
    given = {key: on_gpu(value) for key, value in tensors(row).items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(**given)
    for _ in range(2):
        out.zero_()
        graph.replay()
        assert torch.equal(out.cpu(), results[name][0])
