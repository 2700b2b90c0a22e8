"""Rule about lists of column names, which stores have since table classes are slow to load."""

import ast
import importlib
from collections import Counter
from collections.abc import Iterator

from app.database.tables import metadata
from tests.architecture.tree import Module

COLUMNS = {name: tuple(table.columns.keys()) for name, table in metadata.tables.items()}

LEFT_OUT: dict[tuple[str, str], frozenset[str]] = {
    ("app/orders/notification_store.py", "notifications"): frozenset({"delivered_at", "problem"}),
    ("app/receiving/append_store.py", "events"): frozenset({"row"}),
    ("app/receiving/confirmation_store.py", "confirmations"): frozenset(
        {"taken_until", "answered_at"}
    ),
    ("app/receiving/inbox_store.py", "suspects"): frozenset({"seq", "taken_by"}),
    ("app/sealing/leaf_store.py", "deliveries"): frozenset(
        {"body", "event_id", "problem", "verdict"}
    ),
    ("app/sealing/leaf_store.py", "order_trees"): frozenset({"orders"}),
    ("app/sealing/log_queue_store.py", "unsealed"): frozenset({"row"}),
}
"""Columns that a whole row is written or sealed without, by module and table."""


def columns_are_those_of_the_tables(module: Module) -> Iterator[str]:
    """Check that `table(name, *map(column, …))` has columns of the table, and `table=name,
    columns=…` all of them but those of LEFT_OUT."""
    if not module.within("app"):
        return
    for node, table, columns, whole in _lists(module):
        names = _names(module, columns)
        if isinstance(names, str):
            continue  # written out for a SELECT
        if table not in COLUMNS:
            yield module.at(node, f"names a table {table}, which is none")
            continue
        listed = Counter(names)
        if strange := listed - Counter(COLUMNS[table]):
            yield module.at(node, f"{table} has no {', '.join(strange)}, or not twice")
        missing = set(COLUMNS[table]) - listed.keys()
        known = LEFT_OUT.get((module.path, table), frozenset())
        if whole and missing != known:
            yield module.at(
                node,
                f"leaves {', '.join(sorted(missing)) or 'nothing'} out of {table}, and LEFT_OUT "
                f"(tests/architecture/columns.py) says {', '.join(sorted(known)) or 'nothing'}",
            )


def _lists(module: Module) -> Iterator[tuple[ast.AST, str, ast.expr, bool]]:
    """Yield each list with its table, and whether it is a whole row."""
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name("table"), args=[ast.Constant(str(name)), *columns]):
                for given in columns:
                    match given:
                        case ast.Starred(ast.Call(ast.Name("map"), [ast.Name("column"), listed])):
                            yield node, name, listed, False
            case ast.Call(keywords=words):
                named = {word.arg: word.value for word in words}
                match named:
                    case {"table": ast.Constant(str(name)), "columns": listed}:
                        yield node, name, listed, True


def _names(module: Module, columns: ast.expr) -> tuple[str, ...] | str:
    """Evaluate the list, with constants of the module."""
    names = {each.id for each in ast.walk(columns) if isinstance(each, ast.Name)}
    if not names:
        literal: tuple[str, ...] | str = ast.literal_eval(columns)
        return literal
    known = vars(importlib.import_module(module.path.removesuffix(".py").replace("/", ".")))
    given = {name: known[name] for name in names}
    made: tuple[str, ...] | str = eval(ast.unparse(columns), {"__builtins__": {}}, given)
    return made


def whole_rows(module: Module) -> Iterator[str]:
    """Yield the tables of the whole rows that the module lists."""
    yield from (table for _, table, _, whole in _lists(module) if whole)


RULES = (columns_are_those_of_the_tables,)
