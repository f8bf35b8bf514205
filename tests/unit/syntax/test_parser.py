"""Text to AST: every statement, precedence, spans; and that errors come in numbers, never as a traceback."""

from __future__ import annotations

import re

import pytest

from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax import ast
from attncc.syntax.parser import MAX_ERRORS, parse
from attncc.syntax.printer import expression

EXAMPLE = """attn 1                                     # language version

import masks
import "mine.attn"

mask window(width) = 0 <= q_pos - kv_idx < width
mask everything() = true

mask same_image(first, last) {
    let image = kv_idx // 64
    keep if first[image] <= q_pos < last[image]
}

# ALiBi for packed documents.
#
# Slopes as in the paper.
variant alibi_documents {
    const width: int = 1024
    input slope: f32[head] learnable
    input doc:   i32[batch, pos] nondecreasing
    input table: bool[_, width + 1]
    input cap:   f32
    let distance = q_pos - kv_idx
    keep if distance >= 0
    score = score - slope[h] * distance
    scale 1 / sqrt(head_dim)
    sink cap
    normalize softmax
    dropout 0.1
}

schedule fast for alibi_documents on sm_90a {
    loop     = q_outer
    block_kv = {128, 176}
    split_kv = {auto, 4}
    stages   = 2
}
schedule slow for alibi_documents backward on sm_80 {}
"""


def module(text: str) -> ast.Module:
    return parse(SourceFile("a.attn", text))


def value(text: str) -> ast.Expr:
    """The AST of an expression."""
    variant = module(f"attn 1 variant v {{ let x = {text} }}").items[0]
    assert isinstance(variant, ast.Variant)
    let = variant.statements[0]
    assert isinstance(let, ast.Let)
    return let.value


def grouped(text: str) -> str:
    """An expression with all its parentheses."""
    return _show(value(text))


def _show(node: ast.Expr) -> str:
    match node:
        case ast.Binary():
            return f"({_show(node.left)} {node.op} {_show(node.right)})"
        case ast.Unary():
            return f"({node.op} {_show(node.operand)})"
        case ast.Comparison():
            rest = zip(node.ops, node.operands[1:], strict=True)
            return "(" + _show(node.operands[0]) + "".join(f" {op} {_show(operand)}" for op, operand in rest) + ")"
        case ast.Conditional():
            return f"({_show(node.then)} if {_show(node.condition)} else {_show(node.otherwise)})"
        case _:
            return node.span.text


def errors(text: str) -> list[tuple[str, int]]:
    """(code, line) of each error."""
    with pytest.raises(AttnccError) as caught:
        module(text)
    assert str(caught.value)
    return [(item.code, item.span.line) for item in caught.value.diagnostics]


class TestWhatIsRead:
    def test_items(self) -> None:
        read = module(EXAMPLE)
        assert read.version == 1
        assert [item.target for item in read.imports][1] == "mine.attn"
        assert isinstance(read.imports[0].target, ast.Name)
        assert [item.name.name for item in read.items] == [
            "window", "everything", "same_image", "alibi_documents", "fast", "slow",
        ]  # fmt: skip

    def test_masks(self) -> None:
        window, everything, same_image = (item for item in module(EXAMPLE).items if isinstance(item, ast.Mask))
        assert [name.name for name in window.parameters] == ["width"]
        assert isinstance(window.body, ast.Comparison)
        assert everything.parameters == ()
        assert [type(line) for line in same_image.body] == [ast.Let, ast.Keep]

    def test_variant(self) -> None:
        variant = next(item for item in module(EXAMPLE).items if isinstance(item, ast.Variant))
        assert variant.comment == "ALiBi for packed documents.\n\nSlopes as in the paper."
        assert " ".join(type(line).__name__ for line in variant.statements) == (
            "Const Input Input Input Input Let Keep Score Scale Sink Normalize Dropout"
        )

    def test_inputs(self) -> None:
        variant = next(item for item in module(EXAMPLE).items if isinstance(item, ast.Variant))
        slope, doc, table, cap = (line for line in variant.statements if isinstance(line, ast.Input))
        assert [axis.name for axis in doc.axes] == ["batch", "pos"]
        assert [item.name for item in slope.properties + doc.properties] == ["learnable", "nondecreasing"]
        assert [type(axis) for axis in table.axes] == [ast.Wildcard, ast.Binary]
        assert (cap.axes, cap.properties, cap.dtype.name) == ((), (), "f32")

    def test_schedules(self) -> None:
        fast, slow = (item for item in module(EXAMPLE).items if isinstance(item, ast.Schedule))
        assert {setting.knob.name: setting.values for setting in fast.settings} == {
            "loop": ("q_outer",), "block_kv": (128, 176), "split_kv": ("auto", 4), "stages": (2,),
        }  # fmt: skip
        assert (fast.pass_name, fast.target.name, slow.pass_name.name, slow.settings) == (
            None,
            "sm_90a",
            "backward",
            (),
        )

    def test_newlines_mean_nothing(self) -> None:
        tokens = re.sub("#[^\n]*", "", EXAMPLE).split()
        assert [type(item) for item in module("\n".join(tokens)).items] == [
            type(item) for item in module(EXAMPLE).items
        ]
        assert module(" ".join(tokens)) == module("\n\n\t".join(tokens))

    def test_smallest_file(self) -> None:
        assert module("attn 1") == module("\n# only this\nattn 1\n")

    def test_statement_words_are_values_too(self) -> None:
        variant = module("attn 1 variant v { let x = scale scale score score = score }").items[0]
        assert [type(line) for line in variant.statements] == [ast.Let, ast.Scale, ast.Score]

    def test_plain_strings(self) -> None:
        """No lark token is left in the tree: they compare, pickle and print in their own ways."""
        read = module(EXAMPLE)
        assert type(read.items[0].name.name) is str
        assert type(value("a // b").op) is str
        assert type(value("a < b").ops[0]) is str
        assert type(module('attn 1 import "x"').imports[0].target) is str


