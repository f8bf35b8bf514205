"""Thread blocks that load keys, or backward queries, for each other compute what lone ones do, to the last bit.

That they do is told by the launch: the driver is asked for clusters of two. Backward, lone ones have another kernel.
"""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc import api
from attncc.kernels.crossings import NEVER, Chip, Crossings
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.problem.gradients import Gradients
from attncc.resources import folder
from attncc.runtime.call import persistent, prepare
from attncc.runtime.call.repeated import PAIRED, Attribute
from attncc.runtime.cuda.driver import driver
from attncc.runtime.store import loaded_kernels
from tests.devices import cuda
from tests.gpu import backward_checks
from tests.gpu.accuracy import check_forward

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

Launched = list[tuple[int, bool]]

FULL = "attn 1\nvariant full {\n}\n"
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"
# batch, heads, heads of k, rows, keys: blocks of one head; of a group, and tiles that end within the keys; more than
# the GPU holds at once.
SHAPES = [(2, 8, 8, 1000, 1024), (2, 6, 2, 300, 1030), (40, 16, 4, 129, 1100)]


BIASED = "attn 1\nvariant biased {\n    input bias: f32[batch, head]\n    score = score + bias[b, h]\n}\n"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """What the driver is asked for by kernels that begin with this test: blocks, and whether pairs are clusters."""
    found: Launched = []
    start = driver().start

    def noted(config: Any, *others: Any) -> int:
        asked = config._obj
        count = asked.attribute_count
        attributes = (Attribute * count).from_address(asked.attributes) if count else ()
        found.append((asked.grid, bytes(PAIRED) in map(bytes, attributes)))
        return start(config, *others)

    monkeypatch.setattr(driver(), "start", noted)
    return found


