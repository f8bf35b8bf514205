"""A Llama of about a billion random weights by attncc, SDPA and FlexAttention: prefill, and a step of training.

    python -m benchmarks.model [--cases prefill-1x8192,prefill-4x2048,training-1x4096]
                               [--kinds sdpa,flex_attention,attncc] [--layers 16] [--rounds 9] [--out FOLDER]

transformers' own model, in bf16, once for each `attn_implementation`, with the same weights. `sdpa` and
`flex_attention` are transformers' (it compiles the second); nothing else is compiled. Prefill fills a new cache and
asks for the logits of the last token. A step of training is forward and backward of the loss over all tokens, without
an optimizer or gradient checkpointing. Tokens are random and none is padding. A case is BATCHxLENGTH. Before
anything is timed, logits, or the loss's gradients, are compared with those of the first kind. `times_first` is the time
of the first kind over that of a row, window by window: above 1 the row is faster.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attncc.integrations import transformers as integration
from attncc.runtime.cuda.timing import Timing, ratio

from .forward import names
from .measure import RESULTS, check, compare, record, table

LLAMA = {
    "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
FARTHEST = 0.05  # relative difference of bf16 results, after all layers
GIGABYTE = 1 << 30

Run = Callable[[], list[torch.Tensor]]


@dataclass(frozen=True)
class Case:
    work: str  # prefill or training
    batch: int
    length: int

    @staticmethod
    def of(text: str) -> Case:
        """From WORK-BATCHxLENGTH."""
        work, _, sizes = text.partition("-")
        if work not in WORKS:
            raise argparse.ArgumentTypeError(f"{work!r} is none of {', '.join(WORKS)}")
        batch, length = map(int, sizes.split("x"))
        return Case(work, batch, length)

    def __str__(self) -> str:
        return f"{self.work} {self.batch}x{self.length}"


def model_of(sizes: dict[str, Any], layers: int, device: str) -> Any:
    """Random weights of seed 0, in bf16."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForCausalLM.from_config(
            LlamaConfig(**sizes, num_hidden_layers=layers), dtype=torch.bfloat16
        )
    return model


def by(model: Any, kind: str) -> Any:
    """A model of the same weights, with another attention."""
    made = copy.deepcopy(model, {id(item): item for item in model.parameters()})
    made.set_attn_implementation(kind)
    return made


# -------------------------------------------------------------------- work


def prefill(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """The logits of the last tokens, [batch, 1, vocabulary]."""
    with torch.no_grad():
        return [model(input_ids=ids, use_cache=True, logits_to_keep=1).logits]


def training(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of the first and of the last layer's projections of queries and values."""
    model.zero_grad(set_to_none=True)
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    ends = model.model.layers[0].self_attn, model.model.layers[-1].self_attn
    return [item.weight.grad for layer in ends for item in (layer.q_proj, layer.v_proj)]


WORKS = {"prefill": prefill, "training": training}


def runs(model: Any, kinds: tuple[str, ...], case: Case, device: str) -> dict[str, Run]:
    ids = torch.randint(model.config.vocab_size, (case.batch, case.length), device=device)
    work = WORKS[case.work]
    return {kind: partial(work, by(model, kind).train(case.work == "training"), ids) for kind in kinds}


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The worst ||found - expected|| / ||expected||."""
    pairs = ((one.float(), other.float()) for one, other in zip(found, expected, strict=True))
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


def errors_of(candidates: dict[str, Run]) -> dict[str, float]:
    """How far the results are from those of the first."""
    found = {kind: [item.clone() for item in run()] for kind, run in candidates.items()}
    expected = next(iter(found.values()))
    return {kind: relative_error(result, expected) for kind, result in found.items()}


def peak(run: Run) -> float:
    """Gigabytes that torch holds at most."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    return float(torch.cuda.max_memory_allocated()) / GIGABYTE


# -------------------------------------------------------------------- records


def measure(model: Any, case: Case, kinds: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One row for each kind. FlexAttention is compiled for each case: for lengths of any size it is slower."""
    torch.compiler.reset()
    candidates = runs(model, kinds, case, "cuda")
    errors = errors_of(candidates)
    check(case, errors, FARTHEST)
    peaks = {kind: peak(run) for kind, run in candidates.items()}
    timings = compare(candidates, rounds=rounds)
    rows = rows_of(case, timings, errors, peaks)
    model.zero_grad(set_to_none=True)
    return rows


def rows_of(
    case: Case, timings: dict[str, Timing], errors: dict[str, float], peaks: dict[str, float]
) -> list[dict[str, Any]]:
    first = next(iter(timings.values()))
    return [
        {
            "case": str(case),
            **asdict(case),
            "candidate": kind,
            "tokens_per_second": case.batch * case.length / timing.milliseconds * 1e3,
            "times_first": ratio(first, timing),
            "peak_gigabytes": peaks[kind],
            "relative_error": errors[kind],
            **asdict(timing),
        }
        for kind, timing in timings.items()
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    header = ("case", "attention", "ms", "sustained", "times first", "at 95%", "tokens/s", "GiB", "error")
    return table(header, [_shown(row) for row in rows])


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    times, (least, most) = row["times_first"]
    return (
        row["case"],
        row["candidate"],
        f"{row['milliseconds']:.1f}",
        f"{row['sustained_milliseconds']:.1f}",
        f"{times:.3f}",
        f"{least:.3f} to {most:.3f}",
        f"{row['tokens_per_second']:.0f}",
        f"{row['peak_gigabytes']:.1f}",
        f"{row['relative_error']:.1e}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases",
        type=lambda text: [Case.of(item) for item in text.split(",")],
        default="prefill-1x8192,prefill-4x2048,training-1x4096",
    )
    parser.add_argument("--kinds", type=names, default="sdpa,flex_attention,attncc", help="transformers' names")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    integration.register()
    model = model_of(LLAMA, options.layers, "cuda")
    print(f"{sum(item.numel() for item in model.parameters()) / 1e9:.2f}e9 weights", flush=True)
    record(
        "model", options.cases, lambda case: measure(model, case, options.kinds, options.rounds), summary, options.out
    )


if __name__ == "__main__":
    main()
