"""Whole runs of the tuner on a simulated GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.schedule.plan import KernelPlan
from attncc.source import SourceFile
from attncc.tune.compiling import LATE
from attncc.tune.race import HELD, LEAST_WIN
from attncc.tune.report import Report
from attncc.tune.session import LEAST
from attncc.tune.write import written
from tests.unit.tune.machines import Rig, best_milliseconds, by_tiles, chosen_milliseconds
from tests.unit.tune.specifications import BRACES, VARIANT, tuned

SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))


def flat(_: KernelPlan) -> float:
    """All schedules are equal."""
    return 0.25


# -------------------------------------------------------------------- what is found


@pytest.mark.parametrize("seed", range(6))
def test_the_best_within_one_percent_in_time(seed: int) -> None:
    session = Rig(tuned(VARIANT)).session(seed=seed)
    session.run()
    assert session.winner is not None and session.winner.plan is not None
    assert chosen_milliseconds(session, by_tiles) <= 1.01 * best_milliseconds(session, by_tiles)
    assert session.machine.clock() < 61


@pytest.mark.parametrize("seed", range(20))
def test_equals_never_win(seed: int) -> None:
    session = Rig(tuned(VARIANT + BRACES)).session(flat, seed=seed)
    session.run()
    assert session.verdict is not None and session.winner is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("text", [VARIANT, VARIANT + "\nschedule plain for mine on sm_80 { skip = auto }\n"])
def test_a_second_run_changes_nothing(text: str, seed: int) -> None:
    first = Rig(tuned(text)).session(seed=seed)
    first.run()
    assert first.winner is not None and first.winner.schedule is not None
    again = written(SourceFile("mine.attn", text), first.winner.schedule)
    second = Rig(tuned(again)).session(seed=seed + 100)
    second.run()
    assert second.winner is None
    held = second.trials[HELD].plan
    assert held is not None and first.winner.plan is not None and held.tiles == first.winner.plan.tiles


NOISY: dict[str, Any] = {"noise": 0.015, "spikes": 0.15, "warming": 0.2, "swing": 0.03, "placement": 0.002}


@pytest.mark.parametrize("pass_name", ["forward", "backward", "decode"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_run_on_a_card_at_its_noisiest_changes_nothing(pass_name: str, seed: int) -> None:
    """What the first run chose is held in the second, or what the file had, where that was no win for sure."""
    first = Rig(tuned(VARIANT, pass_name=pass_name)).session(seed=seed, **NOISY)
    first.run()
    assert first.machine.clock() < 61
    text = VARIANT
    if first.winner is not None:
        assert first.winner.schedule is not None
        text = written(SourceFile("mine.attn", VARIANT), first.winner.schedule)
    second = Rig(tuned(text, pass_name=pass_name)).session(seed=seed + 100, **NOISY)
    second.run()
    assert second.winner is None


@pytest.mark.parametrize("seed", range(20))
def test_equals_never_win_on_a_card_at_its_noisiest(seed: int) -> None:
    session = Rig(tuned(VARIANT + BRACES)).session(flat, seed=seed, **NOISY)
    session.run()
    assert session.verdict is not None and session.winner is None


def test_it_ends_when_nothing_is_left_to_learn() -> None:
    """Long before the budget does: nobody waits for a minute that changes nothing."""
    session = Rig(tuned(VARIANT)).session(budget=600)
    session.run()
    assert session.winner is not None and session.machine.clock() < 20


def far(plan: KernelPlan) -> float:
    """Fastest some steps from all tiles that the families name."""
    return 0.3 * (1 + abs(plan.block_q - 64) / 100 + abs(plan.block_kv - 112) / 300 + abs(plan.stages - 4) / 30)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_goes_on_beside_the_fastest(seed: int) -> None:
    first = Rig(tuned(VARIANT)).session(far, seed=seed)
    first.run()
    assert first.winner is not None and first.winner.plan is not None and first.winner.schedule is not None
    assert (first.winner.plan.block_q, first.winner.plan.block_kv, first.winner.plan.stages) == (64, 112, 4)
    again = written(SourceFile("mine.attn", VARIANT), first.winner.schedule)
    second = Rig(tuned(again)).session(far, seed=seed + 50)
    second.run()
    assert second.winner is None


def alone(plan: KernelPlan) -> float:
    """One tile is fast, and no tile beside it is faster than others."""
    return 0.28 if (plan.block_q, plan.warps, plan.block_kv, plan.stages) == (64, 4, 64, 5) else 0.3


def test_the_search_reaches_what_no_single_step_leads_to() -> None:
    session = Rig(tuned(VARIANT)).session(alone)
    session.run()
    assert session.winner is not None and session.winner.plan is not None
    assert session.winner.plan.tiles == "portable 64 x 64, 4 warps, 5 stages"


@pytest.mark.parametrize(("block_kv", "stages"), [(96, 2), (160, 2)])
def test_the_search_reaches_all_tiles_with_the_warps_of_the_fastest(block_kv: int, stages: int) -> None:
    """Which the IO model may rank behind many with fewer warps: one query needs no rows, but warps share its keys."""

    def times(plan: KernelPlan) -> float:
        if (plan.block_q, plan.warps, plan.block_kv, plan.stages) == (64, 4, block_kv, stages):
            return 0.28
        return 0.3 + 0.005 * ((plan.block_q, plan.warps) != (64, 4))

    session = Rig(tuned(VARIANT, pass_name="decode")).session(times)
    session.run()
    assert session.winner is not None and session.winner.plan is not None
    assert session.winner.plan.tiles == f"portable 64 x {block_kv}, 4 warps, {stages} stages"


def test_the_first_of_braces_is_what_is_held() -> None:
    session = Rig(tuned(VARIANT + BRACES)).session(lambda plan: 1 + 0.1 * (plan.block_kv == 32))
    session.run()
    assert len(session.trials) == 4
    assert session.trials[HELD].tiles.startswith("portable 64 x 32")
    assert session.winner is not None and session.winner.schedule is not None
    assert session.winner.schedule.chosen["block_kv"] == 64


# -------------------------------------------------------------------- what can't be, and what spills


def test_what_cannot_be_is_named_and_not_compiled() -> None:
    rig = Rig(tuned(VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {64, 40} }\n"))
    session = rig.session()
    session.run()
    assert len(rig.compiled) == 1
    (trouble,) = (trial.trouble for trial in session.trials.values() if trial.trouble)
    assert "block_kv can't be 40" in trouble


def test_what_takes_the_place_of_a_schedule_that_cannot_be() -> None:
    rig = Rig(tuned(VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {40, 64, 32} }\n"))
    session = rig.session(flat)
    session.run()
    assert session.held is None
    assert session.winner is not None and session.winner.trouble == ""
    assert "can't be" in Report(session).sentence()


def test_nothing_to_tune() -> None:
    rig = Rig(tuned(VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {24, 40} }\n"))
    with pytest.raises(AttnccError, match=r"A521.*none of the candidates can be"):
        rig.session().run()


def test_spills_are_timed_only_where_all_spill() -> None:
    text = VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {32, 48, 64} }\n"
    some = Rig(tuned(text)).session(spills=lambda plan: plan.block_kv == 48)
    some.run()
    assert set(some.board.raced) == {"block_q = 64, block_kv = 64"}
    every = Rig(tuned(text)).session(spills=lambda plan: True)
    every.run()
    assert set(every.board.raced) == {"block_q = 64, block_kv = 48", "block_q = 64, block_kv = 64"}
    assert every.winner is not None and "spills" in every.winner.trouble
    assert all(Report(every).why(trial) for trial in every.trials.values())


def test_where_nothing_else_can_be_timed_the_time_is_not_blamed() -> None:
    text = VARIANT + "\nschedule fast for mine on sm_80 { block_q = 64 block_kv = {32, 48} }\n"
    session = Rig(tuned(text)).session(spills=lambda plan: plan.block_kv == 48)
    session.run()
    assert session.verdict is None
    assert "no other schedule is worth timing" in Report(session).sentence()
    hurried = Rig(tuned(text)).session(lambda plan: 1e4, budget=1)
    hurried.run()
    assert "the time was too short" in Report(hurried).sentence()


def test_a_wrong_result_never_wins() -> None:
    session = Rig(tuned(VARIANT)).session(wrong=lambda plan: (plan.block_q, plan.block_kv) == (64, 48))
    session.run()
    assert session.winner is not None and session.winner.plan is not None
    assert (session.winner.plan.block_q, session.winner.plan.block_kv) != (64, 48)
    assert any(trial.trouble.startswith("wrong: out") for trial in session.trials.values())


@pytest.mark.parametrize(("keys", "differ"), [("{32, 48}", True), ("{32, 64}", False)])
def test_it_says_whether_bits_change(keys: str, differ: bool) -> None:
    text = VARIANT + f"\nschedule fast for mine on sm_80 {{ block_q = 64 block_kv = {keys} }}\n"
    session = Rig(tuned(text)).session(lambda plan: 1 / plan.block_kv)
    session.run()
    assert session.bits_differ is differ
    assert f"bits of results {'change' if differ else 'stay'}" in Report(session).sentence()


# -------------------------------------------------------------------- time, interruptions, resuming


@pytest.mark.parametrize("budget", [2, 5, 20])
def test_the_budget_is_kept(budget: float) -> None:
    session = Rig(tuned(VARIANT)).session(lambda plan: 20 * by_tiles(plan), budget=budget)
    session.run()
    assert session.machine.clock() < budget + 1
    assert session.board.raced


def test_what_is_not_compiled_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tuned(VARIANT))
    session = rig.session(budget=10)
    make = session.make

    def slowly(*given):
        rig.machine.seconds += 2
        return make(*given)

    monkeypatch.setattr("attncc.tune.compiling.jobs", lambda: 1)
    session.make = slowly
    session.run()
    late = [trial for trial in session.trials.values() if trial.trouble == LATE]
    assert late and 2 <= len(rig.compiled) <= 4
    assert session.machine.clock() < 11


def test_compilation_that_takes_the_whole_budget_still_leaves_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two schedules compile in any case. Then a share of the budget goes to the race, and one to the duel."""
    rig = Rig(tuned(VARIANT))
    session = rig.session(budget=10)
    make = session.make

    def slowly(*given):
        rig.machine.seconds += 20
        return make(*given)

    monkeypatch.setattr("attncc.tune.compiling.jobs", lambda: 1)
    session.make = slowly
    session.run()
    assert session.board.raced and session.verdict is not None
    compiling = 20 * len(rig.compiled)
    assert compiling < session.machine.clock() < compiling + 2 * LEAST * 10 + 1