@pytest.fixture(autouse=True)
def _runs_forward_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they leave most of the GPU idle."""
    never = Crossings(split_keys=NEVER, uneven_split_keys=NEVER, combine_keys=NEVER)
    monkeypatch.setattr(loaded_kernels, "chip_of", lambda _, count: Chip(count, never))


@pytest.fixture(autouse=True)
def _needs_hopper() -> None:
    if cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")


@pytest.mark.parametrize(
    ("text", "dtype", "head_dim"),
    [
        (None, "bf16", 64),
        (None, "bf16", 128),
        (None, "bf16", 192),
        (None, "bf16", 256),
        (BIASED, "bf16", 128),
        (None, "e4m3", 64),
        (None, "e4m3", 128),
        (None, "e4m3", 256),
    ],
    ids=["d64", "d128", "d192", "d256", "biased", "e4m3-d64", "e4m3-d128", "e4m3-d256"],
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs(  # noqa: PLR0917
    text: str | None,
    dtype: str,
    head_dim: int,
    shape: tuple[int, ...],
    launched: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of some rows stale maxima aren't valid, so that their scores are computed again. Tiles of small head dims, and
    of 8 bits at 256, have 128 keys or more, and none to load them for. V of 8 bits is transposed ahead."""
    from tests.gpu import test_fp8
    from tests.gpu.torch_oracle import Arguments

    specification = text or folder("specs") / "full.attn"
    batch, heads, kv_heads, q_len, kv_len = shape
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(count: int, length: int) -> torch.Tensor:
        return torch.randn(batch, count, length, head_dim, generator=generator, device="cuda").bfloat16()

    q, k, v = normal(heads, q_len), normal(kv_heads, kv_len), normal(kv_heads, kv_len)
    q[:, :, ::7] *= 40 if dtype == "bf16" else 4  # scores of e4m3 are less exact, see docs/hopper.md
    if dtype == "e4m3":
        q, k, v = (x.to(torch.float8_e4m3fn) for x in (q, k, v))
        monkeypatch.setattr(prepare, "pays", lambda plan, problem: True)
    inputs = {} if text is None else {"bias": torch.randn(batch, heads, generator=generator, device="cuda")}
    problem = Problem(batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim)

    def attend(paired_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(persistent, "PAIRED_ROWS", paired_keys)
        monkeypatch.setattr(persistent, "PADDED_SHARE", 1)
        monkeypatch.setattr(api, "_kernels", {})  # or the second would be the first, its launches prepared
        kernel = attncc.compile(specification, dtype=dtype, head_dim=head_dim, arch="sm_90a")
        plan = kernel._store.plans(kernel.configurations[0], "sm_90a")[0]
        assert facts_of(plan).uses_clusters == (head_dim > 64 and plan.block_kv < 128)
        even = problem.group * facts_of(plan).q_blocks(problem) % 2 == 0
        found: tuple[torch.Tensor, torch.Tensor] = kernel(q, k, v, return_lse=True, **inputs)
        assert launched.pop()[1] == (facts_of(plan).uses_clusters and even and not paired_keys)
        return found

    (out, lse), (alone, lse_alone) = attend(0), attend(2**31)
    assert torch.equal(out, alone) and torch.equal(lse, lse_alone)
    variant = attncc.parse(specification).variant
    if dtype == "e4m3":
        test_fp8.check(out, lse, Arguments(variant, problem, q.double(), k.double(), v.double(), inputs))
    else:
        check_forward(out, lse, Arguments(variant, problem, q, k, v, inputs, seed=0), dtype)


# Heads that share keys, and a last block of which half exists; more blocks than the GPU holds at once.
BACKWARD_SHAPES = [(1, 4, 2, 1030, 1000), (2, 4, 2, 600, 422), (40, 8, 8, 1100, 500)]


@pytest.mark.parametrize("head_dims", [(128, 128), (120, 64)], ids=str)
@pytest.mark.parametrize("shape", BACKWARD_SHAPES, ids=str)
@pytest.mark.parametrize("spec", ["full", "causal"])
def test_pairs_of_key_blocks(
    spec: str,
    shape: tuple[int, ...],
    head_dims: tuple[int, int],
    launched: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """dQ but for the order of its sums."""
    batch, heads, kv_heads, q_len, kv_len = shape
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(count: int, length: int, size: int) -> torch.Tensor:
        return torch.randn(batch, count, length, size, generator=generator, device="cuda").half()

    q, k = normal(heads, q_len, head_dims[0]), normal(kv_heads, kv_len, head_dims[0])
    v, dout = normal(kv_heads, kv_len, head_dims[1]), normal(heads, q_len, head_dims[1])

    def differentiate(paired_rows: int) -> Gradients:
        monkeypatch.setattr(persistent, "PAIRED_ROWS", paired_rows)
        monkeypatch.setattr(api, "_kernels", {})
        sizes = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
        kernel = attncc.compile(folder("specs") / f"{spec}.attn", dtype="fp16", arch="sm_90a", **sizes)
        results = kernel(q, k, v, return_lse=True)
        launched.clear()
        found: Gradients = kernel.backward(dout, q, k, v, *results)
        assert [together for _, together in launched] == [False, not paired_rows, False]  # delta before, dQ behind
        return found

    pairs, alone = differentiate(0), differentiate(2**31)
    assert torch.equal(pairs.dk, alone.dk) and torch.equal(pairs.dv, alone.dv)
    assert float((pairs.dq.float() - alone.dq.float()).norm() / alone.dq.float().norm()) < 2e-3


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("spec", ["full", "causal"])
def test_a_call_without_pairs_has_a_kernel_of_its_own(
    spec: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them compiles it. Beside the kernel made for pairs, whose blocks are alone here."""
    generator = torch.Generator("cuda").manual_seed(1)
    q, k, v, dout = (torch.randn(2, 3, 500, 128, generator=generator, device="cuda").half() for _ in range(4))

    def differentiate(own: bool) -> Gradients:
        monkeypatch.setattr(api, "_kernels", {})
        kernel = attncc.compile(folder("specs") / f"{spec}.attn", dtype="fp16", head_dim=128, arch="sm_90a")
        if not own:
            monkeypatch.setattr(loaded_kernels, "own_backward_kernels", lambda *_, **__: ())
        found: Gradients = kernel.backward(dout, q, k, v, *kernel(q, k, v, return_lse=True), deterministic=ordered)
        assert any("_unclustered" in name for name in kernel.report()) is own
        return found

    found, alone = differentiate(own=True), differentiate(own=False)
    assert torch.equal(found.dk, alone.dk) and torch.equal(found.dv, alone.dv)
    assert not ordered or torch.equal(found.dq, alone.dq)
    assert float((found.dq.float() - alone.dq.float()).norm() / alone.dq.float().norm()) < 2e-3


@pytest.mark.parametrize("kv_len", [1000, 422])
@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
def test_pairs_of_key_blocks_against_the_reference(
    text: str, kv_len: int, launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent, "PAIRED_ROWS", 0)
    backward_checks.compiled.cache_clear()
    keys = 1, 1, kv_len, 128
    backward_checks.check(text, "bf16", (128, 128), backward_checks.normal((1, 2, 1030, 128), keys, keys))
    assert any(together for _, together in launched)


# q_len, kv_len, whether the batch is packed, and whether sums are ordered: which launches are of pairs. A forward block
# has 192 rows, a backward one 128 keys.
@pytest.mark.parametrize(
    ("q_len", "kv_len", "packed", "ordered", "forward", "backward"),
    [
        (1152, 1024, False, False, True, True),
        (1152, 1024, True, False, False, False),
        (1152, 1024, False, True, True, False),
        (1100, 1024, False, False, True, True),
        (1024, 1024, False, False, False, True),
        (1023, 1024, False, False, False, False),
        (1152, 1023, False, False, False, True),
        (1152, 1100, False, False, True, False),
        (1300, 1024, False, False, False, True),
    ],
)
def test_which_launches_are_of_pairs(  # noqa: PLR0917
    q_len: int, kv_len: int, packed: bool, ordered: bool, forward: bool, backward: bool, launched: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As users call them: there are enough keys, or rows, and blocks are even in number and alike, or nearly so."""
    monkeypatch.setattr(api, "_kernels", {})
    kernel = attncc.compile(folder("specs") / "full.attn", dtype="fp16", head_dim=128, arch="sm_90a")
    lead = () if packed else (1,)
    q, k = (torch.randn(*lead, 2, length, 128, device="cuda").half() for length in (q_len, kv_len))
    starts = {
        f"cu_seqlens_{name}": torch.tensor([0, x], device="cuda").int() for name, x in (("q", q_len), ("kv", kv_len))
    }
    given = starts if packed else {}
    results = kernel(q, k, k, return_lse=True, **given)
    assert [together for _, together in launched] == [forward]
    launched.clear()
    kernel.backward(q, q, k, k, *results, deterministic=ordered, **given)
    assert [together for _, together in launched] == [False, backward, False]
