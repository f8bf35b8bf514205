"""Which schedules are tried, of every pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.resources import folder
from attncc.schedule.plan import SPLIT, Build, KernelPlan, OwnKernel
from attncc.tune.candidates import TunedKernel, first_plan, schedules, settings_of
from tests.unit.tune.specifications import BRACES, VARIANT, candidates, tuned


def test_what_stands_in_braces() -> None:
    found = candidates(VARIANT + BRACES)
    assert [item.chosen for item in found] == [
        {"block_q": block_q, "stages": 1, "block_kv": block_kv} for block_q in (64, 32) for block_kv in (32, 64)
    ]


def test_the_tiles_of_all_families_where_the_schedule_is_silent() -> None:
    families = {item.chosen["family"] for item in candidates(VARIANT, "sm_90a")}
    assert families == {"hopper", "portable"}
    assert all("family" not in item.chosen for item in candidates(VARIANT, "sm_80"))


def test_schedules_of_wide_heads_name_their_family() -> None:
    """Without it, the sizes that they set are for narrow heads."""
    kernel = tuned(VARIANT + BRACES, dim=320)
    assert kernel.held is not None and not kernel.held.settings
    found = schedules(kernel)
    assert {item.chosen["family"] for item in found} == {"wide"}
    (plan, *_) = kernel.with_schedule(found[-1]).plans(kernel.configuration, "sm_80")
    assert plan.block_kv == found[-1].chosen["block_kv"]


def test_neighbours_of_the_fastest_family_are_among_them() -> None:
    found = [item.chosen for item in candidates(VARIANT, "sm_90a")]
    assert {"family": "hopper", "block_q": 256, "block_kv": 112, "stages": 4} in found
    assert {"family": "hopper", "block_q": 192, "block_kv": 96, "stages": 4} in found
    assert len(found) == len({str(item) for item in found})


def test_other_settings_are_kept() -> None:
    text = VARIANT + "\nschedule plain for mine on sm_80 { skip = never }\n"
    assert {item.chosen["skip"] for item in candidates(text)} == {"never"}


def test_a_schedule_that_serves_another_target_keeps_what_is_not_about_tiles() -> None:
    text = VARIANT + "\nschedule plain for mine on sm_90 { skip = never block_q = 64 stages = 1 }\n"
    found = candidates(text, "sm_90a")
    assert {item.target for item in found} == {"sm_90a"}
    assert {item.chosen["skip"] for item in found} == {"never"}
    assert {item.chosen["family"] for item in found} == {"hopper", "portable"}


def test_tiles_that_are_settled_are_free_again() -> None:
    """So a second run looks at what the first one looked at."""
    first = candidates(VARIANT)
    text = VARIANT + "\nschedule plain for mine on sm_80 { skip = auto block_q = 64 stages = 1 }\n"
    again = candidates(text)
    assert {item.chosen["skip"] for item in again} == {"auto"}
    sizes = [{name: item.chosen[name] for name in first[0].chosen} for item in again]
    assert sizes == [item.chosen for item in first]


def test_what_no_schedule_may_say_is_refused() -> None:
    kernel = tuned(VARIANT)
    wide = next(item for item in schedules(kernel) if item.chosen["stages"] == 1)
    refused = wide.__class__("x", "mine", "forward", "sm_80", (("stages", (9,)),))
    with pytest.raises(AttnccError, match=r"A402.*`stages` can't be 9"):
        first_plan(kernel, refused)


# -------------------------------------------------------------------- passes

PASSES = [
    ("causal", "forward", "sm_90a", "bf16", 128),
    ("causal", "forward", "sm_90a", "e4m3", 128),
    ("causal", "decode", "sm_90a", "bf16", 128),
    ("natten", "patches", "sm_90a", "bf16", 64),
    ("causal", "backward", "sm_90a", "bf16", 64),
    ("causal", "backward", "sm_80", "fp16", 128),
    ("causal", "backward_dq", "sm_80", "fp32", 64),
    ("natten", "backward_patches", "sm_90a", "bf16", 64),
]


def possible(kernel: TunedKernel) -> list[tuple[str, KernelPlan]]:
    found = []
    for item in schedules(kernel):
        try:
            found.append((settings_of(item), first_plan(kernel, item)))
        except AttnccError:
            continue
    return found


@pytest.mark.parametrize(("spec", "pass_name", "target", "dtype", "dim"), PASSES)
def test_every_pass_has_several_and_its_own_among_them(
    spec: str, pass_name: str, target: str, dtype: str, dim: int
) -> None:
    specification, _ = load_specification(Path(folder("specs") / f"{spec}.attn"), None, {})
    kernel = TunedKernel(specification, Build(pass_name, target, dtype, dim, dim))
    found = possible(kernel)
    assert len({plan.tiles for _, plan in found}) >= 3
    own = kernel.candidates(None).first
    assert own in [plan for _, plan in found]
    for settings, plan in found:
        assert plan.pass_name == pass_name
        assert f"block_kv = {plan.block_kv}" in settings and f"stages = {plan.stages}" in settings


@pytest.mark.parametrize("pass_name", ["forward", "patches", "decode", "backward"])
def test_calls_run_the_kernel_that_is_tuned(pass_name: str) -> None:
    """The specification that is timed has the schedule, and passes that leave calls to this kernel."""
    specification, _ = load_specification(Path(folder("specs") / "natten.attn"), None, {})
    kernel = TunedKernel(specification, Build(pass_name, "sm_90a", "bf16", 64, 64))
    settings, plan = possible(kernel)[-1]
    schedule = next(item for item in schedules(kernel) if settings_of(item) == settings)
    changed = kernel.with_schedule(schedule)
    kernels = changed.candidates(kernel.configuration, "sm_90a")
    kernels += changed.backward_candidates(kernel.configuration, "sm_90a")
    assert plan in [item.first for item in kernels if item.build.pass_name == pass_name]
    assert changed.passes[-1] in (pass_name, "forward")


def test_a_schedule_takes_calls_from_own_kernels_too() -> None:
    """From kernels of their own, which there are on sm_90a as long as no schedule sets anything."""
    assert tuned(VARIANT, "sm_90a", "decode", dim=64).has_own_kernels
    assert tuned(VARIANT, "sm_90a", "forward", dim=64).has_own_kernels
    assert not tuned(VARIANT, "sm_90a", "forward", dtype="e4m3", dim=64).has_own_kernels
    assert not tuned(VARIANT, "sm_80", "decode", dim=64).has_own_kernels
    settled = VARIANT + "\nschedule own for mine decode on sm_90a { stages = 2 }\n"
    assert not tuned(settled, "sm_90a", "decode", dim=64).has_own_kernels


@pytest.mark.parametrize("own", [None, SPLIT])
def test_own_kernels_are_there_only_where_the_timed_call_has_one(own: OwnKernel | None) -> None:
    """Else a call that is checked, which has few blocks, would run one that isn't timed."""
    kernel = replace(tuned(VARIANT, "sm_90a", "forward", dim=64), own=own)
    split = kernel.configuration._replace(**SPLIT._asdict())
    assert bool(kernel.with_schedule(None).candidates(split, "sm_90a")) == (own is not None)
