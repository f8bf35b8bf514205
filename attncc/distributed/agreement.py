"""What all ranks have to say alike."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ..problem.refusal import refused


def check_alike(mine: Any, group: Any, code: str, what: str) -> None:
    """A722 or A721 where ranks say different things. Waits for all of them."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, repr(mine), group)
    others = [rank for rank, text in enumerate(found) if text != found[0]]
    if others:
        came = f"{found[others[0]]} on rank {others[0]}"
        raise refused(code, f"ranks have different {what}", expected=f"{found[0]}, as rank 0", came=came)
