"""Help that is itself right: what a diagnostic says to write is written, and the file goes through or a step on.

A diagnostic's edit is applied as an editor would. Help with code in it that no edit stands for, since it is a form or
takes more than one place, has in `BY_HAND` what somebody does who follows it. Afterwards the diagnostic is gone, and
no new error has come.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from attncc.diagnostics import Diagnostic, Edit
from attncc.evaluate import Environment, evaluate
from attncc.ir import show
from attncc.schedule.target import TARGETS, target_help
from attncc.semantics import builtins, foreign
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.grammar import keywords
from tests.printed import variant
from tests.test_errors import CASES, diagnose, diagnose_source

CODE = re.compile(r"`(\w+)`")

# (what stands there, what somebody writes who follows the help), several for one mistake.
BY_HAND: dict[str, list[tuple[str, str]]] = {
    "A003_comments_of_c": [
        ("/* Causal", "# Causal"),
        ("   window 1_024. */", "# window 1_024."),
        ('/* causal "}" */ and kv_idx < 4  # 4 /* 5', 'and kv_idx < 4  # causal "}" 4 /* 5'),
        ("/* that's", "# that's"),
    ],
    "A001_colon_missing": [("slope f32[head]", "slope: f32[head]")],
    "A001_dictionary": [("let table = {1: 2}", "let table = 2")],
    "A001_list_in_an_expression": [("let slopes =", "const slopes: float[2] =")],
    "A001_index_of_an_index": [("bias[h][q_idx]", "bias[h, q_idx]")],
    "A008_value_below_an_input": [("x = table", "let x = table")],
    "A002_lengths_without_a_first": [("lengths ..8192", "lengths 1..8192")],
    "A002_typographic_characters": [("'softmax'", "softmax")],
    "A003_argument_by_name": [("width=3", "3"), ("right = 3", "3")],
    "A003_range_with_a_begin": [("2 * i for i in range(1, 9)", "2 * (i + 1) for i in range(8)")],
    "A003_words_of_python": [("kv_idx in 4", "(kv_idx == 4 or kv_idx == 5)"), ("q_idx is kv_idx", "q_idx == kv_idx")],
    "A004_mask_as_a_value": [
        ("mask = doc", "let near = doc"),
        ("keep if q_pos >= kv_idx", "keep if q_pos >= kv_idx\n    keep if near"),
        ("torch.tanh", "tanh"),
    ],
    "A004_library_file_misspelt": [("import mask", "import masks")],
    "A005_brace_never_closed": [("kv_idx\n", "kv_idx\n}\n")],
    "A005_parenthesis_never_closed": [("kv_idx\n", "kv_idx)\n")],
    "A007_lengths_without_a_range": [("lengths 8192", "lengths 1024..8192")],
    "A006_version_of_the_future": [("attn 2", "attn 1")],
    "A007_if_without_else": [("kv_idx\n", "kv_idx else 0\n")],
    "A007_function_without_parameters": [("fn half =", "fn half() =")],
    "A007_keep_without_if": [("keep q_pos", "keep if q_pos")],
    "A007_let_without_value": [("let distance =\n", "let distance = q_pos - kv_idx\n")],
    "A008_function_in_a_variant": [
        ("    fn squared(x) = x * x\n", ""),
        ("variant", "fn squared(x) = x * x\n\nvariant"),
    ],
    "A008_import_below_a_variant": [("import masks\n", ""), ("attn 1\n", "attn 1\nimport masks\n")],
    "A008_import_in_a_variant": [("    import masks\n", ""), ("attn 1\n", "attn 1\nimport masks\n")],
    "A008_return": [("return distance", "keep if distance")],
    "A008_words_of_python": [
        ("from masks import causal", "import masks"),
        ("def near(width):\n", "mask near(width) = abs(q_pos - kv_idx) < width\n"),
        ("    distance =", "    let distance ="),
    ],
    "A101_captured_from_python": [("    keep", "    const WIDTH: int = 64\n    keep")],
    "A101_infinity": [("score = score if q_pos >= kv_idx else -inf", "keep if q_pos >= kv_idx")],
    "A101_one_declaration_missing": [
        (
            "example {\n",
            "example {\n    input doc: i32[batch, pos]\n    const slope: float = 0.1\n",
        ),
        ("variant", "fn softcapped(x) = 30.0 * tanh(x / 30.0)\n\nvariant"),
    ],
    "A101_several_mistakes": [("max(score)", "max(score, 0)")],
    "A102_function_unknown": [("variant", "mask visible(x) = x > 4\nfn smooth(x) = x * x\n\nvariant")],
    "A106_mask_without_call": [("if window", "if window(64)")],
    "A106_value_for_a_tensor_parameter": [
        ("    keep if before(512)", "    input last_key: i32[batch]\n    keep if before(last_key)"),
    ],
    "A114_define_of_no_const": [("witdh", "width")],
    "A202_shift_of_a_float": [("score << 1", "floor(score) << 1")],
    "A205_argument_missing": [("clamp(score, 50)", "clamp(score, -50, 50)")],
    "A205_argument_of_a_function_missing": [("capped(score)", "capped(score, 30)")],
    "A205_argument_of_a_mask_missing": [("window()", "window(64)")],
    "A208_define_of_a_const_array": [("[16,32]", "[1,1,1]")],
    "A213_const_array_too_long": [("const rates: float[1000] = [0.5, 0.25]", "input rates: f32[1000]")],
    "A213_axis_of_length_zero": [("head, reach]", "head, _]")],
    "A215_dropout_by_head": [("rate: f32[head]", "rate: f32"), ("rate[h]", "rate")],
    "A216_sink_by_position": [("f32[head, q]", "f32[head]")],
    "A216_sink_of_a_const": [("const logit: float = 0.0", "input logit: f32[head]")],
    "A217_scale_by_head": [("scale temperature[h] / sqrt(head_dim)", "score = score * temperature[h]")],
    "A218_sink_without_a_row_sum": [("normalize sigmoid", "normalize softmax")],
    "A224_gradient_always_zero": [("    keep if kv_idx < limit[h]", "    score = score * limit[h]")],
    "A301_in_a_mask": [("mask heavy() = score > 0.5\n", ""), ("heavy()", "score > 0.5")],
    "A301_keep_reads_the_score": [("keep if score > 0.5", "score = score if score > 0.5 else score - 100")],
    "A301_through_lets": [
        (" and heavy\n", "\n"),
        ("    keep", "    score = score if heavy else score - 100\n    keep"),
    ],
    "A302_keep_without_effect": [("keep if everything", "keep if kv_idx >= 0"), ("3 <= 2", "3 <= kv_idx")],
    "A303_mask_that_keeps_nothing_back": [("// 64\n", "// 64\n    keep if row > 0\n")],
    "A305_flags_times_a_low_number": [
        (
            "    score = score + (1.0 - attention_mask[b, kv_idx]) * LOW\n",
            "    keep if attention_mask[b, kv_idx] > 0\n",
        ),
    ],
    "A408_dense_mask": [("skip = always", "skip = auto")],
    "A408_floats_compared": [("skip = always", "skip = auto")],
    "A408_nothing_to_skip": [("skip = always", "skip = auto")],
    "A409_kv_outer_split": [("split_kv = 4", "split_kv = 1")],
    "A412_hopper_on_ampere": [("family = hopper", "family = portable")],
}
# Edits after which another mistake of the same line can be seen.
NEXT_STEP = {
    ("A101_several_mistakes", "A101"): "A206",
    ("A101_one_declaration_missing", "A101"): "A101",  # the name's next use: an edit changes one of them
}


def errors(items: tuple[Diagnostic, ...]) -> list[tuple[str, str]]:
    return [(item.code, item.message) for item in items if item.severity == "error"]


def applied(edit: Edit) -> SourceFile:
    source = edit.span.source
    return SourceFile(source.path, source.text[: edit.span.start] + edit.text + source.text[edit.span.end :])


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_edits(path: Path) -> None:
    """Each edit by itself."""
    before = diagnose(path)
    for number, item in enumerate(before):
        if item.edit is None:
            continue
        after = diagnose_source(applied(item.edit))
        assert (item.code, item.span and item.span.start, item.message) not in [
            (found.code, found.span and found.span.start, found.message) for found in after
        ]
        allowed = [
            *errors(before[:number] + before[number + 1 :]),
            *(error for error in errors(after) if error[0] == NEXT_STEP.get((path.stem, item.code))),
        ]
        assert set(errors(after)) <= set(allowed)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_code_in_help_has_an_edit_or_a_change_by_hand(path: Path) -> None:
    without = [item.help for item in diagnose(path) if "`" in item.help and item.edit is None]
    assert bool(without) == (path.stem in BY_HAND), without


@pytest.mark.parametrize("name", BY_HAND)
def test_changes_by_hand(name: str) -> None:
    path = next(path for path in CASES if path.stem == name)
    source, before = SourceFile.read(path), diagnose(path)
    text = source.text
    for old, new in BY_HAND[name]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    after = diagnose_source(SourceFile(source.path, text))
    assert set(errors(after)) <= set(errors(before))
    assert Counter(item.code for item in before) - Counter(item.code for item in after)


# -------------------------------------------------------------------- tables of words from elsewhere


def fixed(text: str, code: str) -> SourceFile:
    """The text after the edit of its only error."""
    source = SourceFile("given.attn", text)
    (item,) = [item for item in diagnose_source(source) if item.severity == "error"]
    assert item.code == code and item.edit is not None, item.render()
    result = applied(item.edit)
    assert not errors(diagnose_source(result)), result.text
    return result


def of_score(expression: str) -> str:
    return f"attn 1\nvariant v {{\n    score = {expression}\n}}\n"


MEANT = {
    "where": (np.where, "kv_idx > 9, score, 2"),
    "int": (np.trunc, "score"),
    "trunc": (np.trunc, "score * 3"),
    "ceil": (np.ceil, "score - 0.3"),
    "ln": (np.log, "abs(score)"),
    "log10": (np.log10, "abs(score)"),
    "log1p": (np.log1p, "abs(score)"),
    "expm1": (np.expm1, "score"),
    "erfc": (np.vectorize(math.erfc), "score"),
    "logit": (lambda x: np.log(x / (1 - x)), "sigmoid(score)"),
    "logaddexp": (np.logaddexp, "score, 0.25"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "abs(score)"),
    "reciprocal": (np.reciprocal, "score"),
    "tan": (np.tan, "score"),
    "sinh": (np.sinh, "score - 1"),
    "cosh": (np.cosh, "score - 1"),
    "logsigmoid": (lambda x: -np.logaddexp(0, -x), "score"),
    "swish": (lambda x: x / (1 + np.exp(-x)), "score"),
    "relu": (lambda x: np.maximum(x, 0), "score"),
    "relu6": (lambda x: np.minimum(np.maximum(x, 0), 6), "score * 4"),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), "score"),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(x)), "score"),
    "hardtanh": (lambda x: np.clip(x, -1, 1), "score"),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), "score * 2"),
    "hardswish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "score * 2"),
    "softsign": (lambda x: x / (1 + np.abs(x)), "score"),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), "score"),
    "rint": (np.rint, "score * 3.5"),
    "sgn": (np.sign, "score"),
    "clamp_min": (np.maximum, "score, 0.25"),
    "clamp_max": (np.minimum, "score, 0.25"),
    "square": (np.square, "score - 1"),
    "hypot": (np.hypot, "score - 1, 2.5"),
    "fabs": (np.abs, "score"),
    "minimum": (np.minimum, "score, 0.25"),
    "maximum": (np.maximum, "score, 0.25"),
    "clip": (np.clip, "score, -0.5, 0.5"),
    "mod": (np.remainder, "score - 1, 0.75"),
    "remainder": (np.remainder, "kv_idx - 9, 4"),
    "floor_divide": (np.floor_divide, "score - 1, 0.75"),
    "float": (np.asarray, "kv_idx"),
    "pow": (np.power, "score - 1, 3"),
}
SAME = {
    "log_sigmoid": "logsigmoid", "celu": "elu", "hard_tanh": "hardtanh", "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish", "hard_swish": "hardswish", "soft_sign": "softsign", "around": "rint",
    "select": "where", "fix": "trunc", "absolute": "fabs", "fmin": "minimum", "fmax": "maximum",
}  # fmt: skip
OF_BOOLS = {
    "logical_and": (np.logical_and, "kv_idx < 9, q_idx > 3"),
    "logical_or": (np.logical_or, "kv_idx < 9, q_idx > 3"),
    "logical_not": (np.logical_not, "kv_idx < 9"),
    "bool": (np.bool_, "kv_idx - 3"),
    "isnan": (np.isnan, "log(kv_idx - 3.0)"),
}
AT = Environment({"score": np.linspace(-3.1, 2.9, 61), "kv_idx": np.arange(61), "q_idx": np.arange(61)[::-1]})


FOREIGN = [name for name in (*MEANT, *SAME) if name not in builtins.FUNCTIONS]


def test_every_function_from_elsewhere_is_compared() -> None:
    told = {*foreign.FORMS, *foreign.OF_INTS, *foreign.OF_FLOATS, "bool"}
    assert told == {*MEANT, *SAME, *OF_BOOLS}


def arguments(text: str) -> list[np.ndarray]:
    parts = text.split(", ")
    lines = [f"keep if {part}" if "<" in part or ">" in part else f"score = score + ({part})" for part in parts]
    given = list(map(variant, lines))
    return [
        evaluate(item.keeps[0].condition, AT) if item.keeps else evaluate(item.scores[0].value.args[1], AT)
        for item in given
    ]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_replaces_a_function_equals_it(name: str) -> None:
    meant, given = MEANT[SAME.get(name, name)]
    with np.errstate(all="ignore"):
        value = meant(*(np.asarray(arg, np.float64) if arg.dtype != bool else arg for arg in arguments(given)))
        expressions = {"{}": value, "1 / {}": 1 / value, "2 - {} * 3": 2 - value * 3}
    for around, wanted in expressions.items():
        text = fixed(of_score(around.format(f"{name}({given})")), "A102").text
        found = evaluate(variant(text.split("\n")[2]).scores[0].value, AT)
        finite = np.isfinite(wanted)  # ints have no -0
        np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-9, atol=1e-12, err_msg=around)


@pytest.mark.parametrize("name", OF_BOOLS)
def test_what_replaces_a_function_of_bools_equals_it(name: str) -> None:
    meant, given = OF_BOOLS[name]
    text = fixed(f"attn 1\nvariant v {{\n    keep if not {name}({given})\n}}\n", "A102").text
    found = evaluate(variant(text.split("\n")[2]).keeps[0].condition, AT)
    np.testing.assert_array_equal(found, ~meant(*arguments(given)))


def test_no_function_from_elsewhere_is_taken_for_another() -> None:
    """`hardtanh` is no misspelt `tanh`, nor `acos` a `cos`: a guess is an edit, which changes what is computed."""
    modules = [math, np]
    if importlib.util.find_spec("torch"):
        modules += [importlib.import_module(name) for name in ("torch", "torch.nn.functional")]
    found = {name: getattr(module, name) for module in modules for name in dir(module) if name.islower()}
    private = re.compile(r"_|.*_$|.*__")
    asked = [name for name, what in found.items() if callable(what) and not private.match(name)]
    asked = [name for name in asked if name not in (*builtins.FUNCTIONS, *keywords())]
    for some in batched(asked, 400):  # files have at most 512 lines
        items = errors_of(of_score("\n    score = ".join(f"{name}(score)" for name in some)))
        assert len(items) >= len(some) - 20  # built-in values, for one, are called another way
        for item in items:
            guessed = item.code == "A102" and item.edit is not None
            name = item.span.text.partition("(")[0]
            assert not guessed or name in (*MEANT, *SAME, *OF_BOOLS), item.render()


def batched(items: list[str], count: int) -> Iterator[list[str]]:
    return (items[start : start + count] for start in range(0, len(items), count))


def errors_of(text: str) -> list[Diagnostic]:
    return [item for item in diagnose_source(SourceFile("given.attn", text)) if item.severity == "error"]


READS = {
    "kv_pos": "kv_idx", "k_pos": "kv_idx", "key_idx": "kv_idx", "k_index": "kv_idx", "kv_index": "kv_idx",
    "query_idx": "q_idx", "q_index": "q_idx", "qidx": "q_idx", "q_position": "q_pos", "b_idx": "b", "batch_idx": "b",
    "h_idx": "h", "head_idx": "h", "hq": "h", "kv_head": "kv_h", "hkv": "kv_h", "kv_heads": "num_kv_heads",
    "num_head": "num_heads", "n_heads": "num_heads", "seqlen_q": "q_len", "seqlen_k": "kv_len", "key_len": "kv_len",
    "head_size": "head_dim", "sm_scale": "scale", "scores": "score",
    "key_pos_": None, "hk": None, "kv_start": None, "kv_offset": None, "idx_kv": None, "seq_len": None,
}  # fmt: skip


@pytest.mark.parametrize("word", READS)
def test_values_by_other_names_are_what_they_mean(word: str) -> None:
    """`kv_pos` isn't a misspelt `q_pos`, which would make `q_pos >= kv_pos` true everywhere."""
    (item,) = errors_of(of_score(f"score + {word} * 0.5"))
    assert item.code == "A101" and (item.edit and item.edit.text) == READS[word], item.render()


