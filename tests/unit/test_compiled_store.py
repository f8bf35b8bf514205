"""Kernels of `attncc.compile`: what is compiled when. Nothing is compiled here."""

from __future__ import annotations

import pytest

from attncc.compiler import CompiledStore, load_specification
from attncc.kernels.candidates import Candidates
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import OWN_KERNELS, UNCLUSTERED, OwnKernel
from attncc.settle import Settled
from tests.unit.package import made

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
USUAL = Configuration("bf16", 128, 128)
TARGET = "sm_90a"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were, by name."""
    names: list[str] = []

    def settled(candidates: Candidates, _: int) -> Settled:
        names.append(candidates.key)
        return made.settled(candidates)

    monkeypatch.setattr("attncc.compiler.settle", settled)
    monkeypatch.setattr("attncc.compiler.compiled", made.compiled)
    return names


def store(**asked: bool) -> CompiledStore:
    return CompiledStore(load_specification(SPEC, None, {})[0], USUAL._replace(**asked), (TARGET,))


def own(found: CompiledStore, configuration: Configuration, kernels: tuple[OwnKernel, ...]) -> list[Configuration]:
    items = (configuration._replace(**kernel._asdict()) for kernel in kernels)
    return [item for item in items if TARGET in found.targets(item)]


@pytest.mark.parametrize("paged", [False, True])
def test_own_kernels_come_with_the_usual_ones(compiled: list[str], paged: bool) -> None:
    """A call of other lengths compiles nothing."""
    found, configuration = store(), USUAL._replace(paged=paged)
    found.machine_codes(found.plans(configuration, TARGET))
    wanted, before = own(found, configuration, OWN_KERNELS), list(compiled)
    assert len(wanted) == (1 if paged else 3)
    for item in wanted:
        assert found.machine_codes(found.plans(item, TARGET))
    assert compiled == before and len(before) == len(set(before)) == 2 + len(wanted)


def test_so_do_those_of_backward_calls(compiled: list[str]) -> None:
    found = store()
    found.machine_codes(found.backward_plans(USUAL, TARGET))
    (wanted,), before = own(found, USUAL, (UNCLUSTERED,)), list(compiled)
    assert found.machine_codes(found.backward_plans(wanted, TARGET))
    assert compiled == before and len(before) == 2


def test_an_own_kernel_alone(compiled: list[str]) -> None:
    found = store()
    for item in own(found, USUAL, OWN_KERNELS):
        compiled.clear()
        found.plans(item, TARGET)
        assert len(compiled) == 1


def test_load_loads_what_compile_compiled(compiled: list[str]) -> None:
    found = store()
    found.compile_now()
    before = list(compiled)
    assert found.ready == (USUAL, *own(found, USUAL, OWN_KERNELS)) and len(found.ready) == 4
    for item in found.ready:
        found.machine_codes(found.plans(item, TARGET))
    assert compiled == before
