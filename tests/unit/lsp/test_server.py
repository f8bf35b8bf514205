"""A real client of the protocol, pygls's own, beside the server's process: what it sends, what comes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60.0  # that an answer may take on a busy machine

WRONG = """attn 1
import masks
# 😀 is two units of UTF-16, and `slope` is indexed by queries.
variant mine {
    const width: int = 64
    input slope: f32[head]
    let distance = q_pos - kv_idx
    keep if causal()
    keep if window(width)
    score = score - slope[q_idx] * distance
}
"""
RIGHT = WRONG.replace("slope[q_idx]", "slope[h]")


class Editor:
    """What an editor does: it keeps the diagnostics that come, and waits for those of a version."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.published: dict[str, types.PublishDiagnosticsParams] = {}
        self.logged: list[str] = []
        self._news = asyncio.Event()

    async def start(self, *options: str, encodings: list[str] | None = None) -> types.InitializeResult:
        def on_diagnostics(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params
            self._news.set()

        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(on_diagnostics)
        self.client.feature(types.WINDOW_LOG_MESSAGE)(lambda params: self.logged.append(params.message))
        await self.client.start_io(sys.executable, "-m", "attncc", "lsp", *options, cwd=str(ROOT))
        general = types.GeneralClientCapabilities(position_encodings=encodings) if encodings else None
        capabilities = types.ClientCapabilities(general=general)
        found = await self.client.initialize_async(types.InitializeParams(capabilities=capabilities))
        self.client.initialized(types.InitializedParams())
        return found

    def open(self, path: Path, text: str) -> str:
        uri = path.as_uri()
        document = types.TextDocumentItem(uri, "attn", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return uri

    def change(self, uri: str, version: int, text: str) -> None:
        document = types.VersionedTextDocumentIdentifier(version, uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    async def diagnostics(self, uri: str, version: int | None) -> list[types.Diagnostic]:
        while uri not in self.published or self.published[uri].version != version:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), SECONDS)
        return list(self.published[uri].diagnostics)

    async def stop(self) -> int:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        process = self.client._server
        assert process is not None
        return await asyncio.wait_for(process.wait(), SECONDS)


def edit(scene: Callable[[Editor], Awaitable[Any]], *options: str, encodings: list[str] | None = None) -> None:
    """Plays a scene between an editor and a server, which then ends by itself, with status 0."""

    async def play() -> None:
        editor = Editor(LanguageClient("tests", "1"))
        await editor.start(*options, encodings=encodings)
        await scene(editor)
        assert [line for line in editor.logged if "internal error" in line] == []
        assert await editor.stop() == 0

    asyncio.run(asyncio.wait_for(play(), 4 * SECONDS))


def at(uri: str, text: str, word: str, units: str = "utf-16-le", **more: Any) -> dict[str, Any]:
    """The place of the first letter of a word."""
    before = text[: text.index(word)]
    column = len(before.rpartition("\n")[2].encode(units)) // (2 if units == "utf-16-le" else 1)
    return {
        "text_document": types.TextDocumentIdentifier(uri),
        "position": types.Position(before.count("\n"), column),
        **more,
    }


def text_of(hover: types.Hover | None) -> str:
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    return hover.contents.value


def test_from_a_mistake_to_a_right_file(tmp_path: Path) -> None:
    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "mine.attn", WRONG)
        (found,) = await editor.diagnostics(uri, 1)
        assert (found.code, found.source, found.severity) == ("A203", "attncc", types.DiagnosticSeverity.Error)
        assert "help: write `slope[h]`" in found.message
        start = at(uri, WRONG, "q_idx]")["position"]
        assert (found.range.start, found.range.end.character) == (start, start.character + len("q_idx"))
        assert [item.message for item in found.related_information] == ["counts the query heads"]
        editor.change(uri, 2, RIGHT)
        assert await editor.diagnostics(uri, 2) == []

    edit(scene)


def test_what_editors_ask_for(tmp_path: Path) -> None:
    async def scene(editor: Editor) -> None:
        client, uri = editor.client, editor.open(tmp_path / "mine.attn", RIGHT)
        hover = client.text_document_hover_async
        assert "float, read as `slope[h]`" in text_of(await hover(types.HoverParams(**at(uri, RIGHT, "slope[h]"))))
        assert "\n\nint" in text_of(await hover(types.HoverParams(**at(uri, RIGHT, "distance\n}"))))
        line = text_of(await hover(types.HoverParams(**at(uri, RIGHT, "keep if window"))))
        assert "This line alone: **" in line and "All keep lines of `mine`: **" in line and "% empty" in line
        assert "% partial" in text_of(await hover(types.HoverParams(**at(uri, RIGHT, "mine {"))))

        place = at(uri, RIGHT, "window(width)")
        (target,) = [await client.text_document_definition_async(types.DefinitionParams(**place))]
        assert target.uri == (ROOT / "specs" / "masks.attn").as_uri()
        library = (ROOT / "specs" / "masks.attn").read_text("utf-8")
        assert target.range.start == at(uri, library, "window(width) =")["position"]
        own = await client.text_document_definition_async(types.DefinitionParams(**at(uri, RIGHT, "distance\n}")))
        assert own.uri == uri and own.range.start == at(uri, RIGHT, "distance =")["position"]

        place = at(uri, RIGHT, "causal()")
        found = await client.text_document_completion_async(types.CompletionParams(**place))
        names = {item.label for item in found.items}
        assert {"causal", "window", "distance", "slope", "q_pos", "tanh"} <= names and "score" not in names

        options = types.FormattingOptions(tab_size=4, insert_spaces=True)
        document = types.TextDocumentIdentifier(uri)
        formatted = await client.text_document_formatting_async(types.DocumentFormattingParams(document, options))
        (change,) = formatted
        assert change.new_text.startswith("attn 1\n\nimport masks\n") and change.range.start == types.Position(0, 0)

        (lens,) = await client.text_document_code_lens_async(types.CodeLensParams(document))
        assert lens.command is None and lens.range.start == at(uri, RIGHT, "mine {")["position"]
        resolved = await client.code_lens_resolve_async(lens)
        assert resolved.command.title.startswith("B1 H8 S4096 D128 bf16, H100: ")
        assert "GFLOP" in resolved.command.title and " ms (" in resolved.command.title
        command = types.ExecuteCommandParams(resolved.command.command, resolved.command.arguments)
        told = await client.workspace_execute_command_async(command)
        assert "Algorithm 1" in told and editor.logged == [told]

    edit(scene)
