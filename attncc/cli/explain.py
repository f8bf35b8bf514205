"""`attncc explain`: the IO analysis of one problem, or the page of an error code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError
from ..quoting import json_text
from .console import as_json, progress, report, rich_console, wrapped
from .error_page import error_page
from .files import check_element_types, load_specification
from .options import (
    SPEC_FILE_OR_STDIN,
    define_option,
    dtype_option,
    format_option,
    imports_option,
    input_option,
    problem_options,
    seed_option,
    variant_option,
)

if TYPE_CHECKING:
    from rich.table import Table

    from .. import plausible
    from ..analysis.cost.roofline import Device
    from ..balance import Balance
    from ..compiler import Specification
    from ..explain import Explanation, Order
    from ..kernels.candidates import Candidates
    from ..problem import Problem
    from ..runtime.cuda.nvrtc import Resources
    from ..runtime.store.crossings import Measured
    from ..runtime.store.store import Configuration
    from ..schedule.plan import KernelPlan

_WIDENS = "; a portable one on every target, since tiles of the cache become 16 bits on their way"
_OF_LATENTS = " V in K: calls whose v is the first columns of k, as in MLA, load rows of k once."
MOST_LINES = 10  # of a mask, that are named with the tiles that each leaves partial

CODE = re.compile(r"A\d{3}", re.IGNORECASE)
NEARLY_CODE = re.compile(r"[AE]?\d+", re.IGNORECASE)


class SpecOrCode(click.ParamType[Any]):
    """A .attn file, or the code of a diagnostic."""

    name = "file or code"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if CODE.fullmatch(value):
            return value.upper()
        if NEARLY_CODE.fullmatch(value) and not Path(value).exists():
            self.fail(f"{value} is no code: `A` and three digits, as `error[A203]` shows them", param, ctx)
        return SPEC_FILE_OR_STDIN.convert(value, param, ctx)


class Lengths(click.ParamType[Any]):
    """Numbers of keys, with commas between them."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..ir import MAX_LENGTH

        found = [int(item) if item.strip().isdecimal() else -1 for item in str(value).split(",")]
        if not all(0 <= item <= MAX_LENGTH for item in found) or not any(found):  # some caches may be empty
            self.fail(f"{value} is not a list of lengths, such as 100,5000,128000", param, ctx)
        return tuple(found)


@click.command("explain", short_help="Tiles skipped, bytes moved, FLOPs, roofline, resources; or an error code.")
@click.argument("what", metavar="FILE|CODE", type=SpecOrCode())
@variant_option
@problem_options(q_len=4096, heads=16)
@dtype_option
@click.option("--arch", "target", help="The target of the kernel; the best for --device, if not given.")
@click.option("--device", help="The GPU of the roofline; h200, if not given.")
@click.option("--compile/--no-compile", "compiles", default=True, help="Whether ptxas is asked for the registers.")
@click.option(
    "--kv-lens",
    type=Lengths(),
    help="Keys of a batch of caches, as in 100,5000: how work is shared out.",
)
@click.option(
    "--measure",
    "measures",
    is_flag=True,
    help="Run one call on this GPU, and print the bytes that its counters tell beside those predicted.",
)
@click.option(
    "--pass",
    "asked",
    type=click.Choice(["forward", "backward"]),
    default="forward",
    show_default=True,
    help="With --measure: the call.",
)
@click.option(
    "--ncu", type=click.Path(dir_okay=False, path_type=Path), help="With --measure: Nsight Compute, if not in PATH."
)
@click.option(
    "--kv-dtype",
    type=click.Choice(["e4m3", "int8"]),
    help="The dtype of a cache of 8 bits beside q of 16; its kernels are portable ones on every target.",
)
@seed_option("Seed of the inputs that are drawn at random.")
@input_option
@define_option
@imports_option
@format_option
def command(*, what: Path | str, **given: Any) -> None:
    """Explain what a call of a variant costs: tiles skipped and why others are not, FLOPs, bytes between HBM and
    on-chip memory for standard attention and both loop orders, the roofline, shared memory and registers.

    \b
    attncc explain specs/sliding_window.attn --q-len 16384
    attncc explain specs/documents.attn -i doc=doc.npy --batch 2 --device a100
    attncc explain causal --q-len 1 --kv-heads 8 --kv-lens 100,5000,128000
    attncc explain causal --head-dim 128 --measure --pass backward
    attncc explain A203
    """
    if isinstance(what, str):
        page = error_page(what)
        click.echo(json_text({"code": what, "text": page}) if as_json() else page)
        return
    if given["measures"]:
        _measure(what, given)
        return
    if given["asked"] != "forward" or given["ncu"]:
        raise click.UsageError("--pass and --ncu go with --measure")
    given["device"] = given["device"] or "h200"
    lengths = given["kv_lens"]
    if lengths is not None:
        given["problem"] = _of_lengths(given["problem"], lengths)
    explained, resources, drawn = _explained(what, given)
    shared = None if lengths is None else _balance(explained, lengths, drawn, given["given_inputs"])
    if as_json():
        from dataclasses import asdict

        shown = None if resources is None or isinstance(resources, str) else asdict(resources)
        told = {name: item.how for name, item in drawn.items()}
        of_lengths = {} if shared is None else {"lengths": shared.to_json()}
        click.echo(json_text({**explained.to_json(), **of_lengths, "drawn": told, "resources": shown}, indent=2))
    else:
        _print(explained, resources, drawn)
        if shared is not None:
            click.echo("\n".join(wrapped(line, 15) for line in _shared_out(shared, lengths)))
    _warn(explained)


