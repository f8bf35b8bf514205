"""`attncc build`: what it writes, that it appears whole or not at all, and what importing it costs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import attncc
from attncc.codegen.render import render
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import Candidates
from attncc.kernels.launched import kernel_names
from attncc.package import build, package_files, prepare, write
from attncc.package.text import init_text
from attncc.resources import folder
from attncc.runtime.store.package_store import PackageStore
from attncc.schedule.plan import KernelPlan
from attncc.schedule.plan_json import from_json
from attncc.settle import Settled
from tests.unit.package.made import compile_nothing, compiled

ROOT = Path(__file__).resolve().parents[3]

SPEC = """attn 1
# Scores are capped; \\ and \"\"\" must not hurt.
variant capped {
    input cap: f32
    input doc: i32[batch, pos] nondecreasing
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = cap * tanh(score / cap)
}
variant plain {
    dropout 0.5
}
schedule split for plain on sm_90 { split_kv = 2 }
"""

DOC = np.arange(40, dtype=np.int32)[None] // 10
SMALL: dict[str, Any] = {"archs": ["sm_90"], "dtypes": ["fp16"], "head_dims": [16]}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of what is written; test_hf_kernel.py compiles a package."""
    out = tmp_path_factory.mktemp("package") / "made"
    names: list[str] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        compile_nothing(monkeypatch)
        build(SPEC, out, **SMALL, decode=True, advance=names.append)
    assert sorted(names) == [
        "capped_decode_fp16_d16_rows17_sm_90", "capped_decode_fp16_d16_sm_90", "capped_forward_fp16_d16_sm_90",
        "combine_fp16_sm_90", "min_max_table_i32_sm_90", "plain_decode_fp16_d16_rows17_sm_90",
        "plain_decode_fp16_d16_sm_90", "plain_forward_fp16_d16_sm_90",
    ]  # fmt: skip
    return out


def test_the_folder(built: Path) -> None:
    found = sorted(str(path.relative_to(built)) for path in built.rglob("*") if path.is_file())
    both = ["__init__.py", "manifest.json"]
    own = ["decode_fp16_d16", "decode_fp16_d16_rows17", "forward_fp16_d16"]
    ends = [f"{item}_sm_90.{end}" for item in own for end in ("cu", "cubin", "plan.json")]
    kernels = {name: [f"{name}_{end}" for end in ends] for name in ("capped", "plain")}
    kernels["capped"] += ["min_max_table_i32_sm_90.cu", "min_max_table_i32_sm_90.cubin"]
    kernels["plain"] += ["combine_fp16_sm_90.cu", "combine_fp16_sm_90.cubin"]  # its forward kernel splits
    expected = ["__init__.py", *(f"{name}/{file}" for name in kernels for file in sorted(both + kernels[name]))]
    assert found == expected
    assert list(built.parent.iterdir()) == [built]


def test_the_manifest_holds_the_resource_report(built: Path) -> None:
    manifest = json.loads((built / "plain" / "manifest.json").read_text())
    assert manifest["lacks"] == ["serving", "backward"]
    assert set(manifest["kernels"]) == {
        "plain_decode_fp16_d16_sm_90", "plain_decode_fp16_d16_rows17_sm_90", "plain_forward_fp16_d16_sm_90",
        "combine_fp16_sm_90",
    }  # fmt: skip
    for name, entry in manifest["kernels"].items():
        for key in ("registers", "spill_stores", "spill_loads", "shared_bytes", "threads", "dynamic_shared_bytes"):
            assert isinstance(entry[key], int), (name, key)
        assert entry["registers"] > 8
        assert entry["compile_seconds"] >= 0
        assert entry["target"] == "sm_90"
    assert manifest["kernels"]["combine_fp16_sm_90"]["plan"] is None
    assert manifest["kernels"]["plain_forward_fp16_d16_sm_90"]["plan"] == "plain_forward_fp16_d16_sm_90.plan.json"


def test_the_plan_round_trips(built: Path) -> None:
    text = (built / "plain" / "plain_forward_fp16_d16_sm_90.plan.json").read_text()
    plan = from_json(json.loads(text))
    assert isinstance(plan, KernelPlan)
    assert (plan.variant.name, plan.split_kv, plan.head_dim) == ("plain", 2, 16)
    assert len(text.splitlines()) < 60


@pytest.mark.slow
def test_names_of_files_are_those_of_codegen() -> None:
    for package in prepare(SPEC, archs=["sm_80", "sm_90a"], dtypes=["fp16"], head_dims=[16, (32, 48)], decode=True):
        for plan in package.plans:
            assert render(plan).name == kernel_names(plan)[0]
        assert set(package.sources) == {name for plan in package.plans for name in kernel_names(plan)}


