"""Runs a mod once, on tensors that stand for the indices and the score, and writes down what it computes.

`Symbolic` tensors hold a `Value` and no memory. What torch does with them arrives in `Tracer.dispatch` as operators of
ATen, after torch has decomposed its composite functions; `x[i]` arrives in `__torch_function__`, since torch would
ask for the number `i`. What the mod does with plain tensors alone is done, and written down to be done again
in later calls.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..diagnostics import AttnccError, Diagnostic
from ..import_flex.terms import Captured, Number, Score, Symbol, Term
from ..ir import Type
from ..source import Span
from .advice import LOOKED_UP, for_flow
from .apart import apart, is_transformed
from .aten import POINTWISE, Untranslated
from .frames import first_line, here
from .frames import span as code_span
from .indexing import indexed
from .inputs import Sources, flat
from .shapes import SHAPES, Operation, pointwise
from .terms import Maker, Value, single

_TORCH = str(Path(torch.__file__).parent)
_INDICES = ("b", "h", "q_idx", "kv_idx")
_NARROW = (torch.int8, torch.uint8, torch.int16)
_READ_ONLY = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "where", "index", *SHAPES})
_CONTROL = ("_local_scalar_dense", "is_nonzero", "item", "equal", "allclose")
_RANDOM = re.compile(
    r"(rand|randn|randint|randperm|bernoulli|\w*dropout\w*|normal|multinomial|poisson|uniform|random|exponential|cauchy"
    r"|geometric|log_normal|rrelu|gumbel_softmax)(_like)?_?"
)

_INDEX = (
    "make a list that is indexed a tensor, outside of the mod: torch.tensor(the_list); in place of a slice or "
    "a loop of so many steps, compare indices"
)
_NUMPY = "use torch's functions, and make an array a tensor outside of the mod: torch.from_numpy(the_array)"


class Symbolic(torch.Tensor):  # type: ignore[misc]  # torch's types aren't read here
    """A tensor of a mod that is traced."""

    value: Value
    tracer: Tracer

    @staticmethod
    def __new__(cls, value: Value, tracer: Tracer) -> Symbolic:
        made: Symbolic = torch.Tensor._make_wrapper_subclass(
            cls, value.shape, dtype=value.dtype, device=tracer.device, requires_grad=False
        )
        made.value, made.tracer = value, tracer
        return made

    def __repr__(self, **_: Any) -> str:
        return f"<a tensor of a traced mod: {self.value.dtype}>"

    def __index__(self) -> int:
        """Python asks where a list is indexed, or a range is cut out of a tensor."""
        raise self.tracer.refusal("Python can't use as a number what depends on the pair", _INDEX)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self.tracer.refusal("NumPy can't compute with what depends on the pair", _NUMPY)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tracer = next(item.tracer for item in flat((args, kwargs)) if isinstance(item, Symbolic))
        return tracer.dispatch(func, args, kwargs or {})


class Tracer(TorchFunctionMode):  # type: ignore[misc]
    """Traces the mods of one call. `sources` are the tensors that they read."""

    def __init__(self, sources: Sources, device: Any, score_dtype: Any = torch.float32) -> None:
        super().__init__()
        self.sources, self.device, self.score_dtype = sources, device, score_dtype
        self.records_gradients = torch.is_grad_enabled()
        self._order = 0
        self._outermost: CodeType = _run.__code__

    # ---------------------------------------------------------------- mods

    def mask(self, mod: Callable[..., Any]) -> Term:
        """What a mask_mod keeps."""
        return self._traced(mod, "mask_mod", self._indices())

    def score(self, mod: Callable[..., Any], version: int = 0) -> Term:
        """What a score_mod makes of the score."""
        score = self.wrap(single(Score(version=version, span=self.span()), self.score_dtype))
        return self._traced(mod, "score_mod", [score, *self._indices()])

    def tick(self) -> int:
        self._order += 1
        return self._order

    def _indices(self) -> list[Symbolic]:
        return [self.wrap(single(Symbol(name=name, span=self.span()), torch.int32)) for name in _INDICES]

    def _traced(self, mod: Callable[..., Any], role: str, arguments: Sequence[Any]) -> Term:
        try:
            with torch.no_grad(), self:
                found = _run(mod, arguments)
        except AttnccError:
            raise
        except Exception as error:
            raise _raised(mod, role, error) from error
        return self._returned(mod, role, found)

    def _returned(self, mod: Callable[..., Any], role: str, found: Any) -> Term:
        where = first_line(mod)
        if isinstance(found, torch.Tensor):
            value = self.sources.value(found, where) if not isinstance(found, Symbolic) else found.value
        elif isinstance(found, bool | int | float):
            value = single(Number(value=found, span=where), None)
        else:
            what = f"the {role} returns a {type(found).__name__}"
            raise refusal(what, where, f"return a tensor without axes: for a {role} {_RETURNS[role]}")
        if value.shape not in ((), (1,)):
            what = f"the {role} returns a tensor of shape {list(value.shape)}"
            raise refusal(what, where, "return a tensor without axes: reduce it by .any(-1), .all(-1) or .sum(-1)")
        return value.at(tuple(Number(value=0, span=where) for _ in value.shape))

    # ---------------------------------------------------------------- what a mod calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        given = flat((args, kwargs))
        if _RANDOM.fullmatch(name):
            help = "use a variant with `dropout`, or draw the numbers outside of the mod and index them"
            raise refusal("a mod can't draw random numbers", self.span(), help)
        if name == "__setitem__":
            raise refusal("a mod changes a tensor", self.span(), "make the tensor outside of the mod")
        if not any(isinstance(item, Symbolic) for item in given):
            return self._plain(func, name, args, kwargs)
        for item in given:
            if isinstance(item, torch.Tensor) and not isinstance(item, Symbolic):
                self.sources.source(item)
        try:
            if name == "__getitem__":
                return self.wrap(indexed(self, *args))
            with apart():
                return func(*self._as_symbols(args), **self._as_symbols(kwargs))
        except Untranslated as error:
            raise self.refusal("this index has no counterpart in .attn", str(error)) from None

    def _as_symbols(self, item: Any) -> Any:
        """What transforms pass for tensors as symbols, because torch's operators would see the tensors in them."""
        if isinstance(item, dict):
            return {name: self._as_symbols(value) for name, value in item.items()}
        if isinstance(item, tuple | list):
            return type(item)(map(self._as_symbols, item))
        return self.wrap(self.value(item)) if isinstance(item, torch.Tensor) and is_transformed(item) else item

    def _plain(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A function of tensors that are no symbols, or of none."""
        if (name.endswith("_") and not name.startswith("__")) or kwargs.get("out") is not None:
            raise refusal("a mod changes a tensor", self.span(), "make the tensor outside of the mod")
        tensors = any(isinstance(item, torch.Tensor) for item in flat((args, kwargs)))
        with nullcontext() if tensors else apart(), torch.set_grad_enabled(self.records_gradients):
            result = func(*args, **kwargs)
        self.sources.note(func, name, args, kwargs, result)
        return result

    def dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator of ATen on symbols."""
        name = func._schema.name.partition("::")[2]
        span, local = self.here()
        for item in flat((args, kwargs)):  # a number that torch has made a tensor
            if isinstance(item, torch.Tensor) and not (isinstance(item, Symbolic) or self.sources.is_known(item)):
                self.sources.constant(item)
        if name in _CONTROL:
            what = "what a mod computes depends on the pair, so Python can't ask for its value"
            raise refusal(what, span, for_flow("" if span is None else span.text))
        in_place = name.endswith("_") and not name.startswith("__")
        if in_place and not isinstance(args[0], Symbolic):
            raise refusal("a mod changes a tensor", span, "make the tensor outside of the mod")
        result = self._shape_and_dtype(func, args, kwargs, span)
        name = name[:-1] if in_place else name
        make = Maker(span, ints=not (result.is_floating_point() or result.dtype == torch.bool))
        try:
            value = self._with_name(self._translated(name, make, args, kwargs, result), make, local)
        except Untranslated as error:
            raise refusal(f"`{_called(func)}` has no counterpart in .attn", span, str(error)) from None
        self._check_dtype(name, result.dtype, span)
        if in_place:
            args[0].value = value
            return args[0]
        return self.wrap(value)

    def _translated(self, name: str, make: Maker, args: Any, kwargs: Any, result: Any) -> Value:
        op = Operation(self, make, tuple(result.shape), result.dtype)
        if name in SHAPES:
            return SHAPES[name](op, *args, **kwargs)
        rule = POINTWISE.get(name)
        if rule is None:
            raise Untranslated(_ADVICE.get(name, _NO_OPERATOR))
        if name == "_to_copy":
            dtype = kwargs.get("dtype")
            kwargs = {"dtype": None if dtype is None else _CONVERSIONS[kind_of(dtype)]}
        return pointwise(op, rule, args, kwargs)

    def _with_name(self, value: Value, make: Maker, name: str | None) -> Value:
        if value.shape:
            return value
        term = value.term
        worth = term.children or isinstance(term, Number)
        return single(make.named(name, term, self.tick()), value.dtype) if worth else value

    def _shape_and_dtype(self, func: Any, args: Any, kwargs: Any, span: Span) -> Any:
        """What torch says of the result: it is computed on tensors without memory."""
        kwargs = {name: "meta" if name == "device" and item is not None else item for name, item in kwargs.items()}
        found = func(*_on_meta(args), **_on_meta(kwargs))
        if not isinstance(found, torch.Tensor):
            raise refusal(f"`{_called(func)}` has no counterpart in .attn", span, _NO_OPERATOR)
        return found

    def _check_dtype(self, name: str, dtype: Any, span: Span) -> None:
        if dtype in _NARROW and name not in _READ_ONLY:
            what = f"the ints of {_name(dtype)} wrap around beyond {torch.iinfo(dtype).max}, and those of .attn don't"
            raise refusal(what, span, "cast what is read to torch.int32 first")
        if dtype.is_complex or (dtype == torch.float64 and self.score_dtype != torch.float64):
            raise refusal(f"a mod can't compute in {_name(dtype)}", span, "cast to torch.float32")

    # ---------------------------------------------------------------- values

    def wrap(self, value: Value) -> Symbolic:
        return Symbolic(value, self)

    def value(self, tensor: Any) -> Value:
        """What a tensor of the mod holds: one from outside is read element by element."""
        if isinstance(tensor, Symbolic):
            return tensor.value
        return self.sources.value(tensor, self.span())

    def span(self) -> Span:
        return self.here()[0]

    def here(self) -> tuple[Span, str | None]:
        """The user's expression that runs, and the local variable that its value goes to."""
        return here(self._outermost, _TORCH)

    def captured(self, tensor: Any) -> Captured:
        return self.sources.captured(tensor, self.span())

    def length(self, tensor: Any, axis: int) -> Captured:
        return self.sources.length(tensor, axis, self.span())

    def is_symbolic(self, tensor: Any) -> bool:
        return isinstance(tensor, Symbolic)

    def fix_shape(self, tensor: Any) -> None:
        if not isinstance(tensor, Symbolic):
            self.sources.fix_shape(tensor)

    def refusal(self, message: str, help: str) -> AttnccError:
        return refusal(message, self.span(), help)


def _run(mod: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return mod(*arguments)


_CALLED = "a mod is called with tensors without axes: b, h, q_idx, kv_idx, and the score before them"
_RETURNS = {"mask_mod": "a bool", "score_mod": "a float"}
_NO_OPERATOR = (
    "write it with other functions (docs/migration.md lists them), or compute it outside of the mod and index it"
)
_ADVICE = {
    "cumsum": "compute it outside of the mod, and index the result",
}
_CONVERSIONS = {Type.INT: "to_int", Type.FLOAT: "to_float", Type.BOOL: "to_bool"}


def kind_of(dtype: Any) -> Type:
    if dtype == torch.bool:
        return Type.BOOL
    return Type.FLOAT if dtype.is_floating_point else Type.INT


def _on_meta(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return torch.empty(item.shape, dtype=item.dtype, device="meta")
    if isinstance(item, dict):
        return {name: _on_meta(value) for name, value in item.items()}
    if isinstance(item, tuple | list):
        return type(item)(map(_on_meta, item))
    return item


def _called(func: Any) -> str:
    return str(func._schema.name).replace("aten::", "torch.ops.aten.")


def _name(dtype: Any) -> str:
    return str(dtype)


def refusal(message: str, span: Span | None, help: str) -> AttnccError:
    """A713, at the line of the user's Python."""
    known = span if span is not None and span.source.text else None
    where = (f"in {span.source.path}",) if span is not None and known is None else ()
    return AttnccError(Diagnostic("A713", message, known, notes=where, help=help))


def _raised(mod: Any, role: str, error: Exception) -> AttnccError:
    """What the mod itself raised, at the innermost of its lines."""
    found = first_line(mod)
    step = error.__traceback__
    while step is not None:
        path = step.tb_frame.f_code.co_filename
        if not path.startswith((_TORCH, str(Path(__file__).parent))):
            found = code_span(step.tb_frame.f_code, step.tb_lasti)
        step = step.tb_next
    text = str(error).partition("\n")[0]
    what = f"the {role} raised {type(error).__name__}: {text}"
    looked_up = isinstance(error, KeyError) and any(isinstance(key, Symbolic) for key in error.args)
    return refusal(what, found, LOOKED_UP if looked_up else _swapped(mod, role) or _CALLED)


def _swapped(mod: Any, role: str) -> str:
    """Advice where a mask_mod came as a score_mod, or a score_mod as a mask_mod, by the number of parameters."""
    try:
        count = len(inspect.signature(mod).parameters)
    except (TypeError, ValueError):
        return ""
    if (role, count) == ("score_mod", 4):
        return "a score_mod has 5 parameters, score first: pass a mask of b, h, q_idx, kv_idx as mask_mod="
    if (role, count) == ("mask_mod", 5):
        return "a mask_mod has 4 parameters, b, h, q_idx, kv_idx: pass a function of the score as score_mod="
    return ""
