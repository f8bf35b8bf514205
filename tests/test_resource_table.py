"""The table of what ptxas made of kernels, as reviewers see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.runtime.cuda.nvrtc import Resources
from tests.compilations import Kernel
from tests.resource_table import ResourceTable


def kernel(registers: int, compiler: str = "13.0.88") -> Kernel:
    return Kernel(None, Resources(registers, 0, 0, 0, 1.0), 0, 100, compiler)


def written(path: Path, whole: bool = True, **registers: int) -> None:
    table = ResourceTable(path, update=True)
    table.compare({name: kernel(count) for name, count in registers.items()})
    table.write(whole)


def test_a_line_for_each_kernel(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    written(path, b=2, a=1)
    assert [line for line in path.read_text().splitlines() if "instructions" in line] == [
        ' "a": {"registers": 1, "instructions": 100},',
        ' "b": {"registers": 2, "instructions": 100}',
    ]


def test_what_differs_fails(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    written(path, a=1)
    ResourceTable(path, update=False).compare({"a": kernel(1)})
    for other in ({"a": kernel(2)}, {"b": kernel(1)}):
        with pytest.raises(AssertionError, match="--update-golden"):
            ResourceTable(path, update=False).compare(other)


def test_some_rows_leave_the_others(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    written(path, a=1, b=2)
    written(path, whole=False, a=3)
    ResourceTable(path, update=False).compare({"a": kernel(3), "b": kernel(2)})
    written(path, a=3)
    assert '"b"' not in path.read_text()


def test_another_compiler_is_named(tmp_path: Path) -> None:
    path = tmp_path / "resources.json"
    written(path, a=1)
    with pytest.raises(pytest.skip.Exception, match=r"13\.0\.88"):
        ResourceTable(path, update=False).compare({"a": kernel(1, "12.9.41")})
