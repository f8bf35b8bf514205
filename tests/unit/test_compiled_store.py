"""Kernels of `attncc.compile`: what is compiled when. Nothing is compiled here."""

from __future__ import annotations

import pytest

from attncc.compiler import CompiledStore, load_specification
from attncc.kernels.candidates import Candidates
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import SPLIT, OwnKernel
from attncc.settle import Settled
from tests.unit.package import made

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
USUAL = Configuration("bf16", 128, 128)
OWN = (OwnKernel(17), OwnKernel(one_block=True), OwnKernel(17, one_block=True), SPLIT)  # of sm_90a at this head dim


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were, by what tells them apart."""
    keys: list[str] = []

    def settled(candidates: Candidates, _: int) -> Settled:
        keys.append(candidates.key)
        return made.settled(candidates)

    monkeypatch.setattr("attncc.compiler.settle", settled)
    monkeypatch.setattr("attncc.compiler.compiled", made.compiled)
    return keys


def test_load_compiles_own_kernels_and_no_call_after_it_does(compiled: list[str]) -> None:
    store = CompiledStore(load_specification(SPEC, None, {})[0], USUAL, ("sm_90a",))
    store.compile_now()
    assert len(compiled) == 2  # forward and decode
    assert store.ready == (USUAL, *(USUAL._replace(**kernel._asdict()) for kernel in OWN))
    for _ in range(2):
        for configuration in store.ready:
            assert store.machine_codes(store.plans(configuration, "sm_90a"))
        assert len(compiled) == len(set(compiled)) == 2 + len(OWN)


def test_what_has_no_own_kernels(compiled: list[str]) -> None:
    store = CompiledStore(load_specification(SPEC, None, {})[0], USUAL, ("sm_80",))
    assert store.ready == (USUAL,)
