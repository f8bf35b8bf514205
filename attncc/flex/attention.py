"""`flex_attention` once torch is there: checks of a call, the cache of what is traced, the call of the kernel."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ..diagnostics import AttnccError, Diagnostic, warn
from ..problem.call_arguments import Arguments
from ..problem.refusal import refused
from .call import Mods, Options, fault, fault_of_mods
from .entries import Entry, inputs_of_settings, score_dtype_of, settings_of
from .keys import Contents
from .masks import mask_mods
from .text import NO_SETTINGS, Settings, trace

_MOST_ENTRIES = 1024  # kinds of mods
_MOST_SHAPES = 64  # of one kind, where mods ask for shapes
_NOT_EXPRESSED = ("A010", "A011", "A705", "A707", "A711", "A713")  # what `fallback` is for

_lock = threading.Lock()


class Cache:
    """Entries by what the mods are, the oldest dropped first; entries of one key differ in the shapes they hold for."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, list[Entry]] = {}
        self.traces = 0  # that were made, for tests

    def find(
        self, score_mod: Any, masks: Sequence[Any], device: Any, score_dtype: Any, settings: Settings = NO_SETTINGS
    ) -> tuple[Entry, dict[str, Any]]:
        """The entry of some mods, and the inputs of a call. AttnccError as `trace`."""
        return self._find(score_mod, masks, device, score_dtype, settings)[:2]

    def find_once(
        self, mods: Mods, device: Any, score_dtype: Any, settings: Settings
    ) -> tuple[Entry, dict[str, Any], Sequence[Any] | None]:
        """The same, of mods that are looked through once where their owner keeps what was found; and the tensors that
        they hold, if these may be kept."""
        form = device, score_dtype, settings, torch.is_grad_enabled()
        known = None if mods.found is None else mods.found.get(form)
        if known is not None:
            entry, tensors = known
            inputs = entry.inputs(tensors, partial(_number, device))
            if inputs is not None:
                return entry, inputs, tensors
        masks = mask_mods(mods.block_mask, mods.mask_mod)
        entry, inputs, contents = self._find(mods.score_mod, masks, device, score_dtype, settings)
        if mods.found is None or not (contents.known and entry.traced.recipe.lasting):
            return entry, inputs, None
        mods.found[form] = entry, contents.tensors
        return entry, inputs, contents.tensors

    def _find(
        self, score_mod: Any, masks: Sequence[Any], device: Any, score_dtype: Any, settings: Settings
    ) -> tuple[Entry, dict[str, Any], Contents]:
        score_mod, *masks = map(_uncompiled, (score_mod, *masks))
        contents = Contents(score_mod, *masks)
        key = (contents.key, torch.is_grad_enabled()), device, score_dtype, settings
        try:
            kept = self.entries.get(key, []) if contents.known else []
        except TypeError:  # something in the key has no hash
            contents.known, kept = False, []
        for entry in kept:
            inputs = entry.inputs(contents.tensors, partial(_number, device))
            if inputs is not None:
                return entry, inputs, contents
        return *self._new(key, contents, score_mod, masks), contents

    def _new(self, key: Any, contents: Contents, score_mod: Any, masks: Sequence[Any]) -> tuple[Entry, dict[str, Any]]:
        self.traces += 1
        entry = Entry(trace(score_mod, masks, contents, *key[1:-1], settings=key[-1]))
        if entry.traced.recipe.lasting:
            self._keep(key, entry)
        inputs = entry.inputs(contents.tensors, partial(_number, key[1]))
        assert inputs is not None
        return entry, inputs

    def _keep(self, key: Any, entry: Entry) -> None:
        with _lock:
            self.entries[key] = [*self.entries.get(key, ()), entry][-_MOST_SHAPES:]  # others may be reading the list
            while len(self.entries) > _MOST_ENTRIES:
                del self.entries[next(iter(self.entries))]


cache = Cache()


def _uncompiled(mod: Any) -> Any:
    """A mod as it was before torch.compile wrapped it."""
    return getattr(mod, "_torchdynamo_orig_callable", mod)


def _number(device: Any, value: Any, learnable: bool) -> Any:
    """A captured tensor without axes: it may be on the CPU, as everywhere in torch."""
    if value.device != device and value.device.type == "cpu":
        return value.to(device) if learnable else value.item()
    return value


