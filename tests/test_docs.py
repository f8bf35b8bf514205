"""Pages of docs/ name what there is: files, links, the floors of the compiler."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import click

from attncc.cli import COMMANDS
from attncc.cli import attncc as command_line
from attncc.kernels.crossings import Crossings
from tests.test_layering import FLOORS

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("attncc", "benchmarks", "docs", "editors", "examples", "grammars", "specs", "templates", "tests")
FILES = [path.relative_to(ROOT).parts for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
ENDS = {"/".join(parts[place:]) for parts in FILES for place in range(len(parts))}  # of their paths
# The notebook keeps the names of its time; each page of docs/errors/ shows files of its own.
PAGES = sorted((ROOT / "docs").glob("*.md"))
OF_USERS = {"example.py", "masks.py", "mine.attn"}  # files that examples speak of


def text_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def missing_files(text: str) -> list[str]:
    """Names in quotes that look like files of the repository, and are no end of the path of one."""
    quoted = [word for quote in re.findall(r"`([^`]*)`", text) for word in quote.split()]
    paths = [word for word in quoted if re.fullmatch(r"[\w./-]+\.(py|cuh|j2|cpp|hpp|json|lark|attn|md)", word)]
    return [path for path in paths if path not in OF_USERS and path not in ENDS]


def test_powers_stand_in_quotes() -> None:
    """`2**30 - 2**17` without them is 230 - 217, in bold."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        plain = re.sub(r"`[^`]*`|^    .*", "", text_of(page), flags=re.M)
        assert [line for line in plain.splitlines() if re.search(r"\w\*\*\w", line)] == [], page


def test_files_exist() -> None:
    assert {page.name: missing for page in PAGES if (missing := missing_files(text_of(page)))} == {}


def test_a_missing_file_is_found() -> None:
    assert missing_files("`syntax/parser.py`, `nobody/parser.py` and `gone.cuh`") == ["nobody/parser.py", "gone.cuh"]


def test_files_that_the_code_speaks_of_exist() -> None:
    """In what users and engineers read of it: comments, docstrings, messages."""
    sources = {path: missing_files(path.read_text(encoding="utf-8")) for path in (ROOT / "attncc").rglob("*.py")}
    written = {"FILE.py", "manifest.json"}  # users' own, and a package's
    assert {path: missing for path, names in sources.items() if (missing := [*{*names} - written])} == {}


def linked(text: str) -> list[str]:
    """What its links and pictures lead to, other than pages of the web."""
    return re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *PAGES, *(ROOT / "docs" / "notebook").glob("*.md")):
        for target in linked(text_of(page)):
            path, _, anchor = target.partition("#")
            file = page if not path else page.parent / path
            assert file.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(file), f"{page}: {target}"


@cache
def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_floors_are_those_that_are_enforced() -> None:
    rows = re.findall(r"^\| (\d) \| (.*?) \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.M)
    found = {name.rstrip("/"): int(floor) for floor, names in rows for name in re.findall(r"`(.*?)`", names)}
    assert found == {name: floor for name, floor in FLOORS.items() if not name.startswith("__")}


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\.\. auto(?:function|class|exception|module):: ([\w.]+)", page, re.M))
    homes = {"attncc.flex": "attncc"}  # users have these names from another module
    for module in ("attncc", "attncc.torch", "attncc.jax", "attncc.flex", "attncc.distributed"):
        if module not in shown:
            assert {f"{homes.get(module, module)}.{name}" for name in public_names(module)} <= shown, module


def public_names(module: str) -> list[str]:
    """`__all__`, without the imports that `attncc.torch` and `attncc.jax` need."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError(f"{module} has no __all__")


def test_the_page_of_errors_lists_all_of_them() -> None:
    listed = re.findall(
        r"^- \[(A\d+)\]\(errors/\1\.md\): (.*)$", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.M
    )
    titles = [path.read_text("utf-8").split("\n")[0] for path in sorted((ROOT / "docs" / "errors").glob("A*.md"))]
    assert [f"# {code}: {title}" for code, title in listed] == titles


def test_the_menu_of_the_site_has_every_page() -> None:
    menu = re.findall(r"^[\w/-]+$", (ROOT / "docs" / "index.md").read_text("utf-8"), re.M)
    assert sorted({"index", *menu} - {"api", "notebook/README"}) == sorted(page.stem for page in PAGES)


def options(command: str) -> set[str]:
    found = command_line.get_command(click.Context(command_line), command)
    assert found is not None
    return {option for item in found.params for option in item.opts}


def test_options_of_commands_exist() -> None:
    known = {name: options(name) for name in COMMANDS}
    for page in (ROOT / "README.md", *PAGES, *(ROOT / "docs" / "errors").glob("*.md")):
        text = page.read_text(encoding="utf-8").replace("\\\n", "")
        for name, rest in re.findall(rf"\battncc ({'|'.join(COMMANDS)})\b([^`\n]*)", text):
            assert set(re.findall(r"(?<!\S)--[\w-]+", rest)) <= known[name], f"{page}: attncc {name}{rest}"


def test_specs_with_portable_kernels_on_hopper_are_named() -> None:
    """By the table of tiles that compiling found; a spec whose schedule asks for portable kernels isn't one."""
    tiles = json.loads((ROOT / "attncc" / "kernels" / "known_tiles.json").read_text("utf-8"))
    kernel = re.compile(r"(\w+)_(?:forward|backward)_bf16_d(?:64|128|256)_sm_90a")
    found = {
        match[1]
        for name, (_, tile) in tiles.items()
        if tile.startswith("portable") and (match := kernel.fullmatch(name))
    }
    section = (ROOT / "docs" / "hopper.md").read_text("utf-8").partition("## Where the portable kernels run instead")[2]
    specs = {path.stem for path in (ROOT / "specs").glob("*.attn")}
    assert specs & {*re.findall(r"`(\w+)`", section)} == found - {"flash_attention_1"}


def test_when_decode_runs_is_told_as_it_is() -> None:
    points = Crossings()
    said = " ".join((ROOT / "docs" / "language.md").read_text("utf-8").split())
    assert f"from {points.split_keys} keys on ({points.uneven_split_keys} where a mask lets some queries" in said
    assert f"less than {100 / points.row_block_cost:.0f} % of the GPU" in said
