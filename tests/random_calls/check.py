"""One random call: the CPU executor beside the dense reference, forward and backward, and a package beside both."""

from __future__ import annotations

import importlib.util
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import attncc
from attncc import package
from attncc.ir import Variant
from tests.random_calls.disguised import CacheCall, Disguised, disguised
from tests.random_variants.calls import RandomCall, parsed, random_call, random_problem
from tests.random_variants.judgement import backward_faults, forward_faults
from tests.random_variants.variants import RandomVariant, random_variant
from tests.unit.package.made import compiled

Array = NDArray[Any]

LENGTHS = (1, 2, 7, 16, 33, 64, 90)
HEAD_DIMS = ((16, 16), (64, 64), (40, 24), (24, 72), (7, 7), (1, 3), (33, 130), (250, 16))
DRAWS = 3  # what a defect shows in all of


@dataclass(frozen=True)
class Found:
    features: tuple[str, ...]
    faults: tuple[str, ...]


def check(seed: int, *, packages: bool = False) -> Found:
    random, made = Random(f"{seed} call"), random_variant(seed)
    dtype, head_dims = random.choice(("fp16", "bf16", "fp32")), random.choice(HEAD_DIMS)
    features: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel = attncc.compile(made.text, dtype=dtype, head_dim=head_dims[0], value_head_dim=head_dims[1])
            for draw in range(DRAWS):
                once, variant = Random(f"{seed} form"), parsed(made)
                packs = made.packs and once.random() < 0.25
                problem = random_problem(once, head_dims, packs=packs, lengths=LENGTHS)
                given = _cached(random_call(variant, problem, dtype, seed, draw), once)
                form = disguised(given, once)
                features = (*form.features, *_own_features(given))
                faults = tuple(_faults(variant, given, form, kernel, dtype))
                if not faults:
                    break
            if packages and not faults:
                faults = tuple(_package_faults(made, given, form, dtype))
    except Exception:  # a finding as well
        faults = (traceback.format_exc(),)
    return Found((dtype, *features), faults)


def _cached(call: RandomCall, random: Random) -> RandomCall:
    """As it is, or with one K and V for all sequences, over a cache, at other positions."""
    problem = call.problem
    if call.cu is not None or random.random() < 0.4:
        return call
    if random.random() < 0.2:
        call = replace(call, k=np.repeat(call.k[:1], problem.batch, 0), v=np.repeat(call.v[:1], problem.batch, 0))
    fields = {name: getattr(call, name) for name in call.__dataclass_fields__}
    if random.random() < 0.6:
        fields["kv_lens"] = np.array([random.randint(0, problem.kv_len) for _ in range(problem.batch)], np.int32)
    if random.random() < 0.4:
        offsets = [random.randint(-3, problem.kv_len) for _ in range(problem.batch)]
        forms = offsets[0], np.array(offsets[0], np.int32), np.array(offsets, np.int32)
        fields["q_offset"] = random.choice(forms)
    return CacheCall(**fields)


def _own_features(given: RandomCall) -> Iterator[str]:
    if given.problem.num_heads != given.problem.num_kv_heads:
        yield "groups"
    for name in ("kv_lens", "q_offset", "scale", "dlse"):
        if getattr(given, name, None) is not None:
            yield name


def _faults(variant: Variant, given: RandomCall, form: Disguised, kernel: Any, dtype: str) -> Iterator[str]:
    keywords = dict(form.keywords)
    if variant.dropout is None:
        keywords.pop("seed", None)
    softmax = variant.normalize == "softmax"
    result = kernel(*form.arrays, return_lse=softmax, **keywords)
    out, lse = result if softmax else (result, None)
    yield from forward_faults(variant, given, form.undone(out), np.empty(0) if lse is None else lse, dtype)
    if form.paged or "one k and v" in form.features:
        return
    dlse = {} if given.dlse is None else {"dlse": given.dlse}
    found = kernel.backward(form.form(given.dout), *form.arrays, out, lse, **dlse, **keywords)
    undone = {name: form.undone(getattr(found, name)) for name in ("dq", "dk", "dv")}
    yield from backward_faults(variant, given, replace(found, **undone), dtype)


def _package_faults(made: RandomVariant, given: RandomCall, form: Disguised, dtype: str) -> Iterator[str]:
    """A built package, whose tiles are its target's. Its machine code is from thin air: CPU arrays run its plans."""
    name, dims = f"random_{made.seed}", (given.problem.head_dim, given.problem.value_head_dim)
    with TemporaryDirectory() as folder, patch("attncc.package.writer.compiled", compiled):
        out = Path(folder) / "built"
        package.build(made.text, out, archs=["sm_80"], dtypes=[dtype], head_dims=[dims])
        spec = importlib.util.spec_from_file_location(name, out / name / "__init__.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            keywords = {key: value for key, value in form.keywords.items() if key != "seed" or made.drops}
            softmax = made.normalize == "softmax"
            result = getattr(module, name)(*form.arrays, return_lse=softmax, **keywords)
        finally:
            del sys.modules[name]
    found, lse = result if softmax else (result, np.empty(0))
    for fault in forward_faults(parsed(made), given, form.undone(found), lse, dtype):
        yield f"package: {fault}"
