"""The source tree as data: modules with their syntax, imports and the full names they use."""

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Python file: its path from the root with slashes, its text and its syntax."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The dotted name, such as `app.core.clock`."""
        return self.path.removesuffix(".py").replace("/", ".")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all syntax nodes but contexts. `ast.walk` takes twice as long."""
        found: list[ast.AST] = [self.tree]
        for node in found:  # which grows
            for value in vars(node).values():
                if type(value) is list:
                    found += [each for each in value if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                    found.append(value)
        return found

    @cached_property
    def imports(self) -> tuple[tuple[ast.AST, str], ...]:
        """Every import by its full name, wherever it stands in the file."""
        found: list[tuple[ast.AST, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _base(self, node)
                found += ((node, f"{base}.{alias.name}") for alias in node.names)
        return tuple(found)

    def within(self, *places: str) -> bool:
        """Return whether the file is one of these, or in one of these folders."""
        return any(self.path == place or self.path.startswith(place + "/") for place in places)

    def at(self, node: ast.AST, sentence: str) -> str:
        """Return a finding in the form that editors open."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {sentence}"


def parsed(path: str, text: str) -> Module:
    return Module(path=path, text=text, tree=ast.parse(text, path))


@cache
def modules() -> tuple[Module, ...]:
    """Return every Python file of the project, without the copies of `pip install` in build/."""
    paths = [path for top in ("app", "reconcile", "tests") for path in (ROOT / top).rglob("*.py")]
    paths = [path for path in paths if "build" not in path.relative_to(ROOT).parts]
    gc.disable()  # millions of objects, all of which stay
    try:
        found = tuple(
            parsed(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
            for path in sorted(paths)
        )
        gc.freeze()
    finally:
        gc.enable()
    return found


def _base(module: Module, node: ast.ImportFrom) -> str:
    """Return the module that a `from` names, with dots resolved."""
    if not node.level:
        return node.module or ""
    parents = module.path.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports_from(module: Module, *packages: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the imports of these packages or of anything in them."""
    for node, name in module.imports:
        if any(name == package or name.startswith(package + ".") for package in packages):
            yield node, name


def names(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every use of an import in full: `dt.datetime.now` for `import datetime as dt`."""
    known: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{_base(module, node)}.{alias.name}"
    for node in module.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and _first_name(node) in known:
            first, dot, rest = written(node).partition(".")
            if first in known:
                yield node, known[first] + dot + rest


def written(node: ast.AST) -> str:
    """Return an expression as it is written; names and attributes without the slow unparser."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{written(node.value)}.{node.attr}"
    return ast.unparse(node)


def _first_name(node: ast.AST) -> str:
    """Return the name that the expression begins with, without unparsing all of it."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
