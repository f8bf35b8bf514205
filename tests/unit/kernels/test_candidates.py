"""The plans that one kernel may have, in order."""

from __future__ import annotations

import pytest

from attncc.compiler import NO_DEFINES, load_specification
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.kernels.candidates import Candidates, make_candidates
from attncc.kernels.registry import load
from attncc.runtime.store.store import Configuration
from attncc.schedule.choice import Value
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule


def candidates(target: str = "sm_90a", head_dim: int = 128, dtype: str = "bf16", **settings: Value) -> Candidates:
    given = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("s", "full", "forward", target, given)
    return make_candidates(Variant("full"), Build("forward", target, dtype, head_dim, head_dim), schedule)


def tiles_of(of: Candidates) -> list[str]:
    return [plan.tiles for plan in of.plans()]


def test_other_settings_keep_the_candidates() -> None:
    assert len(tiles_of(candidates(family="hopper", stages=2, skip="never"))) == 5
    assert len(tiles_of(candidates(target="sm_80"))) == 4


def test_the_portable_family_ends_every_candidates() -> None:
    families = [plan.family for plan in candidates().plans()]
    assert families == ["hopper"] * 5 + ["portable"] * 5
    assert {plan.family for plan in candidates(family="hopper").plans()} == {"hopper"}


def test_the_last_candidates_have_fewer_warps_then_fewer_keys() -> None:
    found = [(plan.block_q, plan.block_kv, plan.warps) for plan in candidates(target="sm_80", head_dim=64).plans()]
    assert found == [(128, 64, 4), (64, 32, 4), (32, 32, 2), (32, 16, 2)]
    found = [(plan.block_q, plan.block_kv, plan.warps) for plan in candidates("sm_80", 96, "fp32").plans()]
    assert found == [(64, 32, 4), (32, 32, 2), (32, 16, 2)]


def test_the_last_candidates_are_for_what_spills() -> None:
    """Blocks of 80 keys are whole tiles of 16 keys alone: no reason to begin there."""
    text = "attn 1\nimport masks\nvariant map {\n    input live: bool[batch, head, _, _]\n"
    specification, _ = load_specification(text + "    keep if selected_blocks(live, 80, 80)\n}\n", None, NO_DEFINES)
    of = make_candidates(specification.variant, Build("forward", "sm_80", "bf16", 64, 64))
    assert of.first.warps == 4 and of.first.tests_tiles
    assert [plan.block_kv for plan in of.plans()][-1] == 16


def test_candidates_that_cannot_be_are_left_out() -> None:
    """At head dim 256, three stages of 64 keys don't fit."""
    assert [plan.block_kv for plan in candidates(family="hopper", head_dim=256, stages=3).plans()] == [48, 32, 16]
    with pytest.raises(AttnccError, match="A406"):
        next(candidates(family="hopper", head_dim=256, stages=3, block_kv=64).plans())


def test_a_family_without_tiles_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new one is at first."""
    monkeypatch.setattr(type(load("portable_forward")), "begin", lambda self, asked: iter(()))
    with pytest.raises(AttnccError, match="A412") as error:
        assert candidates("sm_80").first
    assert "tiles for this" in str(error.value)


def test_a_loop_order_that_e4m3_has_not_is_to_be_removed() -> None:
    """The target and the dtype are right."""
    text = "attn 1\nvariant mine {}\nschedule of_mine for mine on sm_90 { loop = kv_outer }\n"
    with pytest.raises(AttnccError, match=r"(?s)A412.*help: remove `loop = kv_outer`"):
        load_specification(text, None, {})[0].plans(Configuration("e4m3", 64, 64), "sm_90a")


def test_no_tile_stands_twice() -> None:
    for target in ("sm_80", "sm_90a"):
        for head_dim in (16, 64, 128, 256):
            found = tiles_of(candidates(target=target, head_dim=head_dim))
            assert len(found) == len(set(found))


@pytest.mark.parametrize(("settings", "families"), [("loop = kv_outer", "portable"), ("family = hopper", "A412")])
def test_schedules_for_what_caches_of_8_bits_have_not(settings: str, families: str) -> None:
    """One that names no family doesn't count for them; docs/serving.md says so."""
    text = f"attn 1\nvariant mine {{}}\nschedule of_mine for mine on sm_90a {{ {settings} }}\n"
    specification = load_specification(text, None, {})[0]
    asked = Configuration("bf16", 64, 64, kv_dtype="int8")
    if families == "A412":
        with pytest.raises(AttnccError, match="A412"):
            specification.plans(asked, "sm_90a")
    else:
        forward = specification.plans(asked, "sm_90a")[0]
        assert (forward.family, forward.loop) == (families, "q_outer")
