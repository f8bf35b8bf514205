"""`flex_attention` once torch is there: checks of a call, the cache of what is traced, the call of the kernel."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..api import compile
from ..diagnostics import AttnccError, Diagnostic, warn
from ..problem.facts import KERNEL_DTYPES
from ..problem.refusal import refused
from .inputs import found
from .keys import Contents
from .masks import check_lengths, mask_mods
from .text import NO_SETTINGS, Settings, Traced, trace

_MOST_ENTRIES = 1024
_DTYPES = {getattr(torch, name): short for short, name in KERNEL_DTYPES.items() if short != "e4m3"}
_KINDS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}  # of a sink
_NOT_EXPRESSED = ("A010", "A011", "A705", "A707", "A711", "A713")  # what `fallback` is for

_lock = threading.Lock()


@dataclass
class Entry:
    """What is kept for one key: a traced text, and its kernels."""

    traced: Traced
    kernels: dict[Hashable, Any] = field(default_factory=dict)

    def kernel(self, query: Any, value: Any) -> Any:
        """The kernel for these dtypes and head dims."""
        form = query.dtype, query.shape[-1], value.shape[-1]
        if form not in self.kernels:
            dtype = _DTYPES[query.dtype]
            self.kernels[form] = compile(self.traced.text, dtype=dtype, head_dim=form[1], value_head_dim=form[2])
        return self.kernels[form]


class Cache:
    """Entries by what the mods are, the oldest dropped first; entries of one key differ in the shapes they hold for."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, list[Entry]] = {}
        self.traces = 0  # that were made, for tests

    def find(
        self, score_mod: Any, masks: Sequence[Any], device: Any, score_dtype: Any, settings: Settings = NO_SETTINGS
    ) -> tuple[Entry, dict[str, Any]]:
        """The entry of some mods, and the inputs of a call. AttnccError as `trace`."""
        score_mod, *masks = map(_uncompiled, (score_mod, *masks))
        contents = Contents(score_mod, *masks)
        key = (contents.key, torch.is_grad_enabled()), device, score_dtype, settings
        try:
            kept = self.entries.get(key, []) if contents.known else []
        except TypeError:  # something in the key has no hash
            contents.known, kept = False, []
        for entry in kept:
            inputs = _inputs(entry, contents.tensors, device)
            if inputs is not None:
                return entry, inputs
        return self._new(key, contents, score_mod, masks)

    def _new(self, key: Any, contents: Contents, score_mod: Any, masks: Sequence[Any]) -> tuple[Entry, dict[str, Any]]:
        self.traces += 1
        entry = Entry(trace(score_mod, masks, contents, *key[1:-1], settings=key[-1]))
        if entry.traced.recipe.lasting:
            self._keep(key, entry)
        inputs = _inputs(entry, contents.tensors, key[1])
        assert inputs is not None
        return entry, inputs

    def _keep(self, key: Any, entry: Entry) -> None:
        with _lock:
            self.entries.setdefault(key, []).append(entry)
            while len(self.entries) > _MOST_ENTRIES:
                del self.entries[next(iter(self.entries))]


cache = Cache()


def _uncompiled(mod: Any) -> Any:
    """A mod as it was before torch.compile wrapped it."""
    return getattr(mod, "_torchdynamo_orig_callable", mod)


def _inputs(entry: Entry, tensors: Sequence[Any], device: Any) -> dict[str, Any] | None:
    """The inputs of a call, None where the entry doesn't hold for their shapes."""
    recipe = entry.traced.recipe
    made = recipe.run(tensors)
    if not recipe.fits(tensors, made):
        return None
    values = {name: found(source, tensors, made) for name, (source, _) in entry.traced.inputs.items()}
    return {name: _given(value, entry.traced.inputs[name][1], device) for name, value in values.items()}


def _given(value: Any, learnable: bool, device: Any) -> Any:
    """A captured value as the kernel takes it: narrow ints as int32; what no score line reads gives no gradient.

    A tensor without axes may be on the CPU, as everywhere in torch.
    """
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0 and value.device != device and value.device.type == "cpu":
        return value.to(device) if learnable else value.item()
    value = value if learnable else value.detach()
    narrow = value.dtype in (torch.int8, torch.uint8, torch.int16)
    return value.to(torch.int32) if narrow else value


class Mods(NamedTuple):
    """The functions of a call."""

    score_mod: Any = None
    block_mask: Any = None
    mask_mod: Any = None


@dataclass(frozen=True)
class Options:
    """How a call of `flex_attention` differs from a plain one."""

    scale: float | None = None
    enable_gqa: bool = False
    return_lse: bool = False
    kernel_options: Any = None
    return_aux: Any = None
    fallback: str | None = None
    sink: Any = None  # the logits of a sink [heads], which models have and torch's flex_attention hasn't
    dropout: float = 0.0  # likewise


