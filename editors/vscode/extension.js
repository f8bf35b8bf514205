// Starts `attncc lsp` and connects VS Code with it. All that editors ask is answered there.
"use strict";

const path = require("path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function serverOptions() {
  const settings = vscode.workspace.getConfiguration("attn");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const here = (file) => (folder && /[\\/]/.test(file) ? path.resolve(folder, file) : file);
  const folders = settings.get("allowImports").map((name) => path.resolve(folder ?? ".", name));
  const args = ["lsp", ...folders.flatMap((name) => ["--allow-imports", name])];
  return { command: here(settings.get("command")), args, options: { cwd: folder } };
}

// The figures that a click on a code lens asks for stand in the server's log.
async function executeCommand(command, args, next) {
  const result = await next(command, args);
  client?.outputChannel.show(true);
  return result;
}

async function start() {
  const clientOptions = {
    documentSelector: [{ language: "attn" }],
    middleware: { executeCommand },
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.attn") },
  };
  client = new LanguageClient("attn", "attn", serverOptions(), clientOptions);
  try {
    await client.start();
  } catch (error) {
    const install = "pip install 'attncc[lsp]'";
    vscode.window.showErrorMessage(`attncc lsp doesn't start (${error.message}). ${install}, or set attn.command.`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.needsStop()) {
    await running.stop();
  }
}

async function restart() {
  await stop();
  await start();
}

exports.activate = async (context) => {
  context.subscriptions.push(vscode.commands.registerCommand("attn.restart", restart));
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("attn") && restart()),
  );
  await start();
};

exports.deactivate = stop;
