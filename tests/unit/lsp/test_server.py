"""A real client of the protocol, pygls's own, beside the server's process: what it sends, what comes back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
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
        self.versions: dict[str, list[int | None]] = {}
        self.logged: list[str] = []
        self._news = asyncio.Event()

    async def start(self, *options: str, encodings: list[str] | None = None) -> types.InitializeResult:
        def on_diagnostics(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri] = params
            self.versions.setdefault(params.uri, []).append(params.version)
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

    async def next_diagnostics(self, uri: str) -> list[types.Diagnostic]:
        """Those that come for the version that was published."""
        version = self.published.pop(uri).version
        return await self.diagnostics(uri, version)

    def forget(self) -> None:
        """What came in an earlier scene."""
        self.published.clear()
        self.versions.clear()
        self.logged.clear()

    async def stop(self) -> int:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        process = self.client._server
        assert process is not None
        return await asyncio.wait_for(process.wait(), SECONDS)


class Session:
    """A server and an editor, for one scene or several."""

    def __init__(self, *options: str, encodings: list[str] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.editor = Editor(LanguageClient("tests", "1"))
        self._play(self.editor.start(*options, encodings=encodings))

    def play(self, scene: Callable[[Editor], Awaitable[Any]]) -> None:
        self.editor.forget()
        self._play(scene(self.editor))
        assert [line for line in self.editor.logged if "internal error" in line] == []

    def _play(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 4 * SECONDS))

    def stop(self) -> None:
        """The server ends by itself, with status 0."""
        assert self._play(self.editor.stop()) == 0
        self.loop.close()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One for all scenes that need no options."""
    started = Session()
    yield started
    started.stop()


def play(scene: Callable[[Editor], Awaitable[Any]], *options: str, encodings: list[str] | None = None) -> None:
    """With a server of its own."""
    started = Session(*options, encodings=encodings)
    started.play(scene)
    started.stop()


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


def test_from_a_mistake_to_a_right_file(session: Session, tmp_path: Path) -> None:
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

    session.play(scene)


def test_what_editors_ask_for(session: Session, tmp_path: Path) -> None:
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

    session.play(scene)


def test_the_text_of_an_open_import_counts(session: Session, tmp_path: Path) -> None:
    other = tmp_path / "other.attn"
    other.write_text("attn 1\nmask far() = kv_idx > 9\n")
    text = 'attn 1\nimport "other.attn"\nvariant v { keep if far() }\n'

    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "mine.attn", text)
        assert await editor.diagnostics(uri, 1) == []
        second = editor.open(other, "attn 1\nmask near() = kv_idx > 9\n")  # never saved
        assert await editor.diagnostics(second, 1) == []
        assert [item.code for item in await editor.next_diagnostics(uri)] == ["A102"]
        document = types.TextDocumentIdentifier(second)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        assert await editor.next_diagnostics(uri) == []
        assert await editor.diagnostics(second, None) == []

    session.play(scene)


@pytest.mark.parametrize("folder", ["specs", "specs of Łódź"])
def test_a_changed_file_that_is_not_open_counts(session: Session, tmp_path: Path, folder: str) -> None:
    """The answer comes under the URI that the editor sent, in folders with spaces too."""
    (tmp_path / folder).mkdir()
    other = tmp_path / folder / "other.attn"
    text = 'attn 1\nimport "other.attn"\nvariant v { keep if far() }\n'

    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / folder / "mine.attn", text)
        assert [item.code for item in await editor.diagnostics(uri, 1)] == ["A107"]
        other.write_text("attn 1\nmask far() = kv_idx > 9\n")
        created = types.FileEvent(other.as_uri(), types.FileChangeType.Created)
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([created]))
        assert await editor.next_diagnostics(uri) == []

    session.play(scene)


