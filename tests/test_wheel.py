"""The wheel: built from the sdist, installed in an empty virtual environment, used from another folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from hatch_build import for_an_index, urls

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ".", cwd=ROOT)
    (built,) = target.glob("attncc-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel; its dependencies are those of this environment, by a .pth file."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=home)
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_wheel_holds_what_the_code_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("grammars", "templates", "specs", "docs/errors"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files, f"{folder} is empty"
        missing = [str(path) for path in files if f"attncc/_data/{path.relative_to(ROOT)}" not in names]
        assert not missing, missing
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".cubin")]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(archive.read(name))


def test_metadata_is_complete(metadata: Message) -> None:
    for field in (
        "Summary",
        "Author",
        "License-Expression",
        "License-File",
        "Keywords",
        "Requires-Python",
        "Classifier",
    ):
        assert metadata[field], field
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().startswith("# attncc\n")


def test_no_link_of_the_description_is_relative(metadata: Message) -> None:
    assert re.findall(r"\]\((?!https://)[^)]*\)", metadata.get_payload()) == []


def test_the_source_distribution_has_what_the_description_names(wheel: Path) -> None:
    (archive,) = wheel.parent.glob("attncc-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    named = {path.partition("#")[0] for path in re.findall(r"\]\((?!https?:)([^)]+)\)", README.read_text("utf-8"))}
    assert len(named) > 15 and named <= names
    assert not [name for name in names if name.startswith(("tests/", "editors/", "docs/notebook/"))]


def test_twine_has_no_objections(wheel: Path) -> None:
    pytest.importorskip("twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(wheel.parent.iterdir()), cwd=wheel.parent)


TEXT = "[pages](docs/jax.md#calls) and [web](https://example.org)\n\n![a mask](docs/a.png)\n\nend\n"


def test_links_on_a_package_index() -> None:
    shown = for_an_index(TEXT, "https://example.org/attncc")
    assert "[pages](https://example.org/attncc/blob/HEAD/docs/jax.md#calls)" in shown
    assert "![a mask](https://example.org/attncc/raw/HEAD/docs/a.png)" in shown
    without = for_an_index(TEXT, "")
    assert without.startswith("pages (docs/jax.md#calls) and [web](https://example.org)\n\nend\n\nThe files")
    assert urls("https://example.org/attncc")["Repository"] == "https://example.org/attncc"
    assert urls("") == {}


def test_installed_wheel_works_from_any_folder(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "bin" / "python", "-c", "import attncc; print(attncc.__path__[0])", cwd=tmp_path)
    assert where.startswith(str(installed))

    spec = tmp_path / "mine.attn"
    spec.write_text("attn 1\nimport masks\nvariant mine {\n    keep if causal()\n}\n")
    attncc = installed / "bin" / "attncc"
    assert "mine" in run(attncc, "check", spec, cwd=tmp_path)
    assert "A101" in run(attncc, "explain", "A101", cwd=tmp_path)
    assert "keep" in run(installed / "bin" / "python", "-m", "pygments", "-l", "attn", spec, cwd=tmp_path)
    out = run(attncc, "run", spec, "--device", "cpu", "--q-len", "70", cwd=tmp_path, ATTNCC_CACHE=str(tmp_path / "c"))
    assert "within" in out


def test_built_package_imports_with_numpy_alone(installed: Path, tmp_path: Path) -> None:
    """`attncc build` then an import with the compiler's libraries blocked, and a call on NumPy arrays."""
    command = ["build", ROOT / "specs" / "causal.attn", "--arch", "sm_90", "--head-dim", "64"]
    run(installed / "bin" / "attncc", *command, cwd=tmp_path)
    code = (
        "import sys\n"
        "for name in ('lark', 'jinja2', 'click', 'rich'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from generated import causal\n"
        "import ml_dtypes\n"
        "q = np.ones((1, 2, 5, 64)).astype(ml_dtypes.bfloat16)\n"
        "print(causal(q, q, q).shape)\n"
    )
    assert run(installed / "bin" / "python", "-c", code, cwd=tmp_path).strip() == "(1, 2, 5, 64)"
