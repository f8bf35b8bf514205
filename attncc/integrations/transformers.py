"""attncc as an attention implementation of Hugging Face transformers.

    from attncc.integrations import transformers as attncc_transformers

    attncc_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="attncc")

transformers hands over each mask as a function of indices, as FlexAttention has them. It is traced once. Tensors that
it captures (padding, positions of packed sequences) are inputs of the kernel, and so are the offsets of a cache: a
longer cache or another batch compiles nothing. Kernels have what models ask for: grouped heads, soft caps, sinks,
dropout, and position biases that learn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import and_masks, causal_mask_function, padding_mask_function, prepare_padding_mask

from ..diagnostics import AttnccError
from ..flex.attention import again, attend
from ..flex.call import Mods, Options
from ..flex.inputs import flat
from ..problem.refusal import refused
from .mods import misfit, of_tensor, score_mod_of
from .own_attention import refuse_own_attention
from .paged import paged, register_paged

__all__ = ["NAME", "Mask", "attention", "mask", "paged", "register"]
NAME = "attncc"
_EAGER = 'attn_implementation="eager" has its attention'
_LOST = {"doge": "drops a mask that is no tensor, and would attend to all keys"}  # models, and what they do


def register(name: str = NAME) -> None:
    """Makes `attn_implementation="attncc"` (or another name) known to transformers. A second call changes nothing.

    Models whose attention can't be replaced raise AttnccError A714 with that name, most of them when they are made.
    """
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    register_paged()
    refuse_own_attention(name)


class Mask(BlockMask):  # type: ignore[misc]  # torch is not followed
    """A mask as a function of indices. It has no blocks: the kernel's own analysis finds which tiles to skip.

    A BlockMask, because transformers lets masks of that class pass where a model's caller has made them already. As a
    BlockMask is what its function was when that made it, this is what it was in the first layer that took it; tensors
    that it captures may have other contents later.
    """

    def __init__(self, mask_mod: Callable[..., Any], batch: int, q_len: int, kv_len: int, model: str = "model") -> None:
        self.mask_mod = mask_mod
        self._shape, self.kv_len = (batch, 1, q_len, kv_len), kv_len
        self.model = model
        self.found: dict[float | None, dict[Any, Any]] = {}  # what the function is, by the soft cap of a layer

    @property
    def shape(self) -> tuple[int, ...]:
        """[batch, 1, q_len, kv_len]"""
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the length of an axis, as of a tensor."""
        return self._shape if axis is None else self._shape[axis]

    def to(self, *_: Any, **__: Any) -> Mask:
        """Itself: the tensors that a mask function captures are where the model is."""
        return self

    def contiguous(self) -> Mask:
        """Itself: generation with a static cache asks tensors for it."""
        return self

    def _no_tensor(self, *_: Any, **__: Any) -> Any:
        """What code meets that computes with its mask, because its attention is no function that can be replaced.

        AttnccError A714.
        """
        what = f"{self.model} computes with its mask itself"
        expected = "a model that hands its mask to an attention function (AttentionInterface)"
        raise refused("A714", what, expected=expected, came="arithmetic on a mask", help=_EAGER)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __and__ = __rand__ = __invert__ = _no_tensor
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _no_tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A function of torch's that a mask came to."""
        next(item for item in flat((args, kwargs or {})) if isinstance(item, Mask))._no_tensor()

    def __repr__(self) -> str:
        return f"Mask({getattr(self.mask_mod, '__name__', 'mask')}, shape={self._shape})"


def mask(  # noqa: PLR0917  (transformers passes them by name)
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int | torch.Tensor = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    config: Any = None,
    **_: Any,
) -> Mask:
    """What transformers calls for each kind of layer: see `AttentionMaskInterface`.

    `attention_mask` is bool [batch, kv_len], False for padding. The offsets are the places of the first query and the
    first key among all tokens of a sequence.

    AttnccError A714 for a model that would lose its mask.
    """
    model = getattr(config, "model_type", None) or "this model"
    if model in _LOST:
        raise refused("A714", f"{model} {_LOST[model]}", expected="another model", came=model, help=_EAGER)
    if attention_mask is not None:
        padding = prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
        mask_function = and_masks(mask_function, padding_mask_function(padding))
    return Mask(_moved(mask_function, q_offset, kv_offset), batch_size, q_length, kv_length, model)


