from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.ir import Let, Local, Score, Type, Variant, apply, symbol
from attncc.problem import ArrayFacts, Call, Problem, Signature, bind
from tests.plans import ALIBI, CAUSAL, DOCUMENTS, SIGMOID, declared, load

WIDE = Variant(
    "wide",
    consts=(("width", 4),),
    inputs=(
        declared("slope", "f32", "head"), declared("cap", "f32"), declared("count", "i32"),
        declared("doc", "i32", "batch", "pos"), declared("table", "bf16", "kv_head", None, 8),
        declared("bias", "f16", "q", "kv"), declared("flag", "bool"),
    ),
)  # fmt: skip


def array(
    *shape: int, dtype: str = "float16", device: str = "cuda:0", strides: tuple[int, ...] | None = None
) -> ArrayFacts:
    contiguous = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return ArrayFacts(shape, contiguous if strides is None else strides, dtype, device)


def inputs(**changed: Any) -> tuple[tuple[str, Any], ...]:
    good: dict[str, Any] = {
        "slope": array(8, dtype="float32"), "cap": float, "count": int, "doc": array(2, 60, dtype="int32"),
        "table": array(2, 5, 8, dtype="bfloat16"), "bias": array(40, 50), "flag": bool,
    }  # fmt: skip
    return tuple((name, value) for name, value in {**good, **changed}.items() if value is not None)


CU = {
    "cu_seqlens_q": array(4, dtype="int32"),
    "cu_seqlens_kv": array(4, dtype="int32"),
}


def call(**changed: Any) -> Call:
    good = {"q": array(2, 8, 40, 64), "k": array(2, 2, 50, 64), "v": array(2, 2, 50, 32), "inputs": inputs()}
    return Call(**{**good, **changed})


def packed(**changed: Any) -> Call:
    good = {
        "q": array(8, 40, 64), "k": array(2, 50, 64), "v": array(2, 50, 32),
        "inputs": inputs(doc=array(55, dtype="int32"), bias=array(9, 9)), **CU,
    }  # fmt: skip
    return Call(**{**good, **changed})


SIGNATURE = Signature(WIDE, "fp16", 64, 32)


def test_sizes_are_read_off_the_shapes() -> None:
    assert bind(SIGNATURE, call()) == Problem(2, 8, 2, 40, 50, 64, 32)
    turned = call(q=array(2, 40, 8, 64), k=array(2, 50, 2, 64), v=array(2, 50, 2, 32), layout="bshd")
    assert bind(SIGNATURE, turned) == Problem(2, 8, 2, 40, 50, 64, 32, "bshd")
    assert bind(SIGNATURE, packed()) == Problem(3, 8, 2, 40, 50, 64, 32, packed=True)
    turned = packed(q=array(40, 8, 64), k=array(50, 2, 64), v=array(50, 2, 32), layout="bshd")
    assert bind(SIGNATURE, turned) == Problem(3, 8, 2, 40, 50, 64, 32, "bshd", packed=True)


GOOD = {
    "broadcast by stride": {"k": array(2, 2, 50, 64, strides=(0, 0, 64, 1))},
    "keys for all sequences": {"k": array(1, 2, 50, 64)},
    "padded rows": {"q": array(2, 8, 40, 64, strides=(30000, 3000, 72, 1))},
    "input strides are free": {"inputs": inputs(slope=array(8, dtype="float32", strides=(-3,)))},
    "0-d arrays as scalars": {
        "inputs": inputs(cap=array(dtype="float32"), count=array(dtype="int32"), flag=array(dtype="bool"))
    },
    "an int as a float": {"inputs": inputs(cap=int)},
    "positions beyond the keys": {"inputs": inputs(doc=array(2, 5000, dtype="int32"))},
    "int64 for i32": {"inputs": inputs(doc=array(2, 50, dtype="int64"), count=array(dtype="int64"))},
    "seed": {"seed": int},
    "seed in an array": {"seed": array(dtype="int64")},
    "out": {"out": array(2, 8, 40, 32, strides=(20000, 2000, 40, 1))},
    "lse": {"return_lse": True},
    "no keys": {"k": array(2, 2, 0, 64), "v": array(2, 2, 0, 32), "inputs": inputs(bias=array(40, 0))},
}


@pytest.mark.parametrize("changed", GOOD.values(), ids=GOOD)
def test_good_calls(changed) -> None:
    bind(SIGNATURE, call(**changed))


