"""`attncc.compile` and `attncc.parse`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import plausible, reference
from .analysis.mask.grid import rule_tables, tile_grid
from .analysis.mask.tiles import analyse
from .compiler import NO_DEFINES, CompiledStore, Defines, Specification, check_dtype, check_targets, load_specification
from .diagnostics import AttnccError, Diagnostic, warn
from .evaluate import Environment
from .ir import Variant
from .problem import Problem
from .problem.gradients import Gradients
from .problem.masks import bind_mask, size_of
from .problem.refusal import refused
from .runtime.kernel import Kernel
from .runtime.store.store import Configuration
from .schedule.schedule import Schedule
from .semantics.constants import Value, checked_defines
from .semantics.reach import Folders
from .show.picture import Picture, TileMap
from .show.variants import html, variant_picture

_kernels: dict[Any, Kernel] = {}  # of this process, by content
_lock = threading.Lock()


def parse(
    spec: Path | str,
    *,
    variant: str | None = None,
    defines: Defines = NO_DEFINES,
    allow_imports: Folders = (),
    **consts: Value,
) -> ParsedVariant:
    """A variant for analysis without a GPU: one of the library by its name, a `.attn` file by its path, or a text.

    `spec`: a name that `attncc list` prints, a path (`./causal` is one), or a str that holds a newline.
    `variant` names one of several; `consts` overrides the file's consts, as in `width=4096` (`defines` does too, for
    names that are arguments here); `allow_imports` are folders besides the spec's own whose files it may import.

    AttnccError with everything that is wrong with it.
    """
    specification, program = load_specification(spec, variant, _merged(defines, consts), allow_imports)
    for warning in program.warnings:
        warn(warning)
    return ParsedVariant(specification.variant)


def compile(
    spec: Path | str,
    *,
    dtype: str = "bf16",
    head_dim: int = 128,
    value_head_dim: int | None = None,
    variant: str | None = None,
    arch: str | Sequence[str] | None = None,
    defines: Defines = NO_DEFINES,
    schedule: Schedule | None = None,
    allow_imports: Folders = (),
    **consts: Value,
) -> Kernel:
    """A kernel for one variant, dtype (fp16, bf16, fp32, e4m3; on the CPU also fp64) and head dim.

    Kernels of e4m3, for sm_90a and the CPU, take q, k and v in 8 bits (torch.float8_e4m3fn) and give out in bf16.
    A kernel takes no other dtype or head dim than its own: a call with others says which to name here.
    `spec` and `consts`: as in `parse`, so `attncc.compile("sliding_window", width=4096)` needs no file.

    Machine code is made for the targets in `arch`, or without it for the GPUs of this machine, now if there are any; it
    is kept by content, in the user's cache and in memory until the process ends. So pass what takes thousands of values
    as an `input`: each value of a const is a kernel. Without a GPU and without `arch` nothing is compiled, and the
    kernel runs NumPy arrays and CPU tensors.
    `schedule` takes the place of the file's own for its pass and target. `allow_imports`: as in `parse`.

    AttnccError with everything that is wrong with the spec (A0 to A4), or with NVRTC (A5).
    """
    specification, program = load_specification(spec, variant, _merged(defines, consts), allow_imports)
    if not isinstance(schedule, Schedule | None):
        raise AttnccError(
            Diagnostic(
                "A518",
                "`schedule` is not a Schedule",
                notes=(f"came {schedule!r:.60}",),
                help="schedules are written in the file; attncc.schedule.schedule.Schedule makes others",
            )
        )
    if schedule is not None:
        kept = (item for item in specification.schedules if _serves(item) != _serves(schedule))
        specification = Specification(specification.variant, (*kept, schedule))
    archs = tuple(arch or ()) if isinstance(arch, Sequence | None) and not isinstance(arch, str) else (arch,)
    check_targets(archs)
    check_dtype(str(dtype), archs)
    head_dim = size_of("head_dim", head_dim)
    value_head_dim = head_dim if value_head_dim is None else size_of("value_head_dim", value_head_dim)
    configuration = Configuration(str(dtype), head_dim, value_head_dim)
    key = (specification, configuration, archs)
    with _lock:
        found = _kernels.get(key)
    if found is None:
        for warning in program.warnings:
            warn(warning)
        store = CompiledStore(specification, configuration, archs)
        store.compile_now()
        with _lock:
            found = _kernels.setdefault(key, Kernel(store))
    return found


def _merged(defines: Defines, consts: Defines) -> Defines:
    """AttnccError A114 for a const that comes in both."""
    defines = checked_defines(defines)
    for name in consts:
        if name in defines:
            what = f"the const `{name}` came twice: by itself, and in `defines`"
            raise AttnccError(Diagnostic("A114", what, help=f"leave out one: {name}={consts[name]!r:.40} is enough"))
    return {**defines, **consts}


def _serves(schedule: Schedule) -> tuple[str, str]:
    return schedule.pass_name, schedule.target


class ParsedVariant:
    """A checked variant. Its methods take NumPy arrays and need no GPU."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant

    @property
    def name(self) -> str:
        return self.variant.name

    def __repr__(self) -> str:
        return f"<attncc variant {self.name}>"

    def mask(self, q_len: int, kv_len: int, **given: Any) -> NDArray[np.bool_]:
        """Which pairs are kept: bool [batch, heads, q_len, kv_len]; batch and heads are 1 where it is the same for all.

        `given` holds the inputs that the keep lines read, and `batch`, `num_heads`, `num_kv_heads`, `head_dim` where
        the mask needs them and no input's axis tells. AttnccError A6xx for an input that doesn't suit, A620 for an
        unknown size.
        """
        return reference.mask(self.variant, q_len, kv_len, **given)

    def tile_map(
        self,
        q_len: int,
        kv_len: int,
        block_q: int,
        block_kv: int,
        *,
        batch: int | None = None,
        num_heads: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        **inputs: Any,
    ) -> TileMap:
        """What kernels know of each tile: uint8 [batch, heads, q tiles, kv tiles], 0 EMPTY, 1 PARTIAL, 2 FULL.

        The array shows the tiles of its first sequence and head: in characters, in a notebook as a picture. The
        arguments are those of `mask`; batch and heads are 1 where the tiles are the same for all.
        """
        sizes = {"batch": batch, "num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        block_q, block_kv = size_of("block_q", block_q), size_of("block_kv", block_kv)
        bound = bind_mask(self.variant, q_len, kv_len, inputs, sizes)
        rules = analyse(self.variant, block_q, block_kv)
        maps = rule_tables(rules, self.variant, bound.problem, bound.inputs)

        def kinds(seen: Environment) -> NDArray[np.uint8]:
            seen = Environment(seen.symbols, {**seen.inputs, **maps}, seen.lets, seen.float_dtype)
            return tile_grid(rules, seen, block_q, block_kv).kinds

        lengths = bound.problem.q_len, bound.problem.kv_len
        tiles = -(-lengths[0] // block_q), -(-lengths[1] // block_kv)
        every = [kinds(environment) for environment in bound.environments()]
        found = np.stack(every) if every else np.zeros((0, bound.heads, *tiles), np.uint8)
        return TileMap.of(found, self.name, lengths, (block_q, block_kv))

    def picture(
        self,
        q_len: int,
        kv_len: int,
        block_q: int = 64,
        block_kv: int = 64,
        *,
        b: int = 0,
        h: int = 0,
        batch: int = 1,
        num_heads: int = 1,
        num_kv_heads: int | None = None,
        head_dim: int = 64,
        seed: int = 0,
        **inputs: Any,
    ) -> Picture:
        """The mask and tiles of sequence `b` and query head `h`: in characters, in a notebook as a picture.

        Inputs that the mask reads and that aren't given are drawn from `seed`, as models bring them. AttnccError as in
        `mask`, and A630 where they would be too large.
        """
        for name, place, count in (("b", b, batch), ("h", h, num_heads)):
            if size_of(name, place) >= count:
                raise refused("A615", f"`{name}` can't be used", expected=f"an int below {count}", came=repr(place))
        problem = Problem(
            size_of("batch", batch),
            size_of("num_heads", num_heads),
            size_of("num_kv_heads", num_heads if num_kv_heads is None else num_kv_heads),
            size_of("q_len", q_len),
            size_of("kv_len", kv_len),
            size_of("head_dim", head_dim),
            size_of("head_dim", head_dim),
        )
        blocks = {"block_q": size_of("block_q", block_q), "block_kv": size_of("block_kv", block_kv)}
        drawn = plausible.of_mask(self.variant, problem, seed, inputs)
        arrays = {name: item.array for name, item in drawn.items()} | inputs
        return variant_picture(self.variant, problem, arrays, **blocks, b=b, h=h)

    def _repr_html_(self) -> str:
        return html(self.variant, f"attncc variant {self.name}")

    def reference(self, q: Any, k: Any, v: Any, **call: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Dense attention in fp64: out, shaped as a kernel's, and lse (None unless softmax).

        `call` holds the inputs and what kernels take by keyword, such as scale, layout, seed, cu_seqlens_q or kv_lens,
        other than out, return_lse, stream and new rows.
        """
        return reference.forward(self.variant, q, k, v, **call)

    def reference_backward(self, dout: Any, q: Any, k: Any, v: Any, **call: Any) -> Gradients:
        """The gradients of dense attention in fp64, for the gradient of its output: dq, dk, dv, and by name those of
        learnable inputs. `call` holds what `reference` takes, and `dlse`, the gradient of lse.
        """
        return reference.backward(self.variant, dout, q, k, v, **call)
