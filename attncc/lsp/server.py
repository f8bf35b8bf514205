"""The language server: `attncc lsp`. pygls speaks the protocol on stdin and stdout; this says what is answered.

Work is done in threads that nothing waits for, so that the server goes on reading while a mask is analysed. Texts are
synchronised whole: files are small, and lines are counted in one way.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ..diagnostics import AttnccError
from ..semantics.reach import Folders
from ..source import Span
from ..syntax.formatter import format_source
from ..threads import DaemonThreads
from ..version import __version__
from .completion import completion
from .definition import definition
from .diagnose import findings
from .documents import Document, Documents
from .hover import hover
from .messages import Messages
from .text import Places

T = TypeVar("T")

PAUSE = 0.15  # seconds without typing before a text is checked
THREADS = 2
EXPLAIN = "attncc.explain"  # the command of code lenses


def make_server(allow_imports: Folders = ()) -> Any:
    """A server that isn't started yet."""
    server = LanguageServer("attncc", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
    session = Session(server, Documents(allow_imports))
    for method, function in session.notifications().items():
        _register(server.feature(method), function)
    for method, function, options in session.requests():
        _register(server.feature(method, options), function)
    _register(server.command(EXPLAIN), session.explain)
    return server


def _register(decorator: Any, function: Callable[..., Awaitable[Any]]) -> None:
    """pygls sets attributes on what it registers, which methods don't take."""

    async def handler(*params: Any) -> Any:
        return await function(*params)

    decorator(handler)


class Session:
    """The open documents of one editor, and its answers."""

    def __init__(self, server: Any, documents: Documents) -> None:
        self.server = server
        self.documents = documents
        self._threads = DaemonThreads(THREADS)
        self._checks: dict[Path, asyncio.Task[None]] = {}

    def notifications(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        return {
            types.TEXT_DOCUMENT_DID_OPEN: self.opened,
            types.TEXT_DOCUMENT_DID_CHANGE: self.changed,
            types.TEXT_DOCUMENT_DID_SAVE: self.saved,
            types.TEXT_DOCUMENT_DID_CLOSE: self.closed,
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES: self.files_changed,
        }

    def requests(self) -> list[tuple[str, Callable[..., Awaitable[Any]], Any]]:
        return [
            (types.TEXT_DOCUMENT_HOVER, self.hover, None),
            (types.TEXT_DOCUMENT_COMPLETION, self.completion, types.CompletionOptions(trigger_characters=[":", "["])),
            (types.TEXT_DOCUMENT_DEFINITION, self.definition, None),
            (types.TEXT_DOCUMENT_FORMATTING, self.format, None),
            (types.TEXT_DOCUMENT_CODE_ACTION, self.fixes, types.CodeActionOptions([types.CodeActionKind.QuickFix])),
            (types.TEXT_DOCUMENT_CODE_LENS, self.lenses, types.CodeLensOptions(resolve_provider=True)),
            (types.CODE_LENS_RESOLVE, self.figures, None),
        ]

    # ---------------------------------------------------------------- files

    async def opened(self, params: Any) -> None:
        document = params.text_document
        self._put(document.uri, document.version, document.text)
        self._check_later(document.uri, 0)

    async def changed(self, params: Any) -> None:
        uri = params.text_document.uri
        self._put(uri, params.text_document.version, self.server.workspace.get_text_document(uri).source)
        self._check_later(uri, PAUSE)

    async def saved(self, params: Any) -> None:
        self._check_later(params.text_document.uri, 0, again=True)

    async def closed(self, params: Any) -> None:
        uri = params.text_document.uri
        if running := self._checks.pop(_path(uri), None):
            running.cancel()
        self.documents.close(_path(uri))
        self._publish(uri, None, [])
        self._check_again(self.documents.importing(_path(uri)))

    async def files_changed(self, params: Any) -> None:
        """Files that aren't open: others may import them, or find now what wasn't there."""
        self._check_again(self.documents.all())

    def _put(self, uri: str, version: int, text: str) -> None:
        self.documents.put(_path(uri), version, text)

    # ---------------------------------------------------------------- diagnostics

    def _check_later(self, uri: str, pause: float, again: bool = False) -> None:
        """Once nothing was typed for so long. `again`: though the text is as it was."""
        path = _path(uri)
        if running := self._checks.pop(path, None):
            running.cancel()
        self._checks[path] = asyncio.get_running_loop().create_task(self._check(uri, pause, again))

    async def _check(self, uri: str, pause: float, again: bool) -> None:
        await asyncio.sleep(pause)
        document = self.documents.find(_path(uri))
        if document is None:
            return
        if again:
            await self._work(self.documents.forget, document)
        found = await self._work(self._diagnose, document)
        if found is None or self.documents.find(document.path) is not document:  # a newer version has come
            return
        self._publish(uri, document.version, found)
        if not again:
            self._check_again(self.documents.importing(document.path))

    def _diagnose(self, document: Document) -> list[Any]:
        messages, checked = self._messages(), self.documents.check(document)
        return [messages.diagnostic(item) for item in findings(self.documents, document, checked)]

    def _check_again(self, documents: list[Document]) -> None:
        """After a file that these import."""
        for document in documents:
            self._check_later(self._address(document.path), PAUSE, again=True)

    def _publish(self, uri: str, version: int | None, found: list[Any]) -> None:
        self.server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=found)
        )

    # ---------------------------------------------------------------- requests

    async def hover(self, params: Any) -> Any:
        return await self._at(params, hover, self._messages().hover)

    async def completion(self, params: Any) -> Any:
        return await self._at(params, completion, self._messages().completion)

    async def definition(self, params: Any) -> Any:
        return await self._at(params, definition, self._messages().location)

    async def format(self, params: Any) -> Any:
        """None, which leaves the text as it is, while it has syntax errors."""
        document = self.documents.find(_path(params.text_document.uri))
        return await self._work(self._formatted, document) if document else None

    def _formatted(self, document: Document) -> Any:
        source = document.source
        try:
            text = format_source(source)
        except AttnccError:
            return None
        return [] if text == source.text else self._messages().replaced(Span(source, 0, len(source.text)), text)

    async def fixes(self, params: Any) -> Any:
        """The edits that help texts ask for, of the diagnostics that the range touches."""
        document = self.documents.find(_path(params.text_document.uri))
        return await self._work(self._fixes, document, params) if document else None

    def _fixes(self, document: Document, params: Any) -> list[Any]:
        places, messages, asked = Places(document.source, self._encoding()), self._messages(), params.range
        start = places.offset(asked.start.line, asked.start.character)
        end = places.offset(asked.end.line, asked.end.character)
        found = findings(self.documents, document, self.documents.check(document))
        touched = [item for item in found if item.span.start <= end and start <= item.span.end]
        return [messages.fix(params.text_document.uri, item, item.edit) for item in touched if item.edit]

    async def lenses(self, params: Any) -> Any:
        """One above each variant; its figures are counted when the editor shows it."""
        uri = params.text_document.uri
        document = self.documents.find(_path(uri))
        variants = document.outline.named("variant").values() if document else ()
        return [self._messages().lens(uri, declared.at) for declared in variants]

    async def figures(self, lens: Any) -> Any:
        uri, variant = lens.data["uri"], lens.data["variant"]
        lines = await self._work(self._figures, uri, variant) or ["not known: the server's log says why"]
        lens.command = types.Command(title=lines[0], command=EXPLAIN, arguments=[uri, variant])
        return lens

    def _figures(self, uri: str, variant: str) -> list[str]:
        from . import figures  # loads much, and only those who look at lenses need it

        document = self.documents.find(_path(uri))
        program = self.documents.check(document).program if document else None
        if program is None or variant not in {item.name for item in program.variants}:
            return [f"{figures.CALL}: known once the file has no errors"]
        return figures.of_variant(program, variant)

    async def explain(self, uri: str, variant: str) -> Any:
        """The command of a lens: all figures, as a message in the editor's log."""
        lines = await self._work(self._figures, uri, variant) or []
        text = "\n".join([f"{variant}, {lines[0]}", *(f"  {line}" for line in lines[1:])]) if lines else ""
        self._log(text, types.MessageType.Info)
        return text

    # ---------------------------------------------------------------- work

    async def _at(self, params: Any, ask: Callable[[Documents, Document, int], T], tell: Callable[[Any], Any]) -> Any:
        """What is asked of a place; None where there is nothing to say."""
        document = self.documents.find(_path(params.text_document.uri))
        if document is None:
            return None
        place = params.position
        offset = Places(document.source, self._encoding()).offset(place.line, place.character)
        found = await self._work(ask, self.documents, document, offset)
        return None if found is None else tell(found)

    async def _work(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """In a thread. A mistake in attncc goes to the log: the editor isn't to lose its server for it."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments))
        except Exception as error:
            told = traceback.format_exc() if os.environ.get("ATTNCC_DEBUG") else f"{type(error).__name__}: {error}"
            self._log(f"internal error in {function.__name__}: {told}", types.MessageType.Error)
            return None

    def _log(self, text: str, kind: Any) -> None:
        self.server.window_log_message(types.LogMessageParams(type=kind, message=text))

    def _messages(self) -> Messages:
        return Messages(self._encoding(), self._address)

    def _encoding(self) -> str:
        encoding = self.server.workspace.position_encoding
        return str(getattr(encoding, "value", encoding) or "utf-16")

    def _address(self, path: Path) -> str:
        """As the editor has it open, else that of the file."""
        whole = os.path.normpath(path.absolute())
        opened = [text.uri for text in self.server.workspace.text_documents.values()]  # the keys are unquoted
        own = (uri for uri in opened if os.path.normpath(_path(uri).absolute()) == whole)
        return next(own, None) or Path(whole).as_uri()


def _path(uri: str) -> Path:
    """Of a text that is no file yet, a name in the working folder, whose files it may import."""
    path = to_fs_path(uri)
    return Path(path) if path else Path(uri.rpartition(":")[2].lstrip("/") or "untitled")
