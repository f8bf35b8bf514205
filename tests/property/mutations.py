"""Files of the library and small ones, damaged: what `python -m tests.property.mutations` runs at length.

Each is checked as `attncc check` does, imports and schedules included: an answer or diagnostics, within two seconds of
the processor's time. Run it with a count (of files) and a seed.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from attncc.analysis.mask.tiles import analyse
from attncc.checks import BLOCKS, schedule_errors
from attncc.cli.check import describe
from attncc.diagnostics import AttnccError, render_all, render_json
from attncc.resources import folder
from attncc.semantics.builtins import DTYPES, FUNCTIONS, NORMALIZERS, PROPERTIES, TAGS, VALUES
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.grammar import literals
from tests.evil_texts import EVIL
from tests.property.test_fuzz_parser import SPECS, STRANGE

SECONDS = 2.0
SCHEDULE = "\nschedule s for {} on sm_90a {{ block_q = {{64, 128}} block_kv = 64 stages = {{1, 2}} }}\n"


def sources() -> list[str]:
    library = [path.read_text(encoding="utf-8") for path in sorted(folder("specs").glob("*.attn"))]
    scheduled = [text + SCHEDULE.format(_variant(text)) for text in library if "\nvariant " in text]
    return [*library, *scheduled, *SPECS]


def _variant(text: str) -> str:
    return text.partition("\nvariant ")[2].split()[0]


def mutated(rng: random.Random, texts: list[str]) -> str:
    """A file with up to six faults, most of which keep its words whole, so that many still parse. In half of the files
    words are replaced by others of their sort alone: these parse, and what follows the parser is tried."""
    text = rng.choice(texts)
    fault = _fault if rng.random() < 0.5 else _other_words
    for _ in range(rng.randint(1, 6)):
        text = fault(rng, text, texts)
    return text


_SORTS = (
    ("+", "-", "*"), ("//", "%"), ("<", "<=", ">", ">=", "==", "!="), ("and", "or"), ("&", "|", "^"), ("<<", ">>"),
    ("floor", "round"), ("min", "max"), ("any", "all", "sum"), tuple(TAGS), tuple(DTYPES), tuple(PROPERTIES),
    tuple(NORMALIZERS), (*VALUES, "0", "2", "63", "64", "0.5", "1e30", "9223372036854775807"),
    tuple(item.name for item in FUNCTIONS.values() if item.form.most == 1),
)  # fmt: skip


def _other_words(rng: random.Random, text: str, texts: list[str]) -> str:
    """One word or sign for another of its sort."""
    found = list(re.finditer(r"#.*|[A-Za-z_]\w*|[0-9.]+|<<|>>|//|[<>=!]=|[-+*%<>&|^]", text))
    for place in rng.sample(found, len(found)):
        sorts = [sort for sort in _SORTS if place[0] in sort]
        if sorts:
            return text[: place.start()] + rng.choice(sorts[0]) + text[place.end() :]
    return text


def _fault(rng: random.Random, text: str, texts: list[str]) -> str:
    words = text.split(" ")
    place, other = rng.randrange(len(words)), rng.randrange(len(words))
    start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    match rng.randrange(9):
        case 0:
            words[place] = words[other]
        case 1:
            words[place], words[other] = words[other], words[place]
        case 2:
            words[place] = rng.choice(list(literals().values()))
        case 3:
            words[place] = rng.choice(("0", "-1", "1", "64", "2**63", "9223372036854775807", "1e38", "0.0", "q_len"))
        case 4:
            words[place] = rng.choice(rng.choice(texts).split(" "))
        case 5:
            return text[:start] + text[min(end, start + 30) :]
        case 6:
            return text[:end] + text[start:end] + text[end:]
        case 7:
            return text[:start] + rng.choice((*STRANGE, *EVIL.values())) + text[start:]
        case _:
            lines = text.split("\n")
            rng.shuffle(lines)
            return "\n".join(lines)
    return " ".join(words)


def check(text: str) -> str:
    """The first code of what is wrong, or `ok`."""
    try:
        program = load(SourceFile(str(folder("specs") / "mutated.attn"), text))
        for variant in program.variants:
            describe(variant, analyse(variant, *BLOCKS))
        found = (*program.warnings, *schedule_errors(program))
    except AttnccError as error:
        found = error.diagnostics
    assert render_all(found).replace("\n", "").isprintable() and render_json(found)
    return next((item.code for item in found if item.severity == "error"), "ok")


def main(count: int, seed: int) -> None:
    texts, seen, slowest = sources(), Counter[str](), 0.0
    for number in range(count):
        text = mutated(random.Random(f"{seed} {number}"), texts)
        start = time.process_time()
        try:
            seen[check(text)] += 1
        except BaseException:
            Path(f"mutated-{seed}-{number}.attn").write_text(text, encoding="utf-8", errors="surrogatepass")
            print(f"file {number} of seed {seed} ends in a traceback: it is kept", flush=True)
            if not isinstance(sys.exc_info()[1], Exception):
                raise
            seen["traceback"] += 1
        spent = time.process_time() - start
        if spent > SECONDS:
            print(f"file {number} of seed {seed} takes {spent:.2f} s", flush=True)
        slowest = max(slowest, spent)
        if number % 1000 == 999:
            print(f"{number + 1} files, the slowest {slowest:.2f} s", flush=True)
    print(f"{count} files, the slowest {slowest:.2f} s: {dict(seen.most_common())}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