def test_package_files_are_what_build_writes(built: Path) -> None:
    texts = package_files(prepare(SPEC, **SMALL, decode=True))
    assert set(texts) == {
        str(path.relative_to(built))
        for path in built.rglob("*")
        if path.is_file() and path.suffix != ".cubin" and path.name != "manifest.json"
    }
    for name, text in texts.items():
        assert (built / name).read_text() == text


# A first call on a fake GPU: what is imported, and how often garbage is collected meanwhile.
FIRST_CALL = """
import sys
sys.path[:0] = [{path!r}, {root!r}]
import gc, numpy
own = set(sys.modules)
from tests.unit.runtime import fakes
from attncc.runtime.cuda import driver
from attncc.runtime.frameworks import arrays
from attncc.runtime.store import loaded_kernels
launches = []
cuda = fakes.FakeCuda({{}})
cuda.cuLaunchKernelEx = lambda *launch: launches.append(launch) or 0
loaded_kernels.driver = lambda: driver.Driver(cuda)
arrays._HOMES["tests"] = lambda kind: fakes.FakeFramework
collected = []
gc.callbacks.append(lambda phase, info: phase == "start" and collected.append(info["generation"]))
from made import capped
kernel = capped.package.kernel
assert len(collected) < 3, collected
q = fakes.FakeArray((1, 2, 40, 16), "float16")
capped(q, q, q, cap=2.0, doc=fakes.FakeArray((1, 40), "int32"))
assert launches
print(*sorted(set(sys.modules) - own))
"""


def test_what_a_first_call_imports(built: Path) -> None:
    """Modules take most of its time: one of attncc's about a millisecond."""
    code = FIRST_CALL.format(path=str(built.parent), root=str(ROOT))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    own = [name for name in loaded if name.startswith("attncc")]
    heavy = {"numpy.ma", "torch", "cupy", "ml_dtypes", "jinja2", "lark", "click", "rich"}
    assert not heavy.intersection(loaded)
    assert 60 < len(own) < 125, own


CALL = """
import sys, time
for name in ("lark", "jinja2", "click", "rich", "cupy", "torch"):
    sys.modules[name] = None
sys.path[:0] = [{path!r}, {root!r}]
start = time.perf_counter()
from made import capped, plain
seconds = time.perf_counter() - start
heavy = [name for name in ("numpy", "json", "typing", "attncc.ir") if name in sys.modules]
assert not heavy, heavy
import numpy as np
q = np.ones((1, 2, 40, 16), np.float16)
doc = np.arange(40, dtype=np.int32)[None] // 10
out = capped(q, q, q, cap=2.0, doc=doc)
assert out.shape == q.shape and (out == 1).all()
assert plain(q, q, q, seed=3, return_lse=True)[1].shape == (1, 2, 40)
try:
    capped(q, q, q, cap=2.0)
except Exception as error:
    assert "A607" in str(error) and "pass doc=…" in str(error)
print(seconds)
"""


def test_import_is_light_and_calls_need_no_compiler(built: Path) -> None:
    command = [sys.executable, "-S", "-c", with_site(CALL.format(path=str(built.parent), root=str(ROOT)))]
    for _ in range(3):  # a busy machine may take long
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        if float(run.stdout) < 0.03:
            return
    pytest.fail(f"to import it took {run.stdout.strip()} s")


def with_site(code: str) -> str:
    """Third-party libraries are visible, but no `.pth` file of theirs has imported anything yet."""
    return f"import sys; sys.path += {[path for path in sys.path if path.endswith('-packages')]!r}\n" + code


