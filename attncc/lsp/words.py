"""Every word of the language by what it is, with a line on each: for hover, completion and highlighting.

The words themselves come from the grammar and from the tables of built-ins, knobs and targets. `_KEYWORDS` adds what a
keyword means, which nothing else holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..schedule.choice import KNOBS
from ..schedule.target import KIB, TARGETS, Target
from ..semantics import builtins
from ..syntax.grammar import keywords
from ..syntax.trouble import FORMS


@dataclass(frozen=True, slots=True)
class Word:
    """A word that the language brings along. `form`: how it is written."""

    name: str
    sort: str  # one of SORTS
    form: str
    doc: str


# Sorts of words: which of them stands at a place follows from what stands before it.
SORTS = (
    "item", "statement", "operator", "constant", "value", "function", "reduction", "tag", "dtype", "type", "property",
    "normalizer", "pass", "lengths", "knob", "setting", "target",
)  # fmt: skip

_KEYWORDS: dict[str, tuple[str, str]] = {  # sort, meaning
    "attn": ("item", "the version of the language; it comes first"),
    "import": ("item", "brings the masks and functions of a file of the library, or of a file relative to this one"),
    "mask": ("item", "a condition with a name; it reads its parameters and the built-in values except `score`"),
    "fn": ("item", "a value with a name; it reads its parameters and the built-in values except `score`"),
    "variant": ("item", "what one attention variant computes; without lines it is full attention"),
    "schedule": ("item", "how a variant runs: settings for one pass on one target"),
    "for": ("item", "the variant and the lengths of a schedule; the variable of `any`, `all` and `sum`"),
    "on": ("item", "the target of a schedule"),
    "const": ("statement", "a number of the build, or an array of them; `-D name=value` replaces it"),
    "input": ("statement", "an argument of every call: a tensor or, without axes, a scalar"),
    "let": ("statement", "a name for a value"),
    "keep": ("statement", "only pairs for which it is true attend; several lines are AND-ed"),
    "score": ("statement", "replaces the score; lines are applied from top to bottom"),
    "scale": ("statement", "the factor on q·k, instead of 1/sqrt(head_dim)"),
    "sink": ("statement", "an input with one more logit for each head"),
    "normalize": ("statement", "how scores become weights"),
    "dropout": ("statement", "drops that share of the weights"),
    "if": ("operator", "`a if c else b` chooses; `keep if c` says what is kept"),
    "else": ("operator", "the other value of `a if c else b`"),
    "and": ("operator", "true where both bools are"),
    "or": ("operator", "true where one of the bools is"),
    "not": ("operator", "true where the bool is false"),
    "in": ("operator", "the range of a loop: `for i in range(n)`"),
    "range": ("operator", f"0, ..., n - 1; n is an int from 0 to {builtins.MAX_ITERATIONS}, made from consts"),
    "any": ("reduction", "whether the condition is true for some i; written out, false over nothing"),
    "all": ("reduction", "whether the condition is true for every i; written out, true over nothing"),
    "sum": ("reduction", "the sum over all i; written out, 0 over nothing"),
    "true": ("constant", "the bool that is true"),
    "false": ("constant", "the bool that is false"),
}


@cache
def words() -> tuple[Word, ...]:
    """All of them, sort by sort. A word may have several sorts, as `scale` has."""
    found = [Word(name, sort, _form(name, sort), doc) for name, (sort, doc) in _KEYWORDS.items() if name in keywords()]
    found += [
        Word(item.name, "value", f"{item.name}: {item.type.value}", item.doc) for item in builtins.VALUES.values()
    ]
    found += [Word(item.name, "function", item.signature, item.form.doc) for item in builtins.FUNCTIONS.values()]
    found += [Word(item.name, "tag", item.name, _tag(item)) for item in builtins.TAGS.values()]
    found += [Word(name, "dtype", name, doc) for name, doc in builtins.DTYPES.items()]
    found += [Word(name, "type", name, "the type of a const") for name in builtins.CONST_TYPES]
    found += [Word(name, "property", name, doc) for name, doc in builtins.PROPERTIES.items()]
    found += [Word(name, "normalizer", f"normalize {name}", doc) for name, doc in builtins.NORMALIZERS.items()]
    found += [Word(name, "pass", name, f"the {name} pass") for name in builtins.PASSES]
    found.append(Word("lengths", "lengths", "for lengths 1024..8192", "the numbers of keys that a schedule is for"))
    found += [Word(name, "knob", f"{name} = {knob.values}", knob.doc) for name, knob in KNOBS.items()]
    found += [Word(name, "setting", name, "a value of knobs") for name in _settings()]
    found += [Word(item.name, "target", item.name, _target(item)) for item in TARGETS.values()]
    return tuple(found)


def _settings() -> list[str]:
    """The words that knobs take."""
    return list(dict.fromkeys(word for knob in KNOBS.values() for word in knob.words))


def of_sort(*sorts: str) -> tuple[Word, ...]:
    return tuple(word for word in words() if word.sort in sorts)


def find(name: str, *sorts: str) -> Word | None:
    """The word of the first of these sorts that has it; of any, if none is given."""
    for sort in sorts or SORTS:
        for word in of_sort(sort):
            if word.name == name:
                return word
    return None


def _form(name: str, sort: str) -> str:
    if sort == "reduction":
        return f"{name}(value for i in range(n))"
    return FORMS.get(name.upper(), name).replace("`", "")


def _tag(tag: builtins.Tag) -> str:
    return f"an axis that counts {tag.doc}; indexed by {', '.join(tag.indexed_by)}"


def _target(target: Target) -> str:
    major, minor = divmod(target.capability, 10)
    exactly = "exactly " if target.exact else ""
    return f"GPUs of compute capability {exactly}{major}.{minor}; {target.shared_bytes // KIB} KiB of shared memory"
