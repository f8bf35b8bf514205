"""The command line, in this process: what each command prints, and its exit status."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from attncc.cli import COMMANDS, attncc
from attncc.diagnostics import AttnccError, Diagnostic
from attncc.resources import folder

SPECS = folder("specs")


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(attncc, [str(item) for item in arguments])
    assert result.exit_code == status, result.output
    return result


def unwrapped(*arguments: object) -> str:
    """What a command prints, as one line with single blanks."""
    return " ".join(run(*arguments).output.split())


@pytest.fixture
def spec(tmp_path: Path):
    """Writes a .attn file: spec(body) holds one variant `mine`."""

    def write(body: str, name: str = "mine.attn", head: str = "attn 1\n\nimport masks\n\n") -> Path:
        path = tmp_path / name
        path.write_text(f"{head}variant mine {{\n{body}\n}}\n")
        return path

    return write


# -------------------------------------------------------------------- the group


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_with_examples(command: str) -> None:
    help_text = run(command, "--help").output
    assert f"attncc {command}" in help_text.split("Options:")[0].partition("\n")[2]


def test_help_lists_every_command() -> None:
    shown = run("--help").output.partition("Commands:")[2]
    assert re.findall(r"^  ([\w-]+)", shown, re.M) == list(COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [["chek"], ["check"], ["check", "no_such_file.attn"], ["show", SPECS / "causal.attn", "--q-len", "0"],
     ["explain", SPECS / "causal.attn", "--head-dim", "577"], ["check", SPECS / "causal.attn", "-D", "width"],
     ["show", SPECS / "causal.attn", "--heads", "6", "--kv-heads", "4"], ["explain", "A999"],
     ["explain", SPECS / "causal.attn", "--device", "tpu"], ["show", SPECS / "causal.attn", "--h", "3"],
     ["show", SPECS / "causal.attn", "--png", "x.txt"], ["show", SPECS / "causal.attn", "--svg", "x.png"],
     ["build", SPECS / "causal.attn", "-o", "my-kernels"], ["build", SPECS / "causal.attn", "-o", "class"],
     ["build", SPECS / "causal.attn", "-o", "numpy"], ["build", SPECS / "causal.attn", "-o", "random"]],
    ids=lambda arguments: " ".join(map(str, arguments)).replace(str(SPECS), "specs"),
)  # fmt: skip
def test_usage_errors_exit_with_2(arguments: list[object]) -> None:
    assert "Error: " in run(*arguments, status=2).output


def test_a_command_misspelt() -> None:
    assert "there is no command `buidl`: did you mean `build`?" in run("buidl", "x.attn", status=2).output


def test_an_internal_error_is_a_diagnostic_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("attncc.compiler.load", broken)
    shown = run("show", SPECS / "causal.attn", status=1).output
    assert "error[A900]: internal error: ZeroDivisionError: surprise" in shown
    assert "ATTNCC_DEBUG" in shown
    monkeypatch.setenv("ATTNCC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(attncc, ["show", str(SPECS / "causal.attn")], catch_exceptions=False)


def test_too_little_memory_is_no_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object) -> None:
        np.empty(1 << 60, np.uint8)

    monkeypatch.setattr("attncc.compiler.load", greedy)
    shown = run("show", SPECS / "causal.attn", status=1).output
    assert "error[A905]: there isn't enough memory: another 1.00 EiB is needed at once" in shown
    assert "smaller --q-len" in shown


def test_commands_load_only_what_they_need() -> None:
    code = (
        "import sys; from attncc.cli import attncc\n"
        "try: attncc(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'lark', 'jinja2', 'cupy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# -------------------------------------------------------------------- check


def test_check_says_what_is_proven() -> None:
    specs = ("causal", "full", "documents", "shared_prefix")
    shown = run("check", *(SPECS / f"{spec}.attn" for spec in specs)).output
    assert shown.count(": ok") == 4
    assert "skipped by loop bounds alone" in shown
    assert "no mask code at all" in shown
    assert "a pre-pass verifies that doc never decreases" in shown
    assert "a pre-pass makes min/max tables of start, prefix_first, prefix_end" in shown


def test_check_reports_every_file(spec) -> None:
    one, other = spec("keep if nowhere > 0", "one.attn"), spec("keep if kv_idx >", "other.attn")
    result = run("check", one, SPECS / "causal.attn", other, status=1)
    assert "one.attn:6:9" in result.output
    assert "other.attn:6:" in result.output
    assert "causal.attn: ok" in result.output


def test_check_as_json(spec) -> None:
    found = json.loads(run("check", spec("keep if nowhere > 0"), "--format", "json", status=1).stdout)
    assert [item["code"] for item in found] == ["A101"]
    assert found[0]["span"]["line"] == 6


def test_check_judges_schedules(spec) -> None:
    path = spec("keep if causal()")
    path.write_text(path.read_text() + "schedule big for mine on sm_80 { block_q = 1024 block_kv = 1024 }\n")
    shown = run("check", path, status=1).output
    assert re.search(r"error\[A4\d\d\]", shown)
    assert f"{path}:8:" in shown


def test_check_judges_every_candidate_and_every_schedule(spec) -> None:
    """A value that some combination can have is right, though others can't."""
    path = spec("keep if causal()")
    head = path.read_text()
    path.write_text(f"{head}schedule s for mine on sm_80 {{ block_q = {{64, 72}} warps = {{4, 2}} }}\n")
    assert run("check", path, status=1).output.count("error[A405]: 72 rows") == 1
    path.write_text(f"{head}schedule s for mine on sm_80 {{ block_q = {{64, 128}} warps = {{4, 8}} }}\n")
    run("check", path)
    path.write_text(f"{head}schedule s for mine on sm_80 {{ blok_q = 1 }}\nschedule t for mine on sm_90 {{ x = 2 }}\n")
    assert run("check", path, status=1).output.count("error[A401]") == 2


