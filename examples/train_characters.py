"""Trains a small transformer to write characters, with attention from `characters.attn`.

    python examples/train_characters.py                             # two minutes on a CPU; a GPU, if there is one
    python examples/train_characters.py --attention attncc dense    # the same curve twice
    python examples/train_characters.py --attention uncapped sdpa   # and without the cap

It makes its text itself: little sums in sentences, whose ends are told by attending to their beginnings. Each kind
that is named is trained from the same weights and on the same batches:

    dropout  the variant with all that it has: ALiBi, a window, a soft cap, and dropout 0.1; the default
    attncc   the variant without dropout
    dense    the same formula in plain PyTorch, which builds the matrix of scores: its curve must be that of attncc
    uncapped the variant without dropout, its cap so high that it is none
    sdpa     PyTorch's own attention with the same mask and slopes, which can't cap scores: that of uncapped

The curves are plotted to loss.png, if matplotlib is there (`--plot` names another file).
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import attncc
from attncc.torch import Attention

SPEC = Path(__file__).with_name("characters.attn")
CAP, NO_CAP, DROPOUT = 20.0, 1e4, 0.1
KINDS = ("dropout", "attncc", "dense", "uncapped", "sdpa")


@dataclass(frozen=True)
class Size:
    """Of the model and its batches."""

    layers: int
    heads: int
    head_dim: int
    context: int
    width: int  # how far back a character sees
    batch: int
    dtype: str  # that attention runs in
    learning_rate: float

    @property
    def channels(self) -> int:
        return self.heads * self.head_dim


CPU = Size(layers=2, heads=2, head_dim=32, context=96, width=64, batch=6, dtype="fp32", learning_rate=3e-3)
GPU = Size(layers=6, heads=8, head_dim=64, context=1024, width=256, batch=16, dtype="bf16", learning_rate=1e-3)


# -------------------------------------------------------------------- text


def make_text(characters: int, seed: int = 0) -> str:
    """Sentences such as `anna has 3 pears and finds 4 more: 7 pears.`"""
    names, things = ("anna", "bela", "carla", "dino", "emma"), ("pears", "stones", "books", "shells")
    draw, sentences, length = random.Random(seed), [], 0
    while length < characters:
        name, thing, first, more = draw.choice(names), draw.choice(things), draw.randrange(10), draw.randrange(10)
        if draw.random() < 0.5:
            sentences.append(f"{name} has {first} {thing} and finds {more} more: {first + more} {thing}.\n")
        else:
            most = max(first, more)
            sentences.append(f"{name} has {most} {thing} and loses {min(first, more)}: {abs(first - more)} {thing}.\n")
        length += len(sentences[-1])
    return "".join(sentences)[:characters]


@dataclass(frozen=True)
class Text:
    """Characters as numbers, and the alphabet that they count."""

    alphabet: str
    numbers: torch.Tensor

    @classmethod
    def of(cls, text: str) -> Text:
        alphabet = "".join(sorted(set(text)))
        return cls(alphabet, torch.tensor([alphabet.index(character) for character in text]))

    def batch(self, size: Size, generator: torch.Generator, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Contexts [batch, context] and the character that follows each of theirs."""
        starts = torch.randint(len(self.numbers) - size.context, (size.batch, 1), generator=generator)
        taken = self.numbers[starts + torch.arange(size.context + 1)].to(device)
        return taken[:, :-1], taken[:, 1:]


# -------------------------------------------------------------------- attention


def slopes(heads: int) -> torch.Tensor:
    """ALiBi's: 2^(-8 h / heads)."""
    return torch.exp2(-8 * torch.arange(1, heads + 1) / heads)


def attention_of(kind: str, size: Size) -> nn.Module:
    """q, k, v [batch, heads, context, head_dim] -> the same."""
    if kind == "dense":
        return Dense(size)
    if kind == "sdpa":
        return Sdpa(size)
    defines = {"width": size.width, "cap": NO_CAP if kind == "uncapped" else CAP}
    kernel = attncc.compile(SPEC, dtype=size.dtype, head_dim=size.head_dim, defines=defines)
    return Attention(kernel, slope=slopes(size.heads), rate=DROPOUT if kind == "dropout" else 0.0)


class Dense(nn.Module):
    """What `characters.attn` says, written in PyTorch: every score of every pair."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.slope = nn.Parameter(slopes(size.heads))
        self.width = size.width

    def biases(self, length: int) -> torch.Tensor:
        """What is added to scores [heads, length, length], and -inf where the window ends."""
        places = torch.arange(length, device=self.slope.device)
        distance = places[:, None] - places
        kept = (distance >= 0) & (distance < self.width)
        return torch.where(kept, -self.slope[:, None, None] * distance, -math.inf)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        biases = self.biases(q.shape[-2])
        score = (q @ k.mT).float() * q.shape[-1] ** -0.5 + biases.nan_to_num(neginf=0.0)
        score = torch.where(biases.isneginf(), -math.inf, CAP * torch.tanh(score / CAP))
        return score.softmax(-1).to(v.dtype) @ v


class Sdpa(Dense):
    """PyTorch's own attention, which takes biases, but no cap."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.biases(q.shape[-2]).to(q.dtype))


