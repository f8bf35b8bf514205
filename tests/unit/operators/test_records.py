"""Every operator has all of its parts, and they agree: NumPy, static ranges, intervals, derivatives, CUDA, import-flex.

Nothing here names a function: a record that is added is tested as it is.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncc import executor, flex_attention, reference
from attncc.analysis.algebra.algebra import Algebra
from attncc.analysis.algebra.ranges import Range, transfer
from attncc.analysis.mask.intervals import RULES as INTERVALS
from attncc.analysis.score.gradient import gradient
from attncc.bench.flex_text import flex_text
from attncc.codegen import floats, integers
from attncc.codegen.nodes import FLOAT, INT, LONG, Level, Node, fits_int, leaf
from attncc.codegen.render import assemble
from attncc.evaluate import Environment, evaluate
from attncc.import_flex import import_flex
from attncc.import_flex.library import PRELUDE
from attncc.ir import Apply, Score, Symbol, Type, Variant, apply, const, symbol
from attncc.operators import OPERATORS, Operator
from attncc.operators.record import Cuda, Function, OnFloats
from attncc.package import package_files, prepare
from attncc.problem import Problem
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.emulator import kernel
from tests.examples import slow_beyond
from tests.plans import plan, qkv

CASES = [(name, kind) for name, item in OPERATORS.items() for kind in Type if item.takes(kind)]
OF_INTS = [name for name, kind in CASES if kind is Type.INT]
GIVING_INTS = [name for name in OF_INTS if OPERATORS[name].gives is None]
DIFFERENTIABLE = [name for name, item in OPERATORS.items() if item.on_floats and item.on_floats.derivative]
FUNCTIONS = [name for name, item in OPERATORS.items() if item.is_float_function]
# Those that codegen/expressions.py writes; no record has their text.
WRITTEN_OUT = {"and", "or", "select", "to_float"}

DTYPES: dict[Type, Any] = {Type.INT: np.int64, Type.FLOAT: np.float32, Type.BOOL: np.bool_}
C_TYPES = {Type.INT: LONG, Type.FLOAT: FLOAT, Type.BOOL: "bool"}
EDGES = (-(2**63), -(2**31) - 1, -(2**31), -65, -64, -1, 0, 1, 2, 63, 64, 2**31 - 1, 2**31, 2**62, 2**63 - 1)
INT64, NARROW = Range(-(2**63), 2**63 - 1), Range(-1000, 1000)


def types(name: str, kind: Type) -> tuple[Type, ...]:
    """Of its arguments, three where it takes any number."""
    if name == "select":
        return Type.BOOL, kind, kind
    return (kind,) * (3 if OPERATORS[name].arity < 0 else OPERATORS[name].arity)


def draw(kind: Type, seed: int, within: Range = INT64) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind is Type.BOOL:
        return random.random(600) < 0.5
    if kind is Type.FLOAT:
        drawn = np.concatenate([random.uniform(-6, 6, 500), random.uniform(0, 1e-3, 85), np.arange(-7, 8) / 2])
        return drawn.astype(np.float32)
    drawn = random.integers(max(within.low, -(2**40)), min(within.high, 2**40), 600)
    drawn[: len(EDGES)] = np.clip(np.array(EDGES), within.low, within.high)
    return random.permutation(drawn)


def applied(name: str, kind: Type) -> Apply:
    return apply(name, *(Symbol(of, f"x{place}") for place, of in enumerate(types(name, kind))))


def meaning(name: str, kind: Type, args: list[np.ndarray], dtype: Any) -> np.ndarray:
    symbols = {f"x{place}": arg for place, arg in enumerate(args)}
    return evaluate(applied(name, kind), Environment(symbols, float_dtype=dtype))


# -------------------------------------------------------------------- NumPy, ranges, intervals


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_numpy_gives_the_type_that_the_record_says(name: str, kind: Type, dtype: Any) -> None:
    args = [draw(of, place) for place, of in enumerate(types(name, kind))]
    found = meaning(name, kind, args, dtype)
    result = OPERATORS[name].result(kind)
    assert applied(name, kind).type is result
    assert found.dtype == (dtype if result is Type.FLOAT else DTYPES[result])


@pytest.mark.parametrize("name", GIVING_INTS)
def test_no_value_leaves_the_static_range(name: str) -> None:
    random = np.random.default_rng(5)
    for seed in range(60):
        ends = np.sort(random.integers(-70, 70, (3, 2)) // random.choice([1, 10]), axis=1)
        ranges = [Range(int(low), int(high)) for low, high in ends]
        args = [
            draw(of, seed + 7 * place, within) if of is Type.BOOL else random.integers(within.low, within.high + 1, 600)
            for (place, of), within in zip(enumerate(types(name, Type.INT)), ranges, strict=False)
        ]
        used = [ranges[place] for place, of in enumerate(types(name, Type.INT)) if of is Type.INT]
        found, values = transfer(name, tuple(used)), meaning(name, Type.INT, args, np.float64)
        assert found.low <= values.min() and values.max() <= found.high, (used, found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_float_leaves_the_bounds_of_the_record(name: str) -> None:
    record, sizes = OPERATORS[name].on_floats, 10.0 ** np.arange(-9, 30)
    assert record is not None
    at = np.concatenate([np.linspace(-30, 30, 999), sizes, -sizes, [0, np.inf, -np.inf]])
    for dtype in (np.float32, np.float64):
        values = meaning(name, Type.FLOAT, [at], dtype)
        values = values[~np.isnan(values)]
        assert values.min() >= (0 if record.never_negative else -record.at_most)
        assert values.max() <= record.at_most


@pytest.mark.parametrize("name", GIVING_INTS)
def test_every_int_operator_has_an_interval_over_a_tile(name: str) -> None:
    on_ints = OPERATORS[name].on_ints
    assert on_ints is not None
    assert on_ints.grows != (name in INTERVALS), "a rule in analysis/mask/intervals.py, or `grows` in the record"
    if on_ints.grows:
        values = meaning(name, Type.INT, [np.sort(draw(Type.INT, 3))], np.float64)
        assert (values[1:] >= values[:-1]).all()


@pytest.mark.parametrize("name", GIVING_INTS)
def test_normal_forms_keep_the_value(name: str) -> None:
    """Of constants: what `Algebra` folds is what NumPy computes."""
    algebra = Algebra(Variant("v"), 16, 16)
    for seed in range(40):
        args = [draw(of, seed + 9 * place, NARROW)[:1] for place, of in enumerate(types(name, Type.INT))]
        made = algebra.make(name, *(algebra.leaf(const(arg[0].item())) for arg in args))
        assert evaluate(made, Environment({})) == meaning(name, Type.INT, args, np.float64)[0]


# -------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_the_meaning(name: str, place: int) -> None:
    floats_at = [at for at, of in enumerate(types(name, Type.FLOAT)) if of is Type.FLOAT]
    if place >= len(floats_at):
        return
    for condition in (True, False):
        for at in (0.37, 0.92, 1.71, 2.6):
            given = {of: const(0.83) if of is Type.FLOAT else const(condition) for of in Type}
            args = [given[of] for of in types(name, Type.FLOAT)]
            args[floats_at[place]] = symbol("score")
            line = Score(apply(name, *args))
            score, step = np.array([at - 1e-5, at + 1e-5]), 2e-5
            below, above = evaluate(line.value, Environment({"score": score})) + np.zeros(2)
            found = evaluate(gradient(Variant("v", statements=(line,))).score, Environment({"score": np.array(at)}))
            np.testing.assert_allclose(found, (above - below) / step, rtol=1e-6, atol=1e-8, err_msg=f"at {at}")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in DIFFERENTIABLE])
def test_derivatives_at_other_places(name: str) -> None:
    """Left of 0 and far out, wherever the function has a value."""
    line = Score(apply(name, symbol("score")))
    slope = gradient(Variant("v", statements=(line,))).score
    at = np.array([-9.0, -3.3, -1.2, -0.4, 5.1, 11.0])
    with np.errstate(all="ignore"):
        values = [evaluate(line.value, Environment({"score": at + side})) for side in (-1e-5, 1e-5)]
        found = evaluate(slope, Environment({"score": at})) + np.zeros_like(at)
    known = np.isfinite(values[0])
    np.testing.assert_allclose(found[known], ((values[1] - values[0]) / 2e-5)[known], rtol=1e-5, atol=1e-8)


# -------------------------------------------------------------------- CUDA, run on the host

PROBE = """
extern "C" void probe_{number}({parameters}, {result}* out, int count) {{
    for (int i = 0; i < count; ++i) {{ {loads} out[i] = {expression}; }}
}}
"""


def printed(name: str, kind: Type, within: Range) -> Node:
    """The operator on x0, x1, ..., ints among them `within` a range."""
    args = tuple(
        leaf(INT if of is Type.INT and fits_int(within) else C_TYPES[of], f"x{place}", Level.ELEMENT, bounds=within)
        for place, of in enumerate(types(name, kind))
    )
    result = OPERATORS[name].result(kind)
    if kind is result is Type.INT:
        return integers.integer(name, args, transfer(name, (within,) * len(args)))
    return floats.form(name, kind).node(C_TYPES[result], *args)


PRINTED = [
    (name, kind, within)
    for name, kind in CASES
    if name not in WRITTEN_OUT
    for within in ((NARROW, INT64) if kind is Type.INT else (NARROW,))
]


@cache
def library() -> ctypes.CDLL:
    """All operators, printed and compiled at once."""
    probes = []
    for number, (name, kind, within) in enumerate(PRINTED):
        node, of = printed(name, kind, within), types(name, kind)
        c_types, leaves = [C_TYPES[item] for item in of], node_args(node)
        probes.append(
            PROBE.format(
                number=number,
                parameters=", ".join(f"const {c_type}* a{place}" for place, c_type in enumerate(c_types)),
                result=C_TYPES[OPERATORS[name].result(kind)],
                loads=" ".join(f"const {arg.ctype} x{place} = a{place}[i];" for place, arg in enumerate(leaves)),
                expression=node.form.format(*(text_of(arg) for arg in node.args)),
            )
        )
    needed = {part.cuda.include for item in OPERATORS.values() for part in item.parts if part.cuda} - {""}
    text = "".join(f'#include "{name}"\n' for name in sorted({*needed, "common/integers.cuh"}))
    return kernel.evaluate("".join(probes), assemble(text, "operators"))


def text_of(node: Node) -> str:
    return node.form.format(*map(text_of, node.args)) if node.args else node.form


def node_args(node: Node) -> list[Node]:
    """The leaves x0, x1, ... below a node."""
    if not node.args:
        return [node] if node.form.startswith("x") else []
    found = {item.form: item for arg in node.args for item in node_args(arg)}
    return [found[name] for name in sorted(found)]


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("number", range(len(PRINTED)), ids=[f"{n}-{k.value}-{w.high}" for n, k, w in PRINTED])
def test_cuda_computes_what_numpy_does(number: int) -> None:
    name, kind, within = PRINTED[number]
    args = [draw(of, 11 + place, within) for place, of in enumerate(types(name, kind))]
    out = np.empty(len(args[0]), DTYPES[OPERATORS[name].result(kind)])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*args, out)]
    getattr(library(), f"probe_{number}")(*pointers, len(out))
    if out.dtype != np.float32:
        np.testing.assert_array_equal(out, meaning(name, kind, args, np.float32))
        return
    exact = meaning(name, kind, [arg.astype(np.float64) for arg in args], np.float64)
    np.testing.assert_allclose(out, exact, rtol=5e-7, atol=1e-8)


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_floats(name: str) -> None:
    """What NumPy has at NaN, infinities, zeros and ends of the floats, CUDA has."""
    number = PRINTED.index((name, Type.FLOAT, NARROW))
    given = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-30, -1e-30, 2.0**63, -(2.0**63), 100, -100])
    out = np.empty(len(given), DTYPES[OPERATORS[name].result(Type.FLOAT)])
    getattr(library(), f"probe_{number}")(*(ctypes.c_void_p(array.ctypes.data) for array in (given, out)), len(out))
    np.testing.assert_allclose(out, meaning(name, Type.FLOAT, [given], np.float32), rtol=1e-5, atol=1e-37)


# -------------------------------------------------------------------- from text to kernels

TEXT = """attn 1
variant {0}_of_scores {{
    input slope: f32[head] learnable
    score = score + slope[h] * {0}(abs(score) + 0.5)
}}
"""


RUNS = [(name, target) for place in (0, 1) for number, name in enumerate(FUNCTIONS)
        for target in [("sm_80", "sm_90a")[(number + place) % 2]]]  # fmt: skip


@pytest.mark.parametrize(("name", "target"), slow_beyond(len(FUNCTIONS), RUNS))
def test_what_passes_check_runs(name: str, target: str) -> None:
    """Executor against the reference, and the text of forward and backward kernels of both families."""
    source = SourceFile(f"{name}.attn", TEXT.format(name))
    variant = load(source).variants[0]
    call = {"slope": np.float32([0.1, -0.2, 0.3, 0.05])}
    q, k, v = qkv()
    found, exact = executor.run(plan(variant), q, k, v, **call), reference.forward(variant, q, k, v, **call)
    np.testing.assert_allclose(found.out, exact[0], rtol=2e-4, atol=2e-5)
    cuda = OPERATORS[name].on(Type.FLOAT).cuda
    files = package_files(prepare(source, archs=[target], dtypes=["bf16"], head_dims=[64], backward=True))
    heads = [text.split("\n")[0] for text in files.values() if cuda is not None and f"{cuda.text}(" in text]
    assert any("forward pass" in head for head in heads) and any("backward pass" in head for head in heads), heads


@pytest.mark.parametrize("name", FUNCTIONS)
def test_import_flex_knows_it(name: str, tmp_path: Path) -> None:
    names = OPERATORS[name].torch
    assert names or f"_{name}(" in PRELUDE, "what is it called in torch?"
    for called in names:
        path = tmp_path / f"{called}.py"
        lines = ("import torch", "def mod(score, b, h, q_idx, kv_idx):", f"    return score + torch.{called}(score)\n")
        path.write_text("\n".join(lines))
        assert f"score = score + {name}(score)" in import_flex([f"{path}:mod"], ()).text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_computes_what_bench_hands_to_flex_attention(name: str) -> None:
    torch = pytest.importorskip("torch")
    variant = load(SourceFile(f"{name}.attn", TEXT.format(name))).variants[0]
    slope, score = np.float32([0.1, -0.2, 0.3, 0.05]), np.linspace(-3, 3, 41)
    scope: dict[str, Any] = {"torch": torch}
    exec(flex_text(variant, Problem(1, 4, 4, 16, 16, 16, 16), {"slope": slope}, 0.25).text, scope)
    _, score_mod = scope["mods"](torch.float64, torch.from_numpy(slope).double())
    found = score_mod(torch.from_numpy(score), 0, 2, 0, 0).numpy()
    inputs = Environment({"score": score, "h": np.array(2)}, {"slope": slope.astype(np.float64)})
    np.testing.assert_allclose(found, evaluate(variant.scores[0].value, inputs), rtol=1e-9)


@pytest.mark.parametrize(("name", "called"), [(name, called) for name in FUNCTIONS for called in OPERATORS[name].torch])
def test_flex_attention_knows_it(name: str, called: str) -> None:
    torch = pytest.importorskip("torch")
    places = (torch, torch.nn.functional, torch.special)
    function = next((getattr(place, called) for place in places if hasattr(place, called)), None)
    if function is None:
        pytest.skip(f"torch has no {called}")
    q, k, v = (torch.randn(1, 2, 24, 16, dtype=torch.float64) for _ in range(3))
    score = q @ k.mT / 4
    exact = (score + function(score.abs() + 0.5)).softmax(-1) @ v
    found = flex_attention(q, k, v, lambda score, b, h, q_idx, kv_idx: score + function(score.abs() + 0.5))
    torch.testing.assert_close(found, exact)


# -------------------------------------------------------------------- what a record lacks

WHOLE: dict[str, Any] = {
    "numpy": np.cosh, "derivative": lambda x, value: x, "cuda": Cuda("coshf", "hyperbolic_cosine"), "cost": 20,
}  # fmt: skip


@pytest.mark.parametrize("part", WHOLE)
def test_no_record_lacks_a_part(part: str) -> None:
    with pytest.raises(TypeError, match=part):
        OnFloats(**{name: value for name, value in WHOLE.items() if name != part})


def test_what_gives_a_float_has_a_derivative() -> None:
    with pytest.raises(AssertionError, match="cosh: derivative"):
        Operator(name="cosh", arity=1, on_floats=OnFloats(**{**WHOLE, "derivative": None}))


def test_what_is_called_by_its_name_has_its_cuda() -> None:
    """Rules of codegen are for operators that are written as signs: without one `check` would pass, and `run` fail."""
    with pytest.raises(AssertionError, match="cosh: what it is in CUDA"):
        Operator(
            name="cosh", arity=1, function=Function("x", "the hyperbolic cosine"),
            on_floats=OnFloats(**{**WHOLE, "cuda": None}),
        )  # fmt: skip
