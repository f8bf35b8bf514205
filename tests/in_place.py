"""Functions of installed packages, where they lie: which there are, and how the tests get at the Python of each.

The files are read, and only the functions that a case needs are run, so that no package has to be imported as a whole.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import math
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.in_place_cases import BATCH, HEADS, LENGTH, InPlace

_LIKE_A_MOD = (
    re.compile(r"_?(b|z|batch|batch_idx)"),
    re.compile(r"_?(h|head|head_idx)"),
    re.compile(r"q|m|q_idx|token_q|query_idx"),
    re.compile(r"k|n|kv|kv_idx|k_idx|token_kv|key_idx"),
)
_STARTS_LIKE_A_MOD = re.compile(r"def \w+\(\s*(?:self[^,]*,\s*)?(?:score[^,]*,\s*)?_?(?:b|z|batch|batch_idx)\s*[:,]")
_FOLDERS_WITHOUT_MODS = frozenset({"tests", "testing"})


def folder(package: str) -> Path | None:
    """Where a package is installed; it isn't imported."""
    spec = find_spec(package)
    return None if spec is None or not spec.submodule_search_locations else Path(spec.submodule_search_locations[0])


def path_of(file: str) -> Path:
    """`attn_gym/masks/natten.py` where it is installed."""
    package, _, rest = file.partition("/")
    found = folder(package)
    assert found is not None
    return found / rest


# -------------------------------------------------------------------- what there is


def mods_in(package: str) -> Iterator[tuple[str, str, int]]:
    """Every function with the parameters of a mask_mod or score_mod: its file, its dotted name, its line. transformers
    writes each `modeling_*.py` from the `modular_*.py` beside it; a function of both counts once."""
    root = folder(package)
    assert root is not None
    for path in sorted(root.rglob("*.py")):
        if _FOLDERS_WITHOUT_MODS.intersection(path.relative_to(root).parts):
            continue
        text = path.read_text(encoding="utf-8")
        if not _STARTS_LIKE_A_MOD.search(text):
            continue
        twin = path.with_name(path.name.replace("modular_", "modeling_"))
        written = {name for name, _ in _mods(twin)} if twin != path and twin.is_file() else set()
        for name, line in _mods(path):
            if name not in written:
                yield f"{package}/{path.relative_to(root)}", name, line


@cache
def _mods(path: Path) -> tuple[tuple[str, int], ...]:
    return tuple(
        (name, node.lineno)
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8")), "")
        if _is_like_a_mod(node)
    )


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield name, node
            yield from _functions(node, f"{name}.")
        else:
            yield from _functions(node, prefix)


def _is_like_a_mod(node: ast.FunctionDef) -> bool:
    positional = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
    required = positional[: len(positional) - len(node.args.defaults)]
    own = [name for name in required if name not in ("self", "score")]
    return len(own) == 4 and all(form.fullmatch(name) for form, name in zip(_LIKE_A_MOD, own, strict=True))


# -------------------------------------------------------------------- what it computes


def python(case: InPlace) -> tuple[Any, dict[str, Any]]:
    """The mod of a case as a Python function, and its inputs."""
    space = _names()
    inputs = {name: eval(text, space) for name, text in case.inputs.items()}
    space |= inputs
    functions: dict[str, tuple[Path, ast.FunctionDef]] = {}
    for path in map(path_of, (*case.also, case.file)):
        found = _functions(ast.parse(path.read_text(encoding="utf-8")), "")
        functions |= {name: (path, node) for name, node in found if "." not in name or name in case.inner}
    for path, node in _needed(functions, case):
        node.decorator_list = []
        module = ast.Module(body=[node], type_ignores=[])
        exec(compile(module, str(path), "exec", __future__.annotations.compiler_flag, dont_inherit=True), space)
    space |= {name: eval(text, space) for name, text in case.more.items()}
    return eval(case.call or case.target, space), inputs


def _names() -> dict[str, Any]:
    """torch, and tensors that cases read: random numbers, and documents of LENGTH positions."""
    import torch

    drawn = torch.Generator().manual_seed(0)
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    documents = torch.tensor([[0] * 7 + [1] * 5 + [2] * 12, [0] * 16 + [1] * 8])
    starts = torch.tensor([[0] * 7 + [7] * 5 + [12] * 12, [0] * 16 + [16] * 8])
    return {
        "torch": torch, "F": torch.nn.functional, "math": math, "floor": math.floor,
        **{name: getattr(flex, name) for name in ("and_masks", "or_masks", "noop_mask")},
        **{"BATCH": BATCH, "HEADS": HEADS, "LENGTH": LENGTH},
        "ints": lambda below, *shape: torch.randint(0, below, shape, generator=drawn),
        "bools": lambda *shape: torch.rand(shape, generator=drawn) < 0.5,
        "floats": lambda *shape: torch.randn(shape, generator=drawn),
        "DOCUMENTS": documents, "POSITIONS": torch.arange(LENGTH) - starts,
        "OFFSETS": torch.tensor([0, 3, 9, 16, LENGTH]),
        "DOCUMENT": torch.tensor([0] * 3 + [1] * 6 + [2] * 7 + [3] * 8),
    }  # fmt: skip


def _needed(functions: dict[str, tuple[Path, ast.FunctionDef]], case: InPlace) -> list[tuple[Path, ast.FunctionDef]]:
    """The functions that a case names, and those that they name in turn."""
    wanted = list(case.inner)
    open_ = [*re.findall(r"\w+", case.call or case.target), *case.inner]
    while open_:
        name = open_.pop()
        if name in functions:
            wanted.append(name)
            named = {item.id for item in ast.walk(functions[name][1]) if isinstance(item, ast.Name)}
            open_ += named - set(wanted)
    return [functions[name] for name in dict.fromkeys(wanted)]
