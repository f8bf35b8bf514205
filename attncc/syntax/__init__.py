"""Text to AST: `tokens`, then `parser` with the automaton of `grammar`; `builder` turns its tree into `ast`.

`trouble` and `mistakes` explain text that doesn't parse. For `attncc fmt`, the way back is `printer`, `comments`,
`formatter`.
"""
