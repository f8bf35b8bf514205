"""Every case: the text that it becomes, and that torch, running the same function, gives the same at every pair."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from attncc.evaluate import Environment
from attncc.import_flex import import_flex
from attncc.ir import Variant
from attncc.reference import mask
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.statements import scored
from attncc.syntax.formatter import format_source
from tests.unit.import_flex.catalogue import BATCH, CASES, FOLDER, HEADS, LENGTH, Case


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
    assert program.warnings == ()
    assert {item.name for item in program.variants[0].inputs} == set(CASES[name].inputs)


def test_no_golden_without_its_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.attn")} == set(CASES)


# -------------------------------------------------------------------- against torch


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
        expected = _python(torch, mods if isinstance(mods, tuple) else (mods,), score, case.loops)
        kept, scores = _attn(variant, inputs, score)
        np.testing.assert_array_equal(kept, expected > -np.inf)
        np.testing.assert_allclose(scores[kept], expected[kept], rtol=2e-5, atol=1e-5)


def _array(value: Any, dtype: str) -> Any:
    kind = {"bool": np.bool_, "i32": np.int32, "i64": np.int64, "f32": np.float32}[dtype]
    return np.asarray(value, kind)


def _attn(variant: Variant, inputs: dict[str, Any], score: Any) -> tuple[Any, Any]:
    """What the variant keeps, and its scores."""
    batch, heads, q_len, kv_len = score.shape
    kept = mask(variant, q_len, kv_len, batch=batch, num_heads=heads, num_kv_heads=heads, **inputs)
    symbols = dict(zip(("b", "h", "q_idx", "kv_idx"), np.ogrid[:batch, :heads, :q_len, :kv_len], strict=True))
    environment = Environment(symbols, inputs, variant.lets)
    return np.broadcast_to(kept, score.shape), np.broadcast_to(scored(variant, environment, score), score.shape)


def _python(torch: Any, mods: tuple[Callable[..., Any], ...], score: Any, loops: bool) -> Any:
    """The scores after the mods; -inf where a mask_mod drops the pair."""
    result = torch.tensor(score)
    for mod in sorted(mods, key=_is_mask):
        is_mask = _is_mask(mod)
        value = (_one_by_one if loops else _vectorised)(torch, mod, is_mask, result)
        result = torch.where(value, result, -torch.inf) if is_mask else value
    return result.expand(score.shape).detach().numpy()


def _is_mask(mod: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(mod).parameters)) != "score"


def _vectorised(torch: Any, mod: Callable[..., Any], is_mask: bool, score: Any) -> Any:
    """As FlexAttention evaluates it: four nested vmaps."""
    for place in (3, 2, 1, 0):
        axes = [0 if axis == place else None for axis in range(4)]
        mod = torch.vmap(mod, in_dims=tuple(axes if is_mask else [0, *axes]))
    indices = [torch.arange(size) for size in score.shape]
    return mod(*indices) if is_mask else mod(score, *indices)


def _one_by_one(torch: Any, mod: Callable[..., Any], is_mask: bool, score: Any) -> Any:
    """Pair by pair, with scalars: also what vmap refuses, as `any(...)` and `and`."""
    assert is_mask
    found = torch.zeros(score.shape, dtype=torch.bool)
    for place in product(*map(range, score.shape)):
        found[place] = bool(mod(*map(torch.tensor, place)))
    return found
