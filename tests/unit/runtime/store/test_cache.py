"""The cache of compiled kernels: hits, damage, races, and folders that can't be written."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from attncc.diagnostics import AttnccWarning
from attncc.runtime.cuda import nvrtc
from attncc.runtime.store import cache

KERNEL = 'extern "C" __global__ void one(float* out) { out[threadIdx.x] = 1.0f; }'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.OVERRIDE, str(tmp_path / "kernels"))
    cache._warn_unwritable.cache_clear()
    return tmp_path / "kernels"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that were really compiled for."""
    seen: list[str] = []
    submit = nvrtc.submit

    def counted(text: str, target: str, *more: Any, **named: Any) -> Future[nvrtc.Cubin]:
        seen.append(target)
        return submit(text, target, *more, **named)

    monkeypatch.setattr(nvrtc, "submit", counted)
    return seen


def test_the_second_call_compiles_nothing_and_gives_the_same(folder: Path, compilations: list[str]) -> None:
    first = cache.compile_cached(KERNEL, "sm_80")
    assert cache.compile_cached(KERNEL, "sm_80") == first
    assert compilations == ["sm_80"]
    assert len(list(folder.glob("*.kernel"))) == 1


def test_text_and_target_are_part_of_the_key(folder: Path, compilations: list[str]) -> None:
    cache.compile_cached(KERNEL, "sm_80")
    cache.compile_cached(KERNEL, "sm_90")
    cache.compile_cached(KERNEL.replace("1.0f", "2.0f"), "sm_80")
    assert compilations == ["sm_80", "sm_90", "sm_80"]


def test_the_compiler_version_is_part_of_the_key(
    folder: Path, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.compile_cached(KERNEL, "sm_80")
    monkeypatch.setattr(nvrtc, "version", lambda: "99.9")
    cache.compile_cached(KERNEL, "sm_80")
    assert compilations == ["sm_80"] * 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_entry_is_compiled_again_with_a_warning(folder: Path, compilations: list[str], damage: str) -> None:
    good = cache.compile_cached(KERNEL, "sm_80")
    (entry,) = folder.glob("*.kernel")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes({"cut": data[:-7], "flipped": data, "empty": b"", "foreign": b"hello, world" * 9}[damage])
    with pytest.warns(AttnccWarning, match="A508"):
        again = cache.compile_cached(KERNEL, "sm_80")
    assert again.image == good.image
    assert len(compilations) == 2
    assert cache.compile_cached(KERNEL, "sm_80").image == good.image  # mended
    assert len(compilations) == 2


def test_a_folder_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (tmp_path / "file").write_text("a file where a folder is wanted")
    monkeypatch.setenv(cache.OVERRIDE, str(tmp_path / "file" / "kernels"))
    with pytest.warns(AttnccWarning, match="A509"):
        cache.compile_cached(KERNEL, "sm_80")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.compile_cached(KERNEL, "sm_80").image.startswith(b"\x7fELF")


def test_an_interrupted_write_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.compile_cached(KERNEL, "sm_80")
    assert list(folder.iterdir()) == []


RACE = """
from attncc.runtime.store import cache
for number in range(6):
    cubin = cache.compile_cached({kernel!r}.replace("1.0f", f"{{number}}.0f"), "sm_80")
    assert cubin.image.startswith(b"\\x7fELF")
"""


def test_processes_may_race(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RACE.format(kernel=KERNEL)]
    racing = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in racing:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert sorted(path.suffix for path in folder.iterdir()) == [".kernel"] * 6


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(cache.OVERRIDE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "attncc" / "kernels"
