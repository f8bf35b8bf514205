"""The mods of attention-gym, torchtitan, torchtune and transformers import where they are installed, and equal their
Python at every pair: as text (`attncc import-flex`) and live (`attncc.flex_attention`)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from attncc.diagnostics import AttnccError  # noqa: E402
from attncc.import_flex import import_flex  # noqa: E402
from attncc.semantics.load import load  # noqa: E402
from attncc.source import SourceFile  # noqa: E402
from tests.in_place import folder, mods_in, path_of, python  # noqa: E402
from tests.in_place_cases import BATCH, CASES, HEADS, LENGTH, REFUSED, InPlace, Refused  # noqa: E402
from tests.unit.flex.live import KINDS, check  # noqa: E402  (needs torch)
from tests.unit.import_flex.compared import by_torch, by_variant  # noqa: E402

PACKAGES = {"attn_gym": "0.0.17", "torchtitan": "0.3.0", "torchtune": "0.6.1", "transformers": "5.24.0"}
MIGRATION = Path(__file__).parent.parent / "docs" / "migration.md"
SIZES = ((LENGTH, LENGTH), (9, 17), (20, 6))


def installed(package: str) -> None:
    if folder(package) is None:
        pytest.skip(f"{package} isn't installed")


def counted(package: str) -> None:
    """Skips where the mods of another version were counted."""
    installed(package)
    if (found := version(package.replace("_", "-"))) != PACKAGES[package]:
        pytest.skip(f"the mods of {package} {PACKAGES[package]} were counted, and {found} is installed")


def sizes(case: InPlace) -> tuple[tuple[int, int], ...]:
    return SIZES[:1] if case.square else SIZES


@cache
def imported(case_file: str, target: str) -> str:
    return import_flex([f"{path_of(case_file)}:{target}"]).text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_text_equals_its_python(case: InPlace) -> None:
    installed(case.package)
    mod, values = python(case)
    variant = load(SourceFile("<imported>", imported(case.file, case.target))).variants[0]
    assert {item.name for item in variant.inputs} == set(values)
    inputs = {item.name: np.asarray(values[item.name], KINDS[item.dtype]) for item in variant.inputs}
    for q_len, kv_len in sizes(case):
        fitting = {name: _fitting(value, variant.inputs, name, q_len) for name, value in inputs.items()}
        score = np.random.default_rng(q_len).normal(0, 4, (BATCH, HEADS, q_len, kv_len)).astype(np.float32)
        expected = by_torch(torch, (mod,), score, loops=False)
        kept, scores = by_variant(variant, fitting, score)
        np.testing.assert_array_equal(kept, expected > -np.inf)
        np.testing.assert_allclose(scores[kept], expected[kept], rtol=2e-5, atol=1e-5)


def _fitting(value: Any, declared: Any, name: str, q_len: int) -> Any:
    """An input whose axes `q` have q_len entries; Python reads no others."""
    axes = next(item.axes for item in declared if item.name == name)
    for place, axis in enumerate(axes):
        value = value.take(range(q_len), place) if axis.tag == "q" else value
    return value


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's vmap
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_live_function_equals_its_python(case: InPlace) -> None:
    installed(case.package)
    mod, _ = python(case)
    for q_len, kv_len in sizes(case):
        check(mod, sizes=(BATCH, HEADS, q_len, kv_len))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.target)
def test_what_is_refused_says_why(case: Refused) -> None:
    installed(case.file.partition("/")[0])
    with pytest.raises(AttnccError) as refused:
        imported(case.file, case.target)
    (error,) = refused.value.diagnostics
    assert error.code == case.code
    assert error.help
    assert error.span is not None and error.span.source.path == str(path_of(case.file))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_mod_of_the_package_is_a_case(package: str) -> None:
    counted(package)
    known = {(case.file, _head(case.target)) for case in (*CASES, *REFUSED)}
    assert [item for item in mods_in(package) if not _heads(item) & known] == []


def test_at_most_one_mod_in_twenty_is_refused() -> None:
    for package in PACKAGES:
        counted(package)
    imported = {(case.file, _head(case.target)) for case in CASES}
    found = [item for package in PACKAGES for item in mods_in(package)]
    taken = [item for item in found if _heads(item) & imported]
    assert len(taken) >= 0.95 * len(found)
    said = " ".join(MIGRATION.read_text().split())
    assert f"transformers 5.24: {len(found)}. Of these, {len(taken)} import" in said


def _head(target: str) -> str:
    """`factory.inner` of `factory(8).inner`."""
    head, _, rest = target.partition("(")
    return head + rest.rpartition(")")[2]


def _heads(item: tuple[str, str, int]) -> set[tuple[str, str]]:
    """A mod, and the functions that hold it."""
    file, name, _ = item
    parts = name.split(".")
    return {(file, ".".join(parts[:count])) for count in range(1, len(parts) + 1)}
