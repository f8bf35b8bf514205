"""Further decoders of transformers, one tiny random model of each, with padding: beside their own eager attention."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from attncc.integrations import transformers as integration  # noqa: E402
from tests.unit.integrations.models import TOKENS, by, counted, ids_with_padding, logits_and_gradients  # noqa: E402

pytestmark = pytest.mark.slow

NAMES = [
    "afmoe", "apertus", "arcee", "biogpt", "bitnet", "codegen", "cohere", "cwm", "deepseek_v2", "diffllama",
    "ernie4_5", "exaone4", "flex_olmo", "gemma", "glm4", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "granite",
    "helium", "hunyuan_v1_dense", "jetmoe", "lfm2", "minimax", "mixtral", "moshi", "nanochat", "nemotron", "olmo3",
    "olmo_hybrid", "opt", "persimmon", "phi3", "qwen2", "roberta", "seed_oss", "smollm3", "stablelm", "vaultgemma",
]  # fmt: skip

# What configs call their sizes; each takes those that it has.
SIZES = {
    "vocab_size": TOKENS, "hidden_size": 64, "n_embd": 64, "d_model": 64, "word_embed_proj_dim": 64,
    "intermediate_size": 64, "n_inner": 64, "ffn_dim": 64, "moe_intermediate_size": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "num_attention_heads": 4, "n_head": 4,
    "num_key_value_heads": 2, "head_dim": 16, "rotary_dim": 8, "max_position_embeddings": 128, "n_positions": 128,
    "sliding_window": 8, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 4,
    "moe_num_experts": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def config(name: str) -> Any:
    plain = transformers.AutoConfig.for_model(name)
    sizes = {key: size for key, size in SIZES.items() if hasattr(plain, key)}
    if name == "deepseek_v2":  # its heads share one latent vector, not keys
        sizes |= {"num_key_value_heads": 4, "head_dim": 8}
    return transformers.AutoConfig.for_model(name, **sizes)


@pytest.mark.parametrize("name", NAMES)
def test_logits_gradients_and_tokens(name: str) -> None:
    assert name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(deepcopy(config(name))).eval()
    ids, kept = ids_with_padding()

    def run(model: Any) -> Any:
        with torch.no_grad():
            tokens = model.generate(ids, attention_mask=kept, max_new_tokens=4, do_sample=False, eos_token_id=None)
        return logits_and_gradients(model, kept, input_ids=ids, attention_mask=kept), tokens

    with counted() as calls:
        found = by(model, integration.NAME, run)
    assert len(calls) >= 2
    expected = by(model, "eager", run)
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-5)
