"""Comments of specs, and their paths, never become code: neither of the package, nor of a kernel, nor of messages."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import attncc
from attncc.cli import attncc as command
from attncc.import_flex.importer import import_flex
from attncc.package import build
from tests.evil_texts import EVIL, NOT_UTF8, as_comment, as_file_name

SMALL = {"archs": ["sm_80"], "dtypes": ["fp16"], "head_dims": [16]}
BODY = "variant {name} {{\n    input cap: f32  {inner}\n    let x = cap  {inner}\n    score = x * tanh(score / x)\n}}\n"
# The smallest tiles: they compile in half the time.
TILES = "schedule small for {name} on sm_80 {{ block_q = 16 block_kv = 16 warps = 1 }}\n"
NAMES = {**EVIL, "not_utf8": NOT_UTF8}
# To build takes half a second. What ends a line or a comment early, or reaches into the next line, is built each time.
EVERY_DAY = {
    "encoding", "docstring", "backslash_at_the_end", "trigraph", "comment", "newline", "carriage_return",
    "unicode_lines", "nul", "lines", "not_utf8",
}  # fmt: skip
BUILT = [key if key in EVERY_DAY else pytest.param(key, marks=pytest.mark.slow) for key in NAMES]
assert set(NAMES) >= EVERY_DAY


def spec_text(text: str, name: str) -> str:
    inner = as_comment(text).replace("\n", "\n    ") + "\n"
    return f"attn 1\n{as_comment(text)}\n{BODY.format(name=name, inner=inner)}{TILES.format(name=name)}"


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Imports a package that was built below `tmp_path`, by its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(name: str) -> ModuleType:
        importlib.invalidate_caches()
        for module in [item for item in sys.modules if item.partition(".")[0] == name]:
            del sys.modules[module]
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize("key", BUILT)
def test_built_and_called(key: str, tmp_path: Path, imported) -> None:
    """In kernels nothing of a comment is seen by the compiler, `#line` excepted."""
    text = NAMES[key] if key != "not_utf8" else ""
    folder = tmp_path / "specs"
    folder.mkdir()
    path = folder / f"{as_file_name(NAMES[key])}.attn"
    path.write_text(spec_text(text, "mine"), encoding="utf-8", newline="")
    build(path, tmp_path / "made", **SMALL)
    package = imported("made")
    assert package.__all__ == ["mine"] and not hasattr(package.mine, "evil")
    q = np.ones((1, 1, 4, 16), np.float16)
    assert np.allclose(package.mine(q, q, q, cap=2.0).astype(float), 1)
    for file in (tmp_path / "made").rglob("*.py"):
        assert "\0" not in (found := file.read_bytes().decode("utf-8")) and "\r" not in found
    for file in (tmp_path / "made").rglob("*.json"):
        json.loads(file.read_text("ascii"))
    kernels, images = ([*(tmp_path / "made").rglob(f"*.{suffix}")] for suffix in ("cu", "cubin"))
    assert len(kernels) == len(images) > 0
    assert all(b"\0" not in file.read_bytes() for file in kernels)
    assert all(file.stat().st_size > 5000 for file in images)


@pytest.mark.parametrize("key", NAMES)
def test_messages(key: str, tmp_path: Path) -> None:
    path = tmp_path / f"{as_file_name(NAMES[key])}.attn"
    path.write_text("attn 1\nvariant mine { keep if nonsense }\n")
    for form in ("text", "json"):
        result = CliRunner().invoke(command, ["check", str(path), "--format", form])
        assert result.exit_code == 1 and "A101" in result.output and "A900" not in result.output
        assert result.output.replace("\n", "").isprintable()
    path.write_text("attn 1\nvariant mine { keep if true }\n")
    result = CliRunner().invoke(command, ["check", str(path)])
    assert result.exit_code == 0 and result.output.replace("\n", "").isprintable()


@pytest.mark.parametrize("key", NAMES)
def test_imported_from_python(key: str, tmp_path: Path) -> None:
    path = tmp_path / f"{as_file_name(NAMES[key])}.py"
    path.write_text("def mine(b, h, q_idx, kv_idx):\n    return (q_idx >= kv_idx) & (kv_idx >= first[b])\n")
    found = import_flex([f"{path}:mine"], [], None)
    (variant,) = attncc.semantics.load.load(attncc.source.SourceFile("x.attn", found.text)).variants
    assert variant.name == "mine" and len(variant.keeps) == 2
