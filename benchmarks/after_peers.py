"""The same benchmarks in a process of their own, and in one where cuDNN, FlexAttention and FlashAttention-4 ran first.

    python -m benchmarks.after_peers [--benchmarks forward,backward,masks] [--lengths 4096,16384] [--rounds 5]
                                      [--out FOLDER]

cuDNN changes options of a libnvrtc that it shares, so kernels once depended on who had compiled before. Each benchmark
runs twice, our kernels alone, with an empty kernel cache: "clean" in a new process, "after" in one that ran the peers
forward and backward. A peer that isn't installed is named. `ratio` is the time after over the clean one: 1, but for
noise. All take about 250 s on an H200.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attncc.bench.peers import fa4_call, sdpa_call

from .measure import RESULTS, table, write

ARGUMENTS = {
    "forward": ("--peers", ""),
    "backward": ("--peers", "", "--families", "hopper"),
    "masks": ("--without-flex", "--families", "hopper"),
}


def peers() -> dict[str, Callable[[], Callable[..., Any]]]:
    """What makes each peer's function of q, k and v, any layout: only that it runs matters."""
    import torch
    from torch.nn.attention import SDPBackend
    from torch.nn.attention.flex_attention import flex_attention

    return {
        "cuDNN": partial(sdpa_call, SDPBackend.CUDNN_ATTENTION),
        "FlexAttention": lambda: torch.compile(flex_attention),
        "FlashAttention-4": fa4_call,
    }


def run_peers() -> None:
    """All peers, forward and backward; what isn't installed is said."""
    import torch

    for name, made in peers().items():
        shape = 1, 4, 512, 128
        qkv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        try:
            made()(*qkv).sum().backward()
        except ImportError as error:
            print(f"{name} did not run: {error}", flush=True)
    torch.cuda.synchronize()


def rows_of(name: str, arguments: list[str], *, after: bool) -> list[dict[str, Any]]:
    """The rows of a benchmark that ran in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.after_peers", "--one", name, *(["--after"] if after else [])]
        environment = {**os.environ, "ATTNCC_CACHE": f"{folder}/cache"}
        subprocess.run(
            [*command, "--", *ARGUMENTS[name], *arguments, "--out", folder],
            env=environment,
            check=True,
            stdout=sys.stderr,
        )
        (path,) = Path(folder).glob("*.json")
        return list(json.loads(path.read_text())["rows"])


def compared(name: str, arguments: list[str]) -> list[dict[str, Any]]:
    clean, after = (rows_of(name, arguments, after=after) for after in (False, True))
    found = []
    for one, other in zip(clean, after, strict=True):
        assert one["case"] == other["case"] and one["candidate"] == other["candidate"]
        times = one["milliseconds"], other["milliseconds"]
        found.append({
            "benchmark": name, "case": one["case"], "candidate": one["candidate"], "clean_milliseconds": times[0],
            "after_milliseconds": times[1], "ratio": times[1] / times[0],
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmarks", type=lambda text: text.split(","), default=list(ARGUMENTS))
    parser.add_argument("--lengths", default="4096,16384", help="of forward and backward")
    parser.add_argument("--rounds", default="5", help="of forward and backward")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--after", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        if options.after:
            run_peers()
        sys.argv = [options.one, *options.arguments]
        runpy.run_module(f"benchmarks.{options.one}", run_name="__main__")
        return
    rows: list[dict[str, Any]] = []
    for name in options.benchmarks:
        own = [] if name == "masks" else ["--lengths", options.lengths, "--rounds", options.rounds]
        rows += compared(name, own)
        path = write("after_peers", rows, options.out)
        shown = [
            (row["case"], row["candidate"], row["clean_milliseconds"], row["after_milliseconds"], row["ratio"])
            for row in rows
            if row["benchmark"] == name
        ]
        print(table((name, "candidate", "clean ms", "after ms", "ratio"), shown), flush=True)
    print(f"{path}\nratio {min(row['ratio'] for row in rows):.3f} to {max(row['ratio'] for row in rows):.3f}")


if __name__ == "__main__":
    main()
