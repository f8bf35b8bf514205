"""Continuous batching of transformers on attncc, against each prompt alone through eager attention and `generate`."""

from __future__ import annotations

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
    batching = transformers.ContinuousBatchingConfig(**settings) if settings else None
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
