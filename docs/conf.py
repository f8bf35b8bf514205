"""Settings of the documentation's site: `sphinx-build -W docs build/site`, with `pip install '.[docs]'`.

Pages are plain Markdown: their links work on a code host, too. `index.md`, `api.rst` and this file are the site's own.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from attncc.version import __version__

project = "attncc"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"attncc {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 3  # `#anchor` names a heading, as on a code host
highlight_language = "text"

default_role = "code"  # `x` in a docstring
autodoc_member_order = "bysource"
autodoc_mock_imports = ["attncc.jax.primitives", "cupy", "jax", "torch", "transformers"]
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 100


def site_only(app: Any, page: str, text: list[str]) -> None:
    """What pages have on the site alone. The first page is the README and behind it `index.md`, which is the menu."""
    if page.startswith("errors/"):  # `errors.md` lists them: in the menu they would be more than all others
        text[0] = f"---\norphan: true\n---\n{text[0]}"
    if page == "index":
        readme = Path(__file__).parent.parent / "README.md"
        app.env.note_dependency(str(readme))  # a later build reads it again
        seen = re.sub(r"\]\((?!https?:)", "](../", readme.read_text("utf-8")).replace("](../docs/", "](")
        text[0] = f"{seen}\n{text[0]}"


def code_blocks(*event: Any) -> None:
    """Indented paragraphs of a docstring are Python."""
    lines: list[str] = event[-1]
    marked: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("    ") and not before.strip() and not (marked and marked[-1].startswith("    ")):
            marked += [".. code-block:: python", ""]
        marked.append(line)
    lines[:] = marked


def sizes(app: Any, doctree: Any) -> None:
    """Tells browsers the sizes of pictures: pages don't move while these load, so a link finds its place."""
    for picture in doctree.findall(nodes.image):
        content = (Path(app.srcdir) / picture["uri"]).read_bytes()
        width, height = struct.unpack(">II", content[16:24])  # as all PNG files begin
        picture["width"], picture["height"] = str(width), str(height)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", site_only)
    app.connect("doctree-read", sizes)
    app.connect("autodoc-process-docstring", code_blocks)
    try:
        get_lexer_by_name("attn")
    except ClassNotFound:  # attncc isn't installed, only on the path
        app.add_lexer("attn", TextLexer)
