"""How `attncc build` replaces a package: in one step, or not at all, also where it is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.machine_code import Compiled
from attncc.package import prepare, staging, write, writer
from attncc.package.staging import earlier_variants, staged
from attncc.package.text import MARK
from attncc.settle import Settled
from tests import elf
from tests.unit.package.made import compiled, settled

SMALL: dict[str, Any] = {"archs": ["sm_90"], "dtypes": ["fp16"], "head_dims": [16]}


def one(name: str, body: str = "") -> Any:
    return prepare(f"attn 1\nvariant {name} {{ {body} }}\n", **SMALL)


@pytest.mark.usefixtures("compiles_nothing")
def test_a_rebuild_replaces_its_variants_and_keeps_the_others(tmp_path: Path) -> None:
    out = tmp_path / "generated"
    write([*one("first"), *one("second")], out)
    (out / "first" / "stale.cubin").write_bytes(b"")
    write(one("first", "dropout 0.5"), out)
    assert not (out / "first" / "stale.cubin").exists()
    assert "dropout 0.5" in (out / "first" / "__init__.py").read_text()
    text = (out / "__init__.py").read_text()
    assert "from .first import first\nfrom .second import second\n" in text
    assert [path.name for path in tmp_path.iterdir()] == ["generated"]


@pytest.mark.usefixtures("compiles_nothing")
@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("exchanges", [False, True])
def test_an_interrupted_build_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool, failure: type[BaseException], exchanges: bool
) -> None:
    out = tmp_path / "generated"
    if existing:
        write([*one("first"), *one("second")], out)
    before = snapshot(tmp_path)
    rename, moves = Path.rename, 0

    def failing(self: Path, target: Any) -> Any:
        nonlocal moves
        moves += 1
        if moves == stop:
            raise failure
        return rename(self, target)

    def failing_exchange(*_: Path) -> bool:
        if exchanges:
            raise failure
        return False

    monkeypatch.setattr(staging, "exchange", failing_exchange)
    monkeypatch.setattr(Path, "rename", failing)
    for stop in range(1, 3 if existing and not exchanges else 2):
        moves = 0
        with pytest.raises((failure, AttnccError)):
            write([*one("first", "dropout 0.5"), *one("third")], out)
        assert snapshot(tmp_path) == before, f"stopped at move {stop}"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX: the child runs no array code
@pytest.mark.usefixtures("compiles_nothing")
@pytest.mark.parametrize("exchanges", [False, True])
def test_a_killed_build_leaves_the_old_or_the_new_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    """Whatever step it was killed before: the old package, or the new one, whole; and the next build leaves nothing of
    the killed one. Where folders can't be exchanged, the package may be away until the next build."""
    if not exchanges:
        monkeypatch.setattr(staging, "exchange", lambda *_: False)
    elif not staging.exchange(tmp_path, tmp_path):
        pytest.skip("this file system can't exchange folders")
    out = tmp_path / "generated"
    write([*one("first"), *one("kept")], out)
    (out / "notes.txt").write_text("of the user")
    old, new = _prepared(one("first")), _prepared(one("first", "dropout 0.5"))
    list(writer._write_all(old[0], out, *old[1:], None))
    before = snapshot(out)
    seen: set[str] = set()
    for step in range(1, 1000):
        finished = killed_before(step, tmp_path, lambda: list(writer._write_all(new[0], out, *new[1:], None)))
        found = snapshot(out)
        seen.add("old" if found == before else "new" if is_new(found, before) else "broken" if found else "away")
        list(writer._write_all(old[0], out, *old[1:], None))
        assert snapshot(out) == before and [path.name for path in tmp_path.iterdir()] == ["generated"], step
        if finished:
            break
    assert step > 20 and is_new(found, before)
    assert seen == ({"old", "new"} if exchanges else {"old", "new", "away"})


def is_new(found: dict[str, bytes], before: dict[str, bytes]) -> bool:
    """Whether it is the new package, whole, with all that stood beside its variant."""
    same = {name for name in before if not name.startswith("first/")}
    whole = set(found) == set(before) and all(found[name] == before[name] for name in same)
    return whole and all(
        b"dropout 0.5" in found[f"first/{name}"] for name in ("__init__.py", "first_forward_fp16_d16_sm_90.cu")
    )


def _prepared(packages: Any) -> tuple[Any, dict[str, Settled], dict[str, Compiled]]:
    """What `write` hands on once everything is compiled."""
    found = {writer.kernel_name(item.first): settled(item) for package in packages for item in package.candidates}
    others = {
        name: compiled(source, target)
        for package in packages
        for name, (source, target) in package.sources.items()
        if name not in found
    }
    return [package.settled(found) for package in packages], found, others


