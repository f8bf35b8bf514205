"""What ptxas made of kernels: a line for each in `tests/golden/resources.json`. There a reviewer sees what a change
costs: `--update-golden` rewrites the lines that it alters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compilations import Kernel

FILE = Path(__file__).parent / "golden" / "resources.json"
Row = Mapping[str, Any]


def row(kernel: Kernel) -> Row:
    tiles = {} if kernel.plan is None else {"tiles": kernel.plan.tiles}
    spilled = kernel.resources.spill_stores + kernel.resources.spill_loads
    spills = {"bytes of spills": spilled} if spilled else {}
    return {"registers": kernel.resources.registers, "instructions": kernel.instructions, **spills, **tiles}


class ResourceTable:
    """The rows of the file, and those that tests have found since."""

    def __init__(self, path: Path, update: bool) -> None:
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"compiler": None, "kernels": {}}
        self._path, self._update = path, update
        self._compiler: str | None = kept["compiler"]
        self._kept: dict[str, Row] = kept["kernels"]
        self._found: dict[str, Row] = {}

    def compare(self, kernels: Mapping[str, Kernel]) -> None:
        """Fails unless the file has just these rows. Another compiler makes other code: skipped then, by its name."""
        found = {name: row(kernel) for name, kernel in kernels.items()}
        self._found |= found
        compilers = {kernel.compiler for kernel in kernels.values()}
        if self._update:
            (self._compiler,) = compilers
        elif compilers != {self._compiler}:
            pytest.skip(f"{self._path.name} was made by ptxas {self._compiler}; compiled well by {compilers}")
        else:
            kept = {name: self._kept.get(name) for name in found}
            assert found == kept, f"if that is meant: pytest --update-golden, and read {self._path.name}"

    def write(self, whole: bool) -> None:
        """With --update-golden: the rows found, and unless these are all that there are, the others as they were."""
        if not self._update or not self._found:
            return
        rows = self._found if whole else self._kept | self._found
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
        text = f'{{\n"compiler": {json.dumps(self._compiler)},\n"kernels": {{\n{lines}\n}}\n}}\n'
        self._path.write_text(text, encoding="utf-8")
