"""What a kernel takes of a multiprocessor, and whether its target grants it. Register counts are estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod

from ..analysis.additive import only_adds
from ..analysis.skipping import finds_empty
from ..diagnostics import AttnccError, Diagnostic, did_you_mean
from ..ir import const
from ..source import Span
from .choices import FRAGMENT_ROWS, OWNER_WARPS, Build, loop_of
from .families import hopper_lacks, portable_lacks
from .hopper import hopper_facts
from .hopper_backward import BLOCK_Q, OWN_ROWS, OWNERS, HopperBackward
from .hopper_forward import HopperForward
from .parameters import learned
from .plan import DTYPE_BYTES, KEY_PASSES, PASSES, WARPGROUP_ROWS, KernelPlan
from .shared import Parts, shared_parts
from .target import TARGETS

Where = Callable[..., Span | None]

HEAD_DIMS = (16, 256)
HEAD_DIM_STEP = 8
ROW_STEP_BYTES = 16  # rows in memory begin at multiples of this
DROPOUT_KEYS = 32  # that share a counter of the random generator
# Registers for addresses, row sums, fragments of Q, K, V and P. What ptxas takes stands in the resource report.
OTHER_REGISTERS = {"portable": 48, "hopper": 24}
_ORDERS = {
    **dict.fromkeys(KEY_PASSES, "a block owns keys, whose dK and dV its warps hold, and goes over the rows"),
    "backward_dq": "a block owns rows, whose dQ its warps hold, and goes over the keys",
}
KEEPS_ALL = "the mask keeps every pair"
TOO_FINE = "it is decided on tiles much smaller than the kernel's alone"
WGMMA_COLUMNS = 256  # of the widest product


def shared_memory(plan: KernelPlan) -> dict[str, int]:
    """Bytes of dynamic shared memory by part."""
    return {name: prod(factors.values()) for name, factors in _shared_parts(plan).items()}


def value_tiles(plan: KernelPlan) -> tuple[int, int]:
    """Bytes of a tile of V, as it is loaded and transposed."""
    parts = shared_memory(plan)
    return parts["v"] // plan.stages, parts["v transposed"] // plan.stages


def accumulators(plan: KernelPlan) -> dict[str, int]:
    """Registers of each thread for the fp32 accumulators: score is block_q x block_kv, out block_q x head dim.

    Backward: S and its gradient, and the gradients that the block owns.
    """
    if plan.family == "hopper":
        return hopper_facts(plan).accumulators()
    rows = plan.warp_rows
    if plan.is_backward:
        score = rows * (plan.block_q if plan.owns_keys else plan.block_kv) // 32
        keys, values = rows * plan.padded_head_dim // 32, rows * plan.padded_value_head_dim // 32
        if plan.pass_name == "backward_dq":
            return {"score": score, "gradient of score": score, "dq": keys}
        gradients = {"dk": keys, "dv": values} if plan.gradient_parts == 1 else {"dk or dv": max(keys, values)}
        return {"score": score, "gradient of score": score, **gradients}
    return {"score": rows * plan.block_kv // 32, "out": rows * plan.padded_value_head_dim // 32}


def check_build(build: Build, span: Span | None = None) -> None:
    """AttnccError A403, A410 or A411 where no schedule could help."""
    found = [*_bad_names(build, span), *_bad_head_dims(build, span)]
    if found:
        raise AttnccError(found)


def check(plan: KernelPlan, where: Where) -> None:
    """AttnccError A405 to A409 or A412 with all that forbids the plan; `where(knobs…)` is the place to point at.

    A plan in fp64 runs on the CPU executor alone: there is no shared memory to fit.
    """
    hopper_shapes = _hopper_backward_shapes if plan.is_backward else _hopper_shapes
    shapes = hopper_shapes if plan.family == "hopper" else _shapes
    found = [*_combinations(plan, where), *shapes(plan, where), *_keys(plan, where), *_skipping(plan, where)]
    if plan.dtype != "fp64" and not found:
        found = [*_memory(plan, where), *_registers(plan, where)]
    if found:
        raise AttnccError(found)


# -------------------------------------------------------------------- builds


def _bad_names(build: Build, span: Span | None) -> Iterator[Diagnostic]:
    if build.target not in TARGETS:
        yield _unknown("A403", "target", build.target, TARGETS, span)
    if build.dtype not in DTYPE_BYTES:
        yield _unknown("A410", "dtype", build.dtype, DTYPE_BYTES, span)
    if build.pass_name not in PASSES:
        yield Diagnostic(
            "A411",
            f"there is no kernel for the {build.pass_name} pass",
            span,
            notes=(f"this version has {' and '.join(PASSES)}",),
            help="remove the schedule",
        )


def _unknown(code: str, what: str, name: str, known: Iterable[str], span: Span | None) -> Diagnostic:
    names = tuple(known)
    help_text = did_you_mean(name, names) or f"choose another {what}"
    return Diagnostic(
        code, f"there is no {what} `{name}`", span, notes=(f"there are {', '.join(names)}",), help=help_text
    )


def _bad_head_dims(build: Build, span: Span | None) -> Iterator[Diagnostic]:
    least, most = HEAD_DIMS
    step = max(HEAD_DIM_STEP, ROW_STEP_BYTES // DTYPE_BYTES.get(build.dtype, ROW_STEP_BYTES))
    for value in dict.fromkeys((build.head_dim, build.value_head_dim)):
        if not least <= value <= most or value % step:
            yield Diagnostic(
                "A410",
                f"a head dim can't be {value}",
                span,
                help=f"head dims are multiples of {step} from {least} to {most}; pad q, k or v with zeros",
            )


# -------------------------------------------------------------------- plans


def _family_lacks(plan: KernelPlan) -> str | None:
    if plan.family == "portable" and plan.pass_name == "backward_patches":
        return "the backward_patches pass: its backward kernels go over stretches of positions"
    if plan.family == "portable":
        return portable_lacks(plan.dtype)
    lacks = hopper_lacks(plan.target, plan.dtype, plan.loop, plan.pass_name)
    if lacks is None and learned(plan) and not only_adds(plan.variant):
        return "gradients of inputs that more than add to the score: their derivatives ask for the score"
    return lacks


def _other_family(plan: KernelPlan) -> str:
    if portable_lacks(plan.dtype):
        return "e4m3 is for forward passes on sm_90a alone; choose that (--arch sm_90a), or another dtype"
    if plan.family == "portable":
        return "write the schedule for sm_90a, without `family = portable`"
    return "write `family = portable`"


def _combinations(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    lacks = _family_lacks(plan)
    if lacks is not None:
        yield Diagnostic(
            "A412",
            f"the family {plan.family} has no such kernel",
            where("family"),
            notes=(f"it lacks {lacks}",),
            help=_other_family(plan),
        )
    if plan.is_backward and plan.loop != loop_of(plan.pass_name):
        yield Diagnostic(
            "A409",
            f"`loop = {plan.loop}` is no order of the {plan.pass_name} pass",
            where("loop"),
            notes=(_ORDERS[plan.pass_name],),
            help="remove `loop`",
        )
    elif plan.is_backward and plan.split_kv != 1:
        yield Diagnostic(
            "A409", "the backward passes don't split the keys of a row", where("split_kv"), help="remove `split_kv`"
        )
    if plan.loop != "kv_outer" or plan.is_backward:
        return
    if plan.split_kv != 1:
        yield Diagnostic(
            "A409",
            f"`loop = kv_outer` can't split the keys over {plan.split_kv} blocks",
            where("split_kv", "loop"),
            notes=("its outer loop over the keys carries O and the row sums from tile to tile",),
            help="write `split_kv = 1`, or `loop = q_outer`",
        )
    if plan.pass_name != "forward":
        yield Diagnostic(
            "A409",
            f"`loop = kv_outer` is an order of the forward pass, not of the {plan.pass_name} pass",
            where("loop"),
            help="remove `loop`, or write the schedule for the forward pass",
        )


def _shapes(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    name, what = ("block_kv", "keys") if plan.owns_keys else ("block_q", "rows")
    block = plan.block_kv if plan.owns_keys else plan.block_q
    if block % (FRAGMENT_ROWS * plan.warps):
        yield Diagnostic(
            "A405",
            f"{block} {what} don't divide among {plan.warps} warps",
            where(name, "warps"),
            notes=(f"{name} / warps = {block} / {plan.warps} = {block / plan.warps:g}",),
            help=f"each warp works on a multiple of {FRAGMENT_ROWS} {what}: {name} a multiple of "
            f"{FRAGMENT_ROWS} x warps = {FRAGMENT_ROWS * plan.warps}",
        )
    elif plan.block_q % FRAGMENT_ROWS:
        yield Diagnostic(
            "A405",
            f"block_q can't be {plan.block_q}",
            where("block_q"),
            help=f"choose a multiple of {FRAGMENT_ROWS}",
        )


def _hopper_shapes(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    """One to four warpgroups of 64 rows, 16 for each warp."""
    if plan.block_q not in range(WARPGROUP_ROWS, 4 * WARPGROUP_ROWS + 1, WARPGROUP_ROWS):
        yield Diagnostic(
            "A405",
            f"block_q can't be {plan.block_q} in the family hopper",
            where("block_q", "warps"),
            notes=(f"four warps multiply {WARPGROUP_ROWS} rows together, and a block has up to 16 that do",),
            help=f"choose {WARPGROUP_ROWS}, 128, 192 or 256",
        )
    elif plan.block_q != FRAGMENT_ROWS * plan.warps:
        yield Diagnostic(
            "A405",
            f"{plan.block_q} rows don't divide among {plan.warps} warps in the family hopper",
            where("warps", "block_q"),
            notes=(f"block_q / warps = {plan.block_q} / {plan.warps} = {plan.block_q / plan.warps:g}",),
            help=f"each warp works on {FRAGMENT_ROWS} rows: `warps = {plan.block_q // FRAGMENT_ROWS}`, or leave it out",
        )
    if plan.block_kv > WGMMA_COLUMNS:
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv} in the family hopper",
            where("block_kv"),
            notes=(f"one wgmma has at most {WGMMA_COLUMNS} columns",),
            help=f"choose at most {WGMMA_COLUMNS}",
        )


def _hopper_backward_shapes(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    """Two warpgroups own 64 or 128 keys each, or a gradient each of the same 64."""
    own = OWNERS * OWN_ROWS
    legal = {
        "block_q": (BLOCK_Q,),
        "block_kv": (OWN_ROWS, own, 2 * own),
        "warps": (OWNER_WARPS,),
        "stages": range(2, 9),
    }
    for name, values in legal.items():
        if getattr(plan, name) not in values:
            yield Diagnostic(
                "A405",
                f"{name} can't be {getattr(plan, name)} in the family hopper, backward",
                where(name),
                notes=(f"two warpgroups own {OWN_ROWS} or {2 * OWN_ROWS} keys each; a tile has {BLOCK_Q} rows",),
                help=f"choose {' or '.join(map(str, values))}" if name != "stages" else "choose at least 2",
            )
    if HopperBackward(plan).shares_keys and (plan.variant.dropout is not None or learned(plan)):
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv} in the family hopper, backward, with dropout or learnable inputs",
            where("block_kv"),
            notes=("the warpgroup that makes dS of them knows neither the pairs nor their probabilities",),
            help=f"choose {own}; head dims above 128 then need `family = portable`",
        )


def _keys(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    dropout = plan.variant.dropout is not None and not plan.is_backward
    step = DROPOUT_KEYS if dropout else plan.step_keys
    if plan.block_kv % step:
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv}",
            where("block_kv"),
            notes=(f"with dropout, {DROPOUT_KEYS} keys share one random word",) if dropout else (),
            help=f"choose a multiple of {step}",
        )


def _skipping(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    if plan.skip == "lists" and not plan.may_list_tiles:
        yield Diagnostic(
            "A408",
            "`skip = lists`, but there is nothing to list",
            where("skip"),
            notes=(_nothing_to_list(plan),),
            help="write `skip = auto`",
        )
    if plan.skip == "always" and not finds_empty(plan.variant, plan.rules, plan.block_q, plan.block_kv):
        keeps = plan.variant.keeps
        lines = [(keeps[index].span, reason) for index, reason in plan.rules.undecided]
        otherwise = KEEPS_ALL if plan.rules.any_kept == const(True) else TOO_FINE
        yield Diagnostic(
            "A408",
            "`skip = always`, but no tile can be proven empty",
            where("skip"),
            notes=tuple(f"{span}: {reason}" if span else reason for span, reason in lines) or (otherwise,),
            help="write `skip = auto`: tiles are skipped where that is proven, and the mask decides the rest",
        )


def _nothing_to_list(plan: KernelPlan) -> str:
    if not plan.variant.keeps:
        return "the variant has no `keep` line"
    if plan.rules.bounds_suffice:
        return "loop bounds decide all that can be told of its tiles"
    return f"the pass {plan.pass_name} in the order {plan.loop} goes over tiles without lists"


def _memory(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    limit = TARGETS[plan.target].shared_bytes
    needed = sum(shared_memory(plan).values())
    if needed > limit:
        yield Diagnostic(
            "A406",
            f"the tiles take {needed} bytes of shared memory; {plan.target} lends a block {limit}",
            where("block_q", "block_kv", "stages"),
            notes=tuple(_shown_product(name, factors) for name, factors in _shared_parts(plan).items()),
            help="choose a smaller block_q or block_kv, or fewer stages",
        )


def _registers(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    target = TARGETS[plan.target]
    limit = min(target.max_registers_per_thread, target.registers_per_block // plan.threads)
    most = f"the least of {target.max_registers_per_thread} and {target.registers_per_block} / {plan.threads} threads"
    if plan.family == "hopper" and plan.is_backward:
        backward = HopperBackward(plan)
        limit, adder, producer = backward.owner_registers, backward.adder_registers, backward.producer_registers
        most = f"what is left by those that add up dQ ({adder}) and load ({producer})"
    elif plan.family == "hopper":
        forward = HopperForward(plan)
        limit = forward.consumer_registers
        most = f"what {plan.warpgroups} warpgroups get when the one that loads keeps {forward.producer_registers}"
    parts = accumulators(plan)
    other = OTHER_REGISTERS[plan.family]
    needed = sum(parts.values()) + other
    if needed > limit:
        yield Diagnostic(
            "A407",
            f"the tiles take about {needed} registers a thread; {plan.target} lends it {limit}",
            where("block_q", "block_kv", "warps"),
            notes=(
                *_shown_accumulators(plan, parts),
                f"the rest, an estimate: {other}",
                f"limit: {most}",
            ),
            help="choose a smaller block_kv, or fewer rows a warp (block_q / warps)",
        )


def _shown_accumulators(plan: KernelPlan, parts: dict[str, int]) -> Iterator[str]:
    rows = plan.warp_rows
    if plan.is_backward:
        yield from (f"{name}, of {rows} rows a warp: {count}" for name, count in parts.items())
        return
    yield f"score: {rows} rows a warp x block_kv {plan.block_kv} / 32 lanes = {parts['score']}"
    yield f"out: {rows} rows a warp x head dim {plan.padded_value_head_dim} / 32 lanes = {parts['out']}"
    if "prob" in parts:
        yield f"prob, {8 * plan.element_bytes} bits each: {parts['prob']}"


def _shared_parts(plan: KernelPlan) -> Parts:
    """The factors of each part's size, by name."""
    if plan.family == "portable":
        dims = plan.padded_head_dim, plan.padded_value_head_dim
        return shared_parts(plan.pass_name, plan, *dims, plan.element_bytes)
    return hopper_facts(plan).shared_parts()


def _shown_product(name: str, factors: dict[str, int]) -> str:
    """`q: block_q 128 x head dim 64 x bytes 2 = 16384`."""
    shown = " x ".join(f"{factor} {value}" for factor, value in factors.items())
    return f"{name}: {shown} = {prod(factors.values())}"
