"""attncc in transformers' models, against their own eager attention: logits, gradients, generated tokens.

The models are tiny and random; their attention is what theirs is, mask functions and caches included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from attncc.diagnostics import AttnccError  # noqa: E402
from attncc.flex.attention import cache  # noqa: E402
from attncc.integrations import transformers as integration  # noqa: E402

integration.register()

LENGTH, BATCH, TOKENS = 21, 2, 97
SIZES = {
    "vocab_size": TOKENS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}


@dataclass(frozen=True)
class Model:
    """A model and what its config says; `inputs` are the arguments of a call beside the token ids."""

    head: str  # the class
    config: str
    sizes: dict[str, Any] = field(default_factory=dict)
    decodes: bool = True
    inputs: Callable[[], dict[str, Any]] = dict


def causal(name: str, **sizes: Any) -> Model:
    return Model(f"{name}ForCausalLM", f"{name}Config", GROUPED | sizes)


MODELS = {
    "llama": causal("Llama"),
    "mistral": causal("Mistral", sliding_window=7),
    "qwen3": causal("Qwen3", head_dim=8),
    "gemma2": causal("Gemma2", head_dim=8, sliding_window=6, attn_logit_softcapping=20.0, query_pre_attn_scalar=8),
    "gemma3": causal("Gemma3", head_dim=8, sliding_window=6),
    "gpt_oss": causal("GptOss", head_dim=8, sliding_window=6, num_local_experts=2, num_experts_per_tok=1),
    "phi": causal("Phi"),
    "deepseek_v3": causal(
        "DeepseekV3", num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
        v_head_dim=12, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16,
    ),
    "llama4": causal("Llama4", attention_chunk_size=8, num_local_experts=2, head_dim=8, intermediate_size_mlp=48),
    "cohere2": causal("Cohere2", sliding_window=6, pad_token_id=0),
    "olmo2": causal("Olmo2"),
    "starcoder2": causal("Starcoder2", sliding_window=9),
    "bert": Model("BertForMaskedLM", "BertConfig", SIZES, decodes=False),
    "modernbert": Model("ModernBertForMaskedLM", "ModernBertConfig", SIZES | {"local_attention": 8}, decodes=False),
}  # fmt: skip


def model_of(name: str) -> Any:
    made = MODELS[name]
    torch.manual_seed(0)
    config_class = getattr(transformers, made.config, None) or getattr(
        transformers, made.config.replace("Config", "TextConfig")
    )
    if name in ("gemma3", "llama4"):
        config_class = getattr(transformers, made.config.replace("Config", "TextConfig"))
    config = config_class(**made.sizes)
    return getattr(transformers, made.head)(config).eval()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The class of each layer that attncc computed: a model that never asks would pass every comparison."""
    seen: list[str] = []

    def counted(module: Any, *given: Any, **named: Any) -> Any:
        seen.append(type(module).__name__)
        return integration.attention(module, *given, **named)

    transformers.AttentionInterface.register(integration.NAME, counted)
    yield seen
    integration.register()


def by(model: Any, implementation: str, run: Callable[[Any], Any]) -> Any:
    model.set_attn_implementation(implementation)
    return run(model)


def ids_with_padding() -> tuple[Any, Any]:
    torch.manual_seed(1)
    ids = torch.randint(2, TOKENS, (BATCH, LENGTH))
    kept = torch.ones_like(ids)
    kept[0, :4] = 0
    return ids, kept


def assert_alike(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name: str, padded: bool, calls: list[str]) -> None:
    model = model_of(name)
    ids, kept = ids_with_padding()
    kept = kept if padded else torch.ones_like(kept)

    def run(model: Any) -> list[Any]:
        model.zero_grad()
        logits = model(input_ids=ids, attention_mask=kept).logits[kept.bool()]
        logits.square().mean().backward()
        return [logits.detach(), *(item.grad for item in model.parameters() if item.grad is not None)]

    found = by(model, "attncc", run)
    assert len(calls) >= model.config.num_hidden_layers
    assert_alike(found, by(model, "eager", run))


@pytest.mark.parametrize("name", [name for name, made in MODELS.items() if made.decodes])
def test_generated_tokens(name: str, calls: list[str]) -> None:
    model = model_of(name)
    ids, kept = ids_with_padding()

    def run(model: Any) -> Any:
        return model.generate(ids, attention_mask=kept, max_new_tokens=12, do_sample=False, pad_token_id=0)

    found = by(model, "attncc", run)
    assert len(calls) >= 12 * model.config.num_hidden_layers
    assert torch.equal(found, by(model, "eager", run))


# -------------------------------------------------------------------- encoders with decoders, images


def whisper() -> tuple[Any, dict[str, Any]]:
    config = transformers.WhisperConfig(
        vocab_size=TOKENS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=25,
        max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config), {"input_features": torch.randn(BATCH, 8, 50)}


def t5() -> tuple[Any, dict[str, Any]]:
    config = transformers.T5Config(
        vocab_size=TOKENS,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    ids, kept = ids_with_padding()
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids, "attention_mask": kept}