class TestExpressions:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a or b and not c == d", "(a or (b and (not (c == d))))"),
            ("a | b ^ c & d << e + f * +g", "(a | (b ^ (c & (d << (e + (f * (+ g)))))))"),
            ("a - b - c", "((a - b) - c)"),
            ("a / b // c % d * e", "((((a / b) // c) % d) * e)"),
            ("a << b >> c", "((a << b) >> c)"),
            ("a < b <= c != d", "(a < b <= c != d)"),
            ("(a < b) < c", "((a < b) < c)"),
            ("a & b == c", "((a & b) == c)"),
            ("not not a", "(not (not a))"),
            ("-+~a * b", "((- (+ (~ a))) * b)"),
            ("a if b else c if d else e", "(a if b else (c if d else e))"),
            ("(a if b else c) if d or e else f", "((a if b else c) if (d or e) else f)"),
            ("a or b if c else d", "((a or b) if c else d)"),
        ],
    )
    def test_precedence_is_pythons(self, text: str, expected: str) -> None:
        assert grouped(text) == expected
        assert eval(re.sub(r"\b[a-g]\b", "3", text)) == eval(re.sub(r"\b[a-g]\b", "3", expected))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("12", 12), ("1_000", 1000), ("0xff", 255), ("1e-6", 1e-6), (".5", 0.5), ("2.", 2.0), ("1_0.5", 10.5)],
    )
    def test_numbers(self, text: str, expected: float) -> None:
        number = value(text)
        assert (number.value, type(number.value)) == (expected, type(expected))

    def test_atoms(self) -> None:
        assert value("true") == ast.Boolean(value=True, span=value("true").span)
        call = value("min(a, b[i, j + 1])")
        assert (call.function.name, call.arguments[1].tensor.name, len(call.arguments[1].indices)) == ("min", "b", 2)
        assert value("rand()").arguments == ()

    @pytest.mark.parametrize("function", ["any", "all", "sum"])
    def test_reductions(self, function: str) -> None:
        reduction = value(f"{function}(a[i] for i in range(n + 1))")
        assert (reduction.function, reduction.variable.name, reduction.body.span.text) == (function, "i", "a[i]")
        assert reduction.count.span.text == "n + 1"


class TestSpans:
    def test_parentheses_belong_to_the_expression_around(self) -> None:
        node = value("(a or b) and (c)")
        assert (node.span.text, node.left.span.text, node.right.span.text) == ("(a or b) and (c)", "a or b", "c")

    def test_statements_and_items(self) -> None:
        read = module(EXAMPLE)
        assert read.items[0].span.text == "mask window(width) = 0 <= q_pos - kv_idx < width"
        assert read.items[-1].span.text == "schedule slow for alibi_documents backward on sm_80 {}"
        variant = read.items[3]
        assert [line.span.text for line in variant.statements][2:4] == [
            "input doc:   i32[batch, pos] nondecreasing",
            "input table: bool[_, width + 1]",
        ]
        assert variant.statements[3].axes[0].span.text == "_"
        assert read.items[4].settings[1].span.text == "block_kv = {128, 176}"
        assert read.span.text == EXAMPLE.strip()

    def test_columns(self) -> None:
        span = value("a + bc").right.span
        assert str(span) == "a.attn:1:32"


