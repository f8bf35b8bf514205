"""Built packages that lack something or are damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.rules import QBounds
from attncc.diagnostics import AttnccError
from attncc.ir import const, symbol
from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.parameters import Parameter, struct_digest
from attncc.kernels.registry import facts_of
from attncc.package.variant_package import plan_text
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.manifest import MANIFEST, digest
from attncc.runtime.store.package_store import PLAN_SUFFIX, PackageStore
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KEY_PASSES, TILES_2D_PASSES, KernelPlan
from attncc.version import __version__
from tests import plans

ROWS = QBounds(const(0), symbol("q_len"), const(0), const(0))


def fitting(plan: KernelPlan) -> KernelPlan:
    """With what plans of its pass have."""
    bounds = ROWS if plan.pass_name in KEY_PASSES else None
    grid_2d = Grid2D(16, 16, 16) if plan.pass_name in TILES_2D_PASSES.values() else None
    return replace(plan, rules=replace(plan.rules, q_bounds=bounds), grid_2d=grid_2d)


BACKWARD = fitting(plans.plan(plans.CAUSAL, "fp16", pass_name="backward", loop="kv_outer", warps=1))


def put(folder: Path, *made: Any) -> Path:
    for plan in made:
        (folder / f"{kernel_name(plan)}{PLAN_SUFFIX}").write_text(plan_text(plan))
    return folder


def test_configurations_targets_and_passes_come_from_file_names(tmp_path: Path) -> None:
    wide = {"head_dim": 192, "value_head_dim": 128}
    made = [
        plans.plan(plans.CAUSAL, "bf16", target="sm_80"),
        plans.plan(plans.CAUSAL, "bf16", target="sm_90a"),
        plans.plan(plans.CAUSAL, "bf16", target="sm_90a", pass_name="decode", block_q=16, warps=1),
        plans.plan(plans.CAUSAL, "fp16", target="sm_80", **wide),
        plans.plan(plans.CAUSAL, "bf16", target="sm_90a", paged=True),
    ]
    store = PackageStore(put(tmp_path, *made))
    small, large = Configuration("bf16", 16, 16), Configuration("fp16", 192, 128)
    assert set(store.configurations) == {small, large}
    assert set(store.targets(small)) == {"sm_80", "sm_90a"}
    assert store.plans(small, "sm_90a") == (made[1], made[2])
    assert store.plans(small, "sm_80") == (made[0],)
    assert store.plans(large, None) == (made[3],)
    assert store.plans(small._replace(paged=True), "sm_90a") == (made[4],)
    assert store.targets(large._replace(paged=True)) == ()
    assert store.variant == plans.CAUSAL


@pytest.mark.parametrize("name", ["neighbours", "neighbours_backward", "forward"])
def test_passes_whose_names_end_alike(tmp_path: Path, name: str) -> None:
    """Nobody takes backward calls in 2-D tiles for the 2-D tiles of a variant with a longer name, or the other way."""
    variant = replace(plans.CAUSAL, name=name)
    forward = plans.plan(variant, "bf16", target="sm_90a")
    passes = ("patches", "backward", "backward_patches")
    made = [fitting(replace(forward, pass_name=pass_name)) for pass_name in passes]
    store, configuration = PackageStore(put(tmp_path, forward, *made)), Configuration("bf16", 16, 16)
    assert [plan.pass_name for plan in store.plans(configuration, "sm_90a")] == ["forward", "patches"]
    found = store._names[configuration, "sm_90a", "backward_patches"]
    assert found == f"{name}_backward_patches_bf16_d16_sm_90a"
    assert store._names[configuration, "sm_90a", "patches"] == f"{name}_patches_bf16_d16_sm_90a"


def test_a_package_without_machine_code_runs_on_the_cpu(tmp_path: Path) -> None:
    store = PackageStore(put(tmp_path, plans.plan(plans.CAUSAL, "fp32")))
    q, k, v = plans.qkv()
    assert Kernel(store)(q, k, v).shape == q.shape
    with pytest.raises(AttnccError, match=r"A505.*causal_forward_fp32_d16_sm_80.cubin.*") as caught:
        store.machine_codes(store.plans(Configuration("fp32", 16, 16), "sm_80"))
    assert "attncc build FILE --arch sm_80" in caught.value.diagnostics[0].help


def test_a_package_without_the_backward_pass_names_the_option(tmp_path: Path) -> None:
    made = [
        plans.plan(plans.CAUSAL, "fp16"),
        BACKWARD,
    ]
    made.append(plans.plan(plans.CAUSAL, "fp16", pass_name="backward_dq"))
    configuration = Configuration("fp16", 16, 16)
    assert PackageStore(put(tmp_path, *made)).backward_plans(configuration, "sm_80") == tuple(made[1:])
    (tmp_path / f"{kernel_name(made[2])}{PLAN_SUFFIX}").unlink()
    with pytest.raises(AttnccError, match="A520") as caught:
        PackageStore(tmp_path).backward_plans(configuration, "sm_80")
    assert "attncc build FILE --backward --arch sm_80" in caught.value.diagnostics[0].help


def test_the_backward_pass_is_missed_before_it_is_run(bench: Any, tmp_path: Path) -> None:
    forward = plans.plan(plans.CAUSAL, "fp16")
    bench(forward, capability=80)
    kernel = Kernel(PackageStore(put(tmp_path, forward)))
    with pytest.raises(AttnccError, match="A520"):
        kernel.check_backward(Configuration("fp16", 16, 16), 0)
    put(tmp_path, BACKWARD)
    put(tmp_path, plans.plan(plans.CAUSAL, "fp16", pass_name="backward_dq"))
    Kernel(PackageStore(tmp_path)).check_backward(Configuration("fp16", 16, 16), 0)


def test_hopper_orders_the_sum_of_dq_and_needs_no_pass_for_it(tmp_path: Path) -> None:
    where = {"target": "sm_90a", "head_dim": 64, "value_head_dim": 64}
    hopper = {"pass_name": "backward", "loop": "kv_outer", "family": "hopper", "block_q": 64, "block_kv": 128}
    made = [
        plans.plan(plans.CAUSAL, "fp16", **where),
        fitting(plans.plan(plans.CAUSAL, "fp16", **where, **hopper, warps=8)),
    ]
    assert PackageStore(put(tmp_path, *made)).backward_plans(Configuration("fp16", 64, 64), "sm_90a") == (made[1],)


ENTRY = {"nvrtc": "13.0", "entry": "causal_forward", "threads": 64, "dynamic_shared_bytes": 512}


def with_code(folder: Path, plan: KernelPlan, **told: str) -> PackageStore:
    """Of one kernel; what else its manifest tells of it."""
    put(folder, plan)
    (folder / f"{kernel_name(plan)}.cubin").write_bytes(b"image")
    hashes = {path.name: digest(path.read_bytes()) for path in folder.iterdir()}
    kernels = {kernel_name(plan): ENTRY | told}
    (folder / MANIFEST).write_text(json.dumps({"attncc": "0.1", "kernels": kernels, "sha256": hashes}))
    return PackageStore(folder)


def test_machine_code_comes_with_what_its_launch_needs(tmp_path: Path) -> None:
    plan = plans.plan(plans.CAUSAL, "bf16")
    name = kernel_name(plan)
    store = with_code(tmp_path, plan, params=struct_digest(facts_of(plan).parameters()))
    code = store.machine_codes([plan])[name]
    assert (code.image, code.nvrtc, code.entry, code.threads, code.shared_bytes) == (
        b"image", "13.0", "causal_forward", 64, 512,
    )  # fmt: skip


@pytest.mark.parametrize("told", ["another field", "none"])
def test_kernels_that_take_other_parameters_are_not_launched(tmp_path: Path, told: str) -> None:
    """They were built by another attncc, and would read what isn't there. Older packages don't tell."""
    plan = plans.plan(plans.CAUSAL, "bf16")
    other = struct_digest([*facts_of(plan).parameters(), Parameter("more", "int")])
    store = with_code(tmp_path, plan, **({"params": other} if told == "another field" else {}))
    with pytest.raises(AttnccError, match=r"A530.*another version") as caught:
        store.machine_codes([plan])
    (found,) = caught.value.diagnostics
    assert found.notes[0] == f"attncc 0.1 built it, this is {__version__}" and "attncc build FILE" in found.help


@pytest.mark.parametrize("damage", ["no plans", "plan", "foreign plan", "manifest"])
def test_damage_is_told_by_file(tmp_path: Path, damage: str) -> None:
    plan = plans.plan(plans.CAUSAL, "fp32")
    path = put(tmp_path, plan) / f"{kernel_name(plan)}{PLAN_SUFFIX}"
    if damage == "no plans":
        path.unlink()
    elif damage == "plan":
        path.write_text(path.read_text()[:-40])
    elif damage == "foreign plan":
        path.write_text('{"class": "os.system"}')
    else:
        (tmp_path / f"{kernel_name(plan)}.cubin").write_bytes(b"image")
        (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(AttnccError, match=r"A507"):
        store = PackageStore(tmp_path)
        Kernel(store)(*(np.zeros((1, 1, 8, 16), np.float32),) * 3)
        store.machine_codes([plan])
