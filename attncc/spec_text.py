"""The text of a variant, however it is named. Apart from `compiler`: `attncc check` and `fmt` need no kernels."""

from __future__ import annotations

from pathlib import Path

from . import library
from .diagnostics import AttnccError, Diagnostic
from .source import SourceFile

_WHAT_TO_GIVE = "give a path, a name that `attncc list` prints, or a text of several lines"


def read(spec: Path | str) -> SourceFile:
    """A variant of the library by its name, a file, or a text if it holds a newline.

    AttnccError A511 if there is no such file, or none that can be read.
    """
    if isinstance(spec, str) and "\n" in spec:
        return _text(spec)
    spec = library.find(spec) or spec
    if not isinstance(spec, str | Path) or spec == "":
        came = "an empty text" if spec == "" else type(spec).__name__
        raise AttnccError(Diagnostic("A511", f"the spec is {came}", help=library.advice(spec) or _WHAT_TO_GIVE))
    try:
        return SourceFile.read(Path(spec))
    except OSError as error:
        what, help_ = error.strerror, library.advice(spec) or _WHAT_TO_GIVE
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        what, help_ = f"line {line} is not UTF-8: byte 0x{error.object[error.start]:02x}", "save the file as UTF-8"
    except ValueError:  # a NUL in it
        what, help_ = "this is no path", _WHAT_TO_GIVE
    raise AttnccError(Diagnostic("A511", f"{spec} can't be read: {what}", help=help_))


def _text(text: str) -> SourceFile:
    """AttnccError A511 for halves of surrogate pairs, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        what = f"character {error.start} of the text is half of one: {text[error.start]!r}"
        raise AttnccError(Diagnostic("A511", what, help="decode it as UTF-8")) from None
    return SourceFile("<text>", text)
