"""The floors of docs/architecture.md and the absence of import circles, enforced by reading every import statement; and
once by running without lark."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "attncc"

FLOORS = {
    "source": 0, "diagnostics": 0, "resources": 0, "library": 0, "threads": 0, "quoting": 0, "operators": 0,
    "notebook": 0, "spec_text": 0, "version": 0,
    "ir": 1, "evaluate": 1, "statements": 1, "syntax": 1, "descales": 1, "first_query": 1, "philox": 1,
    "problem": 2, "semantics": 2,
    "analysis": 3, "reference": 3,
    "schedule": 4, "synthetic": 4, "plausible": 4,
    "kernels": 5, "show": 5,
    "executor": 6, "codegen": 6,
    "runtime": 7,
    "__init__": 8, "__main__": 8, "advice": 8, "api": 8, "balance": 8, "bench": 8, "cache_append": 8, "checks": 8,
    "compiler": 8, "cli": 8, "distributed": 8, "explain": 8, "flex": 8, "import_flex": 8, "integrations": 8, "jax": 8,
    "io_model": 8, "measure": 8,
    "lsp": 8, "machine_code": 8, "package": 8, "partial_results": 8, "settle": 8, "stages": 8, "torch": 8, "tune": 8,
}  # fmt: skip

# What the package that `attncc build` writes may load, and what it must never load.
BUILT_PACKAGE_PARTS = {
    "runtime", "executor", "problem", "schedule", "kernels", "analysis", "ir", "evaluate", "statements", "philox",
    "source", "diagnostics", "resources", "descales", "first_query", "threads", "quoting", "operators", "version",
    "show", "plausible", "synthetic",
}  # fmt: skip
COMPILER_PARTS = {
    "bench",
    "distributed",
    "syntax",
    "semantics",
    "codegen",
    "compiler",
    "machine_code",
    "settle",
    "stages",
    "package",
    "flex",
    "integrations",
    "import_flex",
    "api",
    "cache_append",
    "checks",
    "cli",
    "lsp",
    "tune",
}
COMPILER_LIBRARIES = {"lark", "jinja2", "click", "rich"}

FILES = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
MODULES = sorted(path.with_suffix("") for path in FILES if path.parts[0] != "_data")


def imports(module: Path, for_types: bool = True, package: Path = PACKAGE) -> Iterable[tuple[str, ...]]:
    """Every module that a file imports, anywhere in it, as its absolute dotted parts."""
    return _of_attncc(module, for_types) if package == PACKAGE else _imports(module, for_types, package)


@cache
def _of_attncc(module: Path, for_types: bool) -> tuple[tuple[str, ...], ...]:
    return tuple(_imports(module, for_types, PACKAGE))


def _imports(module: Path, for_types: bool, package: Path) -> Iterator[tuple[str, ...]]:
    tree = ast.parse((package / module).with_suffix(".py").read_text(encoding="utf-8"))
    for node in _nodes(tree, for_types):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (package.name, *module.parts)[: -node.level] if node.level else ()
            target = (*base, *(node.module or "").split(".")) if node.module else base
            yield from ((*target, alias.name) for alias in node.names)


def _nodes(root: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    """All nodes below; unless `for_types`, without what stands under `if TYPE_CHECKING:`, which never runs."""
    if not for_types and isinstance(root, ast.If) and ast.unparse(root.test) == "TYPE_CHECKING":
        return
    yield root
    for child in ast.iter_child_nodes(root):
        yield from _nodes(child, for_types)


def own_parts(module: Path, for_types: bool = True) -> set[str]:
    """The parts of attncc (first level) that a file imports; "__init__" stands for lazy names of the package itself."""
    found = {name[1:] for name in imports(module, for_types) if name[0] == "attncc"}
    return {name[0] if name and name[0] in FLOORS else "__init__" for name in found}


def import_graph(package: Path) -> dict[str, set[str]]:
    """Each module of a package, and those that its import statements name: at its top, inside functions, and under
    `if TYPE_CHECKING:`, since two modules that need each other's types can't be read one after the other either.

    Importing `a.b` also runs `a/__init__.py`, which no statement names: that doesn't count.
    """
    files = [path.relative_to(package).with_suffix("") for path in package.rglob("*.py") if "_data" not in path.parts]
    names = {file: (package.name, *(file.parent if file.name == "__init__" else file).parts) for file in files}
    modules = set(names.values())
    graph = {}
    for file, name in names.items():
        targets = (target if target in modules else target[:-1] for target in imports(file, package=package))
        graph[".".join(name)] = {".".join(target) for target in targets if target in modules and target != name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan, 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        open_nodes.append(node)
        for target in graph[node]:
            if target not in order:
                visit(target)
            if target in open_nodes:
                lowest[node] = min(lowest[node], lowest[target])
        if lowest[node] == order[node]:
            at = open_nodes.index(node)
            component = open_nodes[at:]
            del open_nodes[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph(PACKAGE)
    assert len(graph) == len(MODULES)
    assert circles(graph) == []


CLOSING = {
    "at_the_top": "from .b import y\n",
    "inside_a_function": "def f():\n    from .. import below\n    from ..below.b import y\n",
    "for_types": "if TYPE_CHECKING:\n    import package.below.b\n",
}


@pytest.mark.parametrize("closing", CLOSING.values(), ids=CLOSING)
def test_a_circle_is_found(closing: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "below").mkdir(parents=True)
    texts = {"__init__": "", "top": "from .below.a import x\n", "below/__init__": ""}
    texts |= {"below/a": closing, "below/b": "from . import c\n", "below/c": "from .a import x\nimport os.path\n"}
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    assert circles(import_graph(package)) == [[f"package.below.{name}" for name in "abc"]]
    (package / "below" / "a.py").write_text("", encoding="utf-8")
    assert circles(import_graph(package)) == []


def test_every_module_has_a_floor() -> None:
    assert {module.parts[0] for module in MODULES} <= set(FLOORS)


def test_imports_stay_on_their_floor_or_below() -> None:
    wrong = [
        f"attncc/{module}.py (floor {FLOORS[module.parts[0]]}) imports {name} (floor {FLOORS[name]})"
        for module in MODULES
        for name in sorted(own_parts(module))
        if FLOORS[name] > FLOORS[module.parts[0]]
    ]
    assert not wrong


def test_only_runtime_imports_cupy() -> None:
    others = [module for module in MODULES if module.parts[0] != "runtime"]
    assert not [str(module) for module in others if "cupy" in {name[0] for name in imports(module)}]


def test_built_packages_need_no_compiler() -> None:
    """`torch` and `jax` go with built packages too, but can't be imported without these, as all the others can."""
    built = [module for module in MODULES if module.parts[0] in BUILT_PACKAGE_PARTS | {"torch", "jax"}]
    found = {
        str(module): ({name[0] for name in imports(module)} & COMPILER_LIBRARIES)
        | (own_parts(module, for_types=False) & COMPILER_PARTS)
        for module in built
    }
    assert built and not {module: names for module, names in found.items() if names}


