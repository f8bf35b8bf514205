"""Memory of each rank that the others of its group copy into, and flags that say when they may and when they have.

A rank's K and V of full length lie in one of two slots, so that others' rows of the next call may come while this one
is still computed; gradients of its rows come into an inbox. All ranks use them in the same calls, in turns that count
up: a sender waits until the receiver is done with the turn that had its slot before, copies, and tells the turn; the
receiver waits for that. Each flag has one writer, and grows.

Every wait is for something that all ranks queue earlier, counted by turns, than what waits for it: so none waits in
vain, whatever streams share a queue of the hardware.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from .engines import Engine, Memory, engine_of, meet

Tensor = Any
STEPS = 1024  # that a turn may be told in, one after the other
_LINE = 128  # bytes between flags: each has a line of the L2 cache


class Flags:
    """One word in each rank's memory for each other rank that writes it: `of(rank, writer)` is its address here."""

    def __init__(self, addresses: list[int], first: int) -> None:
        self._addresses, self._first = addresses, first

    def of(self, rank: int, writer: int) -> int:
        return self._addresses[rank] + (self._first + writer) * _LINE


class Turn:
    """The use of a slot in one call. `addresses`: of this slot in each rank's memory."""

    def __init__(self, slots: Slots, number: int, addresses: list[int], waits: bool) -> None:
        self.addresses = addresses
        self._slots, self._number, self._waits = slots, number, waits
        self._asked: set[int] = set()
        self._is_done = False

    @property
    def own(self) -> Tensor:
        """The slot's bytes in this rank's memory."""
        return self._slots.own(self._number)

    @property
    def place(self) -> int:
        """Tells slots, and their memory, apart."""
        return int(self.addresses[self._slots.rank])

    def is_mine(self, user: Any) -> bool:
        """Whether the same user had this slot last, so that what it wrote there is left."""
        return self._slots.user(self.place, user)

    def before_copy(self, receiver: int) -> None:
        """Copies wait until this rank may write to the receiver's slot."""
        if self._waits and receiver not in self._asked:
            done = STEPS * (self._number - self._slots.count)
            self._slots.engine.wait(self._slots.free.of(self._slots.rank, receiver), done, copies=True)
        self._asked.add(receiver)

    def copied(self, receiver: int, step: int, engine: Engine) -> None:
        """Tells, in the order of this engine's copies, that all that goes to the receiver in this step is there."""
        flag = self._slots.there.of(receiver, self._slots.rank)
        engine.tell(flag, STEPS * self._number + step + 1, copies=True)

    def arrived(self, sender: int, step: int) -> None:
        """The current order waits for what the sender told in this step."""
        flag = self._slots.there.of(self._slots.rank, sender)
        self._slots.engine.wait(flag, STEPS * self._number + step + 1, copies=False)

    def done(self) -> None:
        """What this rank sent may be overwritten from here on, and so may its slot by others. May be called again."""
        slots = self._slots
        if self._is_done:
            return
        self._is_done = True
        slots.engine.join()
        for other in range(slots.ranks):
            if other != slots.rank:
                slots.engine.tell(slots.free.of(other, slots.rank), STEPS * self._number, copies=False)
        slots.leave()


class Slots:
    """Equal pieces of memory that turns take one after the other."""

    def __init__(self, engine: Engine, group: Any, count: int, there: Flags, free: Flags) -> None:
        self.engine, self.count, self.there, self.free = engine, count, there, free
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._size, self._turns, self._first = group, 0, 0, 0
        self._memory: Memory | None = None
        self._users: dict[int, Any] = {}  # who had each slot last
        self._left: Any = None  # what a GPU had queued when the last turn was done, and on which stream

    def take(self, size: int) -> Turn:
        """The next turn, of so many bytes: the same on all ranks, which call this together."""
        memory = self._memory
        if memory is None or size > self._size:
            memory = self._grow(size)
        self._enter(memory)
        self._turns += 1
        begin = self._turns % self.count * self._size
        waits = self._turns - self.count > self._first
        addresses = [address + begin for address in memory.addresses]
        return Turn(self, self._turns, addresses, waits)

    def own(self, turn: int) -> Tensor:
        assert self._memory is not None
        return self._memory.own.narrow(0, turn % self.count * self._size, self._size)

    def user(self, slot: int, user: Any) -> bool:
        """Whether the same one had the slot last; this one has it from now on."""
        before, self._users[slot] = self._users.get(slot), user
        return bool(before == user)

    def _grow(self, size: int) -> Memory:
        """All ranks are done with the memory before. It goes back when each has left it."""
        if self._memory is not None and self._memory.own.is_cuda:
            torch.cuda.synchronize(self._memory.own.device)
        meet(self._group)
        size = -(-size // 2**20) * 2**20
        with torch.inference_mode(mode=False):  # whose tensors nobody else may write
            memory = self.engine.allocate(self.count * size, self._group)
        self._memory, self._size, self._first = memory, size, self._turns  # not before: there may be none so large
        self._users.clear()
        return memory

    def _enter(self, memory: Memory) -> None:
        """Turns follow each other also where calls are on several streams."""
        if self._left is not None:
            event, stream = self._left
            current = torch.cuda.current_stream(memory.own.device)
            if current != stream:
                current.wait_event(event)

    def leave(self) -> None:
        assert self._memory is not None
        if self._memory.own.is_cuda:
            event = torch.cuda.Event() if self._left is None else self._left[0]
            current = torch.cuda.current_stream(self._memory.own.device)
            event.record(current)
            self._left = event, current


class PeerMemory:
    """Of one group on one device: it lasts as long as the process, and all plans share it."""

    def __init__(self, group: Any, device: Any) -> None:
        self.engine, self._group, self._device = engine_of(device, group), group, device
        self.local = engine_of(device, group)  # copies inside this rank's memory, beside those to others
        self._outbox: Tensor | None = None
        ranks = dist.get_world_size(group)
        self._flag_memory = self.engine.allocate(4 * ranks * _LINE, group)
        self._flags = [Flags(self._flag_memory.addresses, kind * ranks) for kind in range(4)]

    @cached_property
    def rows(self) -> Slots:
        """K and V of full length."""
        return Slots(self.engine, self._group, 2, self._flags[0], self._flags[1])

    def outbox(self, size: int) -> Tensor:
        """So many bytes of this rank alone that its gradients are copied from, in the turns of `gradients`."""
        if self._outbox is None or self._outbox.shape[0] < size:
            with torch.inference_mode(mode=False):
                self._outbox = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._outbox

    @cached_property
    def gradients(self) -> Slots:
        """Of own rows, as other ranks found them."""
        return Slots(self.engine, self._group, 1, self._flags[2], self._flags[3])


_known: dict[tuple[Any, Any], PeerMemory] = {}


def peer_memory(group: Any, device: Any) -> PeerMemory:
    """All ranks of the group call this together, the first time."""
    key = group or dist.group.WORLD, torch.device(device)
    if key not in _known:
        _known[key] = PeerMemory(group, device)
    return _known[key]
