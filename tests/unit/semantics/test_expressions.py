from __future__ import annotations

import pytest

from attncc import resources
from attncc.ir import Apply, Keep, Let, Load, Score, Type, show, walk
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.loaded import codes, lowered, scored, variant

IMAGE = """mask image(first, size) {
    let index = kv_idx // size
    let start = first[index]
    keep if start <= q_pos
    keep if index >= 0
}"""


def test_masks_are_written_out() -> None:
    items = "mask near(x, limit) = abs(x) < limit"
    assert show(lowered("near(q_pos - kv_idx, 8) or near(kv_idx, 4)", "", items)) == (
        "((abs((q_pos - kv_idx)) < 8) or (abs(kv_idx) < 4))"
    )


def test_lets_of_masks_come_before_their_line_under_names_of_their_own() -> None:
    lines = (
        "input first: i32[_]\nlet index = 3 * h\nkeep if index > 0\nkeep if image(first, 64)\nkeep if image(first, 32)"
    )
    shown = variant(lines, IMAGE).show_lowered().splitlines()[2:]
    assert shown == [
        "  let index: int = (3 * h)",
        "  keep if (index > 0)",
        "  let image__index: int = (kv_idx // 64)",
        "  let image__start: int = first[image__index]",
        "  keep if ((image__start <= q_pos) and (image__index >= 0))",
        "  let image__index__2: int = (kv_idx // 32)",
        "  let image__start__2: int = first[image__index__2]",
        "  keep if ((image__start__2 <= q_pos) and (image__index__2 >= 0))",
    ]


@pytest.mark.parametrize("op", ["and", "or"])
def test_a_long_chain_is_one_level(op: str) -> None:
    lowered_chain = lowered(f" {op} ".join(f"kv_idx != {i}" for i in range(900)), "")
    assert isinstance(lowered_chain, Apply) and lowered_chain.op == op and len(lowered_chain.args) == 900


def test_masks_call_masks_whatever_their_order() -> None:
    items = "mask outer(x) = inner(x + 1) and inner(0)\nmask inner(y) = y < kv_idx"
    assert show(lowered("outer(q_idx)", "", items)) == "(((q_idx + 1) < kv_idx) and (0 < kv_idx))"


def test_a_tensor_goes_through_masks() -> None:
    items = "mask outer(t) = inner(t, b)\nmask inner(t, i) = t[i] > kv_idx"
    assert show(lowered("outer(last)", "input last: i32[batch]", items)) == "(last[b] > kv_idx)"


def test_arguments_keep_the_axis_that_they_count() -> None:
    items = "mask at(t, i) = t[i] > kv_idx"
    assert codes("input last: i32[batch]\nkeep if at(last, h)", items) == ["A203"]
    assert codes("input last: i32[batch]\nkeep if at(last, h + 0)", items) == []


def test_masks_see_nothing_of_their_caller() -> None:
    assert codes("const width: int = 4\nkeep if near() and kv_idx < width", "mask near() = kv_idx < width") == ["A101"]
    assert codes("let x = q_pos\nkeep if near() and x > 0", "mask near() = kv_idx < x") == ["A101"]


def test_a_mask_that_nobody_calls_is_checked() -> None:
    assert codes("", "mask near(x) = x < wdth") == ["A101"]
    assert codes("", "mask near(x) = kv_idx + 1") == ["A206"]


def test_one_error_in_a_mask_is_one_error_however_often_it_is_called() -> None:
    assert codes("keep if near(1)\nkeep if near(2)", "mask near(x) = x < wdth") == ["A101"]


def test_a_constant_let_needs_no_let() -> None:
    lines = "const size: int = 9\nlet half = size // 2\ninput table: f32[2 * half + 1]\nscore = score + table[half]"
    result = variant(lines)
    assert result.lets == {}
    assert str(result.inputs[0].axes[0]) == "9"
    assert show(result.scores[0].value) == "(score + table[4])"


def test_lets_stay_lets() -> None:
    result = variant("let distance = q_pos - kv_idx\nlet far = distance > 4\nkeep if far\nscore = score - distance")
    assert [type(item) for item in result.statements] == [Let, Let, Keep, Score]
    assert show(result.keeps[0].condition) == "far"
    assert {name: let.value.type for name, let in result.lets.items()} == {"distance": Type.INT, "far": Type.BOOL}


def test_scalars_are_loads_without_indices() -> None:
    cap = scored("cap * tanh(score / cap)", "input cap: f32").children[0]
    assert cap == Load(Type.FLOAT, "cap", ())


@pytest.mark.parametrize("name", [path.stem for path in sorted(resources.folder("specs").glob("*.attn"))])
def test_every_node_and_statement_has_a_span(name: str) -> None:
    for spec in load(SourceFile.read(resources.folder("specs") / f"{name}.attn")).variants:
        assert spec.span is not None
        for statement in spec.statements:
            assert statement.span is not None
            expr = statement.condition if isinstance(statement, Keep) else statement.value
            assert all(node.span is not None and node.span.text for node in walk(expr))


def test_several_errors_of_one_expression() -> None:
    assert codes("keep if qq > kk and foo(1) and kv_idx") == ["A101", "A101", "A102"]
