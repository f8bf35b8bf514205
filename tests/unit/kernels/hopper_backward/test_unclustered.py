"""Backward calls whose thread blocks form no clusters: which they are, and the kernel that they have of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attncc.analysis.cost.roofline import DEVICES
from attncc.cli.measure import _plans
from attncc.codegen.render import render
from attncc.compiler import CompiledStore, load_specification
from attncc.io_model import IoModel
from attncc.kernels.hopper_backward.facts import HopperBackward
from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.launched import kernel_names
from attncc.package import build, prepare
from attncc.problem import Problem
from attncc.runtime.call.persistent import ONE_STAGE_ROWS, PAIRED_MASKED, PAIRED_ROWS, own_backward_kernels
from attncc.runtime.store.loaded_kernels import KernelLoader, LoadedKernels
from attncc.runtime.store.package_store import PackageStore
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import UNCLUSTERED, Build, KernelPlan
from attncc.schedule.plan_check import check_plan
from attncc.schedule.plan_json import from_json, to_json
from attncc.tune.candidates import TunedKernel
from attncc.tune.work import Work
from tests.unit.package.made import compiled, settled

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
FULL = "attn 1\nvariant mine {}\n"
WINDOW = "attn 1\nvariant mine { keep if 0 <= q_pos - kv_idx < 100 }\n"
USUAL = Configuration("bf16", 128, 128)
OWN = USUAL._replace(unclustered=True)
LONG = PAIRED_ROWS * PAIRED_MASKED


def plans(configuration: Configuration, text: str = SPEC, target: str = "sm_90a") -> list[KernelPlan]:
    found = load_specification(text, None, {})[0].backward_candidates(configuration, target)
    return [item.first for item in found]


def call(q_len: int, kv_len: int = 1024, **given: Any) -> Problem:
    return Problem(1, 2, 2, q_len, kv_len, 128, 128, **given)


def test_the_kernel() -> None:
    """As the usual one, with a second stage of keys, and blocks ahead under a mask."""
    (own,), usual = plans(OWN), plans(USUAL)[0]
    assert own == replace(usual, unclustered=True) and from_json(to_json(own)) == own
    assert kernel_name(own) == "mine_backward_bf16_d128_unclustered_sm_90a"
    assert kernel_names(own)[1:] == kernel_names(usual)[1:]
    facts = HopperBackward(own)
    assert (facts.uses_clusters, facts.key_stages, facts.plans_ahead) == (False, 2, True)
    assert facts.calls != HopperBackward(usual).calls
    assert "IN_CLUSTER = false" in render(own).text and "IN_CLUSTER = true" in render(usual).text


@pytest.mark.parametrize(
    ("asked", "text", "target"),
    [
        ({"head_dim": 64, "value_head_dim": 64}, SPEC, "sm_90a"),
        ({"head_dim": 256, "value_head_dim": 256}, SPEC, "sm_90a"),
        ({"dtype": "fp32"}, SPEC, "sm_90"),
        ({}, SPEC, "sm_80"),
        ({}, WINDOW, "sm_90a"),  # whose blocks are never paired
        ({}, f"{SPEC}schedule s for mine backward on sm_90a {{ family = portable }}\n", "sm_90a"),
    ],
)
def test_what_has_none(asked: dict[str, Any], text: str, target: str) -> None:
    assert plans(OWN._replace(**asked), text, target) == []


def test_schedules_are_for_both() -> None:
    text = f"{SPEC}schedule s for mine backward on sm_90a {{ skip = never }}\n"
    text += "schedule t for mine backward on sm_90a for lengths 1..512 { block_q = 64 }\n"
    found = [(plan.skip, plan.lengths, plan.unclustered) for plan in plans(OWN, text)]
    assert found == [("never", None, True), ("auto", (1, 512), True)]


@pytest.mark.parametrize(
    ("text", "problem", "ordered", "own"),
    [
        (SPEC, call(LONG), False, False),
        (SPEC, call(LONG - 1), False, False),  # one block of keys alone, but in the usual kernel
        (SPEC, call(ONE_STAGE_ROWS - 1), False, True),
        (SPEC, call(ONE_STAGE_ROWS), False, False),
        (SPEC, Problem(1, 4, 2, ONE_STAGE_ROWS // 2, 1024, 128, 128), False, False),  # each block's rows of two heads
        (SPEC, call(LONG), True, True),
        (SPEC, call(500, packed=True, q_starts=(0, 500), kv_starts=(0, 1024)), False, False),
        (SPEC, call(500, packed=True, q_starts=(0, 500), kv_starts=(0, 1024)), True, True),
        (FULL, call(PAIRED_ROWS), False, False),
        (FULL, call(PAIRED_ROWS - 1), False, True),
        (FULL, call(PAIRED_ROWS, 1025), False, True),  # nine blocks of keys
        (FULL, call(LONG, packed=True, q_starts=(0, LONG), kv_starts=(0, 1024)), False, True),
        (WINDOW, call(100), False, False),
    ],
)
def test_which_calls_have_it(text: str, problem: Problem, ordered: bool, own: bool) -> None:
    found = own_backward_kernels(plans(USUAL, text)[0], problem, 132, ordered=ordered)
    assert found == ((UNCLUSTERED,) if own else ())
    assert own_backward_kernels(replace(plans(USUAL, text)[0], unclustered=True), problem, 132, ordered=ordered) == ()


@pytest.mark.parametrize("pass_name", ["forward", "decode", "backward_dq"])
def test_no_plan_of_another_pass_is_one(pass_name: str) -> None:
    with pytest.raises(ValueError, match="`unclustered` is none that a plan has"):
        check_plan(replace(plans(USUAL)[1], pass_name=pass_name, unclustered=True))


def test_the_io_model_has_the_same_bytes_for_both_in_one_order() -> None:
    """Of a call that has its own kernel."""
    model = IoModel(call(384, 384), {}, DEVICES["h200"], deterministic=True)
    assert model.predict(plans(OWN)[0]) == model.predict(plans(USUAL)[0])


def test_only_their_own_kernel_stores_dq_first() -> None:
    """Each row's dQ once, for which the kernel before writes no zeros; the rest is added."""
    model = IoModel(call(384, 384), {}, DEVICES["h200"])
    own, usual = (model.predict(plans(which)[0]) for which in (OWN, USUAL))
    main = next(name for name in usual if name not in {"delta", "dq_sum"})
    zeros = usual["delta"].hbm_writes["partial_dq"]
    assert "partial_dq" not in own["delta"].hbm_writes and "partial_dq" not in own[main].hbm_reads
    assert own[main].chip.writes["partial_dq"] == zeros and "partial_dq" not in usual[main].chip.writes
    assert usual[main].chip.reductions["partial_dq"] - own[main].chip.reductions["partial_dq"] == zeros


