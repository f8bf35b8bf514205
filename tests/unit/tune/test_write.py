"""What stands in the file afterwards: the schedule, and all else as it was."""

from __future__ import annotations

import pytest

from attncc.schedule.schedule import Schedule
from attncc.source import SourceFile
from attncc.tune.write import written as written_into
from tests.unit.tune.specifications import BRACES, VARIANT, candidates, specification


def written(text: str, schedule: Schedule) -> str:
    return written_into(SourceFile("mine.attn", text), schedule)


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


LAYOUTS = [
    ("{ skip = never }", "{ skip = never block_q = 64 }"),
    ("{}", "{ block_q = 64 }"),
    ("{\n\tskip = never\n\t} # end", "{\n\tskip = never\n\tblock_q = 64\n\t} # end"),
    ("{\n  skip = never }", "{\n  skip = never\n  block_q = 64\n}"),
    ("{ # none yet\n}", "{ # none yet\n    block_q = 64\n}"),
    ("{\r\n  skip = never\r\n}", "{\r\n  skip = never\r\n  block_q = 64\r\n}"),
    ("{\n  block_q = {32, # small\n    64} # rows\n}", "{\n  # small\n  block_q = 64 # rows\n}"),
]


@pytest.mark.parametrize(("body", "expected"), LAYOUTS)
def test_lines_are_laid_out_as_those_around_them(body: str, expected: str) -> None:
    """And comments stay, those between braces too."""
    head = VARIANT.replace("    keep", " keep") + "schedule plain for mine on sm_80 "
    settings = (("skip", ("never",)),) * ("skip" in body) + (("block_q", (64,)),)
    chosen = Schedule("plain", "mine", "forward", "sm_80", settings)
    again = written(f"{head}{body}\n", chosen)
    assert again == f"{head}{expected}\n"
    assert specification(again).schedules == (chosen,)


def test_a_file_of_windows_lines_stays_one() -> None:
    chosen = Schedule("plain", "mine", "forward", "sm_80", (("block_q", (64,)),))
    again = written(VARIANT.replace("\n", "\r\n"), chosen)
    assert "\n" not in again.replace("\r\n", "")
    assert specification(again).schedules == (chosen,)


def test_a_range_of_lengths_has_a_schedule_of_its_own() -> None:
    general = Schedule("plain", "mine", "forward", "sm_80", (("skip", ("never",)),))
    text = written(VARIANT, general)
    chosen = Schedule("long", "mine", "forward", "sm_80", (("block_q", (64,)),), (1024, 8192))
    again = written(text, chosen)
    assert again == text + "\nschedule long for mine on sm_80 for lengths 1024..8192 {\n    block_q = 64\n}\n"
    assert specification(again).schedules == (general, chosen)
    changed = Schedule("long", "mine", "forward", "sm_80", (("block_q", (32,)),), (1024, 8192))
    assert written(again, changed) == again.replace("64\n", "32\n")


def test_other_passes_keep_their_schedules() -> None:
    text = VARIANT + BRACES
    chosen = Schedule("other", "mine", "decode", "sm_80", (("split_kv", (4,)), ("block_kv", (64,))))
    again = written(text, chosen)
    assert "block_q  = {64, 32}" in again
    assert chosen in specification(again).schedules
