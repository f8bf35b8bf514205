"""`plan`: who owns which rows of a sequence, and which rows of K and V go where. Pure Python and NumPy, no GPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..diagnostics import Diagnostic, warn
from ..ir import Variant, reads
from ..problem.refusal import refused
from ..schedule.plan import DTYPE_BYTES
from .assign import Attempt, attempts
from .cost import OTHERS, Load, Outcome, Owners, own_runs, routes
from .head_groups import heads_apart
from .key_places import spared_keys
from .lengths import Lengths, chunks_of
from .machine import Machine
from .needs import Ints, Needs, needs
from .picture import drawn
from .plan_data import MaskPlan, PlanData, Received, Tried, digest_of, key_of
from .plan_json import fields_of
from .plan_text import explained
from .query_places import launched_together
from .relays import Runs
from .swaps import Budget


class Plan(PlanData):
    """What `plan` gives."""

    @cached_property
    def digest(self) -> str:
        """Equal for equal plans; processes compare theirs."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def explain(self) -> str:
        """Balance, bytes, predicted time, what was proven away, and which assignments lost and why."""
        return explained(self)

    def to_json(self) -> str:
        """A text for other processes, which `from_json` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Plan:
        """What `to_json` wrote. AttnccError A722 for anything else."""
        return Plan(**fields_of(text))

    def picture(self, path: Path | str) -> None:
        """Writes an SVG: who owns each chunk, and who sends how many rows to whom."""
        Path(path).write_text(drawn(self), encoding="utf-8")


def plan(
    kernels: Any,
    lengths: Any,
    *,
    ranks: int,
    nodes: int = 1,
    chunk: int | None = None,
    batch: int | None = None,
    heads: int | tuple[int, int] = 1,
    head_dim: int | tuple[int, int] = 128,
    dtype: str = "bf16",
    machine: Machine | None = None,
    **inputs: Any,
) -> Plan:
    """Which rank owns which rows, and which rows of K and V it receives.

    `kernels`: a kernel, or what `attncc.parse` gives; or a list of these, or of pairs (kernel, layers), that share one
    assignment. `lengths`: rows of q and k: an int, a list of lengths (a packed batch), or a tuple of two such (q, k).
    `chunk`: rows of q in a chunk; without it a rank has 8 chunks, if they are at least 512 rows. `batch`: sequences of
    a dense batch. `heads`: of q, or (of q, of k); `head_dim`: of q and k, or (of these, of v). `machine`: the speeds of
    GPUs and links, and the nodes; by default those of H100s. `inputs`: what the masks read, whole, as NumPy arrays.

    Time is that of the forward pass; the backward pass computes 2.5 times as much, and moves 3 times as many bytes.
    AttnccError A720 where ranks can't have equal numbers of rows, A6xx for inputs that don't suit; warning A723 where a
    mask needs all rows everywhere.
    """
    machine = _machine(machine, ranks, nodes)
    shape = Lengths.of(lengths)
    chunks = chunks_of(shape, machine.ranks, chunk)
    q_heads, kv_heads = heads if isinstance(heads, tuple) else (heads, heads)
    dims = head_dim if isinstance(head_dim, tuple) else (head_dim, head_dim)
    sizes = {"batch": batch, "num_heads": q_heads, "num_kv_heads": kv_heads, "head_dim": dims[0]}
    row_bytes = (batch or 1) * kv_heads * sum(dims) * _bytes(dtype)
    loads, masks = [], []
    for variant, layers in _variants(kernels):
        taken = {name: value for name, value in inputs.items() if name in {item.name for item in variant.inputs}}
        found = needs(variant, shape, chunks, sizes, taken)
        together = kv_heads if heads_apart(variant) else 1
        sequences = shape.of_chunks(chunks) if launched_together(variant, packed=shape.packed) else None
        keys = _keys(variant, found, shape)
        loads.append(Load(found, layers, 2 * sum(dims) / machine.flops, row_bytes, keys, together, sequences))
        masks.append((variant, taken))
    _check_inputs(kernels, inputs)
    best, *_ = tried = attempts(tuple(loads), chunks, machine, Budget(shape.q_rows))
    of_masks = zip(masks, loads, best.outcomes, strict=True)
    plans = tuple(_mask_plan(mask, load, found, best.owners, machine) for mask, load, found in of_masks)
    made = Plan(shape, machine, tuple(best.owners.tolist()), plans, row_bytes, tuple(map(_of_attempt, tried)))
    _warn_if_all_is_needed(made)
    return made


def _keys(variant: Variant, found: Needs, lengths: Lengths) -> Ints:
    """The rows of K and V that a launch of each chunk of q is given: [chunks, 2]."""
    spared, keys, starts = spared_keys(variant), found.spans, np.asarray(lengths.kv_starts)
    if spared is None:
        keys[:] = 0, starts[-1]
        return keys
    first, last = lengths.of_chunks(len(keys))  # sequences of its queries
    if not spared.before:
        keys[:, 0] = np.minimum(starts[first], keys[:, 0])
    if not spared.behind:
        keys[:, 1] = np.maximum(starts[last + 1], keys[:, 1])
    return keys


def _machine(machine: Machine | None, ranks: int, nodes: int) -> Machine:
    if machine is not None and machine.ranks != ranks:
        came = f"ranks={ranks}, Machine(ranks={machine.ranks})"
        raise refused("A720", "`machine` has other ranks", expected="the same number in both", came=came)
    machine = machine or Machine(ranks, nodes)
    if machine.nodes < 1 or machine.ranks < 1 or machine.ranks % machine.nodes:
        raise refused(
            "A720",
            "nodes don't have equal numbers of ranks",
            expected="ranks that are a multiple of nodes",
            came=f"{machine.ranks} ranks, {machine.nodes} nodes",
        )
    return machine


def _bytes(dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        raise refused("A720", "`dtype` can't be used", expected=", ".join(DTYPE_BYTES), came=repr(dtype))
    return DTYPE_BYTES[dtype]


def _variants(kernels: Any) -> Iterable[tuple[Variant, int]]:
    for item in kernels if isinstance(kernels, list) else [kernels]:
        kernel, layers = item if isinstance(item, tuple) else (item, 1)
        variant = kernel if isinstance(kernel, Variant) else getattr(kernel, "variant", None)
        if not isinstance(variant, Variant) or not isinstance(layers, int) or layers < 1:
            expected = "a kernel, what attncc.parse gives, or a list of these or of pairs (kernel, layers)"
            help = f"pass attncc.parse({kernel!r})" if isinstance(kernel, str) else ""
            raise refused("A720", "`kernels` can't be used", expected=expected, came=repr(item)[:80], help=help)
        yield variant, layers


def _check_inputs(kernels: Any, inputs: Mapping[str, Any]) -> None:
    """A608 for what no mask reads, since that is a mistake in a name."""
    variants = [variant for variant, _ in _variants(kernels)]
    known = {item.name for variant in variants for item in variant.inputs}
    for name in inputs:
        if name not in known:
            came, expected = name, ", ".join(sorted(known)) or "no inputs"
            raise refused("A608", f"`{name}` is not an input of the masks", expected=expected, came=came)


def _mask_plan(
    mask: tuple[Variant, Mapping[str, Any]], load: Load, outcome: Outcome, owners: Owners, machine: Machine
) -> MaskPlan:
    variant, inputs = mask
    found, forward, backward = outcome.figures, outcome.forward, outcome.backward
    same, size = machine.same_node, load.row_bytes
    receives, passed = routes(load.needs, owners, machine).runs()
    read = reads(variant, *(keep.condition for keep in variant.keeps))
    return MaskPlan(
        variant.name,
        key_of(variant),
        tuple((name, digest_of(value)) for name, value in inputs.items() if name in read),
        load.layers,
        _received(receives, load.needs, machine.ranks),
        _received(passed, load.needs, machine.ranks),
        tuple((own_runs(load, owners) != OTHERS).tolist()),
        tuple(map(tuple, load.keys.tolist())),
        forward.local_first,
        backward.local_first,
        tuple(found.compute.tolist()),
        tuple((np.where(same, found.rows, 0).sum(axis=1) * size).tolist()),
        tuple((np.where(same, 0, found.rows).sum(axis=1) * size).tolist()),
        tuple((found.rows.sum(axis=0) * size).tolist()),
        float(found.seconds.max()),
        found.balance,
        found.share_of_ideal,
        forward.groups,
        backward.groups,
        forward.exposed,
        forward.times.forward((load.heads,)),
    )


def _received(runs: Runs, found: Needs, ranks: int) -> tuple[tuple[Received, ...], ...]:
    """Of each rank, by sender."""
    ends = np.cumsum(found.rows)
    begin, end = ends[runs.first] - found.rows[runs.first], ends[runs.last]
    rows = tuple(zip(begin.tolist(), end.tolist(), strict=True))
    first = np.flatnonzero(np.diff(runs.receiver * ranks + runs.sender, prepend=-1))  # of a receiver and a sender
    parts = map(rows.__getitem__, map(slice, first.tolist(), [*first[1:].tolist(), len(rows)]))
    each = tuple(map(Received, runs.sender[first].tolist(), parts))
    of_rank = np.searchsorted(runs.receiver[first], np.arange(ranks + 1)).tolist()
    return tuple(each[start:stop] for start, stop in pairwise(of_rank))


def _of_attempt(attempt: Attempt) -> Tried:
    return Tried(attempt.name, attempt.swaps, attempt.exposed, attempt.sent)


def _warn_if_all_is_needed(made: Plan) -> None:
    """A723: an all-gather would bring the same rows."""
    if made.ranks == 1:
        return
    everything = made.lengths.kv_rows // made.ranks * (made.ranks - 1)
    for mask in made.masks:
        if all(mask.rows_received(rank) == everything for rank in range(made.ranks)):
            gib = everything * made.row_bytes / 2**30
            warn(
                Diagnostic(
                    "A723",
                    f"`{mask.variant}` needs all rows of K and V on all ranks: nothing was proven away",
                    notes=(
                        f"each rank receives {everything} rows, {gib:.3g} GiB a layer",
                        f"the slowest rank takes {mask.slowest * 1e3:.3g} ms, {mask.share_of_ideal:.0%} of ideal",
                    ),
                    help="ranks by heads (all-to-all of q, k and v) move fewer bytes where there are heads enough",
                    severity="warning",
                ),
                stacklevel=4,
            )
