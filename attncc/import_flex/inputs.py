"""Captured values as `input` lines: dtypes and axes, guessed from how a mod uses them, or declared by the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic, Diagnostics, Label, did_you_mean
from ..ir import Type
from ..semantics.builtins import TAGS
from ..source import SourceFile, Span
from ..syntax import ast, printer
from ..syntax.parser import parse
from .bounds import least
from .kinds import OF_DTYPE, Kinds
from .naming import Naming, legal
from .terms import Captured, Element, Symbol, Term, bare, walk

_DTYPE_OF = {Type.BOOL: "bool", Type.INT: "i32", Type.FLOAT: "f32"}
_MAX_AXES = 4


@dataclass(frozen=True)
class Input:
    """An `input` line: its name, what stands behind the colon, and a comment."""

    name: str
    declaration: str
    comment: str


def declared_inputs(options: Iterable[str]) -> dict[str, ast.Input]:
    """The inputs that `--input name:dtype[axes] properties` declare. AttnccError A0 where that isn't `.attn`."""
    found: dict[str, ast.Input] = {}
    for option in options:
        item = _parsed(option).items[0]
        assert isinstance(item, ast.Variant)
        for statement in item.statements:
            if not isinstance(statement, ast.Input):
                raise AttnccError(
                    Diagnostic("A712", f"--input {option} says more than one input", help="repeat the option")
                )
            found[statement.name.name] = statement
    return found


def lengths(declared: ast.Input) -> tuple[int | None, ...]:
    """Those of the axes that an input declares as numbers; None for a tag or `_`."""
    numbers = [axis.value if isinstance(axis, ast.Number) else None for axis in declared.axes]
    return tuple(number if isinstance(number, int) else None for number in numbers)


def _parsed(option: str) -> ast.Module:
    """The option as the input of a variant; mistakes are shown in its own text, which is all that the user wrote."""
    head, shown = "attn 1\nvariant v {\ninput ", SourceFile("--input", option)

    def place(at: int) -> int:
        return min(max(at - len(head), 0), len(option))

    try:
        return parse(SourceFile("--input", f"{head}{option}\n}}\n"))
    except AttnccError as error:
        first = error.diagnostics[0]
        where = first.span and Span(shown, place(first.span.start), place(first.span.end))
        said = first.message.partition(", found")[0]
        form = "the form is name:dtype[axes], as in 'doc:i32[batch, pos]'"
        raise AttnccError(replace(first, message=said, span=where, labels=(), edit=None, help=form)) from None


