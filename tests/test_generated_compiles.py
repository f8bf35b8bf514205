"""Every spec compiles for every target, without a GPU, and no kernel spills registers.

A covering design: each spec once in bf16, with a target and a head dim that change from spec to spec; other dtypes and
head dims meet on the spec that exercises the most code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from attncc.build import prepare
from attncc.machine_code import compiled, other_kernels, settle
from attncc.resources import folder
from attncc.runtime.nvrtc import Resources
from attncc.runtime.store import kernel_name
from attncc.schedule.target import TARGETS
from attncc.source import SourceFile

Case = tuple[str, str, str, int]  # spec, target, dtype, head dim

SPECS = sorted(path.stem for path in folder("specs").glob("*.attn") if path.stem != "masks")
BUSIEST = "alibi_documents"
OTHERS: tuple[Case, ...] = (
    (BUSIEST, "sm_80", "fp16", 40),
    (BUSIEST, "sm_90", "fp16", 192),
    (BUSIEST, "sm_80", "fp32", 64),
    (BUSIEST, "sm_120", "fp32", 128),
    (BUSIEST, "sm_80", "bf16", 16),
    (BUSIEST, "sm_80", "bf16", 256),
    (BUSIEST, "sm_100", "bf16", 96),
    ("full", "sm_80", "fp32", 256),
    ("decode", "sm_80", "bf16", 256),
)


def cases() -> Iterator[Case]:
    targets = list(TARGETS)
    for index, spec in enumerate(SPECS):
        yield spec, targets[index % len(targets)], "bf16", (64, 128)[index % 2]
    yield from OTHERS


@pytest.fixture(scope="module")
def compilations() -> Iterator[dict[tuple[Case, str], Future[Resources]]]:
    """All kernels of all cases, on their way: NVRTC uses all cores while the first tests wait."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            (case, name): pool.submit(compilation) for case in cases() for name, compilation in compilations_of(case)
        }


def compilations_of(case: Case) -> Iterator[tuple[str, Callable[[], Resources]]]:
    """Of each kernel with the plan that it gets, and of those that its launches need besides."""
    spec, target, dtype, head_dim = case
    source = SourceFile(f"specs/{spec}.attn", (folder("specs") / f"{spec}.attn").read_text(encoding="utf-8"))
    (package,) = prepare(source, archs=[target], dtypes=[dtype], head_dims=[head_dim])
    for ladder in package.ladders:
        yield kernel_name(ladder.first), lambda ladder=ladder: settle(ladder).compiled.resources
    for name, item in other_kernels(package.plans).items():
        yield name, lambda item=item: compiled(*item).resources


@pytest.mark.parametrize("case", cases(), ids=lambda case: "-".join(map(str, case)))
def test_compiles_without_spills(case: Case, compilations: dict[tuple[Case, str], Future[Resources]]) -> None:
    found = {name: future.result() for (of, name), future in compilations.items() if of == case}
    assert found
    for name, resources in found.items():
        assert not resources.messages, name
        assert (resources.spill_stores, resources.spill_loads) == (0, 0), f"{name}: {resources}"
        assert resources.registers <= TARGETS[case[1]].max_registers_per_thread
