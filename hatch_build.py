"""What hatchling puts into the metadata of packages: the README with links that work on a package index, and URLs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

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
    """The text with absolute links to files of the repository; without a repository links become their text, and
    pictures are left out."""

    def replaced(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        if repository:
            return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/HEAD/{path})"
        return "" if mark else text

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(replaced, readme))
