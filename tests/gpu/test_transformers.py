"""attncc in transformers' models on a GPU, in bf16, beside their own eager attention in bf16 and in fp32.

The models are those of the CPU's tests, with head dim 64. Their errors are held against those of eager attention.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from inspect import signature
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.gpu

from packaging.version import Version  # noqa: E402
from transformers.masking_utils import create_chunked_causal_mask as CHUNKED  # noqa: E402, N812

from attncc.integrations import transformers as integration  # noqa: E402
from tests.unit.integrations import models  # noqa: E402  (needs both)

DEVICE, DIM = "cuda", 64
ULP = 2.0**-8  # of bf16
NEW = 6  # tokens
MODELS = models.models(DIM)
DECODERS = [name for name, made in MODELS.items() if made.decodes]
OTHERS = {"whisper": models.whisper, "t5": models.t5, "llava": models.llava}


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    integration.register()


def in_both(model: Any) -> tuple[Any, Any]:
    """A model in bf16, and one in fp32 of the same rounded weights."""
    rounded = model.to(DEVICE, torch.bfloat16)
    return rounded, deepcopy(rounded).float()


def moved(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {name: item.to(DEVICE, dtype if item.is_floating_point() else None) for name, item in inputs.items()}


def compare(model: Any, inputs: dict[str, Any], kept: Any = None) -> None:
    """Logits and gradients are hardly farther from fp32 than eager attention's in bf16, on average."""
    rounded, exact = in_both(model)
    run = partial(models.logits_and_gradients, kept=kept)
    with models.counted() as calls:
        found = models.by(rounded, "attncc", lambda model: run(model, **moved(inputs, torch.bfloat16)))
    assert len(calls) >= 2  # layers
    found = found[0], {name: item.clone() for name, item in found[1].items()}
    theirs = models.by(rounded, "eager", lambda model: run(model, **moved(inputs, torch.bfloat16)))
    wanted = models.by(exact, "eager", lambda model: run(model, **moved(inputs, torch.float32)))
    assert_near(found[0], theirs[0], wanted[0], "logits", 0.0)
    assert found[1].keys() == theirs[1].keys() == wanted[1].keys()
    # Some are 0 but for rounding: that of a bias of keys, which the softmax takes out.
    least = ULP * sum(float(item.abs().mean()) for item in wanted[1].values()) / len(wanted[1])
    for name, gradient in wanted[1].items():
        assert_near(found[1][name], theirs[1][name], gradient, name, least)


def assert_near(found: Any, theirs: Any, exact: Any, what: str, least: float) -> None:
    error, limit = ((item.float() - exact).abs().mean() for item in (found, theirs))
    size = exact.abs().mean()
    assert error <= 2 * limit + ULP * size + least, (what, float(error), float(limit), float(size))


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name: str) -> None:
    ids, kept = (item.to(DEVICE) for item in models.ids_with_padding())
    compare(MODELS[name].made(), {"input_ids": ids, "attention_mask": kept}, kept)


def test_logits_and_gradients_with_masks_of_their_own() -> None:
    model, inputs = models.layoutlm(DIM)
    compare(model, inputs, inputs["attention_mask"].to(DEVICE))


