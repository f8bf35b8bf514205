"""What editors use: the language server `attncc lsp`, and the lexer for Pygments.

In this order: `words` (every word of the language, with a line on each), `text` (lines and columns as editors count
them), `outline` (what a text declares, also a half-written one), `documents` (open files and what was found in them),
`proof` and `figures` (shares of tiles; what a call costs), then what users ask for: `diagnose`, `hover`, `completion`,
`definition`. All of that is plain Python. `server` and `messages` alone need pygls.
"""
