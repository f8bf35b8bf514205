"""`pytest` as a whole is shared by processes; a test that is marked `alone` runs while the others rest."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

WHOLE, PART = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize(
    ("markexpr", "source", "asked", "of_worker", "shared"),
    [
        ("gpu", WHOLE, None, {}, True),
        ("gpu", WHOLE, None, {"workerinput": {}}, False),  # else each of the processes would begin more of them
        ("gpu", WHOLE, 0, {}, False),
        ("gpu", PART, None, {}, False),
        ("not gpu and not slow", WHOLE, None, {}, True),
        ("not gpu and not slow", PART, None, {}, False),
    ],
)
def test_what_is_shared(markexpr: str, source: Any, asked: int | None, of_worker: Any, shared: bool) -> None:
    option = SimpleNamespace(numprocesses=asked, dist="no", update_golden=False, collectonly=False)
    config = SimpleNamespace(args_source=source, getoption=lambda name: markexpr, option=option, **of_worker)
    conftest.pytest_cmdline_main(config)
    assert (option.numprocesses == "auto") == shared


@pytest.mark.parametrize("name", ["update_golden", "collectonly"])
def test_goldens_are_written_by_one_process(name: str) -> None:
    option = SimpleNamespace(**{"numprocesses": None, "update_golden": False, "collectonly": False, name: True})
    config = SimpleNamespace(args_source=WHOLE, getoption=lambda name: "not gpu and not slow", option=option)
    conftest.pytest_cmdline_main(config)
    assert option.numprocesses is None


def test_without_xdist_one_process_runs_them() -> None:
    config = SimpleNamespace(args_source=WHOLE, getoption=lambda name: "gpu", option=SimpleNamespace())
    conftest.pytest_cmdline_main(config)
    assert not vars(config.option)


def test_one_that_is_alone_waits_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "TURNS", tmp_path / "turns")
    conftest.TURNS.touch()
    config = SimpleNamespace(workerinput={})

    def begun(marker: str | None) -> Any:
        item = SimpleNamespace(config=config, get_closest_marker=lambda name: name == marker or None)
        turn = conftest.pytest_runtest_protocol(item)
        next(turn)
        return turn

    with ThreadPoolExecutor() as pool:
        others = [begun(None), begun(None)]
        alone = pool.submit(begun, "alone")
        for other in others:
            with pytest.raises(TooLate):
                alone.result(timeout=0.05)
            other.close()
        turn = alone.result()
        late = pool.submit(begun, None)  # not before: it may come first, and nobody would end it
        with pytest.raises(TooLate):
            late.result(timeout=0.05)
        turn.close()
        late.result().close()


def test_other_folders_have_no_tests_of_the_gpu() -> None:
    """`pytest -m gpu` reads none of them."""
    folder = Path(conftest.__file__).parent
    others = [path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] not in conftest.OF_GPU]
    assert [path for path in others if "mark." + "gpu" in path.read_text(encoding="utf-8")] == []
