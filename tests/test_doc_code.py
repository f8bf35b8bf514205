"""Every block of Python in README.md and docs/ runs on the CPU, or `NOT_RUN` says why not.

A setting gives a block the names that its page speaks of, and checks what came out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.kernels.candidates import make_plan

ROOT = Path(__file__).resolve().parent.parent
Names = dict[str, Any]
Setting = Callable[[pytest.MonkeyPatch, Path], Iterator[Names]]  # yields names; goes on when the block has run

NOT_RUN = {
    ("docs/packages.md", 1): "needs a built repository and `kernels`: tests/unit/package/test_hf_kernel.py loads one",
    ("docs/distributed.md", 1): "needs several processes: tests/unit/distributed/test_sharing.py has them",
    ("docs/distributed.md", 2): "needs several processes: tests/unit/distributed/test_decoding.py has them",
    ("docs/serving.md", 7): "records a CUDA graph: tests/gpu/test_append.py does so",
}

BIASED = """attn 1
variant biased {
    input slope: f32[head] learnable
    input cap: f32 learnable
    input rate: f32
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
    score = cap * tanh(score / cap)
    dropout rate
}
"""
SLOPED = BIASED.replace("    input cap: f32 learnable\n    input rate: f32\n", "").split("    score = cap")[0] + "}\n"


def blocks() -> dict[tuple[str, int], str]:
    """By page and number on it, from 1."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        texts = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
        found |= {(page.relative_to(ROOT).as_posix(), number): text for number, text in enumerate(texts, 1)}
    return found


BLOCKS = blocks()


def torch_qkv(heads: int, length: int, head_dim: int = 128, kv_heads: int | None = None, batch: int = 1) -> Names:
    torch = pytest.importorskip("torch")
    shapes = {"q": heads, "k": kv_heads or heads, "v": kv_heads or heads}
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(batch, count, length, head_dim, generator=generator).bfloat16()
        for name, count in shapes.items()
    }


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def documents_both_ways(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    """The README's two blocks compute the same. torch.compile would only be slow here."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = 128
    doc = torch.arange(length, dtype=torch.int32) // 40
    eager = SimpleNamespace(compile=lambda function: function)
    masks = {"create_block_mask": lambda *sizes: create_block_mask(*sizes, device="cpu")}
    names = torch_qkv(2, length) | masks | {"torch": eager, "flex_attention": flex_attention, "doc": doc, "S": length}
    yield names
    own = names | {"attncc": attncc, "doc": doc[None]}
    exec(BLOCKS["README.md", 2], own)
    torch.testing.assert_close(own["out"], names["out"], atol=2e-2, rtol=2e-2)


def documents(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    names = torch_qkv(2, 64) | {"attncc": attncc, "doc": torch.zeros(1, 64, dtype=torch.int32)}
    yield names
    assert names["out"].shape == names["q"].shape


def alibi_documents(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    pytest.importorskip("torch")
    names: Names = {}  # it can be copied as it stands
    yield names
    assert names["out"].shape == names["q"].grad.shape == names["q"].shape == (1, 8, 300, 128)


def built_package(monkeypatch: pytest.MonkeyPatch, _: Path) -> Iterator[Names]:
    """A kernel stands for the package's function, which takes the same arguments."""
    torch = pytest.importorskip("torch")
    package = ModuleType("generated")
    package.alibi_documents = attncc.compile("alibi_documents", dtype="bf16", head_dim=128)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "generated", package)
    names = torch_qkv(2, 40) | {"slope": torch.ones(2), "doc": torch.zeros(1, 40, dtype=torch.int32)}
    yield names
    assert names["lse"].shape == (1, 2, 40)


