"""Kernels of the default build compile, without a GPU; none spills registers, serialises products, or takes a warp's
common value under a predicate. Their registers and lengths are in `tests/golden/resources.json`.

ptxas 13.0 has been seen to give such a predicate's register away before: the value was never set, and the kernel wrote
anywhere. Lengths are kept since they tell how long a kernel compiles (a thousand instructions: 0.2 to 0.4 s of a core),
and time itself can't be compared: it differs by half from run to run on a shared machine.

All specs in bf16, once where they differ in their names alone: each meets both targets and both head dims, by turns
this with that, and where its kernels for sm_90a are long, or nearly spill, both head dims there. Of the decode pass, a
quarter of them with one for one; other targets, dtypes and head dims meet on some specs, mostly on the one that
exercises the most code, and the backward pass on those that its parts differ by. `.ci/run` looks for spills and
serialised products in every kernel of the default build, and in all backward kernels of its targets and head dims
(`benchmarks.spills --shipped`).

A plain `pytest` compiles every eighth spec once, and of the rest one of a kind (`every_day`). All others are marked
slow: `pytest -m 'slow and not gpu'`, which `.ci/run` runs, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.kernels.registry import facts_of
from attncc.package.variant_package import DEFAULT_ARCHS, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS
from attncc.resources import folder
from attncc.schedule.target import TARGETS
from attncc.semantics.load import load
from attncc.settle import FEW_SPILLS
from attncc.source import SourceFile
from tests.compilations import COMPILATIONS, Case, has_registers
from tests.resource_table import FILE, ResourceTable

SPECS = sorted(path.stem for path in folder("specs").glob("*.attn") if path.stem != "masks")
OTHER_TARGETS = [target for target in TARGETS if target not in DEFAULT_ARCHS]
BUSIEST = "alibi_documents"
# For sm_90a these are long, or had spills with other tiles.
CLOSE_TO_LIMITS = (
    "alibi_documents", "alibi_signed", "alibi_symmetric", "causal", "full", "gelu_attention", "global_sliding_window",
    "graphormer_edge", "graphormer_spatial", "jetspec_tree", "morton_natten", "shared_prefix", "sigmoid_attention",
    "softcap", "sta_3d", "tiled_natten", "token_window", "trigonometric", "vsa",
)  # fmt: skip
# Backward, for sm_90a: 2-D tiles; bounds and tests of tiles; ids; score lines whose derivative reads the score;
# dropout; learnable inputs; the last candidates, which are portable.
OF_HOPPER = (
    ("natten", 128), ("dilated_window", 64), ("prefix_lm", 128), ("documents", 128), ("softcap", 128),
    ("dropout_attention", 64), ("relative_bias", 128), ("query_bias", 64), ("selected_attention", 128),
)  # fmt: skip
OTHERS = (
    Case(BUSIEST, "sm_80", "fp16", 40),
    Case(BUSIEST, "sm_90", "fp16", 192),
    Case(BUSIEST, "sm_80", "fp32", 64),
    Case(BUSIEST, "sm_120", "fp32", 128),
    Case(BUSIEST, "sm_80", "bf16", 16),
    Case(BUSIEST, "sm_80", "bf16", 256),
    Case(BUSIEST, "sm_100", "bf16", 96),
    Case("full", "sm_80", "fp32", 256),
    Case("softcap", "sm_90a", "bf16", 256),
    Case("token_window", "sm_90a", "bf16", 256),
    Case("selected_attention", "sm_90", "bf16", 64),
    Case("selected_attention", "sm_90", "fp32", 128),
    Case("mla", "sm_90a", "bf16", 192, 128),
)


@cache
def distinct() -> list[str]:
    """The first of the specs that mean the same, since their kernels are the same text but for names."""
    found: dict[Hashable, str] = {}
    for spec in SPECS:
        program = load(SourceFile.read(folder("specs") / f"{spec}.attn"))
        variants = tuple(replace(variant, name="", documentation="") for variant in program.variants)
        scheduled = any(schedule.pass_name is None for schedule in program.schedules)  # its forward pass
        found.setdefault((variants, scheduled and spec), spec)
    return list(found.values())


def default_cases() -> Iterator[Case]:
    """The portable kernels are far from every limit, all of their first guesses spill nothing."""
    for number, spec in enumerate(distinct()):
        for (i, target), (j, head_dim) in product(enumerate(DEFAULT_ARCHS), enumerate(DEFAULT_HEAD_DIMS)):
            close = target == "sm_90a" and spec in CLOSE_TO_LIMITS
            if (number + i + j) % 2 == 0 or close:
                yield from (Case(spec, target, dtype, head_dim) for dtype in DEFAULT_DTYPES)


def cases() -> Iterator[Case]:
    """Those that take longest begin first, so that no core waits for another at the end."""
    yield from backward_cases()
    yield from default_cases()
    for index, spec in enumerate(SPECS[::16]):
        yield Case(spec, OTHER_TARGETS[index % len(OTHER_TARGETS)], "bf16", DEFAULT_HEAD_DIMS[index % 2])
    yield from OTHERS
    yield from decode_cases()


def decode_cases() -> Iterator[Case]:
    for index, spec in enumerate(SPECS[::4]):
        target, head_dim = DEFAULT_ARCHS[index // 2 % 2], DEFAULT_HEAD_DIMS[index % 2]
        yield Case(spec, target, "bf16", head_dim, decode=True)
    for dtype, head_dim in (("fp16", 40), ("bf16", 256), ("fp32", 64), ("fp32", 128), ("fp32", 256)):
        yield Case(BUSIEST, "sm_120", dtype, head_dim, decode=True)


def backward_cases() -> Iterator[Case]:
    """For sm_90a what its kernels consist of; other dtypes, targets and head dims on the busiest."""
    for spec, head_dim in OF_HOPPER:
        yield Case(spec, "sm_90a", "bf16", head_dim, backward=True)
    yield Case("causal", "sm_80", "bf16", 128, backward=True)
    yield Case("relative_bias", "sm_80", "bf16", 128, backward=True)
    for target, head_dim in (("sm_80", 64), ("sm_120", 128)):
        yield Case("selected_attention", target, "bf16", head_dim, backward=True)
    yield Case(BUSIEST, "sm_80", "fp16", 40, backward=True)
    yield Case(BUSIEST, "sm_90", "bf16", 64, backward=True)
    yield Case(BUSIEST, "sm_90", "bf16", 256, backward=True)
    yield Case("softcap", "sm_120", "fp32", 64, backward=True)
    yield Case(BUSIEST, "sm_90", "fp32", 128, backward=True)
    yield Case("selected_attention", "sm_90", "bf16", 256, backward=True)
    yield Case("batch_bias", "sm_120", "fp32", 256, backward=True)
    yield Case("mla", "sm_90", "bf16", 192, 128, backward=True)
    for spec, head_dims in (("causal", (256, 256)), ("softcap", (256, 256)), ("mla", (192, 128)), ("full", (136, 256))):
        yield Case(spec, "sm_90a", "bf16", *head_dims, backward=True)


def every_day() -> set[Case]:
    """Two specs; backward, decode and other targets by one of a kind: both families, narrow, wide and unequal heads,
    fp32. CI compiles every kernel of the default build besides (benchmarks/spills.py)."""
    by_spec: dict[str, list[Case]] = {}
    for case in default_cases():
        by_spec.setdefault(case.spec, []).append(case)
    some = [of_spec for number, of_spec in enumerate(by_spec.values()) if number % 32 == 0]
    return {
        *(of_spec[number % len(of_spec)] for number, of_spec in enumerate(some)),
        Case("documents", "sm_90a", "bf16", 128, backward=True),
        Case("softcap", "sm_120", "fp32", 64, backward=True),
        Case("mla", "sm_90a", "bf16", 192, 128, backward=True),
        Case(SPECS[0], OTHER_TARGETS[0], "bf16", DEFAULT_HEAD_DIMS[0]),
        Case(BUSIEST, "sm_80", "fp16", 40),
        Case(BUSIEST, "sm_120", "fp32", 64, decode=True),
        list(decode_cases())[1],
    }


def marked() -> Iterator[object]:
    chosen, found = every_day(), list(cases())
    assert chosen.issubset(found)
    yield from (case if case in chosen else pytest.param(case, marks=pytest.mark.slow) for case in found)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[ResourceTable]:
    update = request.config.getoption("--update-golden")
    if update and getattr(request.config, "workerinput", {"workercount": 1})["workercount"] > 1:
        pytest.fail(f"several processes would write {FILE.name}, each its rows alone: --update-golden without -n")
    found = ResourceTable(FILE, update)
    yield found
    ours = [item for item in request.session.items if getattr(item, "function", None) is test_compiles_well]
    found.write(whole=len(ours) == len(list(cases())))


@pytest.mark.parametrize("case", list(marked()), ids=str)
def test_compiles_well(case: Case, table: ResourceTable) -> None:
    found = COMPILATIONS.result(case)
    assert found
    for name, kernel in found.items():
        plan, resources = kernel.plan, kernel.resources
        assert not resources.messages, name
        spills = resources.spill_stores + resources.spill_loads
        assert spills <= (FEW_SPILLS if plan is not None and plan.is_backward else 0), f"{name}: {resources}"
        assert resources.registers <= TARGETS[case.target].max_registers_per_thread
        assert kernel.conditional_common_values == 0, name
        if plan is not None and isinstance(facts_of(plan), HopperForward):
            assert has_registers(plan, resources), name
    table.compare(found)
