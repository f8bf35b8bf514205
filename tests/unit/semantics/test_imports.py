from __future__ import annotations

from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.ir import show
from attncc.semantics.load import load
from attncc.source import SourceFile


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name}.attn"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"attn 1\n{text}\n")


def codes(path: Path) -> list[str]:
    with pytest.raises(AttnccError) as raised:
        load(SourceFile.read(path))
    return [item.code for item in raised.value.diagnostics]


def test_imports_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, main='import "deep/a.attn"\nvariant v { keep if a() }')
    write(tmp_path / "deep", a='import "../b.attn"\nmask a() = bb(3)')
    write(tmp_path, b="mask bb(n) = kv_idx < n")
    monkeypatch.chdir("/")
    (variant,) = load(SourceFile.read(tmp_path / "main.attn")).variants
    assert show(variant.keeps[0].condition) == "(kv_idx < 3)"


def test_text_without_a_file_imports_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, b="mask bb(n) = kv_idx < n")
    monkeypatch.chdir(tmp_path)
    text = 'attn 1\nimport "b.attn"\nimport masks\nvariant v { keep if bb(3) and causal() }'
    assert load(SourceFile("<text>", text)).variants


def test_what_an_imported_file_imports_stays_its_own(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.attn"\nvariant v { keep if bb(3) }', a='import "b.attn"\nmask a() = bb(3)')
    write(tmp_path, b="mask bb(n) = kv_idx < n")
    assert codes(tmp_path / "main.attn") == ["A102"]


def test_two_files_may_import_the_same(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.attn"\nimport "b.attn"\nvariant v { keep if a() and bb() }')
    write(tmp_path, a='import "c.attn"\nmask a() = c(1)', b='import "c.attn"\nmask bb() = c(2)')
    write(tmp_path, c="mask c(n) = kv_idx > n")
    assert len(load(SourceFile.read(tmp_path / "main.attn")).variants) == 1


def test_variants_and_schedules_of_imported_files_stay_there(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.attn"\nvariant v { keep if a() }')
    write(tmp_path, a="mask a() = kv_idx > 3\nvariant v { keep if nonsense }\nschedule s for w on sm_80 {}")
    program = load(SourceFile.read(tmp_path / "main.attn"))
    assert [variant.name for variant in program.variants] == ["v"]
    assert program.schedules == ()


def test_cycles(tmp_path: Path) -> None:
    write(tmp_path, a='import "b.attn"\nvariant v { keep if bb() }', b='import "a.attn"\nmask bb() = kv_idx > 3')
    assert codes(tmp_path / "a.attn") == ["A108"]
    write(tmp_path, self='import "self.attn"')
    assert codes(tmp_path / "self.attn") == ["A108"]


def test_clashes(tmp_path: Path) -> None:
    write(tmp_path, a="mask m() = kv_idx > 1", b="mask m() = kv_idx > 2")
    write(tmp_path, both='import "a.attn"\nimport "b.attn"\nvariant v { keep if m() }')
    assert codes(tmp_path / "both.attn") == ["A109"]
    write(tmp_path, own='import "a.attn"\nmask m() = kv_idx > 3\nvariant v { keep if m() }')
    assert codes(tmp_path / "own.attn") == ["A103"]
    write(tmp_path, twice='import "a.attn"\nimport "../' + tmp_path.name + '/a.attn"')
    assert codes(tmp_path / "twice.attn") == ["A109"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.attn").write_bytes("attn 1\n# h\xe9\n".encode("latin-1"))
    (tmp_path / "folder.attn").mkdir()
    for target in ("latin.attn", "folder.attn", "missing.attn", "no/such/folder.attn", str(tmp_path / "b.attn")):
        write(tmp_path, main=f'import "{target}"\nvariant v {{ keep if m() }}')
        assert codes(tmp_path / "main.attn") == ["A107"], target


def test_what_is_there_but_no_file_is_not_suggested(tmp_path: Path) -> None:
    (tmp_path / "folder.attn").mkdir()
    for target in ("folder.attn", "folders.attn"):
        write(tmp_path, main=f'import "{target}"\nvariant v {{ keep if m() }}')
        with pytest.raises(AttnccError) as raised:
            load(SourceFile.read(tmp_path / "main.attn"))
        (item,) = (found for found in raised.value.diagnostics if found.code == "A107")
        assert item.edit is None and "mean" not in item.help
        assert ("no regular file" in item.message) == (target == "folder.attn")


def test_errors_of_an_imported_file_come_with_its_path(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.attn"\nvariant v { keep if m() and nothing }', a="mask m() = kv_idx >")
    with pytest.raises(AttnccError) as raised:
        load(SourceFile.read(tmp_path / "main.attn"))
    places = [(item.code[:2], Path(item.span.source.path).name) for item in raised.value.diagnostics]
    assert places == [("A0", "a.attn"), ("A1", "main.attn")]