def test_check_judges_schedules_of_the_backward_passes(spec) -> None:
    path = spec("keep if causal()")
    text = path.read_text()
    path.write_text(text + "schedule s for mine backward on sm_80 {}\nschedule t for mine backward_dq on sm_80 {}\n")
    run("check", path)
    path.write_text(text + "schedule s for mine backward on sm_80 { block_q = 128 stages = 8 }\n")
    assert "error[A406]" in run("check", path, status=1).output


def test_defines_must_name_a_const() -> None:
    run("check", SPECS / "sliding_window.attn", "-D", "width=100")
    shown = run("check", SPECS / "sliding_window.attn", "-D", "wdth=100", status=1).output
    assert "wdth" in shown
    assert "did you mean `width`?" in shown


def test_explain_where_a_tile_stays_partial(spec) -> None:
    shown = run("check", spec("input table: bool[_]\nkeep if table[kv_idx * q_idx]")).output
    assert "line 7 leaves tiles partial" in shown


# -------------------------------------------------------------------- fmt


def test_explain_names_the_lines_that_leave_most_tiles_partial(spec) -> None:
    path = spec("\n".join(f"    keep if kv_idx != {40 * i}" for i in range(12)))
    shown = run("explain", path, "--no-compile", "--q-len", 500).output
    assert shown.count("alone leaves") == 10 and "and 2 more lines leave no more each" in shown


def test_fmt_writes_and_is_done(spec) -> None:
    path = spec("keep   if  kv_idx<q_idx # why")
    run("fmt", "--check", path, status=1)
    assert "keep   if" in path.read_text()
    assert "formatted" in run("fmt", path).output
    assert "    keep if kv_idx < q_idx" in path.read_text()
    assert "# why" in path.read_text()
    assert run("fmt", "--check", path).output == ""
    assert not list(path.parent.glob(".*"))


def test_fmt_lays_out_what_stands_beside_a_wrong_file(tmp_path: Path) -> None:
    wrong, other = tmp_path / "a.attn", tmp_path / "b.attn"
    wrong.write_text("attn 1\nvariant {}\n")
    other.write_text("attn 1\nvariant b{}\n")
    checked = run("fmt", "--check", wrong, other, status=1).output
    assert "A001" in checked and "+variant b {}" in checked
    assert "A001" in run("fmt", wrong, other, status=1).output
    assert other.read_text() == "attn 1\n\nvariant b {}\n"


def test_fmt_says_as_json_which_files_change(tmp_path: Path) -> None:
    path = tmp_path / "a.attn"
    path.write_text("attn 1\nvariant a{}\n")
    for arguments, status in ((("--check",), 1), ((), 0)):
        changed = json.loads(run("fmt", *arguments, path, "--format", "json", status=status).stdout)
        assert changed == {"changed": [str(path)]}
    assert json.loads(run("fmt", path, "--format", "json").stdout) == {"changed": []}
    assert "add --check" in run("fmt", "-", "--format", "json", status=2).output


