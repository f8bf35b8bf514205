"""Goldens: expected texts that lie beside the tests, compared byte for byte."""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

# On two cores, one thread for matrix products: two wait in loops for each other, and beside compilations on every core
# that has taken ten times as long. NumPy reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // 2, 1)))

from attncc.runtime.cuda.nvrtc_pool import JOBS
from tests.compilations import COMPILATIONS, Compilation
from tests.kernels import LARGE_PAGES, MOST_PROCESSES

PROCESS_BYTES = 8 << 30  # of the GPU's memory, for each process that shares its tests
TURNS = Path(__file__)  # a file that processes lock
OF_GPU = ("gpu", "meaning")  # the folders with tests that need one
ALL_OF = re.compile(r"^pytestmark = \[?pytest\.mark\.(gpu|slow)\b", re.M)  # in files whose tests all have this mark
Golden = Callable[[Path, str], None]
# Files of many cases of a kind, whose runs take long: the plain suite has one case in so many.
EVERY = {
    "tests/library/test_tiles.py": 2,
    "tests/meaning/test_dropout.py": 3,
    "tests/meaning/test_gradients.py": 3,
    "tests/property/test_fuzz_parser.py": 2,
    "tests/property/test_key_sets.py": 3,
    "tests/property/test_random_variants.py": 3,
    "tests/property/test_tampered_packages.py": 2,
    "tests/structure/test_forms.py": 4,
    "tests/test_gallery.py": 2,
    "tests/test_generated.py": 4,
    "tests/test_generated_compiles.py": 2,
    "tests/unit/analysis/mask/test_bits.py": 3,
    "tests/unit/analysis/mask/test_intervals.py": 2,
    "tests/unit/analysis/mask/test_sorted_hints.py": 2,
    "tests/unit/analysis/test_growth.py": 4,
    "tests/unit/analysis/tiles_2d/test_fixed.py": 2,
    "tests/unit/distributed/test_plan.py": 3,
    "tests/unit/executor/test_backward.py": 2,
    "tests/unit/executor/test_run.py": 2,
    "tests/unit/kernels/helpers/test_append.py": 3,
    "tests/unit/kernels/portable/test_tables.py": 2,
    "tests/unit/lsp/test_diagnose.py": 3,
    "tests/unit/package/test_evil_texts.py": 4,
    "tests/unit/package/test_serving_calls.py": 4,
    "tests/unit/schedule/test_plan_json.py": 5,
    "tests/unit/semantics/test_limits.py": 2,
    "tests/unit/semantics/test_workspace.py": 2,
    "tests/unit/templates/test_emulated_8bit_caches.py": 3,
    "tests/unit/templates/test_emulated_caches.py": 10,
    "tests/unit/templates/test_emulated_decode.py": 2,
    "tests/unit/templates/test_emulated_hopper.py": 2,
    "tests/unit/templates/test_emulated_hopper_wide.py": 2,
    "tests/unit/templates/test_emulated_tma.py": 2,
    "tests/unit/templates/test_hopper.py": 4,
    "tests/unit/templates/test_merge_pieces.py": 3,
    "tests/unit/test_io_model.py": 3,
    "tests/unit/test_machine_code.py": 2,
    "tests/unit/test_stages.py": 4,
    "tests/unit/tune/test_candidates.py": 3,
    "tests/unit/tune/test_session.py": 4,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


def _asks_for_gpu(config: pytest.Config) -> bool:
    return re.search(r"\bgpu\b", re.sub(r"not\s+gpu", "", config.getoption("markexpr"))) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """`pytest` as a whole is shared by processes, one for each core, unless `-n` says otherwise or goldens are written.

    Each process compiles one kernel at a time: no candidates are tried ahead, as there are as many processes as cores.
    Those of the GPU mostly compile, and get tests in small pieces, as neighbours have different kernels. Others get
    them in large pieces, as neighbours read the same files.
    """
    option, whole = config.option, config.args_source is pytest.Config.ArgsSource.TESTPATHS
    asked = getattr(option, "numprocesses", 0) is not None  # or there is no xdist
    if not whole or asked or hasattr(config, "workerinput") or option.update_golden or option.collectonly:
        return
    option.numprocesses = "auto"
    os.environ |= {"OMP_NUM_THREADS": "1", JOBS: "1"}  # for the processes
    if _asks_for_gpu(config):
        option.maxschedchunk = 4
        os.environ |= LARGE_PAGES
    elif option.dist == "no":
        option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Of those that ask for the GPU, no more than its memory is enough for."""
    if not _asks_for_gpu(config):
        return min(os.cpu_count() or 1, MOST_PROCESSES)
    memory = ctypes.c_size_t()
    with suppress(OSError):  # without a driver tests say what is missing
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuInit(0)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), 0)
    return max(min(os.cpu_count() or 1, MOST_PROCESSES, memory.value // PROCESS_BYTES), 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Where processes share the tests, one that is marked `alone` runs while the others rest."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    import fcntl

    with TURNS.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX if _alone(item) else fcntl.LOCK_SH)
        return (yield)


def _alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_configure(config: pytest.Config) -> None:
    """`-m gpu` asks for tests that need torch: without it they fail as one, and aren't skipped."""
    if config.getoption("--update-golden"):
        config.option.markexpr = re.sub(r" and not slow$", "", config.option.markexpr)
    if _asks_for_gpu(config) and find_spec("torch") is None:
        raise pytest.UsageError("pytest -m gpu needs torch: pip install '.[torch]'")


def _case(item: pytest.Item) -> Compilation | None:
    """What a test wants compiled."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Compilation) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`pytest -m gpu` reads no other folder: each of its processes would, for as long as it takes to read these. Files
    whose tests all have a mark that isn't asked for aren't read either: to list their cases and to import what they
    need takes longer than to leave them out."""
    inside = collection_path.relative_to(Path(__file__).parent).parts
    other_folder = bool(inside) and inside[0] not in OF_GPU and config.option.markexpr == "gpu"
    return True if other_folder or _left_out(collection_path, config) else None


def _left_out(path: Path, config: pytest.Config) -> bool:
    """Whether all of a file's tests have a mark that `-m` says no to."""
    refused = re.findall(r"\bnot (gpu|slow)\b", config.option.markexpr)
    if not refused or not path.match("test_*.py"):
        return False
    found = ALL_OF.search(path.read_text(encoding="utf-8"))
    return found is not None and found[1] in refused


def pytest_collection() -> None:
    gc.disable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """What it waits for is begun at once, beside the collection of the rest. Not where several processes share the
    tests: each would compile all."""
    case, config = _case(item), item.config
    left_out = "not slow" in config.option.markexpr and item.get_closest_marker("slow") is not None
    if case is None or left_out or config.option.collectonly or hasattr(config, "workerinput") or _asks_for_gpu(config):
        return
    COMPILATIONS.begin(case)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait for compilations come last: till then all other tests run beside them. Behind them those that
    others wait for."""
    _thin_out(items)
    items.sort(key=lambda item: (_alone(item), _case(item) is not None))


def _thin_out(items: list[pytest.Item]) -> None:
    """Of the cases of a test in some files, the first of each so many runs every day; the others are marked slow."""
    for name, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        every = EVERY.get(name.partition("::")[0], 1)
        for number, item in enumerate(cases):
            if number % every:
                item.add_marker(pytest.mark.slow)


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