# What is wrong, the change that makes it so, the code, and words that the refusal must hold: argument, expected, came.
BAD: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "rank": ({"q": array(8, 40, 64)}, "A601", ("`q`", "rank 4", "[8, 40, 64]", "cu_seqlens")),
    "rank of v": ({"v": array(2, 50, 32)}, "A601", ("`v`", "rank 4")),
    "batch": ({"k": array(3, 2, 50, 64)}, "A602", ("`k`", "[2, 2, 50, 64]", "[3, 2, 50, 64]")),
    "kv_len of v": ({"v": array(2, 2, 49, 32)}, "A602", ("`v`", "[2, 2, 50, 32]", "49")),
    "head dim of k": ({"k": array(2, 2, 50, 32)}, "A602", ("`k`", "64", "32")),
    "groups": ({"k": array(2, 3, 50, 64), "v": array(2, 3, 50, 32)}, "A602", ("8 query heads", "3 key heads", "bshd")),
    "no key heads": ({"k": array(2, 0, 50, 64), "v": array(2, 0, 50, 32)}, "A602", ("0 key heads",)),
    "head dim": ({"q": array(2, 8, 40, 128), "k": array(2, 2, 50, 128)}, "A603", ("head_dim=128", "128:32")),
    "value head dim": ({"v": array(2, 2, 50, 64)}, "A603", ("`v`", "32", "value_head_dim=64")),
    "dtype": ({"q": array(2, 8, 40, 64, dtype="float32")}, "A604", ("`q`", "float16", 'for "fp32"')),
    "dtype of k": ({"k": array(2, 2, 50, 64, dtype="bfloat16")}, "A604", ("`k`", "float16", "bfloat16")),
    "device": ({"v": array(2, 2, 50, 32, device="cpu")}, "A605", ("`v`", "cuda:0", "cpu")),
    "strides": ({"q": array(2, 8, 40, 64, strides=(1, 80, 640, 10))}, "A606", ("`q`", "stride of 1", "10]")),
    "missing": ({"inputs": inputs(slope=None)}, "A607", ("`slope`", "slope: f32[head]", "pass slope=…")),
    "unknown": ({"inputs": inputs(slopes=float)}, "A608", ("`slopes`", "wide", "did you mean `slope`?")),
    "unknown option": ({"inputs": inputs(retrun_lse=bool)}, "A608", ("did you mean `return_lse`?",)),
    "before shapes": (
        {"k": array(20, 2, 16, 64), "inputs": inputs(cache_seqlens=array(2, dtype="int32"))},
        "A608",
        ("`cache_seqlens`", "here it is kv_lens"),
    ),
    "a word of SDPA": ({"inputs": inputs(is_causal=bool)}, "A608", ("`keep if` lines", "attncc list")),
    "a word of SDPA that looks like ours": ({"inputs": inputs(dropout_p=float)}, "A608", ("`dropout 0.1`", "`seed`")),
    "a word of FlexAttention": ({"inputs": inputs(block_mask=bool)}, "A608", ("attncc.flex_attention takes it",)),
    "a word of FlashAttention": ({"inputs": inputs(softmax_scale=float)}, "A608", ("here it is scale",)),
    "an argument of e4m3 kernels": ({"inputs": inputs(q_descale=float)}, "A608", ("kernels of e4m3", "k_scale")),
    "unknown new rows": ({"inputs": inputs(k_nwe=float)}, "A608", ("did you mean `k_new`?",)),
    "unknown argument of gradients": ({"inputs": inputs(determinstic=bool)}, "A608", ("mean `deterministic`?",)),
    "new rows": ({"inputs": inputs(k_new=array(2, 2, 1, 64))}, "A608", ("`k_new`", "attncc.append", "cache.at[…]")),
    "a const": ({"inputs": inputs(width=int)}, "A608", ("attncc.compile(…, width=…)", "`-D width=…`")),
    "option of another call": ({"inputs": inputs(deterministic=bool)}, "A608", ("`kernel.backward` takes it",)),
    "input dtype": ({"inputs": inputs(slope=array(8))}, "A604", ("`slope`", "float32", "float16")),
    "input device": ({"inputs": inputs(slope=array(8, dtype="float32", device="cpu"))}, "A605", ("`slope`", "cpu")),
    "input rank": ({"inputs": inputs(doc=array(60, dtype="int32"))}, "A601", ("`doc`", "rank 2 [batch, pos]", "[60]")),
    "an input without the batch": (
        {"inputs": inputs(doc=array(60, dtype="int32"))},
        "A601",
        ("doc[None].expand(2, -1)", "or declare `doc` without `batch`"),
    ),
    "number for an array": ({"inputs": inputs(slope=float)}, "A601", ("`slope`", "f32[head]", "float")),
    "head axis": ({"inputs": inputs(slope=array(2, dtype="float32"))}, "A609", ("8", "came 2", "slope[kv_head]")),
    "lengths for heads": (
        {"inputs": inputs(slope=array(40, dtype="float32"))},
        "A609",
        ("`slope`", "came 40", "check `layout`"),
    ),
    "batch axis of 1": ({"inputs": inputs(doc=array(1, 60, dtype="int32"))}, "A609", ("`batch`", "broadcast_to")),
    "short positions": ({"inputs": inputs(doc=array(2, 49, dtype="int32"))}, "A609", ("at least 50", "key pos")),
    "q axis": ({"inputs": inputs(bias=array(41, 50))}, "A609", ("`q`", "`bias`", "40", "41")),
    "kv axis": ({"inputs": inputs(bias=array(40, 51))}, "A609", ("`kv`", "`bias`", "50", "51")),
    "fixed axis": ({"inputs": inputs(table=array(2, 5, 7, dtype="bfloat16"))}, "A609", ("axis `8`", "`table`", "7")),
    "kv_head axis": ({"inputs": inputs(table=array(8, 5, 8, dtype="bfloat16"))}, "A609", ("`kv_head`", "2")),
    "scalar rank": ({"inputs": inputs(cap=array(1, dtype="float32"))}, "A601", ("`cap`", "0-d", "[1]")),
    "scalar dtype": ({"inputs": inputs(count=array(dtype="int16"))}, "A604", ("`count`", "int32 or int64", "int16")),
    "float for int": ({"inputs": inputs(count=float)}, "A610", ("`count`", "int", "float")),
    "bool for int": ({"inputs": inputs(count=bool)}, "A610", ("`count`", "int", "bool")),
    "int for bool": ({"inputs": inputs(flag=int)}, "A610", ("`flag`", "bool", "int")),
    "seed": ({"seed": float}, "A612", ("`seed`", "int64", "float")),
    "seed array": ({"seed": array(dtype="int32")}, "A612", ("`seed`", "int64", "int32")),
    "long": (
        {"k": array(2, 2, 2**30, 64), "v": array(2, 2, 2**30, 32)}, "A615", ("`k`", "1073610752", "1073741824")
    ),
    "one cu_seqlens": ({"cu_seqlens_q": array(3, dtype="int32")}, "A616", ("`cu_seqlens_kv`", "both")),
    "out shape": ({"out": array(2, 8, 40, 64)}, "A617", ("`out`", "[2, 8, 40, 32]", "[2, 8, 40, 64]")),
    "out dtype": ({"out": array(2, 8, 40, 32, dtype="float32")}, "A617", ("`out`", "float16", "float32")),
    "out broadcast": ({"out": array(2, 8, 40, 32, strides=(0, 1280, 32, 1))}, "A617", ("`out`", "stride")),
    "out device": ({"out": array(2, 8, 40, 32, device="cuda:1")}, "A605", ("`out`", "cuda:1")),
    "layout": ({"layout": "bhds"}, "A618", ("`layout`", "'bhsd'", "'bhds'", "[batch, heads, length")),
    "layout that is an array": ({"layout": np.zeros(2)}, "A618", ("`layout`", "array([0., 0.])")),
    "list of offsets": ({"q_offset": list}, "A626", ("0-d or [batch] int32", "came list")),
    "pages without a table": (
        {"kv_lens": array(2, dtype="int32"), "k": array(9, 2, 16, 64), "v": array(9, 2, 16, 32)},
        "A602",
        ("[2, 2, 16, 64]", "block_table"),
    ),
    "a table without lengths": ({"block_table": array(2, 3, dtype="int32")}, "A625", ("`kv_lens` is missing", "pass")),
    "pages without rows": (
        {
            "kv_lens": array(2, dtype="int32"),
            "block_table": array(2, 3, dtype="int32"),
            "k": array(9, 2, 0, 64),
            "v": array(9, 2, 0, 32),
        },
        "A625",
        ("the pages of `k` have no rows", "[9, 2, 0, 64]"),
    ),
}  # fmt: skip

