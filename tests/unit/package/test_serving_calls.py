"""Built packages treat every call of serving as compiled kernels do: on the CPU, and on the GPU that takes notes.

tests/gpu/test_packages.py makes the same calls on a GPU. For each target the texts of 38 kernels are made, which takes
most of the time; all tests share them.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.codegen.render import render
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import Candidates
from attncc.kernels.launched import structs
from attncc.kernels.parameters import Parameter
from attncc.machine_code import Compiled
from attncc.package import VariantPackage, prepare, write, write_hf_kernel
from attncc.problem.call_arguments import APPENDED, ARGUMENTS
from attncc.runtime.call import appender
from attncc.runtime.cuda.driver import Driver
from attncc.runtime.frameworks import arrays
from attncc.runtime.store import loaded_kernels
from attncc.schedule.plan import KernelPlan
from attncc.settle import Settled
from tests import serving_calls
from tests.serving_calls import BUILDS, ROWS_BY_NAME, SPEC, VARIANTS, Row, tensor
from tests.unit.package import made
from tests.unit.runtime.fakes import FakeCuda

ROOT = Path(__file__).resolve().parents[3]
# Arguments without a row: those of calls without a cache, and of a variant with dropout, which may be no row of all.
WITHOUT_CACHES = {"cu_seqlens_kv", "seed"}

Structs = dict[str, tuple[Parameter, ...]]


def test_the_table_has_every_argument() -> None:
    every = {*ARGUMENTS, *(item.name for item in APPENDED)}
    assert every - WITHOUT_CACHES == serving_calls.ARGUMENTS


def compiled(source: Any, target: str) -> Compiled:
    """Machine code from thin air, with the kernel's name behind it."""
    found = made.compiled(source, target)
    return replace(found, code=replace(found.code, image=found.code.image + b"\0name:" + source.name.encode()))


@cache
def settled_with(plan: KernelPlan) -> Settled:
    source = render(plan)
    return Settled(plan, source, compiled(source, plan.target), {})


def settled(candidates: Candidates, *_: Any) -> Settled:
    """The first plan, as if it had no troubles. Both ask for the same plans, whose texts are made once."""
    return settled_with(candidates.first)


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    """Nothing is compiled."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("attncc.package.writer.compiled", compiled)
        monkeypatch.setattr("attncc.package.writer.settle", settled)
        monkeypatch.setattr("attncc.compiler.compiled", compiled)
        monkeypatch.setattr("attncc.compiler.settle", settled)
        monkeypatch.setattr("attncc.machine_code.compiled", compiled)
        made.leave_texts_as_they_are(monkeypatch)
        yield monkeypatch


@pytest.fixture(scope="module", params=["sm_90a", pytest.param("sm_80", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prepared(target: str) -> list[VariantPackage]:
    return [package for asked in BUILDS for package in prepare(SPEC, archs=[target], **asked)]


@pytest.fixture(scope="module")
def package(patched: pytest.MonkeyPatch, target: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Structs]:
    """The package, and the fields of `Params` of its kernels."""
    out = tmp_path_factory.mktemp("built") / f"for_serving_{target}"
    packages = prepared(target)
    write(packages, out)
    patched.syspath_prepend(str(out.parent))
    plans = chain.from_iterable(item.plans for item in packages)
    return importlib.import_module(out.name), {name: item for plan in plans for name, item in structs(plan).items()}


@pytest.fixture(scope="module")
def kernels(patched: pytest.MonkeyPatch, target: str) -> dict[str, Any]:
    """What is compiled in memory."""
    asked = {"dtype": "fp16", "head_dim": 64, "arch": target}
    return {name: attncc.compile(SPEC, variant=name, **asked) for name in VARIANTS}


def found_by(function: Callable[..., Any], row: Row) -> tuple[Any, dict[str, Any]]:
    """The results, or the error's code and text; and what the call left in the arrays that it was given."""
    q, k, v, given = row.operands()
    try:
        result = function(q, k, v, **given)
    except AttnccError as error:
        result = error.diagnostics[0].code, str(error)
    return result, {"k": k, "v": v, "out": given.get("out")}


def same(found: Any, wanted: Any) -> bool:
    """Bit for bit."""
    if isinstance(wanted, tuple | dict):
        ours, theirs = (list(x.values()) if isinstance(x, dict) else list(x) for x in (found, wanted))
        return type(found) is type(wanted) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(np.asarray(found).tobytes() == np.asarray(wanted).tobytes())


@pytest.mark.parametrize("name", ROWS_BY_NAME)
def test_on_the_cpu(package: tuple[Any, Structs], kernels: dict[str, Any], name: str) -> None:
    row = ROWS_BY_NAME[name]
    wanted = found_by(kernels[row.variant], row)
    assert (wanted[0][0] if isinstance(wanted[0], tuple) and row.code else None) == row.code
    assert same(found_by(getattr(package[0], row.variant), row), wanted)
    result, _ = wanted
    if row.code is None:
        out = result[0] if isinstance(result, tuple) else result
        assert np.isfinite(out.astype(np.float32)).all() and out.any()


# Makes all calls by a kernel repository, which brings its own runtime, without attncc and CuPy.
ALONE = """
import importlib.util, pickle, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("attncc", "cupy", "torch"):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
spec = importlib.util.spec_from_file_location("alone", {file!r})
alone = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
from tests.serving_calls import ROWS_BY_NAME
found = dict()
for name, row in ROWS_BY_NAME.items():
    q, k, v, given = row.operands()
    try:
        result = getattr(alone, row.variant)(q, k, v, **given)
    except Exception as error:
        result = error.diagnostics[0].code, str(error)
    found[name] = result, dict(k=k, v=v, out=given.get("out"))
pickle.dump(found, open({out!r}, "wb"))
"""