@pytest.mark.parametrize(
    "line",
    [
        "score = q_idx >= kv_idx ? score : 0",
        "keep_if q_pos >= kv_idx",
        "score = softplus(score, beta=2)",
        "score = max(score, dim=-1)",
    ],
)
def test_a_form_is_no_edit(line: str) -> None:
    """What stands for something of the author's, or leaves words beside it that don't fit."""
    assert all(item.edit is None for item in errors_of(f"attn 1\nvariant v {{\n    {line}\n}}\n"))


@pytest.mark.parametrize("name", ["_q", "_class", "_score", "__h", "tanh__", "_bool", "_causal"])
def test_names_without_underlines_in_front_can_be_given(name: str) -> None:
    text = f"attn 1\nimport masks\nvariant v {{\n    input {name}: i32\n    keep if kv_idx > {name}\n}}\n"
    source = SourceFile("given.attn", text)
    for _ in range(2):
        source = applied(diagnose_source(source)[0].edit)
    assert not errors(diagnose_source(source))


@pytest.mark.parametrize(
    ("line", "help", "edited"),
    [
        ("input doc: i32[batch, pos] sorted", "write `nondecreasing`", "input doc: i32[batch, pos] nondecreasing"),
        ("input doc: i32[batch, pos] decreasing", "the only order there is: `nondecreasing`", None),
        ("input doc: u8[batch, pos]", "there are no ints of 8 bits: take `i32`, or `bool` for flags", None),
        ("input doc: f32[head] requires_grad", "write `learnable`", "input doc: f32[head] learnable"),
        ("input doc: i32[1] keep if kv_idx < doc", "index it: `doc[0]`", None),
    ],
)
def test_inputs_are_declared_as_they_are_meant(line: str, help: str, edited: str | None) -> None:
    """Neither is what decreases `nondecreasing`, nor what has 256 values a `bool`."""
    item = errors_of(f"attn 1\nvariant v {{\n{line}\n}}\n")[0]
    assert item.help == help and (item.edit and applied(item.edit).text.split("\n")[2]) == edited


