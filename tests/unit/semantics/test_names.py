from __future__ import annotations

import keyword

import pytest

from attncc.semantics import builtins
from attncc.semantics.names import reserved
from attncc.syntax.grammar import keywords
from tests.loaded import codes

DECLARATIONS = {
    "let": "let {} = q_pos",
    "const": "const {}: int = 1",
    "input": "input {}: i32",
    "loop variable": "keep if any({} == kv_idx for {} in range(2))",
}


@pytest.mark.parametrize("declaration", DECLARATIONS.values(), ids=DECLARATIONS)
@pytest.mark.parametrize("name", ["h", "q_pos", "min", "head", "i32", "float"])
def test_built_in_names_cannot_be_declared(declaration: str, name: str) -> None:
    assert codes(declaration.replace("{}", name)) == ["A104"]


@pytest.mark.parametrize("name", ["h", "tanh", "pos", "bool"])
def test_masks_and_parameters_neither(name: str) -> None:
    assert codes("", f"mask {name}() = q_pos >= kv_idx") == ["A104"]
    assert codes("", f"mask near({name}) = q_pos >= kv_idx") == ["A104"]


def test_inputs_are_keyword_arguments_of_python() -> None:
    for name in sorted(builtins.CALL_ARGUMENTS - set(builtins.VALUES) - keywords()):
        assert codes(f"input {name}: f32\nscore = score * {name}") == ["A104"], name
    for name in sorted(set(keyword.kwlist) - keywords()):
        assert "Python" in reserved(name, "input"), name
        assert "Python" in reserved(name, "variant"), name
        assert not reserved(name, "let"), name


def test_other_names_are_free_of_that() -> None:
    assert codes("let out = q_pos - kv_idx\nconst lambda: int = 3\nkeep if out >= lambda") == []


def test_a_variant_may_be_called_as_a_mask() -> None:
    assert codes("keep if v()", "mask v() = q_pos >= kv_idx") == []


@pytest.mark.parametrize("first", ["let x = q_pos", "const x: int = 1", "input x: i32"])
@pytest.mark.parametrize("second", DECLARATIONS.values(), ids=DECLARATIONS)
def test_nothing_is_shadowed(first: str, second: str) -> None:
    assert codes(f"{first}\nkeep if x > 0\n{second.replace('{}', 'x')}") == ["A103"]


def test_loop_variables_end_with_their_loop() -> None:
    assert codes("keep if any(i == kv_idx for i in range(2)) or all(i == q_idx for i in range(3))") == []
    assert codes("keep if any(i == kv_idx for i in range(2)) or i == 3") == ["A101"]
    assert codes("keep if any(any(i == kv_idx for i in range(2)) for i in range(3))") == ["A103"]


def test_a_wrong_declaration_brings_no_further_errors() -> None:
    assert codes("let distance = q_poss - kv_idx\nkeep if distance >= 0 and distance[3] + foo(distance)") == [
        "A101",
        "A102",
    ]
