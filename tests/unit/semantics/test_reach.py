"""What imports may read: attn files of the spec's folder and below, of the library, and where it is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.semantics.load import load
from attncc.semantics.reach import MAX_FILES
from attncc.source import MAX_BYTES, SourceFile

SECRET = "root:x:0:0:secret:/root"
MASK = "attn 1\nmask one() = kv_idx < 1\n"
USE = "variant v { keep if one() }\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "specs" / "below").mkdir(parents=True)
    return tmp_path / "specs" / "main.attn"


def refused(spec: Path, name: str) -> tuple[str, str]:
    """The only code of a spec that imports a file of this name, and all that is shown."""
    with pytest.raises(AttnccError) as raised:
        load(SourceFile(str(spec), f'attn 1\nimport "{name}"\nvariant v {{}}\n'))
    (found,) = raised.value.diagnostics
    return found.code, str(raised.value)


@pytest.mark.parametrize("name", ["../secret.attn", "below/../../secret.attn", "../../etc/passwd", "../none.attn"])
def test_files_outside_of_the_folder(spec: Path, name: str) -> None:
    (spec.parent.parent / "secret.attn").write_text(SECRET)
    code, text = refused(spec, name)
    assert code == "A115" and "root:x" not in text and "allow_imports=…" in text


def test_files_outside_of_the_folder_through_links(spec: Path) -> None:
    (spec.parent.parent / "secret.attn").write_text(MASK)
    (spec.parent / "link.attn").symlink_to("../secret.attn")
    (spec.parent / "up").symlink_to("..")
    assert refused(spec, "link.attn")[0] == refused(spec, "up/secret.attn")[0] == "A115"


def test_what_exists_outside_is_not_told(spec: Path) -> None:
    (spec.parent.parent / "secret.attn").write_text(MASK)
    assert refused(spec, "../secret.attn")[1] == refused(spec, "../absent.attn")[1].replace("absent", "secret")


def test_only_attn_files(spec: Path) -> None:
    (spec.parent / "masks.txt").write_text(MASK)
    (spec.parent / "link.attn").symlink_to("masks.txt")
    assert refused(spec, "masks.txt")[0] == refused(spec, "link.attn")[0] == "A107"


@pytest.mark.parametrize("text", [SECRET, f"# a\n{SECRET}", "", f"1 {SECRET}", f"attn {SECRET}"])
def test_what_is_no_attn_text_is_not_shown(spec: Path, text: str) -> None:
    (spec.parent / "other.attn").write_text(text)
    code, shown = refused(spec, "other.attn")
    assert code == "A107" and "root:x" not in shown


def test_what_is_not_utf8_is_not_shown(spec: Path) -> None:
    (spec.parent / "other.attn").write_bytes(b"attn 1\n\xfe\xdc")
    code, shown = refused(spec, "other.attn")
    assert code == "A107" and "fe" not in shown.split("can't be read")[1] and "0x" not in shown


def test_mistakes_in_imported_attn_files_are_shown(spec: Path) -> None:
    (spec.parent / "below" / "other.attn").write_text("attn 1\nmask one( = 3\n")
    code, shown = refused(spec, "below/other.attn")
    assert code.startswith("A0") and "mask one( = 3" in shown


def test_pipes_devices_folders_and_large_files(spec: Path) -> None:
    os.mkfifo(spec.parent / "pipe.attn")
    (spec.parent / "folder.attn").mkdir()
    (spec.parent / "large.attn").write_text(MASK + "#" * MAX_BYTES)
    (spec.parent / "zero.attn").symlink_to("/dev/zero")
    found = [refused(spec, f"{name}.attn")[0] for name in ("pipe", "folder", "large", "zero")]
    assert found == ["A107", "A107", "A107", "A115"]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/"])
def test_specs_are_regular_files(path: str) -> None:
    with pytest.raises(AttnccError) as raised:
        attncc.parse(path)
    assert [item.code for item in raised.value.diagnostics] == ["A511"]


@pytest.mark.parametrize("name", ["a\0b.attn", "a" * 300 + ".attn", "loop.attn", "closed/x.attn", "secret.attn", ""])
def test_paths_that_lead_nowhere(spec: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (spec.parent / "loop.attn").symlink_to("loop.attn")
    (spec.parent / "closed").mkdir()
    (spec.parent / "secret.attn").write_text(MASK)
    if os.getuid() == 0:  # who may read everything
        _close(monkeypatch)
    else:
        (spec.parent / "closed").chmod(0)
        (spec.parent / "secret.attn").chmod(0)
    assert refused(spec, name)[0] == "A107"


def _close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses what is called `closed` or `secret`, as it does others than root."""
    real_stat, real_open = os.stat, os.open

    def stat(path, *args, **kwargs):
        if isinstance(path, str | os.PathLike) and "closed/" in os.fspath(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real_stat(path, *args, **kwargs)

    def opened(path, *args, **kwargs):
        if any(word in os.fspath(path) for word in ("closed/", "secret")):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "open", opened)


def test_allowed_folders(spec: Path) -> None:
    (spec.parent.parent / "shared").mkdir()
    (spec.parent.parent / "shared" / "one.attn").write_text(MASK)
    spec.write_text(f'attn 1\nimport "../shared/one.attn"\n{USE}')
    for allowed in ([spec.parent.parent / "shared"], spec.parent.parent, str(spec.parent.parent)):
        assert attncc.parse(spec, allow_imports=allowed).name == "v"
    with pytest.raises(AttnccError):
        attncc.parse(spec, allow_imports=[spec.parent / "below"])


def test_a_link_to_a_spec_stands_in_the_folder_of_the_link(spec: Path, tmp_path: Path) -> None:
    (spec.parent / "one.attn").write_text(MASK)
    (tmp_path / "real.attn").write_text(f'attn 1\nimport "one.attn"\n{USE}')
    spec.symlink_to(tmp_path / "real.attn")
    assert attncc.parse(spec).name == "v"


def test_how_many_files(spec: Path) -> None:
    for number in range(MAX_FILES + 1):
        follows = f'import "f{number + 1}.attn"' if number < MAX_FILES else ""
        (spec.parent / f"f{number}.attn").write_text(f"attn 1\n{follows}\nmask m{number}() = true\n")
    assert refused(spec, "f0.attn")[0] == "A011"
    assert load(SourceFile(str(spec), 'attn 1\nimport "f1.attn"\nvariant v {}\n')).variants
