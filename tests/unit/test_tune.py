"""The tuner without a GPU: its candidates, what it leaves out, and how the file is written. Times are made up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from attncc import tune
from attncc.compiler import Specification, specify
from attncc.diagnostics import AttnccError
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule
from attncc.semantics.load import load
from attncc.source import SourceFile

SMALL = Configuration("bf16", 16, 16)
VARIANT = "attn 1\n\nvariant mine {\n    keep if q_pos >= kv_idx  # of course\n}\n"
BRACES = """
# Chosen on a slow day.
schedule fast for mine on sm_80 {
    block_q  = {64, 32}  # rows
    stages   = 1
    # This one matters.
    block_kv = {32, 64}
}

schedule other for mine decode on sm_80 {
    split_kv = auto
}
"""


def specification(text: str) -> Specification:
    return specify(load(SourceFile("mine.attn", text)), "mine")


def candidates(text: str, target: str = "sm_80", pass_name: str = "forward") -> tuple[Schedule, ...]:
    return tune.candidates(specification(text), Build(pass_name, target, *SMALL))


def written(text: str, schedule: Schedule) -> str:
    return tune.written(SourceFile("mine.attn", text), schedule)


def fewest_keys(kernels: Sequence[Kernel]) -> list[float]:
    """A machine on which small tiles are fast."""
    reports = [kernel.report()["mine_forward_bf16_d16_sm_80"] for kernel in kernels]
    return [float(report["choice"]["tiles"].split()[3].rstrip(",")) for report in reports]


# -------------------------------------------------------------------- candidates


def test_what_stands_in_braces() -> None:
    found = candidates(VARIANT + BRACES)
    assert [item.chosen for item in found] == [
        {"block_q": block_q, "stages": 1, "block_kv": block_kv} for block_q in (64, 32) for block_kv in (32, 64)
    ]


def test_the_tiles_where_the_schedule_is_silent() -> None:
    families = [item.chosen["family"] for item in candidates(VARIANT, "sm_90a")]
    assert families == ["hopper"] * 4 + ["portable"] * 2
    assert all("family" not in item.chosen for item in candidates(VARIANT, "sm_80"))


def test_other_settings_are_kept() -> None:
    text = VARIANT + "\nschedule plain for mine on sm_80 { skip = never }\n"
    assert {item.chosen["skip"] for item in candidates(text)} == {"never"}


def test_a_schedule_that_serves_another_target_keeps_what_is_not_about_tiles() -> None:
    text = VARIANT + "\nschedule plain for mine on sm_90 { skip = never block_q = 64 stages = 1 }\n"
    found = candidates(text, "sm_90a")
    assert {item.target for item in found} == {"sm_90a"}
    assert {item.chosen["skip"] for item in found} == {"never"} and len(found) == 6


def test_nothing_to_tune() -> None:
    with pytest.raises(AttnccError, match=r"A521.*`plain` leaves nothing open"):
        candidates(VARIANT + "\nschedule plain for mine on sm_80 { block_q = 64 }\n")


# -------------------------------------------------------------------- tuning


def test_the_fastest_comes_first() -> None:
    trials = tune.tune(specification(VARIANT + BRACES), SMALL, "sm_80", "forward", fewest_keys)
    assert [trial.schedule.chosen["block_kv"] for trial in trials] == [32, 32, 64, 64]
    assert [trial.milliseconds for trial in trials] == [32, 32, 64, 64]
    assert trials[0].settings == "block_q = 64, stages = 1, block_kv = 32"


def test_what_cannot_be_is_named_and_not_timed() -> None:
    text = VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {64, 40} }\n"
    good, bad = tune.tune(specification(text), SMALL, "sm_80", "forward", fewest_keys)
    assert (good.schedule.chosen["block_kv"], good.trouble) == (64, "")
    assert bad.milliseconds is None and "block_kv can't be 40" in bad.trouble
    with pytest.raises(AttnccError, match=r"A521.*none of the candidates can be"):
        tune.tune(specification(text.replace("64, 40", "24, 40")), SMALL, "sm_80", "forward", fewest_keys)


def test_spills_are_timed_only_where_all_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    found = specification(VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {32, 64} }\n")
    real = tune.settle

    class Spilling:
        def __init__(self, candidates) -> None:
            settled = real(candidates)
            self.troubles = "8 bytes of spills" if settled.plan.block_kv in spilling else ""

    monkeypatch.setattr(tune, "settle", Spilling)
    for spilling, timed in (({32}, [64]), ({32, 64}, [32, 64])):
        trials = tune.tune(found, SMALL, "sm_80", "forward", fewest_keys)
        assert [item.schedule.chosen["block_kv"] for item in trials if item.milliseconds is not None] == timed
        assert all(item.trouble for item in trials if item.schedule.chosen["block_kv"] in spilling)


# -------------------------------------------------------------------- the file


def test_the_schedule_alone_changes() -> None:
    text = VARIANT + BRACES
    chosen = candidates(text)[2]
    expected = text.replace("{64, 32}", "32").replace("{32, 64}", "32")
    assert written(text, chosen) == expected
    assert written(expected, chosen) == expected


def test_a_schedule_is_added() -> None:
    chosen = candidates(VARIANT)[0]
    text = written(VARIANT, chosen)
    assert text.startswith(VARIANT + "\nschedule tuned for mine on sm_80 {\n    block_q  = 128\n")
    assert specification(text).schedules == (chosen,)


def test_knobs_are_added_to_one_that_stands() -> None:
    text = VARIANT + "\nschedule plain for mine on sm_80 {\n    skip = never\n}\n"
    chosen = candidates(text)[0]
    again = written(text, chosen)
    assert specification(again).schedules == (chosen,)
    assert again.startswith(
        VARIANT + "\nschedule plain for mine on sm_80 {\n    skip     = never\n    block_q  = 128\n"
    )


def test_a_file_that_is_laid_out_otherwise_stays_so() -> None:
    text = VARIANT.replace("    keep", " keep") + "\nschedule plain for mine on sm_80 { skip = never }\n"
    chosen = candidates(text)[0]
    again = written(text, chosen)
    assert again.startswith(text.partition("schedule")[0])
    assert specification(again).schedules == (chosen,)


def test_other_passes_keep_their_schedules() -> None:
    text = VARIANT + BRACES
    chosen = Schedule("other", "mine", "decode", "sm_80", (("split_kv", (4,)), ("block_kv", (64,))))
    again = written(text, chosen)
    assert "block_q  = {64, 32}" in again
    assert chosen in specification(again).schedules