def attend(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Any:
    """A call. torch.compile keeps it in its graph as an operator, unless a `fallback` may be needed."""
    query, key, value = [_with_rows(item) for item in _autocast(query, key, value)]
    if not torch.compiler.is_dynamo_compiling():
        return _attend(query, key, value, mods, options)
    from .in_graph import operator

    trouble = fault(query, key, value, mods, options)
    if trouble:
        torch._dynamo.graph_break(msg=f"attncc A714: {trouble['what']}")
    if trouble or operator is None or options.fallback is not None:
        return torch.compiler.disable(_attend)(query, key, value, mods, options)
    if options.kernel_options:
        _warn_of_options()
    masks = mask_mods(mods.block_mask, mods.mask_mod)
    score_mod = _same if mods.score_mod is None else mods.score_mod
    given = _beside_mods(options)
    out, lse = operator(query, key, value, score_mod, (_all_of(masks),), options.scale, given)
    return _results(out, lse if options.wants_lse else None, options)


class _Known(NamedTuple):
    """What was found for a plain call of some scale: its kernel, and how its inputs are found."""

    kernel: Any
    entry: Entry
    tensors: Sequence[Any]
    number: Any  # see `Entry.inputs`


_OTHERS = Arguments(None, None, None, {})[5:]  # arguments of a kernel behind the scale: their defaults


def _is_plain(options: Options) -> bool:
    """Whether a call differs from others with its mods by its tensors and its scale at most."""
    return options.sink is None and options == Options(options.scale, enable_gqa=True)


def again(query: Any, key: Any, value: Any, found: dict[Any, Any], scale: Any) -> Any:
    """A plain call (no sink, no dropout) by what was `found` for one with the same mods and scale, if the kernel knows
    its form too: then it differs from calls that were judged in the contents of tensors alone. Else None. Not for
    Dynamo to follow."""
    known = found.get((scale, torch.is_grad_enabled()))
    if known is None:
        return None
    inputs = known.entry.inputs(known.tensors, known.number)
    return None if inputs is None else known.kernel.again((query, key, value, inputs, scale, *_OTHERS))


def _beside_mods(options: Options) -> dict[str, Any]:
    """A sink, and a rate of dropout above 0. Whether there is dropout is asked here, where Dynamo follows: torch 2.11
    makes the number a symbol, which no key of texts may hold."""
    return {"sink": options.sink} | ({"dropout": options.dropout} if options.dropout > 0 else {})


def _autocast(*tensors: Any) -> Any:
    """query, key and value in autocast's dtype, as torch's own takes them."""
    query = tensors[0]
    kind = query.device.type if isinstance(query, torch.Tensor) else ""
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    if any(not isinstance(item, torch.Tensor) or item.dtype == torch.float64 for item in tensors):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return [item.to(dtype) for item in tensors]


def _with_rows(tensor: Any) -> Any:
    """A tensor as kernels read it: its rows are contiguous. torch's own takes any strides."""
    if not isinstance(tensor, torch.Tensor) or tensor.ndim == 0 or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.contiguous()


def _same(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score


def _all_of(masks: Sequence[Any]) -> Any:
    """The mask_mods as one."""

    def kept(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_ones((), dtype=torch.bool)
        for index, mask in enumerate(masks):
            result = mask(b, h, q_idx, kv_idx) if index == 0 else result & mask(b, h, q_idx, kv_idx)
        return result

    return masks[0] if len(masks) == 1 else kept


def _attend(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Any:
    trouble = fault(query, key, value, mods, options)
    if trouble:
        raise refused("A714", **trouble)
    if options.kernel_options:
        _warn_of_options()
    given = _beside_mods(options)
    try:
        entry, inputs, tensors = cache.find_once(mods, query.device, score_dtype_of(query), settings_of(**given))
        kernel = entry.kernel(query, value)
    except AttnccError as error:
        if options.fallback != "torch" or error.diagnostics[0].code not in _NOT_EXPRESSED:
            raise
        return _by_torch(query, key, value, mods, options)
    if tensors is not None and mods.found is not None and _is_plain(options):
        known = _Known(kernel, entry, tensors, partial(_number, query.device))
        mods.found[options.scale, torch.is_grad_enabled()] = known
    inputs |= inputs_of_settings(entry.traced, **given)
    result = kernel(query, key, value, scale=options.scale, return_lse=options.wants_lse, **inputs)
    out, lse = result if options.wants_lse else (result, None)
    return _results(out, lse, options)


def _warn_of_options() -> None:
    what = "kernel_options are those of torch's kernels, and have no effect on attncc's"
    help = "leave them out; a schedule does the same for a .attn file"
    warn(Diagnostic("A715", what, help=help, severity="warning"), stacklevel=5)


# Dynamo calls what is marked so itself, once for each graph, and leaves nothing of it in that.
torch.compiler.assume_constant_result(_warn_of_options)


def _results(out: Any, lse: Any, options: Options) -> Any:
    if options.return_aux is None:
        return out if lse is None else (out, lse)
    from torch.nn.attention.flex_attention import AuxOutput

    return out, AuxOutput(lse=lse, max_scores=None)


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
    trouble = fault_of_mods(mods)
    if trouble:
        raise refused("A714", **trouble)
    score_mod, *masks = map(_uncompiled, (mods.score_mod, *mask_mods(mods.block_mask, mods.mask_mod)))
    contents = Contents(score_mod, *masks)
    device = next((item.device for item in contents.tensors), torch.device("cpu"))
    return trace(score_mod, masks, contents, device, torch.float32, settings=NO_SETTINGS).text
