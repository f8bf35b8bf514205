"""What is offered: everything that stands in the shipped files, and at chosen places just what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.lsp.completion import completion
from attncc.lsp.slots import slot
from attncc.syntax.grammar import keywords
from tests.unit.lsp.opened import SPECS, marked, spec

HEAD = "attn 1\nimport masks\nfn half(x) = x / 2\nvariant v {\n    const w: int = 64\n    input slope: f32[head]\n"
SCHEDULE = f"{HEAD}}}\nschedule s for v on sm_80 {{\n"

# A text with the cursor, some of what is offered, some of what is not.
CASES: dict[str, tuple[str, set[str], set[str]]] = {
    "empty file": ("|", {"attn", "import", "variant"}, {"let"}),
    "items": ("attn 1\n|", {"import", "mask", "fn", "variant", "schedule"}, {"attn", "let", "q_pos"}),
    "library": ("attn 1\nimport |", {"masks", "natten"}, {"variant"}),
    "a new name": ("attn 1\nvariant |", set(), {"masks", "q_pos"}),
    "statements": ("attn 1\nvariant v {|}", {"const", "input", "let", "keep", "dropout"}, {"variant", "q_pos"}),
    "in a mask": ("attn 1\nmask m(a) {\n    |", {"let", "keep"}, {"const", "score", "dropout"}),
    "a line begun": (f"{HEAD}    le|\n    let a = 1\n}}", {"let", "keep"}, {"variant", "q_pos"}),
    "const types": (f"{HEAD}    const c: |", {"int", "float", "bool"}, {"f32"}),
    "dtypes": (f"{HEAD}    input d: |", {"f32", "i32", "bool"}, {"int", "q_pos"}),
    "axes": (f"{HEAD}    input d: i32[batch, |]", {"pos", "kv", "_", "w"}, {"b", "i32", "slope"}),
    "properties": (f"{HEAD}    input d: i32[batch, pos] |", {"nondecreasing"}, {"q_pos"}),
    "keep": (f"{HEAD}    keep |", {"if"}, {"q_pos"}),
    "condition": (f"{HEAD}    keep if |", {"causal", "half", "slope", "q_pos", "any", "not"}, {"score", "keep", "v"}),
    "behind a value": (f"{HEAD}    keep if q_pos |", {"and", "or"}, {"q_pos", "keep"}),
    "score": (f"{HEAD}    score = |", {"score", "tanh", "slope"}, {"let"}),
    "its own let": (f"{HEAD}    let own = |", {"w"}, {"own"}),
    "below alone": (f"{HEAD}    let a = |\n    let late = 1\n", {"w"}, {"late"}),
    "loop": (f"{HEAD}    keep if any(| == 0 for place in range(4))", {"place"}, set()),
    "parameters": ("attn 1\nmask m(left, right) = |", {"left", "right"}, {"score", "m"}),
    "sink": (f"{HEAD}    sink |", {"slope"}, {"w", "q_pos"}),
    "normalize": (f"{HEAD}    normalize |", {"softmax", "sigmoid", "none"}, {"q_pos"}),
    "schedule of": (f"{HEAD}}}\nschedule s for |", {"v"}, {"sm_80"}),
    "pass": (f"{HEAD}}}\nschedule s for v |", {"backward", "decode", "on"}, {"sm_80"}),
    "target": (f"{HEAD}}}\nschedule s for v on |", {"sm_80", "sm_90a"}, {"v"}),
    "knobs": (f"{SCHEDULE}    |", {"block_q", "stages", "skip"}, {"q_pos", "auto"}),
    "numbers": (f"{SCHEDULE}    block_q = {{64, |", {"32", "128"}, {"auto", "1"}),
    "words": (f"{SCHEDULE}    skip = |}}", {"auto", "never", "in_kernel"}, {"64", "q_outer"}),
    "behind the brace": (f"{HEAD}}}\n|", {"variant", "mask"}, {"let", "q_pos"}),
    "comment": (f"{HEAD}    # q_|", set(), {"q_pos", "let"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_choices(case: str) -> None:
    text, offered, others = CASES[case]
    names = {choice.name for choice in completion(*marked(text))}
    assert offered <= names, offered - names
    assert not others & names
    assert offered or not names


def test_choices_say_what_they_are() -> None:
    choices = {choice.name: choice for choice in completion(*marked(f"{HEAD}    score = |"))}
    assert choices["slope"].form == "input slope: f32[head]"
    assert choices["window"].form == "window(width)" and "Exactly `width` keys" in choices["window"].doc
    assert choices["clamp"].form == "clamp(x, low, high)" and choices["clamp"].doc
    assert list(choices)[:2] == ["w", "slope"]  # nearest first


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_whatever_stands_in_a_shipped_file_is_offered_there(path: Path) -> None:
    documents, document = spec(path)
    for item in document.outline.items:
        for part in (item.head, *item.statements):
            for place, token in enumerate(part.tokens):
                given = place > 0 and slot(part.tokens[:place]) == "name"
                if str(token) in keywords() or (token.type == "NAME" and not given):
                    names = {choice.name for choice in completion(documents, document, token.start_pos)}
                    assert str(token) in names, (str(token), document.source.position(token.start_pos))
