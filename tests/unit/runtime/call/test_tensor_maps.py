"""Calls of the family hopper: maps of q, k and v, persistent blocks and their counter."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from attncc import api
from attncc.kernels.candidates import make_candidates
from attncc.problem import Problem
from attncc.runtime.call.persistent import PAIRED_ROWS, clusters, head_swizzle, key_head_swizzle
from attncc.schedule.plan import Build
from attncc.schedule.plan_json import to_json
from attncc.schedule.target import TARGETS
from tests import plans
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import CONTEXT, FakeArray

D, WIDE, BLOCK_KV = 64, 128, 32
ROW = 2 * D  # bytes


def plan(variant: Any = plans.CAUSAL, head_dim: int = D, **settings: Any) -> Any:
    fields = {"target": "sm_90a", "family": "hopper", "block_q": 128, "block_kv": BLOCK_KV, "warps": 8}
    return plans.plan(variant, "bf16", head_dim, head_dim, **fields, **settings)


def array(*shape: int, strides: tuple[int, ...] = ()) -> FakeArray:
    return FakeArray(shape, "bfloat16", strides)


def maps_of_last(made: Bench) -> list[dict[str, Any]]:
    return [made.cuda.maps[address] for address in made.cuda.launches[-1].maps]


def test_maps_of_a_dense_call(bench: MakeBench) -> None:
    made = bench(plan())
    q, k, v = array(2, 6, 45, D), array(2, 3, 70, D), array(2, 3, 70, D)
    made.kernel(q, k, v)
    of_q, of_k, of_v = maps_of_last(made)
    assert of_q == {
        "dtype": 9, "base": q.pointer, "sizes": (D, 45, 6, 2), "strides": (ROW, 45 * ROW, 270 * ROW),
        "box": (64, 64, 1, 1),
    }  # fmt: skip
    assert of_k == {
        "dtype": 9, "base": k.pointer, "sizes": (D, 70, 3, 2), "strides": (ROW, 70 * ROW, 210 * ROW),
        "box": (64, BLOCK_KV, 1, 1),
    }  # fmt: skip
    assert of_v == {**of_k, "base": v.pointer}


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kernels_without_maps(bench: MakeBench, dtype: str, target: str) -> None:
    """Have none, whatever the type: maps know no fp32."""
    plan = make_candidates(plans.CAUSAL, Build("forward", target, dtype, D, D)).first
    made = bench(plan, capability=TARGETS[target].capability)
    name = {"fp32": "float32", "bf16": "bfloat16"}[dtype]
    q, k = FakeArray((2, 6, 45, D), name), FakeArray((2, 3, 70, D), name)
    made.kernel(q, k, k)
    assert len(maps_of_last(made)) == (2 if (dtype, target) == ("bf16", "sm_90") else 0)


def splits(bench: MakeBench) -> Bench:
    """With the kernel that splits keys, whose blocks have the rows of all heads of a group."""
    forward, split = (
        make_candidates(plans.CAUSAL, Build("forward", "sm_90a", "bf16", D, D, **own)).first
        for own in ({}, {"split": True})
    )
    return bench(forward, split)


@pytest.mark.parametrize(("group", "queries"), [(4, 16), (7, 9)])
def test_rows_of_all_heads_of_a_group(bench: MakeBench, group: int, queries: int) -> None:
    """Of so many queries as a warpgroup has whole: (column, head of the group, query, group, batch)."""
    made, k = splits(bench), array(3, 2, 8192, D)
    q = array(3, 2 * group, 60, D)
    made.kernel(q, k, k)
    launch = next(item for item in made.cuda.launches if "_split_" in item.kernel)
    of_q = made.cuda.maps[launch.maps[0]]
    assert of_q == {
        "dtype": 9, "base": q.pointer, "sizes": (D, group, 60, 2, 3),
        "strides": (60 * ROW, ROW, 60 * group * ROW, 120 * group * ROW), "box": (64, group, queries, 1, 1),
    }  # fmt: skip
    assert launch.params["row_heads"] == group and launch.params["q_blocks"] == -(-60 // (2 * queries))


def test_heads_that_share_memory_are_copied_to_stand_together(bench: MakeBench) -> None:
    made, k = splits(bench), array(1, 2, 8192, D)
    q = array(1, 8, 60, D, strides=(60 * D, 0, D, 1))
    made.kernel(q, k, k)
    launch = next(item for item in made.cuda.launches if "_split_" in item.kernel)
    assert made.cuda.maps[launch.maps[0]]["base"] != q.pointer
    made.kernel(array(1, 8, 8192, D, strides=(8192 * D, 0, D, 1)), k, k)  # one head for each block
    assert "_split_" not in made.cuda.launches[-1].kernel and maps_of_last(made)[0]["sizes"][2] == 1


def test_layout_bshd_and_packed_batches(bench: MakeBench) -> None:
    made = bench(plan())
    made.kernel(array(2, 45, 6, D), array(2, 70, 3, D), array(2, 70, 3, D), layout="bshd")
    assert maps_of_last(made)[1]["sizes"] == (D, 70, 3, 2)
    assert maps_of_last(made)[1]["strides"] == (3 * ROW, ROW, 210 * ROW)
    cu = FakeArray((3,), "int32")
    made.kernel(array(6, 45, D), array(3, 70, D), array(3, 70, D), cu_seqlens_q=cu, cu_seqlens_kv=cu)
    assert maps_of_last(made)[1]["sizes"] == (D, 70, 3, 1)


def test_broadcast_axes_are_one_entry(bench: MakeBench) -> None:
    """The kernel sees the stride of 0 in `Params` and asks for entry 0."""
    made = bench(plan())
    k = array(2, 3, 70, D, strides=(0, 0, D, 1))
    made.kernel(array(2, 6, 45, D), k, array(2, 3, 70, D))
    assert maps_of_last(made)[1]["sizes"] == (D, 70, 1, 1)
    assert (made.params()["k_stride_head"], made.params()["k_stride_batch"]) == (0, 0)
    assert maps_of_last(made)[1]["base"] == k.pointer


@pytest.mark.parametrize("strides", [(210 * D, 70 * D, 0, 1), (210 * D, 70 * D, -D, 1), (210 * D, -70 * D, D, 1)])
def test_what_a_map_cannot_describe_is_packed(bench: MakeBench, strides: tuple[int, ...]) -> None:
    made = bench(plan())
    k = array(2, 3, 70, D, strides=strides)
    made.kernel(array(2, 6, 45, D), k, array(2, 3, 70, D))
    (copy,) = made.framework.released
    assert copy.contents == [f"copy of {k.pointer}"]
    assert maps_of_last(made)[1]["strides"] == (ROW, 70 * ROW, 210 * ROW)
    assert maps_of_last(made)[1]["base"] == copy.pointer


def test_no_keys(bench: MakeBench) -> None:
    """An empty array may have no address."""
    made = bench(plan())
    q = array(2, 6, 45, D)
    made.kernel(q, array(2, 3, 0, D), array(2, 3, 0, D))
    assert [item["base"] for item in maps_of_last(made)] == [q.pointer] * 3
    assert maps_of_last(made)[1]["sizes"] == (D, 1, 1, 1)


def test_maps_are_kept_by_address(bench: MakeBench) -> None:
    made = bench(plan())
    q, k, v = array(2, 6, 45, D), array(2, 3, 70, D), array(2, 3, 70, D)
    made.kernel(q, k, v)
    made.kernel(q, k, v)
    assert made.cuda.launches[0].maps == made.cuda.launches[1].maps
    made.kernel(q, v, k)
    assert [item["base"] for item in maps_of_last(made)] == [q.pointer, v.pointer, k.pointer]
    for _ in range(100):
        made.kernel(array(2, 6, 45, D), k, v)
    assert len(made.cuda.launches) == 103


def test_layers_in_turns_find_their_maps(bench: MakeBench) -> None:
    made = bench(plan())
    layers = [(array(2, 6, 45, D), array(2, 3, 70, D), array(2, 3, 70, D)) for _ in range(300)]  # more than are kept
    for _ in range(2):
        for layer in layers:
            made.kernel(*layer)
            assert [item["base"] for item in maps_of_last(made)] == [x.pointer for x in layer]
    few = len(made.cuda.maps)
    for layer in layers[-8:] * 3:
        made.kernel(*layer)
        assert [item["base"] for item in maps_of_last(made)] == [x.pointer for x in layer]
    assert len(made.cuda.maps) == few  # none was made again


def test_a_block_for_each_if_the_gpu_holds_all(bench: MakeBench) -> None:
    made = bench(plan())
    made.kernel(array(2, 6, 45, D), array(2, 3, 70, D), array(2, 3, 70, D))
    (launch,) = made.cuda.launches
    assert (launch.grid, launch.params["blocks"], launch.params["next_block"]) == (12, 12, 0)
    assert not made.framework.released and not made.cuda.zeroed


def test_more_blocks_are_shared_out_where_all_are_alike(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    made.kernel(array(2, 6, 45 * 128, D), array(2, 3, 70, D), array(2, 3, 70, D))
    (launch,) = made.cuda.launches
    assert (launch.grid, launch.params["blocks"]) == (2 * 132, 12 * 45)  # the fake holds two on a multiprocessor
    assert (launch.params["next_block"], launch.params["head_swizzle"]) == (0, 2)
    assert not made.cuda.zeroed


def test_short_last_blocks_are_claimed(bench: MakeBench) -> None:
    """Of 28 rows, which one warpgroup of two has. Blocks of 100 rows take as long as others."""
    made = bench(plan(plans.FULL))
    for rows, claimed in ((44 * 128 + 28, True), (44 * 128 + 100, False)):
        made.kernel(array(2, 6, rows, D), array(2, 3, 70, D), array(2, 3, 70, D))
        assert (made.cuda.launches[-1].params["next_block"] != 0) == claimed


ASK = """
import json, sys
from attncc.problem import Problem
from attncc.runtime.call.persistent import clusters
from attncc.schedule.plan_json import from_json
paired = clusters(from_json(json.load(sys.stdin)), Problem(2, 8, 8, 4096, 4096, 128, 128), 132)
print(paired, "attncc.kernels.instruction_cost" in sys.modules)
"""


def test_short_last_blocks_are_in_no_pairs() -> None:
    """Unless they are few. Of 436 rows in blocks of 128, the last one has 52, for one warpgroup; of 4,020, too."""
    wide, rows = plan(plans.FULL, WIDE), (436, 500, 512, 4020)
    found = [clusters(wide, Problem(2, 8, 8, length, 4096, 128, 128), 132) for length in rows]
    assert found == [False, True, True, True]


@pytest.mark.parametrize(("variant", "paired"), [(plans.FULL, True), (plans.CAUSAL, False)], ids=["full", "causal"])
def test_a_first_call_without_score_lines_loads_no_analyses(variant: Any, paired: bool) -> None:
    """Whether its blocks are paired is asked in each process that runs a built kernel."""
    asked = [sys.executable, "-c", ASK]
    said = subprocess.run(
        asked, input=json.dumps(to_json(plan(variant, WIDE))), capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [str(paired), "False"]


@pytest.mark.parametrize(
    ("variant", "settings", "q", "kv", "paired"),
    [
        (plans.FULL, {}, (2, 6, 256), (2, 6, PAIRED_ROWS), True),
        (plans.FULL, {}, (2, 6, 100), (2, 3, PAIRED_ROWS), True),  # of the two heads that share keys
        (plans.FULL, {}, (2, 6, 300), (2, 6, PAIRED_ROWS), False),  # three blocks
        (plans.FULL, {}, (2, 6, 256), (2, 6, PAIRED_ROWS - 1), False),
        (plans.FULL, {}, (2, 512), (2, 2 * PAIRED_ROWS), False),  # packed
        (plans.FULL, {"split_kv": 2}, (2, 6, 256), (2, 6, PAIRED_ROWS), False),
        (plans.CAUSAL, {}, (2, 6, 256), (2, 6, PAIRED_ROWS), False),
    ],
)
def test_blocks_are_paired_where_they_look_at_the_same_keys(
    bench: MakeBench, *, variant: Any, settings: dict[str, int], q: tuple[int, ...], kv: tuple[int, ...], paired: bool
) -> None:
    made = bench(plan(variant, WIDE, **settings))
    cu = FakeArray((3,), "int32") if len(q) == 2 else None
    q_shape, kv_shape = (*q, WIDE), (*kv, WIDE)
    made.kernel(array(*q_shape), array(*kv_shape), array(*kv_shape), cu_seqlens_q=cu, cu_seqlens_kv=cu)
    launch = made.cuda.launches[0]
    assert (launch.paired, launch.early) == (paired, False)
    assert launch.grid % 2 == 0 or not paired


LONG = (2, 6, 45 * 128, D), (2, 3, 70, D), (2, 3, 70, D)  # more blocks than the fake GPU holds


@pytest.mark.parametrize("stream", [0, 0x57])
def test_more_blocks_are_claimed_from_the_counter_of_the_stream(bench: MakeBench, stream: int) -> None:
    made = bench(plan())
    q, k, v = (array(*shape) for shape in LONG)
    made.framework.stream = stream
    for _ in range(3):
        made.kernel(q, k, v, out=array(*LONG[0]))
    launch = made.cuda.launches[0]
    assert (launch.grid, launch.params["blocks"]) == (2 * 132, 12 * 45)  # the fake holds two on a multiprocessor
    counters = {item.params["next_block"] for item in made.cuda.launches}
    assert made.cuda.zeroed == [(*counters, stream, 0)]  # before the first launch alone: each leaves a 0
    assert not made.framework.allocated and not made.framework.released
    assert made.cuda.contexts == [CONTEXT]


def test_streams_have_counters_of_their_own(bench: MakeBench) -> None:
    made = bench(plan())
    arrays = [array(*shape) for shape in LONG]

    def counter(stream: int) -> int:
        made.kernel(*arrays, stream=stream)
        return int(made.params()["next_block"])

    found = [counter(stream) for stream in (0, 1, 0x10, 0x20, 0x10, 0)]
    assert [found.index(item) for item in found] == [0, 0, 2, 3, 2, 0]  # 0 and 1 are names of one stream
    made.cuda.stream_ids[0x10] = 7
    assert counter(0x10) not in found  # a new stream, where the handle of another comes again


def test_a_recorded_launch_has_a_counter_of_its_own(bench: MakeBench) -> None:
    """Cleared in the graph, since replays may run beside whatever the stream does; so on streams of threads."""
    made = bench(plan())
    arrays = [array(*shape) for shape in LONG]
    made.cuda.captured.add(0x57)
    for number, stream in enumerate((0x57, 0x57, 2)):
        made.kernel(*arrays, stream=stream)
        own = made.framework.released[number].pointer
        assert made.params()["next_block"] == own
        assert made.cuda.zeroed[number] == (own, stream, number)  # just before the launch
    made.cuda.captured.clear()
    made.kernel(*arrays, stream=0x57)
    assert made.params()["next_block"] not in [item.pointer for item in made.framework.released]


def test_more_streams_than_counters(bench: MakeBench) -> None:
    made = bench(plan())
    arrays = [array(*shape) for shape in LONG]
    for stream in range(0x100, 0x100 + 66):
        made.kernel(*arrays, stream=stream)
    counters = [item.params["next_block"] for item in made.cuda.launches]
    assert len(set(counters)) == 66 and len(made.framework.released) == 2
    (size,) = made.cuda.allocated
    assert all(0 <= item - made.cuda.memory < size for item in counters[:64])


def test_splits(bench: MakeBench) -> None:
    made = bench(plan(split_kv=3))
    made.kernel(array(2, 6, 45, D), array(2, 3, 70, D), array(2, 3, 70, D))
    main, combine = made.cuda.launches
    assert (main.grid, main.params["blocks"], main.params["head_swizzle"]) == (36, 36, 12 * 3)
    assert len(main.maps) == 3 and not combine.maps


@pytest.mark.parametrize(
    ("kv_len", "l2_bytes", "expected"),
    [
        (16384, 50 << 20, 8 * 4),  # 4 MiB for a head: 12 fit, 8 are taken, each with 4 query heads
        (16384, 4 << 20, 4),
        (10**6, 4 << 20, 4),  # one group at least
        (16, 50 << 20, 96),  # all that there are
        (0, 50 << 20, 96),
    ],
)
def test_sections(kv_len: int, l2_bytes: int, expected: int) -> None:
    problem = Problem(3, 32, 8, 128, kv_len, D, D)
    assert head_swizzle(plan(), problem, 3 * 32, l2_bytes) == expected
    assert head_swizzle(plan(plans.FULL), problem, 3 * 32, l2_bytes) == 4  # a group, where blocks are alike


DOCUMENTS = """input doc: i32[batch, pos] nondecreasing
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("keep if q_pos >= kv_idx", 4),  # 8 MiB for all rows of a head: 6 fit, 4 are taken
        ("keep if 0 <= q_pos - kv_idx < 1024", 4),
        (DOCUMENTS, 16),  # 2 MiB for a quarter of them, and 16.5 for the keys of all blocks that run
        ("", 1),
    ],
)
def test_sections_of_heads_of_keys(lines: str, expected: int) -> None:
    variant = api.parse(f"attn 1\nvariant v {{\n    {lines}\n}}\n").variant
    made = next(iter(make_candidates(variant, Build("backward", "sm_90a", "bf16", 128, 128), None).plans()))
    problem = Problem(2, 16, 16, 8192, 8192, 128, 128)
    assert key_head_swizzle(made, problem, 32, 50 << 20, ordered=False, running=132) == expected
