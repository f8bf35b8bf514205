"""attncc in transformers' models, against their own eager attention: logits, gradients, generated tokens.

The models are tiny and random; their attention is what theirs is, mask functions and caches included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch._dynamo.backends.debugging import aot_eager  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from transformers import StaticCache  # noqa: E402

from attncc.diagnostics import AttnccError  # noqa: E402
from attncc.flex import flex_spec  # noqa: E402
from attncc.flex.attention import cache  # noqa: E402
from attncc.integrations import transformers as integration  # noqa: E402
from attncc.integrations.mods import of_tensor, score_mod_of  # noqa: E402
from attncc.integrations.own_attention import has_its_own  # noqa: E402
from tests.unit.integrations.models import (  # noqa: E402
    BATCH,
    LENGTH,
    TOKENS,
    by,
    counted,
    ids_with_padding,
    layoutlm,
    llava,
    logits_and_gradients,
    models,
    t5,
    whisper,
)

integration.register()
MODELS = models()


@pytest.fixture
def calls() -> Iterator[list[str]]:
    with counted() as seen:
        yield seen


def assert_alike(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name: str, padded: bool, calls: list[str]) -> None:
    model = MODELS[name].made()
    ids, kept = ids_with_padding()
    kept = kept if padded else torch.ones_like(kept)

    def run(model: Any) -> Any:
        return logits_and_gradients(model, kept, input_ids=ids, attention_mask=kept)

    found = by(model, "attncc", run)
    assert len(calls) >= model.config.num_hidden_layers
    assert_alike(found, by(model, "eager", run))


@pytest.mark.parametrize("name", [name for name, made in MODELS.items() if made.decodes])
def test_generated_tokens(name: str, calls: list[str]) -> None:
    model = MODELS[name].made()
    ids, kept = ids_with_padding()

    def run(model: Any) -> Any:
        return model.generate(ids, attention_mask=kept, max_new_tokens=12, do_sample=False, pad_token_id=0)

    found = by(model, "attncc", run)
    assert len(calls) >= 12 * model.config.num_hidden_layers
    assert torch.equal(found, by(model, "eager", run))


# -------------------------------------------------------------------- encoders with decoders, images


@pytest.mark.parametrize("make", [whisper, t5], ids=["whisper", "t5"])
def test_encoders_with_decoders(make: Callable[[], tuple[Any, dict[str, Any]]], calls: list[str]) -> None:
    model, inputs = make()
    decoded = torch.randint(3, TOKENS, (BATCH, 7))

    def run(model: Any) -> Any:
        return logits_and_gradients(model, **inputs, decoder_input_ids=decoded)

    def generate(model: Any) -> Any:
        return model.generate(**inputs, max_new_tokens=6, do_sample=False)

    found = by(model, "attncc", run)
    assert len(calls) == 2 + 2 * 2  # self-attention of both, and the decoder's of the encoder
    assert_alike(found, by(model, "eager", run))
    assert torch.equal(by(model, "attncc", generate), by(model, "eager", generate))


def test_images_and_text(calls: list[str]) -> None:
    model, inputs = llava()

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
    model = MODELS[name].made()
    ids, kept = ids_with_padding()

    def run(model: Any) -> Any:
        return model.generate(
            ids, attention_mask=kept, max_new_tokens=9, do_sample=False, pad_token_id=0, cache_implementation=kind,
            disable_compile=True,
        )  # fmt: skip

    assert torch.equal(by(model, "attncc", run), by(model, "eager", run))
    assert calls


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
def test_a_static_cache_is_filled_in_parts_and_used_again(name: str) -> None:
    """It counts on in the tensor that it gives for the place of the first query, before layers ask for the mask."""
    model = MODELS[name].made()
    ids = torch.randint(2, TOKENS, (2, 11))

    def run(model: Any) -> list[Any]:
        cache, found = StaticCache(config=model.config, max_cache_len=16), []
        for parts in (((0, 4), (4, 9), (9, 10), (10, 11)), ((0, 11),)):
            for begin, end in parts:
                places = torch.arange(begin, end)[None]
                with torch.no_grad():
                    found.append(model(ids[:, begin:end], position_ids=places, past_key_values=cache).logits)
            cache.reset()
        return found

    assert_alike(by(model, "attncc", run), by(model, "eager", run))


def test_a_longer_cache_compiles_nothing() -> None:
    model = MODELS["llama"].made()
    model.set_attn_implementation(integration.NAME)

    def generate(length: int, count: int) -> None:
        model.generate(torch.randint(2, TOKENS, (1, length)), max_new_tokens=count, do_sample=False, pad_token_id=0)

    generate(5, 3)
    traces = cache.traces
    generate(9, 20)
    assert cache.traces == traces


def test_packed_sequences() -> None:
    model = MODELS["llama"].made()
    ids = torch.randint(2, TOKENS, (1, 20))
    positions = torch.cat([torch.arange(n) for n in (8, 5, 7)])[None]

    def run(model: Any) -> list[Any]:
        return [model(input_ids=ids, position_ids=positions, use_cache=False).logits]

    assert_alike(by(model, "attncc", run), by(model, "eager", run))


def test_masks_as_tensors() -> None:
    model = MODELS["llama"].made()
    ids, _ = ids_with_padding()
    kept = torch.rand(BATCH, 1, LENGTH, LENGTH) < 0.5
    kept |= torch.eye(LENGTH, dtype=torch.bool)
    added = torch.zeros(kept.shape).masked_fill_(~kept, torch.finfo(torch.float32).min)
    found = by(model, "attncc", lambda model: [model(ids, attention_mask=item).logits for item in (kept, added)])
    expected = by(model, "eager", lambda model: [model(ids, attention_mask=added).logits] * 2)
    assert_alike(found, expected)


def _added(kept: Any) -> Any:
    return torch.zeros(kept.shape).masked_fill_(~kept, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("alike", [(0,), (2,), (0, 2), (1, 2, 3), ()], ids=str)
def test_masks_and_biases_with_axes_of_one_entry(alike: tuple[int, ...]) -> None:
    """LayoutLM and Switch Transformers add [batch, 1, 1, kv_len]: all queries see the same keys."""
    shape = [1 if axis in alike else length for axis, length in enumerate((2, 4, 5, 7))]
    torch.manual_seed(0)
    query, key, bias = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(shape)
    kept = torch.rand(shape) < 0.6
    scores = query @ key.transpose(2, 3) / 8**0.5
    module = torch.nn.Module()
    cases = [
        ({"attention_mask": _added(kept)}, _added(kept)),
        ({"attention_mask": kept}, _added(kept)),
        ({"attention_mask": _added(kept), "position_bias": bias}, _added(kept) + bias),
    ]
    some = kept.expand(2, 4, 5, 7).any(3, keepdim=True).transpose(1, 2)  # rows of padding give 0
    for given, added in cases:
        found, _ = integration.attention(module, query, key, key, **{"attention_mask": None, **given})
        expected = ((scores + added).softmax(3) @ key).transpose(1, 2)
        assert_alike(found * some, expected * some)


def test_what_a_mask_of_floats_lowers_most_is_not_kept() -> None:
    """A row that meets such numbers alone in its first tiles would lose all digits of its scores on a GPU."""
    added = _added(torch.ones(1, 1, 1, 7, dtype=torch.bool))
    text = flex_spec(score_mod_of(None, added), mask_mod=of_tensor(added, causal=False))
    assert "keep if" in text and "> -60000.0" in text


@pytest.mark.parametrize("shape", [(2, 7), (2, 4, 5, 6), (2, 4, 9, 7), (3, 1, 1, 7), (2, 2, 5, 7)], ids=str)
def test_masks_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    query, key = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8)
    module = MODELS["llama"].made()
    for name in ("attention_mask", "position_bias"):
        with pytest.raises(AttnccError, match=r"A714.*LlamaForCausalLM(.|\n)*2 or 1"):
            integration.attention(module, query, key, key, **{"attention_mask": None, name: torch.zeros(shape)})


def test_encoders_that_make_their_own_mask(calls: list[str]) -> None:
    model, inputs = layoutlm()

    def run(model: Any) -> Any:
        return logits_and_gradients(model, inputs["attention_mask"], **inputs)

    found = by(model, "attncc", run)
    assert len(calls) == 2
    assert_alike(found, by(model, "eager", run))


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_gradient_checkpointing() -> None:
    model = MODELS["llama"].made().train()
    ids, kept = ids_with_padding()

    def gradients(model: Any) -> list[Any]:
        model.zero_grad()
        model(ids, attention_mask=kept).logits.square().mean().backward()
        return [item.grad for item in model.parameters()]

    expected = by(model, "attncc", gradients)
    model.gradient_checkpointing_enable()
    assert_alike(gradients(model), expected, 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_compiled_whole(name: str) -> None:
    """torch.compile keeps a padded model in one graph, forward and backward, and compiles nothing for other lengths."""
    model = MODELS[name].made()
    called_in_graphs: set[str] = set()

    def backend(graph: Any, examples: Any) -> Any:
        called_in_graphs.update(str(node.target) for node in graph.graph.nodes)
        return aot_eager(graph, examples)

    def run(called: Any, length: int) -> Any:
        ids, kept = (item[:, :length].contiguous() for item in ids_with_padding())
        logits, gradients = logits_and_gradients(called, kept, input_ids=ids, attention_mask=kept, use_cache=False)
        return [logits, *gradients.values()]

    lengths = LENGTH, 13, 17
    expected = by(model, "eager", lambda model: [run(model, length) for length in lengths])
    model.set_attn_implementation(integration.NAME)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    assert_alike([run(compiled, length) for length in lengths], expected)
    assert counters["stats"]["unique_graphs"] <= 2  # with sdpa too: one more once parameters have had a gradient
    assert "attncc_flex_attention" in called_in_graphs


def test_dropout_is_drawn_anew_in_training() -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**MODELS["llama"].sizes, attention_dropout=0.5))
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
    model = MODELS["llama"].made()
    query = torch.randn(1, 4, 5, 8)
    with pytest.raises(AttnccError, match=r"A714(.|\n)*output_attentions"):
        integration.attention(model, query, query, query, None, output_attentions=True)


@pytest.mark.parametrize("kind", ["bloom", "mpt", "doge"])
def test_models_that_compute_with_their_mask_are_refused_by_name(kind: str) -> None:
    """Bloom adds it to scores itself, MPT fills scores by it; Doge would drop it, and attend to all keys."""
    sizes = {"vocab_size": TOKENS, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
    config = transformers.AutoConfig.for_model(kind, **sizes, num_hidden_layers=1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.config._attn_implementation = integration.NAME  # past the check of models that are made
    ids, kept = ids_with_padding()
    with pytest.raises(AttnccError, match=f"A714(.|\n)*{kind}"):
        model(ids, attention_mask=kept)


@pytest.mark.parametrize("kind", ["deberta", "wavlm", "xlnet", "falcon", "gpt_neo", "data2vec-vision", "bloom"])
def test_models_that_never_ask_for_a_function_are_refused_by_name(kind: str) -> None:
    """Deberta, WavLM and XLNet would run their own attention, Falcon, GPT-Neo and Data2Vec raise a KeyError."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_layers": 1, "d_head": 2}
    sizes["attention_types"] = [[["global"], 1]]
    plain = transformers.AutoConfig.for_model(kind)
    given = {name: size for name, size in sizes.items() if hasattr(plain, name)}
    config = transformers.AutoConfig.for_model(kind, **given)
    with pytest.raises(AttnccError, match=rf"A714.*{kind} has an attention of its own(.|\n)*\"eager\""):
        transformers.AutoModel.from_config(config, attn_implementation=integration.NAME)