def gradients(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    kernel = attncc.compile(SLOPED, dtype="fp32", head_dim=16)
    arrays = {name: random(1, 2, 40, 16) for name in ("q", "k", "v", "dout")}
    names = {"kernel": kernel, "slope": random(2), **arrays}
    yield names
    assert names["grads"].inputs["slope"].shape == (2,)


def recorded(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    kernel = attncc.compile(SLOPED, dtype="bf16", head_dim=128)
    names = torch_qkv(2, 40) | {"kernel": kernel, "slope": torch.ones(2, requires_grad=True)}
    names["q"].requires_grad_()
    yield names
    assert names["q"].grad is not None and names["slope"].grad.shape == (2,)


def module(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    names = torch_qkv(8, 40) | {"torch": torch, "kernel": attncc.compile(BIASED, dtype="bf16", head_dim=128)}
    yield names
    assert {name for name, _ in names["attention"].named_parameters()} == {"slope", "cap"}


def counted(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    plan = make_plan(attncc.parse("causal").variant, dtype="fp32", head_dim=16, value_head_dim=16, target="sm_90a")
    names = {"plan": plan} | {name: random(1, 1, 200, 16) for name in ("q", "k", "v")}
    yield names
    assert names["result"].traffic.total > sum(names["result"].traffic.reads.values()) > 0


def in_jax(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    jax = pytest.importorskip("jax")
    arrays = {name: jax.numpy.asarray(random(1, 40, 2, 128), "bfloat16") for name in ("q", "k", "v")}
    names = {**arrays, "slope": jax.numpy.ones(2)}
    yield names
    assert [item.shape for item in names["gradients"]] == [names["q"].shape] * 3


def sharded(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    """On the devices that there are; tests/unit/integrations/test_jax.py has several."""
    jax = pytest.importorskip("jax")
    import attncc.jax

    attention = attncc.jax.wrap(attncc.compile("alibi", dtype="bf16", head_dim=128))
    arrays = {name: jax.numpy.asarray(random(2, 40, 2, 128), "bfloat16") for name in ("q", "k", "v")}
    names = {"jax": jax, "attention": attention, "slope": jax.numpy.ones(2), **arrays}
    yield names
    whole = attention(*arrays.values(), slope=names["slope"], layout="bshd")
    np.testing.assert_array_equal(np.asarray(names["out"], np.float32), np.asarray(whole, np.float32))


def one_changed_line(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import create_block_mask

    def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return q_idx >= kv_idx

    def alibi(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score - 0.1 * (q_idx - kv_idx)

    block_mask = create_block_mask(causal, None, None, 128, 128, device="cpu")
    names = torch_qkv(2, 128) | {"alibi": alibi, "causal": causal, "block_mask": block_mask}
    yield names
    assert names["lse"].shape == (1, 2, 128)


def transformers_model(_: pytest.MonkeyPatch, folder: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 16}
    config = transformers.LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    names = {"AutoModelForCausalLM": transformers.AutoModelForCausalLM, "name": folder}
    yield names
    assert names["model"](torch.arange(9)[None]).logits.shape == (1, 9, 16)


def continuous_batching(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", "5.21")
    from attncc.integrations import transformers as attncc_transformers

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 16}
    config = transformers.LlamaConfig(num_attention_heads=2, num_key_value_heads=1, **sizes)
    model = transformers.LlamaForCausalLM(config)
    names: Names = {"model": model, "attncc_transformers": attncc_transformers, "prompts": [[3, 4, 5], [6]]}
    model.generation_config.max_new_tokens = 3
    model.generation_config.eos_token_id = -1
    yield names
    assert [len(answer.generated_tokens) for answer in names["answers"].values()] == [3, 3]


def mask_function(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    names: Names = {}
    yield names
    mask = names["documents"](1024)
    assert mask(0, 0, torch.tensor(7), torch.tensor(6)) and not mask(0, 0, torch.tensor(7), torch.tensor(4))


def chosen_tiles(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    names: Names = {}
    yield names
    mask = names["tiles"](torch.tensor([[[[0, 3]]]]), 16)
    assert mask(0, 0, torch.tensor(5), torch.tensor(50)) and not mask(0, 0, torch.tensor(5), torch.tensor(20))


def paged_cache(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    pytest.importorskip("torch")
    names: Names = {}
    yield names
    steps = [torch_qkv(32, 1, kv_heads=8, batch=8) for _ in range(2)]
    outs = [names["step"](*arrays.values()) for arrays in steps]
    assert [tuple(out.shape) for out in outs] == [(8, 32, 1, 128)] * 2
    assert names["lengths"].tolist() == [2] * 8 and names["k_pool"][0].count_nonzero() > 0


def cache_of_8_bits(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    """The new key is the last of each sequence, beside keys and values of 0."""
    torch = pytest.importorskip("torch")
    names = torch_qkv(32, 1, kv_heads=8, batch=2)
    yield names
    written = names["v_pool"][[1, 20], :, [35, 36]].float() * names["v_scale"][[1, 20], :, None]
    torch.testing.assert_close(written, names["v"][:, :, 0].float().clamp(-3, 3), atol=0.013, rtol=0)
    keys = names["k_pool"][[1, 20], :, [35, 36]].float() * 4 / 127
    scores = (names["q"][:, :, 0].float() * keys.repeat_interleave(4, 1)).sum(-1) / 128**0.5
    weights = scores.exp() / (scores.exp() + names["lengths"][:, None] - 1)
    expected = weights[..., None] * written.repeat_interleave(4, 1)
    torch.testing.assert_close(names["out"][:, :, 0].float(), expected, atol=5e-3, rtol=2e-2)


def static_cache(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    arrays = torch_qkv(2, 64)
    caches = {"k_cache": arrays["k"], "v_cache": arrays["v"], "q": arrays["q"][:, :, :1]}
    kernel = attncc.compile("causal", dtype="bf16", head_dim=128)
    where = {"cache_position": torch.tensor([40]), "lengths": torch.tensor([41], dtype=torch.int32)}
    names = {"kernel": kernel, **caches, **where}
    yield names
    torch.testing.assert_close(names["out"], kernel(caches["q"], caches["k_cache"], caches["v_cache"], q_offset=40))


def chunks(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    arrays = torch_qkv(2, 16, batch=4)
    ints = {"starts": [0, 5, 6], "lengths": [20, 30], "table": [[0, 1], [2, 3]]}
    names = {name: torch.tensor(value, dtype=torch.int32) for name, value in ints.items()}
    names |= {"q": torch_qkv(2, 6)["q"][0], "k_pool": arrays["k"], "v_pool": arrays["v"]}
    names["kernel"] = attncc.compile("causal", dtype="bf16", head_dim=128)
    yield names
    assert names["out"].shape == (2, 6, 128)


def shared_prefix(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    arrays = torch_qkv(2, 8192, batch=6)
    ints = {"lengths": [32770, 40000], "table": [[0, 3, 2, 1, 4], [0, 3, 2, 1, 5]]}
    names: Names = {name: torch.tensor(value, dtype=torch.int32) for name, value in ints.items()}
    names |= {"q": torch_qkv(2, 1, batch=2)["q"], "k_pool": arrays["k"], "v_pool": arrays["v"]}
    names["kernel"] = attncc.compile("causal", dtype="bf16", head_dim=128)
    yield names
    without = names["kernel"](
        names["q"], names["k_pool"], names["v_pool"], kv_lens=names["lengths"], block_table=names["table"]
    )
    assert torch.equal(names["out"], without)


def latents(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    torch = pytest.importorskip("torch")
    rows = torch.randn(4, 1, 16, 576, dtype=torch.bfloat16)
    ints = {"lengths": [20, 30], "table": [[0, 1], [2, 3]]}
    names: Names = {name: torch.tensor(value, dtype=torch.int32) for name, value in ints.items()}
    names |= {"attncc": attncc, "q": torch.randn(2, 128, 1, 576, dtype=torch.bfloat16), "pool": rows}
    names["cache"] = rows.reshape(2, 1, 32, 576)
    yield names
    apart = names["mla"](names["q"], names["cache"], names["cache"][..., :512], kv_lens=names["lengths"])
    assert torch.equal(names["out"], apart) and apart.shape == (2, 128, 1, 512)


def drafted_tree(_: pytest.MonkeyPatch, __: Path) -> Iterator[Names]:
    names: Names = {}
    yield names
    seen = [*range(50), 50, 51, 53]  # the context, and of the nodes 0, 1 and 3
    q, k, v = names["q"][0, 5, 3], names["k"][0, 1, seen], names["v"][0, 1, seen]
    weights = np.exp(k @ q / 8)
    np.testing.assert_allclose(names["out"][0, 5, 3], weights @ v / weights.sum(), atol=1e-5)


SETTINGS: dict[tuple[str, int], Setting] = {
    ("README.md", 1): documents_both_ways,
    ("README.md", 2): documents,
    ("README.md", 3): alibi_documents,
    ("README.md", 4): built_package,
    ("docs/backward.md", 1): gradients,
    ("docs/backward.md", 2): recorded,
    ("docs/backward.md", 3): module,
    ("docs/io-analysis.md", 1): counted,
    ("docs/jax.md", 1): in_jax,
    ("docs/jax.md", 2): sharded,
    ("docs/migration.md", 1): one_changed_line,
    ("docs/migration.md", 2): transformers_model,
    ("docs/migration.md", 3): continuous_batching,
    ("docs/migration.md", 4): mask_function,
    ("docs/migration.md", 5): chosen_tiles,
    ("docs/serving.md", 1): paged_cache,
    ("docs/serving.md", 2): cache_of_8_bits,
    ("docs/serving.md", 3): static_cache,
    ("docs/serving.md", 4): chunks,
    ("docs/serving.md", 5): drafted_tree,
    ("docs/serving.md", 6): latents,
    ("docs/serving.md", 8): shared_prefix,
}


def test_each_block_is_run_or_has_a_reason() -> None:
    assert sorted(BLOCKS) == sorted([*SETTINGS, *NOT_RUN])


@pytest.mark.filterwarnings("ignore:.*flex_attention called without")
@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: f"{block[0]}-{block[1]}")
def test_it_runs(block: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting = SETTINGS[block](monkeypatch, tmp_path)
    names = next(setting)
    exec(BLOCKS[block].replace('device="cuda"', 'device="cpu"'), names)
    assert next(setting, None) is None
