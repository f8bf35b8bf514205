"""Text to AST: `tokens`, then `parser` with the automaton of `grammar`, whose tree `builder` turns into `ast`.

What doesn't fit, and what the parser takes it for, is said by `trouble` and `mistakes`. The way back, for `attncc fmt`:
`printer`, `comments`, `formatter`.
"""
