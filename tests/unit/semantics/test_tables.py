"""Const arrays: indexed like inputs, 0 outside, overridden as a whole."""

from __future__ import annotations

from random import Random
from typing import Any

import click
import numpy as np
import pytest

from attncc import api
from attncc.analysis.mask.tiles import analyse
from attncc.cli.options import Define
from attncc.diagnostics import AttnccError
from attncc.evaluate import Environment, evaluate
from attncc.ir import Const, Type, Variant, const, symbol
from attncc.schedule.plan_json import from_json, to_json
from attncc.semantics.load import load
from attncc.semantics.tables import chosen
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source

SPEC = """attn 1
import masks
fn entry(table, i) = table[i]
variant v {{
    {}
}}
"""


def loaded(lines: str, **defines: Any) -> Variant:
    return load(SourceFile("given.attn", SPEC.format(lines)), defines).variants[0]


@pytest.mark.parametrize("seed", range(20))
def test_every_index_reads_its_entry_and_others_0(seed: int) -> None:
    random = Random(seed)
    kind = random.choice((int, float, bool))
    values = [kind(random.choice((0, 0, 1, 1, -3, 7, 2.5))) for _ in range(random.randint(1, 40))]
    index = np.arange(-5, 60)
    found = evaluate(chosen(values, symbol("kv_idx"), None), Environment({"kv_idx": index}))
    expected = [values[i] if 0 <= i < len(values) else kind(0) for i in index]
    assert np.broadcast_to(found, index.shape).tolist() == expected
    for place in (-1, 0, len(values) - 1, len(values)):
        entry = chosen(values, const(place), None)
        assert isinstance(entry, Const)
        assert entry.value == (values[place] if 0 <= place < len(values) else kind(0))


def test_they_are_typed_and_made_of_consts() -> None:
    found = loaded(
        "const n: int = 2\nconst a: float[n] = [1, 1 / n]\nconst on_: bool[n + 1] = [true, n > 1, false]\n"
        "const c: int[2] = [n, -n]\nlet x = a[h]\nlet y = on_[h]\nlet z = c[h]"
    )
    assert [found.lets[name].value.type for name in "xyz"] == [Type.FLOAT, Type.BOOL, Type.INT]
    assert dict(found.consts) == {"n": 2, "a": (1.0, 0.5), "on_": (True, True, False), "c": (2, -2)}


def test_loops_read_entries_as_numbers() -> None:
    found = loaded(
        "const reach: int[3] = [16, 32, 64]\nlet all_of_it = sum(reach[i] for i in range(3))\nscore = score + all_of_it"
    )
    assert found.show_lowered() == loaded("const reach: int[3] = [16, 32, 64]\nscore = score + 112").show_lowered()


def test_masks_and_functions_take_them() -> None:
    lines = "const reach: int[2] = [16, 32]\nkeep if q_pos - kv_idx < {}"
    assert loaded(lines.format("entry(reach, h)")) == loaded(lines.format("reach[h]"))


def test_defines_replace_the_whole_array() -> None:
    lines = "const reach: int[2] = [16, 32]\nkeep if q_pos - kv_idx < reach[h]"
    for given in ((8, 4), [8, 4], np.array([8, 4])):
        parsed = api.parse(SPEC.format(lines), defines={"reach": given})
        assert dict(parsed.variant.consts) == {"reach": (8, 4)}
        assert parsed.variant.keeps == loaded(lines.replace("16, 32", "8, 4")).keeps


@pytest.mark.parametrize("given", [8, (8,), (8, 4, 2), (8, 0.5), (8, True)])
def test_other_defines_are_refused(given: Any) -> None:
    with pytest.raises(AttnccError, match="A208"):
        loaded("const reach: int[2] = [16, 32]\nkeep if q_pos - kv_idx < reach[h]", reach=given)


def test_a_list_for_a_single_const_is_refused() -> None:
    with pytest.raises(AttnccError, match="A208"):
        loaded("const width: int = 16\nkeep if q_pos - kv_idx < width", width=(1, 2))


def test_the_mask_analysis_sees_through_them() -> None:
    """A window of a width for each head has the bounds of any window."""
    rules = analyse(loaded("const reach: int[2] = [16, 32]\nkeep if 0 <= q_pos - kv_idx < reach[h]"), 32, 32)
    seen = Environment({"h": 1, "q_len": 256, "kv_len": 256, "q_offset": 0, "q_first": 128, "q_last": 159})
    assert evaluate(rules.kv_begin, seen) >= 96
    assert evaluate(rules.kv_end, seen) == 160


def test_plans_carry_them() -> None:
    found = loaded("const slopes: float[2] = [0.5, 0.25]\nscore = score * slopes[h]")
    assert from_json(to_json(found)) == found


def test_layout() -> None:
    text = "attn 1\nvariant v {\nconst  a:int[ 2 ]=[1,\n 2] # c\nscore=score*a[h] }\n"
    formatted = format_source(SourceFile("given.attn", text))
    assert formatted == "attn 1\n\nvariant v {\n    const a: int[2] = [1, 2]  # c\n    score = score * a[h]\n}\n"
    long = f"attn 1\n\nvariant v {{\n    const a: int[60] = [{', '.join(map(str, range(60)))}]\n}}\n"
    wrapped = format_source(SourceFile("given.attn", long))
    assert all(len(line) <= 100 for line in wrapped.splitlines())
    assert format_source(SourceFile("given.attn", wrapped)) == wrapped
    assert load(SourceFile("given.attn", wrapped)).variants == load(SourceFile("given.attn", long)).variants


@pytest.mark.parametrize(
    ("text", "expected"),
    [("far=[2,4]", (2, 4)), ("far=[0.5, 1]", (0.5, 1)), ("far=[true,false]", (True, False)), ("far=3", 3)],
)
def test_the_command_line_takes_lists(text: str, expected: Any) -> None:
    assert Define().convert(text, None, None) == ("far", expected)


@pytest.mark.parametrize("text", ["far=[]", "far=[1,,2]", "far=[1", "[1]", "far=[one]"])
def test_the_command_line_refuses_other_lists(text: str) -> None:
    with pytest.raises(click.UsageError, match="or a list, as in"):
        Define().convert(text, None, None)
