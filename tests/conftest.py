"""Goldens: expected texts that lie beside the tests, compared byte for byte."""

from __future__ import annotations

import difflib
import gc
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

# On two cores, one thread for matrix products: two wait in loops for each other, and beside compilations on every core
# that has taken ten times as long. NumPy reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // 2, 1)))

from tests.compilations import COMPILATIONS, Compilation

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


def _asks_for_gpu(config: pytest.Config) -> bool:
    return re.search(r"\bgpu\b", re.sub(r"not\s+gpu", "", config.getoption("markexpr"))) is not None


def pytest_configure(config: pytest.Config) -> None:
    """`-m gpu` asks for tests that need torch: without it they fail as one, and aren't skipped."""
    if _asks_for_gpu(config) and find_spec("torch") is None:
        raise pytest.UsageError("pytest -m gpu needs torch: pip install '.[torch]'")


def _case(item: pytest.Item) -> Compilation | None:
    """What a test wants compiled."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Compilation) else None


def pytest_collection() -> None:
    gc.disable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """What it waits for is begun at once, beside the collection of the rest. Not where several processes share the
    tests: each would compile all."""
    case, config = _case(item), item.config
    if case is None or config.option.collectonly or hasattr(config, "workerinput") or _asks_for_gpu(config):
        return
    COMPILATIONS.begin(case)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait for compilations come last: till then all other tests run beside them."""
    items.sort(key=lambda item: _case(item) is not None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of tests that were collected, but not chosen, nothing is compiled. What collection made stays to the end: the
    search for garbage, which would go through it again and again, took a tenth of the time of tests. Expressions that
    tests make are no garbage either: it is sought as seldom as in the command `attncc`."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)
    COMPILATIONS.keep({case for item in session.items if (case := _case(item)) is not None})


def pytest_unconfigure() -> None:
    COMPILATIONS.end()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)` fails unless the file holds exactly this text; with --update-golden it writes it."""
    update = request.config.getoption("--update-golden")

    def compare_or_rewrite(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        assert path.is_file(), f"{path} is missing: run pytest --update-golden and read what it writes"
        expected = path.read_bytes()
        if expected != text.encode():
            lines = difflib.unified_diff(
                expected.decode().splitlines(), text.splitlines(), "expected", "now", lineterm=""
            )
            pytest.fail(f"{path} differs:\n" + "\n".join(lines))

    return compare_or_rewrite