def _measure(file: Path, given: dict[str, Any]) -> None:
    from .measure import measure

    names = {"--device": "device", "--arch": "target", "--kv-lens": "kv_lens"}
    useless = [option for option, name in names.items() if given[name] is not None]
    if useless:
        raise click.UsageError(f"--measure counts dense calls on the GPU of this machine, without {useless[0]}")
    measure(file, given)


def _of_lengths(problem: Problem, lengths: tuple[int, ...]) -> Problem:
    """A dense problem that has room for them: what kernels are chosen by, and what the table is of."""
    if problem.batch not in (1, len(lengths)):
        raise click.UsageError(f"--batch {problem.batch} doesn't go with the {len(lengths)} caches of --kv-lens")
    return replace(problem, batch=len(lengths), kv_len=max(lengths))


def _balance(
    explained: Explanation,
    lengths: tuple[int, ...],
    drawn: Mapping[str, plausible.Drawn],
    given_inputs: Mapping[str, Any],
) -> Balance:
    from ..balance import balance

    problem = replace(explained.problem, cached=True, kv_lens=lengths)
    inputs = {**{name: item.array for name, item in drawn.items()}, **given_inputs}
    return balance(explained.plan, problem, inputs, explained.device)


def _shared_out(found: Balance, lengths: tuple[int, ...]) -> Iterator[str]:
    roof, total = found.roofline, sum(lengths)
    arrays = "K, of which V is columns" if found.v_in_k else "K and V"
    yield (
        f"lengths        {_counted(len(lengths), 'cache')} of {min(lengths):,} to {max(lengths):,} keys, {total:,} in "
        f"all; the table above is for caches that all have {max(lengths):,}"
    )
    yield (
        f"thread blocks  {found.blocks:,} with {found.least:,} to {found.most:,} tiles of keys each; "
        f"{found.resident:,} fit the GPU at once. The slowest place takes {found.imbalance:.2f} x the mean"
    )
    shared = f"{found.cut:,} of {found.items:,} items (rows of a key head) are cut into {found.parts:,} parts"
    yield f"parts          {shared}; {found.part_bytes / 1e6:.3g} MB are written, and read to merge them"
    yield (
        f"bound          {roof.bound_by}: {found.kv_bytes / 1e6:,.4g} MB of {arrays}, "
        f"{roof.memory_seconds * 1e6:.4g} us with all that moves; the tensor cores need "
        f"{roof.compute_seconds * 1e6:.4g} us"
    )
    worse = found.one_count_busiest / max(found.busiest, 1)
    yield (
        f"one number     with {_counted(found.one_count, 'split')} for every item, which the longest asks for, the "
        f"slowest place would take {worse:.2f} x as long"
    )


def _warn(explained: Explanation) -> None:
    from ..advice import little_kept

    found = little_kept(explained.plan.variant, explained.plan.rules, explained.kept_pairs, explained.computed_pairs)
    if found is not None:
        report([found], err=as_json())