def _moved(mask_function: Callable[..., Any], q_offset: Any, kv_offset: Any) -> Callable[..., Any]:
    """The mask of the query and the key at these offsets. They are tensors, so that the next token is no new mask."""
    if _is_zero(q_offset) and _is_zero(kv_offset):
        return mask_function
    first_q, first_kv = _held(q_offset), _held(kv_offset)

    def moved(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return mask_function(b, h, q_idx + _value(first_q), kv_idx + _value(first_kv))

    return moved


def _is_zero(offset: Any) -> bool:
    return isinstance(offset, int) and offset == 0


def _held(offset: Any) -> torch.Tensor:
    """A number as a scalar input; what is on the GPU, as a static cache has it, as an array: nobody waits for it. It is
    copied, for that cache counts on in its tensor when a layer brings its keys, before the layer's mask is read."""
    return offset.reshape(1).clone() if isinstance(offset, torch.Tensor) else torch.tensor(offset)


def _value(offset: torch.Tensor) -> torch.Tensor:
    return offset[0] if offset.ndim else offset


def attention(  # noqa: PLR0917  (transformers' order)
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls for each layer: see `AttentionInterface`.

    query is [batch, heads, q_len, head_dim], key and value [batch, kv_heads, kv_len, head_dim]; the result is
    [batch, q_len, heads, value_head_dim]. `attention_mask` is a `Mask`, None, or a tensor [batch, heads, q_len, kv_len]
    in which each length may be 1, bool or added to scores; `position_bias` is a tensor of such a shape, and `s_aux` are
    a sink's logits [heads]. Without a mask queries see all keys; in a causal layer with more than one query, those up
    to their own.

    AttnccError A713 for a mask function that `.attn` can't express, with its line, A714 for what no kernel has.
    """
    if given.get("output_attentions"):
        help = 'attn_implementation="eager" keeps them'
        raise refused(
            "A714", "attention weights are never built", expected="output_attentions=False", came="True", help=help
        )
    if given.get("cache") is not None:
        help = "`with paged(model):` has them, from attncc.integrations.transformers"
        raise refused("A714", "paged caches have a context of their own", expected="no cache=", came="one", help=help)
    found = None
    if isinstance(attention_mask, Mask):
        if key.shape[2] > attention_mask.kv_len:
            raise _added_keys(attention_mask, key)
        if position_bias is None and not torch.compiler.is_compiling():  # Dynamo would guard what is kept
            found = attention_mask.found.setdefault(softcap, {})
    out = None
    if found and s_aux is None and dropout == 0:
        out = again(query, key, value, found, scaling)
    if out is None:
        _check_shapes(module, query, key, attention_mask, position_bias)
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        mods = _mods(attention_mask, causal and query.shape[2] > 1, softcap, position_bias, found)
        options = Options(scale=scaling, enable_gqa=True, sink=s_aux, dropout=dropout)
        out = attend(query, key, value, mods, options)
    return out.transpose(1, 2).contiguous(), None


def _check_shapes(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, *given: Any) -> None:
    for tensor in given:
        if isinstance(tensor, torch.Tensor) and (expected := misfit(tensor, query, key)):
            what = f"{type(module).__name__} brings a mask or a bias that doesn't go with its scores"
            raise refused("A714", what, expected=expected, came=str([*tensor.shape]), help=_EAGER)


def _added_keys(mask: Mask, key: torch.Tensor) -> AttnccError:
    what = f"{mask.model} adds keys after its mask was made"
    return refused("A714", what, expected=f"kv_len {mask.kv_len}", came=str(key.shape[2]), help=_EAGER)


def _mods(
    attention_mask: Any,
    causal: bool,
    softcap: float | None,
    position_bias: torch.Tensor | None,
    found: dict[Any, Any] | None,
) -> Mods:
    """The functions of a layer. What they are is found once for a mask, unless scores are added to."""
    bias = attention_mask if isinstance(attention_mask, torch.Tensor) and attention_mask.dtype != torch.bool else None
    score_mod = score_mod_of(softcap, bias, position_bias)
    if isinstance(attention_mask, BlockMask):
        return Mods(score_mod, mask_mod=attention_mask.mask_mod, found=found)
    return Mods(score_mod, mask_mod=of_tensor(attention_mask, causal))
