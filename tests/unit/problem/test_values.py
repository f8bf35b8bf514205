from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.ir import Const, Load, Score, Type, Variant, apply, symbol
from attncc.problem import Signature, check_values
from attncc.problem.arrays import bind_arrays
from tests.plans import CAUSAL, DOCUMENTS, FULL, declared, load, qkv

RATED = Signature(
    Variant("rated", (), (declared("rate", "f32"), declared("count", "i32")), dropout=Load(Type.FLOAT, "rate", ()))
)
FIXED = Signature(Variant("fixed", dropout=Const(Type.FLOAT, 0.1)))


def refused(code: str, signature: Signature, scalars: dict[str, float], **given: object) -> str:
    with pytest.raises(AttnccError, match=code) as error:
        check_values(signature, scalars, **{"seed": 1, "scale": None, **given})
    return str(error.value)


def test_good_values() -> None:
    check_values(RATED, {"rate": 0.5, "count": -(2**31)}, seed=2**64 - 1, scale=-0.5)
    check_values(RATED, {"rate": 0, "count": 3}, seed=None, scale=0)
    check_values(RATED, {"count": 3}, seed=-(2**63), scale=np.float32(2))  # the rate is in an array
    check_values(Signature(FULL), {}, seed=None, scale=None)


def test_bad_values() -> None:
    assert "`seed` is missing" in refused("A612", FIXED, {}, seed=None)
    assert "`seed` is missing" in refused("A612", RATED, {"count": 1}, seed=None)
    assert "64 bits" in refused("A612", FIXED, {}, seed=2**64)
    assert "0.001" in refused("A613", RATED, {"rate": 0.001, "count": 1})
    assert "A613" in refused("A613", RATED, {"rate": 10**400, "count": 1})
    assert "`count`" in refused("A610", RATED, {"rate": 0.5, "count": 2**31})
    for scale in (float("nan"), float("inf"), True, "1", 10**400, -(10**400)):
        assert "`scale`" in refused("A619", FIXED, {}, scale=scale)


STARTS = {
    "falling": ([0, 30, 20], [0, 10, 70], "cu_seqlens_q"),
    "negative": ([0, 10, 20], [-1, 10, 70], "cu_seqlens_kv"),
    "beyond the rows": ([0, 10, 46], [0, 10, 70], "cu_seqlens_q"),
}


@pytest.mark.parametrize(("q_starts", "kv_starts", "name"), STARTS.values(), ids=STARTS)
def test_starts_must_lie_in_the_rows(q_starts, kv_starts, name) -> None:
    q, k, v = (x[0] for x in qkv(batch=1))
    starts = {"cu_seqlens_q": np.array(q_starts, np.int32), "cu_seqlens_kv": np.array(kv_starts, np.int32)}
    with pytest.raises(AttnccError, match="A616") as error:
        bind_arrays(Signature(CAUSAL), q, k, v, **starts)
    assert f"`{name}`" in str(error.value)


@pytest.mark.parametrize("number", [2**32 + 4, -(2**32) + 4])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_int64_beyond_int32_does_not_wrap_around(number: int, framework: str) -> None:
    """Its low 32 bits would do: 4."""
    made = np.asarray if framework == "numpy" else pytest.importorskip("torch").from_numpy
    kernel = attncc.compile("causal", dtype="fp32", head_dim=16)
    new, q, keys, values = (made(np.ones((2, 2, rows, 16), np.float32)) for rows in (1, 4, 8, 8))
    wide, few = made(np.array([number, 4])), made(np.array([4, 4]))
    table = {"kv_lens": few, "block_table": wide[:, None] - 4}
    for code, call in (
        ("A625", lambda: kernel(q, keys, values, kv_lens=wide)),
        ("A625", lambda: kernel(q, keys, values, **table)),
        ("A626", lambda: kernel(q, keys, values, q_offset=wide)),
        ("A626", lambda: kernel(q, keys, values, q_offset=wide[0])),
        ("A616", lambda: kernel(q[0], q[0], q[0], cu_seqlens_q=wide, cu_seqlens_kv=few)),
        ("A625", lambda: attncc.append(keys, values, new, new, wide)),
        ("A625", lambda: attncc.append(keys, values, new, new, **table)),
    ):
        with pytest.raises(AttnccError, match=code):
            call()


def test_inputs_that_sequences_share_reach_as_far_as_the_longest() -> None:
    q, k, v = (x[0] for x in qkv(batch=1))
    starts = {"cu_seqlens_q": np.array([0, 20, 45], np.int32), "cu_seqlens_kv": np.array([0, 10, 70], np.int32)}
    added = apply("add", symbol("score"), load("bias", symbol("q_idx"), symbol("kv_idx")))
    shared = Signature(Variant("shared", (), (declared("bias", "f32", "q", "kv"),), (Score(added),)))
    assert bind_arrays(shared, q, k, v, bias=np.zeros((25, 60), np.float32), **starts).problem.batch == 2
    for shape, axis in (((24, 60), "q"), ((25, 59), "kv")):
        with pytest.raises(AttnccError, match="A609") as error:
            bind_arrays(shared, q, k, v, bias=np.zeros(shape, np.float32), **starts)
        assert f"axis `{axis}`" in str(error.value)


def test_positions_at_q_idx_need_equal_lengths_in_each_sequence() -> None:
    read = apply("to_float", load("doc", symbol("b"), symbol("q_idx"), kind=Type.INT))
    by_q_idx = Signature(Variant("by_q_idx", (), DOCUMENTS.inputs, (Score(apply("add", symbol("score"), read)),)))
    q, k, v = (x[0] for x in qkv(batch=1))
    same, other = np.array([0, 20, 45], np.int32), np.array([0, 10, 35], np.int32)
    bind_arrays(by_q_idx, q, k, v, cu_seqlens_q=same, cu_seqlens_kv=same, doc=np.zeros(70, np.int32))
    with pytest.raises(AttnccError, match="A611"):
        bind_arrays(by_q_idx, q, k, v, cu_seqlens_q=same, cu_seqlens_kv=other, doc=np.zeros(70, np.int32))


def test_an_int_that_no_float_holds_is_an_infinity() -> None:
    capped = Signature(Variant("capped", (), (declared("cap", "f32"),)))
    q, k, v = qkv()
    for value in (10**400, -(10**400)):
        assert bind_arrays(capped, q, k, v, cap=value).inputs["cap"] == (np.inf if value > 0 else -np.inf)
