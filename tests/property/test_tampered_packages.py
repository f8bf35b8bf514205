"""Packages whose files were changed at random: a call works, or ends in a diagnostic. Never in a traceback."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.package import build
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.manifest import MANIFEST, digest
from attncc.runtime.store.package_store import PLAN_SUFFIX, PackageStore
from tests.examples import slow_beyond

SPEC = """attn 1
variant mine {
    input doc: i32[batch, pos] nondecreasing
    input slope: f32[head] learnable
    let distance = q_pos - kv_idx
    keep if distance >= 0
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = score - slope[h] * distance
}
"""
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 16, 2**31, 2**70, 0.5, float("nan"), float("inf"), "", "x", "../../x", "sm_80",
    "\0", "__init__", [], {}, [[]], {"same": 0}, {"same": "a"}, {"type": "int"}, {"type": "x"}, {"class": "Const"},
    {"class": ["x"]}, {"class": "KernelPlan"},
)  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package") / "made"
    build(SPEC, out, archs=["sm_80"], dtypes=["fp16"], head_dims=[16])
    return out / "mine"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def tampered(value: Any, rng: random.Random) -> Any:
    """A JSON value with something replaced, removed, doubled or moved."""
    found = json.loads(json.dumps(value))
    place = rng.choice(places(found))
    if not place:
        return rng.choice(STRANGE)
    holder = found
    for key in place[:-1]:
        holder = holder[key]
    key = place[-1]
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2:
            other = found
            for part in rng.choice(places(found)[1:]):
                other = other[part]
            holder[key] = json.loads(json.dumps(other))
        case 3 if isinstance(holder[key], int):
            holder[key] += rng.choice((-1, 1, 1000))
        case _:
            holder[key] = rng.choice(STRANGE)
    return found


def used(folder: Path) -> None:
    """All that a call and its caller ask of a package."""
    store = PackageStore(folder)
    q = np.ones((1, 2, 24, 16), np.float16)
    given = {"doc": np.arange(24, dtype=np.int32)[None] // 8, "slope": np.ones(2, np.float32)}
    Kernel(store)(q, q, q, **given)
    store.report()
    store.machine_codes(store.plans(store.configurations[0], "sm_80"))


def outcome(folder: Path) -> str:
    try:
        used(folder)
    except AttnccError as error:
        return error.diagnostics[0].code
    return "works"


def test_the_package_works(package: Path) -> None:
    assert outcome(package) == "works"


@pytest.mark.parametrize("seed", slow_beyond(3, range(15)))
def test_manifests(package: Path, tmp_path: Path, seed: int) -> None:
    folder = Path(shutil.copytree(package, tmp_path / "mine"))
    right, rng = json.loads((package / MANIFEST).read_text()), random.Random(seed)
    for _ in range(100):
        wrong = tampered(right, rng)
        (folder / MANIFEST).write_text(json.dumps(wrong))
        assert outcome(folder) in {"A505", "A507", "A530", "works"}, wrong


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("seed", slow_beyond(2, range(5)))
def test_plans(package: Path, tmp_path: Path, seed: int, hashed: bool) -> None:
    """`hashed`: by someone who also mends the manifest, or removes it; then the plan itself must be sound."""
    folder = Path(shutil.copytree(package, tmp_path / "mine"))
    (name,) = (path.name for path in folder.glob(f"*{PLAN_SUFFIX}"))
    right, rng = json.loads((package / name).read_text()), random.Random(seed)
    manifest = json.loads((package / MANIFEST).read_text())
    for _ in range(100):
        wrong = json.dumps(tampered(right, rng)).encode()
        (folder / name).write_bytes(wrong)
        if hashed:
            manifest["sha256"][name] = digest(wrong)
            (folder / MANIFEST).write_text(json.dumps(manifest))
            assert outcome(folder)[:2] in {"A5", "A6", "wo"}, wrong
        else:
            assert outcome(folder) == ("works" if wrong == (package / name).read_bytes() else "A507")


def damages(content: bytes) -> list[bytes]:
    return [b"", content[:-1], content[: len(content) // 2], content + b"\0", content.replace(b"\x7fELF", b"\x7fELV")]


@pytest.mark.parametrize("damage", range(5))
def test_machine_code(package: Path, tmp_path: Path, damage: int) -> None:
    folder = Path(shutil.copytree(package, tmp_path / "mine"))
    for path in folder.glob("*.cubin"):
        path.write_bytes(damages(path.read_bytes())[damage])
    assert outcome(folder) == "A507"


def test_machine_code_that_cannot_be_read_is_not_said_to_be_missing(package: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(package, tmp_path / "mine"))
    for path in folder.glob("*.cubin"):
        path.unlink()
    assert outcome(folder) == "A505"
    for path in package.glob("*.cubin"):
        (folder / path.name).mkdir()
    assert outcome(folder) == "A507"


@pytest.mark.parametrize("text", ["[" * 10**5, '{"kernels": ' * 5000, "1" * 5000, "\xff", "nul", '"x"', "{}", "[]"])
@pytest.mark.parametrize("file", [MANIFEST, PLAN_SUFFIX])
def test_what_is_no_json_of_ours(package: Path, tmp_path: Path, text: str, file: str) -> None:
    folder = Path(shutil.copytree(package, tmp_path / "mine"))
    for path in folder.glob(f"*{file}"):
        path.write_bytes(text.encode("latin-1"))
    assert outcome(folder) == "A507"
