"""Ten thousand damaged and random files: a tree, or errors that can be shown. Never anything else, never slowly."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from attncc import resources
from attncc.diagnostics import AttnccError
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source
from attncc.syntax.grammar import literals
from attncc.syntax.parser import MAX_ERRORS, parse
from tests.examples import slow_beyond

BATCHES = 50
CASES_A_BATCH = 200

SPECS = (
    "attn 1\nimport masks\nmask m(w) = 0 <= q_pos - kv_idx < w\nvariant v { keep if m(64) }\n",
    "attn 1\n# doc\nvariant v {\n  input slope: f32[head]\n  score = score - slope[h] * (q_pos - kv_idx)  # c\n}\n",
    "attn 1\nmask m(a) { let d = a[kv_idx // 2] keep if d == 1 or not (d < 3) }\n",
    "attn 1 variant v { const n: int = 4 keep if any(q_idx == i * n for i in range(8)) dropout 0.1 }",
    "attn 1 variant v { let x = a if b else -c scale 1 / 3 sink s normalize none }\n",
    "attn 1\nschedule s for v decode on sm_90a { block_q = 128 block_kv = {64, 128} split_kv = auto }\n",
)
STRANGE = (
    "&&",
    "!",
    '"',
    "_",
    "__",
    "\0",
    "\ufeff",
    "é",
    "\t",
    "\r",
    "#",
    "9" * 30,
    "1e999",
    "(" * 20,
    "}" * 5,
    "= =",
    "\u2028",
)


def random_bytes(rng: random.Random) -> str:
    return rng.randbytes(rng.randrange(60)).decode("latin-1")


def random_unicode(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(0x11000)) for _ in range(rng.randrange(40)))


def random_tokens(rng: random.Random) -> str:
    words = (*literals().values(), "name", "x1", "12", "0.5", *STRANGE)
    return "attn 1 variant v { " + " ".join(rng.choices(words, k=rng.randrange(40)))


def mutated(rng: random.Random) -> str:
    """A good file with one to four faults."""
    text = rng.choice(SPECS)
    for _ in range(rng.randint(1, 4)):
        text = _fault(rng, text)
    return text


def _fault(rng: random.Random, text: str) -> str:
    start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    match rng.randrange(6):
        case 0:
            return text[:start] + text[min(end, start + 12) :]
        case 1:
            return text[:start] + rng.choice(STRANGE) + text[start:]
        case 2:
            return text[:start] + rng.choice(list(literals().values())) + text[start:]
        case 3:
            return text[:end] + text[start:end] + text[end:]
        case 4:
            return text[:start] + rng.choice(SPECS)[start:end] + text[end:]
        case _:
            words = text.split(" ")
            rng.shuffle(words)
            return " ".join(words)


@pytest.mark.parametrize("batch", slow_beyond(BATCHES // 3, range(BATCHES)))
def test_never_a_traceback(batch: int) -> None:
    rng = random.Random(batch)
    makers: list[Callable[[random.Random], str]] = [random_bytes, random_unicode, random_tokens, *[mutated] * 5]
    for _ in range(CASES_A_BATCH):
        check(rng.choice(makers)(rng))


def check(text: str) -> None:
    source = SourceFile("fuzz.attn", text)
    try:
        module = parse(source)
    except AttnccError as error:
        assert 1 <= len(error.diagnostics) <= MAX_ERRORS
        assert str(error)
        for item in error.diagnostics:
            assert item.code.startswith("A0")
            assert 0 <= item.span.start <= item.span.end <= len(text)
            assert item.help or item.label
        starts = [item.span.start for item in error.diagnostics]
        assert starts == sorted(starts)
    else:
        assert parse(SourceFile("fuzz.attn", format_source(source))) == module


def test_every_code_has_a_page() -> None:
    pages = resources.folder("grammars").parent / "docs" / "errors"
    rng = random.Random(0)
    seen: set[str] = set()
    for _ in range(300):
        try:
            parse(SourceFile("fuzz.attn", mutated(rng)))
        except AttnccError as error:
            seen |= {item.code for item in error.diagnostics}
    assert len(seen) >= 6
    assert all((pages / f"{code}.md").is_file() for code in seen)
