"""The processes that compile: what happens to one, and to this one, touches no other compilation."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.cuda import nvrtc, nvrtc_pool
from attncc.runtime.cuda.nvrtc_pool import Pool, Reply

COMPILER = shutil.which("gcc")
ROOT = Path(__file__).parents[4]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs gcc")

KERNEL = 'extern "C" __global__ void one(float* out) { out[threadIdx.x] = 1.0f; }'
LONG = "\n".join(  # takes NVRTC ten seconds and more
    f'extern "C" __global__ void f{i}(float* p) {{ float x[99];\n'
    "#pragma unroll\nfor (int i = 0; i < 99; i++) x[i] = p[i];\n"
    f"#pragma unroll\nfor (int i = 0; i < 9801; i++) x[i % 99] = x[(i * 7) % 99] * x[i / 99] + {i};\n"
    "#pragma unroll\nfor (int i = 0; i < 99; i++) p[i] = x[i]; }"
    for i in range(200)
)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the name that libnvrtc has in a process."""
    library = tmp_path_factory.mktemp("stub") / "libnvrtc.so.13"
    source = Path(__file__).with_name("stub_nvrtc.c")
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-w", "-Wl,-soname,libnvrtc.so.13", "-o", library, source]
    subprocess.run(command, check=True)
    return library


Made = Callable[..., Pool]


@pytest.fixture
def make(stub: Path) -> Iterator[Made]:
    made: list[Pool] = []

    def pool(seconds: float = 60, gibibytes: float = 1, limit: int = 2) -> Pool:
        made.append(Pool((str(stub),), seconds, gibibytes, limit))
        return made[-1]

    yield pool
    for item in made:
        item.close()


def submit(pool: Pool, text: str) -> Future[Reply]:
    return pool.submit("k.cu for sm_80", [text.encode(), b"k.cu", b"sm_80"], lambda reply: reply)


def failure(future: Future[Reply]) -> str:
    with pytest.raises(AttnccError) as caught:
        future.result(60)
    return str(caught.value)


def running(pool: Pool) -> list[int]:
    return [item._process.pid for item in pool._processes]


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether it ended; perhaps nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@needs_compiler
@pytest.mark.parametrize(
    ("text", "seconds", "code", "what"),
    [
        ("crash", 60, "A906", "k.cu for sm_80: signal 11"),
        ("crash", 60, "A906", "note: last line"),
        ("leave", 60, "A906", "status 3"),
        ("sleep", 0.5, "A907", "k.cu for sm_80 within 0.5 s"),
        ("grow", 60, "A908", "more than 1 GiB"),
        ("throw", 60, "A908", "more than 1 GiB"),
    ],
)
def test_the_end_of_a_process_is_an_error_of_one_compilation(
    make: Made, text: str, seconds: float, code: str, what: str
) -> None:
    pool = make(seconds)
    futures = [submit(pool, item) for item in ("", text, "", "")]
    shown = failure(futures[1])
    assert f"error[{code}]" in shown
    assert what in shown
    assert [future.result(60)[-1] for future in (futures[0], *futures[2:])] == [b"cubin"] * 3
    assert submit(pool, "").result(60)[-1] == b"cubin"


@needs_compiler
def test_processes_begin_with_work_and_end_without(make: Made) -> None:
    pool = make(limit=2)
    assert running(pool) == []
    submit(pool, "").result(60)
    (first,) = running(pool)
    submit(pool, "").result(60)
    assert running(pool) == [first]
    sleeping = [submit(pool, "sleep") for _ in range(3)]
    until(lambda: len(running(pool)) == 2)
    processes = running(pool)
    pool.close()
    until(lambda: all(map(gone, processes)))
    for future in sleeping:
        with pytest.raises(CancelledError):
            future.result(60)


@needs_compiler
def test_one_that_was_ended_from_outside_is_replaced(make: Made) -> None:
    pool = make(limit=1)
    submit(pool, "").result(60)
    (idle,) = running(pool)
    os.kill(idle, signal.SIGKILL)
    until(lambda: gone(idle))
    assert submit(pool, "").result(60)[-1] == b"cubin"
    future = submit(pool, "sleep")
    until(future.running)
    os.kill(running(pool)[0], signal.SIGKILL)
    assert "the system may be out of memory" in failure(future)


@needs_compiler
def test_a_compilation_that_nobody_waits_for_is_ended(make: Made) -> None:
    pool = make(limit=1)
    running_, waiting, wanted = submit(pool, "sleep"), submit(pool, "sleep"), submit(pool, "")
    until(running_.running)
    for future in (running_, waiting):
        pool.abandon(future)
        with pytest.raises(CancelledError):
            future.result(60)
    assert wanted.result(60)[-1] == b"cubin"
    pool.abandon(wanted)
    assert wanted.result()[-1] == b"cubin"


@needs_compiler
def test_what_a_library_prints_is_no_reply(make: Made) -> None:
    assert submit(make(), "print").result(60)[-1] == b"cubin"


@needs_compiler
def test_an_error_of_nvrtc_without_a_log_is_its_own(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvrtc.OVERRIDE, str(stub))
    with pytest.raises(AttnccError, match=r"A902.*nvrtcCompileProgram of NVRTC 13.0 failed: NVRTC_ERROR"):
        nvrtc.compile_text("fail", "sm_80")
    assert nvrtc.version() == "13.0"  # no file says so, the library does


