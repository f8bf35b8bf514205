"""Masks that leave nothing, one pair, or every other tile; a million keys and one query; false sorted hints."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.problem import Problem
from attncc.resources import folder
from tests.devices import cuda
from tests.gpu.accuracy import judge
from tests.kernels import without_decode

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEAD_DIM = 64
LONG = 1 << 16
KEYS = 1_000_000


def compiled(lines: str, family: str, settings: str = "") -> Any:
    """The kernel of a variant `v` with these lines."""
    target = "sm_90a" if family == "hopper" else cuda().target
    text = f"attn 1\nimport masks\nvariant v {{\n{lines}\n}}\n"
    text += f"schedule tested for v on {target} {{ family = {family} {settings} }}\n"
    return without_decode(text, dtype="bf16", head_dim=HEAD_DIM, value_head_dim=HEAD_DIM, arch=target)


def normal(*shape: int) -> Any:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(*shape, HEAD_DIM, generator=generator, device="cuda").bfloat16()


def ints(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def check(kernel: Any, q: Any, k: Any, v: Any, **inputs: Any) -> None:
    """The accuracy rule against the dense oracle."""
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    problem = Problem(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], HEAD_DIM, HEAD_DIM)
    call = Arguments(kernel.variant, problem, q, k, v, inputs)
    out, (exact, _) = kernel(q, k, v, **inputs), oracle(call)
    assert judge(out, baseline(call, torch.bfloat16), exact, "bf16").holds


EMPTY = {
    "proven": ("keep if kv_idx < 0", {}),
    "by a scalar": ("input limit: i32\nkeep if kv_idx < limit", {"limit": -5}),
    "by a table": ("input wanted: i32[_]\nkeep if wanted[q_idx // 64] == kv_idx", {"wanted": (-1,) * 64}),
    "seen by no rule": ("input x: f32\nkeep if x * q_idx > kv_idx + 1.0", {"x": 0.0}),
}


@pytest.mark.parametrize("how", EMPTY)
def test_nothing_is_kept(family: str, how: str) -> None:
    lines, inputs = EMPTY[how]
    given = {name: ints(*value) if isinstance(value, tuple) else value for name, value in inputs.items()}
    q, k = normal(2, 4, 4000), normal(2, 2, 4096)
    out, lse = compiled(lines, family)(q, k, k, return_lse=True, **given)
    assert not out.any() and bool(torch.isneginf(lse).all())


ONE = {
    "bounds": "input row: i32\ninput column: i32\nkeep if q_idx == row and kv_idx == column",
    "min/max tables": "input row: bool[q]\ninput column: bool[kv]\nkeep if row[q_idx] and column[kv_idx]",
    "pairs": "input row: i32\ninput column: i32\nkeep if (q_idx ^ row) * 3 + (kv_idx ^ column) * 5 == 0",
}


@pytest.mark.parametrize("how", ONE)
def test_one_pair_of_four_billion(family: str, how: str) -> None:
    row, column = 40_001, 12_345
    given: dict[str, Any] = {"row": row, "column": column}
    if how == "min/max tables":
        given = {name: torch.zeros(LONG, dtype=torch.bool, device="cuda") for name in given}
        given["row"][row] = given["column"][column] = True
    q, k, v = (normal(1, 1, LONG) for _ in range(3))
    out, lse = compiled(ONE[how], family)(q, k, v, return_lse=True, **given)
    assert torch.equal(out[0, 0, row], v[0, 0, column])
    out[0, 0, row] = 0
    assert not out.any()
    assert int(torch.isfinite(lse).sum()) == 1 and bool(torch.isfinite(lse[0, 0, row]))


@pytest.mark.parametrize("size", [64, 48, 100])
def test_alternating_tiles(family: str, size: int) -> None:
    lines = f"keep if (q_idx // {size} + kv_idx // {size}) % 2 == 0"
    check(compiled(lines, family), normal(1, 2, 1000), normal(1, 2, 1300), normal(1, 2, 1300))


MANY = {
    "all": ("", lambda kv_idx: kv_idx >= 0),
    "few": ("keep if kv_idx % 1000 == 7", lambda kv_idx: kv_idx % 1000 == 7),
    "the last": ("keep if kv_idx == q_pos", lambda kv_idx: kv_idx == KEYS - 1),
    "the first": ("keep if kv_idx <= q_idx", lambda kv_idx: kv_idx == 0),
}


@pytest.mark.parametrize("settings", ["", "split_kv = auto"])
@pytest.mark.parametrize("keys", MANY)
def test_one_query_and_a_million_keys(family: str, keys: str, settings: str) -> None:
    lines, kept = MANY[keys]
    q, k, v = normal(1, 1, 1), normal(1, 1, KEYS), normal(1, 1, KEYS)
    out, lse = compiled(lines, family, settings)(q, k, v, return_lse=True)
    where = kept(torch.arange(KEYS, device="cuda"))
    score = k[0, 0, where].double() @ q[0, 0, 0].double() * HEAD_DIM**-0.5
    exact = score.softmax(0) @ v[0, 0, where].double()
    assert (out[0, 0, 0].double() - exact).abs().max() <= 2**-7 * max(float(exact.abs().max()), 2**-8)
    assert abs(float(lse) - float(score.logsumexp(0))) <= 1e-3


# -------------------------------------------------------------------- sorted hints


def documents(family: str) -> Any:
    target = "sm_90a" if family == "hopper" else cuda().target
    text = (folder("specs") / "documents.attn").read_text()
    text += f"schedule tested for documents on {target} {{ family = {family} }}\n"
    return without_decode(text, dtype="bf16", head_dim=HEAD_DIM, value_head_dim=HEAD_DIM, arch=target)


def rising(batch: int, length: int) -> Any:
    return torch.arange(length, device="cuda").div(150, rounding_mode="floor").int().repeat(batch, 1)


FALSE = {
    "shuffled": lambda doc: doc[:, torch.randperm(doc.shape[1], device="cuda")],
    "padded with -1": lambda doc: torch.where(torch.arange(doc.shape[1], device="cuda") < 900, doc, -1),
    "falls once": lambda doc: torch.cat([doc[:, :-1], doc[:, :1]], dim=1),
    "falls in one sequence": lambda doc: torch.cat([doc[:1], doc[1:].flip(1)]),
}


@pytest.mark.parametrize("how", FALSE)
def test_false_hints_change_no_result(family: str, how: str) -> None:
    doc = FALSE[how](rising(2, 1100)).int().contiguous()
    check(documents(family), normal(2, 2, 1000), normal(2, 1, 1100), normal(2, 1, 1100), doc=doc)


def test_hints_are_verified_at_each_call(family: str) -> None:
    """The contents change at the same address, in a graph too: true, false, and true of other documents."""
    kernel, q = documents(family), normal(2, 2, 1100)
    doc = rising(2, 1100)
    contents = [doc.clone(), doc.flip(1), (doc // 2).contiguous()]
    kernel(q, q, q, doc=doc)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(q, q, q, doc=doc)
    for content in contents:
        doc.copy_(content)
        graph.replay()
        again = kernel(q, q, q, doc=doc)
        torch.cuda.synchronize()
        assert torch.equal(out, again)
        check(kernel, q, q, q, doc=content)


def test_packed_documents_count_anew_in_each_sequence(family: str) -> None:
    """Sequences of a packed batch, each with documents 0, 1, 2: the same as alone."""
    kernel, lengths = documents(family), (500, 0, 37, 1200)
    starts = ints(*torch.tensor((0, *lengths)).cumsum(0).tolist())
    doc = torch.cat([rising(1, n)[0] for n in lengths])
    q = normal(2, sum(lengths))
    out = kernel(q, q, q, doc=doc, cu_seqlens_q=starts, cu_seqlens_kv=starts)
    first = 0
    for length in lengths:
        own = q[None, :, first : first + length]
        if length:
            alone = kernel(own, own, own, doc=doc[None, first : first + length])
            torch.testing.assert_close(out[None, :, first : first + length], alone, rtol=1e-2, atol=1e-2)
        first += length


def test_tests_of_hundreds_of_instructions_are_called(family: str) -> None:
    """Some rows keep nothing, others a part of the keys."""
    lines = "input t: i32[kv] nondecreasing\nkeep if any(t[kv_idx // (i + 1)] < q_idx - 40 * i for i in range(20))"
    kernel, thresholds = compiled(lines, family), torch.linspace(100, 900, 1100, device="cuda").int()
    check(kernel, normal(2, 4, 1000), normal(2, 2, 1100), normal(2, 2, 1100), t=thresholds)
