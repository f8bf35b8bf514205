"""Decode calls with many rows: when they have a kernel of their own, and what it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attncc.compiler import CompiledStore, load_specification
from attncc.kernels.crossings import Chip
from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.registry import facts_of, forward_facts
from attncc.kernels.serving import plan_for
from attncc.package import build, prepare
from attncc.problem import Problem
from attncc.runtime.store.loaded_kernels import KernelLoader
from attncc.runtime.store.package_store import PackageStore
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import LEAST_ROWS, KernelPlan
from attncc.schedule.plan_json import from_json, to_json
from tests.unit.package.made import compiled, settled

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
USUAL = Configuration("bf16", 128, 128)
MANY, MORE = (USUAL._replace(least_rows=rows) for rows in LEAST_ROWS)
PORTABLE = "sm_90"  # on sm_90a there is one kernel, with wgmma (tests/unit/kernels/hopper_decode)


def store(text: str = SPEC, archs: tuple[str, ...] = ("sm_80", PORTABLE), **asked: Any) -> CompiledStore:
    return CompiledStore(load_specification(text, None, {})[0], USUAL._replace(**asked), archs)


def call(q_len: int, group: int = 4, kv_len: int = 8192) -> Problem:
    return Problem(1, 8 * group, 8, q_len, kv_len, 128, 128)


def own(plan: KernelPlan, problem: Problem) -> tuple[int, ...]:
    """Of own kernels for a call, but for those of one thread block a multiprocessor, how many rows they are for."""
    return tuple(item.least_rows for item in facts_of(plan).own_kernels(problem, Chip(132)) if not item.one_block)


@pytest.mark.parametrize(("configuration", "keys"), [(MANY, [32]), (MORE, [64, 32])])
def test_the_kernel(configuration: Configuration, keys: list[int]) -> None:
    """The usual tile, of which a warp has more keys at once; where that spills, the usual kernel."""
    (found,) = load_specification(SPEC, None, {})[0].candidates(configuration, PORTABLE)
    usual = load_specification(SPEC, None, {})[0].candidates(USUAL, PORTABLE)[1]
    plans = list(found.plans())
    more = len(keys)
    assert [forward_facts(plan).warp_keys for plan in plans[: more + 1]] == [*keys, 16]
    assert [plan.tiles for plan in plans[more:]] == [plan.tiles for plan in usual.plans()]
    assert plans[0].tiles == f"{usual.first.tiles}, {keys[0]} keys at once"
    assert found.key != usual.key
    assert kernel_name(found.first) == f"mine_decode_bf16_d128_rows{configuration.least_rows}_{PORTABLE}"
    assert from_json(to_json(found.first)) == found.first and found.first.begins_early
    assert plan_for([found.first], call(8)) is found.first


@pytest.mark.parametrize(
    ("q_len", "group", "least"),
    [(1, 4, ()), (4, 4, ()), (17, 1, (17,)), (8, 4, (17,)), (33, 1, (33, 17)), (1, 64, (33, 17))],
)
def test_which_calls_have_it(q_len: int, group: int, least: tuple[int, ...]) -> None:
    plans = load_specification(SPEC, None, {})[0].plans(USUAL, PORTABLE)
    plan = plan_for(plans, call(q_len, group), Chip(132))
    assert plan.pass_name == "decode" and own(plan, call(q_len, group)) == least
    assert own(plans[0], call(4096)) == ()


@pytest.mark.parametrize(
    "asked",
    [
        {"head_dim": 192, "value_head_dim": 128},
        {"dtype": "fp32"},
        {"kv_dtype": "int8"},
        {"prefixed": True},
    ],
)
def test_what_has_none(asked: dict[str, Any]) -> None:
    """Of the head dim 64 a warp has 64 of 128 keys at once, where 17 rows are two warps'; three have no more."""
    for item in (MANY, MORE):
        assert {
            store().targets(item._replace(**given))
            for given in ({}, {"paged": True}, {"kv_dtype": "e4m3", "paged": True})
        } == {(PORTABLE,)}
    narrow = {"head_dim": 64, "value_head_dim": 64}
    assert [store().targets(item._replace(**narrow)) for item in (MANY, MORE)] == [(PORTABLE,), ()]
    assert store().targets(MANY._replace(**asked)) == ()
    assert store(archs=("sm_80", "sm_100", "sm_120")).targets(MANY) == ()