@pytest.mark.parametrize("allowed", [False, True])
def test_imports_follow_the_command_line(session: Session, tmp_path: Path, allowed: bool) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "other.attn").write_text("attn 1\nmask far() = kv_idx > 9\n")
    text = 'attn 1\nimport "../shared/other.attn"\nvariant v { keep if far() }\n'

    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "own" / "mine.attn", text)
        found = await editor.diagnostics(uri, 1)
        assert {item.code for item in found} == (set() if allowed else {"A115"})
        assert allowed or "--allow-imports DIR" in found[0].message
        place = types.DefinitionParams(**at(uri, text, "far()"))
        target = await editor.client.text_document_definition_async(place)
        assert (target.uri if target else None) == ((tmp_path / "shared" / "other.attn").as_uri() if allowed else None)

    if allowed:
        play(scene, "--allow-imports", str(tmp_path / "shared"))
    else:
        session.play(scene)


@pytest.mark.parametrize("encoding", ["utf-8", pytest.param("utf-32", marks=pytest.mark.slow)])
def test_columns_are_counted_as_the_editor_asks(tmp_path: Path, encoding: str) -> None:
    text = "attn 1\nimport 😀😀\n"
    width = {"utf-8": 4, "utf-32": 1}[encoding]

    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "mine.attn", text)
        first = (await editor.diagnostics(uri, 1))[0]
        assert first.range.start == types.Position(1, 7)
        assert first.range.end.character in (7 + width, 7 + 2 * width)

    play(scene, encodings=[encoding])


def test_fixes_do_what_the_help_says(session: Session, tmp_path: Path) -> None:
    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "mine.attn", WRONG)
        (found,) = await editor.diagnostics(uri, 1)
        document, context = types.TextDocumentIdentifier(uri), types.CodeActionContext([found])
        params = types.CodeActionParams(document, found.range, context)
        (fix,) = await editor.client.text_document_code_action_async(params)
        (change,) = fix.edit.changes[uri]
        assert (fix.title, change.new_text) == ("write `slope[h]`", "slope[h]")
        assert change.range.end.character - change.range.start.character == len("slope[q_idx]")
        elsewhere = types.CodeActionParams(document, types.Range(types.Position(0, 0), types.Position(0, 1)), context)
        assert not await editor.client.text_document_code_action_async(elsewhere)

    session.play(scene)


def test_a_broken_file_keeps_what_it_can(session: Session, tmp_path: Path) -> None:
    text = "attn 1\nimport masks\nvariant v {\n    const w: int = 4\n    keep if window(w\n    score = "

    async def scene(editor: Editor) -> None:
        client, uri = editor.client, editor.open(tmp_path / "mine.attn", text)
        assert await editor.diagnostics(uri, 1)
        document = types.TextDocumentIdentifier(uri)
        options = types.FormattingOptions(tab_size=4, insert_spaces=True)
        assert await client.text_document_formatting_async(types.DocumentFormattingParams(document, options)) is None
        end = types.Position(5, len("    score = "))
        found = await client.text_document_completion_async(types.CompletionParams(document, end))
        assert {"w", "score", "tanh"} <= {item.label for item in found.items}
        target = await client.text_document_definition_async(types.DefinitionParams(**at(uri, text, "window")))
        assert target.uri.endswith("/masks.attn")
        (lens,) = await client.text_document_code_lens_async(types.CodeLensParams(document))
        assert "once the file has no errors" in (await client.code_lens_resolve_async(lens)).command.title

    session.play(scene)


def test_fast_typing_is_checked_once(session: Session, tmp_path: Path) -> None:
    """Only the last text is: the versions between are published never."""

    async def scene(editor: Editor) -> None:
        uri = editor.open(tmp_path / "mine.attn", WRONG)
        await editor.diagnostics(uri, 1)
        for version in range(2, 40):
            editor.change(uri, version, WRONG if version % 2 else RIGHT)
        assert len(await editor.diagnostics(uri, 39)) == 1
        assert editor.versions[uri] == [1, 39]

    session.play(scene)


def test_a_text_that_is_no_file_yet(session: Session, tmp_path: Path) -> None:
    async def scene(editor: Editor) -> None:
        uri = "untitled:Untitled-1"
        document = types.TextDocumentItem(uri, "attn", 1, WRONG)
        editor.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        (found,) = await editor.diagnostics(uri, 1)
        assert [item.location.uri for item in found.related_information] == [uri]
        place = types.DefinitionParams(**at(uri, WRONG, "distance\n}"))
        target = await editor.client.text_document_definition_async(place)
        assert target.uri == uri

    session.play(scene)
