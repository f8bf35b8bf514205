"""The forward pass against SDPA's back ends, FlexAttention and FlashAttention-4, at useful FLOPs.

    python -m benchmarks.forward [--head-dims 64,128] [--lengths 4096,16384] [--flex] [--out FOLDER]

bf16 normal inputs, 16,384 tokens, num_heads * head_dim = 2048, q_len = kv_len. TFLOP/s are useful ones: 4 * head_dim
for each kept (q, kv) pair. Every candidate is first compared with fp64 attention on one head.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attncc
from attncc.schedule.schedule import Schedule

from .measure import RESULTS, Launch, Timing, compare, table, write

TOKENS = 16384
MODEL_DIM = 2048
SPECS = Path(__file__).resolve().parent.parent / "specs"

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Candidate = Callable[[Tensors, bool], Callable[[], torch.Tensor]]


@dataclass(frozen=True)
class Case:
    head_dim: int
    length: int
    causal: bool

    @property
    def batch(self) -> int:
        return max(1, TOKENS // self.length)

    @property
    def heads(self) -> int:
        return MODEL_DIM // self.head_dim

    @property
    def useful_flops(self) -> float:
        pairs = self.length * (self.length + 1) / 2 if self.causal else self.length**2
        return 4.0 * self.head_dim * pairs * self.batch * self.heads

    def __str__(self) -> str:
        return f"D{self.head_dim} S{self.length} {'causal' if self.causal else 'full'}"

    def tensors(self) -> Tensors:
        """q, k, v [batch, heads, length, head_dim], bf16, normal."""
        generator = torch.Generator("cuda").manual_seed(self.head_dim + self.length)
        shape = (self.batch, self.heads, self.length, self.head_dim)
        q, k, v = (
            torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).bfloat16() for _ in range(3)
        )
        return q, k, v


def ours(family: str, target: str) -> Candidate:
    def candidate(qkv: Tensors, causal: bool) -> Callable[[], torch.Tensor]:
        name, head_dim = "causal" if causal else "full", qkv[0].shape[-1]
        schedule = Schedule(family, name, "forward", target, (("family", (family,)),))
        spec = SPECS / f"{name}.attn"
        kernel = attncc.compile(spec, dtype="bf16", head_dim=head_dim, arch=target, schedule=schedule)
        return lambda: kernel(*qkv)

    return candidate


def our_target() -> str:
    """That of the portable family on this GPU."""
    major, minor = torch.cuda.get_device_capability()
    return "sm_80" if major == 8 else f"sm_{major}{minor}"


def our_families() -> dict[str, Candidate]:
    """The kernel families that run on this GPU, the fastest last."""
    target = our_target()
    found = {"attncc portable": ours("portable", target)}
    return found | ({"attncc hopper": ours("hopper", "sm_90a")} if target == "sm_90" else {})


def sdpa(backend: SDPBackend) -> Candidate:
    def candidate(qkv: Tensors, causal: bool) -> Callable[[], torch.Tensor]:
        def launch() -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*qkv, is_causal=causal)

        return launch

    return candidate


def flex(qkv: Tensors, causal: bool) -> Callable[[], torch.Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length = qkv[0].shape[2]
    compiled = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, length, length) if causal else None
    return lambda: compiled(*qkv, block_mask=mask)


def fa4(qkv: Tensors, causal: bool) -> Callable[[], torch.Tensor]:
    from flash_attn.cute import flash_attn_func

    bshd = [item.transpose(1, 2).contiguous() for item in qkv]

    def launch() -> torch.Tensor:
        out = flash_attn_func(*bshd, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return launch


def candidates(with_flex: bool) -> dict[str, Candidate]:
    found: dict[str, Candidate] = {
        **our_families(),
        "FA2 (SDPA)": sdpa(SDPBackend.FLASH_ATTENTION),
        "cuDNN (SDPA)": sdpa(SDPBackend.CUDNN_ATTENTION),
    }
    if with_flex:
        found["FlexAttention"] = flex
    try:
        import flash_attn.cute  # noqa: F401
    except ImportError as error:
        print(f"FlashAttention-4 is not in this run: {error}")
    else:
        found["FA4"] = fa4
    return found


def relative_error(out: torch.Tensor, qkv: Tensors, causal: bool) -> float:
    """||out - oracle|| / ||oracle|| over the last head of the last sequence, the oracle in fp64."""
    q, k, v = (item[-1, -1].double() for item in qkv)
    score = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        score.masked_fill_(torch.ones_like(score, dtype=torch.bool).triu_(1), -math.inf)
    oracle = score.softmax(-1) @ v
    return float((out[-1, -1].double() - oracle).norm() / oracle.norm())


def measure(case: Case, contenders: dict[str, Candidate]) -> list[dict[str, Any]]:
    """One row for each contender."""
    qkv = case.tensors()
    launches: dict[str, Launch] = {name: make(qkv, case.causal) for name, make in contenders.items()}
    errors = {name: relative_error(launch(), qkv, case.causal) for name, launch in launches.items()}
    wrong = {name: error for name, error in errors.items() if not error < 1e-2}
    if wrong:
        raise SystemExit(f"{case}: wrong results, nothing is timed: {wrong}")
    timings = compare(launches)
    return [_row(case, name, timings[name], errors[name]) for name in launches]


def _row(case: Case, name: str, timing: Timing, error: float) -> dict[str, Any]:
    return {
        "case": str(case),
        **asdict(case),
        "candidate": name,
        "tflops": case.useful_flops / timing.milliseconds * 1e-9,
        "sustained_tflops": case.useful_flops / timing.sustained_milliseconds * 1e-9,
        "relative_error": error,
        **asdict(timing),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """TFLOP/s of the windows / sustained, and the ratio of attncc's best family to FA2 in the same run."""
    names = list(dict.fromkeys(row["candidate"] for row in rows))
    best = [name for name in names if name.startswith("attncc")][-1]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        found = {row["candidate"]: row for row in rows if row["case"] == case}
        ratio = found[best]["tflops"] / found["FA2 (SDPA)"]["tflops"]
        shown = [f"{found[name]['tflops']:.0f} / {found[name]['sustained_tflops']:.0f}" for name in names]
        lines.append((case, *shown, f"{ratio:.2f}", f"{found[best]['sm_clock_mhz']:.0f} MHz"))
    return table(("windows / sustained", *names, "x FA2", "our clock"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--lengths", default="4096,16384")
    parser.add_argument("--flex", action="store_true", help="FlexAttention too (compiles for some seconds)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    contenders = candidates(options.flex)
    rows = []
    for head_dim in map(int, options.head_dims.split(",")):
        for length in map(int, options.lengths.split(",")):
            for causal in (False, True):
                rows += measure(Case(head_dim, length, causal), contenders)
                torch.cuda.empty_cache()
    path = write("forward", rows, options.out)
    print(f"{path}\n{summary(rows)}")


if __name__ == "__main__":
    main()
