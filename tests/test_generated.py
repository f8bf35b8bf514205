"""`generated/` holds a few kernels to be read, byte for byte: CUDA is reviewed like code. Of all others the hash of
their text is kept, in `tests/golden/kernel_texts.json`.

`pytest tests/test_generated.py --update-golden` writes both anew, and removes what nothing makes any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from attncc.package import VariantPackage, package_files, prepare
from attncc.package.variant_package import DEFAULT_ARCHS
from attncc.source import SourceFile
from benchmarks.fingerprints import (
    ARCHS,
    KINDS,
    cases,
    default_build,
    differences,
    found_in,
    merged,
    read,
    sweep,
    write,
)
from benchmarks.parts import How
from benchmarks.sweep import PASSES, SPECS
from tests.conftest import Golden

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "generated"
HEAD_DIM = 128
TEXTS = KINDS["text"]

# Machine code and what ptxas says differ between versions of NVRTC: a build leaves them here, the repository doesn't.
NOT_KEPT = (".cubin", "manifest.json", ".pyc")


class Build(NamedTuple):
    """What `attncc build` is asked for, in bf16 unless it says otherwise."""

    spec: str
    archs: Sequence[str]
    dtype: str = "bf16"
    serving: bool = False
    backward: bool = False
    only: str = ""  # the one kernel that is kept, where the others would read like it
    without: str = ""  # the kernel that isn't kept, since it would read like another
    head_dims: tuple[int, int] = (HEAD_DIM, HEAD_DIM)

    def packages(self) -> tuple[VariantPackage, ...]:
        path = f"specs/{self.spec}.attn"
        source = SourceFile(path, (ROOT / path).read_text(encoding="utf-8"))
        passes = {"serving": self.serving, "backward": self.backward}
        return prepare(source, archs=self.archs, dtypes=[self.dtype], head_dims=[self.head_dims], **passes)

    def leaves_out(self, path: str) -> bool:
        """Of a file that this build makes: a path in the folder."""
        package, _, file = path.rpartition("/")
        name = file.split(".")[0]
        if package != self.spec or name == "__init__":
            return False
        return name == self.without or (bool(self.only) and name != self.only)


# By folder, each a package that can be imported. Kernels of e4m3 share no package with others.
CHOSEN = {
    "generated": (
        Build("causal", ("sm_80", "sm_90a"), backward=True, without="causal_backward_bf16_d128_unclustered_sm_90a"),
        Build("alibi_documents", ("sm_90a",)),  # bounds that are searched for, score lines, dropout
        Build("relative_bias", ("sm_90a",), backward=True),  # a learnable input
        Build("natten", ("sm_90a",)),  # two-dimensional tiles
        # Few queries, over a cache in pages.
        Build("softcap", ("sm_80",), serving=True, only="softcap_decode_bf16_d128_paged_sm_80"),
        # Wide heads, whose columns warps share; latents.
        Build("mla_decode", ("sm_90",), only="mla_decode_forward_bf16_d576x512_sm_90", head_dims=(576, 512)),
    ),
    "generated/e4m3": (Build("causal", ("sm_90a",), dtype="e4m3"),),
}


@cache
def expected() -> dict[str, str]:
    """The texts of `generated/`, by path."""
    return {
        f"{folder}/{name}": text
        for folder, builds in CHOSEN.items()
        for name, text in package_files(package for build in builds for package in build.packages()).items()
        if not any(build.leaves_out(name) for build in builds)
    }


def test_chosen_kernels_are_what_the_compiler_makes(golden: Golden) -> None:
    for name, text in expected().items():
        golden(ROOT / name, text)


def test_plain_causal_for_hopper_stays_readable() -> None:
    """Whoever reviews it reads all of it."""
    text = (GENERATED / "causal" / f"causal_forward_bf16_d{HEAD_DIM}_sm_90a.cu").read_text(encoding="utf-8")
    assert text.count("\n") < 1800


def test_there_are_no_orphans(request: pytest.FixtureRequest) -> None:
    there = {path for path in GENERATED.rglob("*") if path.is_file() and not path.name.endswith(NOT_KEPT)}
    orphans = there - {ROOT / name for name in expected()}
    if request.config.getoption("--update-golden"):
        for path in orphans:
            path.unlink()
    else:
        assert not orphans, "nothing makes these: run pytest --update-golden"


@pytest.fixture(scope="module")
def updated(request: pytest.FixtureRequest) -> bool:
    """With --update-golden the hashes of all texts are written once, by all cores."""
    if request.config.getoption("--update-golden"):
        write(TEXTS.file, merged(sweep(TEXTS, tuple(PASSES), default_build(), How()).values()))
        return True
    return False


# `.ci/run` compares all: here a fifth of the specs is enough, which takes each pass to each target twice.
SOME = [spec if number % 5 == 0 else pytest.param(spec, marks=pytest.mark.slow) for number, spec in enumerate(SPECS)]


@pytest.mark.parametrize("spec", SOME)
def test_hashes_of_texts(spec: str, updated: bool) -> None:
    """At one head dim, for the targets and the passes by turns; `.ci/run` compares all. If what differs is meant to,
    write the hashes anew, and read what became of `generated/`."""
    if not updated:
        number, passes = SPECS.index(spec), tuple(PASSES)
        wanted = cases([spec], ARCHS, [DEFAULT_ARCHS[number % len(DEFAULT_ARCHS)]], [HEAD_DIM])
        now = merged(found_in(TEXTS, (passes[number % len(passes)],), case) for case in wanted)
        assert list(differences(read(TEXTS.file).hashes, now.hashes, whole=False)) == []
