"""The LALR(1) automaton of `grammars/attn.lark`.

To make it from the grammar takes 0.1 s, which every command would pay. So it is kept in the user's cache folder
(`$ATTNCC_CACHE`, else the platform's), by the content of all that it depends on. A missing, damaged or unwritable
entry costs that time and nothing else. The entry is pickled data of lark's: as with the compiled kernels beside it,
who may write to that folder may run code.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import lark
from lark import Lark, lexer
from lark.lexer import PatternStr

from .. import resources

_DIGEST_BYTES = 32


@cache
def grammar() -> Lark:
    """The parser, made once for each process. It keeps no state between parses; threads may share it."""
    text = resources.read("grammars", "attn.lark")
    path = _cache_path(text)
    kept = _load(path)
    if kept is None:
        kept = make(text)
        _save(kept, path)
    return kept


def make(text: str, *, strict: bool = False) -> Lark:
    """The parser of a grammar text. `strict` also refuses terminals that overlap (it needs interegular, and time)."""
    with _overlaps_sought(strict):
        return Lark(
            text,
            parser="lalr",
            lexer="basic",
            start="module",
            propagate_positions=True,
            maybe_placeholders=False,
            strict=strict,
        )


@contextmanager
def _overlaps_sought(strict: bool) -> Iterator[None]:
    """Where interegular is installed, lark looks for overlaps unasked, which takes longer than all the rest."""
    installed = getattr(lexer, "has_interegular", False)  # not of lark's documented interface
    lexer.has_interegular = installed and strict
    try:
        yield
    finally:
        lexer.has_interegular = installed


@cache
def literals() -> dict[str, str]:
    """Terminal name -> its text, for keywords, operators and brackets: `{"LET": "let", "LPAR": "(", ...}`."""
    return {item.name: item.pattern.value for item in grammar().terminals if isinstance(item.pattern, PatternStr)}


@cache
def terminals() -> dict[str, str]:
    """The inverse of `literals`: text -> terminal name."""
    return {text: name for name, text in literals().items()}


@cache
def keywords() -> frozenset[str]:
    """Every reserved word of the language."""
    return frozenset(text for text in terminals() if text.isalpha())


def _cache_path(text: str) -> Path:
    override = os.environ.get("ATTNCC_CACHE")
    if override:
        folder = Path(override)
    else:
        import platformdirs

        folder = Path(platformdirs.user_cache_dir("attncc"))
    parts = (text, lark.__version__, *map(str, sys.version_info))
    return folder / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}.grammar"


def _load(path: Path) -> Lark | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return Lark.load(io.BytesIO(body)) if hashlib.sha256(body).digest() == digest else None


def _save(parser: Lark, path: Path) -> None:
    """Writes beside the place and renames, so that processes may race; each writes the same."""
    file = io.BytesIO()
    parser.save(file, ())
    body = file.getvalue()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as temporary:
                temporary.write(hashlib.sha256(body).digest() + body)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