def test_the_python_text_compiles_and_documents(built: Path) -> None:
    text = (built / "capped" / "__init__.py").read_text()
    scope: dict[str, Any] = {"__file__": str(built / "capped" / "__init__.py")}
    exec(compile(text, "capped", "exec"), scope)
    documentation = scope["capped"].__doc__
    assert 'Scores are capped; \\ and """ must not hurt.' in documentation
    assert "doc: i32[batch, pos] nondecreasing" in documentation
    assert (scope["capped"].variant, scope["capped"].configurations) == ("capped", (("fp16", 16, 16),))
    with pytest.raises(AttnccError):  # no driver, or machine code for another GPU
        scope["capped"].load(99)
    assert scope["__doc__"].splitlines()[-7:] == [
        "    forward fp16, head dim 16, sm_90: q_outer, tiles of 128 x 64",
        "    decode fp16, head dim 16, sm_90: q_outer, tiles of 64 x 128",
        "    decode fp16 of 17 rows and more, head dim 16, sm_90: q_outer, tiles of 64 x 128",
        "",
        "Without serving (block_table, shared_prefix and k_new raise A505 on a GPU) and backward",
        "(gradients of arrays on a GPU raise A520); `attncc build FILE --serving --backward` makes",
        "them.",
    ]
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("keywords", "code", "help"),
    [
        ({"doc": DOC, "cap": 2.0, "scael": 1.0}, "A608", "did you mean `scale`?"),
        ({"doc": DOC, "cap": 2.0, "interleavd": True}, "A608", "did you mean `interleaved`?"),
        ({"doc": DOC, "cap": 2.0, "is_causal": True}, "A608", "the mask is written in the variant"),
        ({"doc": DOC, "cpa": 2.0}, "A608", "did you mean `cap`?"),
        ({"docs": DOC, "cap": 2.0}, "A608", "did you mean `doc`?"),
        ({"doc": DOC}, "A607", "pass cap=…"),
        ({"cap": 2.0}, "A607", "pass doc=…"),
    ],
)
def test_keywords_are_refused_as_by_compiled_kernels(
    built: Path, monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any], code: str, help: str
) -> None:
    monkeypatch.syspath_prepend(str(built.parent))
    q = np.ones((1, 2, 40, 16), np.float16)
    kernel = attncc.compile(SPEC, variant="capped", dtype="fp16", head_dim=16)
    said = []
    for function in (importlib.import_module("made").capped, kernel):
        with pytest.raises(AttnccError, match=code) as caught:
            function(q, q, q, **keywords)
        said.append(str(caught.value))
    assert said[0] == said[1] and help in said[0]
    with pytest.raises(AttnccError, match=r"A608(.|\n)*`deterministic`\?"):
        importlib.import_module("made").capped.backward(q, q, q, q, q, None, determinstic=True)


def test_a_variant_without_inputs_refuses_keywords(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(built.parent))
    q = np.ones((1, 2, 40, 16), np.float16)
    with pytest.raises(AttnccError, match=r"A608(.|\n)*did you mean `return_lse`\?"):
        importlib.import_module("made").plain(q, q, q, seed=3, retrun_lse=True)


