"""Files of at most 100 KB that ask for as much work as the limits leave them, and some that ask for more.

`python -m tests.large_files [COMMAND ...] [-k WORDS]` tells the seconds of the processor that each command takes for
each of them, without NVRTC's: no kernel is compiled, so `build` ends with the first that it would compile. (On Linux.)
Other processes on the machine make a processor's seconds count up to four times. So each command is timed beside a
loop of Python, and the second figure is what it would take where that loop takes `ALONE`: on a core without company.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple


def many(text: str, count: int, separator: str = "\n") -> str:
    return separator.join(text.replace("@", str(number)) for number in range(count))


def variant(body: str, name: str = "v") -> str:
    return f"variant {name} {{\n{body}\n}}\n"


def nest(inner: str, wrap: str, depth: int, first: int = 0) -> str:
    """`$` of `wrap` is what it wraps, `@` a number."""
    for number in range(first, first + depth):
        inner = wrap.replace("$", inner).replace("@", str(number))
    return inner


def nests(lines: int, depth: int, op: str) -> str:
    each = (nest("kv_idx", f"($ {op} (q_idx + @))", depth, 1 + line * depth) for line in range(lines))
    return variant("\n".join(f"keep if {value} <= {line}" for line, value in enumerate(each)))


def table(name: str, length: int) -> str:
    return f"const {name}: int[{length}] = [{', '.join(str(number * number % 251) for number in range(length))}]"


def steps(name: str, first: str, each: str, count: int) -> str:
    """`@` is the one before, `#` the number."""
    lines = [f"let {name}0 = {first}"]
    lines += [f"let {name}{i + 1} = {each.replace('@', f'{name}{i}').replace('#', str(i))}" for i in range(count)]
    return "\n".join(lines)


def chain(kind: str, head: str, first: str, each: str, count: int) -> str:
    """Masks or functions of which each calls the one before."""
    items = [f"{kind} {head}0(x) = {first}"]
    items += [f"{kind} {head}{i + 1}(x) = {each.replace('@', f'{head}{i}')}" for i in range(count)]
    return "\n".join(items) + "\n"


def of_lengths(passes: Iterable[str], count: int) -> str:
    return "\n".join(
        f"schedule s{name}{i} for v {name} on sm_80 for lengths {16 * i + 1}..{16 * i + 16} {{ stages = {{1, 2}} }}"
        for name in passes
        for i in range(count)
    )


LONG = "m" * 90
FILES = {
    # many keep lines, of much arithmetic
    "quotients": nests(20, 12, "//"),
    "more quotients": nests(58, 12, "//"),
    "deep quotients": nests(12, 60, "//"),
    "remainders": nests(58, 12, "%"),
    "products": nests(36, 20, "*"),
    "sums of products": variant(many("keep if (kv_idx * (q_idx + @) + q_idx * @) * (kv_idx - q_idx * @) > @", 175)),
    "comparisons": variant(many("keep if q_pos + @ >= kv_idx or q_pos < @", 330)),
    "floats": variant(many("keep if sin(kv_idx * 0.@) < cos(q_idx * 1.0) + 0.@", 230)),
    "floors": variant(many("keep if floor(kv_idx * 0.@ + 0.5) <= q_idx + floor(sqrt(kv_idx * 1.0))", 185)),
    "distances": variant(many("keep if abs(q_idx // (@ + 2) - kv_idx // (@ + 2)) <= @ + 5", 240)),
    "diamonds": variant(
        "let dy = q_idx // 64 - kv_idx // 64\nlet dx = q_idx % 64 - kv_idx % 64\n"
        + many("keep if abs(dx) * (@ + 1) + abs(dy) * 2 <= 40 + @", 45)
    ),
    "polygons": variant(
        "let dy = q_idx // 64 - kv_idx // 64\nlet dx = q_idx % 64 - kv_idx % 64\n"
        "let t = q_idx // 4096 - kv_idx // 4096\n"
        + many("keep if dx * (@ - 11) + dy * (@ % 7 - 3) + t * (@ % 5 - 2) + q_len // (@ + 2) <= 40 + @", 24)
    ),
    "arcs": variant(many("keep if (q_idx - kv_idx + @) % 64 <= 12 or (kv_idx - q_idx) % (@ + 60) < 9", 110)),
    "one circle": variant("keep if " + many("(q_idx - kv_idx + 5 * @) % 4096 <= 1", 330, " or ")),
    "steps": variant(many("keep if any(q_idx - kv_idx == 3 * i - @ for i in range(64))", 9)),
    "neighbours": variant(
        many("keep if abs(q_idx % 64 - kv_idx % 64) <= @ or abs(q_idx // 64 - kv_idx // 64) <= @", 142)
    ),
    "bits": variant(many("keep if (kv_idx ^ (q_idx << @)) & (kv_idx >> @) != @", 60)),
    "clauses": variant(
        "\n".join(
            "keep if " + " or ".join(f"kv_idx - q_idx == {i * 97 + j}" for j in range(12)) for i in range(48)
        )
    ),
    "bands": variant("keep if " + many("(kv_idx > q_idx + @ * 3 and kv_idx < q_idx + @ * 3 + 2)", 230, " or ")),
    # ranges
    "any of 64": variant(many("keep if any(kv_idx // (i + @ + 1) == q_idx // (i + 2) for i in range(64))", 6)),
    "all of 64": variant(many("keep if all(kv_idx * i + @ != q_idx for i in range(64))", 6)),
    "any of any": variant("keep if any(any(q_idx * i + j * kv_idx == i * j for i in range(16)) for j in range(20))"),
    "sums in scores": variant(many("score = score + sum(sin(kv_idx * i + @.0) for i in range(64))", 7)),
    "sums of sums": variant(
        "score = score + sum(sum(cos(kv_idx * i + q_idx * j + 1.0) for i in range(30)) for j in range(9))"
    ),
    "lookups": variant(
        "input t: i32[pos] nondecreasing\nkeep if any(t[kv_idx // (i + 1)] < q_idx + i for i in range(64))"
    ),
    # scores
    "score chain": variant(many("score = score + @ * 0.5", 60)),
    "wide scores": variant(
        many("score = score + " + many("sin((kv_idx + @) * q_idx + 1.0)", 12, " + ") + " + @", 9)
    ),
    "squared": variant("score = score + 0.5\n" + "score = score * score + score\n" * 40),
    "maxima": variant("score = " + nest("score", "max($, kv_idx * @.0)", 120)),
    "learned": variant(
        "input w: f32[head, 64] learnable\nscore = score + "
        + many("w[h, (kv_idx * @ + q_idx) % 64] * sin(score + @)", 110, " + ")
    ),
    "lets of the score": variant(steps("a", "score * 0.5", "@ * @ + @ * (@ - #)", 5) + "\nscore = a5"),
    "sigmoids": variant("normalize sigmoid\ndropout 0.3\n" + many("score = score * sigmoid(score + @)", 24)),
    # lets, masks and functions that grow when they are written out
    "lets": variant(steps("a", "kv_idx + 1", "@ * @ + @", 7) + "\nkeep if a7 > q_idx"),
    "lets of quotients": variant(steps("a", "kv_idx // 3", "max(@ // 2, q_idx - @)", 8) + "\nkeep if a8 > q_idx"),
    "too many lets": variant(steps("a", "kv_idx + 1", "@ * @ + @", 500) + "\nkeep if a500 > q_idx"),
    "masks of masks": chain("mask", "m", "kv_idx // (x + 1) < 3", "@(x + 1) or @(x * 3)", 7)
    + variant("keep if m7(q_idx)"),
    "masks of four": chain("mask", "m", "kv_idx + x > 3", "(@(x + 1) and @(x * 3)) or (@(x) and not @(x - 2))", 4)
    + variant("keep if m4(q_idx)"),
    "functions of functions": chain("fn", "f", "x * x + 1.0", "@(x) + @(x * 0.5)", 8) + variant("score = f8(score)"),
    "many functions": many("fn g@(x) = tanh(x + @.0) * (x - @.0)", 400)
    + variant("\nscore = score + " + many("g@(kv_idx * 1.0)", 100, " + ")),
    "selects": variant("keep if " + nest("kv_idx < 3", "($ if kv_idx % (@ + 2) == 0 else q_idx > @)", 110)),
    "selects of ints": variant(
        "keep if " + nest("kv_idx", "($ if q_idx % (@ + 2) == 0 else kv_idx + @)", 110) + " > q_idx"
    ),
    "ladders": variant(many("keep if kv_idx <= " + nest("q_idx", "min(max($, kv_len - @ * 3), q_len + @)", 40), 8)),
    "extremes": variant(many("keep if kv_idx <= max(q_idx - @, min(q_idx + @, 100 * @))", 250)),
    # tables and inputs
    "two arrays": variant(f"{table('t', 256)}\nkeep if t[kv_idx] < t[q_idx] + 1"),
    "thirty arrays": variant(
        "\n".join(table(f"t{i}", 256) for i in range(30)) + "\n" + many("keep if t@[kv_idx] < t0[q_idx] + @", 30)
    ),
    "many lookups": variant(
        many("input t@: i32[batch, pos]", 60) + "\n" + many("keep if t@[b, q_pos] == t@[b, kv_idx]", 60)
    ),
    "many sorted": variant(
        many("input t@: i32[batch, pos] nondecreasing", 60) + "\n" + many("keep if t@[b, q_pos] == t@[b, kv_idx]", 60)
    ),
    "many learned": variant(
        many("input t@: f32[head, kv] learnable", 60) + "\n" + many("score = score + t@[h, kv_idx]", 60)
    ),
    "many pairs": variant(
        many("input t@: f32[batch, head, q, kv]", 60) + "\n" + many("score = score + t@[b, h, q_idx, kv_idx]", 60)
    ),
    "many scalars": variant(many("input t@: f32", 60) + "\n" + many("score = score + t@ * @", 60)),
    # names, comments, schedules, variants
    "long names": many(f"mask {LONG}@({'x' * 95}, {'y' * 95}) = {'x' * 95} - {'y' * 95} < @", 120)
    + variant("\n" + many(f"let l{LONG}@ = kv_idx + @", 120) + "\n" + many(f"keep if {LONG}@(q_idx, l{LONG}@)", 120)),
    "a long comment": f"# {'x' * 99_000}\n{variant('keep if q_pos >= kv_idx')}",
    "schedules of lengths": variant(many("keep if q_pos - @ != kv_idx", 10))
    + of_lengths(("", "decode", "backward"), 60),
    "schedules": many(
        "variant v@ { keep if q_idx >= kv_idx // (@ + 1) }\n"
        "schedule s@ for v@ on sm_80 { stages = {1, 2, 3} warps = {2, 4} }", 80
    ),
    "variants": many("variant v@ { keep if q_idx >= kv_idx // (@ + 1) score = tanh(score * @.5) }", 127),
    "open": "variant v { keep if " + "(" * 90_000,
    # what another mind tried, of which some had told one mistake many times
    "ternaries": variant("score = " + many("@.0 if kv_idx == @ else", 1100, " ") + " 0.0"),
    "functions twice": chain("fn", "g", "x + 1.0", "@(@(x))", 30) + variant("score = g30(score)"),
    "masks twice": chain("mask", "m", "kv_idx > x", "@(x) and @(x + 1)", 25) + variant("keep if m25(q_idx)"),
    "lets in masks": "mask m(x) {\n" + steps("a", "x", "@ + @", 30) + "\nkeep if a30 > kv_idx\n}\n"
    + variant(many("keep if m(q_idx + @)", 400)),
    "const tables": variant(f"{table('t', 64)}\nkeep if any(t[(kv_idx + i) % 64] == i for i in range(64))"),
    "pixels": variant(
        "keep if "
        + many("(abs(q_idx % 64 - kv_idx % 64) == @ and abs(q_idx // 64 - kv_idx // 64) == @)", 80, " or ")
    ),
    "unknown names": variant(many("keep if nothing@ >= nobody@", 500)),
    "near names": variant(many("input abcdefghij@: i32", 60) + "\n" + many("keep if abcdefghijk@ >= kv_idx", 400)),
    "overlaps": "variant v { keep if q_idx >= kv_idx }\n"
    + many("schedule s@ for v on sm_90a for lengths 1@..99999999 { stages = 2 }", 256),
}  # fmt: skip

COMMANDS = {
    "check": ["check"],
    "picture": ["show"],
    **{stage: ["show", "--stage", stage] for stage in ("ast", "ir", "rules", "cuda")},
    "backward": ["show", "--stage", "cuda", "--pass", "backward"],
    "explain": ["explain"],
    "run": ["run", "--device", "cpu"],
    "build": ["build", "--arch", "sm_90a", "--head-dim", "64"],
}
MOST_SECONDS = 60.0  # of a command's processor time, in `timed`
ALONE = 0.042  # seconds of the loop, where the limits were measured: a virtual core of 2026 with nothing beside it


class Timed(NamedTuple):
    """What a command took of the processor in seconds, the same `alone`, the most memory in MB, its last words."""

    name: str
    seconds: float
    alone: float
    memory: int
    said: str


def timed(names: Iterable[str], command: str, folder: Path) -> Iterator[Timed]:
    """Of each file, by one process that has imported all before."""
    from click.testing import CliRunner

    from attncc.cli import attncc, seldom_collect

    seldom_collect()  # as the command itself does
    signal.signal(signal.SIGVTALRM, _too_long)
    _refuse_to_compile()
    options = COMMANDS[command]
    out = ["-o", str(folder / "built")] if command == "build" else []
    for name in ("first", *names):
        path = folder / "file.attn"
        path.write_text(f"attn 1\n{FILES.get(name, variant('keep if q_pos >= kv_idx'))}\n")
        _forget_peak()
        before, start = _loop(), process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
        result = CliRunner().invoke(attncc, [options[0], str(path), *options[1:], *out])
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        seconds = process_time() - start
        alone = seconds * ALONE / ((before + _loop()) / 2)
        words = result.output.strip().splitlines()
        said = next((line for line in words if line.startswith("error[")), (words or [""])[-1])
        if isinstance(result.exception, Exception):
            said = repr(result.exception)
        if name != "first":
            yield Timed(name, seconds, alone, _peak(), said[:110])


def _loop() -> float:
    """What a fixed loop takes of the processor."""
    held: dict[int, Any] = {}
    start = process_time()
    for number in range(300_000):
        held[number % 1000] = (number, held.get(number % 777)) if number % 3 else number
    return process_time() - start


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most memory in use since then, in MB. (What `getrusage` tells is the most of all files so far.)"""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) // 1024  # type: ignore[index]


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS} s")


def _refuse_to_compile() -> None:
    """There is no NVRTC."""
    from attncc import machine_code
    from attncc.diagnostics import AttnccError, Diagnostic

    def refused(*_: object) -> Future[object]:
        future: Future[object] = Future()
        future.set_exception(AttnccError(Diagnostic("A501", "NVRTC isn't asked")))
        return future

    machine_code.submit_cached = refused  # type: ignore[assignment]


def main(arguments: list[str]) -> None:
    from argparse import ArgumentParser

    parser = ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="*", help=f"of {', '.join(COMMANDS)}; all of them by default")
    parser.add_argument("-k", nargs="+", default=[""], metavar="WORD", help="files whose names have one of these alone")
    parser.add_argument("-s", type=float, default=0.0, metavar="SECONDS", help="tell of what takes longer alone")
    given = parser.parse_args(arguments)
    names = [name for name in FILES if any(word in name for word in given.k)]
    for command in given.command or COMMANDS:
        with TemporaryDirectory() as folder:
            for name, seconds, alone, memory, said in timed(names, command, Path(folder)):
                if alone >= given.s:
                    times = f"{seconds:6.2f} s ({alone:5.2f} alone)"
                    print(f"{command:9} {name:22} {times}, {memory:5} MB  {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
