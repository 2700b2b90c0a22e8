"""Rules about which module may use which. Each takes a module and yields its faults."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence

from tests.architecture.tree import Module, imports_from, names

VALUES = ("values", "money", "currencies", "instants", "canonical", "periods")
PARTS = ("ledger", "transparency", "matching", "reporting")
"""The parts of reconcile from the bottom up; the values lie under all of them."""

GROUPS = (
    ("client", "core"),
    ("config", "database", "providers"),
    ("access", "sealing", "context"),
    ("receiving",),
    ("orders",),
    ("checkout", "finance", "evidence"),
    ("privacy", "monitoring", "sandbox"),
    ("golive",),
    ("api", "console"),
    ("wiring",),
    ("cli",),
)
"""The rooms of app from left to right: each may use those of the groups before its own. So no path
of imports goes through more rooms than there are groups. `__main__.py` is of the command line."""

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
    """Check that reconcile imports only the standard library and itself, and never upward."""
    if not module.within("reconcile"):
        return
    here = part_of(module.name)
    for node, name in module.imports:
        top = name.partition(".")[0]
        if top not in ("reconcile", "__future__") and top not in sys.stdlib_module_names:
            yield module.at(node, f"imports {name}, which is not of the standard library")
        elif top == "reconcile" and here is not None and (part_of(name) or 0) > here:
            yield module.at(node, f"imports {name}, which is above it")
    if here is None:
        yield module.at(module.tree, "has no place in PARTS (tests/architecture/direction.py)")


def part_of(name: str) -> int | None:
    """Return how high a module of reconcile stands; None in a folder without a place."""
    part = name.split(".")[1:2]
    if part and part[0] in PARTS:
        return 1 + PARTS.index(part[0])
    return None if len(name.split(".")) > 2 and part[0] not in VALUES else 0


def no_circles(tree: Sequence[Module]) -> Iterator[str]:
    """Check that no files of the product import each other in a circle."""
    known = {module.name for module in tree}
    needs = {
        module.name: {
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
    """Check that a room imports only from rooms of the groups to its left."""
    here = room_of(module.name)
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
    """Return the room of a module of app, or None."""
    top, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    if top != "app" or room in ("", "__init__"):
        return None
    return "cli" if room == "__main__" else room


def rooms_show_what_they_list(tree: Sequence[Module]) -> Iterator[str]:
    """Check that other rooms import only modules in the `__all__` of a room's `__init__`, and that
    each of those is used by another room."""
    listed: dict[str, set[str]] = {}
    for module in tree:
        if re.fullmatch("app/[^/]+/__init__.py", module.path):
            listed[module.path.split("/")[1]] = {
                name
                for node in module.tree.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
                for name in ast.literal_eval(node.value)
            }
    used: dict[str, set[str]] = {room: set() for room in listed}
    for module in tree:
        here = room_of(module.name)
        if not module.within("app") or here is None:
            continue
        for node, name in module.imports:
            there = room_of(name)
            if there in (None, here) or there not in listed:
                continue
            words = name.split(".")[2:]
            ways = [".".join(words[:length]) for length in range(len(words), 0, -1)]
            entered = next((way for way in ways if way in listed[there]), None)
            if entered is None:
                yield module.at(
                    node, f"imports {name}, which app/{there}/__init__.py does not list"
                )
            else:
                used[there].add(entered)
    for room, names_ in listed.items():
        for name in sorted(names_ - used[room]):
            yield f"app/{room}/__init__.py: lists {name}, which no other room uses"


def databases_only_in_stores(module: Module) -> Iterator[str]:
    """Check that SQL libraries and drivers stay in `app/database` and in store files."""
    name = module.path.rpartition("/")[2]
    if module.within("app/database") or name == "store.py" or name.endswith("_store.py"):
        return
    if module.within("app", "reconcile"):
        for node, imported in imports_from(module, *DATABASES):
            yield module.at(node, f"imports {imported}, which only a store may")


def present_only_from_the_clock(module: Module) -> Iterator[str]:
    """Check that only `app/core/clock.py` reads the time, and `verify.py`, which runs alone."""
    clocks = ("app/core/clock.py", "app/evidence/verify.py")
    if module.within("app", "reconcile") and not module.within(*clocks):
        for node, name in (*names(module), *module.imports):
            if name in PRESENT:
                yield module.at(node, f"uses {name}: take the instant as an argument")


def chance_only_in_ids(module: Module) -> Iterator[str]:
    """Check that chance comes from `app/core/ids.py` only, and from the seeded sandbox."""
    if module.within("app", "reconcile") and not module.within("app/core/ids.py", "app/sandbox"):
        for node, name in imports_from(module, *CHANCE):
            yield module.at(node, f"imports {name}: chance comes from app/core/ids.py")
        for node, name in names(module):
            if name == "os.urandom":
                yield module.at(node, "uses os.urandom: chance comes from app/core/ids.py")


def faces_call_use_cases(module: Module) -> Iterator[str]:
    """Check that command line, API and console use no stores, and use cases know none of them."""
    if module.within("app/cli", "app/api", "app/console"):
        for node, name in imports_from(module, "app"):
            words = name.split(".")
            if words[1] in ("cli", "api", "console"):
                continue
            if any(word == "store" or word.endswith("_store") for word in words[2:]):
                yield module.at(node, f"imports {name}: call a use case")
            if words[1] == "database" and not module.within("app/cli"):
                yield module.at(node, f"imports {name}: call a use case")
    elif room_of(module.name) in INNER:
        for node, name in imports_from(module, "starlette", "typer"):
            yield module.at(node, f"imports {name}: use cases know neither HTTP nor commands")


INNER = ("database", "access", "sealing", "orders", "finance", "evidence", "privacy", "monitoring")
"""Rooms with nothing but use cases."""


RULES = (
    engine_is_pure,
    rooms_have_one_direction,
    databases_only_in_stores,
    present_only_from_the_clock,
    chance_only_in_ids,
    faces_call_use_cases,
)

RULES_OF_ALL = (no_circles, rooms_show_what_they_list)
"""Rules about all modules together."""
