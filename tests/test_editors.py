"""Highlighting: the TextMate grammar and the Pygments lexer know every word, and read every shipped file."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Token

from attncc.lsp.pygments_lexer import AttnLexer
from attncc.lsp.words import Word, of_sort, words
from attncc.syntax.grammar import keywords
from attncc.version import __version__

ROOT = Path(__file__).resolve().parent.parent
EXTENSION = ROOT / "editors" / "vscode"
SPECS = sorted((ROOT / "specs").glob("*.attn"))

# Where a word of each sort stands, so that it is known by its place.
PLACES = {
    "tag": "input x: f32[{}]", "property": "input x: i32[pos] {}", "normalizer": "normalize {}",
    "knob": "schedule s for v on sm_80 {{ {} = 1 }}", "setting": "schedule s for v on sm_80 {{ skip = {} }}",
    "lengths": "schedule s for v on sm_80 for {} 1.. {{}}",
    "pass": "schedule s for v {} on sm_80 {{}}", "target": "schedule s for v on {} {{}}", "dtype": "input x: {}",
    "type": "const c: {} = 1", "function": "let a = {}(b)", "reduction": "let a = {}(b for c in range(3))",
    "value": "let a = 1 + {}", "constant": "let a = {}",
}  # fmt: skip


def placed(word: Word) -> str:
    return PLACES.get(word.sort, "{}").format(word.name)


# -------------------------------------------------------------------- Pygments


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_pygments_reads_every_shipped_file(path: Path) -> None:
    text = path.read_text("utf-8")
    tokens = list(AttnLexer(stripnl=False).get_tokens(text))
    assert [value for kind, value in tokens if kind in Error or kind is Token] == []
    assert "".join(value for _, value in tokens) == text
    for kind, value in tokens:
        assert value not in keywords() or kind in Keyword or kind in Operator or kind in Name.Builtin, value
        assert not value.startswith("#") or kind in Comment
        assert not value.isdigit() or kind in Number


@pytest.mark.parametrize("word", words(), ids=lambda word: f"{word.sort} {word.name}")
def test_pygments_knows_every_word(word: Word) -> None:
    kinds = {kind for kind, value in AttnLexer().get_tokens(placed(word)) if value == word.name}
    assert kinds and not kinds & {Name, Error, Token.Text}


def test_names_that_no_sort_has_are_names() -> None:
    """What isn't reserved may be a name elsewhere."""
    found = dict(reversed(pair) for pair in AttnLexer().get_tokens("let a = stages + auto + backward + learnable"))
    assert {found[name] for name in ("stages", "auto", "backward", "learnable")} == {Name}


def test_pygments_finds_the_lexer_by_its_entry_point() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["pygments.lexers"]
    module, name = points["attn"].split(":")
    assert getattr(import_module(module), name) is AttnLexer
    assert AttnLexer.aliases == ["attn"] and AttnLexer.filenames == ["*.attn"]


# -------------------------------------------------------------------- TextMate

BY_PLACE = ("pass", "target", "knob", "setting")  # sorts that the grammar knows by their place in a schedule


def rules(node: Any) -> list[str]:
    """Every pattern below."""
    if isinstance(node, dict):
        own = [node[key] for key in ("match", "begin", "end") if key in node]
        return own + list(chain.from_iterable(map(rules, node.values())))
    return list(chain.from_iterable(map(rules, node))) if isinstance(node, list) else []


def test_the_textmate_grammar_is_made_from_the_words() -> None:
    spec = importlib.util.spec_from_file_location("make_textmate", ROOT / "editors" / "make_textmate.py")
    make_textmate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_textmate)
    made = make_textmate.text()
    assert make_textmate.FILE.read_text("utf-8") == made, "run python editors/make_textmate.py"


def test_its_patterns_compile_and_hold_every_word() -> None:
    grammar = json.loads((EXTENSION / "syntaxes" / "attn.tmLanguage.json").read_text("utf-8"))
    patterns = rules(grammar)
    assert len(patterns) > 30
    listed = {word for pattern in patterns if re.compile(pattern) for word in re.findall(r"\w+", pattern)}
    assert [word.name for word in words() if word.name not in listed and word.sort not in BY_PLACE] == []