def attend(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Any:
    """A call, which torch.compile doesn't look into."""
    if torch.compiler.is_dynamo_compiling():
        return torch.compiler.disable(_attend)(query, key, value, mods, options)
    return _attend(query, key, value, mods, options)


def _attend(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Any:
    _check(query, key, value, options)
    check_lengths(mods.block_mask, query, key)
    return_lse = _wants_lse(options)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    try:
        masks = mask_mods(mods.block_mask, mods.mask_mod)
        settings = Settings("" if options.sink is None else _KINDS[options.sink.dtype], options.dropout > 0)
        entry, inputs = cache.find(mods.score_mod, masks, query.device, dtype, settings)
        kernel = entry.kernel(query, value)
    except AttnccError as error:
        if options.fallback != "torch" or error.diagnostics[0].code not in _NOT_EXPRESSED:
            raise
        return _by_torch(query, key, value, mods, options)
    inputs |= _set(entry.traced, options)
    result = kernel(query, key, value, scale=options.scale, return_lse=return_lse, **inputs)
    if options.return_aux is None:
        return result
    out, lse = result if return_lse else (result, None)
    from torch.nn.attention.flex_attention import AuxOutput

    return out, AuxOutput(lse=lse, max_scores=None)


def _set(traced: Traced, options: Options) -> dict[str, Any]:
    """The arguments of a call for a sink and for dropout, which draws its seed itself."""
    given: dict[str, Any] = {traced.sink: options.sink} if traced.sink else {}
    return given | ({traced.dropout: options.dropout} if traced.dropout else {})


def _check(query: Any, key: Any, value: Any, options: Options) -> None:
    """AttnccError A714 for what torch's own refuses, too, and for what has no counterpart here."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
            came = f"{tensor.ndim} axes" if isinstance(tensor, torch.Tensor) else type(tensor).__qualname__
            raise refused("A714", f"`{name}` is no tensor of 4 axes", expected="[batch, heads, length, dim]", came=came)
    if query.dtype not in _DTYPES:
        known = ", ".join(str(item) for item in _DTYPES)
        raise refused("A714", "there is no kernel of this dtype", expected=known, came=str(query.dtype))
    heads = query.shape[1], key.shape[1]
    if heads[0] != heads[1] and not options.enable_gqa:
        what = "query and key have different numbers of heads"
        help = "pass enable_gqa=True where query heads share those of key and value"
        raise refused("A714", what, expected=f"{heads[0]} heads", came=f"{heads[1]}", help=help)
    if options.fallback not in (None, "torch"):
        raise refused("A714", "`fallback` is unknown", expected='None or "torch"', came=repr(options.fallback))
    if options.kernel_options:
        what = "kernel_options are those of torch's kernels, and have no effect on attncc's"
        help = "leave them out; a schedule does the same for a .attn file"
        warn(Diagnostic("A715", what, help=help, severity="warning"), stacklevel=5)


def _wants_lse(options: Options) -> bool:
    aux = options.return_aux
    if aux is None:
        return options.return_lse
    if options.return_lse:
        help = "leave return_lse out"
        raise refused("A714", "`return_lse` came beside `return_aux`", expected="one of them", came="both", help=help)
    if aux.max_scores:
        what = "attncc keeps no row maxima"
        help = "ask for lse, which is at least the maximum"
        raise refused("A714", what, expected="AuxRequest(lse=True)", came="max_scores=True", help=help)
    return bool(aux.lse)


def _by_torch(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Any:
    """The call by torch's own flex_attention, as it was asked for."""
    from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

    block_mask = mods.block_mask
    if mods.mask_mod is not None:
        masks = [mods.mask_mod] if block_mask is None else [block_mask.mask_mod, mods.mask_mod]
        sizes = query.shape[0], query.shape[1], query.shape[2], key.shape[2]
        block_mask = create_block_mask(and_masks(*masks), *sizes, device=query.device)
    given: dict[str, Any] = {
        "scale": options.scale,
        "enable_gqa": options.enable_gqa,
        "kernel_options": options.kernel_options,
    }
    given |= {"return_lse": options.return_lse} if options.return_aux is None else {"return_aux": options.return_aux}
    return flex_attention(query, key, value, mods.score_mod, block_mask, **given)


def text(mods: Mods) -> str:
    """The text that the mods of a call become."""
    score_mod, *masks = map(_uncompiled, (mods.score_mod, *mask_mods(mods.block_mask, mods.mask_mod)))
    contents = Contents(score_mod, *masks)
    device = next((item.device for item in contents.tensors), torch.device("cpu"))
    return trace(score_mod, masks, contents, device, torch.float32, settings=NO_SETTINGS).text