class TestErrors:
    def test_several_a_run(self) -> None:
        text = """attn 1
variant a {
    keep q_idx > kv_idx
    keep if a && b || c
    let = 3
    let x = (1 + 2
    score = score *
}
varient b {
    let y = 1 +* 2
    kep if x
}
schedule s for a on sm_80 { stages = 2.5 }
"""
        assert errors(text) == [
            ("A007", 3), ("A003", 4), ("A003", 4), ("A001", 5), ("A005", 6), ("A007", 7), ("A008", 9), ("A001", 10),
            ("A008", 11), ("A001", 13),
        ]  # fmt: skip

    def test_statement_after_a_hopeless_one_is_read(self) -> None:
        assert errors("attn 1 variant v {\nlet x = a b c d e\nkeep q_idx\n}") == [("A001", 2), ("A007", 3)]

    def test_item_after_a_hopeless_one_is_read(self) -> None:
        assert errors("attn 1 variant 1 2 3 { keep }\nvariant w { keep x }") == [("A001", 1), ("A007", 2)]

    def test_a_closed_body_is_not_opened_again(self) -> None:
        """The statement below belongs nowhere; it is not taken for one of `v`."""
        assert errors("attn 1 variant v {}\n) 3 4\nlet x = (\nvariant w {}") == [("A005", 2)]

    def test_token_and_syntax_errors_in_order(self) -> None:
        assert errors("attn 1 variant v {\nlet a b\nlet _x = 1\nlet c = 007\nlet d\n}") == [
            ("A001", 2), ("A004", 3), ("A009", 4), ("A001", 6),
        ]  # fmt: skip

    def test_at_most_twenty(self) -> None:
        assert len(errors("attn 1 variant v {" + "keep x\n" * 100 + "}")) == MAX_ERRORS
        assert len(errors("attn 1 variant v {" + "let _x = 1\n" * 100 + "}")) == MAX_ERRORS

    def test_every_truncation(self) -> None:
        """Each prefix of a file is a file, or has errors that can be shown: of those, few."""
        for end in range(len(EXAMPLE)):
            try:
                module(EXAMPLE[:end])
            except AttnccError as error:
                assert str(error)
                assert len(error.diagnostics) <= 2, EXAMPLE[:end]

    @pytest.mark.parametrize(
        "text",
        ["(" * 9_000 + "x" + ")" * 9_000, "-" * 9_000 + "x", "not " * 9_000 + "x", "x + " * 9_000 + "x",
         "x if y else " * 4_500 + "x", "f(" * 9_000, "a[" * 6_000 + "0" + "]" * 6_000],
        ids=["parentheses", "minus", "not", "sum", "else", "calls", "indices"],
    )  # fmt: skip
    def test_deep(self, text: str) -> None:
        assert errors(f"attn 1 variant v {{ let x = {text} }}") == [("A010", 1)]

    def test_deep_and_wrong(self) -> None:
        """What nests without brackets is bounded before errors are looked for: to go on after one costs its depth."""
        assert errors(f"attn 1 variant v {{ let x = {'-' * 19_000} x y }}") == [("A010", 1)]

    def test_words_of_statements_inside_a_hopeless_one(self) -> None:
        """`scale` and `score` are values there, and no places to go on."""
        text = "attn 1 variant v {\nlet x = a b c * scale * d\nlet y = a b c * score * d\nscale a b c\n}"
        assert errors(text) == [("A001", 2), ("A001", 3), ("A001", 4)]

    def test_a_hundred_levels_are_not_deep(self) -> None:
        value("(" * 98 + "x" + ")" * 98)
        value("x + " * 95 + "x")

    @pytest.mark.parametrize("op", ["and", "or"])
    def test_a_chain_of_one_join_is_one_level(self, op: str) -> None:
        read = value(f"x {op} " * 3000 + "y")
        assert isinstance(read, ast.Binary)
        assert [node.span.text for node in ast.chain(read)] == ["x"] * 3000 + ["y"]
        assert expression(read) == f"x {op} " * 3000 + "y"
        assert errors("attn 1 variant v { let x = " + "x and (x or " * 100 + "x" + ")" * 100 + "}") == [("A010", 1)]

    def test_calls_nest(self) -> None:
        value("f(" * 95 + "x" + ")" * 95)

    def test_long_files_are_not_deep(self) -> None:
        assert len(module("attn 1 variant v {" + "keep if a < b\n" * 1000 + "}").items[0].statements) == 1000

    @pytest.mark.parametrize("text", ["", "\n", "# nothing", "\0\0", "\ufeffattn 1", "attn", "attn 1.0", "variant"])
    def test_nearly_nothing(self, text: str) -> None:
        assert errors(text)
