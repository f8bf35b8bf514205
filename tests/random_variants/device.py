"""Random variants on this machine's GPU, compiled as users' are: forward and backward, against the dense reference."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from attncc.compiler import CompiledStore, load_specification
from attncc.problem import Problem
from attncc.problem.gradients import Gradients
from attncc.runtime.cuda import nvrtc_pool
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.store import Configuration
from tests.random_variants.calls import draws, parsed, random_call, random_problem, sorts
from tests.random_variants.findings import Finding
from tests.random_variants.judgement import backward_faults, forward_faults
from tests.random_variants.variants import random_variant
from tests.random_variants.workers import Job

KIND = "gpu"
COMPILERS = 2  # processes of NVRTC for each that checks: neither the GPU nor Python waits for the other
ARCH, DEVICE = "sm_90a", "cuda"
LENGTHS, FEW_QUERIES = (1, 33, 64, 130, 300, 700), (1, 2, 4)
DECODE_KEYS = 3000  # calls of few queries and so many keys run the decode pass


@dataclass(frozen=True)
class Wanted:
    """A kernel of a random variant; of every third the portable family's."""

    seed: int
    text: str
    dtype: str
    head_dims: tuple[int, int]

    @classmethod
    def of(cls, seed: int) -> Wanted:
        made = random_variant(seed)
        schedules = ""
        if seed % 3 == 0:
            for pass_name in ("forward", "backward"):
                schedules += f"schedule {pass_name}s for random_{seed} {pass_name} on {ARCH} {{ family = portable }}\n"
        return cls(seed, made.text + schedules, *sorts(Random(f"{seed} gpu")))

    def store(self) -> CompiledStore:
        specification, _ = load_specification(self.text, None, {})
        return CompiledStore(specification, Configuration(self.dtype, *self.head_dims), (ARCH,))

    def problem(self, random: Random) -> Problem:
        """Of a fourth one for the decode pass."""
        if self.seed % 4 == 1:
            problem = random_problem(random, self.head_dims, packs=False, lengths=FEW_QUERIES)
            return replace(problem, kv_len=DECODE_KEYS)
        packs = random_variant(self.seed).packs and random.random() < 0.3
        return random_problem(random, self.head_dims, packs=packs, lengths=LENGTHS)


def job() -> Job:
    """For processes that each compile their variants' kernels, and run them on one GPU beside each other."""
    import torch  # noqa: F401  # takes seconds, which processes that fork from this one needn't spend

    os.environ.setdefault(nvrtc_pool.JOBS, str(COMPILERS))
    return Job(check, lambda seed: None, (KIND,))


def check(seed: int, kind: str) -> Finding | bool:
    """Compiles the kernels of a variant and runs them: what all draws of arrays show, or that it is right."""
    wanted = Wanted.of(seed)
    kernel, faults = Kernel(wanted.store()), tuple[str, ...]()
    for draw in range(draws(wanted.problem(Random(f"{seed} call")))):
        faults = tuple(_of_draw(wanted, kernel, draw))
        if not faults:
            return True
    return Finding(seed, kind, f"{wanted.dtype}, {wanted.head_dims}", faults)


def _of_draw(wanted: Wanted, kernel: Any, draw: int) -> Iterator[str]:
    variant, problem = parsed(random_variant(wanted.seed)), wanted.problem(Random(f"{wanted.seed} call"))
    given = random_call(variant, problem, wanted.dtype, wanted.seed, draw)
    keywords = {name: _on_device(value) for name, value in given.arguments.items() if value is not None}
    if variant.dropout is None:
        keywords.pop("seed")
    q, k, v, dout = (_on_device(array) for array in (given.q, given.k, given.v, given.dout))
    softmax = variant.normalize == "softmax"
    result = kernel(q, k, v, return_lse=softmax, **keywords)
    out, lse = result if softmax else (result, None)
    found_lse = np.empty(0) if lse is None else _on_host(lse)
    yield from forward_faults(variant, given, _on_host(out), found_lse, wanted.dtype)
    dlse = {} if given.dlse is None else {"dlse": _on_device(given.dlse)}
    for deterministic in (False, True):
        grads = kernel.backward(dout, q, k, v, out, lse, deterministic=deterministic, **dlse, **keywords)
        inputs = {name: _on_host(array) for name, array in grads.inputs.items()}
        on_host = Gradients(_on_host(grads.dq), _on_host(grads.dk), _on_host(grads.dv), inputs)
        faults = backward_faults(variant, given, on_host, wanted.dtype)
        yield from (f"{'deterministic ' * deterministic}{fault}" for fault in faults)


def _on_device(value: Any) -> Any:
    """A torch tensor with the values and shape of an array."""
    import torch

    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.astype(np.float32)).to(DEVICE, torch.bfloat16)
    return torch.from_numpy(value.copy()).to(DEVICE)


def _on_host(tensor: Any) -> Any:
    return tensor.double().cpu().numpy()