def test_a_model_around_others_with_its_own_attention_is_named() -> None:
    """Its parts may ask for a function, as BERT does in Grounding DINO."""
    text = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=TOKENS)
    image = transformers.SwinConfig(embed_dim=12, depths=[1, 1], num_heads=[1, 1], image_size=32, window_size=4)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 5, "num_feature_levels": 2}
    given = {"text_config": text.to_dict(), "backbone_config": image.to_dict(), **sizes}
    config = transformers.GroundingDinoConfig(encoder_attention_heads=2, decoder_attention_heads=2, **given)
    make = transformers.GroundingDinoModel._from_config
    with pytest.raises(AttnccError, match=r"A714.*grounding-dino has") as caught:
        make(deepcopy(config), attn_implementation=integration.NAME)
    assert '"text_config": "attncc"' in str(caught.value)
    model = make(config, attn_implementation={"text_config": integration.NAME})
    assert model.config.text_config._attn_implementation == integration.NAME


def test_a_part_with_its_own_attention_is_named() -> None:
    """An encoder of images beside a decoder: transformers takes an implementation for each part."""
    encoder = transformers.Swinv2Config(image_size=32, embed_dim=16, depths=[1], num_heads=[2], window_size=4)
    decoder = transformers.GPT2Config(vocab_size=TOKENS, n_embd=32, n_layer=1, n_head=2)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    make = transformers.VisionEncoderDecoderModel._from_config
    with pytest.raises(AttnccError, match=r'A714.*swinv2 has(.|\n)*"text_config": "attncc", "vision_config": "eager"'):
        make(deepcopy(config), attn_implementation=integration.NAME)
    model = make(config, attn_implementation={"encoder": "eager", "decoder": integration.NAME})
    assert model.decoder.config._attn_implementation == integration.NAME


