"""A Llama of about a billion random weights by attncc, SDPA and FlexAttention: prefill, and a step of training.

    python -m benchmarks.model [--cases prefill-1x8192,training-1x4096,training-1x8192]
                               [--kinds sdpa,flex_attention,attncc] [--layers 16] [--rounds 7] [--out FOLDER]

transformers' own model, in bf16, once for each `attn_implementation`, with the same weights. `sdpa` and
`flex_attention` are transformers' (it compiles the second); nothing else is compiled. Prefill fills a new cache and
asks for the logits of the last token. A step of training is forward and backward of the loss over all tokens, without
an optimizer or gradient checkpointing. Tokens are random and none is padding. A case is BATCHxLENGTH. Before
anything is timed, logits, or the loss's gradients, are compared with those of the first kind: what is wrong, or can't
run, is said and isn't timed, and the others go on. `times_first` is the time of the first kind over that of a row,
window by window: above 1 the row is faster. `host` is how long the host takes to launch one step on an idle GPU. An
`h` behind a time: that is nearly all of it, so the time tells of the host. transformers waits for the GPU once in each
step of training, to ask whether sequences are packed: then the GPU waits for the host, and the more of the step the
longer the host takes. The longer case of training is for hosts that the shorter is too short for. The cases should take
less than 150 seconds, much of it FlexAttention's compilation and NVRTC's.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attncc.integrations import transformers as integration
from attncc.runtime.cuda.timing import Timing, ratio

from .forward import names
from .measure import RESULTS, compare, record, table

LLAMA = {
    "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
FARTHEST = 0.05  # relative difference of bf16 results, after all layers
GIGABYTE = 1 << 30
DEVICE = "cuda"

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


def model_of(sizes: dict[str, Any], layers: int) -> Any:
    """Random weights of seed 0, in bf16."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    with torch.device(DEVICE):
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


def run_of(model: Any, kind: str, case: Case, ids: torch.Tensor) -> Run:
    return partial(WORKS[case.work], by(model, kind).train(case.work == "training"), ids)


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The worst ||found - expected|| / ||expected||."""
    pairs = ((one.float(), other.float()) for one, other in zip(found, expected, strict=True))
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


def checked(model: Any, kinds: tuple[str, ...], case: Case) -> tuple[dict[str, Run], dict[str, float], dict[str, str]]:
    """What is to be timed, how far its results are from those of the first that runs, and why others aren't timed."""
    ids = torch.randint(model.config.vocab_size, (case.batch, case.length), device=DEVICE)
    found: dict[str, list[torch.Tensor]] = {}
    candidates: dict[str, Run] = {}
    refused: dict[str, str] = {}
    for kind in kinds:
        try:
            run = run_of(model, kind, case, ids)
            found[kind] = [item.clone() for item in run()]
        except Exception as error:  # of another's library too: the rest is worth its time on a GPU
            refused[kind] = f"{type(error).__name__}: {error}"
        else:
            candidates[kind] = run
    errors = {kind: relative_error(result, next(iter(found.values()))) for kind, result in found.items()}
    refused |= {kind: f"wrong by {error:.1e}" for kind, error in errors.items() if not error < FARTHEST}
    return {kind: run for kind, run in candidates.items() if kind not in refused}, errors, refused


def host_time(run: Run) -> float:
    """Milliseconds of the host for one step on an idle GPU: of steps in a row, each waits for the one before."""
    samples = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        samples.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(samples)


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
    begin = time.perf_counter()
    torch.compiler.reset()
    timed, errors, refused = checked(model, kinds, case)
    peaks = {kind: peak(run) for kind, run in timed.items()}
    timings = compare(timed, rounds=rounds) if timed else {}
    timings = {kind: replace(item, host_milliseconds=host_time(timed[kind])) for kind, item in timings.items()}
    rows = rows_of(case, timings, errors, peaks) if timings else []
    model.zero_grad(set_to_none=True)
    print(f"{case}: {time.perf_counter() - begin:.0f} seconds", flush=True)
    return rows + [{"case": str(case), **asdict(case), "candidate": kind, "why": why} for kind, why in refused.items()]


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
            "host_bound": timing.host_bound,
            "peak_gigabytes": peaks[kind],
            "relative_error": errors[kind],
            **asdict(timing),
        }
        for kind, timing in timings.items()
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """A table, and below it what isn't in it."""
    header = ("case", "attention", "ms", "host", "x first", "at 95%", "GiB", "error")
    timed = table(header, [_shown(row) for row in rows if "why" not in row])
    others = [f"{row['case']}, {row['candidate']}: not timed, {row['why']}" for row in rows if "why" in row]
    return "\n".join([timed, *others])


def _shown(row: dict[str, Any]) -> tuple[Any, ...]:
    times, (least, most) = row["times_first"]
    return (
        row["case"],
        row["candidate"],
        f"{row['milliseconds']:.1f}{'h' * row['host_bound']}",
        f"{row['host_milliseconds']:.1f}",
        f"{times:.3f}",
        f"{least:.3f}-{most:.3f}",
        f"{row['peak_gigabytes']:.1f}",
        f"{row['relative_error']:.0e}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases",
        type=lambda text: [Case.of(item) for item in text.split(",")],
        default="prefill-1x8192,training-1x4096,training-1x8192",
    )
    parser.add_argument("--kinds", type=names, default="sdpa,flex_attention,attncc", help="transformers' names")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    integration.register()
    model = model_of(LLAMA, options.layers)
    print(f"{sum(item.numel() for item in model.parameters()) / 1e9:.2f}e9 weights", flush=True)
    record(
        "model", options.cases, lambda case: measure(model, case, options.kinds, options.rounds), summary, options.out
    )


if __name__ == "__main__":
    main()