@pytest.mark.slow
def test_repositories_on_the_cpu(target: str, kernels: dict[str, Any], tmp_path: Path) -> None:
    """One process makes all calls."""
    repository, results = tmp_path / "for-serving", tmp_path / "results"
    write_hf_kernel(prepared(target), repository)
    file = repository / "build" / "torch-universal" / "__init__.py"
    code = ALONE.format(file=str(file), out=str(results))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = pickle.loads(results.read_bytes())
    assert found.keys() == ROWS_BY_NAME.keys()
    for name, row in ROWS_BY_NAME.items():
        assert same(found[name], found_by(kernels[row.variant], row)), name


# -------------------------------------------------------------------- GPU


class NamedCuda(FakeCuda):
    """Knows a kernel by the name behind its machine code."""

    def cuModuleLoadData(self, module: Any, image: bytes) -> None:  # noqa: N802
        super().cuModuleLoadData(module, image)
        self._name = bytes(image).rpartition(b"\0name:")[2]

    def cuModuleGetFunction(self, function: Any, module: Any, entry: bytes) -> None:  # noqa: N802
        super().cuModuleGetFunction(function, module, self._name)


def gpu(structs: Structs, target: str, monkeypatch: pytest.MonkeyPatch) -> NamedCuda:
    cuda = NamedCuda(structs, capability=int(target[3:5]))  # type: ignore[arg-type]
    driver = Driver(cuda)  # type: ignore[arg-type]
    for module in (loaded_kernels, appender):
        monkeypatch.setattr(module, "driver", lambda: driver)
    return cuda


def launched_by(function: Any, row: Row, structs: Structs, target: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All launches of a call on a GPU of its own, without addresses; or the code and the text of the error."""
    torch = pytest.importorskip("torch")
    from tests.unit.runtime.torch.on_gpu import OnGpu

    cuda = gpu(structs, target, monkeypatch)
    monkeypatch.setitem(arrays.known_frameworks, torch.Tensor, OnGpu())

    q, k, v, given = row.operands()
    try:
        function(*map(tensor, (q, k, v)), **{name: tensor(value) for name, value in given.items()})
    except AttnccError as error:
        return error.diagnostics[0].code, str(error)
    maps = [{name: x for name, x in made.items() if name != "base"} for made in cuda.maps.values()]
    return [(item.kernel, item.grid, item.threads, item.early, item.paired, told(item)) for item in cuda.launches], maps


def told(launch: Any) -> list[tuple[str, Any]]:
    return [(name, "an address" if is_address(value) else value) for name, value in sorted(launch.params.items())]


def is_address(value: Any) -> bool:
    return isinstance(value, int) and 1 << 32 < value < 1 << 48


@pytest.fixture
def fresh(package: tuple[Any, Structs], kernels: dict[str, Any]) -> tuple[Any, dict[str, Any], Structs]:
    """The same, with nothing loaded yet."""
    folder = Path(package[0].__file__).parent
    stores = {name: type(getattr(package[0], name).package.kernel.store)(folder / name) for name in VARIANTS}
    for name in VARIANTS:
        getattr(package[0], name).package._kernel = attncc.Kernel(stores[name])
    return package[0], {name: attncc.Kernel(item.store) for name, item in kernels.items()}, package[1]


@pytest.mark.parametrize("name", ROWS_BY_NAME)
def test_on_a_gpu(
    fresh: tuple[Any, dict[str, Any], Structs], target: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, kernels, structs = fresh
    row = ROWS_BY_NAME[name]
    wanted = launched_by(kernels[row.variant], row, structs, target, monkeypatch)
    found = launched_by(getattr(package, row.variant), row, structs, target, monkeypatch)
    assert found == wanted
    if row.code is not None:
        assert wanted[0] == row.code
        return
    names = [launch[0] for launch in wanted[0]]
    prefixed = [item for item in names if "_prefix_" in item]
    assert len(prefixed) == (0 if not row.given.get("shared_prefix") else 1 if row.given["shared_prefix"] < 128 else 2)
    assert sum("append_" in item for item in names) == ("k_new" in row.given)
    assert sum("_paged_" in item for item in names) == ("block_table" in row.given) * max(1, len(prefixed))


@pytest.mark.usefixtures("patched")
def test_a_package_says_what_it_was_not_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the table runs, or the option is named that makes its kernels."""
    packages = prepare(SPEC, archs=["sm_90a"], dtypes=["fp16"], head_dims=[64], variants=["sloped"])
    write(packages, tmp_path / "for_forward_calls")
    monkeypatch.syspath_prepend(str(tmp_path))
    sloped = importlib.import_module("for_forward_calls").sloped
    made = {name: item for package in packages for plan in package.plans for name, item in structs(plan).items()}
    for name, row in ROWS_BY_NAME.items():
        if row.variant != "sloped" or row.code is not None:
            continue
        options = ["--serving"] if {"block_table", "shared_prefix", "k_new"} & row.given.keys() else []
        kept_in = str(row.given["k"].dtype).replace("float8_e4m3fn", "e4m3")
        options += [] if kept_in == "float16" else [f"--kv-dtype {kept_in}"]
        found = launched_by(sloped, row, made, "sm_90a", monkeypatch)
        refused = found[0] == "A505" and f"attncc build FILE {' '.join(options)}" in found[1]
        assert refused if options else isinstance(found[0], list), name


def test_load_takes_all_kernels_of_calls(
    fresh: tuple[Any, dict[str, Any], Structs], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of pages, 8 bits and shared prefixes too, so that a graph may record the first call."""
    package, _, structs = fresh
    cuda = gpu(structs, target, monkeypatch)
    package.sloped.load(0)
    assert set(cuda.loaded) == {name for name in structs if not name.startswith(("tree_", "ordered_"))}