class Inputs:
    """The inputs of one variant, by the captured values that become them."""

    def __init__(self, declared: Mapping[str, ast.Input], found: Diagnostics) -> None:
        self.declared = declared
        self.found = found
        self.uses: dict[Captured, list[Element]] = {}

    def collect(self, roots: Sequence[Term]) -> None:
        """Notes every use of a captured value; A707 where one is indexed in two ways."""
        for term in walk(*roots):
            if isinstance(term, Element):
                self.uses.setdefault(term.captured, []).append(term)
        for captured, uses in self.uses.items():
            self._check_rank(captured, uses)

    def declaration(self, captured: Captured) -> ast.Input | None:
        """What the user has declared for it, by its name in Python or by the one it gets in `.attn`."""
        return self.declared.get(captured.name) or self.declared.get(legal(captured.name))

    def known_kinds(self) -> dict[Captured, Type]:
        """The types that are declared, or seen where a value is defined."""
        dtypes = {
            captured: node.dtype.name if (node := self.declaration(captured)) else captured.dtype
            for captured in self.uses
        }
        return {captured: OF_DTYPE[dtype] for captured, dtype in dtypes.items() if dtype in OF_DTYPE}

    def write(self, kinds: Kinds, naming: Naming, learnable: frozenset[Captured]) -> dict[Captured, Input]:
        """The lines, in the order in which the mod reads them."""
        unused = set(self.declared)
        lines: dict[Captured, Input] = {}
        for captured in self.uses:
            node = self.declaration(captured)
            name = naming.fresh(captured.name, "input")
            if node is not None:
                unused.discard(node.name.name)
                lines[captured] = Input(name, _as_declared(node), _origin(captured, name))
            else:
                lines[captured] = self._guess(captured, name, kinds, captured in learnable)
        for name in sorted(unused):
            self._refuse_unused(name)
        return lines

    def _guess(self, captured: Captured, name: str, kinds: Kinds, learnable: bool) -> Input:
        kind = kinds.captured[captured]
        axes = _axes(self.uses[captured])
        dtype = captured.dtype if captured.dtype else _DTYPE_OF[kind]
        shape = f"[{', '.join(axes)}]" if axes else ""
        said = "" if captured.plain else "a guess; "
        declaration = f"{dtype}{shape}{' learnable' if learnable else ''}"
        return Input(name, declaration, said + _origin(captured, name))

    # ---------------------------------------------------------------- problems

    def _check_rank(self, captured: Captured, uses: Sequence[Element]) -> None:
        first = uses[0]
        node = self.declaration(captured)
        rank = len(first.indices) if node is None else len(node.axes)
        for use in uses:
            if len(use.indices) == rank <= _MAX_AXES:
                continue
            came = f"{len(use.indices)} {'index' if len(use.indices) == 1 else 'indices'}"
            wanted = f"{rank} {'axis' if rank == 1 else 'axes'}"
            message = f"`{captured.name}` is read with {came} here, and has {wanted}"
            if rank > _MAX_AXES:
                message = f"`{captured.name}` is read with {came}, and an input has at most {_MAX_AXES} axes"
            labels = (Label(first.span, "read here too"),) if node is None and use is not first else ()
            help = "index it by one element of each axis, or declare it: --input 'name:i32[batch, pos]'"
            self.found.add(Diagnostic("A707", message, use.span, labels=labels, help=help))
            return

    def _refuse_unused(self, name: str) -> None:
        names = [captured.name for captured in self.uses]
        notes = (f"the inputs are: {', '.join(names)}",) if names else ("the mod reads no inputs",)
        help = did_you_mean(name, names) or "remove the option"
        self.found.add(Diagnostic("A712", f"--input {name} is no input of the mod", notes=notes, help=help))


def _as_declared(node: ast.Input) -> str:
    return printer.statement(node, 0)[1][0]


def _origin(captured: Captured, name: str) -> str:
    """Where a value comes from in Python, for the comment behind its line."""
    path, line = _in_its_package(captured.span.source.path), captured.span.line
    origin = captured.origin if len(captured.origin) <= 48 else f"{captured.origin[:45]}..."
    if captured.name in (name, origin):
        return f"{origin}, {path}:{line}" if origin != captured.name else f"{path}:{line}"
    return f"`{captured.name}`: {origin}, {path}:{line}"


def _in_its_package(path: str) -> str:
    """A path from the folder that holds the package of a file, unless it is below the current folder."""
    folder = Path(path).parent
    if not Path(path).is_absolute():
        return path
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return str(Path(path).relative_to(folder))


# -------------------------------------------------------------------- axes


def _axes(uses: Sequence[Element]) -> list[str]:
    """A tag for each axis that is always read by one built-in index, `_` for the others. One that q_idx and kv_idx read
    is `pos` only where q_len = kv_len, which FlexAttention doesn't ask for."""
    return [_tag([use.indices[place] for use in uses]) for place in range(len(uses[0].indices))]


def _tag(indices: Sequence[Term]) -> str:
    names = {_symbol(index) for index in indices}
    if len(names) > 1 or None in names:
        return "_"
    return _AT_LEAST if names == {"kv_idx"} else next(tag.name for tag in TAGS.values() if tag.indexed_by[0] in names)


_AT_LEAST = "pos"  # kv_len entries or more, as FlexAttention takes them


def _symbol(term: Term) -> str | None:
    term = bare(term)
    return term.name if isinstance(term, Symbol) else None


def reads_both_ways(uses: Sequence[Element]) -> bool:
    """Whether some axis is read by q_idx and by kv_idx alone: one that counts positions."""
    by_axis = zip(*(use.indices for use in uses), strict=True)
    return any({_symbol(index) for index in indices} == {"q_idx", "kv_idx"} for indices in by_axis)


def may_count_from_the_end(roots: Iterable[Term]) -> bool:
    """Whether some index may be below 0, where PyTorch counts from the end. What tensors hold is taken as 0 or more."""
    elements = [term for term in walk(*roots) if isinstance(term, Element)]
    return any(least(index, of_elements=0) < 0 for element in elements for index in element.indices)