BAD_PACKED: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "rank": ({"q": array(1, 8, 40, 64)}, "A601", ("`q`", "rank 3")),
    "cu_seqlens dtype": ({"cu_seqlens_q": array(4, dtype="int16")}, "A616", ("`cu_seqlens_q`", "or int64", "int16")),
    "cu_seqlens lengths": ({"cu_seqlens_kv": array(5, dtype="int32")}, "A616", ("`cu_seqlens_kv`", "[4]", "[5]")),
    "cu_seqlens rank": ({"cu_seqlens_q": array(dtype="int32")}, "A616", ("`cu_seqlens_q`", "[batch + 1]")),
    "cu_seqlens empty": ({"cu_seqlens_q": array(0, dtype="int32")}, "A616", ("`cu_seqlens_q`", "[0]")),
    "cu_seqlens device": ({"cu_seqlens_kv": array(4, dtype="int32", device="cpu")}, "A605", ("`cu_seqlens_kv`",)),
    "unmerged input": ({"inputs": inputs(bias=array(9, 9))}, "A601", ("`doc`", "rank 1 [pos]", "on one axis")),
    "short input": (
        {"inputs": inputs(bias=array(9, 9), doc=array(49, dtype="int32"))}, "A609", ("`doc`", "at least 50")
    ),
    "out": ({"out": array(3, 8, 40, 32)}, "A617", ("`out`", "[8, 40, 32]")),
}  # fmt: skip


