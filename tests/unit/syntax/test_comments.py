from __future__ import annotations

import pytest

from attncc.source import SourceFile
from attncc.syntax.comments import comments, documentation


def test_comments_and_strings() -> None:
    found = list(comments(SourceFile("a.attn", '# one\nimport "a#b.attn" #two\n  # three\n"open # four')))
    assert [comment.text for comment in found] == ["# one", "# two", "# three", "# four"]
    assert [comment.own_line for comment in found] == [True, False, True, False]


@pytest.mark.parametrize(
    ("written", "text"),
    [("#", "#"), ("#a", "# a"), ("# a \t\r", "# a"), ("#  a", "#  a"), ("##", "##"), ("#!/x", "#!/x")],
)
def test_canonical_form(written: str, text: str) -> None:
    (comment,) = comments(SourceFile("a.attn", written))
    assert comment.text == text


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ("", ""),
        ("# a\n", "a"),
        ("#a\n  #  b\n#\n# c\n", "a\n b\n\nc"),
        ("# far\n\n# near\n", "near"),
        ("# far\n\n", ""),
        ("mask m() = x  # trailing\n", ""),
        ("mask m() = x  # trailing\n# own\n", "own"),
    ],
)
def test_documentation(above: str, expected: str) -> None:
    text = f"attn 1\n{above}variant v {{}}"
    assert documentation(SourceFile("a.attn", text), text.index("variant")) == expected


def test_no_documentation_in_the_middle_of_a_line() -> None:
    text = "# of the version\nattn 1 variant v {}"
    assert documentation(SourceFile("a.attn", text), text.index("variant")) == ""
