"""`attncc list` and `attncc new`, and names in place of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import attncc
from attncc import library
from attncc.cli import attncc as command
from attncc.resources import folder


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_are_listed_within_the_terminal() -> None:
    lines = run("list").splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(library.names())
    assert max(map(len, lines)) <= 80
    assert "    consts: width = 1024" in lines


def test_a_terminal_of_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "3")
    assert len(run("list").splitlines()[1]) <= 24


def test_the_list_as_json() -> None:
    found = {item["name"]: item for item in json.loads(run("list", "--format", "json"))}
    assert list(found) == list(library.names())
    assert found["documents"]["inputs"] == ["doc: i32[batch, pos] nondecreasing"]
    assert found["sliding_window"]["consts"] == {"width": 1024}


def test_a_name_stands_for_its_file() -> None:
    assert "variant sliding_window" in run("check", "sliding_window", "-D", "width=64")
    assert "did you mean `sliding_window`?" in run("check", "slidin_window", status=2)


@pytest.mark.parametrize("path", ["causal.attn", "specs/causal.attn"])
def test_the_path_of_a_checkout_leads_to_the_name(path: str) -> None:
    assert "did you mean `causal`" in run("run", path, status=2)
    with pytest.raises(attncc.AttnccError, match=r"A511(.|\n)*did you mean `causal`"):
        attncc.compile(path, dtype="bf16", head_dim=64)


def test_a_function_is_no_spec_and_the_help_names_who_takes_it() -> None:
    with pytest.raises(attncc.AttnccError, match=r"A511(.|\n)*attncc\.flex_attention takes"):
        attncc.compile(lambda b, h, q, k: q >= k, dtype="bf16", head_dim=64)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fmt", "tune"])
def test_what_is_written_is_the_users_own(name: str) -> None:
    assert "`attncc new mine --like causal`" in run(name, "causal", status=2)
    assert "does not exist" in run(name, "nobody.attn", status=2)


@pytest.mark.parametrize("like", ["causal", "alibi_documents", "morton_natten"])
def test_a_new_file_is_the_variant_under_its_name(like: str) -> None:
    run("new", "mine", "--like", like)
    own, shipped = attncc.parse("mine.attn").variant, attncc.parse(like).variant
    assert own.name == "mine" and own.show_lowered().partition("\n")[2] == shipped.show_lowered().partition("\n")[2]
    assert run("check", "mine.attn").startswith("mine.attn: ok")


def test_a_new_file_may_be_named_with_its_suffix() -> None:
    run("new", "mine.attn")
    assert attncc.parse(Path("mine.attn")).name == "mine"


def test_every_variant_can_be_begun_from() -> None:
    for number, name in enumerate(library.names()):
        run("new", f"mine{number}", "--like", name)


def test_a_file_that_is_there_stays() -> None:
    Path("mine.attn").write_text("old")
    assert "is there already" in run("new", "mine", status=2)
    assert Path("mine.attn").read_text() == "old"


@pytest.mark.parametrize("name", ["a b", "1st", "../up", "", "score"])
def test_names_that_variants_cannot_have(name: str) -> None:
    run("new", name, status=1 if name == "score" else 2)
    assert not list(Path().rglob("*.attn"))


def test_a_hyphen_in_a_name_is_an_underscore() -> None:
    assert "did you mean `my_mask`?" in run("new", "my-mask", status=2)


def test_files_of_masks_alone_have_no_variant_to_begin_from() -> None:
    assert "A512" in run("new", "mine", "--like", str(folder("specs") / "masks.attn"), status=1)
