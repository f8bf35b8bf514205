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


BIASED = "attn 1\nvariant biased {\n    input bias: f32[batch, head]\n    score = score + bias[b, h]\n}\n"


@pytest.mark.parametrize(
    ("text", "head_dim"),
    [(None, 64), (None, 128), (None, 192), (None, 256), (BIASED, 128)],
    ids=["d64", "d128", "d192", "d256", "biased"],
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs(text: str | None, head_dim: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some rows old references don't serve, so that their scores are computed again."""
    if cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    from tests.gpu.torch_oracle import Arguments

    specification = text or folder("specs") / "full.attn"
    batch, heads, kv_heads, q_len, kv_len = shape
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(count: int, length: int) -> torch.Tensor:
        return torch.randn(batch, count, length, head_dim, generator=generator, device="cuda").bfloat16()

    q, k, v = normal(heads, q_len), normal(kv_heads, kv_len), normal(kv_heads, kv_len)
    q[:, :, ::7] *= 40
    inputs = {} if text is None else {"bias": torch.randn(batch, heads, generator=generator, device="cuda")}

    def attend(paired_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(persistent, "PAIRED_KEYS", paired_keys)
        kernel = attncc.compile(specification, dtype="bf16", head_dim=head_dim, arch="sm_90a")
        return kernel(q, k, v, return_lse=True, **inputs)

    (out, lse), (alone, lse_alone) = attend(0), attend(2**31)
    assert torch.equal(out, alone) and torch.equal(lse, lse_alone)
    problem = Problem(batch, heads, kv_heads, q_len, kv_len, head_dim, head_dim)
    variant = attncc.parse(specification).variant
    check_forward(out, lse, Arguments(variant, problem, q, k, v, inputs, seed=0), "bf16")
