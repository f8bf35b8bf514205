"""Tiny random models of transformers, whose attention is what theirs is: mask functions and caches included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from attncc.integrations import transformers as integration

LENGTH, BATCH, TOKENS = 21, 2, 97
WINDOW = 7  # one for all, so that models share kernels
PATCHES = 16  # of an image


@dataclass(frozen=True)
class Model:
    """A model and what its config says."""

    head: str  # the class
    config: str
    sizes: dict[str, Any]
    decodes: bool = True

    def made(self) -> Any:
        """With weights of seed 0, to be evaluated."""
        torch.manual_seed(0)
        model = getattr(transformers, self.head)(getattr(transformers, self.config)(**self.sizes))
        model.set_experts_implementation("eager")  # any width, in any dtype
        return model.eval()


def _sizes(head_dim: int) -> dict[str, Any]:
    return {
        "vocab_size": TOKENS, "hidden_size": 4 * head_dim, "intermediate_size": 6 * head_dim, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": None,
    }  # fmt: skip


def models(head_dim: int = 8) -> dict[str, Model]:
    """Those of one stack of layers, by name. Where there are experts, each token asks all: no rounding picks others."""
    sizes = _sizes(head_dim)

    def causal(name: str, config: str = "", **own: Any) -> Model:
        own = sizes | {"num_key_value_heads": 2} | own
        return Model(f"{name}ForCausalLM", config or f"{name}Config", own)

    wide = {"head_dim": head_dim}
    sliding = {"sliding_window": WINDOW}
    return {
        "llama": causal("Llama"),
        "mistral": causal("Mistral", **sliding),
        "qwen3": causal("Qwen3", **wide),
        "gemma2": causal("Gemma2", attn_logit_softcapping=20.0, query_pre_attn_scalar=head_dim, **wide, **sliding),
        "gemma3": causal("Gemma3", "Gemma3TextConfig", **wide, **sliding),
        "gpt_oss": causal("GptOss", num_local_experts=2, num_experts_per_tok=2, **wide, **sliding),
        "phi": causal("Phi"),
        "deepseek_v3": causal(
            "DeepseekV3", num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=head_dim,
            qk_nope_head_dim=head_dim, v_head_dim=head_dim * 3 // 2, n_routed_experts=4, n_group=1, topk_group=1,
            num_experts_per_tok=4, moe_intermediate_size=16,
        ),
        "llama4": causal(
            "Llama4", "Llama4TextConfig", attention_chunk_size=8, num_local_experts=2, num_experts_per_tok=2,
            intermediate_size_mlp=6 * head_dim, **wide,
        ),
        "cohere2": causal("Cohere2", **sliding),
        "olmo2": causal("Olmo2"),
        "starcoder2": causal("Starcoder2", **sliding),
        "bert": Model("BertForMaskedLM", "BertConfig", sizes, decodes=False),
        "modernbert": Model("ModernBertForMaskedLM", "ModernBertConfig", sizes | {"local_attention": 8}, decodes=False),
    }  # fmt: skip


def ids_with_padding() -> tuple[Any, Any]:
    """Token ids and which of them count, [batch, length]: the first sequence begins with padding."""
    torch.manual_seed(1)
    ids = torch.randint(2, TOKENS, (BATCH, LENGTH))
    kept = torch.ones_like(ids)
    kept[0, :4] = 0
    return ids, kept


# -------------------------------------------------------------------- encoders with decoders, images


def whisper(head_dim: int = 8) -> tuple[Any, dict[str, Any]]:
    """The model, and the inputs of its encoder."""
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=TOKENS, d_model=4 * head_dim, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=25,
        max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config).eval(), {"input_features": torch.randn(BATCH, 8, 50)}


def t5(head_dim: int = 8) -> tuple[Any, dict[str, Any]]:
    """The model, and the inputs of its encoder."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=TOKENS, d_model=4 * head_dim, d_kv=head_dim, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    ids, kept = ids_with_padding()
    return transformers.T5ForConditionalGeneration(config).eval(), {"input_ids": ids, "attention_mask": kept}


def llava(head_dim: int = 8) -> tuple[Any, dict[str, Any]]:
    """The model, and its inputs: an image in a text."""
    torch.manual_seed(0)
    text = transformers.LlamaConfig(**_sizes(head_dim), num_key_value_heads=2)
    vision = transformers.SiglipVisionConfig(
        hidden_size=4 * head_dim, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16,
        patch_size=4,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=5, vision_feature_select_strategy="full"
    )
    model = transformers.LlavaForConditionalGeneration(config).eval()
    ids = torch.randint(6, TOKENS, (1, 30))
    ids[0, 2 : 2 + PATCHES] = 5
    return model, {"input_ids": ids, "pixel_values": torch.randn(1, 3, 16, 16)}


def layoutlm(head_dim: int = 8) -> tuple[Any, dict[str, Any]]:
    """A model that makes its mask itself, of floats [batch, 1, 1, length], and its inputs."""
    torch.manual_seed(0)
    sizes = {"intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LayoutLMConfig(vocab_size=TOKENS, hidden_size=4 * head_dim, **sizes)
    ids, kept = ids_with_padding()
    return transformers.LayoutLMForMaskedLM(config).eval(), {"input_ids": ids, "attention_mask": kept}


# -------------------------------------------------------------------- runs


@contextmanager
def counted() -> Iterator[list[str]]:
    """The class of each layer that attncc computed: a model that never asks would pass every comparison."""
    seen: list[str] = []

    def attention(module: Any, *given: Any, **named: Any) -> Any:
        seen.append(type(module).__name__)
        return integration.attention(module, *given, **named)

    integration.register()
    transformers.AttentionInterface.register(integration.NAME, attention)
    yield seen
    integration.register()


def by(model: Any, implementation: str, run: Callable[[Any], Any]) -> Any:
    """What a model gives with an attention. Each part is told: transformers 5.17 tells T5's stacks nothing."""
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.set_attn_implementation(implementation)
    return run(model)


def logits_and_gradients(model: Any, kept: Any = None, **inputs: Any) -> tuple[Any, dict[str, Any]]:
    """The logits (those of tokens that are `kept`), and the gradients of their mean square by parameter."""
    model.zero_grad()
    logits = model(**inputs).logits
    logits = logits if kept is None else logits[kept.bool()]
    logits.float().square().mean().backward()
    return logits.detach(), {name: item.grad for name, item in model.named_parameters() if item.grad is not None}