def refuse(signature: Signature, facts: Call, code: str, words: tuple[str, ...]) -> None:
    with pytest.raises(AttnccError) as error:
        bind(signature, facts)
    assert [diagnostic.code for diagnostic in error.value.diagnostics] == [code]
    assert [word for word in words if word not in str(error.value)] == []
    assert "expected" in str(error.value)
    assert "came" in str(error.value)


def test_no_gpu_kernel_of_fp64_is_asked_for() -> None:
    with pytest.raises(AttnccError, match=r"A604(.|\n)*came float64\n.*help: convert `q`$"):
        bind(SIGNATURE, call(q=array(2, 8, 40, 64, dtype="float64")))


@pytest.mark.parametrize(("changed", "code", "words"), BAD.values(), ids=BAD)
def test_bad_calls(changed, code, words) -> None:
    refuse(SIGNATURE, call(**changed), code, words)


@pytest.mark.parametrize(("changed", "code", "words"), BAD_PACKED.values(), ids=BAD_PACKED)
def test_bad_packed_calls(changed, code, words) -> None:
    refuse(SIGNATURE, packed(**changed), code, words)


def test_no_kernel_for_head_dim_0_is_advised() -> None:
    with pytest.raises(AttnccError, match="A603") as error:
        bind(SIGNATURE, call(v=array(2, 2, 50, 0)))
    assert "help" not in str(error.value)


def test_a_table_is_judged_before_the_prefix() -> None:
    """How many keys there is room for isn't known else."""
    table = {"kv_lens": array(2, dtype="int32"), "block_table": array(dtype="int32")}
    refuse(SIGNATURE, call(**table, shared_prefix=8), "A625", ("`block_table`", "[batch, max_blocks]"))


@pytest.mark.parametrize(("shape", "strides"), [((0, 3), (0, 0)), ((2, 0), (1, 1))], ids=["NumPy's", "torch's"])
def test_strides_of_a_table_without_entries_mean_nothing(shape, strides) -> None:
    batch = shape[0]
    table = array(*shape, dtype="int32", strides=strides)
    facts = {"q": array(batch, 8, 40, 64), "k": array(9, 2, 16, 64), "v": array(9, 2, 16, 32), "block_table": table}
    problem = bind(Signature(CAUSAL, "fp16", 64, 32), call(**facts, kv_lens=array(batch, dtype="int32"), inputs=()))
    assert (problem.batch, problem.kv_len) == (batch, 16 * shape[1])


def test_two_position_axes_cannot_be_packed() -> None:
    both = Variant("both", inputs=(declared("bias", "f32", "batch", "q", "kv"),))
    facts = packed(inputs=(("bias", array(3, 40, 50, dtype="float32")),))
    refuse(Signature(both, "fp16", 64, 32), facts, "A621", ("`bias`", "packed"))