def test_ctrl_c_keeps_what_was_found() -> None:
    """A candidate that takes a third of the time has won before it is confirmed; nothing more is timed."""

    def obvious(plan: KernelPlan) -> float:
        return 0.1 if plan.block_kv == 48 and plan.block_q == 64 and plan.stages == 2 else 0.3

    session = Rig(tuned(VARIANT)).session(obvious, after=220)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.conclude(timing=False)
    assert session.winner is not None and session.winner.plan is not None and session.winner.plan.block_kv == 48


@pytest.mark.parametrize("after", [0, 1, 3, 60, 300])
def test_ctrl_c_at_any_time_leaves_a_report(after: int) -> None:
    session = Rig(tuned(VARIANT)).session(flat, after=after)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.conclude(timing=False)
    assert session.winner is None
    Report(session).table()
    json.dumps(Report(session).to_json())


@pytest.mark.parametrize("after", [2, 100, 250])
def test_it_goes_on_from_the_log(after: int) -> None:
    rig = Rig(tuned(VARIANT))
    spilling = {"spills": lambda plan: plan.block_q == 32}
    session = rig.session(after=after, **spilling)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    done = {name: len(blocks) for name, blocks in session.board.raced.items()}
    session.log.close()
    spilled = {tiles for tiles in rig.compiled if "portable 32" in tiles}
    again = rig.session(resume=True, seed=9, **spilling)
    assert {name: len(blocks) for name, blocks in again.board.raced.items()} == done
    again.run()
    assert spilled
    assert not spilled & set(rig.compiled)  # they are known to spill
    assert again.winner is not None
    assert chosen_milliseconds(again, by_tiles) <= 1.01 * best_milliseconds(again, by_tiles)
    whole = rig.session(**spilling)
    whole.run()
    whole_windows = rig.machine.windows
    third = rig.session(resume=True, **spilling)
    third.run()
    assert third.winner == whole.winner or third.winner is not None
    assert rig.machine.windows == 0 < whole_windows


