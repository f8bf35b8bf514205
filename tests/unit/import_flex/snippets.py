"""Mods written into a file, and what they become."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex import import_flex

Import = Callable[..., list[str]]


def statements(text: str) -> list[str]:
    """The lines of the variant, without comments."""
    body = text[text.index("{") + 1 : text.rindex("}")]
    return [stripped for line in body.split("\n") if (stripped := re.sub(r"\s+#.*", "", line).strip())]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """`lines(python, *targets, inputs=())`: the statements that the targets in this text become; `mod` by itself."""
    monkeypatch.chdir(tmp_path)

    def imported(python: str, *targets: str, inputs: tuple[str, ...] = ()) -> list[str]:
        Path("mods.py").write_text(textwrap.dedent(python))
        return statements(import_flex([f"mods.py:{target}" for target in targets or ("mod",)], inputs).text)

    return imported


def mask(expression: str, before: str = "") -> str:
    """A file with one mask_mod, `mod`, that returns an expression."""
    return f"import torch, math\n{before}\ndef mod(b, h, q_idx, kv_idx):\n    return {expression}\n"


def score(expression: str, before: str = "") -> str:
    return f"import torch, math\n{before}\ndef mod(score, b, h, q_idx, kv_idx):\n    return {expression}\n"


def codes(lines: Import, python: str, *targets: str, inputs: tuple[str, ...] = ()) -> list[str]:
    """The codes of the errors that an import gives."""
    with pytest.raises(AttnccError) as raised:
        lines(python, *targets, inputs=inputs)
    return [item.code for item in raised.value.diagnostics]
