"""`flex_attention` in the graphs of torch.compile: an operator of higher order, whose mods are graphs of their own.

Dynamo traces the mods as it traces those of torch's flex_attention: what they capture becomes arguments, and guards
watch all that is a constant. When the graph is compiled, or run by a backend that compiles nothing, the operator gives
way to that of a kernel, which backends and autograd know. So no call breaks the graph, and other tensors and lengths
compile nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._C import DispatchKey
from torch._C._functorch import TransformType
from torch._dynamo.variables import higher_order_ops
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from ..problem.call_arguments import Arguments
from ..runtime.torch.autograd import as_operator
from .apart import apart
from .entries import Entry, inputs_of_settings, score_dtype_of, settings_of
from .graph_tracer import GraphTracer, Lifted
from .text import Settings, Traced, trace_by

_NAME = "attncc_flex_attention"


class FlexAttention(HigherOrderOperator):  # type: ignore[misc]  # torch's types aren't read here
    """As torch's own: `masks` is a tuple that ends in a mask_mod, `given` holds what models have beside mods."""

    def __init__(self) -> None:
        super().__init__(_NAME)

    def __call__(  # noqa: PLR0917  (as Dynamo passes them)
        self,
        query: Any,
        key: Any,
        value: Any,
        score_mod: Any,
        masks: tuple[Any, ...],
        scale: float | None,
        given: dict[str, Any],
        of_score: tuple[Any, ...] = (),
        of_mask: tuple[Any, ...] = (),
    ) -> tuple[Any, Any]:
        result: tuple[Any, Any] = super().__call__(query, key, value, score_mod, masks, scale, given, of_score, of_mask)
        return result


def _attend(  # noqa: PLR0917  (as Dynamo passes them)
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    masks: tuple[Any, ...],
    scale: float | None,
    given: dict[str, Any],
    of_score: tuple[Any, ...],
    of_mask: tuple[Any, ...],
) -> tuple[Any, Any]:
    """out and lse, by the operator of a kernel."""
    entry, inputs = _entry((score_mod, masks[-1]), (of_score, of_mask), query, settings_of(**given))
    inputs |= inputs_of_settings(entry.traced, **given)
    call = Arguments(query, key, value, inputs, scale, return_lse=True)
    kernel = entry.kernel(query, value)
    return as_operator(kernel, call)


# ---------------------------------------------------------------- mods

Captured = tuple[Sequence[Any], Sequence[Any]]  # what the graphs of the score_mod and of the mask_mod take
_entries: WeakKeyDictionary[Any, dict[Hashable, list[Entry]]] = WeakKeyDictionary()


def _entry(graphs: tuple[Any, Any], captured: Captured, query: Any, settings: Settings) -> tuple[Entry, dict[str, Any]]:
    """The entry of two graphs, which live as long as what Dynamo compiled, and the inputs of a call."""
    tensors = [*captured[0], *captured[1]]
    form = tuple(map(_form, tensors)), query.device, score_dtype_of(query), settings
    kept = _entries.setdefault(graphs[0], {}).setdefault((graphs[1], form), [])
    for entry in kept:
        inputs = entry.inputs(tensors, partial(_number, query.device))
        if inputs is not None:
            return entry, inputs
    entry = Entry(_traced(graphs, captured, query, settings))
    kept.append(entry)
    inputs = entry.inputs(tensors, partial(_number, query.device))
    assert inputs is not None
    return entry, inputs


def _form(item: Any) -> Hashable:
    """What a text depends on, of a value that a mod captures."""
    if not isinstance(item, torch.Tensor):
        return isinstance(item, float | torch.SymFloat)
    return item.dtype, item.ndim, item.device, item.requires_grad and torch.is_grad_enabled()


def _traced(graphs: tuple[Any, Any], captured: Captured, query: Any, settings: Settings) -> Traced:
    """The text of two graphs, traced on tensors of one element that stand for what they capture."""
    grad = torch.is_grad_enabled()
    with apart(), torch.set_grad_enabled(grad):
        lifted = Lifted([*captured[0], *captured[1]])
        tracer = GraphTracer(lifted, query.device, score_dtype_of(query))
        score, mask = map(_alive, graphs)
        counts = [len(items) for items in captured]
        return trace_by(
            tracer,
            partial(tracer.replayed, score, 0, counts[0]),
            [partial(tracer.replayed, mask, *counts)],
            settings,
        )


def _number(device: Any, value: Any, _: bool) -> Any:
    """A captured tensor without axes; a graph can't ask for its value."""
    return value if value.device == device else value.to(device)


def _alive(module: Any) -> Any:
    """A graph without what nobody uses: Dynamo leaves questions for shapes behind, which it has answered itself."""
    graph = deepcopy(module.graph)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)


# ---------------------------------------------------------------- registration


def _by_mode(rule: Callable[..., Any], mode: Any, *given: Any) -> Any:
    with mode:
        return rule(*given)


def _transformed(_: Any, *given: Any) -> tuple[Any, Any]:
    """Under torch.func's transforms, which the call of the kernel meets in turn."""
    return _attend(*given)


def _registered() -> FlexAttention | None:
    """The operator; None where this torch has no table that tells Dynamo how to trace it."""
    table = getattr(higher_order_ops, "_hop_name_to_variable_class", None)
    if table is None or "flex_attention" not in table:
        return None
    made = FlexAttention()
    for key in (DispatchKey.Autograd, DispatchKey.CompositeExplicitAutograd):
        made.py_impl(key)(_attend)
    for mode in (FakeTensorMode, ProxyTorchDispatchMode, FunctionalTensorMode):
        made.py_impl(mode)(partial(_by_mode, _attend))
    for transform in (TransformType.Grad, TransformType.Vmap, TransformType.Jvp):
        made.py_impl(transform)(_transformed)
    table[_NAME] = table["flex_attention"]
    return made


operator = _registered()