@pytest.mark.parametrize("lowest", [torch.finfo(torch.bfloat16).min, -65504.0])
def test_masks_of_floats_over_whole_tiles(lowest: float) -> None:
    """Padding on the left that is longer than a tile: rows begin with scores as low as they can be."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 300, DIM, device=DEVICE, dtype=torch.bfloat16)
    mask = torch.zeros(2, 1, 1, 300, device=DEVICE, dtype=torch.bfloat16)
    mask[0, ..., :213] = lowest
    found, _ = integration.attention(torch.nn.Module(), query, key, value, mask)
    exact = (query.double() @ key.double().mT / DIM**0.5 + mask.double()).softmax(-1) @ value.double()
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    assert_near(found, theirs.transpose(1, 2), exact.transpose(1, 2).float(), "out", 0.0)


@pytest.mark.parametrize("name", OTHERS)
def test_logits_and_gradients_of_two_stacks(name: str) -> None:
    model, inputs = OTHERS[name](DIM)
    decoded = {} if name == "llava" else {"decoder_input_ids": torch.randint(3, models.TOKENS, (models.BATCH, 7))}
    compare(model, inputs | decoded)


def assert_greedy(rounded: Any, exact: Any, first: int, inputs: Callable[[Any], Any], tokens: Any) -> None:
    """Each token from the `first` on has about the greatest logit of its place, as fp32 sees it: bf16 can't tell
    closer ones apart."""
    with torch.no_grad():
        wanted = models.by(exact, "eager", lambda model: model(**inputs(torch.float32)).logits)
        theirs = models.by(rounded, "eager", lambda model: model(**inputs(torch.bfloat16)).logits)
    logits, chosen = wanted[:, first - 1 : -1], tokens[:, first:, None]
    margin = 4 * float((theirs[:, first - 1 : -1].float() - logits).abs().max())
    short = logits.amax(-1) - logits.gather(-1, chosen)[..., 0]
    assert float(short.max()) <= margin < float(logits.std()), (float(short.max()), margin, float(logits.std()))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_generated_tokens(name: str, cache: str) -> None:
    if name == "llama4" and cache == "static" and "block_sequence_ids" not in signature(CHUNKED).parameters:
        pytest.skip("this transformers hands its chunked mask an argument that it doesn't take, whatever the attention")
    rounded, exact = in_both(MODELS[name].made())
    ids, kept = (item.to(DEVICE) for item in models.ids_with_padding())
    how = {"do_sample": False, "pad_token_id": 0, "cache_implementation": cache, "disable_compile": True}
    with models.counted() as calls:
        tokens = models.by(
            rounded, "attncc", lambda model: model.generate(ids, attention_mask=kept, max_new_tokens=NEW, **how)
        )
    assert len(calls) == NEW * rounded.config.num_hidden_layers
    whole = torch.cat([kept, kept.new_ones(models.BATCH, NEW)], 1)
    inputs = {"input_ids": tokens, "attention_mask": whole}
    assert_greedy(rounded, exact, ids.shape[1], partial(moved, inputs), tokens)


@pytest.mark.parametrize("name", ["whisper", "t5"])
def test_generated_tokens_of_two_stacks(name: str) -> None:
    model, inputs = OTHERS[name](DIM)
    rounded, exact = in_both(model)
    given = moved(inputs, torch.bfloat16)
    run = partial(model.generate, max_new_tokens=NEW, do_sample=False, return_dict_in_generate=False)
    tokens = models.by(rounded, "attncc", lambda _: run(**given))
    if name == "whisper":  # it leaves out what begins each text
        tokens = torch.cat([tokens.new_full((models.BATCH, 1), model.config.decoder_start_token_id), tokens], 1)
    assert_greedy(rounded, exact, 1, partial(moved, inputs | {"decoder_input_ids": tokens}), tokens)


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.21"), reason="continuous batching needs 5.21")
@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss"])
def test_continuous_batching(name: str) -> None:
    rounded, exact = in_both(MODELS[name].made())
    prompts = [torch.randint(2, models.TOKENS, (length,)).tolist() for length in (5, 1, 30, 13)]
    config = transformers.GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=-1)
    experts = name == "gpt_oss"  # whose own eager code asks the GPU for sizes, which no graph can
    # Blocks for these prompts alone: by default the cache takes most of the memory that other tests leave.
    batching = transformers.ContinuousBatchingConfig(use_cuda_graph=not experts, num_blocks=16, max_batch_tokens=64)

    def run(model: Any) -> Any:
        with integration.paged(model):
            return model.generate_batch(prompts, generation_config=config, continuous_batching_config=batching)

    found = models.by(rounded, "attncc", run)
    assert all(one.error is None for one in found.values()), [one.error for one in found.values()]
    for prompt, key in zip(prompts, sorted(found), strict=True):
        tokens = torch.tensor([prompt + found[key].generated_tokens], device=DEVICE)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        assert_greedy(rounded, exact, len(prompt), partial(moved, inputs), tokens)
