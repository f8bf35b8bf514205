"""Random calls of one kernel, each described by words, so that the next can be the same but for one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

BATCH, HEADS, KV_HEADS, ROWS, D = 2, 4, 2, 32, 16

# Words of a call, the usual one first and most often.
TENSORS = (
    "plain", "longer", "transposed", "gaps", "misaligned", "shared", "sliced", "strided columns", "no rows", "float32",
    "bfloat16", "negated", "other batch", "parameter", "subclass", "meta", "sparse", "inference", "dual", "double",
)  # fmt: skip
GRADIENTS = ("none", "all", "q", "k", "v", "qkv", "inputs")
MODES = (
    "grad", "no_grad", "inference", "autocast half", "autocast bfloat16", "deterministic", "dual level", "dispatch",
    "anomaly",
)  # fmt: skip
USES = (
    "backward", "nothing", "lse alone", "twice", "retained", "changed", "again differentiated", "some", "checkpoint",
    "hooks", "repeated gradient", "backward without grad mode", "backward in autocast", "out changed",
)  # fmt: skip
OPTIONS: dict[str, tuple[Any, ...]] = {
    "layout": ("bhsd", "bshd", "sbhd", "".join(("b", "hsd"))),
    "scale": (None, 0.5, 2, float("nan"), torch.tensor(0.5), True),
    "return_lse": (False, True),
    "out": (None, "new", "q", "of another shape", "requires a gradient"),
    "q_offset": (None, 3, 0, "0-d", "of each", 2**40),
    "kv_lens": (None, "int32", "int64", "float"),
    "packed": (None, "int32", "int64"),
    "seed": (None, 7, -1, 2**63, "0-d", 1.5),
    "more": (None, "unknown"),
}
# How an input that a kernel has may be given.
FLOAT = (
    "number",
    "tensor",
    "0-d",
    "0-d learning",
    "learning",
    "half",
    "int",
    "None",
    "missing",
    "long",
    "dual",
    "bool",
)
INT = ("number", "tensor", "int64", "0-d", "float", "learning", "missing", "expanded")

Words = dict[str, Any]


class Sub(torch.Tensor):
    """A tensor of another type that answers no operators."""


class Watching(TorchDispatchMode):
    """Sees every operator, and lets it be."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def first(inputs: dict[str, str]) -> Words:
    """The usual call."""
    words = {"q": TENSORS[0], "k": TENSORS[0], "v": TENSORS[0], "gradients": "all", "mode": MODES[0], "use": USES[0]}
    words |= {name: values[0] for name, values in OPTIONS.items()}
    words["seed"] = 7 if "rate" in inputs else None
    return words | {f"input {name}": "tensor" if "[" in kind else "number" for name, kind in inputs.items()}


def drawn(before: Words, inputs: dict[str, str], random: Random) -> Words:
    """The same call again, or one with other words in one or two places; seldom a usual one."""
    if random.random() < 0.06:
        return first(inputs)
    words = dict(before)
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        name = random.choice(list(words))
        usual = first(inputs)[name]
        words[name] = usual if random.random() < 0.6 else random.choice(_choices(name, inputs))
    return words


def _choices(name: str, inputs: dict[str, str]) -> tuple[Any, ...]:
    if name.startswith("input "):
        return FLOAT if "f32" in inputs[name.removeprefix("input ")] else INT
    return {"q": TENSORS, "k": TENSORS, "v": TENSORS, "gradients": GRADIENTS, "mode": MODES, "use": USES, **OPTIONS}[
        name
    ]


# -------------------------------------------------------------------- what the words stand for


