"""Which of the plans on a ladder a kernel gets, by what a compiler says of each; none is compiled here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attncc import machine_code
from attncc.codegen.render import KernelSource
from attncc.compiler import NO_DEFINES, load_specification
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.machine_code import Compiled, Settled, kernel_sources, settle
from attncc.resources import folder
from attncc.runtime.nvrtc import Resources
from attncc.runtime.store import Configuration, MachineCode
from attncc.schedule.choices import Build
from attncc.schedule.kernel_names import kernel_names
from attncc.schedule.knobs import Value
from attncc.schedule.schedule import Ladder, Schedule, make_ladder

LOSS = "ptxas info : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized"
Spills = Callable[[str], int]  # of a kernel's text


def ladder(target: str = "sm_90a", head_dim: int = 128, dtype: str = "bf16", **settings: Value) -> Ladder:
    given = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("s", "full", "forward", target, given)
    return make_ladder(Variant("full"), Build("forward", target, dtype, head_dim, head_dim), schedule)


def settled(monkeypatch: pytest.MonkeyPatch, of: Ladder, spills: dict[str, int | str]) -> Settled:
    """What is settled if these tiles spill so many bytes, or get a message."""
    plans = iter(of.plans())

    def compiled(source: KernelSource, target: str) -> Compiled:
        found = spills.get(next(plans).tiles, 0)
        resources = (
            Resources(168, found, found, 0, 0.1) if isinstance(found, int) else Resources(168, 0, 0, 0, 0.1, (found,))
        )
        return Compiled(MachineCode(b"", "13.0", source.entry, source.threads, source.shared_bytes), resources)

    monkeypatch.setattr(machine_code, "compiled", compiled)
    return settle(of)


def rungs(of: Ladder) -> list[str]:
    return [plan.tiles for plan in of.plans()]


def test_the_first_guess_if_it_does_not_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settled(monkeypatch, ladder(family="hopper"), {})
    assert found.plan.tiles == rungs(ladder(family="hopper"))[0]
    assert found.report()["choice"] == {"tiles": found.plan.tiles, "why": "the first guess: no spills", "rejected": {}}


@pytest.mark.parametrize("trouble", [4, LOSS])
def test_trouble_rejects(monkeypatch: pytest.MonkeyPatch, trouble: int | str) -> None:
    first, second, *_ = rungs(ladder(family="hopper"))
    found = settled(monkeypatch, ladder(family="hopper"), {first: trouble})
    assert found.plan.tiles == second
    assert list(found.rejected) == [first] and ("4 bytes" in found.rejected[first] or LOSS in found.rejected[first])
    assert found.why == "the first that can be and doesn't spill"


def test_the_least_spills_if_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    of = ladder(family="hopper")
    first, second, *others = rungs(of)
    found = settled(monkeypatch, of, {first: 40, second: 8} | dict.fromkeys(others, 8))
    assert found.plan.tiles == second and set(found.rejected) == {first, *others}
    assert found.why == "of all tiles these spill least: 8 bytes of spills stored and 8 loaded"


@pytest.mark.parametrize("knob", [{"block_q": 128}, {"block_kv": 64}, {"warps": 8}])
def test_tiles_that_a_schedule_names_stay(monkeypatch: pytest.MonkeyPatch, knob: dict[str, int]) -> None:
    of = ladder(family="hopper", **knob)
    assert len(rungs(of)) == 1
    found = settled(monkeypatch, of, {rungs(of)[0]: 12})
    assert not found.rejected
    assert found.why == "the schedule names its tiles; 12 bytes of spills stored and 12 loaded"


def test_other_settings_keep_the_ladder() -> None:
    assert len(rungs(ladder(family="hopper", stages=2, skip="never"))) == 5
    assert len(rungs(ladder(target="sm_80"))) == 4


def test_the_portable_family_ends_every_ladder() -> None:
    families = [plan.family for plan in ladder().plans()]
    assert families == ["hopper"] * 5 + ["portable"] * 5
    assert {plan.family for plan in ladder(family="hopper").plans()} == {"hopper"}


def test_the_last_rungs_have_fewer_warps_then_fewer_keys() -> None:
    found = [(plan.block_q, plan.block_kv, plan.warps) for plan in ladder(target="sm_80", head_dim=64).plans()]
    assert found == [(128, 64, 4), (64, 32, 4), (32, 32, 2), (32, 16, 2)]
    found = [(plan.block_q, plan.block_kv, plan.warps) for plan in ladder("sm_80", 96, "fp32").plans()]
    assert found == [(64, 32, 4), (32, 32, 2), (32, 16, 2)]


def test_the_last_rungs_are_for_what_spills() -> None:
    """Blocks of 80 keys are whole tiles of 16 keys alone: no reason to begin there."""
    text = "attn 1\nimport masks\nvariant map {\n    input live: bool[batch, head, _, _]\n"
    specification, _ = load_specification(text + "    keep if selected_blocks(live, 80, 80)\n}\n", None, NO_DEFINES)
    of = make_ladder(specification.variant, Build("forward", "sm_80", "bf16", 64, 64))
    assert of.first.warps == 4 and of.first.tests_tiles
    assert [plan.block_kv for plan in of.plans()][-1] == 16


def test_rungs_that_cannot_be_are_left_out() -> None:
    """At head dim 256, three stages of 64 keys don't fit."""
    assert [plan.block_kv for plan in ladder(family="hopper", head_dim=256, stages=3).plans()] == [48, 32, 16]
    with pytest.raises(AttnccError, match="A406"):
        next(ladder(family="hopper", head_dim=256, stages=3, block_kv=64).plans())


def test_no_rung_stands_twice() -> None:
    for target in ("sm_80", "sm_90a"):
        for head_dim in (16, 64, 128, 256):
            found = rungs(ladder(target=target, head_dim=head_dim))
            assert len(found) == len(set(found))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["causal", "sink_attention", "relative_bias", "alibi_documents", "sigmoid_attention"])
def test_every_kernel_that_a_launch_needs_has_a_source(name: str, target: str) -> None:
    path = folder("specs") / f"{name}.attn"
    specification, _ = load_specification(path, None, NO_DEFINES)
    configuration = Configuration("bf16", 64, 64)
    ladders = specification.ladders(configuration, target) + specification.backward_ladders(configuration, target)
    for plan in (item.first for item in ladders):
        assert set(kernel_sources(plan)) == set(kernel_names(plan))