def test_what_a_mask_computes_may_be_meant_as_a_function() -> None:
    text = "attn 1\nmask squared(x) = x * x\nvariant v {\n    score = squared(score)\n}\n"
    (item,) = errors_of(text)
    assert item.edit is None and "`fn`" in item.help
    assert not errors_of(text.replace("mask", "fn"))


@pytest.mark.parametrize(("given", "meant"), [("block_m", "block_q"), ("BLOCK_N", "block_kv"), ("num_warps", "warps")])
def test_knobs_from_elsewhere(given: str, meant: str) -> None:
    text = f"attn 1\nvariant v {{}}\nschedule s for v on sm_80 {{ {given} = 64 }}\n"
    assert f"`{meant}`" in errors_of(text)[0].help


def test_values_from_elsewhere() -> None:
    for word, help in builtins.FOREIGN_VALUES.items():
        if help.startswith("write `") and "` or `" not in help:
            keep = f"attn 1\nvariant v {{\n    keep if q_idx >= 1 and {word}\n}}\n"
            fixed(keep if word in ("True", "False") else of_score(f"score + {word}"), "A101")


# -------------------------------------------------------------------- indices

INDEXED = {
    "doc[q_pos] == doc[kv_idx]": "doc[b, q_pos] == doc[b, kv_idx]",
    "doc[q_pos, b] == doc[b, kv_idx]": "doc[b, q_pos] == doc[b, kv_idx]",
    "doc[b, h, q_pos] == doc[kv_idx]": "doc[b, q_pos] == doc[b, kv_idx]",
    "doc[b] == 0": "doc[b, kv_idx] == 0",
    "doc[kv_idx // 2] == 0": "doc[b, kv_idx // 2] == 0",
    "doc == 0": "doc[b, kv_idx] == 0",
    "doc(b, q_pos) == 0": "doc[b, q_pos] == 0",
    "doc[b, q_pos / 2] == 0": "doc[b, floor(q_pos / 2)] == 0",
    "doc[b, (q_pos + kv_idx) / 2] == 0": "doc[b, floor((q_pos + kv_idx) / 2)] == 0",
}
REWRITTEN = {
    "(kv_idx + 1.5) // 2 == 1": "floor((kv_idx + 1.5) / 2) == 1",
    "(kv_idx + 1.5) // (q_idx + 1) == 1": "floor((kv_idx + 1.5) / (q_idx + 1)) == 1",
    "(kv_idx + 1.5) % 2 * 3 == 1": "(kv_idx + 1.5 - floor((kv_idx + 1.5) / 2) * 2) * 3 == 1",
    "(q_idx > 1) & (kv_idx > 1) == (h > 0)": "(q_idx > 1 and kv_idx > 1) == (h > 0)",
    "(q_idx > 1) ^ (kv_idx > 1)": "(q_idx > 1) != (kv_idx > 1)",
    "~(q_idx > 1) == (h > 0)": "(not q_idx > 1) == (h > 0)",
    "not (q_idx if h > 0 else kv_idx)": "not (q_idx if h > 0 else kv_idx) != 0",
    "1 + (q_idx > 1 or kv_idx > 1) == 2": "1 + (1 if q_idx > 1 or kv_idx > 1 else 0) == 2",
}


