"""Calls in CUDA text, and the functions that they may mean, by name and number of arguments.

Both are words: `name(2` for a call with two arguments, and for a function that may have two. A comma between `<` and
`>` may divide template arguments or two comparisons; a call then has a word for each number of arguments that it may
have. Where no number can be told, the word is `name(*`, which all functions of that name have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST = 16  # arguments that are told apart

_TOKEN = re.compile(r"\w+|\.\.\.|->|[<>=!]=|&&|[()\[\]{}<>,=]")
_CALLED = re.compile(r"([A-Za-z_]\w*)[(<]")
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")


@dataclass
class _List:
    """What stands between two brackets, as far as it is read: arguments, parameters or something else."""

    name: str = ""  # before the bracket
    commas: int = 0
    sure_commas: int = 0  # those that aren't between `<` and `>`
    defaults: int = 0
    is_empty: bool = True
    is_open_ended: bool = False  # it holds `...`
    angles: list[tuple[str, int]] = field(default_factory=list)  # `<` that may be brackets: what is before, the commas

    def numbers(self) -> tuple[int, int]:
        """How many arguments these are, at least and at most."""
        if self.is_open_ended:
            return 0, MOST
        return (0, 0) if self.is_empty else (min(self.sure_commas + 1, MOST), min(self.commas + 1, MOST))


def calls(code: str) -> frozenset[str]:
    """The words of the calls in some code, which has no comments."""
    found: set[str] = set()
    for closed in _lists(code):
        if closed.name:
            least, most = closed.numbers()
            found.update(f"{closed.name}({number}" for number in range(least, most + 1))
    told = {word.partition("(")[0] for word in found}
    return frozenset(found.union(f"{name}(*" for name in set(_CALLED.findall(code)) - told))


def function_words(name: str, rest: str) -> Iterator[str]:
    """The words of a function; `rest` is its text from the bracket of its parameters on."""
    parameters = next(iter(_lists(rest, stop=True)), _List(is_open_ended=True))
    least, most = parameters.numbers()
    yield f"{name}(*"
    yield from (f"{name}({number}" for number in range(max(least - parameters.defaults, 0), most + 1))


def _lists(code: str, stop: bool = False) -> Iterator[_List]:
    """The lists in brackets, in the order in which they end. `stop`: the first one on the outermost level alone."""
    stack = [_List()]
    before = ""  # the name that a bracket which follows at once would belong to
    for token in _TOKEN.findall(code):
        here = stack[-1]
        if token in _OPEN:
            here.is_empty = False
            stack.append(_List(before if token == "(" else ""))
        elif token in _CLOSE:
            if len(stack) > 1:
                closed = stack.pop()
                if not stop or len(stack) == 1:
                    yield closed
        else:
            _read(here, token, before)
        before = _name_before(token, here)


def _read(here: _List, token: str, before: str) -> None:
    if token == ",":
        here.commas += 1
        here.sure_commas += 1
        return
    here.is_empty = False
    if token == "<":
        here.angles.append((before, here.sure_commas))
    elif token == "=":
        here.defaults += 1
    elif token == "...":
        here.is_open_ended = True


def _name_before(token: str, here: _List) -> str:
    """What a bracket behind this token would belong to; a `>` may close template arguments."""
    if token == ">" and here.angles:
        name, here.sure_commas = here.angles.pop()
        return name
    return token if token[0].isalpha() or token[0] == "_" else ""
