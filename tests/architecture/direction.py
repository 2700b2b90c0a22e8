"""Rules about who may use whom. Each takes one module and says what is wrong with it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from tests.architecture.tree import Module, imports_from, names

PARTS = ("ledger", "transparency", "matching", "reporting")
"""The parts of reconcile from the bottom up; the values beside them lie under all of them."""

GROUPS = (
    ("client",),
    ("core",),
    ("config",),
    ("database",),
    ("access",),
    ("providers",),
    ("sealing",),
    ("context",),
    ("receiving",),
    ("orders",),
    ("checkout", "finance", "evidence"),
    ("privacy",),
    ("monitoring",),
    ("sandbox",),
    ("golive",),
    ("api", "console"),
    ("wiring",),
    ("cli",),
)
"""The rooms of app from left to right: each may use those of the groups before its own.
`__main__.py` is of the command line."""

DATABASES = ("sqlmodel", "sqlalchemy", "alembic", "aiosqlite", "asyncpg", "sqlite3")
CHANCE = ("random", "uuid", "secrets", "os.urandom")
PRESENT = frozenset(
    {
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "time.time",
        "time.time_ns",
        "time.localtime",
        "time.gmtime",
        "sqlalchemy.func.now",
        "sqlmodel.func.now",
    }
)


def engine_is_pure(module: Module) -> Iterator[str]:
    """reconcile imports the standard library and itself, never upward."""
    if not module.within("reconcile"):
        return
    here = part_of(module.path.removesuffix(".py").replace("/", "."))
    for node, name in module.imports:
        top = name.partition(".")[0]
        if top not in ("reconcile", "__future__") and top not in sys.stdlib_module_names:
            yield module.at(node, f"imports {name}, which is not of the standard library")
        elif top == "reconcile" and here is not None and (part_of(name) or 0) > here:
            yield module.at(node, f"imports {name}, which is above it")
    if here is None:
        yield module.at(module.tree, "has no place in PARTS (tests/architecture/direction.py)")


def part_of(name: str) -> int | None:
    """How high a module of reconcile stands; None where it is in a folder that has no place."""
    part = name.split(".")[1:2]
    if part and part[0] in PARTS:
        return 1 + PARTS.index(part[0])
    return None if len(name.split(".")) > 2 and part[0] not in VALUES else 0


VALUES = ("values", "money", "currencies", "instants", "canonical", "periods")
"""The values of reconcile."""


def no_circles(tree: Sequence[Module]) -> Iterator[str]:
    """No files of the product need each other, directly or around corners."""
    known = {module.path.removesuffix(".py").replace("/", ".") for module in tree}
    needs = {
        module.path.removesuffix(".py").replace("/", "."): {
            found
            for _, name in module.imports
            for found in (name, name.rpartition(".")[0])
            if found in known
        }
        for module in tree
        if module.within("reconcile", "app")
    }
    while free := {name for name, needed in needs.items() if not needed & (needs.keys() - {name})}:
        needs = {name: needed for name, needed in needs.items() if name not in free}
    while kept := needs.keys() & set[str]().union(*needs.values()):
        if len(kept) == len(needs):
            yield f"{', '.join(sorted(needs))} import each other in a circle"
            return
        needs = {name: needed for name, needed in needs.items() if name in kept}


def rooms_have_one_direction(module: Module) -> Iterator[str]:
    """A room imports only from rooms of the groups to its left."""
    here = room_of(module.path.removesuffix(".py").replace("/", "."))
    if here is None or not module.within("app"):
        return
    if here not in PLACES:
        yield module.at(module.tree, f"{here} has no place in GROUPS")
        return
    for node, name in module.imports:
        there = room_of(name)
        if there in PLACES and there != here and PLACES[there] >= PLACES[here]:
            yield module.at(node, f"imports {name}: {there} is not to the left of {here}")


PLACES = {room: place for place, group in enumerate(GROUPS) for room in group}


def room_of(name: str) -> str | None:
    """The room of a module of app; None for what is no module of it."""
    top, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    if top != "app" or room in ("", "__init__"):
        return None
    return "cli" if room == "__main__" else room


def rooms_show_what_they_list(tree: Sequence[Module]) -> Iterator[str]:
    """Whoever is of another room imports only modules that the room's `__init__` lists in
    `__all__`; and what is listed is used by somebody else."""
    listed = {
        module.path.split("/")[1]: set(_listed(module))
        for module in tree
        if module.path.startswith("app/") and module.path.count("/") == 2
        if module.path.endswith("/__init__.py")
    }
    used: dict[str, set[str]] = {room: set() for room in listed}
    for module in tree:
        here = room_of(module.path.removesuffix(".py").replace("/", "."))
        if not module.within("app") or here is None:
            continue
        for node, name in module.imports:
            there = room_of(name)
            if there in (None, here) or there not in listed:
                continue
            entered = _entered(name, listed[there])
            if entered is None:
                yield module.at(
                    node, f"imports {name}, which app/{there}/__init__.py does not list"
                )
            else:
                used[there].add(entered)
    for room, names_ in listed.items():
        for name in sorted(names_ - used[room]):
            yield f"app/{room}/__init__.py: lists {name}, which no other room uses"


def _listed(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)


def _entered(name: str, listed: set[str]) -> str | None:
    """The listed module that an imported name is, or is in."""
    words = name.split(".")[2:]
    ways = [".".join(words[:length]) for length in range(len(words), 0, -1)]
    return next((way for way in ways if way in listed), None)


def databases_only_in_stores(module: Module) -> Iterator[str]:
    """SQL, its libraries and its drivers stay in `app/database` and in the rooms' store files."""
    name = module.path.rpartition("/")[2]
    if module.within("app/database") or name == "store.py" or name.endswith("_store.py"):
        return
    if module.within("app", "reconcile"):
        for node, imported in imports_from(module, *DATABASES):
            yield module.at(node, f"imports {imported}, which only a store may")


