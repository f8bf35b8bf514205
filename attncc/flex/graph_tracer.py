"""Traces a mod that Dynamo has made a graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from ..import_flex.terms import Element
from ..source import Span
from .frames import NOWHERE, line_span, source
from .inputs import Sources
from .terms import single
from .tracer import Tracer

_PLACE = re.compile(r'File "(.+)", line (\d+)')


class Lifted:
    """What the graphs of mods take beside the indices, in the role of `keys.Contents`.

    A tensor that stands for one of a call has its shape and one element, 0, in memory. Its names are "captured": two
    layers of a model become the same text.
    """

    known = True

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.tensors: list[Any] = [_stand_in(item) if isinstance(item, torch.Tensor) else item for item in items]
        self.names = ["captured"] * len(self.tensors)
        self._places = {id(item): place for place, item in enumerate(self.tensors)}

    def place(self, tensor: Any) -> int | None:
        return self._places.get(id(tensor))


def _stand_in(tensor: Any) -> Any:
    shape = [_extent(size) for size in tensor.shape]
    made = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(shape)
    return made.requires_grad_() if tensor.requires_grad and torch.is_grad_enabled() else made


def _extent(size: Any) -> int:
    """A length of the tensor that torch.compile has at hand. A text that holds for it alone is asked about others."""
    hint = size.node.hint if isinstance(size, torch.SymInt) else size
    return int(size if hint is None else hint)


class GraphTracer(Tracer):
    """Runs graphs of Dynamo's node by node, so that mistakes are shown at the user's line."""

    def __init__(self, lifted: Lifted, device: Any, score_dtype: Any) -> None:
        super().__init__(Sources(lifted, device, score_dtype == torch.float64), device, score_dtype)
        self.node: Any = None
        self._lifted = lifted

    def replayed(self, graph: GraphModule, first: int, count: int, *given: Any) -> Any:
        """What a graph gives for indices, and a score; it takes `count` values that were captured, from `first` on."""
        places = range(first, first + count)
        return _Replay(graph, self).run(*given, *map(self._captured, places))

    def _captured(self, place: int) -> Any:
        """A value that a mod captures: a number becomes a scalar input, because it may change."""
        item = self._lifted.tensors[place]
        if isinstance(item, torch.Tensor):
            return item
        is_float = isinstance(item, float | torch.SymFloat)
        captured = self.sources.number(place, "f32" if is_float else "i64")
        element = Element(captured=captured, indices=(), span=NOWHERE)
        return self.wrap(single(element, torch.float32 if is_float else torch.int64))

    def size(self, tensor: Any, axis: int | None = None) -> Any:
        """The shape of a tensor that a mod captures."""
        place = self._lifted.place(tensor)
        lengths = tensor.shape if place is None else self._lifted.items[place].shape
        found = [self._length(tensor, index, length) for index, length in enumerate(lengths)]
        return found if axis is None else found[axis]

    def _length(self, tensor: Any, axis: int, length: Any) -> Any:
        if not isinstance(length, torch.SymInt):
            return int(length)
        element = Element(captured=self.length(tensor, axis), indices=(), span=NOWHERE)
        return self.wrap(single(element, torch.int64))

    def here(self) -> tuple[Span, str | None]:
        return (NOWHERE if self.node is None else _place(self.node)), None


class _Replay(Interpreter):  # type: ignore[misc]  # torch's types aren't read here
    def __init__(self, graph: GraphModule, tracer: GraphTracer) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self._tracer = tracer

    def run_node(self, node: Any) -> Any:
        self._tracer.node = node
        return super().run_node(node)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """`size` of axes that vary is a list of symbols; by `item` Dynamo reads a number of Python's that it has made a
        tensor, which stays one."""
        if target == "size":
            return self._tracer.size(*args)
        if target == "item":
            return args[0].to(self._tracer.score_dtype) if args[0].is_floating_point() else args[0]
        return super().call_method(target, args, kwargs)


def _place(node: Any) -> Span:
    """The innermost line of the user's of which a node came."""
    found = _PLACE.findall(node.stack_trace or "")
    if not found:
        return NOWHERE
    path, line = found[-1]
    return line_span(source(path), int(line))