@pytest.mark.parametrize("setting", ["split_kv = 4", "block_kv = 128", "stages = 2"])
def test_a_schedule_is_for_all_decode_calls(setting: str) -> None:
    """So bits that don't depend on the batch don't depend on its number of rows either."""
    text = f"{SPEC}schedule own for mine decode on {PORTABLE} {{ {setting} }}\n"
    assert store(text).targets(MANY) == ()
    ranges = f"{SPEC}schedule own for mine decode on {PORTABLE} for lengths 1..4096 {{ {setting} }}\n"
    assert store(ranges).targets(MANY) == (PORTABLE,)
    plans = load_specification(ranges, None, {})[0].plans(USUAL, PORTABLE)
    found = {keys: plan_for(plans, call(8, kv_len=keys), Chip(132)) for keys in (4096, 4097)}
    assert [own(plan, call(8, kv_len=keys)) for keys, plan in found.items()] == [(), (17,)]


def test_short_runs() -> None:
    """With many rows two thread blocks share a multiprocessor as soon as each has two tiles."""
    specification = load_specification(SPEC, None, {})[0]
    usual, many = specification.plans(USUAL, PORTABLE)[1], specification.plans(MANY, PORTABLE)[0]
    narrow = specification.plans(MANY._replace(head_dim=64, value_head_dim=64), PORTABLE)[0]
    few = [facts_of(plan).shared_out(call(8), Chip(132))["few_units"] for plan in (usual, many, narrow)]  # type: ignore[attr-defined]
    assert few == [132 * (16 + 16), 132 * 4, 132 * (16 + 16)]


class Loaded:
    """In place of `LoadedKernels`."""

    def __init__(self, store: Any, configuration: Configuration, *_: Any, **__: Any) -> None:
        self.configuration, self.target, self.device = (
            configuration,
            PORTABLE,
            SimpleNamespace(multiprocessors=132, ordinal=0),
        )
        self.plans = [item.first for item in load_specification(SPEC, None, {})[0].candidates(configuration, PORTABLE)]

    def plan(self, problem: Problem) -> Any:
        return plan_for(self.plans, problem, Chip(132))

    def own_kernels(self, problem: Problem) -> Any:
        return facts_of(self.plan(problem)).own_kernels(problem, Chip(132))


class Gpu:
    def device(self, ordinal: int) -> int:
        return ordinal


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> KernelLoader:
    monkeypatch.setattr("attncc.runtime.store.loaded_kernels.driver", Gpu)
    monkeypatch.setattr("attncc.runtime.store.loaded_kernels.LoadedKernels", Loaded)
    return KernelLoader(store())


def test_the_first_call_that_has_it_loads_it(loader: KernelLoader) -> None:
    assert loader.serving(USUAL, 0, call(1)) is loader.of(USUAL, 0)
    assert loader.serving(USUAL, 0, call(4096)) is loader.of(USUAL, 0)
    assert [configuration for configuration, _ in loader._loaded] == [USUAL]
    assert loader.serving(USUAL, 0, call(8)) is loader.of(MANY, 0)
    assert loader.serving(USUAL, 0, call(8)).plan(call(8)).least_rows == 17


def test_load_loads_all(loader: KernelLoader) -> None:
    """So that no call does while it is recorded in a graph."""
    loader.load(0)
    loaded = dict(loader._loaded)
    for q_len in (1, 4, 8, 33, 4096):
        for heads in (8, 132):
            loader.serving(USUAL, 0, Problem(1, 4 * heads, heads, q_len, 8192, 128, 128))
    assert loader._loaded == loaded and (MORE, 0) in loaded


def names(**asked: Any) -> list[str]:
    (package,) = prepare(SPEC, archs=["sm_80", PORTABLE], dtypes=["bf16"], head_dims=[64, 128], **asked)
    return sorted(name for name in package.kernel_names if "_rows" in name)


def test_packages_have_all() -> None:
    own = [f"mine_decode_bf16_{end}_{PORTABLE}" for end in ("d128_rows17", "d128_rows33", "d64_rows17")]
    assert names() == [] and names(decode=True) == sorted(own)
    in_pages = [name.replace("_rows", "_paged_rows") for name in own]
    assert names(serving=True) == sorted([*own, *in_pages])


@pytest.mark.slow
def test_a_package_tells_its_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.package.writer.compiled", compiled)
    monkeypatch.setattr("attncc.package.writer.settle", settled)
    asked: dict[str, Any] = {"archs": ["sm_80", PORTABLE], "dtypes": ["bf16"], "head_dims": [128], "serving": True}
    (built,) = build(SPEC, tmp_path / "made", **asked)
    found = PackageStore(built.folder)
    assert found.targets(MANY) == (PORTABLE,) and found.configurations == (USUAL,) and MANY in found.ready
    (plan,) = found.plans(MANY, PORTABLE)
    assert plan.least_rows == 17
    assert "decode bf16 of 17 rows and more, head dim 128, sm_90" in (built.folder / "__init__.py").read_text()
    (without,) = build(SPEC, tmp_path / "other", **asked | {"serving": False})
    assert PackageStore(without.folder).targets(MANY) == ()
