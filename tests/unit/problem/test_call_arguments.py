"""The records of call arguments, and what must have a place for each of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.problem import ArrayFacts, Problem, Signature, bind
from attncc.problem.call_arguments import APPENDED, ARGUMENTS, NUMBERS, STREAM, Arguments, Call, CallArgument, Sort
from attncc.problem.quantized import SCALES
from attncc.problem.strides import contiguous
from attncc.runtime.kernel import Kernel
from attncc.semantics import builtins
from tests.plans import CAUSAL, DROPOUT

PAGES = Path(__file__).resolve().parents[3] / "docs" / "errors"
RECORDS = pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=ARGUMENTS)


def keywords(function: object) -> dict[str, object]:
    """The keyword arguments of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {item.name: item.default for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}


def test_calls_and_their_facts_have_a_field_for_each_record() -> None:
    assert Arguments._fields == ("q", "k", "v", "inputs", *ARGUMENTS)
    assert set(Call._fields) == {"q", "k", "v", "inputs", *ARGUMENTS} - set(NUMBERS)
    defaults = {name: item.default for name, item in ARGUMENTS.items()}
    assert Arguments._field_defaults == defaults
    assert Call._field_defaults == {"inputs": (), **{name: defaults[name] for name in Call._fields[4:]}}


def test_kernels_take_what_the_records_say() -> None:
    records = {**ARGUMENTS, "stream": STREAM, **{item.name: item for item in APPENDED}}
    assert keywords(Kernel.__call__) == {name: item.default for name, item in records.items()}
    own = {name: item.default for name, item in records.items() if item.backward}
    assert keywords(Kernel.backward) == {**own, "dlse": None, "deterministic": False}


def test_kernels_pass_on_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each argument by its name: none is dropped on the way, and none takes another's place."""
    passed: list[Arguments] = []
    monkeypatch.setattr(Kernel, "called", lambda self, given, stream: passed.append(Arguments(*given)))
    monkeypatch.setattr(Kernel, "run_backward", lambda self, given, stream=None: passed.append(given.call))
    kernel = object.__new__(Kernel)
    kernel(1, 2, 3, doc="ids", **{name: f"given {name}" for name in ARGUMENTS})
    own = {name: f"given {name}" for name, item in ARGUMENTS.items() if item.backward}
    kernel.backward(0, 1, 2, 3, None, None, doc="ids", **own)
    assert passed[0].keywords() == {"doc": "ids", **{name: f"given {name}" for name in ARGUMENTS}}
    assert {name: value for name, value in passed[1].keywords().items() if name in own} == own


@pytest.mark.parametrize("argument", [*ARGUMENTS.values(), *APPENDED], ids=lambda item: item.name)
def test_no_input_may_have_an_arguments_name(argument: CallArgument) -> None:
    assert argument.name in builtins.CALL_ARGUMENTS


@RECORDS
def test_records_say_what_their_sort_needs(argument: CallArgument) -> None:
    assert (PAGES / f"{argument.code}.md").is_file()
    assert argument.shape is not None or argument.sort is not Sort.ARRAY
    assert argument.shape is None or argument.sort in (Sort.ARRAY, Sort.SCALAR)
    assert bool(argument.dtypes) == (argument.sort in (Sort.ARRAY, Sort.SCALAR))
    pointers = [ctype for ctype, _ in argument.fields if ctype.endswith("*")]
    numbers = [ctype for ctype, _ in argument.fields if not ctype.endswith("*")]
    assert len(pointers) <= (argument.sort in (Sort.ARRAY, Sort.SCALAR, Sort.RESULT))
    assert len(numbers) <= (argument.sort in (Sort.SCALAR, Sort.NUMBER))
    assert argument.recorded or argument.sort in (Sort.RESULT, Sort.OPTION)
    assert argument.sort is not Sort.SCALAR or set(argument.dtypes) <= {"int32", "int64"}, "torch's schema has SymInt"


@pytest.mark.parametrize(("variant", "text"), [(CAUSAL, "not used"), (DROPOUT, "an int or a 0-d int64 array")])
def test_the_text_of_an_argument_may_depend_on_the_variant(variant: Variant, text: str) -> None:
    assert ARGUMENTS["seed"].described(variant).startswith(text)


