"""The source tree as data: modules with their syntax, imports and the full names they use."""

from __future__ import annotations

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

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of its syntax: every rule looks through it."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports(self) -> tuple[tuple[ast.AST, str], ...]:
        """Every imported thing by its full name, wherever in the file the import stands."""
        found: list[tuple[ast.AST, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _base(self, node)
                found += ((node, f"{base}.{alias.name}") for alias in node.names)
        return tuple(found)

    def within(self, *places: str) -> bool:
        """Whether the file is one of these, or in one of these folders."""
        return any(self.path == place or self.path.startswith(place + "/") for place in places)

    def at(self, node: ast.AST, sentence: str) -> str:
        """A finding in the form that editors open."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {sentence}"


def parsed(path: str, text: str) -> Module:
    """A module from its text."""
    return Module(path=path, text=text, tree=ast.parse(text, path))


@cache
def modules() -> tuple[Module, ...]:
    """Every Python file of the project, without the copies that `pip install` leaves in build/."""
    paths = [path for top in ("app", "reconcile", "tests") for path in (ROOT / top).rglob("*.py")]
    paths = [path for path in paths if "build" not in path.relative_to(ROOT).parts]
    gc.disable()  # millions of objects, all of which stay: no collection needs to look at them
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
    """The module that a `from` names, dots resolved."""
    if not node.level:
        return node.module or ""
    parents = module.path.removesuffix(".py").split("/")[: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])


def imports_from(module: Module, *packages: str) -> Iterator[tuple[ast.AST, str]]:
    """The imports of these packages or anything in them."""
    for node, name in module.imports:
        if any(name == package or name.startswith(package + ".") for package in packages):
            yield node, name


def names(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Every imported name that is used, in full: `dt.datetime.now` for `import datetime as dt`."""
    known = _bindings(module)
    for node in module.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and _first_name(node) in known:
            written = ast.unparse(node)
            first, dot, rest = written.partition(".")
            if first in known:
                yield node, known[first] + dot + rest


def _first_name(node: ast.AST) -> str:
    """What it begins with; to write each of them out would take seconds."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bindings(module: Module) -> dict[str, str]:
    known: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{_base(module, node)}.{alias.name}"
    return known
