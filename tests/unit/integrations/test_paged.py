"""Continuous batching of transformers on attncc, against each prompt alone through eager attention and `generate`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from attncc.diagnostics import AttnccError  # noqa: E402
from attncc.flex.attention import cache  # noqa: E402
from attncc.integrations import transformers as integration  # noqa: E402
from attncc.integrations.paged import PAGED, paged_attention  # noqa: E402
from tests.unit.integrations.models import TOKENS, by, models  # noqa: E402

integration.register()
MODELS = models()
NEW = 10
LENGTHS = (5, 1, 30, 13)  # beyond the window of 7, and not


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(2, TOKENS, (length,), generator=generator).tolist() for length in LENGTHS]


def alone(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    tokens = model.generate(ids, max_new_tokens=NEW, do_sample=False, pad_token_id=0)
    return tokens[0, len(prompt) :].tolist()


def together(model: Any, **settings: Any) -> list[list[int]]:
    config = transformers.GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1)
    size = {"num_blocks": 16, "max_batch_tokens": 64}  # if not given, transformers fills the machine's memory: 40 s
    batching = transformers.ContinuousBatchingConfig(**{**size, **settings})
    with integration.paged(model):
        found = model.generate_batch(prompts(), generation_config=config, continuous_batching_config=batching)
    assert all(one.error is None for one in found.values()), [one.error for one in found.values()]
    return [found[name].generated_tokens for name in sorted(found)]


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gemma3", "gpt_oss"])
def test_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouped heads, windows, soft caps, two kinds of layers, sinks: prompts beside tokens in one call."""
    seen = []

    def counted(module: Any, *given: Any, **named: Any) -> Any:
        seen.append(module.layer_idx)
        return paged_attention(module, *given, **named)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, PAGED, counted)
    model = MODELS[name].made()
    expected = by(model, "eager", lambda model: [alone(model, prompt) for prompt in prompts()])
    assert by(model, "attncc", together) == expected
    assert len(seen) >= NEW * model.config.num_hidden_layers
    assert model.config._attn_implementation == "attncc"


def test_more_tokens_compile_nothing() -> None:
    model = MODELS["mistral"].made()
    by(model, "attncc", together)
    before = cache.traces
    by(model, "attncc", lambda model: together(model, max_batch_tokens=16))
    assert cache.traces == before


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 4])
def test_rows_of_a_packed_call(causal: bool, window: int | None) -> None:
    """More keys than queries, as many, one sequence without queries; and rows of nobody, as padded calls have."""
    bounds = torch.tensor([0, 3, 8, 8], dtype=torch.int32), torch.tensor([0, 9, 14, 16], dtype=torch.int32)
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 10, 8), torch.randn(1, 2, 19, 8), torch.randn(1, 2, 19, 8)
    given = {"is_causal": causal, "sliding_window": window, "cu_seq_lens_q": bounds[0], "cu_seq_lens_k": bounds[1]}
    out, _ = paged_attention(torch.nn.Module(), q, k, v, None, **given)
    for (first, end), (first_k, end_k) in zip(*map(pairwise, bounds), strict=True):
        place = torch.arange(end - first)[:, None] + (end_k - first_k) - (end - first)
        distance = place - torch.arange(end_k - first_k)
        kept = (distance >= 0) if causal else torch.ones_like(distance, dtype=torch.bool)
        kept = kept if window is None else kept & (distance.abs() < window)
        own = k[:, :, first_k:end_k], v[:, :, first_k:end_k]
        attention = torch.nn.functional.scaled_dot_product_attention
        expected = attention(q[:, :, first:end], *own, attn_mask=kept, enable_gqa=True)
        torch.testing.assert_close(out[:, first:end], expected.transpose(1, 2), atol=2e-6, rtol=2e-5)
    assert (out[:, 8:] == 0).all()


def test_before_continuous_batching_was_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers, "__version__", "5.20.1")
    with pytest.raises(AttnccError, match=r"A714[\s\S]*5\.21 or newer[\s\S]*pip install"), integration.paged(object()):
        pass


def test_outside_continuous_batching() -> None:
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(AttnccError, match="A714"):
        paged_attention(torch.nn.Module(), q, q, q, None)


def test_the_name_is_restored() -> None:
    model = MODELS["llama"].made()
    with pytest.raises(RuntimeError, match="stop"), integration.paged(model):
        assert model.config._attn_implementation == PAGED
        raise RuntimeError("stop")
    assert model.config._attn_implementation != PAGED


def test_it_needs_no_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without, requests ended with no tokens."""
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        monkeypatch.delitem(interface._global_mapping, PAGED, raising=False)
    model = MODELS["llama"].made()
    expected = by(model, "eager", lambda model: [alone(model, prompt) for prompt in prompts()])
    assert by(model, "eager", together) == expected
