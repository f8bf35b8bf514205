"""A jitted call of attncc in JAX beside `jax.nn.dot_product_attention` on cuDNN: causal, bf16, forward and gradients.

    XLA_PYTHON_CLIENT_PREALLOCATE=false python -m benchmarks.jax_call [--out FOLDER]

Of each size many calls are queued and waited for together; the tiny one shows the host's time. `python calls` is how
often XLA called Python in that many runs of the program: fewer, where it replays a CUDA graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import attncc
import attncc.jax
from attncc.jax.calls import Known

from .measure import RESULTS, table, write

SIZES = ((1, 128, 4), (4, 4096, 16), (1, 16384, 16))  # batch, length, heads
HEAD_DIM = 128
ROUNDS, SECONDS = 7, 0.2
Call = Callable[..., Any]


def calls() -> dict[str, Call]:
    """In layout bshd."""
    kernel = attncc.jax.wrap(attncc.compile("causal", dtype="bf16", head_dim=HEAD_DIM))

    def cudnn(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")

    return {"attncc": lambda q, k, v: kernel(q, k, v, layout="bshd"), "cudnn": cudnn}


def programs(call: Call) -> dict[str, Call]:
    def total(dout: Any, q: Any, k: Any, v: Any) -> Any:
        return jax.vjp(call, q, k, v)[1](dout)

    return {"forward": jax.jit(lambda dout, *qkv: call(*qkv)), "forward and gradients": jax.jit(total)}


def milliseconds(program: Call, given: tuple[Any, ...], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        result = program(*given)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / repeats * 1e3


def python_calls(program: Call, given: tuple[Any, ...], runs: int = 20) -> int:
    """How often XLA asks for what a call runs."""
    asked, on = [], Known.on

    def counted(self: Known, ordinal: int) -> Any:
        asked.append(ordinal)
        return on(self, ordinal)

    Known.on = counted  # type: ignore[method-assign]
    try:
        for _ in range(runs):
            jax.block_until_ready(program(*given))
    finally:
        Known.on = on  # type: ignore[method-assign]
    return len(asked)


def error(found: Any, wanted: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    norms = [(jnp.linalg.norm(a - b), jnp.linalg.norm(b)) for a, b in (map(jnp.float32, pair) for pair in pairs)]
    return max(float(difference / whole) for difference, whole in norms)


def measure(batch: int, length: int, heads: int) -> list[dict[str, Any]]:
    keys = jax.random.split(jax.random.key(0), 4)
    given = tuple(jax.random.normal(key, (batch, length, heads, HEAD_DIM), jnp.bfloat16) for key in keys)
    made = {name: programs(call) for name, call in calls().items()}
    rows = []
    for what in made["attncc"]:
        results = {name: programs[what](*given) for name, programs in made.items()}
        wrong = error(results["attncc"], results["cudnn"])
        if not wrong < 0.02:
            raise SystemExit(f"{what}: wrong results, nothing is timed: {wrong}")
        samples: dict[str, list[float]] = {name: [] for name in made}
        repeats = {}
        for name, programs_ in made.items():
            milliseconds(programs_[what], given, 3)
            repeats[name] = max(3, round(SECONDS / milliseconds(programs_[what], given, 3) * 1e3))
        for _ in range(ROUNDS):
            for name, programs_ in made.items():
                samples[name].append(milliseconds(programs_[what], given, repeats[name]))
        for name in made:
            asked = python_calls(made[name][what], given) if name == "attncc" else 0
            row = {"batch": batch, "length": length, "heads": heads, "pass": what, "call": name}
            rows.append({**row, "milliseconds": statistics.median(samples[name]), "python calls of 20 runs": asked})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    rows = [row for size in SIZES for row in measure(*size)]
    header = tuple(rows[0])
    print(table(header, [tuple(row.values()) for row in rows]))
    print(write("jax_call", rows, parser.parse_args().out))


if __name__ == "__main__":
    main()
