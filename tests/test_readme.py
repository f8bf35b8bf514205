"""What README.md shows is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from attncc.cli import COMMANDS, attncc
from attncc.package import prepare

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.M | re.S)
SPEC = ROOT / "specs" / "alibi_documents.attn"


def test_specs_are_shipped_ones() -> None:
    shipped = [_bare(path.read_text("utf-8")) for path in SPEC.parent.glob("*.attn")]
    shown = [_bare(text) for _, text in BLOCKS if text.startswith("attn 1")]
    assert shown
    for spec in shown:
        assert spec in shipped


def _bare(text: str) -> list[str]:
    """The lines without comments, and without blanks between them."""
    lines = [re.sub(r"\s*#.*", "", line) for line in text.splitlines()]
    return [line for line in lines if line]


def test_the_cuda_is_what_comes_out() -> None:
    shown = next(text for language, text in BLOCKS if language == "cuda")
    (package,) = prepare(SPEC, archs=["sm_90"], head_dims=[128])
    source = next(iter(package.sources.values()))[0].text
    assert shown in re.sub(r"^#line .*\n", "", source, flags=re.M)


def test_the_main_job_prints_what_is_shown() -> None:
    """But for times, for what NVRTC's version decides, and for what rounds otherwise on another processor."""
    shown = next(text for _, text in BLOCKS if text.startswith("parse "))
    printed = CliRunner().invoke(attncc, ["run", str(SPEC), "--device", "cpu"], catch_exceptions=False).stdout
    lines = [re.sub(r" {2,}\d[\d.]* m?s$", "", line) for line in printed.splitlines()]
    assert [_alike(line) for line in lines] == [_alike(line) for line in shown.splitlines()]


def _alike(line: str) -> str:
    return re.sub(r"\d+ (KiB|registers)", r"N \1", re.sub(r"\d\.\d{3}e-\d\d", "E", line))


def test_every_command_stands_in_the_table() -> None:
    assert set(re.findall(r"^\| `attncc ([\w-]+)", TEXT, re.M)) == set(COMMANDS)


def test_folders_exist() -> None:
    for folder in re.findall(r"^\| ((?:`\w+/`(?:, )?)+)", TEXT, re.M):
        for name in re.findall(r"`(\w+)/`", folder):
            assert (ROOT / name).is_dir(), name


def test_the_first_command_is_what_ci_does() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "pip install -q '.[cuda13,test]'" in TEXT
    assert "pip install -q '.[cuda13,test]'" in ci
    assert "\npytest" in ci
    assert "attncc run alibi_documents" in TEXT and "attncc run alibi_documents" in ci


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= 160
