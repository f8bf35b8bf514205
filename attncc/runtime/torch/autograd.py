"""Calls that torch records: their gradient is wanted, or torch.compile traces them. They go through `torch_operator`.

torch is imported when one of its tensors has come, never before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...diagnostics import AttnccError, Diagnostic
from ...ir import Load, Variant
from ...problem.call_arguments import Arguments
from ...problem.facts import ArrayFacts, Signature
from ...problem.gradients import Gradients
from ...problem.inputs import check_names
from ...problem.refusal import refused
from ...schedule.plan import NARROW
from ..call.backward_arguments import BackwardArguments
from ..call.configurations import configuration_of
from .autocast import autocast
from .memoryless import mode_of, one_fake_mode
from .recordable import differentiated, lost_gradient, must_be_operator, tensors, unfit
from .tokens import RecordedKernel, by_token

if TYPE_CHECKING:
    from ..call.launch import Run
    from .torch_operator import TorchOperators

_operators: dict[str, TorchOperators] = {}  # for ever: torch's graphs know operators by name
_served: set[tuple[Any, ...]] = set()  # forms of calls on GPUs that are known to have a backward pass
_lock = threading.Lock()
# What `unfit` says of a tensor on another device than q, or a nested one. The kernel says more of it.
_OF_PLACES = ("A605:", "A650:")


def _operators_of(token: str) -> TorchOperators:
    """The operators of the kernel with this token, registered when they are first asked for."""
    from .torch_operator import TorchOperators

    with _lock:
        if token not in _operators:
            kernel = by_token[token]
            parts = kernel.variant, kernel.configurations, kernel.run_unrecorded, kernel.run_backward
            _operators[token] = TorchOperators(*parts)
        return _operators[token]


def operator_name(token: str) -> str:
    """The name of a kernel's forward operator."""
    return _operators_of(token).name


# What torch.compile is told with `torch.compiler.assume_constant_result`: to run the function and not look into it.
operator_name._dynamo_marked_constant = True  # type: ignore[attr-defined]


def recorded(kernel: RecordedKernel, call: Arguments) -> Any:
    """A call on torch's tensors: out, or (out, lse), with their autograd history.

    A seed that is needed and missing is drawn from torch's generator, on q's device. Under autocast q, k and v come in
    its type, if the kernel was built for that. AttnccError as `Kernel.__call__`, A652 where a gradient is wanted that
    can't be had, and A520 if a package was built without the backward pass.
    """
    import torch

    from .torch_operator import flattened  # only here: it brings the backward pass, which few calls need

    variant = kernel.variant
    with mode_of(call.q):  # where a seed may be drawn
        call = _completed(torch, kernel, call)
    wanted = differentiated(torch, call)
    if not wanted and not must_be_operator(torch, call):
        return kernel.run_unrecorded(call)
    fault = unfit(torch, variant, call)
    if fault:
        raise _refusal(torch, kernel, call, fault)
    loss = lost_gradient(torch, variant, call)
    if loss:
        raise refused("A652", **loss)
    if wanted:
        _check_backward(kernel, call)
    flat = flattened(variant.inputs, call, torch.are_deterministic_algorithms_enabled())
    with one_fake_mode(torch, call):
        out, lse = _operators_of(kernel.token).recorded(flat)
    return (out, lse) if call.return_lse else out


def recorded_form(kernel: RecordedKernel, call: Arguments, prepare: Callable[[Arguments], Run]) -> Run | None:
    """See `call.launch.Recorder`.

    Of a call that `recorded` took. None where a seed is to be drawn, autocast changes the call, or torch is to see an
    operator.
    """
    import torch

    from .recorded_form import RecordedForm
    from .torch_operator import is_seen

    variant = kernel.variant
    if variant.dropout is not None and call.seed is None:
        return None
    changed = autocast(torch, kernel.configurations, call) is not call
    if changed or not differentiated(torch, call) or must_be_operator(torch, call):
        return None
    if is_seen([x for x in (*tensors(torch, call), *call) if isinstance(x, torch.Tensor)]):
        return None
    with torch.no_grad():
        run = prepare(call._replace(return_lse=variant.normalize == "softmax"))
    return RecordedForm(kernel, _operators_of(kernel.token), call, run)


def _check_backward(kernel: RecordedKernel, call: Arguments) -> None:
    """AttnccError A520 or A652 now rather than from `loss.backward()`; asked once for each form of call."""
    q, v = call.q, call.v
    dims = q.shape[-1], v.shape[-1]
    if max(dims) > NARROW:
        raise refused(
            "A652",
            "a gradient is wanted of a call whose head dims have no backward pass",
            expected=f"head dims up to {NARROW}, or tensors without gradients (`torch.no_grad()`)",
            came=f"head dims {dims[0]} and {dims[1]}",
        )
    form = kernel.token, q.get_device(), q.dtype, q.shape[-1:], v.shape[-1:]
    if form in _served or q.get_device() < 0:
        return
    facts = [ArrayFacts(tuple(x.shape), (), str(x.dtype).removeprefix("torch.")) for x in (q, v)]
    kernel.check_backward(configuration_of(kernel.variant.name, kernel.configurations, *facts), q.get_device())
    _served.add(form)


