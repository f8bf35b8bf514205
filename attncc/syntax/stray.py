"""What to write in place of a character that has no meaning."""

from __future__ import annotations

STRAY_HELP = {
    '"': 'write `"` at its end, on the same line',
    "!": "write `not`",
    ";": "statements end where the next one begins; remove it",
    "?": "a choice is written `a if condition else b`",
    "'": "there are no strings; a path after `import` stands in double quotes, and words without any",
    ".": "nothing has attributes: a function stands alone, as in `tanh(score)`; "
    'a file to import stands in quotes: `import "masks.attn"`',
    "\\": "a statement may go on over several lines as it is; remove it",
    "\ufeff": "save the file as UTF-8 without a byte order mark",
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "write `-`"),
    **dict.fromkeys("\u201c\u201d\u201e", 'write `"`'),
    "≥": "write `>=`",
    "≤": "write `<=`",
    "≠": "write `!=`",
    "\u00d7": "write `*`",
    "÷": "write `/`",
    "∧": "write `and`",
    "\u2228": "write `or`",
    "¬": "write `not`",
}