def test_a_file_that_cant_be_replaced_is_named(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = spec("keep   if  kv_idx<q_idx")
    monkeypatch.setattr(Path, "replace", refuse)
    assert f"{path} can't be written: Permission denied" in run("fmt", path, status=2).output
    assert not list(path.parent.glob(".*"))


def test_shipped_specs_are_formatted() -> None:
    run("fmt", "--check", *sorted(SPECS.glob("*.attn")))


# -------------------------------------------------------------------- show


def test_show_as_text(spec) -> None:
    shown = run(
        "show", spec("keep if kv_idx < 4"), "--q-len", 8, "--kv-len", 16, "--block-q", 4, "--block-kv", 4
    ).output
    assert "████············  ████············  4\n" in shown
    assert "32 of 128 pairs kept (25.00%)\nrows   4 to 4 keys a row, 0 rows keep nothing\n" in shown
    assert "8 = 6 empty (75.0%), 0 partial (0.0%), 2 full (25.0%)" in shown


def test_show_as_json(spec) -> None:
    found = json.loads(run("show", spec("keep if causal()"), "--q-len", 70, "--format", "json").stdout)
    assert found["row_keys"] == list(range(1, 71)) and found["kept_pairs"] == 70 * 71 // 2
    assert found["tiles"] == {"empty": 1, "partial": 2, "full": 1} and found["tile_kinds"] == [[1, 0], [2, 1]]


def test_show_takes_inputs_and_heads(spec, tmp_path: Path) -> None:
    path = spec("input last: i32[head]\ninput first: i32\nkeep if first <= kv_idx < last[h]")
    np.save(tmp_path / "last.npy", np.array([3, 6], np.int32))
    common = ["--q-len", 4, "--kv-len", 8, "--heads", 2, "-i", f"last={tmp_path / 'last.npy'}", "-i", "first=1"]
    assert "·██·····  " in run("show", path, *common).output
    assert "·█████··  " in run("show", path, *common, "--h", 1).output
    assert "`last`" in run("show", path, *common, "--heads", 3, status=1).output


def test_inputs_that_cannot_be_read(spec, tmp_path: Path) -> None:
    path, junk = spec("input last: i32[head]\nkeep if kv_idx < last[h]"), tmp_path / "junk.npy"
    junk.write_bytes(b"not an array")
    assert "junk.npy is not a .npy file of numbers" in run("show", path, "-i", f"last={junk}", status=2).output
    junk.write_bytes(b"")
    assert "junk.npy is not a .npy file of numbers" in run("show", path, "-i", f"last={junk}", status=2).output
    assert "No such file" in run("show", path, "-i", f"last={tmp_path / 'none.npy'}", status=2).output
    assert "as in -i cap=30" in run("show", path, "-i", "last", status=2).output
    assert ".png" in run("show", path, "--png", tmp_path / "x.txt", status=2).output


def test_a_variant_is_chosen_by_an_option(spec) -> None:
    path = spec("keep if causal()")
    path.write_text(path.read_text() + "variant other {}\n")
    shown = run("show", path, status=1).output
    assert "A512" in shown and "--variant" in shown and "variant=" not in shown
    path.write_text("attn 1\nmask near() = kv_idx > q_idx - 9\n")
    for command in ("run", "show", "explain"):
        shown = run(command, path, status=1).output
        assert "there is no variant here: what was given holds masks alone" in shown and "--variant" not in shown


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["png", pytest.param("svg", marks=pytest.mark.slow)])
def test_show_draws_4096_squared_in_two_seconds(tmp_path: Path, kind: str) -> None:
    """Processor seconds, imports and all: other jobs on the machine don't count. Half as much again is slack."""
    pytest.importorskip("matplotlib")
    path = tmp_path / f"mask.{kind}"
    command = ["show", SPECS / "documents.attn", "--q-len", 4096, f"--{kind}", path]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "attncc", *map(str, command)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert path.stat().st_size > 5000
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


# -------------------------------------------------------------------- explain


def test_explain_prints_the_page_of_a_code() -> None:
    assert run("explain", "a203").output.startswith("# A203")