def test_the_extension_is_of_this_version_and_names_files_that_exist() -> None:
    package = json.loads((EXTENSION / "package.json").read_text("utf-8"))
    assert package["version"] == __version__
    (language,), (grammar,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    for file in (package["main"], language["configuration"], grammar["path"]):
        assert (EXTENSION / file).is_file()
    assert grammar["language"] == language["id"] and language["extensions"] == [".attn"]
    assert json.loads((EXTENSION / language["configuration"]).read_text("utf-8"))["comments"]["lineComment"] == "#"
    settings = set(re.findall(r'settings\.get\("(\w+)"\)', (EXTENSION / package["main"]).read_text("utf-8")))
    assert {f"attn.{name}" for name in settings} == set(package["contributes"]["configuration"]["properties"])


needs_engine = pytest.mark.skipif(
    shutil.which("node") is None or not (EXTENSION / "node_modules" / "vscode-textmate").is_dir(),
    reason="needs node, and `npm install` in editors/vscode",
)


def tokenized(*files: Path) -> list[list[tuple[str, str]]]:
    command = ["node", EXTENSION / "tokenize.js", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [[(text, scope) for text, scope in tokens] for tokens in json.loads(done.stdout)]


@needs_engine
def test_the_textmate_engine_reads_every_shipped_file() -> None:
    known = {word.name for word in of_sort("value", "function", "dtype", "type")} | keywords()
    for path, tokens in zip(SPECS, tokenized(*SPECS), strict=True):
        assert "".join(part for part, _ in tokens) == path.read_text("utf-8").replace("\n", "")
        for part, scope in tokens:
            plain = scope.startswith("source")  # nothing in particular: signs, and names of the file
            assert not plain or not known & set(re.findall(r"[A-Za-z_]\w*", part))
            assert not part.strip().startswith("#") or scope == "comment.line.number-sign.attn"


@needs_engine
def test_the_textmate_engine_knows_every_word(tmp_path: Path) -> None:
    files = []
    for number, word in enumerate(words()):
        files.append(tmp_path / f"{number}.attn")
        files[-1].write_text(f"{placed(word)}\n", encoding="utf-8")
    for word, tokens in zip(words(), tokenized(*files), strict=True):
        scopes = {scope for text, scope in tokens if re.search(rf"\b{word.name}\b", text)}
        assert scopes and not [scope for scope in scopes if scope.startswith("source")], (word, tokens)


# VS Code's own modules are stood in for: what the extension starts is printed.
STARTED = """
const Module = require("module");
const settings = { command: process.argv[2], allowImports: ["../shared", "/other"] };
const disposable = { dispose() {} };
const vscode = {
  workspace: {
    getConfiguration: () => ({ get: (name) => settings[name] }),
    workspaceFolders: [{ uri: { fsPath: "/work space" } }],
    createFileSystemWatcher: () => disposable,
    onDidChangeConfiguration: () => disposable,
  },
  commands: { registerCommand: () => disposable },
  window: { showErrorMessage: (text) => process.stdout.write(text) },
};
class LanguageClient {
  constructor(id, name, server, client) { Object.assign(this, { server, client }); }
  async start() {
    if (settings.command === "nothing") throw new Error("not found");
    process.stdout.write(JSON.stringify({ ...this.server, selector: this.client.documentSelector }));
  }
}
const load = Module._load;
const stubs = { vscode, "vscode-languageclient/node": { LanguageClient } };
Module._load = (name, ...rest) => stubs[name] ?? load(name, ...rest);
require(process.argv[1]).activate({ subscriptions: [] });
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    ("command", "started"), [("attncc", "attncc"), (".venv/bin/attncc", "/work space/.venv/bin/attncc")]
)
def test_what_the_extension_starts(command: str, started: str) -> None:
    found = json.loads(_activated(command))
    assert found["command"] == started
    assert found["args"] == ["lsp", "--allow-imports", "/shared", "--allow-imports", "/other"]
    assert found["options"] == {"cwd": "/work space"} and found["selector"] == [{"language": "attn"}]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_extension_says_what_to_install() -> None:
    assert "pip install 'attncc[lsp]'" in _activated("nothing")


def _activated(command: str) -> str:
    line = ["node", "-e", STARTED, str(EXTENSION / "extension.js"), command]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout
