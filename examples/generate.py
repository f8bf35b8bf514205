"""Generates text with a small random transformer over a paged cache: the same tokens as without any cache.

    python examples/generate.py            # seconds on a CPU; a GPU, if there is one
    python examples/generate.py --steps 60 --page 16

Prompts of different lengths are packed into one call (cu_seqlens_q). Then each step brings one token a sequence. Keys
and values lie in pages of a pool, in any order: `kv_lens` and `block_table` say where. A call rotates queries and new
keys and writes these into their pages first. The mask is a sliding window, so that old pages are never read again. On a
GPU one CUDA graph serves all steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import attncc

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS = 61, 128, 2, 4, 2
HEAD_DIM, WINDOW = WIDTH // HEADS, 24
PROMPTS = (5, 17, 1, 30)  # tokens

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # layer; q, k and v [heads, tokens, head_dim], not rotated


@dataclass
class Cache:
    """Pages of keys and values for each layer, and which of them a sequence has."""

    keys: list[Tensor]  # for each layer a pool [pages, kv_heads, page, head_dim]
    values: list[Tensor]
    table: Tensor  # int32 [batch, most pages]
    lengths: Tensor  # int32 [batch], the keys that are in use

    @classmethod
    def empty(cls, batch: int, room: int, page: int, device: str) -> Cache:
        blocks = -(-room // page)
        shape = (batch * blocks, KV_HEADS, page, HEAD_DIM)
        pools = [[torch.full(shape, torch.nan, device=device) for _ in range(LAYERS)] for _ in range(2)]
        pages = torch.randperm(batch * blocks, generator=torch.Generator().manual_seed(1))  # as an allocator gives them
        table = pages.reshape(batch, blocks).to(device, torch.int32)
        return cls(*pools, table, torch.zeros(batch, dtype=torch.int32, device=device))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * HEAD_DIM) for _ in range(LAYERS))
        self.outputs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Logits [tokens, vocabulary] of tokens of all sequences, one behind the other."""
        x = self.embedding(tokens)
        for layer, (projection, output) in enumerate(zip(self.projections, self.outputs, strict=True)):
            parts = projection(nn.functional.layer_norm(x, (WIDTH,))).unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1)
            q, k, v = parts.split((HEADS, KV_HEADS, KV_HEADS))
            x = x + output(attend(layer, q, k, v).transpose(0, 1).flatten(1))
        return self.head(x)


def angles(length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin for RoPE (Su et al. 2021) at positions from 0 on: [length, head_dim / 2]."""
    frequencies = 100.0 ** -(torch.arange(0, HEAD_DIM, 2, device=device) / HEAD_DIM)
    turns = torch.arange(length, device=device)[:, None] * frequencies
    return turns.cos(), turns.sin()


def with_cache(model: Model, kernel: attncc.Kernel, prompts: list[Tensor], steps: int, page: int) -> list[list[int]]:
    device, batch = prompts[0].device, len(prompts)
    lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32, device=device)
    room = max(map(len, prompts)) + steps
    cache, rotary = Cache.empty(batch, room, page, str(device)), angles(room, device)

    def attending(starts: Tensor) -> Attend:
        """For the rows of all sequences, packed, the first of sequence b at starts[b]."""
        where = {"kv_lens": cache.lengths, "block_table": cache.table, "cu_seqlens_q": starts}

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            pools = cache.keys[layer], cache.values[layer]
            return kernel(q, *pools, **where, k_new=k, v_new=v, rotary=rotary)

        return attend

    cache.lengths.copy_(lengths)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32, device=device), lengths.cumsum(0, dtype=torch.int32)])
    tokens = model(torch.cat(prompts), attending(starts))[starts[1:].long() - 1].argmax(-1)
    one_each = attending(torch.arange(batch + 1, dtype=torch.int32, device=device))

    def step() -> None:
        cache.lengths += 1
        tokens.copy_(model(tokens, one_each).argmax(-1))

    found, advance = [tokens.tolist()], step
    if device.type == "cuda":
        advance = recorded(step, cache, tokens)
    for _ in range(steps - 1):
        advance()
        found.append(tokens.tolist())
    return [list(sequence) for sequence in zip(*found, strict=True)]


def recorded(step: Callable[[], None], cache: Cache, tokens: Tensor) -> Callable[[], None]:
    """The step as a CUDA graph. It runs once before, and is undone: what it wrote is written again."""
    before = cache.lengths.clone(), tokens.clone()
    step()
    cache.lengths.copy_(before[0]), tokens.copy_(before[1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def without_cache(model: Model, kernel: attncc.Kernel, prompts: list[Tensor], steps: int) -> list[list[int]]:
    """Each sequence by itself, all of it again for each token."""

    def rotated(x: Tensor) -> Tensor:
        cos, sin = angles(x.shape[1], x.device)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return kernel(rotated(q)[None], rotated(k)[None], v[None])[0]

    found = []
    for prompt in prompts:
        tokens = prompt
        for _ in range(steps):
            tokens = torch.cat([tokens, model(tokens, attend)[-1:].argmax(-1)])
        found.append(tokens[len(prompt) :].tolist())
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="tokens to generate for each prompt")
    parser.add_argument("--page", type=int, default=8, help="keys in a page")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Model().to(device)
    kernel = attncc.compile("sliding_window", dtype="fp32", head_dim=HEAD_DIM, width=WINDOW)
    prompts = [torch.randint(VOCABULARY, (length,), device=device) for length in PROMPTS]
    start = time.perf_counter()
    found = with_cache(model, kernel, prompts, options.steps, options.page)
    middle = time.perf_counter()
    wanted = without_cache(model, kernel, prompts, options.steps)
    end = time.perf_counter()
    for prompt, tokens in zip(prompts, found, strict=True):
        print(f"prompt of {len(prompt):2} tokens:", *tokens[:16], "…")
    print(
        f"with pages of {options.page} keys: {middle - start:.2f} s; without a cache: {end - middle:.2f} s, on {device}"
    )
    if found != wanted:
        raise SystemExit("the tokens differ")
    print(f"all {len(prompts) * options.steps} tokens are the same")


if __name__ == "__main__":
    main()