def test_a_run_that_the_budget_ended_goes_on_too() -> None:
    rig = Rig(tuned(VARIANT))
    session = rig.session(lambda plan: 20 * by_tiles(plan), budget=3)
    session.run()
    again = rig.session(lambda plan: 20 * by_tiles(plan), resume=True)
    again.run()
    assert rig.machine.windows > 0
    assert chosen_milliseconds(again, by_tiles) <= 1.01 * best_milliseconds(again, by_tiles)


def test_a_line_that_was_cut_off_counts_for_nothing() -> None:
    rig = Rig(tuned(VARIANT + BRACES))
    session = rig.session(after=20)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.log.close()
    blocks = sum(map(len, session.board.raced.values()))
    text = rig.path.read_text()
    rig.path.write_text(text[: text.rindex("{") + 12])
    again = rig.session(resume=True)
    assert sum(map(len, again.board.raced.values())) == blocks - 1
    again.run()
    assert all(line == "" or line[0] == "{" for line in rig.path.read_text().splitlines())
    assert rig.session(resume=True).verdict is None


DAMAGES: list[tuple[str, dict[str, Any]]] = [
    ("begun", {"identity": None}),
    ("begun", {"identity": [1]}),
    ("compiled", {"name": 3}),
    ("compiled", {"settings": {"no_knob": 1}}),
    ("compiled", {"name": "unknown", "settings": None}),
    ("compiled", {"trouble": None}),
    ("block", {"kind": "lost"}),
    ("block", {"name": None}),
    ("block", {"name": "block_q = 7"}),
    ("block", {"milliseconds": [1.0, 2.0]}),
    ("block", {"milliseconds": [0, 0, 0]}),
    ("block", {"milliseconds": [1, 10**400, 1]}),
    ("block", {"milliseconds": ["1", 1, 1]}),
    ("verdict", {"name": "nobody", "wins": True, "gain": 0.1, "floor": 0.01, "interval": [0, 1], "bits_differ": None}),
    ("verdict", {"name": "held"}),
    ("checked", {"name": "held"}),
]


