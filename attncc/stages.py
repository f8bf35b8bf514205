"""Each step from a `.attn` file to machine code, as text to be read: `attncc show FILE --stage NAME`.

ast, ir, rules, plan, cuda, ptx and sass, in the order in which one follows from the other.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

from . import ir
from .analysis.rules import TileRules
from .codegen.render import KernelSource
from .diagnostics import AttnccError, Diagnostic
from .package.variant_package import plan_text
from .runtime.cuda.nvrtc import compile_to_ptx
from .schedule.plan import KernelPlan
from .syntax import ast

__all__ = ["ast_text", "plan_text", "ptx_text", "rules_text", "sass_text"]

_WIDTH = 120  # columns; a rule that is longer is written in parts
_SHORT = 40  # characters: what is shorter is written where it is used, however often


# -------------------------------------------------------------------- ast


def ast_text(module: ast.Module) -> str:
    """A tree, a node a line: its class, its words and numbers, where it begins (line:column)."""
    return "\n".join(_tree(module, "", "")) + "\n"


def _tree(node: ast.Node, role: str, indent: str) -> Iterator[str]:
    words, below = [], []
    for item in fields(node):
        value = getattr(node, item.name)
        if item.name == "span" or value is None or value in ((), ""):
            continue
        inside = value if isinstance(value, tuple) else (value,)
        if all(_word(part) is not None for part in inside):
            words.append(f"{item.name}={' '.join(str(_word(part)) for part in inside)}")
        else:
            below.append((item.name, inside))
    where = f"{node.span.line}:{node.span.column}"
    yield f"{indent}{role}{type(node).__name__} {' '.join(words)}".rstrip() + f"  ({where})"
    for name, parts in below:
        for part in parts:
            yield from _below(part, name, indent + "  ")


def _below(part: object, name: str, indent: str) -> Iterator[str]:
    if isinstance(part, ast.Node) and _word(part) is None:
        yield from _tree(part, f"{name}: ", indent)
    else:
        yield f"{indent}{name}: {_word(part)}"


def _word(value: object) -> str | None:
    """What is one word: names, numbers, operators. None for other nodes."""
    match value:
        case ast.Name():
            return value.name
        case ast.Number() | ast.Boolean() | ast.Wildcard():
            return value.span.text
        case ast.Node():
            return None
        case str() if " " in value or not value.isprintable():
            return repr(value)
    return str(value)


# -------------------------------------------------------------------- rules


def rules_text(plan: KernelPlan) -> str:
    """What is proven of the tiles of a plan: `let` lines for what several rules share, then a line for each rule."""
    tiles = f"# tiles of {plan.block_q} x {plan.block_kv}{_of_grid(plan)}"
    head = f"{tiles}: {plan.variant.name}, {plan.pass_name}, {plan.target}"
    return "\n".join([head, *_facts(plan.rules), "", *_expressions(_named_rules(plan.rules))]) + "\n"


def _of_grid(plan: KernelPlan) -> str:
    grid = plan.grid_2d
    if grid is None:
        return ""
    windows = ", which are windows" * grid.window
    return f" (on a grid {grid.width} wide: {grid.q_columns} columns of q, {grid.kv_columns} of kv{windows})"


def _facts(rules: TileRules) -> Iterator[str]:
    yield f"decides a tile:         {_yes(rules.decides)}"
    yield f"loop bounds suffice:    {_yes(rules.bounds_suffice)}"
    yield f"each row keeps a key:   {'yes' if rules.rows_never_empty else 'not proven for all lengths'}"
    for table in rules.min_max_tables:
        yield f"min/max table:          {table.min_name}, {table.max_name}: of {table.block} entries of {table.input}"
    for name in rules.sorted_hints:
        yield f"verified nondecreasing: {name}"
    for index, reason in rules.undecided:
        yield f"leaves tiles partial:   keep {index + 1}: {reason}"


def _yes(value: bool) -> str:
    return "yes" if value else "not proven"


def _named_rules(rules: TileRules) -> dict[str, ir.Expr]:
    found = {
        name: getattr(rules, name) for name in ("any_kept", "all_kept", "kv_begin", "full_begin", "full_end", "kv_end")
    }
    if rules.q_bounds is not None:
        found |= {f"q_bounds.{item.name}": getattr(rules.q_bounds, item.name) for item in fields(rules.q_bounds)}
    if rules.columns is not None:
        found |= dict(zip(("column_begin", "column_end"), rules.columns, strict=True))
    return found


def _expressions(rules: dict[str, ir.Expr]) -> Iterator[str]:
    """Rules share much: what is long and used twice is a `let` above the first rule that reads it."""
    uses = Counter(child for node in ir.walk(*rules.values()) for child in node.children)
    uses.update(rules.values())
    shown: dict[ir.Expr, ir.Expr] = {}
    lets = 0
    for name, rule in rules.items():
        for node in ir.walk(rule):
            if node in shown:
                continue
            written = _with_children(node, tuple(shown[child] for child in node.children))
            text = ir.show(written)
            if (uses[node] > 1 and len(text) > _SHORT) or (len(text) > _WIDTH and node is not rule):
                lets += 1
                yield f"let t{lets}: {node.type.value} = {text}"
                written = ir.Local(node.type, f"t{lets}")
            shown[node] = written
        yield f"{name} = {ir.show(shown[rule])}"


def _with_children(node: ir.Expr, children: tuple[ir.Expr, ...]) -> ir.Expr:
    match node:
        case ir.Apply():
            return replace(node, args=children)
        case ir.Load():
            return replace(node, indices=children)
        case ir.Search():
            *indices, length, value = children
            return replace(node, indices=tuple(indices), length=length, value=value)
    return node


# -------------------------------------------------------------------- ptx, sass


def ptx_text(source: KernelSource, target: str) -> str:
    """What NVRTC makes of a kernel's CUDA text. AttnccError as `nvrtc.submit`."""
    return compile_to_ptx(source.text, target, f"{source.name}.cu")


def sass_text(image: bytes) -> str:
    """A cubin as nvdisasm lists it. AttnccError A522 without nvdisasm, or where it fails."""
    tool = _nvdisasm()
    with tempfile.TemporaryDirectory(prefix="attncc-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(image)
        try:
            done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=False)
        except OSError as error:
            raise _no_listing(f"{tool} can't be run: {error.strerror}") from None
    if done.returncode:
        raise _no_listing(f"{tool} failed: {done.stderr.strip()}")
    return done.stdout


def _nvdisasm() -> str:
    """That of the wheel, or else of the PATH."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or ()
    except metadata.PackageNotFoundError:
        files = ()
    of_wheel = [str(file.locate()) for file in files if file.name in ("nvdisasm", "nvdisasm.exe")]
    found = next(filter(None, [*of_wheel, shutil.which("nvdisasm")]), None)
    if found is None:
        raise _no_listing("nvdisasm, which lists machine code, is not installed")
    return found


def _no_listing(what: str) -> AttnccError:
    fix = (
        "pip install nvidia-cuda-nvdisasm, or put the nvdisasm of a CUDA toolkit on the PATH; `--stage ptx` needs none"
    )
    return AttnccError(Diagnostic("A522", what, help=fix))
