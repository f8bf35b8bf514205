from __future__ import annotations

from pathlib import Path

import pytest

from attncc import resources
from attncc.diagnostics import AttnccError
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.loaded import program

SPECS = sorted(resources.folder("specs").glob("*.attn"))
GOLDEN = Path(__file__).parents[2] / "golden" / "ir"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_specs(path: Path, golden) -> None:
    """What each spec is lowered to; one variant a file, of its name, without warnings, and documented."""
    loaded = load(SourceFile.read(path))
    assert loaded.warnings == ()
    assert [variant.name for variant in loaded.variants] == ([] if path.stem == "masks" else [path.stem])
    assert all(variant.documentation for variant in loaded.variants)
    golden(GOLDEN / f"{path.stem}.txt", loaded.show() + "\n")


def test_no_golden_without_its_spec() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {path.stem for path in SPECS}


def test_a_file_may_be_empty() -> None:
    assert program("").variants == ()


def test_errors_come_from_top_to_bottom_and_all_at_once() -> None:
    with pytest.raises(AttnccError) as raised:
        program("variant v {\nkeep if nothing\n}\nmask m() = nowhere\nschedule s for w on sm_80 {}", n=1)
    assert [item.code for item in raised.value.diagnostics] == ["A114", "A101", "A101", "A111"]
    lines = [item.span.line for item in raised.value.diagnostics if item.span]
    assert lines == sorted(lines)


def test_schedules_are_kept_as_written() -> None:
    text = (
        "variant v {}\nschedule a for v on sm_80 { stages = 2 }\nschedule a for v backward on sm_80 { stages = {2, x} }"
    )
    schedules = program(text).schedules
    assert [item.pass_name and item.pass_name.name for item in schedules] == [None, "backward"]
    assert schedules[1].settings[0].values == (2, "x")


def codes(schedules: str) -> list[str]:
    with pytest.raises(AttnccError) as raised:
        program(f"variant v {{}}\nvariant w {{}}\n{schedules}")
    return [item.code for item in raised.value.diagnostics]


def test_one_schedule_for_each_variant_pass_and_target() -> None:
    one = "schedule a for v on sm_80 {}\n"
    for other in ("w on sm_80", "v on sm_90", "v decode on sm_80", "v backward on sm_80"):
        assert len(program(f"variant v {{}}\nvariant w {{}}\n{one}schedule b for {other} {{}}").schedules) == 2
    assert codes(f"{one}schedule b for v on sm_80 {{}}") == ["A112"]
    assert codes(f"{one}schedule b for v forward on sm_80 {{}}") == ["A112"]


def test_schedules_of_what_is_not_there() -> None:
    assert codes("schedule a for x on sm_80 {}") == ["A111"]
    assert codes("schedule a for v forwards on sm_80 {}\nschedule b for v sideways on sm_80 {}") == ["A113", "A113"]