def test_many_inputs_keep_lines_short() -> None:
    names = [f"an_input_with_a_name_of_some_length_{number}" for number in range(9)]
    lines = [f"input {name}: f32\nscore = score + {name}" for name in names]
    (package,) = prepare("\n".join(["attn 1", "variant many {", *lines, "}", ""]), **SMALL)
    text = package.files()["__init__.py"]
    compile(text, "many", "exec")
    assert max(map(len, text.splitlines())) <= 120


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"archs": ["sm_75"]}, "A513"),
        ({"dtypes": ["fp64"]}, "A514"),
        ({"dtypes": ["float16"]}, "A410"),
        ({"dtypes": ["int8"]}, "A4"),
        ({"head_dims": [600]}, "A4"),
        ({"defines": {"width": 3}}, "A114"),
    ],
)
def test_bad_settings(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(AttnccError, match=code):
        prepare(SPEC, **{**SMALL, **settings})


def test_a_file_of_masks_alone(tmp_path: Path) -> None:
    with pytest.raises(AttnccError, match=r"A512.*no variant to build"):
        build(folder("specs") / "masks.attn", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_variants_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.attn").write_text("attn 1\nvariant twin {}\n")
    packages = [package for name in "ab" for package in prepare(tmp_path / f"{name}.attn", **SMALL)]
    with pytest.raises(AttnccError, match=r"A519.*twin\n.*a.attn\n.*b.attn"):
        write(packages, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_variants_that_are_not_asked_for_may_be_wrong() -> None:
    text = "attn 1\nvariant good {}\nvariant bad {}\nschedule s for bad on sm_80 { block_q = 1024 }\n"
    (package,) = prepare(text, **SMALL, variants=["good"])
    assert package.name == "good"
    with pytest.raises(AttnccError, match=r"A4\d\d"):
        prepare(text, **SMALL)
    with pytest.raises(AttnccError, match="A512"):
        prepare(text, **SMALL, variants=["god"])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(AttnccError, match=r"A511.*nowhere.attn"):
        prepare(tmp_path / "nowhere.attn")


@pytest.mark.slow
def test_every_shipped_spec_can_be_prepared() -> None:
    for path in sorted(folder("specs").glob("*.attn")):
        if path.stem != "masks":
            packages = prepare(path, archs=["sm_80"], head_dims=[64])
            assert [package.name for package in packages] == [path.stem]


def passes(text: str, **asked: Any) -> set[str]:
    return {plan.pass_name for package in prepare(text, **SMALL | asked) for plan in package.plans}


def test_passes_are_built_where_they_are_asked_for() -> None:
    """By an option, or by a schedule."""
    lines = ("input slope: f32[head] learnable", "score = score * slope[h]", "sink slope")
    text = "\n".join(["attn 1", "variant plain {", *lines, "}", ""])
    assert passes(text) == {"forward"}
    for asked in (passes(text, decode=True), passes(text + "schedule s for plain decode on sm_80 {}\n")):
        assert asked == {"forward", "decode"}
    in_8_bits = {"dtypes": ["e4m3"], "archs": ["sm_90a"], "head_dims": [64]}  # which have no such kernels
    for settings in ("", "split_kv = auto"):
        assert passes(f"{text}schedule s for plain decode on sm_90 {{ {settings} }}\n", **in_8_bits) == {"forward"}
    for asked in (passes(text, backward=True), passes(text + "schedule s for plain backward on sm_80 {}\n")):
        assert asked == {"forward", "backward", "backward_dq"}
    (package,) = prepare(text, **SMALL, decode=True, backward=True)
    stems = {name.partition("_fp16")[0].partition("_f32")[0].partition("_sm")[0] for name in package.sources}
    assert stems == {
        "plain_forward", "plain_decode", "plain_backward", "plain_backward_dq", "delta", "dq_sum",
        "sink_gradient", "exact_sum",
    }  # fmt: skip
    for plan in package.plans:
        assert set(kernel_names(plan)) <= set(package.sources)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {},
            "run the forward kernel), serving (block_table, shared_prefix and k_new raise A505 on a GPU) and backward",
        ),
        ({}, "`attncc build FILE --decode --serving --backward` makes"),
        ({"serving": True, "backward": True}, None),
        ({"dtypes": ["e4m3"], "archs": ["sm_90a"], "head_dims": [64]}, None),
    ],
)
def test_a_package_says_which_kernels_it_lacks(settings: dict[str, Any], said: str | None) -> None:
    (package,) = prepare("attn 1\nvariant plain {}\n", **SMALL | settings)
    made = init_text(package.specification.variant, package.plans, package.origin)
    text = made.partition('"""')[2].partition('"""')[0]
    assert "Without" not in text if said is None else said in " ".join(text.split())


@pytest.mark.usefixtures("compiles_nothing")
@pytest.mark.parametrize("refused", [False, True])
def test_dq_has_a_kernel_of_its_own_where_a_call_may_launch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """Hopper's backward kernel makes dQ in every call; the portable one, which it may come to, doesn't."""

    def settled(candidates: Candidates) -> Settled:
        *_, last = plans = list(candidates.plans())
        plan = last if refused else plans[0]
        return Settled(plan, render(plan), compiled(render(plan), plan.target), {}, names_tiles=False)

    monkeypatch.setattr("attncc.package.writer.settle", settled)
    (made,) = prepare("attn 1\nvariant plain {\n}\n", **SMALL | {"archs": ["sm_90a"]}, backward=True)
    assert {plan.pass_name for plan in made.plans} == {"forward", "backward"}
    (built,) = write([made], tmp_path / "out")
    assert any("backward_dq" in name for name in built.settled) == refused
    store = PackageStore(built.folder)
    assert len(store.backward_plans(store.configurations[0], "sm_90a")) == 1 + refused


@pytest.mark.slow
def test_calls_of_an_e4m3_package_may_leave_descales_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build("attn 1\nvariant bare {\n}\n", tmp_path / "eight", archs=["sm_90a"], dtypes=["e4m3"], head_dims=[64])
    monkeypatch.syspath_prepend(str(tmp_path))
    bare = importlib.import_module("eight").bare
    q = np.random.default_rng(0).normal(size=(1, 1, 8, 64)).astype(ml_dtypes.float8_e4m3fn)
    ones, twos = np.ones((1, 1), np.float32), np.full((1, 1), 2, np.float32)
    out = bare(q, q, q).astype(np.float32)
    assert np.array_equal(out, bare(q, q, q, q_descale=ones, k_descale=ones, v_descale=ones).astype(np.float32))
    np.testing.assert_allclose(bare(q, q, q, v_descale=twos).astype(np.float32), 2 * out, rtol=1e-2)
    assert "q_descale: f32[batch, kv_head], all 1 if not given" in bare.__doc__