def traced(kernel: RecordedKernel, call: Arguments, stream: Any) -> Any:
    """A call that torch.compile or torch.export looks at: an operator in their graphs.

    One that can't be such breaks the graph, and runs or is refused as it would be elsewhere; where the graph must not
    break, torch's error has the reason, with its code.
    """
    import torch

    from .torch_operator import NAMESPACE, flattened

    variant = kernel.variant
    trouble = _untraceable(torch, variant, call, stream)
    if trouble:
        return _untraced(torch, trouble, kernel.run, call, stream)
    call = _completed(torch, kernel, call)
    flat = flattened(variant.inputs, call, torch.are_deterministic_algorithms_enabled())
    out, lse = getattr(getattr(torch.ops, NAMESPACE), operator_name(kernel.token))(*flat)
    return (out, lse) if call.return_lse else out


def as_operator(kernel: RecordedKernel, call: Arguments) -> tuple[Any, Any]:
    """out and lse of a call whose arguments are of the right kinds, by torch's dispatcher, whatever the tensors are."""
    import torch

    from .torch_operator import flattened

    call = _completed(torch, kernel, call)
    flat = flattened(kernel.variant.inputs, call, torch.are_deterministic_algorithms_enabled())
    operators = _operators_of(kernel.token)
    transformed = torch._C._functorch.peek_interpreter_stack() is not None  # by torch.func
    results: tuple[Any, Any] = operators.recorded(flat) if transformed else operators.forward(*flat)
    return results


def _completed(torch: Any, kernel: RecordedKernel, call: Arguments) -> Arguments:
    """The call under autocast, with a seed where it needs one. Rate 0 draws none, as torch's own dropout."""
    call = autocast(torch, kernel.configurations, call)
    dropout = kernel.variant.dropout
    if call.seed is not None or dropout is None:
        return call
    rate = call.inputs.get(dropout.input) if isinstance(dropout, Load) else None
    if isinstance(rate, float | int) and rate == 0:
        return call._replace(seed=0)
    return call._replace(seed=torch.randint(2**63 - 1, (), dtype=torch.int64, device=call.q.device))


def _untraceable(torch: Any, variant: Variant, call: Arguments, stream: Any) -> str:
    """Why a call can't be an operator of a graph, with a code; empty where it can."""
    if stream is not None:
        return "A651: `stream` can't be used in a compiled call, which runs on the current stream"
    fault = unfit(torch, variant, call)
    if fault:
        return fault
    loss = lost_gradient(torch, variant, call)
    return f"A652: {loss['what']}" if loss else ""


def traced_backward(kernel: RecordedKernel, arguments: BackwardArguments, stream: Any) -> Gradients:
    """`Kernel.backward` where torch.compile looks: it breaks the graph, which autograd's own gradients don't."""
    import torch

    trouble = "A652: `backward` can't be traced; gradients of a call by autograd are"
    gradients: Gradients = _untraced(torch, trouble, kernel.run_backward, arguments, stream)
    return gradients


def _untraced(torch: Any, trouble: str, run: Callable[..., Any], *given: Any) -> Any:
    if not torch.compiler.is_dynamo_compiling():  # torch.export has run Python up to here, on tensors without memory
        raise _told(trouble, "call the kernel outside torch.export to see more")
    torch._dynamo.graph_break(msg=f"attncc {trouble}")
    return torch.compiler.disable(run)(*given)


def _told(fault: str, advice: str) -> AttnccError:
    """`fault` begins with its code, as torch.compile shows it."""
    code, _, message = fault.partition(": ")
    return AttnccError(Diagnostic(code, message, help=advice))


def _refusal(torch: Any, kernel: RecordedKernel, call: Arguments, fault: str) -> AttnccError:
    """What is wrong with a call, as the kernel itself says it. If all it says is that tensors have no memory (A650),
    then what `unfit` found, for a call without that `fault` would run on meta or fake tensors."""
    try:
        check_names(Signature(kernel.variant), call.inputs)
        with torch.no_grad():
            kernel.judge(call)
    except AttnccError as error:
        if error.diagnostics[0].code != "A650" or fault.startswith(_OF_PLACES):
            return error
        return _told(fault, "call the kernel with tensors that have memory to see more")
    return refused(
        "A652",
        "an argument has a type that a call with gradients doesn't take",
        expected="tensors, and numbers for scalars",
        came=", ".join(f"{name}: {type(value).__name__}" for name, value in call.inputs.items()),
    )