@pytest.mark.parametrize("written", [*INDEXED, *REWRITTEN])
def test_expressions_are_mended_as_they_are_meant(written: str) -> None:
    text = "attn 1\nvariant v {{\n    input doc: i32[batch, pos]\n    keep if doc[b, 0] >= 0 and ({})\n}}\n"
    source = SourceFile("given.attn", text.format(written))
    for _ in range(3):
        found = [item for item in diagnose_source(source) if item.severity == "error"]
        if not found:
            break
        assert found[0].edit is not None, found[0].render()
        source = applied(found[0].edit)
    meant = load(SourceFile("meant.attn", text.format({**INDEXED, **REWRITTEN}[written]))).variants[0]
    assert show(load(source).variants[0].keeps[0].condition) == show(meant.keeps[0].condition)


# -------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("sm_86", "sm_80"), ("sm_89", "sm_80"), ("8.9", "sm_80"), ("sm89", "sm_80"), ("compute_87", "sm_80"),
        ("sm_103", "sm_100"), ("sm_121", "sm_120"), ("h100", "sm_90a"), ("9.0", "sm_90a"), ("sm_100a", "sm_100"),
        ("sm_75", ""), ("sm_70", ""), ("sm_110", ""), ("7.5", ""),
    ],
)  # fmt: skip
def test_targets_run_on_the_gpu_that_was_named(given: str, target: str) -> None:
    """A cubin runs within its major version, on devices of its minor one or a later."""
    assert target_help(given) == (f"write `{target}`, the target of such GPUs" if target else "")


def test_no_target_is_suggested_that_cannot_run_there() -> None:
    for number, form in product(range(50, 130), ("sm_{}", "sm_{}a", "compute_{}")):
        for target in (TARGETS[name] for name in CODE.findall(target_help(form.format(number)))):
            assert target.major == number // 10 and target.capability <= number