@pytest.mark.parametrize(("what", "changed"), DAMAGES)
def test_a_damaged_log_is_refused(what: str, changed: dict[str, Any]) -> None:
    """Whoever changed it, or whatever: no lost field is a traceback."""
    rig = Rig(tuned(VARIANT + BRACES))
    session = rig.session(after=20)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    session.log.close()
    records = [json.loads(line) for line in rig.path.read_text().splitlines()]
    found = next((record for record in records if record["what"] == what), None)
    if found is None:
        records.append(found := {"what": what})
    found.update(changed)
    rig.path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(AttnccError, match=r"A524.*it is damaged"):
        rig.session(resume=True).run()


def test_lines_of_a_log_that_are_no_records_count_for_nothing() -> None:
    rig = Rig(tuned(VARIANT + BRACES))
    rig.session().log.close()
    rig.path.write_text(rig.path.read_text() + "[" * 100_000 + "\n{}\n3\n\x00\n")
    assert rig.session(resume=True).verdict is None


def test_the_log_of_another_run_is_refused(tmp_path: Path) -> None:
    rig = Rig(tuned(VARIANT + BRACES), path=tmp_path / "log.jsonl")
    with pytest.raises(AttnccError, match=r"A524.*there is none"):
        rig.session(resume=True)
    rig.session().log.close()
    other = Rig(tuned(VARIANT + BRACES), problem=rig.work.smaller().problem.with_starts((), ()), path=rig.path)
    with pytest.raises(AttnccError, match=r"(?s)A524.*of another run.*problem: "):
        other.session(resume=True)


# -------------------------------------------------------------------- passes, the table


@pytest.mark.parametrize(
    ("pass_name", "target", "dtype"),
    [
        ("backward", "sm_80", "bf16"),
        ("backward_dq", "sm_80", "fp32"),
        ("decode", "sm_80", "fp16"),
        ("forward", "sm_90a", "e4m3"),
    ],
)
def test_other_passes(pass_name: str, target: str, dtype: str) -> None:
    session = Rig(tuned(VARIANT, target, pass_name, dtype)).session(lambda plan: by_tiles(plan) + plan.stages / 100)
    session.run()
    assert session.verdict is not None
    assert chosen_milliseconds(session, session.machine._times) <= 1.01 * best_milliseconds(
        session, session.machine._times
    )


@pytest.mark.slow
def test_the_table_says_why_others_lost() -> None:
    session = Rig(tuned(VARIANT)).session()
    session.run()
    report = Report(session)
    rows = report.rows()
    assert rows[0] is session.winner
    assert report.why(rows[0]) == ""
    reasons = {report.why(row).split(":")[0] for row in rows[1:]}
    assert reasons & {"tensor cores", "bytes", "waves", "registers"}
    times = [found[0] for row in rows if (found := report.milliseconds(row))]
    assert times == sorted(times) and len(times) > 5
    assert all(0 < (report.share_of_roofline(row) or 0) < 1 for row in rows if report.milliseconds(row))
    found = report.to_json()
    assert found["verdict"]["wins"] and found["verdict"]["interval"][0] > LEAST_WIN
    assert found["trials"][0]["settings"] == session.winner.schedule.chosen
