"""Files that hold very much: A011, or an answer, and that within seconds of the processor's time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attncc import resources
from attncc.checks import schedule_errors
from attncc.diagnostics import AttnccError
from attncc.semantics import limits
from attncc.semantics.load import load
from attncc.source import MAX_BYTES, SourceFile
from attncc.syntax.tokens import MAX_NAME, MAX_TOKENS

ROOT = Path(__file__).resolve().parents[3]


def many(text: str, count: int) -> str:
    return "\n".join(text.replace("@", str(number)) for number in range(count))


def variant(body: str) -> str:
    return f"variant v {{\n{body}\n}}\n"


def wide(*counts: int) -> str:
    """A schedule with so many candidates for each knob."""
    knobs = ("stages", "block_q", "block_kv", "warps")
    lines = (
        f"{knob} = {{{', '.join(str(number + 1) for number in range(count))}}}"
        for knob, count in zip(knobs, counts, strict=False)
    )
    return f"variant v {{}}\nschedule s for v on sm_80 {{\n{chr(10).join(lines)}\n}}\n"


IN = {
    "imports": many('import "f@.attn"', limits.MAX_IMPORTS),
    "masks": many("mask m@() = q_pos > kv_idx", limits.MAX_MASKS),
    "variants": many("variant v@ {}", limits.MAX_VARIANTS),
    "lines": variant(many("let a@ = q_pos", limits.MAX_LINES)),
    "inputs": variant(many("input a@: f32", limits.MAX_INPUTS)),
    "name": f"variant {'v' * MAX_NAME} {{}}",
    "candidates": wide(limits.MAX_CANDIDATES),
    "combinations": wide(8, 8, 8),
    "keep lines": variant(many("keep if q_pos + @ >= kv_idx or q_pos < @", 330)),
    "long comment": "#" * (MAX_BYTES - 100),
}
OUT = {
    "imports": many('import "f@.attn"', limits.MAX_IMPORTS + 1),
    "masks": many("mask m@() = q_pos > kv_idx", limits.MAX_MASKS + 1),
    "variants": many("variant v@ {}", limits.MAX_VARIANTS + 1),
    "schedules": many("schedule s@ for v on sm_80 {}", limits.MAX_SCHEDULES + 1),
    "lines": variant(many("let a@ = q_pos", limits.MAX_LINES + 1)),
    "lines of a mask": f"mask m() {{ {many('keep if q_pos > @', limits.MAX_LINES + 1)} }}",
    "inputs": variant(many("input a@: f32", limits.MAX_INPUTS + 1)),
    "name": f"variant {'v' * (MAX_NAME + 1)} {{}}",
    "name of an explained variant": f"variant {'v' * 30_000} {{}}",
    "settings": "schedule s for v on sm_80 { " + "stages = 2 " * (limits.MAX_SETTINGS + 1) + "}",
    "candidates": wide(limits.MAX_CANDIDATES + 1),
    "combinations": wide(8, 8, 8, 2),
    "combinations in 292 bytes": wide(8, 16, 16, 16),
    "tokens": "mask m() = " + "a + " * (MAX_TOKENS // 2) + "a",
    "keep lines": variant("keep if q_pos >= kv_idx\n" * 5000),
    "parts": variant(many("keep if any(kv_idx == i for i in range(64))", 100)),
    "parts of several": many("variant v@ { keep if any(kv_idx == i for i in range(60)) }", 100),
    "steps": "mask m0() = q_pos > kv_idx\n"
    + many("mask n@(x) = any(any(x > i * j for j in range(20)) for i in range(64))", 1)
    + many("\nvariant v@ { let a = sum(sum(i * j for j in range(60)) for i in range(60)) score = score + a }", 40),
    "tiles": variant("keep if any(q_pos == kv_idx + i for i in range(64))")
    + "schedule s for v on sm_80 { block_q = {16, 32, 48, 64, 128} block_kv = {16, 32, 48, 64, 80, 96, 128} }",
    "long comment": "#" * MAX_BYTES,
}


def codes(text: str) -> set[str]:
    try:
        program = load(SourceFile("long.attn", f"attn 1\n{text}\n"))
        return {item.code for item in schedule_errors(program)} - {"A011"}
    except AttnccError as error:
        return {item.code for item in error.diagnostics}


@pytest.mark.parametrize("key", IN)
def test_what_is_taken(key: str) -> None:
    assert "A011" not in codes(IN[key])


@pytest.mark.parametrize("key", OUT)
def test_what_is_too_much(key: str) -> None:
    assert codes(OUT[key]) == {"A011"}


TIMED = {
    **{f"in: {key}": text for key, text in IN.items()},
    **{f"out: {key}": text for key, text in OUT.items()},
    "strange characters": "@ " * 49_000,
    "one strange run": "@" * 99_000,
    "open": "variant v { keep if " + "(" * 90_000,
    "long number": f"variant v {{ keep if {'1' * 99_000} > 2 }}",
    "long import": f'import "{"a/" * 49_000}x.attn"',
    "words": "foo " * 19_000,
    "ors": variant("keep if " + " or ".join(f"kv_idx == {number}" for number in range(1_900))),
    "unknown names": variant(many("keep if zz@ > 3", 500)),
    "chain of masks": many("mask m@() = kv_idx < @", 1) + many("\nmask n@() = m0() and m0()", 500),
    "doubling masks": "mask m0() = kv_idx < 3\n" + "\n".join(
        f"mask m{number + 1}() = m{number}() and m{number}()" for number in range(500)
    ),
    "candidates of a mask": variant(many("keep if abs(q_idx // 64 - kv_idx // 64) <= @ + 5", 30))
    + "schedule s for v on sm_80 { block_q = {64, 128} block_kv = {16, 32, 48, 64, 96, 128} warps = {4, 8, 2, 1} "
    "stages = {2, 1, 3} skip = {auto, never} }",
    "schedules of masks": many(
        "variant v@ { keep if abs(q_idx % 64 - kv_idx % 64) <= @ or q_idx // 64 == kv_idx // 64 }\n"
        "schedule s@ for v@ on sm_90a { skip = auto }\nschedule t@ for v@ backward on sm_90a { skip = auto }", 3
    ),
    "lookups": variant(
        "input t: i32[pos] nondecreasing\nkeep if any(t[kv_idx // (i + 1)] < q_idx + i for i in range(64))"
    ),
}  # fmt: skip

TIMES = """
import re, sys, time
from click.testing import CliRunner
from attncc.cli import attncc
CliRunner().invoke(attncc, ["check", "specs/causal.attn"])  # what is imported once
for path in sys.argv[1:]:
    start = time.process_time()
    result = CliRunner().invoke(attncc, ["check", path])
    assert "A900" not in result.output and result.exit_code in (0, 1), (path, result.output, result.exception)
    print(time.process_time() - start)
# Not getrusage's: that begins with the most of the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
def test_time_and_memory(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.attn" for number in range(len(TIMED))]
    for path, text in zip(paths, TIMED.values(), strict=True):
        path.write_text(f"attn 1\n{text}\n")
    command = [sys.executable, "-c", TIMES, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    *seconds, kilobytes = map(float, done.stdout.split())
    slow = {name: spent for name, spent in zip(TIMED, seconds, strict=True) if spent > 4}  # of 2 on a quiet machine
    assert not slow and kilobytes < 2**20


@pytest.mark.parametrize("spec", ["morton_natten", "tiled_natten", "sta_3d", "vsa"])
def test_schedules_without_tiles_share_what_is_analysed(spec: str) -> None:
    text = (resources.folder("specs") / f"{spec}.attn").read_text(encoding="utf-8")
    passes = ("", "decode ", "backward ")
    schedules = [f"schedule s{i} for {spec} {name}on sm_90 {{ skip = auto }}\n" for i, name in enumerate(passes)]
    assert load(SourceFile("s.attn", text + "".join(schedules)), {}).schedules