# Blocks the libraries by name, imports every module that a built package may load, and looks at what came along.
ISOLATED = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
loaded = [name for name in sys.modules if name.startswith("attncc.") and name.split(".")[1] in {parts!r}]
assert not loaded, loaded
"""


def run_isolated(modules: list[str], blocked: set[str]) -> None:
    code = ISOLATED.format(modules=modules, blocked=sorted(blocked), parts=sorted(COMPILER_PARTS))
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_built_package_parts_load_without_compiler_libraries() -> None:
    parts = [m for m in MODULES if m.parts[0] in BUILT_PACKAGE_PARTS and m.name != "__init__"]
    heavy = {"cupy", "torch", "ml_dtypes", "matplotlib", "hypothesis"}  # lazy, so none may be needed at import
    run_isolated([".".join(("attncc", *module.parts)) for module in parts], COMPILER_LIBRARIES | heavy)


def test_importing_attncc_is_lazy() -> None:
    run_isolated(["attncc"], COMPILER_LIBRARIES | {"numpy", "cupy", "torch", "ml_dtypes"})


# What forward calls on a GPU load, and what none of them needs: an import takes as long as hundreds of calls.
FORWARD = """
import sys
import attncc.runtime.kernel, attncc.runtime.store.package_store
import attncc.runtime.frameworks.torch_arrays, attncc.runtime.frameworks.cupy_arrays
from attncc.kernels.registry import find
assert find("hopper", "forward") and find("portable", "forward") and find("portable", "decode")
unneeded = {
    "analysis.mask.tiles", "analysis.score.gradient", "analysis.score.score_form", "runtime.call.backward_launch",
    "executor", "kernels.candidates", "kernels.guess", "kernels.hopper_backward", "kernels.legality",
    "kernels.portable_backward", "kernels.instruction_cost",
}
loaded = sorted(name for name in unneeded if f"attncc.{name}" in sys.modules)
assert not loaded, loaded
"""


def test_a_first_call_loads_no_analysis_and_no_backward_pass() -> None:
    command = [sys.executable, "-c", FORWARD]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