@pytest.mark.parametrize("make", [whisper, t5], ids=["whisper", "t5"])
def test_encoders_with_decoders(make: Callable[[], tuple[Any, dict[str, Any]]], calls: list[str]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    decoded = torch.randint(3, TOKENS, (BATCH, 7))

    def run(model: Any) -> list[Any]:
        model.zero_grad()
        logits = model(**inputs, decoder_input_ids=decoded).logits
        logits.square().mean().backward()
        return [logits.detach(), *(item.grad for item in model.parameters() if item.grad is not None)]

    def generate(model: Any) -> Any:
        return model.generate(**inputs, max_new_tokens=6, do_sample=False)

    found = by(model, "attncc", run)
    assert len(calls) == 2 + 2 * 2  # self-attention of both, and the decoder's of the encoder
    assert_alike(found, by(model, "eager", run))
    assert torch.equal(by(model, "attncc", generate), by(model, "eager", generate))


def test_images_and_text(calls: list[str]) -> None:
    torch.manual_seed(0)
    text = transformers.LlamaConfig(**GROUPED)
    vision = transformers.SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4
    )
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=5, vision_feature_select_strategy="full"
    )
    model = transformers.LlavaForConditionalGeneration(config).eval()
    ids = torch.randint(6, TOKENS, (1, 30))
    ids[0, 2:18] = 5  # the image's 16 patches
    inputs = {"input_ids": ids, "pixel_values": torch.randn(1, 3, 16, 16)}

    def run(model: Any) -> list[Any]:
        with torch.no_grad():
            return [model(**inputs).logits, model.generate(**inputs, max_new_tokens=6, do_sample=False, pad_token_id=0)]

    found = by(model, "attncc", run)
    assert {"SiglipAttention", "LlamaAttention"} <= set(calls)
    assert_alike(found, by(model, "eager", run))


# -------------------------------------------------------------------- caches, training


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_caches(name: str, kind: str, calls: list[str]) -> None:
    model = model_of(name)
    ids, kept = ids_with_padding()

    def run(model: Any) -> Any:
        return model.generate(
            ids, attention_mask=kept, max_new_tokens=9, do_sample=False, pad_token_id=0, cache_implementation=kind,
            disable_compile=True,
        )  # fmt: skip

    assert torch.equal(by(model, "attncc", run), by(model, "eager", run))
    assert calls


def test_a_longer_cache_compiles_nothing() -> None:
    model = model_of("llama")
    model.set_attn_implementation(integration.NAME)

    def generate(length: int, count: int) -> None:
        model.generate(torch.randint(2, TOKENS, (1, length)), max_new_tokens=count, do_sample=False, pad_token_id=0)

    generate(5, 3)
    traces = cache.traces
    generate(9, 20)
    assert cache.traces == traces


def test_packed_sequences() -> None:
    model = model_of("llama")
    ids = torch.randint(2, TOKENS, (1, 20))
    positions = torch.cat([torch.arange(n) for n in (8, 5, 7)])[None]

    def run(model: Any) -> list[Any]:
        return [model(input_ids=ids, position_ids=positions, use_cache=False).logits]

    assert_alike(by(model, "attncc", run), by(model, "eager", run))


def test_masks_as_tensors() -> None:
    model = model_of("llama")
    ids, _ = ids_with_padding()
    kept = torch.rand(BATCH, 1, LENGTH, LENGTH) < 0.5
    kept |= torch.eye(LENGTH, dtype=torch.bool)
    added = torch.zeros(kept.shape).masked_fill_(~kept, torch.finfo(torch.float32).min)
    found = by(model, "attncc", lambda model: [model(ids, attention_mask=item).logits for item in (kept, added)])
    expected = by(model, "eager", lambda model: [model(ids, attention_mask=added).logits] * 2)
    assert_alike(found, expected)


def test_gradient_checkpointing() -> None:
    model = model_of("llama").train()
    ids, kept = ids_with_padding()

    def gradients(model: Any) -> list[Any]:
        model.zero_grad()
        model(ids, attention_mask=kept).logits.square().mean().backward()
        return [item.grad for item in model.parameters()]

    expected = by(model, "attncc", gradients)
    model.gradient_checkpointing_enable()
    assert_alike(gradients(model), expected, 1e-7)


def test_dropout_is_drawn_anew_in_training() -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED | {"attention_dropout": 0.5}))
    model.set_attn_implementation(integration.NAME)
    ids, _ = ids_with_padding()
    with torch.no_grad():
        torch.manual_seed(0)
        first, second = model.train()(ids).logits, model(ids).logits
        torch.manual_seed(0)
        again = model(ids).logits
        calm = [model.eval()(ids).logits for _ in range(2)]
    assert not torch.equal(first, second) and torch.equal(first, again) and torch.equal(*calm)


# -------------------------------------------------------------------- refusals


def test_weights_are_refused() -> None:
    model = model_of("llama")
    query = torch.randn(1, 4, 5, 8)
    with pytest.raises(AttnccError, match=r"A714(.|\n)*output_attentions"):
        integration.attention(model, query, query, query, None, output_attentions=True)