def _explained(
    file: Path, given: dict[str, Any]
) -> tuple[Explanation, Resources | str | None, Mapping[str, plausible.Drawn]]:
    """With what is known of registers, and the inputs that were drawn."""
    from .. import plausible
    from ..compiler import check_cache_dtype
    from ..explain import explain
    from ..runtime.cuda.device import best_target
    from ..runtime.store.store import Configuration

    device, target = _device_and_target(given)
    specification, problem = load_specification(file, given), given["problem"]
    check_element_types(specification.variant, given["given_inputs"])
    if best_target([target], device.capability) is None:
        what = f"note: kernels for {target} don't run on --device {device.name}, whose roofline this is\n"
        click.echo(what, err=True)
    dims = problem.head_dim, problem.value_head_dim
    configuration = Configuration(given["dtype"], *dims, kv_dtype=given["kv_dtype"])
    check_cache_dtype(configuration)
    served = replace(problem, cached=given["kv_lens"] is not None)  # the call whose kernel is looked for
    plan, beside, kernels = _chosen(specification, configuration, target, served, device)
    _note_sizes(specification, plan)
    resources: Resources | str | None = None
    if given["compiles"]:
        with progress("compiling"):
            plan, resources = _settled(next(item for item in kernels if item.build == plan.build))
    drawn = plausible.of_mask(specification.variant, problem, given["seed"], given["given_inputs"])
    inputs = {name: item.array for name, item in drawn.items()} | given["given_inputs"]
    with progress("counting"):
        return explain(plan, problem, inputs, device, beside), resources, drawn


def _device_and_target(given: dict[str, Any]) -> tuple[Device, str]:
    """Of the roofline, and of the kernel: what was given, or the best for the device."""
    from ..analysis.cost.roofline import DEVICES
    from ..compiler import check_targets
    from ..kernels.registry import targets_of
    from ..runtime.cuda.device import best_target

    if given["device"] not in DEVICES:
        raise click.UsageError(f"--device {given['device']} is not one of {', '.join(DEVICES)}")
    device, targets = DEVICES[given["device"]], targets_of(given["dtype"])
    target = given["target"] or best_target(targets, device.capability)
    if target is None:
        what = f"--device {device.name} has no kernels of {given['dtype']}: they run on {', '.join(targets)}"
        raise click.UsageError(what)
    check_targets([target])
    return device, target


def _chosen(
    specification: Specification, configuration: Configuration, target: str, problem: Problem, device: Device
) -> tuple[KernelPlan, tuple[KernelPlan, ...], tuple[Candidates, ...]]:
    """The plan that runs a call; those of other calls of its pass that have kernels of their own; and the candidates
    of all."""
    from ..runtime.store.crossings import chip_like
    from ..schedule.plan import OWN_KERNELS

    own = (configuration._replace(**kernel._asdict()) for kernel in OWN_KERNELS)
    kernels = [found for one in (configuration, *own) for found in specification.candidates(one, target)]
    plan = specification.runs(configuration, target, problem, chip_like(device))
    alike = plan.pass_name, plan.lengths
    beside = [item.first for item in kernels if (item.build.pass_name, item.build.lengths) == alike]
    beside.remove(plan)
    return plan, tuple(beside), tuple(kernels)


def _note_sizes(specification: Specification, plan: KernelPlan) -> None:
    """Says so where the schedule of a plan sets sizes of tiles that aren't for its head dims."""
    from ..compiler import ignores_sizes
    from ..schedule.plan import NARROW

    schedule = specification.schedule(plan.pass_name, plan.target, plan.lengths)
    if schedule is not None and ignores_sizes(schedule, plan.build):
        what = f"note: the sizes of tiles in schedule {schedule.name} are for head dims to {NARROW}"
        click.echo(f"{what}: for wider heads it must name a family\n", err=True)


def _settled(candidates: Candidates) -> tuple[KernelPlan, Resources | str]:
    """The plan that the kernel gets and what ptxas says of it, or why that isn't known: the rest needs no NVRTC."""
    from ..settle import settle

    try:
        found = settle(candidates)
    except AttnccError as error:
        if [item.code for item in error.diagnostics] != ["A501"]:
            raise
        return candidates.first, f"not known: {error.diagnostics[0].message}"
    return found.plan, found.compiled.resources


