"""Random mods: torch, running the Python text, and the variant that it becomes agree at every pair.

The expressions mix ints, floats and bools as torch allows it. Floats are multiples of 1/16 and stay small, so that
float32 holds them exactly and no comparison hangs on rounding.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncc.evaluate import Environment
from attncc.import_flex import import_flex
from attncc.reference import mask
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.statements import scored

LENGTH, BATCH, HEADS = 12, 2, 2
ALWAYS = "((lengths[b] > -99) | flags[q_idx] | (slopes[h] < 99))"  # true; so that every mod reads every tensor
TENSORS = {"lengths": "i32", "flags": "bool", "slopes": "f32"}


class Writer:
    """Random expressions of a type: int, float or bool."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.atoms = {
            "int": ["b", "h", "q_idx", "kv_idx", "q_idx - kv_idx", "lengths[b]", "h + 3", "-b - 2"],
            "float": ["slopes[h]", "b + 0.5", "h - 1.25", "q_idx / 4", "kv_idx.float()"],
            "bool": ["q_idx >= kv_idx", "flags[kv_idx]", "kv_idx < lengths[b]", "~flags[q_idx]"],
        }

    def write(self, kind: str, depth: int) -> str:
        if depth == 0:
            return f"({self.random.choice(self.atoms[kind])})"
        form = self.random.choice(FORMS[kind])
        return "(" + form.format(
            i=self.write("int", depth - 1), j=self.write("int", depth - 1), x=self.write("float", depth - 1),
            y=self.write("float", depth - 1), p=self.write("bool", depth - 1), r=self.write("bool", depth - 1),
        ) + ")"  # fmt: skip

    def local(self, name: str, kind: str) -> str:
        line = f"    {name} = {self.write(kind, 2)}\n"
        self.atoms[kind].append(name)
        return line

    def function(self, is_mask: bool) -> str:
        head = "def mod(b, h, q_idx, kv_idx):\n" if is_mask else "def mod(score, b, h, q_idx, kv_idx):\n"
        lines = self.local("n", "int") + self.local("x", "float") + self.local("p", "bool")
        if is_mask:
            return head + lines + f"    return {self.write('bool', 3)} & {ALWAYS}\n"
        change = f"    score = score + {self.write('float', 2)}\n"
        return (
            head + lines + change + f"    return torch.where({self.write('bool', 2)} & {ALWAYS}, score * 0.5, {{}})\n"
        )


FORMS = {
    "int": [
        *("{i} + {j}", "{i} - {j}", "({i} % 7) * ({j} % 5)", "{i} // 3", "{i} % 5", "-{i} // 4 % 3", "{i} & {j}"),
        *("{i} | ({j} & 7)", "{i} ^ {j}", "({i} & 15) << ({j} & 3)", "{i} >> ({j} & 3)", "~{i}", "torch.abs({i})"),
        *("{i}.clamp(-3, 9)", "torch.minimum({i} * 1, {j} * 1)", "{p} + {i}", "{p} * {i}", "{x}.int()", "{i} & {p}"),
        *(
            "{x}.to(torch.int64) - {p}.int()",
            "({i} % 4) ** 2",
            "3 ** ({i} % 4)",
            "(-2) ** ({i} & 3)",
            "{p}.long() + {r}.long()",
            "torch.sign({i} * 1)",
        ),
        *("torch.where({p}, {i}, {j})", "torch.where({p}, {i}, 3)", "torch.fmod({i}, 5)", "{i} % -3"),
        *("3 ** ({i} % 4)", "(-2) ** ({i} & 3)"),
        *("torch.div({i}, {j} * 2 + 1, rounding_mode='trunc')", "(1 - {x} % 1.5).int()", "-2 - {i} % -3"),
    ],
    "float": [
        *("{x} + {y}", "{x} - {i}", "{x} * 0.5", "({i} % 9) / 2", "torch.where({p}, {x}, {i})", "{x}.abs()", "-{x}"),
        *("torch.floor({x})", "torch.ceil({x})", "{x} // 2", "{x} % 1.5", "{p} * {x}", "{x} - {p}.float()", "{x} / 4"),
        *("torch.clamp({x}, min=-2)", "torch.maximum({x} * 1, {y} * 1)", "torch.trunc({x})", "{p}.float() + {x}"),
        *("{i} * 0.25",),
    ],
    "bool": [
        *("{p} & {r}", "{p} | {r}", "~{p}", "{p} ^ {r}", "{i} < {j}", "{i} >= {x}", "{x} != {y}", "{p} == {r}"),
        *("torch.logical_and({p}, {i})", "torch.logical_not({x})", "torch.where({p}, {r}, ~{r})", "{i} == 1"),
        *("{p} * {r}", "torch.logical_or({p}, {r})", "({i} % 3).bool()", "{p} == 0", "torch.eq({i}, {j})"),
        *("{x} <= {i}", "{p} + {r}", "{p} != {r}"),
    ],
}