def test_lse_needs_softmax() -> None:
    refuse(Signature(SIGMOID), call(inputs=(), return_lse=True), "A614", ("`return_lse`", "normalize sigmoid"))


@pytest.mark.parametrize("through_let", [False, True])
def test_positions_read_at_q_idx_need_equal_lengths(through_let) -> None:
    index = Local(Type.INT, "here") if through_let else symbol("q_idx")
    read = apply("to_float", load("doc", symbol("b"), index, kind=Type.INT))
    by_q_idx = Signature(
        Variant(
            "by_q_idx", (), DOCUMENTS.inputs, (Let("here", symbol("q_idx")), Score(apply("add", symbol("score"), read)))
        )
    )
    doc = (("doc", array(2, 50, dtype="int32")),)
    refuse(by_q_idx, call(inputs=doc), "A611", ("`doc`", "q_len 40, kv_len 50", "write q_pos"))
    bind(by_q_idx, call(inputs=doc, q=array(2, 8, 50, 64)))
    bind(Signature(DOCUMENTS), call(inputs=doc))


def test_the_reference_takes_any_float_and_any_strides() -> None:
    mixed = call(
        q=array(2, 8, 40, 64, dtype="float64"), k=array(2, 2, 50, 64, dtype="bfloat16", strides=(1, 2, 300, 9)),
        inputs=(("slope", array(8, dtype="float64")), ("cap", float)),
    )  # fmt: skip
    bind(Signature(ALIBI), mixed)
    refuse(Signature(CAUSAL), call(q=array(2, 8, 40, 64, dtype="int32"), inputs=()), "A604", ("`q`", "int32"))
    integers = (("slope", array(8, dtype="int32")), ("cap", float))
    refuse(Signature(ALIBI), call(inputs=integers), "A604", ("`slope`", "int32"))


def test_fp64_kernels_take_inputs_in_fp64() -> None:
    facts = {name: array(*getattr(call(), name).shape, dtype="float64") for name in "qkv"}
    for dtype in ("float32", "float64"):
        bind(Signature(ALIBI, "fp64", 64, 32), call(**facts, inputs=(("slope", array(8, dtype=dtype)), ("cap", float))))


def test_facts_are_a_cache_key() -> None:
    assert hash(call()) == hash(call())
    assert call() == call()
    assert call(q=array(2, 8, 40, 64, strides=(0, 0, 64, 1))) != call()


ROOT = Path(__file__).resolve().parents[3]
SOURCES = [*(ROOT / "attncc" / "problem").glob("*.py"), ROOT / "attncc" / "philox.py"]
CODES = sorted({code for path in SOURCES for code in re.findall(r'"(A\d{3})"', path.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page(code) -> None:
    page = (ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {code}: ")
    assert re.search(rf"^    (error|warning)\[{code}\]: ", page, re.M)


def heading(message: str) -> str:
    """A refusal's message without the argument and the variant that it names."""
    return re.sub(r"(input )?`[\w ]+`|(?<=argument of )\w+", "…", message)


TABLES = ((BAD, call), (BAD_PACKED, packed))


def test_refusals_of_argument_arrays_say_what_to_do() -> None:
    apart = call(kv_lens=array(2, dtype="int32", strides=(2,)))
    with pytest.raises(AttnccError, match=r"A625(.|\n)*pass a copy.*kv_lens\.contiguous\(\)"):
        bind(SIGNATURE, apart)
    narrow = {"k": array(2, 2, 50, 64, dtype="int8"), "v": array(2, 2, 50, 32, dtype="int8")}
    with pytest.raises(AttnccError, match=r"A629(.|\n)*\[batch or pages, kv_heads\] = \[any, 2\]"):
        bind(SIGNATURE, call(**narrow, k_scale=array(dtype="float32")))


@pytest.mark.parametrize("code", sorted({code for table, _ in TABLES for _, code, _ in table.values()}))
def test_pages_quote_what_is_said(code) -> None:
    """For each code, one of the messages of the tables above stands in its page."""
    page = heading((ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8"))
    said = set()
    for table, make in TABLES:
        for changed in (changed for changed, own, _ in table.values() if own == code):
            with pytest.raises(AttnccError) as error:
                bind(SIGNATURE, make(**changed))
            said.add(heading(error.value.diagnostics[0].message))
    assert any(f"error[{code}]: {message}\n" in page for message in said), said
