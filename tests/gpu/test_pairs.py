"""Thread blocks that load keys for each other compute what lone ones do, to the last bit."""

from __future__ import annotations

import pytest

import attncc
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime import persistent
from tests.devices import cuda
from tests.gpu.accuracy import check_forward

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

# batch, heads, heads of k, rows, keys: blocks of one head; of a group, and tiles that end within the keys; more than
# the GPU holds at once.
SHAPES = [(2, 8, 8, 1000, 1024), (2, 6, 2, 300, 1030), (40, 16, 4, 129, 1100)]


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs(head_dim: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some rows old references don't serve, so that their scores are computed again."""
    if cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    from tests.gpu.torch_oracle import Arguments

    specification = folder("specs") / "full.attn"
    batch, heads, kv_heads, q_len, kv_len = shape
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(count: int, length: int) -> torch.Tensor:
        return torch.randn(batch, count, length, head_dim, generator=generator, device="cuda").bfloat16()

    q, k, v = normal(heads, q_len), normal(kv_heads, kv_len), normal(kv_heads, kv_len)
    q[:, :, ::7] *= 40

    def attend(paired_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(persistent, "PAIRED_KEYS", paired_keys)
        return attncc.compile(specification, dtype="bf16", head_dim=head_dim, arch="sm_90a")(q, k, v, return_lse=True)

    (out, lse), (alone, lse_alone) = attend(0), attend(2**31)
    assert torch.equal(out, alone) and torch.equal(lse, lse_alone)
    problem = Problem(batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim)
    variant = attncc.parse(specification).variant
    check_forward(out, lse, Arguments(variant, problem, q, k, v, {}, seed=0), "bf16")
