"""Models of transformers whose attention can't be replaced, refused where they are made.

Their files hold attention modules and never ask `AttentionInterface` for a function. transformers takes any name of an
implementation for them: some would run their own attention without a word, others look the name up in a table of their
own and raise a KeyError. Of a model around other models each part is asked by itself, and its own layers like them.
"""

from __future__ import annotations

import json
import sys
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel

from ..problem.refusal import refused

_INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # what transformers' files call the functions that they may ask for
_names: set[str] = set()  # of implementations that are attncc


def refuse_own_attention(name: str) -> None:
    """From now on `attn_implementation=name` raises AttnccError A714 for a model that would run its own attention."""
    if not _names:
        PreTrainedModel.get_correct_attn_implementation = _checking(PreTrainedModel.get_correct_attn_implementation)
    _names.add(name)


def _checking(plain: Any) -> Any:
    """transformers' check of a name, which each model makes when it is made, and ours before it."""

    @wraps(plain)
    def checked(self: PreTrainedModel, requested_attention: str | None, *args: Any, **kwargs: Any) -> Any:
        if requested_attention in _names and has_its_own(type(self)):
            own_parts = dict.fromkeys(type(self.config).sub_configs, requested_attention)
            parts = own_parts or {"text_config": requested_attention, "vision_config": "eager"}
            raise refused(
                "A714",
                f"{self.config.model_type or type(self).__name__} has an attention of its own",
                expected="a model that asks for an attention function (AttentionInterface)",
                came=type(self).__name__,
                help='attn_implementation="eager" runs it; a model of several parts takes one for each, as in '
                f"attn_implementation={json.dumps(parts)}",
            )
        return plain(self, requested_attention, *args, **kwargs)

    return checked


def has_its_own(model: type[PreTrainedModel]) -> bool:
    """Whether the files of a model's classes hold attention modules, and none of them asks for a function."""
    if model._supports_attention_backend:
        return False
    classes = [item for item in model.__mro__ if issubclass(item, PreTrainedModel) and item is not PreTrainedModel]
    files = [sys.modules[item.__module__] for item in classes if item.__module__ in sys.modules]
    return any(map(_holds_attention, files)) and not any(hasattr(file, _INTERFACE) for file in files)


def _holds_attention(file: ModuleType) -> bool:
    return any(
        isinstance(item, type)
        and item.__module__ == file.__name__
        and "Attention" in item.__name__
        and torch.nn.Module in item.__bases__
        for item in vars(file).values()
    )
