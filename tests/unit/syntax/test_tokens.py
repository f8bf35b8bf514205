"""Tokens, and what is wrong with one alone."""

from __future__ import annotations

import pytest

from attncc.diagnostics import AttnccError, Diagnostics
from attncc.source import SourceFile
from attncc.syntax.tokens import END, STRAY, first_on_line, tokenize


def tokens(text: str) -> list[tuple[str, str]]:
    found = tokenize(SourceFile("a.attn", text), diagnostics := Diagnostics())
    assert not diagnostics.items
    return [(token.type, str(token)) for token in found]


def complaints(text: str) -> list[tuple[str, str]]:
    """(code, marked text) of what tokenize reports."""
    tokenize(SourceFile("a.attn", text), diagnostics := Diagnostics())
    return [(item.code, item.span.text) for item in diagnostics.items]


@pytest.mark.parametrize(
    "text", ["0", "12", "1_000_000", "0xff", "0XAB", "00", "9223372036854775807", "0x7fffffffffffffff"]
)
def test_int(text: str) -> None:
    assert tokens(text)[0] == ("INT", text)


@pytest.mark.parametrize("text", ["0.5", ".5", "1.", "1e-6", "1E+6", "1_0.2_5e1_0", "3.4028234e38", "0e0", "00.5"])
def test_float(text: str) -> None:
    assert tokens(text)[0] == ("FLOAT", text)


@pytest.mark.parametrize(
    "text", ["9223372036854775808", "0x8000000000000000", "007", "1e39", "3.4028236e38", "9" * 10_000, "0_7"]
)
def test_number_out_of_range(text: str) -> None:
    assert complaints(f"let x = {text}") == [("A009", text)]


@pytest.mark.parametrize("name", ["_x", "__", "a__b", "x__", "_1"])
def test_names_of_the_generated_code(name: str) -> None:
    assert complaints(f"let {name} = 1") == [("A004", name)]


@pytest.mark.parametrize("name", ["x_", "a_b_c", "x1", "Q"])
def test_names(name: str) -> None:
    assert tokens(name)[0] == ("NAME", name)


def test_longest_operator_wins() -> None:
    text = "<< <= < >> >= > == = // / !="
    assert [token for _, token in tokens(text)[:-1]] == text.split()


def test_blanks_and_comments() -> None:
    assert tokens("\ta\r\n\f b # c d\n# e") == [("NAME", "a"), ("NAME", "b"), (END, "")]


def test_end_stands_behind_the_last_token() -> None:
    assert tokenize(SourceFile("a.attn", "a b  # c\n\n"), Diagnostics())[-1].start_pos == 3


@pytest.mark.parametrize("stray", ["$$$", "é", "naïveté"[2:], "\0", '"open', "\ud800", "٣"])
def test_what_begins_no_token(stray: str) -> None:
    assert (STRAY, stray) in tokens(f"a {stray}\nb")
    assert tokens(f"a {stray}\nb")[-2] == ("NAME", "b")


@pytest.mark.parametrize("version", ["0", "2", "10", "9" * 5000])
def test_other_version_raises_alone(version: str) -> None:
    with pytest.raises(AttnccError) as caught:
        tokenize(SourceFile("a.attn", f"# first\nattn {version}\n$ 007 _x"), Diagnostics())
    (only,) = caught.value.diagnostics
    assert (only.code, only.span.text) == ("A006", version)


@pytest.mark.parametrize("bracket", "([{")
def test_brackets_nest_128_levels(bracket: str) -> None:
    tokens(bracket * 128)
    with pytest.raises(AttnccError, match="128 levels") as caught:
        tokens(bracket * 129)
    assert caught.value.diagnostics[0].span.start == 128


def test_closed_brackets_do_not_nest() -> None:
    tokens("f(a[b]) " * 200)


def test_first_on_line() -> None:
    source = SourceFile("a.attn", "a b\n \tc")
    assert [first_on_line(source, token) for token in tokenize(source, Diagnostics())[:3]] == [True, False, True]