def test_a_model_in_a_file_of_its_own_is_as_the_one_that_it_extends() -> None:
    class Mine(transformers.LlamaForCausalLM):
        pass

    class Own(transformers.DebertaModel):
        pass

    class Part(transformers.PreTrainedModel):  # no attention, as in models around other models
        pass

    assert [has_its_own(model) for model in (Mine, Own, Part)] == [False, True, False]


def test_a_mask_in_a_list_is_refused_by_name() -> None:
    """T5Gemma 2 concatenates the masks of both its kinds of keys."""
    mask = integration.mask(1, 5, 5, config=transformers.LlamaConfig())
    for concatenated in (lambda: torch.cat([mask, mask], dim=-1), lambda: torch.where(torch.ones(5) > 0, mask, 0)):
        with pytest.raises(AttnccError, match=r"A714.*llama computes with its mask"):
            concatenated()


def test_a_mask_of_fewer_keys_is_refused() -> None:
    query = torch.randn(1, 4, 5, 8)
    mask = integration.mask(1, 5, 5, config=transformers.LlamaConfig())
    model = MODELS["llama"].made()
    with pytest.raises(AttnccError, match=r"A714.*llama adds keys"):
        integration.attention(model, query, *[torch.cat([query, query], 2)] * 2, mask)


def test_continuous_batching_is_refused() -> None:
    """transformers has a list of the implementations that read its paged cache."""
    model = MODELS["llama"].made()
    model.set_attn_implementation(integration.NAME)
    with pytest.raises(ValueError, match="Implementation attncc is not supported for continuous batching"):
        model.generate_batch([[3, 4, 5]], max_new_tokens=2)
    query = torch.randn(1, 4, 5, 8)
    with pytest.raises(AttnccError, match=r"A714.*paged"):
        integration.attention(model, query, query, query, None, cache=object())