def test_declarations_are_python() -> None:
    assert ARGUMENTS["layout"].declaration == 'layout: str = "bhsd"'
    assert ARGUMENTS["cu_seqlens_q"].declaration == "cu_seqlens_q: Array | None = None"
    assert ARGUMENTS["return_lse"].declaration == "return_lse: bool = False"


def test_a_call_comes_apart_by_keywords_and_together_again() -> None:
    given = Arguments.of(1, 2, 3, {"scale": 0.5, "doc": "ids"}, ARGUMENTS)
    assert given == Arguments(1, 2, 3, {"doc": "ids"}, scale=0.5)
    assert Arguments.of(1, 2, 3, given.keywords(), ARGUMENTS) == given
    assert Arguments.of(1, 2, 3, {"scale": 0.5}, ["layout"]).inputs == {"scale": 0.5}


def test_what_is_read_is_changed_and_all_else_stays() -> None:
    call = Arguments("q", "k", "v", {"doc": "d"}, **{name: f"given {name}" for name in ARGUMENTS})  # type: ignore[arg-type]
    changed = call.each_read(lambda name, value: f"{value}, changed")._asdict()
    assert changed.pop("inputs") == {"doc": "d, changed"}
    read = {name for name, value in changed.items() if value.endswith(", changed")}
    of_sort = {name for name, item in ARGUMENTS.items() if item.sort in (Sort.ARRAY, Sort.SCALAR)}
    assert read == {"q", "k", "v", *of_sort}


def facts(*shape: int, dtype: str = "float16", device: str = "cuda:0") -> ArrayFacts:
    return ArrayFacts(shape, contiguous(shape), dtype, device)


SIZES = Problem(5, 4, 2, 40, 50, 64, 64, packed=True)
CACHE = ("kv_lens", "block_table")  # in place of cu_seqlens_kv


def shape_of(argument: CallArgument) -> tuple[int, ...]:
    """The shape that an argument has to have here, 5 where any length will do."""
    return () if argument.shape is None else tuple(5 if n is None else n for n in argument.shape.lengths(SIZES))


def bound(about: str = "", **changed: ArrayFacts | type) -> Problem:
    """A packed call of 5 sequences that is given all arrays that go with one argument, and some others in their place:
    pages of 10 keys, or packed keys, of 8 bits where it is about their scales."""
    left_out = ("cu_seqlens_kv",) if about in CACHE else CACHE
    left_out = left_out if about in SCALES else (*left_out, *SCALES)
    own: dict[str, Any] = {
        name: facts(*shape_of(item), dtype=item.dtypes[0])
        for name, item in ARGUMENTS.items()
        if item.shape is not None and name not in left_out
    }
    own |= changed
    keys = facts(7, 2, 10, 64) if about in CACHE else facts(2, 50, 64)
    keys = keys._replace(dtype="int8") if about in SCALES else keys
    return bind(Signature(CAUSAL, "fp16", 64, 64), Call(facts(4, 40, 64), keys, keys, **own))


@RECORDS
def test_arrays_are_refused_that_the_record_does_not_allow(argument: CallArgument) -> None:
    name, shape = argument.name, shape_of(argument)
    for dtype in argument.dtypes:
        bound(name, **{name: facts(*shape, dtype=dtype)})
    for dtype in argument.dtypes[:1]:
        with pytest.raises(AttnccError, match=argument.code):
            bound(name, **{name: facts(*shape, dtype="float16" if dtype == "float32" else "float32")})
        with pytest.raises(AttnccError, match=argument.code):
            bound(name, **{name: facts(*shape, 2, dtype=dtype)})
        with pytest.raises(AttnccError, match="A605"):
            bound(name, **{name: facts(*shape, dtype=dtype, device="cuda:1")})


@RECORDS
def test_numbers_are_refused_that_the_record_does_not_allow(argument: CallArgument) -> None:
    if argument.sort is Sort.SCALAR:
        bound(argument.name, **{argument.name: int})
        with pytest.raises(AttnccError, match=argument.code):
            bound(argument.name, **{argument.name: float})
