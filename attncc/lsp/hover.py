"""What an editor shows where somebody points: types, documentation and, of masks, what is proven."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..ir import Expr, Variant, root_of, walk
from ..semantics import builtins
from ..source import Span
from . import proof
from .documents import Document, Documents
from .meaning import Meaning, meaning
from .outline import Declared, spanned
from .words import Word


@dataclass(frozen=True)
class Hover:
    """Markdown, and what it speaks of."""

    text: str
    span: Span


def hover(documents: Documents, document: Document, offset: int) -> Hover | None:
    documents.check(document)
    found = meaning(documents, document, offset)
    if found is None:
        return _expression(document, offset)
    if found.file is not None:
        return Hover(f"`{found.file}`", found.at)
    if found.declared is not None:
        return Hover(_paragraphs(*_declared(document, found.declared, found)), found.at)
    assert found.word is not None
    line = _keep_line(document, found) if found.word.name in ("keep", "if") else None
    return Hover(_paragraphs(line or "", _word(found.word)), found.at)


def _word(word: Word) -> str:
    return f"{_code(word.form)}\n\n{word.doc}"


def _code(text: str) -> str:
    return f"```attn\n{text}\n```"


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


# -------------------------------------------------------------------- what files declare


def _declared(document: Document, declared: Declared, found: Meaning) -> Iterator[str]:
    """Its declaration, its type, its comment; of a variant, the proof."""
    item = found.item
    variant = document.variant(item.name.name) if item and item.name and item.kind == "variant" else None
    if declared.kind in ("mask", "function"):
        yield _code(f"{'mask' if declared.kind == 'mask' else 'fn'} {declared.name}{declared.parameters}")
        if declared.source.path != document.source.path:
            yield f"from `{Path(declared.source.path).name}`"
    elif declared.kind in ("parameter", "loop variable", "variant", "schedule"):
        yield _code(f"{declared.kind} {declared.name}")
    else:
        yield _code(" ".join(declared.whole.one_line.split()))
    if variant is not None:
        yield _typed(variant, declared)
    yield _as_markdown(declared.doc)
    meant = document.variant(declared.name) if declared.kind == "variant" else None
    if meant is not None:
        yield proof.of_variant(meant)


def _typed(variant: Variant, declared: Declared) -> str:
    """What is known of a const, an input or a let once the file was found right."""
    name = declared.name
    if declared.kind == "const":
        return "".join(f"= {_value(value)}" for const, value in variant.consts if const == name)
    if declared.kind == "let":
        let = variant.lets.get(name)
        return let.value.type.value if let else "a number that is known when the kernel is built"
    if declared.kind == "loop variable":
        return "int"
    for item in variant.inputs:
        if item.name == name and declared.kind == "input":
            indices = ", ".join(builtins.TAGS[axis.tag].indexed_by[0] if axis.tag else "..." for axis in item.axes)
            return f"{item.type.value}, read as `{name}[{indices}]`" if indices else item.type.value
    return ""


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_markdown(comment: str) -> str:
    return comment.replace("<", "&lt;").replace("*", "\\*")


# -------------------------------------------------------------------- keep lines, expressions


def _keep_line(document: Document, found: Meaning) -> str | None:
    """What is proven of the line that begins with this `keep if`."""
    item, statement = found.item, document.outline.statement_at(found.at.start)
    if item is None or item.kind != "variant" or item.name is None or statement is None or statement.type != "KEEP":
        return None
    if all(token.start_pos != found.at.start for token in statement.tokens[:2]):
        return None  # an `if` of the condition
    variant, span = document.variant(item.name.name), spanned(document.source, statement.tokens)
    for keep in variant.keeps if variant else ():
        if variant and keep.span is not None and keep.span.start == span.start:
            return proof.of_line(variant, keep)
    return None


def _expression(document: Document, offset: int) -> Hover | None:
    """The type of the smallest expression at a sign or number."""
    token = document.outline.token_at(offset)
    program = document.checked.program if document.checked else None
    if token is None or program is None:
        return None
    at = spanned(document.source, [token])
    nodes = [node for variant in program.variants for line in variant.statements for node in walk(root_of(line))]
    holding = [node for node in nodes if _holds(node, at)]
    if not holding:
        return None
    least = min(holding, key=_width)
    assert least.span is not None
    return Hover(f"{_code(least.span.one_line)}\n\n{least.type.value}", least.span)


def _holds(node: Expr, at: Span) -> bool:
    span = node.span
    return span is not None and span.source.path == at.source.path and span.start <= at.start and at.end <= span.end


def _width(node: Expr) -> int:
    return node.span.end - node.span.start if node.span else 0
