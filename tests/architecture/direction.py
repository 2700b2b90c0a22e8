"""Rules about who may use whom. Each takes one module and says what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from tests.architecture.tree import Module, imports, imports_from, names

LAYERS = (
    ("values", "money", "currencies", "instants", "canonical", "periods"),
    ("events", "records", "history", "correlate", "policy"),
    ("ledger", "movements", "unread", "doubt", "reasons", "outcome", "fulfilling", "findings"),
    ("fold", "revise", "explain", "settle"),
    ("books", "statement", "takings", "breaks", "merkle"),
    ("match", "evidence"),
    ("report", "journal"),
    ("blockers", "figures", "closing"),
)
"""reconcile from the bottom up; a module `match_rules` is of the layer of `match`."""

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
    here = layer_of(module.path.removeprefix("reconcile/").removesuffix(".py"))
    if here is None and module.path != "reconcile/__init__.py":
        yield module.at(module.tree, "has no place in LAYERS (tests/architecture/direction.py)")
    for node, name in imports(module):
        top, _, rest = name.partition(".")
        there = layer_of(rest.partition(".")[0])
        if top not in ("reconcile", "__future__") and top not in sys.stdlib_module_names:
            yield module.at(node, f"imports {name}, which is not of the standard library")
        elif top == "reconcile" and here is not None and there is not None and there > here:
            yield module.at(node, f"imports {name}, which is above it")


def layer_of(name: str) -> int | None:
    """How high a module of reconcile stands; None where it has no place."""
    for height, layer in enumerate(LAYERS):
        if name in layer or name.partition("_")[0] in layer:
            return height
    return None


def engine_has_no_cycles(tree: Sequence[Module]) -> Iterator[str]:
    """No two modules of reconcile need each other, directly or around corners."""
    needs = {
        module.path.removesuffix(".py").replace("/", "."): {
            ".".join(name.split(".")[:2]) for _, name in imports_from(module, "reconcile")
        }
        for module in tree
        if module.within("reconcile")
    }
    while free := {name for name, needed in needs.items() if not needed & (needs.keys() - {name})}:
        needs = {name: needed for name, needed in needs.items() if name not in free}
    if needs:
        yield f"{', '.join(sorted(needs))} import each other in a circle"


def databases_only_in_store(module: Module) -> Iterator[str]:
    """SQL, its libraries and its drivers stay in one folder."""
    if module.within("app", "reconcile") and not module.within("app/store"):
        for node, name in imports_from(module, *DATABASES):
            yield module.at(node, f"imports {name}, which only app/store may")


def present_only_from_the_clock(module: Module) -> Iterator[str]:
    """One module asks what time it is."""
    if module.within("app", "reconcile") and not module.within("app/clock.py"):
        for node, name in names(module):
            if name in PRESENT:
                yield module.at(node, f"uses {name}: take the instant as an argument")
        for node, name in imports(module):
            if name in PRESENT:
                yield module.at(node, f"imports {name}: take the instant as an argument")


def chance_only_in_ids(module: Module) -> Iterator[str]:
    """Chance comes in at one place, besides the seeded sandbox."""
    if module.within("app", "reconcile") and not module.within("app/ids.py", "app/sandbox"):
        for node, name in imports_from(module, *CHANCE):
            yield module.at(node, f"imports {name}: chance comes from app/ids.py")
        for node, name in names(module):
            if name == "os.urandom":
                yield module.at(node, "uses os.urandom: chance comes from app/ids.py")


def layers_of_the_application(module: Module) -> Iterator[str]:
    """operations know neither web nor cli; web and cli do not reach past operations."""
    for places, forbidden in (
        (("app/operations",), ("app.web", "app.cli")),
        (("app/web", "app/cli"), ("app.store",)),
        (("app/evidence", "app/providers", "app/store"), ("app.operations", "app.web", "app.cli")),
    ):
        if module.within(*places):
            for node, name in imports_from(module, *forbidden):
                yield module.at(node, f"imports {name}, which {places[0]} may not")


RULES = (
    engine_is_pure,
    databases_only_in_store,
    present_only_from_the_clock,
    chance_only_in_ids,
    layers_of_the_application,
)
