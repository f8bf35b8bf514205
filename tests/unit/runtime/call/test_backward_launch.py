"""What backward calls with device arrays launch: order, fields, zeroed sums, workspace, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attncc import api
from attncc.diagnostics import AttnccError
from attncc.ir import Axis, Input, Score, Variant, apply, symbol
from attncc.kernels.candidates import make_candidates, make_plan, make_tiles_2d
from attncc.kernels.registry import backward_facts
from attncc.problem.call_arguments import Arguments
from attncc.problem.gradients import Gradients
from attncc.runtime.call.backward_arguments import BackwardArguments
from attncc.runtime.call.persistent import PAIRED_MASKED, PAIRED_ROWS
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule
from tests import plans
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeArray

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN, D = 2, 6, 2, 45, 70, 16
ROWS = BATCH * HEADS * 48  # in blocks of 16


def made_of(bench: MakeBench, variant: Variant, dtype: str = "fp16") -> Bench:
    sizes = {"dtype": dtype, "head_dim": D, "value_head_dim": D, "target": "sm_90"}
    of_backward = (make_plan(variant, pass_name=name, **sizes) for name in ("backward", "backward_dq"))
    return bench(plans.plan(variant, dtype, target="sm_90"), *of_backward)


def operands(dtype: str = "float16", packed: bool = False) -> dict[str, FakeArray]:
    lead = () if packed else (BATCH,)
    q, k = FakeArray((*lead, HEADS, Q_LEN, D), dtype), FakeArray((*lead, KV_HEADS, KV_LEN, D), dtype)
    out, dout = FakeArray(q.shape, dtype), FakeArray(q.shape, dtype)
    v, lse = FakeArray(k.shape, dtype), FakeArray(q.shape[:-1], "float32")
    return {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}


def names(made: Bench) -> list[str]:
    return [launch.kernel.partition("_fp")[0] for launch in made.cuda.launches]


def test_sums_and_rounds_dq(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    found = made.kernel.backward(**given)
    assert names(made) == ["delta", "causal_backward", "dq_sum"]
    delta, main, rounded = made.cuda.launches
    workspace = made.framework.allocated[-1]
    assert workspace.shape == (ROWS * (2 + D),)
    assert delta.params["lse"] == given["lse"].pointer and delta.params["dlse"] == 0
    assert delta.params["statistics"] == main.params["statistics"] == workspace.pointer
    assert main.params["dq_sum"] == rounded.params["dq_sum"] == workspace.pointer + 8 * ROWS
    assert delta.params["dq_sum"] == main.params["dq_sum"] and not made.cuda.zeroed  # which delta clears
    assert (delta.params["sum_words"], delta.params["count_words"]) == (16 * D, 0)
    assert (main.params["dk"], main.params["dv"]) == (found.dk.pointer, found.dv.pointer)
    assert rounded.params["dq"] == found.dq.pointer and main.params["row_blocks"] == 3
    assert main.grid == BATCH * KV_HEADS * main.params["kv_blocks"] and main.params["dout"] == given["dout"].pointer
    shapes = [(array.shape, array.dtype) for array in (found.dq, found.dk, found.dv)]
    assert shapes == [(given[name].shape, "float16") for name in "qkv"]
    assert made.framework.released == [workspace]


def test_deterministic_calls_have_dq_from_a_kernel_of_its_own(bench: MakeBench) -> None:
    made = made_of(bench, plans.CAUSAL)
    made.kernel.backward(**operands(), deterministic=True)
    assert names(made) == ["delta", "causal_backward_dq", "causal_backward"]
    assert made.cuda.launches[2].params["dq_sum"] == 0 and not made.cuda.zeroed
    assert made.framework.allocated[-1].shape == (2 * ROWS,)


def hopper_of(bench: MakeBench, variant: Variant = plans.CAUSAL, head_dim: int = D) -> Bench:
    sizes = {"dtype": "fp16", "head_dim": head_dim, "value_head_dim": head_dim, "target": "sm_90a"}
    hopper = Schedule("asked", variant.name, "backward", "sm_90a", (("family", ("hopper",)),))
    of_backward = make_plan(variant, pass_name="backward", schedule=hopper, **sizes)
    own = [replace(of_backward, unclustered=True)] * backward_facts(of_backward).uses_clusters
    return bench(plans.plan(variant, "fp16", head_dim, head_dim, target="sm_90a"), of_backward, *own)


@pytest.mark.parametrize("deterministic", [False, True])
def test_hopper_adds_up_dq_in_one_order_if_asked(bench: MakeBench, deterministic: bool) -> None:
    made = hopper_of(bench)
    made.kernel.backward(**operands(), deterministic=deterministic)
    assert names(made) == ["delta_hopper", "causal_backward", "dq_sum_hopper"]
    delta, main, rounds = (launch.params for launch in made.cuda.launches)
    heads = BATCH * KV_HEADS
    sums = BATCH * HEADS * main["row_blocks"] * 16 * D
    turns = heads * main["kv_blocks"] * 4 * deterministic  # one for each warp that adds
    numbers = main["dq_sum"] + 4 * sums
    assert (delta["dq_sum"], delta["sum_words"]) == (main["dq_sum"], 16 * D * deterministic) and not made.cuda.zeroed
    tiles = BATCH * HEADS * main["row_blocks"] // 4 * (not deterministic)  # whose first is stored
    counts = 1 + heads + turns + tiles  # the next block, one for each head
    assert (delta["counts"], delta["count_words"]) == (numbers, counts)
    assert (main["next_block"], main["finished"]) == (numbers * deterministic, numbers + 4)
    assert main["dq_semaphore"] == (numbers + 4 * (1 + heads)) * deterministic
    assert main["dq_stored"] == rounds["dq_stored"] == (numbers + 4 * (1 + heads)) * (not deterministic)


@pytest.mark.parametrize("packed", [False, True])
def test_hopper_rounds_dq_early(bench: MakeBench, packed: bool) -> None:
    """Who rounds a head waits until all who add to it have counted themselves."""
    made, given = hopper_of(bench), operands(packed=packed)
    if packed:
        given["cu_seqlens_q"] = given["cu_seqlens_kv"] = FakeArray((4,), "int32")
    made.kernel.backward(**given)
    _, main, rounds = made.cuda.launches
    assert [launch.early for launch in made.cuda.launches] == [False, False, True]
    assert (rounds.params["finished"], rounds.params["group"]) == (main.params["finished"], HEADS // KV_HEADS)
    assert rounds.params["dq_consumer_warps"] == 4 * main.params["kv_blocks"]


@pytest.mark.parametrize(
    ("variant", "q_len", "kv_len", "group", "deterministic", "paired", "own"),
    [
        (plans.FULL, PAIRED_ROWS, 129, 1, False, True, False),
        (plans.FULL, PAIRED_ROWS // 2, 129, 2, False, True, False),
        (plans.FULL, PAIRED_ROWS // 2, 129, 1, False, False, True),
        (plans.FULL, PAIRED_ROWS, 128, 1, False, False, True),  # one block of keys
        (plans.FULL, PAIRED_ROWS, 129, 1, True, False, True),
        (plans.CAUSAL, PAIRED_ROWS, 129, 1, False, False, True),
        (
            plans.CAUSAL,
            PAIRED_ROWS * PAIRED_MASKED // 2,
            129,
            2,
            False,
            False,
            False,
        ),  # each head has tiles of one
        (plans.CAUSAL, PAIRED_ROWS * PAIRED_MASKED, 129, 1, False, True, False),
    ],
)
def test_blocks_of_keys_are_paired(
    bench: MakeBench,
    *,
    variant: Variant,
    q_len: int,
    kv_len: int,
    group: int,
    deterministic: bool,
    paired: bool,
    own: bool,
) -> None:
    made = hopper_of(bench, variant, 128)
    q, k = FakeArray((2, 2 * group, q_len, 128), "float16"), FakeArray((2, 2, kv_len, 128), "float16")
    out, dout = FakeArray(q.shape, "float16"), FakeArray(q.shape, "float16")
    lse, v = FakeArray(q.shape[:-1], "float32"), FakeArray(k.shape, "float16")
    made.kernel.backward(dout, q, k, v, out, lse, deterministic=deterministic)
    main = made.cuda.launches[1]
    assert main.paired is paired
    assert ("_unclustered" in main.kernel) is own
    assert main.params["head_swizzle"] == 1 or deterministic or variant is not plans.FULL
    assert [launch.early for launch in made.cuda.launches] == [False, False, True]


def test_hopper_rounds_dq_without_keys(bench: MakeBench) -> None:
    """No kernel is ahead that would count."""
    made, given = hopper_of(bench), operands()
    given |= {name: FakeArray((BATCH, KV_HEADS, 0, D), "float16") for name in "kv"}
    made.kernel.backward(**given)
    assert names(made) == ["delta_hopper", "dq_sum_hopper"]
    rounds = made.cuda.launches[-1]
    assert not rounds.early and not rounds.params["finished"]
    assert rounds.params["dq_stored"] == made.cuda.launches[0].params["counts"] + 4 * (1 + BATCH * KV_HEADS)


def test_hopper_adds_to_zeros_where_blocks_are_late(bench: MakeBench) -> None:
    made = hopper_of(bench, plans.FULL)
    made.kernel.backward(**operands())
    delta, main, rounds = (launch.params for launch in made.cuda.launches)
    assert (delta["sum_words"], delta["count_words"]) == (16 * D, 1 + BATCH * KV_HEADS)
    assert "dq_stored" not in main and not rounds["dq_stored"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_hopper_clears_what_kernels_count_without_delta(bench: MakeBench, *, deterministic: bool) -> None:
    """Without softmax. The sum of dQ is cleared where it has an order."""
    made = hopper_of(bench, replace(plans.CAUSAL, normalize="sigmoid"), 128)
    q, k = FakeArray((BATCH, HEADS, Q_LEN, 128), "float16"), FakeArray((BATCH, KV_HEADS, KV_LEN, 128), "float16")
    made.kernel.backward(FakeArray(q.shape, "float16"), q, k, k, None, None, deterministic=deterministic)
    main = made.cuda.launches[0].params
    tiles, turns = BATCH * HEADS * main["row_blocks"] // 4, BATCH * KV_HEADS * 4 * main["kv_blocks"]
    words = 1 + BATCH * KV_HEADS + (turns if deterministic else tiles)
    sums = tiles * 64 * 128 * deterministic
    assert [address for address, _, _ in made.cuda.zeroed] == [main["finished"] - 4 - 4 * sums]
    assert made.cuda.zeroed_words == [sums + words]


@pytest.mark.parametrize(
    ("kv_len", "kernels", "row_blocks", "kv_blocks", "sizes", "box"),
    [
        (420, ["delta_hopper_w6x1", "causal_backward_patches", "dq_sum_hopper_w6x1"], 6 * 4, 6, (6, 45), (1, 128)),
        (421, ["delta_hopper", "causal_backward", "dq_sum_hopper"], 5 * 4, 4, (270,), (128,)),
    ],
)
def test_lengths_that_fit_the_grid_get_tiles_2d(  # noqa: PLR0917
    bench: MakeBench, kv_len: int, kernels: list[str], row_blocks: int, kv_blocks: int, sizes: Any, box: Any
) -> None:
    """Bands of queries are 6 * 64 positions, those of keys 6 * 128."""
    text = "attn 1\nvariant causal {\n    keep if 0 <= q_pos - kv_idx < 300\n    keep if (q_pos - kv_idx) % 6 == 0\n}\n"
    variant = api.parse(text).variant
    hopper = Schedule("asked", "causal", "backward", "sm_90a", (("family", ("hopper",)),))
    tiles_1d = make_candidates(variant, Build("backward", "sm_90a", "fp16", D, D), hopper)
    in_tiles_2d = make_tiles_2d(tiles_1d)
    assert in_tiles_2d is not None
    made = bench(plans.plan(variant, "fp16", target="sm_90a"), tiles_1d.first, in_tiles_2d.first)
    q, k = FakeArray((BATCH, HEADS, 270, D), "float16"), FakeArray((BATCH, KV_HEADS, kv_len, D), "float16")
    lse = FakeArray(q.shape[:-1], "float32")
    made.kernel.backward(FakeArray(q.shape, "float16"), q, k, k, FakeArray(q.shape, "float16"), lse)
    main = made.cuda.launches[1]
    assert (names(made), main.params["row_blocks"], main.params["kv_blocks"]) == (kernels, row_blocks, kv_blocks)
    of_q, of_k = (made.cuda.maps[address] for address in main.maps[:2])
    assert of_q["sizes"] == (D, *sizes, HEADS, BATCH) and of_k["box"] == (64, *box, 1, 1)


def test_fp32_and_variants_without_softmax(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.SIGMOID, "fp32"), operands("float32")
    made.kernel.backward(**given | {"lse": None, "out": None})
    assert names(made) == ["sigmoid_window_backward_dq", "sigmoid_window_backward"]
    assert made.cuda.launches[0].params["statistics"] == 0


def test_packed_batches(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands(packed=True)
    starts = FakeArray((4,), "int32"), FakeArray((4,), "int32")
    made.kernel.backward(**given, cu_seqlens_q=starts[0], cu_seqlens_kv=starts[1])
    delta, main, _ = made.cuda.launches
    assert delta.params["cu_seqlens_q"] == starts[0].pointer and main.params["cu_seqlens_kv"] == starts[1].pointer
    assert main.params["row_blocks"] == Q_LEN // 16 + 3


def test_a_second_call_prepares_nothing_and_takes_its_own_arrays(bench: MakeBench) -> None:
    made = made_of(bench, plans.CAUSAL)
    made.kernel.backward(**operands())
    given = operands()
    made.kernel.backward(**given, dlse=FakeArray(given["lse"].shape, "float32"))
    made.kernel.backward(**given)
    assert len(made.cuda.launches) == 9 and made.cuda.launches[-2].params["q"] == given["q"].pointer
    assert made.cuda.launches[3].params["dlse"] != 0


def test_what_tiles_cannot_read_is_packed_first(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    shape = given["dout"].shape
    given["dout"] = FakeArray(shape, "float16", pointer=given["dout"].pointer + 2)
    given["lse"] = FakeArray(shape[:-1], "float32", strides=(2 * HEADS * Q_LEN, 2 * Q_LEN, 1))
    made.kernel.backward(**given)
    copies = {array.contents[0] for array in made.framework.released if array.contents}
    assert copies == {f"copy of {given[name].pointer}" for name in ("dout", "lse")}


def into_dq(made: Bench, given: dict[str, FakeArray], dq: FakeArray) -> Gradients:
    """Of a call that brings an array for dq."""
    call = Arguments(given["q"], given["k"], given["v"], {})
    return made.kernel.run_backward(
        BackwardArguments(call, *(given[name] for name in ("dout", "out", "lse")), None, False, dq)
    )


def test_dq_is_written_where_the_caller_wants_it(bench: MakeBench) -> None:
    """Some rows of a larger array: also by a call whose form is known."""
    made, given = made_of(bench, plans.CAUSAL), operands()
    strides, rounded = (HEADS * 100 * D, 100 * D, D, 1), []
    for number in range(4):
        dq = FakeArray(given["q"].shape, "float16", strides=strides)
        before = len(made.framework.allocated)
        if number < 3:
            found = into_dq(made, given, dq).dq
        else:
            call = tuple(Arguments(given["q"], given["k"], given["v"], {}))
            again = made.kernel.backward_again(call, given["dout"], given["out"], given["lse"], None, False, dq)
            assert again is not None
            found = again[0]
        assert found is dq and len(made.framework.allocated) == before + 3  # dk, dv, the workspace
        rounded.append(made.cuda.launches[-1].params)
        assert rounded[-1]["dq"] == dq.pointer
    assert {(item["dq_stride_batch"], item["dq_stride_head"], item["dq_stride_row"]) for item in rounded} == {
        strides[:3]
    }


@pytest.mark.parametrize("unfit", [{"pointer": 0x10002}, {"strides": (HEADS * 49 * 17, 49 * 17, 17, 1)}], ids=str)
def test_dq_is_copied_to_where_kernels_can_not_write(bench: MakeBench, unfit: dict[str, Any]) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    dq = FakeArray(given["q"].shape, "float16", **unfit)
    assert into_dq(made, given, dq).dq is dq
    written = made.cuda.launches[-1].params["dq"]
    assert written != dq.pointer and dq.contents == [f"copy of {written}"]
    assert written in {array.pointer for array in made.framework.released}


def test_dq_of_another_shape_is_refused(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    with pytest.raises(AttnccError, match="A602"):
        into_dq(made, given, FakeArray((BATCH, HEADS, Q_LEN + 1, D), "float16"))


def test_calls_without_rows_write_zeros_for_keys_alone(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    for name in ("q", "dout", "out"):
        given[name] = FakeArray((BATCH, HEADS, 0, D), "float16")
    given["lse"] = FakeArray((BATCH, HEADS, 0), "float32")
    made.kernel.backward(**given)
    assert names(made) == ["causal_backward"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"lse": None}, "A623"),
        ({"dout": None}, "A622"),
        ({"dout": FakeArray((1, 2, 3, 4), "float16")}, "A602"),
        ({"lse": FakeArray((BATCH, HEADS, Q_LEN), "float16")}, "A604"),
        ({"layout": []}, "A6"),
    ],
)
def test_what_is_refused(bench: MakeBench, changed: dict[str, Any], code: str) -> None:
    made = made_of(bench, plans.CAUSAL)
    with pytest.raises(AttnccError, match=code):
        made.kernel.backward(**operands() | changed)
    assert not made.cuda.launches


BIASED = Variant(
    "biased",
    inputs=(
        Input("bias", "f16", (Axis("head"), Axis(length=9)), learnable=True),
        Input("logit", "f32", (Axis("head"),), learnable=True),
    ),
    statements=(Score(apply("add", plans.SCORE, plans.load("bias", symbol("h"), plans.KV_IDX))),),
    sink="logit",
)


@pytest.mark.parametrize("deterministic", [False, True])
def test_learnable_inputs(bench: MakeBench, deterministic: bool) -> None:
    """Sums are set to 0, the kernel that owns keys adds to them, a sink has its own; exact ones are rounded."""
    made, given = made_of(bench, BIASED), operands()
    bias, logit = FakeArray((HEADS, 9), "float16"), FakeArray((HEADS,), "float32")
    found = made.kernel.backward(**given, bias=bias, logit=logit, deterministic=deterministic)
    assert {name: (array.shape, array.dtype) for name, array in found.inputs.items()} == {
        "bias": (bias.shape, "float16"), "logit": (logit.shape, "float32"),
    }  # fmt: skip
    main = next(item.params for item in made.cuda.launches if item.kernel == "biased_backward_fp16_d16_sm_90")
    sink = next(item.params for item in made.cuda.launches if item.kernel.startswith("sink_gradient"))
    assert (main["bias__gradient_stride0"], main["bias__gradient_stride1"]) == (9, 1)
    assert main["exact"] == sink["exact"] == deterministic and sink["sink"] == logit.pointer
    zeroed = [address for address, _, _ in made.cuda.zeroed]
    assert main["bias__gradient"] in zeroed and sink["gradient"] in zeroed
    if deterministic:
        rounded = [item.params for item in made.cuda.launches if item.kernel.startswith("exact_sum")]
        assert [item["count"] for item in rounded] == [HEADS * 9, HEADS]
        assert [item["sums"] for item in rounded] == zeroed and rounded[1]["out"] == found.inputs["logit"].pointer
        assert made.cuda.zeroed_words == [HEADS * 9 * 34, HEADS * 34]
    else:
        assert sink["gradient"] == found.inputs["logit"].pointer
    assert found.inputs["bias"].contents  # rounded from the sum
