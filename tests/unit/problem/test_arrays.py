from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.evaluate import evaluate
from attncc.ir import Type, size_symbol, symbol
from attncc.problem import ArrayFacts, Signature, bind_arrays
from attncc.problem.arrays import at_positions, facts
from tests.plans import ALIBI, DOCUMENTS, DROPOUT, FULL, Variant, declared, load, qkv


def test_facts_of_numpy_arrays() -> None:
    array = np.zeros((3, 4), ml_dtypes.bfloat16)[:, ::2]
    assert facts("x", array) == ArrayFacts((3, 2), (4, 2), "bfloat16", "cpu")
    assert facts("x", np.zeros((), np.float32)) == ArrayFacts((), (), "float32", "cpu")
    assert facts("x", np.float32(3)) is float
    assert facts("x", np.int64(3)) is int
    assert facts("x", np.bool_(True)) is bool
    assert facts("x", True) is bool


@pytest.mark.parametrize("value", [[1, 2], "abc", None])
def test_what_is_no_array_is_refused(value) -> None:
    q, k, v = qkv()
    with pytest.raises(AttnccError, match="A622") as error:
        bind_arrays(Signature(ALIBI), q, k, v, slope=value, cap=1.0)
    assert "`slope`" in str(error.value)
    with pytest.raises(AttnccError, match="A622"):
        bind_arrays(Signature(FULL), value, k, v)


@pytest.mark.parametrize("value", ["3", None, 1j, [3.0], np.complex64(1)])
def test_what_is_no_number_is_refused_as_one(value) -> None:
    with pytest.raises(AttnccError, match=r"A610.*`cap`") as error:
        bind_arrays(Signature(ALIBI), *qkv(), slope=np.ones(4, np.float32), cap=value)
    assert "expected a number or a 0-d array, for cap: f32" in str(error.value)
    if value is not None:
        with pytest.raises(AttnccError, match=r"A612.*`seed`"):
            bind_arrays(Signature(DROPOUT), *qkv(), seed=value)


def test_masked_arrays_are_refused() -> None:
    """Their mask would be ignored."""
    q, k, v = qkv()
    for given in ((np.ma.masked_array(q), k, v), (q, k, np.ma.masked_array(v))):
        with pytest.raises(AttnccError, match=r"A622.*is a masked array"):
            bind_arrays(Signature(FULL), *given)
    with pytest.raises(AttnccError, match=r"A622.*`slope` is a masked array"):
        bind_arrays(Signature(ALIBI), q, k, v, slope=np.ma.masked_array(np.ones(4, np.float32)), cap=1.0)


@pytest.mark.parametrize("value", ["yes", None, 2, np.zeros(2)])
def test_return_lse_is_true_or_false(value) -> None:
    with pytest.raises(AttnccError, match=r"A614.*`return_lse`"):
        bind_arrays(Signature(FULL), *qkv(), return_lse=value)
    for good in (True, np.False_):
        bind_arrays(Signature(FULL), *qkv(), return_lse=good)


def test_rows_are_views_with_heads_first() -> None:
    q, k, v = qkv()
    dense = bind_arrays(Signature(FULL), q, k, v)
    assert np.shares_memory(dense.rows(q, 1, 0, 45), q)
    np.testing.assert_array_equal(dense.rows(q, 1, 0, 45), q[1])
    turned = bind_arrays(Signature(FULL), *(x.swapaxes(1, 2) for x in (q, k, v)), layout="bshd")
    np.testing.assert_array_equal(turned.rows(turned.q, 1, 0, 45), q[1])


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_rows_of_packed_sequences(layout) -> None:
    q, k, v = (x[0] if layout == "bhsd" else x[0].swapaxes(0, 1) for x in qkv())
    starts = {"cu_seqlens_q": np.array([0, 20, 45], np.int32), "cu_seqlens_kv": np.array([0, 10, 70], np.int32)}
    bound = bind_arrays(Signature(FULL), q, k, v, layout=layout, **starts)
    np.testing.assert_array_equal(bound.rows(q, 1, 20, 25), qkv()[0][0, :, 20:45])


def test_a_packed_input_is_cut_to_its_sequence() -> None:
    """`batch` comes back where it was declared; the length in the sequence is that of q or of the keys."""
    tagged = Variant(
        "tagged", inputs=(declared("x", "i32", "head", "batch", "q"), declared("y", "i32", "batch", "pos"))
    )
    q, k, v = (x[0] for x in qkv())
    starts = {"cu_seqlens_q": np.array([0, 20, 45], np.int32), "cu_seqlens_kv": np.array([0, 10, 70], np.int32)}
    x, y = np.arange(4 * 45, dtype=np.int32).reshape(4, 45), np.arange(75, dtype=np.int32)
    bound = bind_arrays(Signature(tagged), q, k, v, x=x, y=y, **starts)
    environment = bound.environment(list(bound.problem.sequences())[1], np.float64)
    at = at_positions(environment, np.arange(25), np.arange(60))
    read = evaluate(load("x", symbol("h"), symbol("b"), symbol("q_idx"), kind=Type.INT), at)
    np.testing.assert_array_equal(read[..., 0], x[:, 20:])
    read = evaluate(load("y", symbol("b"), symbol("kv_idx"), kind=Type.INT), at)
    np.testing.assert_array_equal(read, y[10:70])
    assert evaluate(size_symbol("x", 2), at) == 25
    assert evaluate(size_symbol("y", 1), at) == 60


def test_dense_positions_keep_their_whole_axis() -> None:
    q, k, v = qkv()
    bound = bind_arrays(Signature(DOCUMENTS), q, k, v, doc=np.zeros((2, 99), np.int32))
    environment = bound.environment(next(bound.problem.sequences()), np.float64)
    assert environment.symbols["doc__size1"] == 99
    assert environment.symbols["scale"] == 0.25
    at = at_positions(environment, np.arange(3), np.arange(5))
    np.testing.assert_array_equal(evaluate(symbol("q_pos"), at), [[25], [26], [27]])
