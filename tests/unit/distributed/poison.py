"""NaN in all memory that a shared call may not read before it was written, and calls that take their time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from attncc.distributed import call_parts, engines, launches, own_gradients, peer_memory, peer_transport, sharded
from attncc.distributed import transport as transports

NAN = 0xFF  # in all bytes: a NaN of each type
MODULES = call_parts, launches, own_gradients, peer_transport, sharded, transports


def spoil(x: Any) -> Any:
    if x.is_floating_point():
        x.fill_(float("nan"))
    elif x.dtype == torch.uint8:
        x.fill_(NAN)
    return x


class _Torch:
    """torch, whose new memory is NaN."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *sizes: Any, **options: Any) -> Any:
        return spoil(torch.empty(*sizes, **options))

    def empty_like(self, x: Any, **options: Any) -> Any:
        return spoil(torch.empty_like(x, **options))


def _after_use(done: Callable[[Any], None]) -> Callable[[Any], None]:
    """What others sent is NaN as soon as a turn is done. Rows of K and V that nobody sends stay: calls rely on them."""

    def spoiled(turn: Any) -> None:
        if not turn._is_done and turn._slots.count == 1:
            spoil(turn.own)
        done(turn)

    return spoiled


def _fetched(fetch: Callable[..., Any]) -> Callable[..., Any]:
    def spoiled(exchange: Any, k: Any, v: Any, heads: Any, read: Any) -> Any:
        found = fetch(exchange, k, v, heads, read)
        done, own = found._done, exchange._own

        def end() -> None:
            runs = [run for some in (own, *exchange.first.coming) for run in some.runs]
            for x in (found.k, found.v):
                for begin, stop in runs:
                    spoil(x.narrow(exchange.axis, begin, stop - begin))
            found._done = None
            done()

        if done is not None:
            found._done = end
        return found

    return spoiled


def _grown(grow: Callable[..., Any]) -> Callable[..., Any]:
    def spoiled(slots: Any, size: int) -> Any:
        memory = grow(slots, size)
        spoil(memory.own)
        engines.meet(slots._group)
        return memory

    return spoiled


@contextmanager
def poisoned() -> Iterator[None]:
    """Within it no result may be NaN that isn't otherwise. All ranks enter it together."""
    with ExitStack() as stack:
        for module in MODULES:
            stack.enter_context(patch.object(module, "torch", _Torch()))
        for kind, name, changed in (
            (peer_memory.Turn, "done", _after_use),
            (peer_memory.Slots, "_grow", _grown),
            (peer_transport.PeerExchange, "fetch", _fetched),
        ):
            stack.enter_context(patch.object(kind, name, changed(getattr(kind, name))))
        yield


@contextmanager
def delayed(seed: int, most: float) -> Iterator[None]:
    """Copies, flags and waits on this rank take up to so many seconds longer, one in four."""
    rng = random.Random(seed)

    def late(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            if rng.random() < 0.25:
                time.sleep(rng.random() * most)
            return function(*arguments, **options)

        return run

    with ExitStack() as stack:
        for name in ("copy", "tell", "wait"):
            stack.enter_context(patch.object(engines.OnHost, name, late(getattr(engines.OnHost, name))))
        stack.enter_context(patch.object(launches.ByOffset, "_forward", late(launches.ByOffset._forward)))
        stack.enter_context(patch.object(launches.ByOffset, "_backward", late(launches.ByOffset._backward)))
        yield