def operands(words: Words) -> dict[str, Any]:
    """q, k and v."""
    made = {}
    for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        shape = [BATCH, heads, ROWS, D]
        word = words[name]
        shape[2] = {"longer": ROWS + 8, "no rows": 0}.get(word, ROWS)
        shape[0] = {"other batch": 1, "shared": 1}.get(word, BATCH)
        if words["layout"] == "bshd":
            shape[1], shape[2] = shape[2], shape[1]
        made[name] = _tensor(word, shape[1:] if words["packed"] else shape)
    gradients = {"all": "qkv", "none": "", "inputs": ""}.get(words["gradients"], words["gradients"])
    for name in gradients:
        if made[name].is_leaf and not made[name].is_inference():
            made[name].requires_grad_()
    return made


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "double": torch.float64}
_LAID_OUT: dict[str, Callable[..., Any]] = {
    "transposed": lambda zeros, *lead, a, b, d: zeros(*lead, b, a, d).transpose(-3, -2),
    "gaps": lambda zeros, *lead, a, b, d: zeros(*lead, a, b, 2 * d)[..., :d],
    "sliced": lambda zeros, *lead, a, b, d: zeros(*lead, a, b + 4, d)[..., 4:, :],
    "misaligned": lambda zeros, *lead, a, b, d: zeros(torch.Size((*lead, a, b, d)).numel() + 1)[1:].view(
        *lead, a, b, d
    ),
    "strided columns": lambda zeros, *lead, a, b, d: zeros(*lead, a, b, 2 * d)[..., ::2],
    "shared": lambda zeros, *lead, a, b, d: zeros(*[1 for _ in lead], a, b, d).expand(*[BATCH for _ in lead], a, b, d),
    "negated": lambda zeros, *lead, a, b, d: torch.zeros(*lead, a, b, d, dtype=torch.complex64).conj().imag,
    "meta": lambda zeros, *lead, a, b, d: zeros(*lead, a, b, d, device="meta"),
    "parameter": lambda zeros, *lead, a, b, d: torch.nn.Parameter(zeros(*lead, a, b, d), requires_grad=False),
    "subclass": lambda zeros, *lead, a, b, d: zeros(*lead, a, b, d).as_subclass(Sub),
    "sparse": lambda zeros, *lead, a, b, d: zeros(*lead, a, b, d).to_sparse(),
}


def _tensor(word: str, shape: list[int]) -> Any:
    *lead, a, b, d = shape
    zeros = partial(torch.zeros, dtype=_DTYPES.get(word, torch.float16))
    with torch.inference_mode(word == "inference"):
        return _LAID_OUT[word](zeros, *lead, a=a, b=b, d=d) if word in _LAID_OUT else zeros(shape)


def keywords(words: Words, inputs: dict[str, str], q: Any) -> dict[str, Any]:
    given: dict[str, Any] = {name: words[name] for name in ("layout", "scale", "return_lse") if words[name] is not None}
    if words["q_offset"] is not None:
        each = torch.tensor([1, 2], dtype=torch.int32)
        given["q_offset"] = {"0-d": torch.tensor(2, dtype=torch.int32), "of each": each}.get(
            words["q_offset"], words["q_offset"]
        )
    if words["kv_lens"] is not None:
        given["kv_lens"] = torch.tensor([5, 9], dtype=getattr(torch, words["kv_lens"]))
    if words["packed"] is not None:
        starts = torch.tensor([0, 5, ROWS], dtype=getattr(torch, words["packed"]))
        given |= {"cu_seqlens_q": starts, "cu_seqlens_kv": starts}
    if words["seed"] is not None:
        given["seed"] = torch.tensor(5) if words["seed"] == "0-d" else words["seed"]
    if words["out"] is not None:
        given["out"] = _out(words["out"], q)
    if words["more"]:
        given["more"] = 1.0
    for name, kind in inputs.items():
        given |= _input(name, kind, words[f"input {name}"], words["gradients"] == "inputs")
    return given


def _out(word: str, q: Any) -> Any:
    if word == "q":
        return q
    if word == "of another shape":
        return torch.zeros(1, 1, 1, D, dtype=torch.float16)
    made = torch.zeros(q.shape, dtype=torch.float16)
    return made.requires_grad_() if word == "requires a gradient" else made


def _input(name: str, kind: str, word: str, learns: bool) -> dict[str, Any]:
    if word == "missing":
        return {}
    if word == "None":
        return {name: None}
    shape = {"f32[head]": (HEADS,), "i32[batch, kv]": (BATCH, ROWS)}.get(kind, ())
    if word in ("number", "bool", "int"):
        return {name: {"number": 0.5 if "f32" in kind else 3, "bool": True, "int": 4}[word]}
    dtype = torch.float32 if "f32" in kind else torch.int32
    dtype = {"half": torch.float16, "int64": torch.int64, "float": torch.float32, "long": torch.int64}.get(word, dtype)
    if word.startswith("0-d"):
        return {name: torch.ones((), dtype=dtype, requires_grad=word == "0-d learning")}
    if word == "expanded":
        return {name: torch.ones(shape[-1:], dtype=dtype).expand(shape)}
    made = torch.ones(shape, dtype=dtype)
    learning = (word == "learning" or learns) and made.is_floating_point()
    return {name: made.requires_grad_() if learning else made}


@contextmanager
def mode(word: str) -> Iterator[None]:
    modes: dict[str, Callable[[], Any]] = {
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "autocast half": lambda: torch.autocast("cpu", torch.float16),
        "autocast bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
        "dual level": torch.autograd.forward_ad.dual_level,
        "dispatch": Watching,
        "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=False),
    }
    with ExitStack() as stack:
        if word in modes:
            stack.enter_context(modes[word]())
        if word == "deterministic":
            torch.use_deterministic_algorithms(True)
            stack.callback(torch.use_deterministic_algorithms, False)
        yield
