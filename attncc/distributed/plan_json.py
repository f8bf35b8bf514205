"""Plans from JSON."""

from __future__ import annotations

import json
from typing import Any

from ..problem.refusal import refused
from .lengths import Lengths
from .machine import Machine
from .plan_data import MaskPlan, Received, Tried


def fields_of(text: str) -> dict[str, Any]:
    """The fields of the plan that `Plan.to_json` wrote. AttnccError A722 for anything else."""
    try:
        return _fields(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        expected = "what Plan.to_json wrote"
        raise refused(
            "A722", "the text is no plan", expected=expected, came=f"{type(error).__name__}: {error}"
        ) from None


def _fields(data: dict[str, Any]) -> dict[str, Any]:
    given, machine, owners = data["lengths"], Machine(**data["machine"]), tuple(data["owners"])
    lengths = Lengths(tuple(given["q"]), tuple(given["kv"]), given["packed"])
    each = len(owners) // machine.ranks
    if not owners or sorted(owners) != [rank for rank in range(machine.ranks) for _ in range(each)]:
        raise ValueError(f"{machine.ranks} ranks don't own equally many chunks")
    if lengths.q_rows % len(owners) or lengths.kv_rows % len(owners):
        raise ValueError(f"{lengths.q_rows} rows of q, {lengths.kv_rows} of k in {len(owners)} chunks")
    return {
        "lengths": lengths,
        "machine": machine,
        "owners": owners,
        "masks": tuple(_mask(item) for item in data["masks"]),
        "row_bytes": data["row_bytes"],
        "tried": tuple(Tried(**item) for item in data["tried"]),
    }


def _mask(data: dict[str, Any]) -> MaskPlan:
    receives, passed = (
        tuple(tuple(_received(item) for item in of_rank) for of_rank in data[name]) for name in ("receives", "passed")
    )
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    inputs = tuple((name, digest) for name, digest in data["inputs"])
    keys = tuple((begin, end) for begin, end in data["keys"])
    return MaskPlan(**{**data, **lists, "receives": receives, "passed": passed, "inputs": inputs, "keys": keys})


def _received(data: list[Any]) -> Received:
    sender, rows = data
    return Received(sender, tuple((begin, end) for begin, end in rows))
