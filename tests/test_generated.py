"""`generated/` holds what the compiler makes of `specs/`, byte for byte: CUDA is reviewed like code. Decode kernels
differ little from spec to spec: those are kept that a spec has a schedule for.

`pytest tests/test_generated.py --update-golden` writes it anew, and removes what no spec makes any more.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from attncc.build import VariantPackage, package_files, prepare
from attncc.resources import folder
from attncc.source import SourceFile
from tests.conftest import Golden

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "generated"
DTYPE, HEAD_DIM, TARGET = "bf16", 128, "sm_80"

# Machine code and what ptxas says differ between versions of NVRTC: a build leaves them here, the repository doesn't.
NOT_KEPT = (".cubin", "manifest.json", ".pyc")


def spec_names() -> list[str]:
    return sorted(path.stem for path in folder("specs").glob("*.attn"))


@cache
def packages(spec: str) -> tuple[VariantPackage, ...]:
    path = f"specs/{spec}.attn"
    source = SourceFile(path, (ROOT / path).read_text(encoding="utf-8"))
    return prepare(source, archs=[TARGET], dtypes=[DTYPE], head_dims=[HEAD_DIM])


@cache
def expected() -> dict[str, str]:
    return package_files(package for spec in spec_names() for package in packages(spec))


@pytest.mark.parametrize("spec", spec_names())
def test_files_are_what_the_compiler_makes(spec: str, golden: Golden) -> None:
    for name, text in package_files(packages(spec)).items():
        if "/" in name:
            golden(GENERATED / name, text)


def test_the_package_names_every_variant(golden: Golden) -> None:
    golden(GENERATED / "__init__.py", expected()["__init__.py"])


def test_there_are_no_orphans(request: pytest.FixtureRequest) -> None:
    there = {path for path in GENERATED.rglob("*") if path.is_file() and not path.name.endswith(NOT_KEPT)}
    orphans = there - {GENERATED / name for name in expected()}
    if request.config.getoption("--update-golden"):
        for path in orphans:
            path.unlink()
    else:
        assert not orphans, "no spec makes these: run pytest --update-golden"