@pytest.mark.parametrize(
    ("variable", "code"), [(nvrtc_pool.SECONDS, "A907"), (nvrtc_pool.GIBIBYTES, "A908"), (nvrtc_pool.JOBS, "A906")]
)
@pytest.mark.parametrize("value", ["much", "0", "-1", "nan", "inf"])
def test_limits_are_positive_numbers(monkeypatch: pytest.MonkeyPatch, variable: str, code: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(AttnccError, match=f"{code}.*{variable} is `{value}`"):
        nvrtc.compile_text(KERNEL, "sm_80")


def test_the_environment_says_how_many_compile_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nvrtc_pool.JOBS, raising=False)
    assert nvrtc_pool.jobs() == len(os.sched_getaffinity(0))
    monkeypatch.setenv(nvrtc_pool.JOBS, "3")
    assert nvrtc_pool.jobs() == 3


def test_a_process_without_a_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(AttnccError, match=r"A906.*no process could be started"):
        Pool(("nothing",), 60, 1).submit("k.cu", [], lambda reply: reply).result(60)


def test_diagnostics_go_to_other_processes(make: Made) -> None:
    error = pickle.loads(pickle.dumps(AttnccError(nvrtc_pool._too_long("k.cu", 1))))
    assert "A907" in str(error)


# In processes of their own: `run` is attncc there, with the real NVRTC and no cache.
BEGIN = f"""
import os, signal, subprocess, sys, threading, time
from attncc.runtime.cuda import nvrtc, nvrtc_pool
KERNEL, LONG = {KERNEL!r}, {LONG!r}
def workers():
    return [item._process.pid for pool in nvrtc_pool._pools.values() for item in pool._processes]
def long():
    future = nvrtc.submit(LONG, "sm_80")
    while not future.running() or not workers():
        time.sleep(0.01)
    time.sleep(0.3)
    return future
"""


def script(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", BEGIN + code],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(code: str, **environment: str) -> str:
    out, errors = (process := script(code, **environment)).communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return out


DIGEST = """
import hashlib
print(hashlib.sha256(nvrtc.compile_text(KERNEL, "sm_90a").image).hexdigest())
"""


@needs_compiler
def test_nothing_in_this_process_changes_the_machine_code(stub: Path, tmp_path: Path) -> None:
    """Neither a libnvrtc that this process holds under the usual name, nor one that is to be loaded before all others,
    nor Python's variables, nor the folder that it is in."""
    clean = output(DIGEST)
    assert output(f"import ctypes\nctypes.CDLL({str(stub)!r}, ctypes.RTLD_GLOBAL)\n{DIGEST}") == clean
    assert output(DIGEST, LD_PRELOAD=str(stub)) == clean
    for name in ("struct", "sitecustomize", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    folder = repr(str(tmp_path))
    assert output(f"os.environ['PYTHONPATH'] = {folder}\nos.chdir({folder})\n{DIGEST}") == clean


def test_this_process_never_loads_nvrtc() -> None:
    look = "from pathlib import Path\nprint('libnvrtc' in Path('/proc/self/maps').read_text())"
    assert output(DIGEST + look).splitlines()[1:] == ["False"]


def test_processes_end_with_the_one_that_began_them() -> None:
    process = script("long(); print(*workers(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert pids
    process.kill()
    process.communicate(timeout=60)
    until(lambda: all(map(gone, pids)))


@pytest.mark.parametrize("end", ["", "sys.exit()", "os._exit(0)", "raise SystemExit"])
def test_the_end_of_a_program_waits_for_no_compilation(end: str) -> None:
    before = time.monotonic()
    pids = [int(pid) for pid in output(f"long(); print(*workers(), flush=True)\n{end}").split()]
    assert time.monotonic() - before < 20
    assert pids
    until(lambda: all(map(gone, pids)))


def test_ctrl_c_ends_what_was_waited_for() -> None:
    code = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # what shells start in the background ignores it
def press():
    while not workers():
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
try:
    nvrtc.compile_text(LONG, "sm_80")
except KeyboardInterrupt:
    deadline = time.monotonic() + 10
    while workers() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(workers())
print(nvrtc.compile_text(KERNEL, "sm_80").resources.spill_stores)
"""
    assert output(code).split("\n")[:2] == ["[]", "0"]


def test_a_command_ends_with_ctrl_c(tmp_path: Path) -> None:
    """As a terminal does it: for all processes of its foreground group at once."""
    begin = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    begin += "from attncc.cli import main\nsys.argv[1:] = sys.argv[2:]\nmain()\n"
    command = [sys.executable, "-c", begin, "-", "build", "specs/full.attn", "-o", str(tmp_path / "out")]
    environment = os.environ | {"ATTNCC_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    children = Path(f"/proc/{process.pid}/task")

    def compilers() -> list[int]:
        found = [pid for task in children.glob("*/children") for pid in task.read_text().split()]
        return [int(pid) for pid in found]

    until(lambda: bool(compilers()))
    pids = compilers()
    time.sleep(0.5)
    before = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - before < 5
    assert (process.returncode, errors[-12:]) == (130, "interrupted\n")
    until(lambda: all(map(gone, pids)))


def test_a_fork_has_compilers_of_its_own() -> None:
    code = """
one = nvrtc.compile_text(KERNEL, "sm_80").image
future = long()
mine = workers()
child = os.fork()
if child == 0:
    same = nvrtc.compile_text(KERNEL, "sm_80").image == one and not set(workers()) & set(mine)
    nvrtc_pool._close_all()
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert workers() == mine
nvrtc_pool.abandon(future)
assert nvrtc.compile_text(KERNEL, "sm_80").image == one
"""
    output(code)


def test_threads_may_compile_at_once(make: Made) -> None:
    images: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: images.append(nvrtc.compile_text(KERNEL, "sm_80").image)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(images) == 8
    assert len(set(images)) == 1