# -------------------------------------------------------------------- text


def _print(explained: Explanation, resources: Resources | str | None, drawn: Mapping[str, plausible.Drawn]) -> None:
    from ..analysis.mask.normal_form import LARGE
    from ..explain import LATENTS, compares_orders
    from .check import describe

    plan, problem = explained.plan, explained.problem
    dims = dict.fromkeys((problem.head_dim, problem.value_head_dim))
    title = (
        f"{plan.variant.name}, {plan.dtype}{_of_cache(plan)}: batch {problem.batch}, {problem.num_heads} heads over "
        f"{problem.num_kv_heads} key heads, q_len {problem.q_len}, kv_len {problem.kv_len}, "
        f"head dim {':'.join(map(str, dims))}"
    )
    click.echo(f"{wrapped(title)}\n\nmask\n{describe(plan.variant, plan.rules)}\n{drawn_inputs(drawn)}")
    rich_console().print(_orders(explained))
    share = explained.kept_pairs / max(explained.pairs, 1)
    orders = (
        "Algorithm 1 is FlashAttention's with the paper's blocks; kv_outer (its order) and q_outer "
        "(FlashAttention-2's) are the kernels, whose blocks also fit the registers."
        if compares_orders(plan.variant)
        else f"{plan.loop} is the kernel. Other orders aren't told of: the mask's normal form has more than "
        f"{LARGE} parts."
    )
    notes = (
        f"{'' if explained.counted else 'about '}{share:.2%} of the pairs are kept"
        f"{'' if explained.counted else ' (of rows chosen at random: all would take long)'}: "
        f"{explained.useful_flops / 1e9:,.4g} useful GFLOP. `standard` writes S and P "
        f"to HBM and reads them back; {orders} ms is the least that the "
        f"{explained.device.name} can take, by its roofline, and what bounds it."
        f"{_OF_LATENTS * any(order.name == LATENTS for order in explained.orders)}"
    )
    click.echo(f"\n{wrapped(notes)}\n")
    click.echo("\n".join(wrapped(line, 15 - len(line) + len(line.lstrip())) for line in _kernel(explained, resources)))


def _of_cache(plan: KernelPlan) -> str:
    return "" if plan.kv_dtype is None else f" over a cache of {plan.kv_dtype}"


def drawn_inputs(drawn: Mapping[str, plausible.Drawn]) -> str:
    """Which inputs were drawn, and how; empty where none was."""
    if not drawn:
        return ""
    lines = [wrapped(f"  {item}", 2) for item in drawn.values()]
    return "\n".join(["inputs drawn at random; give yours with -i, others with --seed", *lines, ""])


def _orders(explained: Explanation) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("", "tiles", "empty", "partial", "full", "GFLOP", "HBM MB", "FLOP/B", "ms", "bound"):
        table.add_column(name, justify="left" if name in ("", "bound") else "right", no_wrap=True)
    for order in explained.orders:
        roof = order.roofline
        numbers = (order.flops / 1e9, order.bytes_moved / 1e6, roof.intensity, roof.seconds * 1e3)
        table.add_row(order.name, *_tiles(order), *map(_number, numbers), roof.bound_by)
    return table


def _tiles(order: Order) -> list[str]:
    if order.blocks is None:
        return [""] * 4
    total = sum(order.tiles.values())
    return ["{} x {}".format(*order.blocks), *(_share(count / total) for count in order.tiles.values())]


def _share(part: float) -> str:
    return f"{part:.0%}" if part in (0, 1) else f"{part:.1%}"


def _number(value: float) -> str:
    if value >= 1e5:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _crossings(found: Measured | None) -> str:
    """Where the points come from by which the kernel is chosen."""
    if found is None:
        return "the usual ones, an H200's; attncc tune --crossings measures another GPU's"
    return f"measured on this machine's {found.device}, {found.about.get('measured', 'without a date')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _of_grid(plan: KernelPlan) -> str:
    """Of a kernel with 2-D tiles: which."""
    grid_2d = plan.grid_2d
    if grid_2d is None:
        return ""
    kind = "windows" if grid_2d.window else "2-D tiles"
    return f" ({kind} of a grid {grid_2d.width} wide: {grid_2d.q_columns} columns of q, {grid_2d.kv_columns} of kv)"