def compiled(source: str) -> tuple[Any, dict[str, Any]]:
    """The function in torch, and its tensors as arrays."""
    torch = pytest.importorskip("torch")
    tensors = {
        "lengths": torch.tensor([7, 3]),
        "flags": torch.arange(LENGTH) % 3 == 1,
        "slopes": torch.tensor([0.25, -1.5]),
    }
    names: dict[str, Any] = {"torch": torch, **tensors}
    exec(source, names)
    return names["mod"], {name: tensor.numpy() for name, tensor in tensors.items()}


def variant_of(source: str, folder: Path) -> Any:
    path = folder / "mods.py"
    path.write_text(f"import torch\n\n{source}")
    text = import_flex(
        [f"{path}:mod"], [f"{name}:{dtype}[_]" for name, dtype in TENSORS.items() if name in source]
    ).text
    return load(SourceFile("mods.attn", text)).variants[0], text


def arrays(variant: Any, given: dict[str, Any]) -> dict[str, Any]:
    kinds = {"i32": np.int32, "bool": np.bool_, "f32": np.float32}
    return {item.name: given[item.name].astype(kinds[item.dtype]) for item in variant.inputs}


@pytest.mark.parametrize("seed", range(40))
def test_masks(seed: int, tmp_path: Path) -> None:
    source = Writer(seed).function(is_mask=True)
    mod, given = compiled(source)
    variant, text = variant_of(source, tmp_path)
    expected = mod(*grid()).numpy()
    kept = mask(variant, LENGTH, LENGTH, batch=BATCH, num_heads=HEADS, num_kv_heads=HEADS, **arrays(variant, given))
    assert (kept == expected).all(), f"{source}\n{text}"


@pytest.mark.parametrize("seed", range(30))
def test_scores(seed: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = Writer(seed).function(is_mask=False).format("-float('inf')")
    mod, given = compiled(source)
    variant, text = variant_of(source, tmp_path)
    score = np.random.default_rng(seed).integers(-40, 40, (BATCH, HEADS, LENGTH, LENGTH)).astype(np.float32)
    expected = mod(torch.tensor(score), *grid()).numpy()
    inputs = arrays(variant, given)
    kept = mask(variant, LENGTH, LENGTH, batch=BATCH, num_heads=HEADS, num_kv_heads=HEADS, **inputs)
    symbols = dict(zip(("b", "h", "q_idx", "kv_idx"), np.ogrid[:BATCH, :HEADS, :LENGTH, :LENGTH], strict=True))
    found = np.broadcast_to(scored(variant, Environment(symbols, inputs, variant.lets), score), score.shape)
    assert ((expected > -np.inf) == kept).all(), f"{source}\n{text}"
    assert np.where(kept, found == expected, True).all(), f"{source}\n{text}"


def grid() -> list[Any]:
    """b, h, q_idx and kv_idx, which broadcast to every pair."""
    torch = pytest.importorskip("torch")
    sizes = (BATCH, HEADS, LENGTH, LENGTH)
    return [
        torch.arange(size).reshape([-1 if axis == place else 1 for axis in range(4)])
        for place, size in enumerate(sizes)
    ]
