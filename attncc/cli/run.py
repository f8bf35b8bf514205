"""`attncc run`: the whole way from a .attn file to checked attention."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError, AttnccWarning, Diagnostic
from ..quoting import json_text
from .console import Steps, as_json, progress
from .files import load_specification
from .options import (
    SPEC_FILE,
    check_for_gpu,
    define_option,
    dtype_option,
    format_option,
    imports_option,
    input_option,
    problem_options,
    seed_option,
    variant_option,
)

if TYPE_CHECKING:
    from ..compiler import Specification
    from ..ir import Variant
    from ..kernels.crossings import Chip
    from ..package import BuiltVariant, VariantPackage
    from ..problem import Problem
    from ..reference import Accuracy
    from ..schedule.plan import KernelPlan

PACKAGE = "attncc_run"  # the name of the package while it is tried


@click.command("run", short_help="From the file to attention, checked against an fp64 reference.")
@click.argument("file", type=SPEC_FILE)
@variant_option
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="A GPU if there is one, if not given; e4m3: cpu.")
@dtype_option
@problem_options(q_len=300, heads=4, batch=2)
@seed_option("Seed of random arrays and of dropout.")
@input_option
@define_option
@imports_option
@format_option
def command(*, file: Path, device: str | None, **given: Any) -> None:
    """Go the whole way: parse the file, analyse its mask, generate CUDA, compile it, import the package that this
    makes, run it on random arrays, and compare the result with dense attention in fp64.

    The kernel runs on a GPU if there is one; else the CPU executor walks the same tiles in the same order. There, the
    package is left out, and that is said, where no compiler (NVRTC) is installed. The exit status is 1 if the result is
    further off than rounding explains.

    \b
    attncc run alibi_documents
    attncc run sliding_window -D width=64 --q-len 1 --kv-len 5000 --kv-heads 2
    attncc run mine.attn --device cpu -i prefix=100
    """
    from ..executor.run import bind_for
    from ..kernels.serving import executed_plan, plan_for

    steps = Steps(shown=not as_json())
    with steps.step("parse") as say:
        specification = load_specification(file, given)
        say(_parsed(specification))
    device, target, name, chip = _device(device, given["dtype"])
    with steps.step("analyse") as say, progress("analysing"):
        package = _package(file, specification, target, given)
        choose = plan_for if device == "cuda" else executed_plan
        plan = choose(package.plans, given["problem"], chip)
        inputs = _inputs(plan, given)
        arrays, call = _arguments(specification, given, inputs)
        bind_for(package.plans, *arrays, **call)  # what is wrong with -i is said before anything is compiled
        say(_analysed(plan, given["problem"], inputs))
    with steps.step("generate") as say:
        lines = {name: source.text.count("\n") for name, (source, _) in package.sources.items()}
        say("\n".join(f"{name}.cu, {count} lines of CUDA" for name, count in lines.items()))
    with tempfile.TemporaryDirectory() as folder:
        with steps.step("compile") as say:
            built = _write(package, Path(folder), optional=device == "cpu")
            say(_NO_COMPILER if built is None else _compiled(built))
        if built is None:
            kernel = _uncompiled(specification, given)
        else:
            with steps.step("import") as say:
                kernel = _imported(folder, package.name)
                say(f"from {PACKAGE} import {package.name}: a folder of {_size(Path(folder))}")
        with steps.step("run") as say, progress("running"):
            out = _run(kernel, arrays, call, device)
            say(f"{_shapes(*arrays)}, {given['dtype']}, on {name}")
        with steps.step("check") as say, progress("computing the reference"):
            accuracy = _check(specification.variant, arrays, call, out, given["dtype"])
            say(_judged(accuracy))
    if not accuracy.holds:
        raise AttnccError(Diagnostic("A904", f"{package.name} on {device}: {accuracy}", help="please report this"))
    if as_json():
        click.echo(json_text(_result(plan, name, built, accuracy), indent=2))


def _result(plan: KernelPlan, device: str, built: BuiltVariant | None, accuracy: Accuracy) -> dict[str, Any]:
    """What `--format json` prints where all went well."""
    return {
        "variant": plan.variant.name,
        "pass": plan.pass_name,
        "target": plan.target,
        "device": device,
        "resources": {name: asdict(resources) for name, resources in built.resources.items()} if built else None,
        "accuracy": asdict(accuracy),
    }


def _parsed(specification: Specification) -> str:
    variant = specification.variant
    counts = {
        "input": len(variant.inputs),
        "keep line": len(variant.keeps),
        "score line": len(variant.scores),
        "schedule": len(specification.schedules),
    }
    parts = [f"{count} {what}{'s' * (count > 1)}" for what, count in counts.items() if count]
    return f"{variant.name}{': ' * bool(parts)}{', '.join(parts)}"


def _shapes(q: Any, k: Any, v: Any) -> str:
    if q.shape == k.shape == v.shape:
        return f"q, k, v {list(q.shape)}"
    return f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"


def _device(wanted: str | None, dtype: str) -> tuple[str, str, str, Chip | None]:
    """cpu or cuda, the target to compile for, a name to print, and the GPU. For the CPU it is the first target that has
    kernels of the dtype.

    AttnccError A503 if a GPU was asked for in vain.
    """
    from ..kernels.registry import targets_of
    from ..runtime.cuda.device import best_target
    from ..runtime.cuda.driver import driver
    from ..runtime.frameworks.transfer import ABSENT
    from ..runtime.store.crossings import chip_of

    targets = targets_of(dtype)
    if wanted == "cuda":
        check_for_gpu(dtype)
    if wanted != "cpu" and dtype != ABSENT:
        try:
            gpu = driver().device(0)
        except AttnccError as error:
            if wanted == "cuda" or {item.code for item in error.diagnostics} != {"A503"}:
                raise
        else:
            # Without a target for this GPU, the refusal that names the build command comes from the launch.
            chip = chip_of(gpu.name, gpu.multiprocessors)
            return "cuda", best_target(targets, gpu.capability) or targets[0], gpu.name, chip
    return "cpu", targets[0], "the CPU executor", None


def _package(file: Path, specification: Specification, target: str, given: dict[str, Any]) -> VariantPackage:
    from ..package import prepare

    problem: Problem = given["problem"]
    asked: dict[str, Any] = {"archs": [target], "dtypes": [given["dtype"]], "defines": given["defines"]}
    asked |= {"head_dims": [(problem.head_dim, problem.value_head_dim)], "variants": [specification.variant.name]}
    asked |= {"allow_imports": given["allow_imports"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttnccWarning)  # printed when the file was loaded
        (package,) = prepare(file, **asked)
    return package


def _inputs(plan: KernelPlan, given: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from .. import synthetic

    drawn = synthetic.inputs(plan.variant, given["problem"], np.random.default_rng(given["seed"]))
    return {**drawn, **given["given_inputs"]}


def _analysed(plan: KernelPlan, problem: Problem, inputs: Mapping[str, Any]) -> str:
    from ..analysis.rules import TileKind
    from ..explain import tallies

    counts = [tally.kinds for tally in tallies(plan, problem, inputs)]
    total = sum(sum(kinds.values()) for kinds in counts)
    shares = [f"{sum(kinds[kind] for kinds in counts) / total:.0%} {kind.name.lower()}" for kind in TileKind]
    tables = ", ".join(min_max_table.input for min_max_table in plan.rules.min_max_tables)
    made = f"\nmin/max tables of {tables}" if tables else ""
    made += f"\n{', '.join(plan.rules.sorted_hints)} verified to be nondecreasing" if plan.rules.sorted_hints else ""
    return f"{plan.pass_name}, tiles of {plan.block_q} x {plan.block_kv}: {', '.join(shares)}{made}"


def _write(package: VariantPackage, folder: Path, optional: bool) -> BuiltVariant | None:
    """None where no compiler is installed, if it is `optional`, since the CPU executor needs none.

    AttnccError A501 otherwise, or if ATTNCC_NVRTC names a library that can't be loaded.
    """
    from ..package import write
    from ..runtime.cuda.nvrtc import OVERRIDE

    try:
        with progress("compiling", len(package.sources)) as advance:
            return write([package], folder / PACKAGE, advance=advance)[0]
    except AttnccError as error:
        missing = {item.code for item in error.diagnostics} == {"A501"} and OVERRIDE not in os.environ
        if optional and missing:
            return None
        raise


_NO_COMPILER = """left out: NVRTC, the compiler, isn't installed
pip install 'attncc[cuda13]' (driver 580 or newer), or 'attncc[cuda12]'"""


def _uncompiled(specification: Specification, given: dict[str, Any]) -> Any:
    """The kernel for the CPU executor alone."""
    from ..compiler import CompiledStore
    from ..runtime.kernel import Kernel
    from ..runtime.store.store import Configuration

    problem: Problem = given["problem"]
    configuration = Configuration(given["dtype"], problem.head_dim, problem.value_head_dim)
    return Kernel(CompiledStore(specification, configuration, ()))


def _compiled(built: BuiltVariant) -> str:
    def report(name: str) -> str:
        resources = built.resources[name]
        spills = resources.spill_stores + resources.spill_loads
        return f"{name}: {resources.registers} registers, {f'{spills} bytes of spills' if spills else 'no spills'}"

    return "\n".join(map(report, built.resources))


def _size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1024:.0f} KiB"


def _imported(folder: str, name: str) -> Any:
    sys.path.insert(0, folder)
    try:
        return getattr(importlib.import_module(PACKAGE), name)
    finally:
        sys.path.remove(folder)
        for module in [item for item in sys.modules if item.partition(".")[0] == PACKAGE]:
            del sys.modules[module]


def _arguments(
    specification: Specification, given: dict[str, Any], inputs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """q, k, v and the keyword arguments of the call."""
    import numpy as np

    from .. import synthetic

    arrays = synthetic.qkv(given["problem"], given["dtype"], np.random.default_rng(given["seed"] + 1))
    seed = {"seed": given["seed"]} if specification.variant.dropout is not None else {}
    return arrays, {**inputs, **seed}


def _run(kernel: Any, arrays: tuple[Any, ...], call: dict[str, Any], device: str) -> Any:
    import numpy as np

    if device == "cpu":
        return kernel(*arrays, **call)
    from ..runtime.frameworks.transfer import to_gpu, to_host

    moved = {name: to_gpu(value) if isinstance(value, np.ndarray) else value for name, value in call.items()}
    return to_host(kernel(*map(to_gpu, arrays), **moved))


def _check(variant: Variant, arrays: tuple[Any, ...], call: dict[str, Any], out: Any, dtype: str) -> Accuracy:
    import numpy as np

    from .. import reference

    exact, _ = reference.forward(variant, *arrays, **call)
    baseline, _ = reference.baseline(variant, *arrays, **call)
    if all(np.isfinite(values.astype(np.float64)).all() for values in (out, baseline, exact)):
        return reference.accuracy(out, baseline, exact, dtype)
    in_kernel = reference.in_kernel_precision(variant, *arrays, **call)
    return reference.accuracy_where_defined(out, baseline, exact, in_kernel, dtype)


def _judged(accuracy: Accuracy) -> str:
    errors = str(accuracy).replace(", ", "\n")
    verdict = f"{'within' if accuracy.holds else 'OUTSIDE'} the accuracy rule\n{errors}"
    rows = accuracy.undefined_rows
    if not rows:
        return verdict
    are = "row is" if rows == 1 else "rows are"
    return f"{verdict}\n{rows} {are} NaN or infinite by the score lines, as IEEE 754 has it: not compared"
