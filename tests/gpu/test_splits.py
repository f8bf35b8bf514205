"""Forward calls of few blocks of queries, by the kernel that splits keys."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.compiler import CompiledStore, load_specification
from attncc.kernels import kernel_names
from attncc.kernels.crossings import NEVER, Crossings
from attncc.resources import folder
from attncc.runtime.call import prepare as preparation
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.loaded_kernels import KernelLoader
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from tests.devices import cuda
from tests.gpu.accuracy import check_forward
from tests.gpu.cases import Case
from tests.gpu.test_caches import Cache

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SPLIT = Crossings(split_keys=NEVER, uneven_split_keys=NEVER, combine_keys=1e-3)  # where there is such a kernel


@pytest.fixture(scope="module", autouse=True)
def hopper() -> None:
    if cuda().target != "sm_90":
        pytest.skip("TMA and wgmma are Hopper's")


def kernel_of(text: str, dtype: str, key: int, value: int) -> Any:
    store = CompiledStore(load_specification(text, None, {})[0], Configuration(dtype, key, value), ("sm_90a",))
    return Kernel(store, (KernelLoader(store, crossings=SPLIT), KernelLoader(store, backward=True)))


def case(  # noqa: PLR0917
    spec: str, q_len: int, kv_len: int, group: int, dtype: str = "bf16", head_dim: int = 128, **more: Any
) -> Case:
    dims = head_dim, head_dim
    where = {"memory": "contiguous", "loop": "q_outer", "layout": "bhsd", "packed": False, "head_dims": dims}
    return Case(spec, (q_len, kv_len), splits=1, group=group, dtype=dtype, **{**where, **more})


CASES = (
    case("causal", 60, 8100, 4),
    case("causal", 17, 5000, 8, "fp16"),
    case("full", 100, 9000, 4),
    case("full", 130, 3000, 4, head_dim=64),
    case("causal", 256, 6000, 4, head_dim=64),
    case("causal", 70, 6000, 8, head_dim=256),
    case("full", 70, 6000, 2, head_dim=256, dtype="fp16"),
    case("causal", 200, 3000, 3),  # heads stand alone
    case("causal", 150, 3000, 1, head_dim=72),
    case("causal", 65, 5000, 16, head_dim=96),
    case("causal", 77, 2000, 4, packed=True),
    case("causal", 77, 2000, 3, packed=True),
    case("causal", 50, 6000, 7),
    case("alibi", 60, 6000, 5, head_dim=64),
    case("sink_attention", 40, 6000, 6),
    case("causal", 90, 4000, 4, layout="bshd", memory="strided"),
    case("causal", 90, 4000, 4, memory="broadcast"),
    case("causal", 90, 4000, 4, head_dims=(192, 128)),
    case("alibi", 90, 6000, 4),
    case("softcap", 90, 6000, 8),
    case("sink_attention", 90, 6000, 4),
    case("speculative_tree", 60, 6000, 4),
    case("relative_bias", 70, 3000, 4),
    case("sigmoid_attention", 90, 6000, 4),
    case("dropout_attention", 90, 6000, 4),
    case("prefix_lm", 90, 6000, 4),
)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels of calls that are prepared."""
    names: list[str] = []
    made = kernel_names.kernel_name

    def noted(plan: KernelPlan) -> str:
        names.append(made(plan))
        return names[-1]

    monkeypatch.setattr(preparation, "kernel_name", noted)
    return names


@pytest.mark.parametrize("case", CASES, ids=str)
def test_splits(case: Case, launched: list[str]) -> None:
    """Within the accuracy rule, by the kernel with splits, twice the same bits."""
    from tests.gpu.calls import call

    text = case.source("sm_90a").partition("\nschedule ")[0] + "\n"
    kernel = kernel_of(text, case.dtype, *case.head_dims)
    out, lse, arguments = call(case, kernel, "sm_90a")
    assert launched and all("_split_" in name for name in launched)
    check_forward(out, lse, arguments, case.dtype)
    assert torch.equal(out, call(case, kernel, "sm_90a")[0])


def causal() -> Any:
    return kernel_of((folder("specs") / "causal.attn").read_text(), "bf16", 128, 128)


def test_graphs_of_split_calls_replay_with_new_contents() -> None:
    """Two calls in one graph, whose workspaces are the graph's own."""
    from tests.gpu.repeats import check_graph

    kernel, generator = causal(), torch.Generator("cuda").manual_seed(1)
    q, k, v = (
        torch.randn(1, heads, rows, 128, generator=generator, device="cuda").bfloat16()
        for heads, rows in ((32, 60), (8, 9000), (8, 9000))
    )
    check_graph(kernel, q, k, v)


@pytest.mark.parametrize("page", [16, 64, 256])
def test_caches_and_pages(page: int, launched: list[str]) -> None:
    """As many keys as each sequence has, behind which NaN stands."""
    kernel, lengths = causal(), [1024, 300, 60, 777]
    cache = Cache(lengths, "bf16", 128, page)
    q = torch.randn(4, 8, 60, 128, generator=torch.Generator("cuda").manual_seed(2), device="cuda").bfloat16()
    dense, paged = kernel(q, **cache.contiguous()), kernel(q, **cache.paged())
    assert all("_split_" in name for name in launched)
    for b, length in enumerate(lengths):
        keys, values = (item[b : b + 1, :, :length].double() for item in cache.dense)
        kept = torch.ones(60, length, dtype=torch.bool, device="cuda").tril(length - 60)
        exact = torch.nn.functional.scaled_dot_product_attention(
            q[b : b + 1].double(), keys, values, attn_mask=kept, enable_gqa=True
        )
        for found in (dense, paged):
            torch.testing.assert_close(found[b : b + 1].double(), exact, rtol=2e-2, atol=4e-3)


def test_streams_share_nothing() -> None:
    from tests.gpu.repeats import check_streams

    kernel, generator = causal(), torch.Generator("cuda").manual_seed(3)
    calls = [
        tuple(
            torch.randn(1, heads, rows, 128, generator=generator, device="cuda").bfloat16()
            for heads, rows in ((32, q_len), (8, kv_len), (8, kv_len))
        )
        for q_len, kv_len in ((60, 8192), (128, 4000), (256, 16_384), (17, 20_001))
    ]
    check_streams(kernel, calls)


def test_a_user_gets_it(launched: list[str]) -> None:
    """With the points of this GPU: chunks of queries over many keys, and not over few."""
    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    for q_len, kv_len in ((256, 32_768), (300, 300)):
        q, k, v = (
            torch.randn(1, heads, rows, 128, device="cuda").bfloat16()
            for heads, rows in ((32, q_len), (8, kv_len), (8, kv_len))
        )
        kernel(q, k, v)
    assert "_split_" in launched[0] and "_split_" not in launched[-1]
