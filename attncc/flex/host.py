"""What the translation of operators asks of the tracer."""

from __future__ import annotations

from typing import Any, Protocol

from ..diagnostics import AttnccError
from ..import_flex.terms import Captured
from ..source import Span
from .terms import Value


class Host(Protocol):
    def value(self, tensor: Any) -> Value:
        """What a tensor of the mod holds."""

    def is_symbolic(self, tensor: Any) -> bool:
        """Whether it depends on the pair."""

    def captured(self, tensor: Any) -> Captured:
        """The input that a tensor from outside becomes."""

    def length(self, tensor: Any, axis: int) -> Captured:
        """The input that holds the length of an axis of one."""

    def fix_shape(self, tensor: Any) -> None:
        """What is traced holds for this shape alone."""

    def span(self) -> Span:
        """The line of the user that runs."""

    def refusal(self, message: str, help: str) -> AttnccError:
        """A713 at that line."""