def test_explain_counts_as_the_paper_does() -> None:
    """Standard attention moves S and P twice each; the tiled orders don't, and move far less."""
    command = ["explain", SPECS / "full.attn", "--q-len", 2048, "--heads", 32, "--batch", 1, "--no-compile"]
    found = json.loads(run(*command, "--format", "json").stdout)
    orders = {order["name"]: order for order in found["orders"]}
    n, d, heads = 2048, 64, 32
    assert orders["standard"]["bytes_moved"] == heads * (4 * n * d * 2 + 4 * n * n * 2)
    m = 227 * 1024 // 2
    assert orders["Algorithm 1"]["blocks"] == [min(-(-m // (4 * d)), d), -(-m // (4 * d))]
    assert orders["Algorithm 1"]["bytes_moved"] < orders["standard"]["bytes_moved"] / 2
    assert orders["q_outer"]["bytes_moved"] < orders["standard"]["bytes_moved"] / 2
    assert found["useful_flops"] == heads * 4 * n * n * d
    assert found["kept_pairs"] == heads * n * n


def test_explain_as_text_names_the_resources() -> None:
    shown = unwrapped("explain", SPECS / "causal.attn", "--q-len", 1024, "--device", "a100", "--arch", "sm_80")
    assert "50.05% of the pairs are kept" in shown
    assert re.search(r"shared memory \d+ of 101376 bytes: q \d+, k \d+, v \d+", shown)
    assert re.search(r"registers \d+ a thread, no spills \(ptxas\)", shown)
    assert "the least that the a100 can take" in shown


def test_explain_describes_the_kernel_that_runs() -> None:
    command = ["explain", SPECS / "decode.attn", "--kv-len", 8192, "--heads", 2, "--no-compile", "--q-len"]
    few = unwrapped(*command, 1)
    found = re.search(r"kernel +decode, q_outer, 64 x \d+ tiles, 4 warps, \d stages, about (\d+) splits", few)
    assert found and int(found[1]) > 8
    assert "combine" not in few  # the last thread block of a row merges
    assert re.search(r"its calls +up to 64 rows \(queries times the query heads of a key head\), and", few)
    many = ["--heads", 32, "--kv-heads", 8]
    chunk = unwrapped(*command, 300, *many)
    assert re.search(r"kernel +forward, q_outer, 128 x .*, about \d+ splits \(chosen at each call\), on sm_90a", chunk)
    assert "those of few queries over many keys" in chunk and "combine" in chunk
    assert re.search(r"kernel +forward, .*, 1 split, on sm_90a", unwrapped(*command, 8192, *many))
    asked = (run(*command, n, *many, "--format", "json").stdout for n in (1, 16, 17, 300))
    plans = [json.loads(found)["plan"]["pass"] for found in asked]
    assert plans == ["decode", "decode", "forward", "forward"]


@pytest.mark.parametrize(
    ("device", "target"),
    [("a100", "sm_80"), ("l40s", "sm_80"), ("h200", "sm_90a"), ("b200", "sm_100"), ("rtx5090", "sm_120")],
)
def test_explain_compiles_for_its_device(device: str, target: str) -> None:
    command = ["explain", SPECS / "documents.attn", "--q-len", 64, "--heads", 1, "--no-compile", "--device", device]
    shown = unwrapped(*command)
    assert f", on {target} " in shown
    assert "pre-pass doc: whether it is nondecreasing" in shown
    assert ", on sm_90 " in unwrapped(*command, "--arch", "sm_90")


def test_explain_says_that_hints_of_few_keys_may_stay_unverified() -> None:
    command = ["explain", SPECS / "documents.attn", "--heads", 1, "--no-compile", "--q-len"]
    few, many = (unwrapped(*command, length) for length in (255, 256))
    assert "a launch of min_max_table before the kernel, unless all blocks run at once copies" in few
    assert "a launch of min_max_table before the kernel copies" in many


def test_explain_needs_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise AttnccError(Diagnostic("A501", "NVRTC is not installed"))

    monkeypatch.setattr("attncc.machine_code.submit_cached", missing)
    command = ["explain", SPECS / "causal.attn", "--q-len", 64, "--heads", 1]
    assert "registers      not known: NVRTC is not installed" in run(*command).output
    assert json.loads(run(*command, "--format", "json").stdout)["resources"] is None


# -------------------------------------------------------------------- build


def test_build_writes_a_package_to_import(spec, tmp_path: Path) -> None:
    out = tmp_path / "kernels"
    shown = run("build", spec("keep if causal()"), "-o", out, "--arch", "sm_80", "--head-dim", "64").output
    assert re.search(r"mine_forward_bf16_d64_sm_80 +\d+ +0 +\d", shown)
    assert "1 kernels" not in shown
    assert f"written to {out}" in shown
    assert {"__init__.py", "manifest.json"} < {path.name for path in (out / "mine").iterdir()}


def test_build_as_json(spec, tmp_path: Path) -> None:
    command = ["build", spec("keep if causal()"), "-o", tmp_path / "kernels", "--arch", "sm_80", "--head-dim", 64]
    found = json.loads(run(*command, "--format", "json").stdout)["variants"]["mine"]
    assert found["folder"] == str(tmp_path / "kernels" / "mine")
    assert found["kernels"]["mine_forward_bf16_d64_sm_80"]["spill_stores"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--arch", "sm_81"], 1, "A513"),
        (["--dtype", "fp64"], 2, "fp64"),
        (["--head-dim", "64,584"], 2, "from 1 to 576"),
        (["--head-dim", "64;128"], 2, "192:128"),
        (["-D", "nothing=1"], 1, "nothing"),
    ],
)
def test_build_refuses(spec, tmp_path: Path, arguments: list[str], status: int, expected: str) -> None:
    out = tmp_path / "kernels"
    assert expected in run("build", spec("keep if causal()"), "-o", out, *arguments, status=status).output
    assert not out.exists()


@pytest.mark.slow
def test_build_of_a_small_spec_takes_seconds(tmp_path: Path) -> None:
    """About 3 s on two idle cores, with the start of the process and four cold kernels. The limit leaves room for cores
    that other tests keep busy: processor seconds then grow by a half."""
    command = ["build", str(SPECS / "causal.attn"), "-o", str(tmp_path / "kernels")]
    environment = {**os.environ, "ATTNCC_CACHE": str(tmp_path / "cache")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "attncc", *command], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 2 < 5


# -------------------------------------------------------------------- run


def test_run_goes_the_whole_way(spec) -> None:
    body = "input slope: f32[head]\nkeep if causal()\nscore = score - slope[h] * (q_pos - kv_idx)\ndropout 0.25"
    shown = run("run", spec(body), "--device", "cpu", "--q-len", 70, "--kv-len", 90, "--seed", 3).output
    steps = [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")]
    assert steps == ["parse", "analyse", "generate", "compile", "import", "run", "check"]
    assert "within the accuracy rule" in shown
    assert "q [2, 4, 70, 64], k [2, 4, 90, 64]" in shown


def test_run_of_one_variant_leaves_the_others_alone(spec) -> None:
    path = spec("")
    path.write_text(path.read_text() + "variant bad {}\nschedule s for bad on sm_80 { block_q = 1024 }\n")
    command = ["run", path, "--device", "cpu", "--q-len", 20, "--variant"]
    assert "within the accuracy rule" in run(*command, "mine").output
    assert "error[A4" in run(*command, "bad", status=1).output


def test_run_as_json_prints_one_object(spec) -> None:
    command = ["run", SPECS / "decode.attn", "--device", "cpu", "--q-len", 1, "--kv-len", 70, "--format", "json"]
    found = json.loads(run(*command).stdout)
    assert (found["variant"], found["pass"], found["device"]) == ("decode", "decode", "the CPU executor")
    assert found["accuracy"]["max_error"] < 0.1
    assert all(resources["registers"] > 0 for resources in found["resources"].values())


def test_run_warns_once_and_refuses_inputs_before_it_compiles(spec, tmp_path: Path) -> None:
    path = spec("const unused: int = 3\ninput last: i32[head]\nkeep if kv_idx < last[h]")
    command = ["run", path, "--device", "cpu", "--q-len", 20]
    assert run(*command).output.count("warning[A120]") == 1
    np.save(tmp_path / "last.npy", np.full(4, 9.0, np.float32))
    shown = run(*command, "-i", f"last={tmp_path / 'last.npy'}", status=1).output
    assert "error[A6" in shown and "compile " not in shown


def test_run_reports_a_wrong_result(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.cli.run._run", lambda kernel, arrays, call, device: arrays[0].astype(np.float64) + 1)
    shown = run("run", spec("keep if causal()"), "--device", "cpu", "--q-len", 20, status=1).output
    assert "OUTSIDE the accuracy rule" in shown
    assert "error[A904]" in shown


def test_run_without_a_gpu_says_so(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise AttnccError(Diagnostic("A503", "no NVIDIA driver is installed"))

    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", no_driver)
    path = spec("keep if causal()")
    assert "on the CPU executor" in run("run", path, "--q-len", 20).output
    assert "A503" in run("run", path, "--q-len", 20, "--device", "cuda", status=1).output
    assert "A503" in run("tune", path, "--q-len", 20, status=1).output