def killed_before(step: int, folder: Path, work: Callable[[], object]) -> bool:
    """Runs work in a process that is killed before its n-th step in a folder; whether it has ended before that."""
    child = os.fork()
    if child == 0:
        try:
            _die_before(step, folder)
            work()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def _die_before(step: int, folder: Path) -> None:
    count = 0

    def counted(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event.startswith(("os.", "shutil.", "open", "tempfile.")) and str(folder) in str(arguments):
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)

    exchange = staging.exchange

    def exchanged(one: Path, other: Path) -> bool:
        counted("os.exchange", (one, other))
        found = exchange(one, other)
        counted("os.exchanged", (one, other))
        return found

    staging.exchange = exchanged
    sys.addaudithook(counted)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_builds_into_one_folder_take_turns(tmp_path: Path) -> None:
    """Else both would list the variants that are there before either has added its own."""
    seen: list[list[str]] = []

    def stage(name: str) -> None:
        with staged(tmp_path / "out") as folder:
            seen.append(earlier_variants(tmp_path / "out"))
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(MARK)
            (folder / name / "manifest.json").write_text("{}")
            if name == "one":
                other.start()
                other.join(0.1)

    other = threading.Thread(target=stage, args=("two",))
    stage("one")
    other.join()
    assert seen == [[], ["one"]]


def test_a_failing_kernel_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attncc.settle.compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(one("first"), tmp_path / "generated")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("compiles_nothing")
def test_folders_of_others_are_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "src"
    out.mkdir()
    write(one("first"), out)  # empty: fine
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("x = 1\n")
    with pytest.raises(AttnccError, match=r"A515.*mine"):
        write(one("first"), tmp_path / "mine")
    (out / "second").mkdir()
    with pytest.raises(AttnccError, match=r"A515.*second"):
        write(one("second"), out)
    assert (tmp_path / "mine" / "__init__.py").read_text() == "x = 1\n"


@pytest.mark.usefixtures("compiles_nothing")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AttnccError, match="A516"):
        write(one("first"), tmp_path / "file" / "generated")
    assert staging.earlier_variants(tmp_path / "file") == []


# -------------------------------------------------------------------- what is written is read again


def test_machine_code_without_its_kernel(tmp_path: Path) -> None:
    """NVRTC reads a text up to its first NUL, and gives a cubin without kernels."""
    out, wrong = tmp_path / "generated", compiled_to(elf.image(100, "second_forward"))
    package, settled, others = _prepared(one("first"))
    list(writer._write_all(package, out, settled, others, None))
    before = snapshot(out)
    spoilt = {name: replace(item, compiled=wrong(item.source)) for name, item in settled.items()}
    with pytest.raises(AttnccError, match=r"A910.*first_forward_fp16_d16_sm_90.cubin"):
        list(writer._write_all(package, out, spoilt, others, None))
    assert snapshot(out) == before


def compiled_to(image: bytes) -> Callable[[Any], Compiled]:
    def spoilt(source: Any) -> Compiled:
        found = compiled(source, "sm_90")
        return replace(found, code=replace(found.code, image=image))

    return spoilt


@pytest.mark.usefixtures("compiles_nothing")
def test_a_disk_that_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_bytes", lambda self, content: self.touch())
    with pytest.raises(AttnccError, match=r"A910(.|\n)*look at the disk"):
        write(one("first"), tmp_path / "generated")
    assert list(tmp_path.iterdir()) == []


def test_python_text_that_cannot_be_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, settled, others = _prepared(one("first"))
    monkeypatch.setattr("attncc.package.variant_package.init_text", lambda *_: "x = 'a\0b'\n")
    with pytest.raises(AttnccError, match=r"A910(.|\n)*not Python"):
        list(writer._write_all(package, tmp_path / "generated", settled, others, None))
    assert list(tmp_path.iterdir()) == []


def test_plans_that_the_store_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, settled, others = _prepared(one("first"))
    monkeypatch.setattr("attncc.schedule.plan_check.SYMBOLS", {})
    package = _prepared(one("first", "keep if q_pos >= kv_idx"))[0]
    with pytest.raises(
        AttnccError, match=r"A910(.|\n)*first_forward_.*plan.json(.|\n)*a symbol is none that a plan has"
    ):
        list(writer._write_all(package, tmp_path / "generated", settled, others, None))
    assert list(tmp_path.iterdir()) == []