def _kernel(explained: Explanation, resources: Resources | str | None) -> Iterator[str]:
    yield from _what_runs(explained)
    yield from _room(explained, resources)
    yield from _ways_out(explained)
    yield from _other_launches(explained)


def _what_runs(explained: Explanation) -> Iterator[str]:
    from ..kernels.decode.facts import Decode
    from ..kernels.kernel_names import kernel_name
    from ..kernels.registry import facts_of

    plan = explained.plan
    splits = {None: f"about {explained.splits} splits (chosen at each call)", 1: "1 split"}.get(
        plan.split_kv, f"{plan.split_kv} splits"
    )
    yield (
        f"kernel         {plan.pass_name}, {plan.loop}, {plan.block_q} x {plan.block_kv} tiles{_of_grid(plan)}, "
        f"{_counted(plan.warps, 'warp')}, {_counted(plan.stages, 'stage')}, {splits}, on {plan.target}"
        f"{_WIDENS * (plan.kv_dtype is not None)}"
    )
    yield f"its calls      {facts_of(plan).calls}"
    if isinstance(facts_of(plan), Decode):
        yield f"crossings      {_crossings(explained.crossings)}"
    for other in explained.beside:
        served = facts_of(other).calls if any(other.own_kernel) else f"other {other.pass_name} calls"
        yield f"another one    for {served}: {kernel_name(other)}"
    if plan.lengths is not None:
        yield "lengths        {:,} to {:,} keys: the schedule is for these".format(*plan.lengths)
    for names, own, columns in explained.filled:
        yield f"rows           each call copies {names}: {own} columns, filled with zeros up to {columns}"


def _room(explained: Explanation, resources: Resources | str | None) -> Iterator[str]:
    from ..schedule.target import TARGETS

    parts, target = explained.shared_memory, TARGETS[explained.plan.target]
    shown = ", ".join(f"{name} {size}" for name, size in parts.items())
    yield f"shared memory  {sum(parts.values())} of {target.shared_bytes} bytes: {shown}"
    if isinstance(resources, str):
        yield f"registers      {resources}"
    elif resources is not None:
        spills = resources.spill_stores + resources.spill_loads
        spilled = f"{spills} bytes of spills" if spills else "no spills"
        yield f"registers      {resources.registers} a thread, {spilled} (ptxas)"


def _ways_out(explained: Explanation) -> Iterator[str]:
    yield f"tiles          {explained.way_out}"
    keeps = zip(explained.plan.variant.keeps, explained.partial_tiles, strict=False)
    partial = [(count, keep) for keep, count in keeps if count]
    for count, keep in sorted(partial, key=lambda pair: -pair[0])[:MOST_LINES]:
        line = f"line {keep.span.line}" if keep.span else "a keep line"
        yield f"               {line} alone leaves {count:,} of them partial"
    if len(partial) > MOST_LINES:
        yield f"               and {len(partial) - MOST_LINES} more lines leave no more each"


def _other_launches(explained: Explanation) -> Iterator[str]:
    """Before and after the kernel."""
    from ..kernels.helpers.transposition import TransposedValues, pays
    from ..kernels.launched import helper_kernels
    from ..kernels.parameters import input_prepasses
    from ..runtime.call.prepare import few_keys

    plan = explained.plan
    for prepass in input_prepasses(plan):
        found = ["min/max tables"] * (prepass.min_max_table is not None)
        found += ["whether it is nondecreasing"] * prepass.sorted_hint
        left_out = prepass.min_max_table is None and few_keys(plan, explained.problem)
        when = ", unless all blocks run at once" * left_out
        launch = f"a launch of min_max_table before the kernel{when}"
        yield f"pre-pass       {prepass.input}: {' and '.join(found)}, {launch}"
    if pays(plan, explained.problem):
        size = TransposedValues.of(plan, explained.problem).bytes
        yield f"pre-pass       v is transposed once, {size} bytes, a launch of transpose_values before the kernel"
    if any(helper.template == "helpers/combine.cu.j2" for helper in helper_kernels(plan)):
        yield "after it       the kernel combine merges the splits, if there are several"
    yield "copies         an array whose base or strides aren't multiples of 16 bytes is copied before the launch"