def present_only_from_the_clock(module: Module) -> Iterator[str]:
    """One module asks what time it is."""
    if module.within("app", "reconcile") and not module.within("app/core/clock.py"):
        for node, name in names(module):
            if name in PRESENT:
                yield module.at(node, f"uses {name}: take the instant as an argument")
        for node, name in module.imports:
            if name in PRESENT:
                yield module.at(node, f"imports {name}: take the instant as an argument")


def chance_only_in_ids(module: Module) -> Iterator[str]:
    """Chance comes in at one place, besides the seeded sandbox."""
    if module.within("app", "reconcile") and not module.within("app/core/ids.py", "app/sandbox"):
        for node, name in imports_from(module, *CHANCE):
            yield module.at(node, f"imports {name}: chance comes from app/core/ids.py")
        for node, name in names(module):
            if name == "os.urandom":
                yield module.at(node, "uses os.urandom: chance comes from app/core/ids.py")


def faces_call_use_cases(module: Module) -> Iterator[str]:
    """Command line, API and console do not reach past the use cases; use cases know none of
    them."""
    if module.within("app/cli", "app/api", "app/console"):
        for node, name in imports_from(module, "app"):
            words = name.split(".")
            if words[1] in ("cli", "api", "console"):
                continue
            if any(word == "store" or word.endswith("_store") for word in words[2:]):
                yield module.at(node, f"imports {name}: call a use case")
            if words[1] == "database" and not module.within("app/cli"):
                yield module.at(node, f"imports {name}: call a use case")
    elif module.within("app") and room_of(module.path.replace("/", ".")[:-3]) in PLACES:
        for node, name in imports_from(module, "starlette", "typer"):
            if room_of(module.path.replace("/", ".")[:-3]) in INNER:
                yield module.at(node, f"imports {name}: use cases know neither HTTP nor commands")


INNER = ("database", "access", "sealing", "orders", "finance", "evidence", "privacy", "monitoring")
"""Rooms of use cases alone."""


RULES = (
    engine_is_pure,
    rooms_have_one_direction,
    databases_only_in_stores,
    present_only_from_the_clock,
    chance_only_in_ids,
    faces_call_use_cases,
)
"""Those that look at one module."""

RULES_OF_ALL = (no_circles, rooms_show_what_they_list)
"""Those that look at all of them."""