def test_packages_have_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.package.writer.compiled", compiled)
    monkeypatch.setattr("attncc.package.writer.settle", settled)
    asked: dict[str, Any] = {"archs": ["sm_90a"], "dtypes": ["bf16"], "head_dims": [128]}
    (built,) = build(SPEC, tmp_path / "made", **asked, backward=True)
    store = PackageStore(built.folder)
    assert store.targets(OWN) == ("sm_90a",) and OWN in store.ready and OWN not in store.configurations
    assert [plan.unclustered for plan in store.backward_plans(OWN, "sm_90a")] == [True]
    assert [plan.unclustered for plan in store.backward_plans(USUAL, "sm_90a")] == [False]
    assert set(store.machine_codes(store.backward_plans(OWN, "sm_90a"))) == set(kernel_names(plans(OWN)[0]))
    assert "backward bf16, without clusters, head dim 128, sm_90a" in (built.folder / "__init__.py").read_text()
    (package,) = prepare(SPEC, **asked)
    assert not any("_unclustered" in name for name in package.kernel_names)


class Loaded(LoadedKernels):
    """Nothing is compiled."""

    def __init__(
        self, store: Any, configuration: Configuration, _: Any, device: int, *, backward: bool, **__: Any
    ) -> None:
        assert backward
        self.target, self.device = "sm_90a", SimpleNamespace(multiprocessors=132, ordinal=device)  # type: ignore[assignment]
        self.plans = tuple(plans(configuration))

    def function(self, name: str) -> Any:
        return SimpleNamespace(resident_blocks=1)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> KernelLoader:
    gpu = SimpleNamespace(device=lambda ordinal: ordinal)
    monkeypatch.setattr("attncc.runtime.store.loaded_kernels.driver", lambda: gpu)
    monkeypatch.setattr("attncc.runtime.store.loaded_kernels.LoadedKernels", Loaded)
    specification = load_specification(SPEC, None, {})[0]
    return KernelLoader(CompiledStore(specification, USUAL, ("sm_80", "sm_90a")), backward=True)


def test_it_is_loaded_by_the_first_call_that_has_it(loader: KernelLoader) -> None:
    assert loader.serving_backward(USUAL, 0, call(LONG), ordered=False) is loader.of(USUAL, 0)
    assert [configuration for configuration, _ in loader._loaded] == [USUAL]
    for problem, ordered in ((call(LONG), True), (call(100), False)):
        assert loader.serving_backward(USUAL, 0, problem, ordered=ordered) is loader.of(OWN, 0)
    assert loader.of(OWN, 0).plans[0].unclustered


def test_both_are_loaded_ahead(loader: KernelLoader) -> None:
    loader.load(0)
    assert [configuration for configuration, _ in loader._loaded] == [USUAL, OWN]


@pytest.mark.parametrize(("q_len", "own"), [(512, True), (LONG, False)])
def test_what_is_measured(q_len: int, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain --measure` predicts and names the kernel that runs."""
    monkeypatch.setattr("attncc.compiler.settle", lambda candidates, at_once: settled(candidates))
    monkeypatch.setattr("attncc.compiler.compiled", compiled)
    specification = load_specification(SPEC, None, {})[0]
    kernel = TunedKernel(specification, Build("backward", "sm_90a", "bf16", 128, 128))
    gpu: Any = SimpleNamespace(name="NVIDIA H200", capability=90, multiprocessors=132)
    work = Work(kernel.variant, call(q_len), "bf16", "backward", {})
    assert [plan.unclustered for plan in _plans(kernel, work, gpu)] == [own]
