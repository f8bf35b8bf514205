"""What hatchling puts into the metadata of packages: the README with links that work on a package index, and URLs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_WHERE = (
    "The files that this text names are in the source distribution: `pip download --no-deps --no-binary attncc attncc`."
)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class Metadata(MetadataHookInterface):
    """`repository` is the address of this repository on its code host, empty as long as it has none."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        readme = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(readme, repository)}
        metadata["urls"] = urls(repository)


def urls(repository: str) -> dict[str, str]:
    """The links that a package index shows."""
    pages = {"Repository": "", "Documentation": "/tree/HEAD/docs", "Changelog": "/blob/HEAD/CHANGELOG.md"}
    return {name: repository + path for name, path in pages.items()} if repository else {}


def for_an_index(readme: str, repository: str) -> str:
    """The text with absolute links to files of the repository. Without a repository links become the paths of files,
    pictures are left out, and the text says where the files are."""

    def replaced(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        if repository:
            return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/HEAD/{path})"
        if mark:
            return ""
        return text if text == path else f"{text} ({path})"

    shown = re.sub(r"\n{3,}", "\n\n", _LINK.sub(replaced, readme))
    return shown if repository else f"{shown.rstrip()}\n\n{_WHERE}\n"
