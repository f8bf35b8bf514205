"""What a mask costs before attention begins: launches, bytes and time on the device, at a million tokens.

    python -m benchmarks.preparation [--families portable,hopper] [--tokens N] [--out FOLDER]

bf16, head dim 128. Masks of positions alone should need nothing; documents one small launch over their array, timed for
several lengths of documents. Times are those of the single kernels, as the profiler sees them; everything that a call
launches beside its attention kernel is preparation, but for the memset of the counter from which persistent kernels
take their blocks, whatever the mask. Bytes are what a call allocates beside its result, that counter's 512 included.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import attncc
from attncc.schedule.schedule import Schedule

from .measure import RESULTS, table, write

SPECS = Path(__file__).resolve().parent.parent / "specs"
HEAD_DIM, CALLS = 128, 5
TARGETS = {"portable": "sm_90", "hopper": "sm_90a"}


@dataclass(frozen=True)
class Case:
    """A spec over so many heads; `inputs` makes the tensors of a call over so many tokens."""

    name: str
    spec: str
    heads: int = 1
    defines: Mapping[str, int] = field(default_factory=dict)
    inputs: Callable[[int], dict[str, torch.Tensor]] = lambda tokens: {}

    def kernel(self, family: str) -> Callable[..., torch.Tensor]:
        target = TARGETS[family]
        schedule = Schedule(family, self.spec, "forward", target, (("family", (family,)),))
        path = SPECS / f"{self.spec}.attn"
        return attncc.compile(
            path, dtype="bf16", head_dim=HEAD_DIM, arch=target, defines=self.defines, schedule=schedule
        )


def documents(mean: int) -> Callable[[int], dict[str, torch.Tensor]]:
    """The document of each position, documents being of random lengths around a mean."""

    def inputs(tokens: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        cuts = torch.randint(1, tokens, (max(tokens // mean - 1, 0),), generator=generator).sort().values
        return {"doc": torch.bucketize(torch.arange(tokens), cuts, right=True).to(torch.int32).cuda()[None]}

    return inputs


CASES = (
    Case("causal", "causal"),
    Case("window 1024", "sliding_window"),
    Case("dilated window", "dilated_window"),
    Case("neighbourhood 13 x 13", "natten", defines={"canvas_width": 1024, "canvas_height": 1024}),
    *(Case(f"documents of {mean}", "documents", 16, inputs=documents(mean)) for mean in (1024, 8192, 32768)),
)


def measure(case: Case, family: str, tokens: int) -> dict[str, Any]:
    kernel, inputs = case.kernel(family), case.inputs(tokens)
    q, k, v = (torch.randn(1, case.heads, tokens, HEAD_DIM, device="cuda").bfloat16() for _ in range(3))
    out = torch.empty_like(q)

    def call() -> None:
        kernel(q, k, v, out=out, **inputs)

    call()
    taken = allocated(call)
    times = kernel_times(call)
    attention = {name: time for name, time in times.items() if name.startswith(case.spec)}
    before = {name: time for name, time in times.items() if name not in attention}
    prepared = sum(time for name, time in before.items() if "memset" not in name.lower())
    attended = sum(attention.values())
    return {
        "mask": case.name, "family": family, "tokens": tokens, "heads": case.heads, "attention_us": attended,
        "preparation_us": prepared, "share": prepared / attended, "launches": before, "bytes": taken,
    }  # fmt: skip


def allocated(call: Callable[[], None]) -> int:
    """Bytes that a call takes from the allocator, which are free again when it is done."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated()) - int(before)


def kernel_times(call: Callable[[], None]) -> dict[str, float]:
    """Microseconds of each kernel of a call, by name: medians."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    times = defaultdict(list)
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA:
            times[event.name].append(event.time_range.elapsed_us())
    return {name: median(of_kernel) * len(of_kernel) / CALLS for name, of_kernel in times.items()}


def summary(rows: list[dict[str, Any]]) -> str:
    header = ("mask", "family", "attention ms", "preparation us", "share %", "launches", "bytes")
    return table(header, [(
        row["mask"], row["family"], row["attention_us"] / 1e3, row["preparation_us"], 100 * row["share"],
        "+".join(row["launches"]) or "none", row["bytes"],
    ) for row in rows])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(TARGETS))
    parser.add_argument("--tokens", type=int, default=1 << 20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [measure(case, family, options.tokens) for case in CASES for family in options.families]
    print(f"{write('preparation', rows, options.out)}\n{summary(rows)}")


if __name__ == "__main__":
    main()
