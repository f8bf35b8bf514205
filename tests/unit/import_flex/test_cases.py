"""Every case: the text that it becomes, and that torch, running the same function, gives the same at every pair."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from attncc.import_flex import import_flex
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source
from tests.unit.import_flex.catalogue import BATCH, CASES, FOLDER, HEADS, LENGTH, Case
from tests.unit.import_flex.compared import by_torch, by_variant


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)


def imported(case: Case) -> str:
    return import_flex([f"{case.file}.py:{case.target}"]).text


@pytest.mark.parametrize("name", CASES)
def test_text(name: str, golden) -> None:
    text = imported(CASES[name])
    golden(FOLDER / f"{name}.attn", text)
    assert format_source(SourceFile("case.attn", text)) == text
    program = load(SourceFile("case.attn", text))
    assert [item.code for item in program.warnings] == ["A305"] * (name == "penalised")
    assert {item.name for item in program.variants[0].inputs} == set(CASES[name].inputs)


def test_no_golden_without_its_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.attn")} == set(CASES)


# -------------------------------------------------------------------- against torch


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's vmap, of `isin`
@pytest.mark.parametrize("name", CASES)
def test_equals_what_torch_computes(name: str) -> None:
    torch = pytest.importorskip("torch")
    case = CASES[name]
    variant = load(SourceFile("case.attn", imported(case))).variants[0]
    module = importlib.import_module(f"tests.unit.import_flex.cases.{case.file}")
    names = {**vars(module), "torch": torch, "BATCH": BATCH, "HEADS": HEADS, "LENGTH": LENGTH}
    tensors = {name: eval(text, names) for name, text in case.inputs.items()}
    mods = eval(case.call or case.target, {**names, **tensors})
    inputs = {item.name: _array(tensors[item.name], item.dtype) for item in variant.inputs}
    lengths = [(LENGTH, LENGTH)] if case.square else [(LENGTH, LENGTH), (9, 17), (20, 6)]
    for q_len, kv_len in lengths:
        score = np.random.default_rng(q_len).normal(0, 4, (BATCH, HEADS, q_len, kv_len)).astype(np.float32)
        expected = by_torch(torch, mods if isinstance(mods, tuple) else (mods,), score, case.loops)
        kept, scores = by_variant(variant, inputs, score)
        np.testing.assert_array_equal(kept, expected > -np.inf)
        np.testing.assert_allclose(scores[kept], expected[kept], rtol=2e-5, atol=1e-5)


def _array(value: Any, dtype: str) -> Any:
    kind = {"bool": np.bool_, "i32": np.int32, "i64": np.int64, "f32": np.float32}[dtype]
    return np.asarray(value, kind)
