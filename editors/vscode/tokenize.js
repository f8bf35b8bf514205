// Tokenizes files with VS Code's own TextMate engine: `node tokenize.js FILE...` prints, as JSON, a list for each file
// of [text, innermost scope] pairs. The tests compare them with the words of the language.
"use strict";

const fs = require("fs");
const path = require("path");
const oniguruma = require("vscode-oniguruma");
const { INITIAL, Registry, parseRawGrammar } = require("vscode-textmate");

const file = path.join(__dirname, "syntaxes", "attn.tmLanguage.json");

async function main() {
  await oniguruma.loadWASM(fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm")).buffer);
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(file, "utf-8"), file),
  });
  const grammar = await registry.loadGrammar("source.attn");
  const tokenized = process.argv.slice(2).map((name) => tokens(grammar, fs.readFileSync(name, "utf-8")));
  process.stdout.write(JSON.stringify(tokenized));
}

function tokens(grammar, text) {
  let state = INITIAL;
  const found = [];
  for (const line of text.split("\n")) {
    const result = grammar.tokenizeLine(line, state);
    state = result.ruleStack;
    for (const token of result.tokens) {
      found.push([line.slice(token.startIndex, token.endIndex), token.scopes.at(-1)]);
    }
  }
  return found;
}

main();
