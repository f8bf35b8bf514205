from __future__ import annotations

from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex import import_flex
from tests.unit.import_flex.snippets import statements

CAUSAL = "def causal(b, h, q_idx, kv_idx):\n    return q_idx >= kv_idx\n"
USE = "mod = lambda b, h, q, k: {}(b, h, q, k)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `pack` with `masks` in it, and a file beside the package."""
    package = tmp_path / "pack" / "inner"
    package.mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("from .inner import causal as exported\nLIMIT = 3\n")
    (package / "__init__.py").write_text("from .masks import *\n")
    (package / "masks.py").write_text("from pack import LIMIT\n" + CAUSAL)
    (tmp_path / "beside.py").write_text(CAUSAL)
    monkeypatch.chdir(tmp_path)
    return package


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("from .masks import causal", "causal"),
        ("from . import masks", "masks.causal"),
        ("from ..inner import causal", "causal"),
        ("from .. import exported", "exported"),
        ("from pack.inner.masks import causal as c", "c"),
        ("import pack", "pack.exported"),
        ("import pack.inner.masks as m", "m.causal"),
        ("from pack import inner", "inner.masks.causal"),
        ("from beside import causal", "causal"),
        ("from pack.inner import *", "causal"),
    ],
)
def test_imports_of_the_same_project(project: Path, text: str, call: str) -> None:
    (project / "here.py").write_text(f"{text}\n{USE.format(call)}")
    assert statements(import_flex(["pack/inner/here.py:mod"]).text) == ["keep if q_idx >= kv_idx"]


@pytest.mark.parametrize(
    "text", ["from nowhere import causal", "from .nowhere import causal", "import nowhere as causal"]
)
def test_imports_that_are_not_there(project: Path, text: str) -> None:
    (project / "here.py").write_text(f"{text}\n{USE.format('causal')}")
    with pytest.raises(AttnccError, match="does isn't known"):
        import_flex(["pack/inner/here.py:mod"])


def test_packages_that_import_what_is_below_them(project: Path) -> None:
    """`from . import masks` in the `__init__.py` beside `masks.py` names the file, also while it is being read."""
    (project / "__init__.py").write_text("from . import masks\nfrom . import nowhere\nfrom pack import inner\n")
    (project / "masks.py").write_text(f"from . import masks as own\nfrom . import causal as lost\n{CAUSAL}")
    (project / "here.py").write_text(f"from . import masks\n{USE.format('masks.own.causal')}")
    assert statements(import_flex(["pack/inner/here.py:mod"]).text) == ["keep if q_idx >= kv_idx"]


def test_libraries_are_not_read_even_if_a_file_has_their_name(project: Path) -> None:
    (project / "torch.py").write_text("def abs(x):\n    return 5\n")
    (project / "here.py").write_text("import torch\nmod = lambda b, h, q, k: torch.abs(q) > k\n")
    assert statements(import_flex(["pack/inner/here.py:mod"]).text) == ["keep if abs(q_idx) > kv_idx"]


def test_nothing_runs(project: Path) -> None:
    (project / "here.py").write_text(f"open('ran', 'w')\n__import__('os').mkdir('ran')\nraise SystemExit\n{CAUSAL}")
    import_flex(["pack/inner/here.py:causal"])
    assert not Path("ran").exists()
