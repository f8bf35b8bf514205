"""The backward pass under masks and score changes against FlexAttention, at useful FLOPs.

    python -m benchmarks.backward_masks [--cases causal,softcap] [--families portable,hopper] [--out FOLDER]

The cases of `benchmarks.masks`: bf16, head dim 128, 16 heads, 8,192 tokens, batch 2. FlexAttention is compiled and of a
few settings the fastest counts. dq, dk and dv of every candidate are first compared with fp64 autograd on one head.
TFLOP/s are useful ones: 10 * head_dim for each kept pair; the forward pass isn't timed. At last, what the gradient of a
table by relative position costs beside the same variant without it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.schedule.schedule import Schedule

from . import flex, masks
from .backward import Backward, Gradients, relative_error
from .flex import Tensors
from .masks import BATCH, HEAD_DIM, HEADS, LENGTH, SPECS, TARGETS, Case
from .measure import RESULTS, check, compare, table, tflops, write

REACH = 128


def kernel(spec: Path | str, family: str, defines: Mapping[str, int | float]) -> Any:
    name = attncc.parse(spec, defines=defines).name
    schedule = Schedule(family, name, "backward", TARGETS[family], (("family", (family,)),))
    return attncc.compile(
        spec, dtype="bf16", head_dim=HEAD_DIM, arch=TARGETS[family], defines=defines, schedule=schedule
    )


def own(made: Any, qkv: Tensors, dout: torch.Tensor, inputs: dict[str, torch.Tensor]) -> Backward:
    out, lse = made(*qkv, return_lse=True, **inputs)

    def launch() -> Gradients:
        found = made.backward(dout, *qkv, out, lse, **inputs)
        return found.dq, found.dk, found.dv

    return launch


def recorded(forward: Callable[[Tensors], torch.Tensor], qkv: Tensors, dout: torch.Tensor) -> Backward:
    """What autograd runs backwards, of a forward pass that has been called."""
    q, k, v = (item.detach().requires_grad_() for item in qkv)
    out = forward((q, k, v))

    def launch() -> Gradients:
        dq, dk, dv = torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
        return dq, dk, dv

    return launch


def flex_backward(case: Case, qkv: Tensors, dout: torch.Tensor) -> tuple[Backward, str]:
    """FlexAttention's fastest backward pass, and its setting."""
    found: dict[str, Backward] = {}
    for setting in flex.TRITON:

        def forward(leaves: Tensors, setting: flex.Setting = setting) -> torch.Tensor:
            return flex.launch(leaves, *case.mods(), setting)()

        try:
            found[setting.name] = recorded(forward, qkv, dout)
            found[setting.name]()
        except Exception as error:  # whatever Inductor raises
            found.pop(setting.name, None)
            print(f"FlexAttention {setting.name} is not in this run: {str(error).strip():.150}", flush=True)
    timings = compare(found, rounds=3, window_ms=15, sustained_s=0)
    best = min(found, key=lambda name: timings[name].milliseconds)
    return found[best], best


def oracle(case: Case, qkv: Tensors, dout: torch.Tensor) -> tuple[Gradients, int]:
    """Of the last head of the last sequence in fp64, and how many pairs a head keeps."""
    q, k, v = (item[-1, -1].double().requires_grad_() for item in qkv)
    keep, change = case.mods()
    positions = torch.arange(LENGTH, device="cuda")
    place = BATCH - 1, HEADS - 1, positions[:, None], positions
    score, kept = q @ k.T / math.sqrt(HEAD_DIM), LENGTH**2
    if change is not None:
        score = change(score, *place)
    if keep is not None:
        mask = keep(*place)
        score, kept = score.masked_fill(~mask, -math.inf), int(mask.sum())
    dq, dk, dv = torch.autograd.grad(score.softmax(-1) @ v, (q, k, v), dout[-1, -1].double())
    return (dq, dk, dv), kept


def measure(case: Case, families: list[str], qkv: Tensors, dout: torch.Tensor) -> list[dict[str, Any]]:
    """One row for each candidate."""
    inputs = case.inputs()
    launches = {
        f"attncc {family}": own(kernel(case.spec, family, case.defines), qkv, dout, inputs) for family in families
    }
    launches["FlexAttention"], setting = flex_backward(case, qkv, dout)
    exact, kept = oracle(case, qkv, dout)
    errors = {name: relative_error(launch(), exact) for name, launch in launches.items()}
    check(case.name, errors, 2e-2)
    timings = compare(launches, rounds=7, window_ms=50, sustained_s=0.4)
    flops = 10.0 * HEAD_DIM * kept * BATCH * HEADS
    return [
        {
            "case": case.name,
            "density": kept / LENGTH**2,
            "candidate": name,
            **tflops(flops, timings[name]),
            "relative_error": errors[name],
            "flex_setting": setting,
            **asdict(timings[name]),
        }
        for name in launches
    ]


def learnable_table(families: list[str], qkv: Tensors, dout: torch.Tensor) -> list[dict[str, Any]]:
    """The same variant, its table learnable or not, in the family of the first."""
    text = (SPECS / "relative_bias.attn").read_text(encoding="utf-8")
    bias = {"bias": torch.randn(HEADS, 2 * REACH + 1, device="cuda")}
    made = {
        "with its gradient": kernel(text, families[0], {"reach": REACH}),
        "without": kernel(text.replace(" learnable", ""), families[0], {"reach": REACH}),
    }
    timings = compare({name: own(found, qkv, dout, bias) for name, found in made.items()})
    return [{"case": "relative table", "candidate": name, **asdict(timing)} for name, timing in timings.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="parts of their names, with commas between; all if none is given")
    parser.add_argument("--families", default="portable")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    wanted, families = options.cases.casefold().split(","), options.families.split(",")
    flex.allow_many_variants()
    qkv, rows = masks.tensors(), []
    dout = torch.randn_like(qkv[0])
    for case in masks.CASES:
        if any(part in case.name.casefold() for part in wanted):
            rows += measure(case, families, qkv, dout)
            print(masks.summary(rows[-1 - len(families) :]), flush=True)
    print(masks.summary(rows))
    learned = learnable_table(families, qkv, dout)
    print(table(("relative table", "ms"), [(row["candidate"], row["milliseconds"]) for row in learned]))
    print(write("backward_masks", rows + learned, options.out))


if __name__ == "__main__":
    main()