# -------------------------------------------------------------------- model


class Block(nn.Module):
    """Attention, then two linear layers, each added to what came in."""

    def __init__(self, kind: str, size: Size) -> None:
        super().__init__()
        channels = size.channels
        self.before_attention, self.before_mixing = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.to_qkv, self.from_heads = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mixing = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.attention = attention_of(kind, size)
        self.heads = size.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, channels = x.shape
        qkv = self.to_qkv(self.before_attention(x)).view(batch, length, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = self.attention(q, k, v).transpose(1, 2).reshape(batch, length, channels)
        x = x + self.from_heads(attended)
        return x + self.mixing(self.before_mixing(x))


class Transformer(nn.Module):
    """Characters [batch, context] -> logits of the next one. Positions are known by the slopes of attention alone."""

    def __init__(self, kind: str, size: Size, alphabet: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet, size.channels)
        self.blocks = nn.Sequential(*(Block(kind, size) for _ in range(size.layers)))
        self.norm, self.to_logits = nn.LayerNorm(size.channels), nn.Linear(size.channels, alphabet)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        return self.to_logits(self.norm(self.blocks(self.embedding(characters))))


# -------------------------------------------------------------------- training


@dataclass(frozen=True)
class Run:
    """The loss of each step, in nats a character, how long a step took, and what the model has learned."""

    losses: list[float]
    seconds: float  # a step, the first ten left out
    model: Transformer


def train(kind: str, size: Size, text: Text, steps: int, device: str, *, seed: int = 0, report: bool = True) -> Run:
    """Trains one model. Weights, batches and dropout are the same in every run of the same arguments."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    model = Transformer(kind, size, len(text.alphabet)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, size.learning_rate, total_steps=steps + 1)
    losses, began = [], time.perf_counter()
    for step in range(steps):
        if step == min(10, steps - 1):
            began = time.perf_counter()
        characters, following = text.batch(size, generator, device)
        with torch.autocast(device, torch.bfloat16, enabled=size.dtype == "bf16"):
            logits = model(characters)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if report and (step % 25 == 0 or step == steps - 1):
            print(f"{kind:8} step {step:4}  loss {losses[-1]:.3f}", flush=True)
    return Run(losses, (time.perf_counter() - began) / max(steps - min(10, steps - 1), 1), model)


@torch.no_grad()
def write(model: Transformer, text: Text, size: Size, beginning: str, characters: int) -> str:
    """What the model goes on to write, each character the likeliest."""
    model.eval()
    device = model.embedding.weight.device
    written = torch.tensor([[text.alphabet.index(character) for character in beginning]], device=device)
    for _ in range(characters):
        with torch.autocast(device.type, torch.bfloat16, enabled=size.dtype == "bf16"):
            logits = model(written[:, -size.context :])
        written = torch.cat([written, logits[:, -1:].argmax(-1)], dim=1)
    return "".join(text.alphabet[number] for number in written[0])


def plot(runs: dict[str, Run], path: Path) -> str:
    """The curves, each the mean of ten steps; says where they are, or that matplotlib isn't there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "the curves aren't plotted: that needs matplotlib, pip install 'attncc[plot]'"
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for kind, run in runs.items():
        losses = torch.tensor(run.losses)
        width = min(10, len(losses))
        axes.plot(losses.unfold(0, width, 1).mean(-1), label=f"{kind}, {run.seconds * 1e3:.0f} ms a step")
    axes.set(xlabel="step", ylabel="loss, nats a character", yscale="log")
    axes.legend()
    figure.savefig(path)
    return f"the curves are in {path}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what was asked for, and tells how the runs compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", nargs="+", choices=KINDS, default=["dropout"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--plot", type=Path, metavar="PNG", default=Path("loss.png"))
    given = parser.parse_args(arguments)
    size, text = GPU if given.device == "cuda" else CPU, Text.of(make_text(200_000))
    runs = {kind: train(kind, size, text, given.steps, given.device) for kind in given.attention}
    for kind, run in runs.items():
        last = run.losses[-20:]
        print(f"{kind:8} {run.seconds * 1e3:7.1f} ms a step, loss of the last steps {sum(last) / len(last):.4f}")
        print(write(run.model, text, size, "anna has 3 pears and finds 4 more:", 60))
    print(plot(runs, given.plot))


if __name__ == "__main__":
    main()
