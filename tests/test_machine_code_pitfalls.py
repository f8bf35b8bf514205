"""What ptxas makes of the generated kernels, read from the disassembled machine code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from attncc.build import prepare
from attncc.machine_code import compiled, other_kernels, settle
from attncc.resources import folder
from attncc.runtime.store import kernel_name
from attncc.source import SourceFile

# A warp's common value, taken under a predicate. ptxas 13.0 has been seen to give the predicate's register away before:
# the value was never set, and the kernel wrote anywhere.
PREDICATED = re.compile(r"@!?U?P\d\s+REDUX")

# Every template, with packed batches, data-dependent masks, dropout and lists of tiles between them.
CASES = [
    ("alibi_documents", "sm_80", False),
    ("alibi_documents", "sm_90a", False),
    ("alibi_documents", "sm_90", True),
    ("dropout_attention", "sm_90a", False),
    ("flash_attention_1", "sm_80", False),
    ("selected_attention", "sm_90", False),
    ("decode", "sm_80", False),
    ("causal", "sm_90a", True),
]


def images(spec: str, target: str, backward: bool) -> Iterator[tuple[str, bytes]]:
    path = folder("specs") / f"{spec}.attn"
    source = SourceFile(f"specs/{spec}.attn", path.read_text(encoding="utf-8"))
    packages = prepare(source, archs=[target], dtypes=["bf16"], head_dims=[64], backward=backward)
    settled = [settle(ladder) for package in packages for ladder in package.ladders]
    yield from ((kernel_name(item.plan), item.compiled.code.image) for item in settled)
    others = other_kernels([item.plan for item in settled])
    yield from ((name, compiled(*item).code.image) for name, item in others.items())


def disassembled(image: bytes, path: Path) -> str:
    path.write_bytes(image)
    tool = next(file for file in metadata.files("nvidia-cuda-nvdisasm") or () if file.name == "nvdisasm")
    return subprocess.run([tool.locate(), "-c", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("spec", "target", "backward"), CASES)
def test_no_common_value_is_taken_under_a_predicate(spec: str, target: str, backward: bool, tmp_path: Path) -> None:
    for name, image in images(spec, target, backward):
        text = disassembled(image, tmp_path / "kernel.cubin")
        assert "EXIT" in text
        assert not PREDICATED.findall(text), name
