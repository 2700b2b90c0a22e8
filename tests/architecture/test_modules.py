"""Every module keeps every rule, and every rule finds its planted faults."""

import ast
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from typing import cast

import pytest

from tests.architecture import columns, direction, form
from tests.architecture.test_project import PINNED
from tests.architecture.tree import ROOT, Module, modules, parsed

Rule = Callable[[Module], Iterator[str]]
RULES: tuple[Rule, ...] = (*direction.RULES, *form.RULES, *columns.RULES)
DOC = '"""A module."""\n'
UNFINISHED = form.UNFINISHED[0]

BAD: list[tuple[Rule, str, str]] = [
    (direction.engine_is_pure, "reconcile/ledger/fold.py", "import structlog"),
    (direction.engine_is_pure, "reconcile/ledger/fold.py", "from app.core.clock import Clock"),
    (direction.engine_is_pure, "reconcile/ledger/fold.py", "def f():\n    import anyio.abc"),
    (direction.engine_is_pure, "reconcile/money.py", "from reconcile.ledger.events import Event"),
    (direction.engine_is_pure, "reconcile/ledger/a.py", "from reconcile.matching import a"),
    (direction.engine_is_pure, "reconcile/ledger/a.py", "from ..reporting import a"),
    (direction.engine_is_pure, "reconcile/matching/rules.py", "import pydantic"),
    (direction.engine_is_pure, "reconcile/elsewhere/a.py", ""),
    (direction.rooms_have_one_direction, "app/receiving/a.py", "from app.orders import a"),
    (direction.rooms_have_one_direction, "app/core/a.py", "def f():\n    import app.database.b"),
    (direction.rooms_have_one_direction, "app/finance/a.py", "from app.evidence.a import b"),
    (direction.rooms_have_one_direction, "app/orders/a.py", "from ..cli import main"),
    (direction.rooms_have_one_direction, "app/api/a.py", "from app.wiring import service"),
    (direction.rooms_have_one_direction, "app/wiring/a.py", "from app.cli import main"),
    (direction.rooms_have_one_direction, "app/elsewhere/a.py", ""),
    (direction.databases_only_in_stores, "app/api/a.py", "import sqlmodel"),
    (direction.databases_only_in_stores, "app/config/a.py", "from sqlalchemy.ext import asyncio"),
    (direction.databases_only_in_stores, "app/orders/restore.py", "import sqlite3"),
    (direction.present_only_from_the_clock, "app/a.py", "import time\ntime.time()"),
    (direction.present_only_from_the_clock, "app/a.py", "import time as t\nf = t.time_ns"),
    (direction.present_only_from_the_clock, "app/a.py", "from time import time_ns"),
    (direction.present_only_from_the_clock, "app/a.py",
     "from datetime import UTC, datetime\ndatetime.now(UTC)"),
    (direction.present_only_from_the_clock, "app/a.py",
     "import datetime as dt\ndt.datetime.utcnow()"),
    (direction.present_only_from_the_clock, "app/a.py", "from datetime import date\ndate.today()"),
    (direction.present_only_from_the_clock, "app/a.py", "from sqlalchemy import func\nfunc.now()"),
    (direction.chance_only_in_ids, "app/api/a.py", "import random"),
    (direction.chance_only_in_ids, "app/checkout/a.py", "from uuid import uuid4"),
    (direction.chance_only_in_ids, "app/idsx.py", "import secrets"),
    (direction.chance_only_in_ids, "app/a.py", "import os\nos.urandom(3)"),
    (direction.chance_only_in_ids, "app/a.py", "from os import urandom"),
    (direction.faces_call_use_cases, "app/cli/a.py", "from app.orders import ledger_store"),
    (direction.faces_call_use_cases, "app/api/a.py", "import app.receiving.inbox_store"),
    (direction.faces_call_use_cases, "app/api/a.py", "from app.database.engine import Connection"),
    (direction.faces_call_use_cases, "app/console/a.py", "from app.orders import ledger_store"),
    (direction.faces_call_use_cases, "app/console/a.py", "import app.database.engine"),
    (direction.rooms_have_one_direction, "app/console/a.py", "from app.api import routes"),
    (direction.faces_call_use_cases, "app/orders/a.py", "import starlette.requests"),
    (direction.faces_call_use_cases, "app/finance/a.py", "from typer import Exit"),
    (form.functions_are_short, "app/a.py", "async def f():\n" + "    1\n" * 80),
    (form.engine_has_no_floats, "reconcile/money.py", "x = 0.5"),
    (form.engine_has_no_floats, "reconcile/money.py", "x = float('1')"),
    (form.engine_has_no_floats, "reconcile/money.py", "x = 4 / 2"),
    (form.engine_has_no_floats, "reconcile/money.py", "x = 4\nx /= 2"),
    (form.nothing_is_unfinished, "app/a.py", f"# {UNFINISHED}: later"),
    (form.only_the_cli_prints, "app/api/a.py", "print('x')"),
    (form.errors_are_not_swallowed, "app/a.py", "try:\n    f()\nexcept:\n    raise"),
    (form.errors_are_not_swallowed, "app/a.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (form.errors_are_not_swallowed, "app/a.py",
     "while f():\n    try:\n        f()\n    except (OSError, BaseException):\n        continue"),
    (form.errors_are_not_swallowed, "app/a.py",
     "import contextlib\nwith contextlib.suppress(Exception):\n    f()"),
    (form.log_lines_are_fixed_texts_with_known_fields, "app/a.py",
     "from app.core.logs import log\nlog.info('x', phone=1)"),
    (form.log_lines_are_fixed_texts_with_known_fields, "app/a.py",
     "from app.core.logs import log\nlog.warning(f'{x}')"),
    (form.log_lines_are_fixed_texts_with_known_fields, "app/a.py",
     "from app.core.logs import log\nlog.info('%s', 'x' + y)"),
    (form.log_lines_are_fixed_texts_with_known_fields, "app/a.py", "import structlog"),
    (form.secrets_are_compared_in_constant_time, "app/providers/a.py", "expected == x"),
    (form.secrets_are_compared_in_constant_time, "app/providers/named/a.py",
     "found = x != key.mac.hex()"),
    (form.secrets_are_compared_in_constant_time, "app/providers/a.py",
     "hmac.new(k, b, h).hexdigest() == x"),
    (form.secrets_are_compared_in_constant_time, "app/providers/a.py", "candidates[0] == x"),
    (form.secrets_are_compared_in_constant_time, "app/providers/a.py", "expected in signatures"),
    (form.secrets_are_compared_in_constant_time, "app/sandbox/server.py", "x == self._token"),
    (form.secrets_are_compared_in_constant_time, "app/api/routes.py", "0 < x == client_secret"),
    (form.secrets_are_compared_in_constant_time, "app/access/operator_store.py",
     "row[0] == token.encode()"),
    (form.sql_is_put_together_in_one_place, "app/orders/a_store.py", "sql = x  # noqa: S608"),
    (form.sql_is_put_together_in_one_place, "app/orders/a_store.py", "text(f'SELECT 1 {x}')"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "sqlalchemy.text('SELECT 1 ' + x)"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "statement(f'SELECT {x}', y=z)"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "connection.ask(f'{x}', (1,))"),
    (form.sql_is_put_together_in_one_place, "app/a.py",
     "select_in(connection, sql=x + ' IN ({})', values=y)"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "text(x.format(place=y))"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "cursor.execute('SELECT %d' % 1)"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "PRAGMAS = (f'PRAGMA cache_size=-{x}',)"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "sql = f'{x} WHERE {y}'"),
    (form.words_are_plain, "app/a.py", "def f(x):\n    told = x"),
    (form.words_are_plain, "reconcile/money.py", "x.was_told"),
    (form.words_are_plain, "app/a.py", "class Desk:\n    pass"),
    (columns.columns_are_those_of_the_tables, "app/a.py",
     "insert_rows(c, table='phones', columns=('digest', 'kind', 'thing'), rows=r)"),
    (columns.columns_are_those_of_the_tables, "app/a.py",
     "insert_rows(c, table='meta', columns=('name', 'value', 'note'), rows=r)"),
    (columns.columns_are_those_of_the_tables, "app/a.py",
     "insert_rows(c, table='meta', columns=('name', 'value', 'name'), rows=r)"),
    (columns.columns_are_those_of_the_tables, "app/sealing/log_queue_store.py",
     "insert_rows(c, table='unsealed', columns=('row', 'kind', 'ids', 'count'), rows=r)"),
    (columns.columns_are_those_of_the_tables, "app/database/mapping.py",
     "E = table('events', *map(column, (*EVENT_COLUMNS, 'late')))"),
    (columns.columns_are_those_of_the_tables, "app/a.py", "E = table('event', *map(column, ()))"),
]  # fmt: skip

GOOD: list[tuple[Rule, str, str]] = [
    (direction.engine_is_pure, "reconcile/ledger/fold.py",
     "import json\nfrom reconcile.money import X"),
    (direction.engine_is_pure, "app/a.py", "import structlog"),
    (direction.databases_only_in_stores, "app/orders/a_store.py", "import sqlmodel"),
    (direction.databases_only_in_stores, "app/database/a.py", "import sqlmodel"),
    (direction.rooms_have_one_direction, "app/orders/a.py", "from app.receiving import a"),
    (direction.rooms_have_one_direction, "app/orders/a.py", "import app.orders.b"),
    (direction.rooms_have_one_direction, "app/__main__.py", "from app.cli import main"),
    (direction.present_only_from_the_clock, "app/core/clock.py", "import time\ntime.time_ns()"),
    (direction.present_only_from_the_clock, "app/a.py",
     "import time\ntime.monotonic()\nclock.now()\nloop.time()\ntime.perf_counter()"),
    (direction.chance_only_in_ids, "app/sandbox/a.py", "import random"),
    (direction.chance_only_in_ids, "app/a.py", "secrets = 1\nsecrets.x"),
    (direction.faces_call_use_cases, "app/api/a.py", "from app.orders import read_orders"),
    (form.functions_are_short, "app/a.py", "def f():\n" + "    1\n" * 79),
    (form.modules_are_described, "app/a.py", "def f():\n    pass"),
    (form.engine_has_no_floats, "reconcile/money.py", "isinstance(x, float) and 4 // 2"),
    (form.engine_has_no_floats, "app/a.py", "x = 0.5"),
    (form.only_the_cli_prints, "app/cli/a.py", "print('x')"),
    (form.errors_are_not_swallowed, "app/a.py", "try:\n    f()\nexcept Exception:\n    raise"),
    (form.errors_are_not_swallowed, "app/a.py", "try:\n    f()\nexcept OSError:\n    pass"),
    (form.log_lines_are_fixed_texts_with_known_fields, "app/a.py",
     "from app.core.logs import log\nlog.info('x', source=y, exc_info=True)"),
    (form.secrets_are_compared_in_constant_time, "app/providers/a.py",
     "hmac.compare_digest(expected, x)\nx == y\nlen(signature) != n\nmac == 'basic'\n"
     "mac in SCHEMES\nname == DIGEST.encode()\nheader in signatures"),
    (form.secrets_are_compared_in_constant_time, "app/evidence/a.py", "digest == x"),
    (form.sql_is_put_together_in_one_place, "app/a.py",
     "text(statement('SELECT {columns}', columns=f'{x}, {y}'))"),
    (form.sql_is_put_together_in_one_place, "app/a.py", "f'From {x} to {y} where {z}'"),
    (form.words_are_plain, "app/database/tables/finance.py", "told = text_column()"),
    (form.words_are_plain, "app/a.py", "row.told_at\nreported = row.sum_told"),
    (columns.columns_are_those_of_the_tables, "app/a.py",
     "E = table('events', *map(column, ('source', 'event_id')))"),
    (columns.columns_are_those_of_the_tables, "app/database/mapping.py",
     "Kind(name='record', table='records', columns=RECORD_COLUMNS)"),
    (columns.columns_are_those_of_the_tables, "app/a.py", "Rows(table='audit', columns='number')"),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    found = [problem for module in modules() for problem in rule(module)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_the_rule_finds_a_planted_fault(rule: Rule, path: str, text: str) -> None:
    assert list(rule(parsed(path, DOC + text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_the_rule_lets_what_is_right_pass(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(parsed(path, DOC + text)))


def test_left_out_names_only_lists_that_exist() -> None:
    assert set(columns.LEFT_OUT) <= {
        (module.path, table) for module in modules() for table in columns.whole_rows(module)
    }


def test_every_rule_has_a_planted_fault() -> None:
    planted = {rule for rule, _, _ in BAD}
    assert planted | {form.modules_are_described} == set(RULES)  # its fault is planted below


class _Plainly(ast.NodeTransformer):
    """A transformer that writes `a == b` in place of `compare_digest(a, b)`."""

    found = 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) not in ("compare_digest", "hmac.compare_digest"):
            return cast(ast.expr, self.generic_visit(node))
        self.found += 1
        return ast.Compare(node.args[0], [ast.Eq()], [node.args[1]])


def test_every_secret_that_is_compared_would_be_found() -> None:
    """The rule covers each file with `compare_digest`, and knows the names of its arguments."""
    rule = form.secrets_are_compared_in_constant_time
    changed = 0
    for module in modules():
        if not module.within("app") or "compare_digest" not in module.text:
            continue
        plainly = _Plainly()
        tree = plainly.visit(ast.parse(module.text))
        assert len(list(rule(parsed(module.path, ast.unparse(tree))))) == plainly.found > 0
        changed += plainly.found
    assert changed >= 5


def test_every_plain_comparison_that_is_let_pass_is_there() -> None:
    there = {
        (module.path, ast.unparse(node))
        for module in modules()
        if module.path in {path for path, _ in form.PLAINLY_COMPARED}
        for node in module.nodes
        if isinstance(node, ast.Compare)
    }
    assert set(form.PLAINLY_COMPARED) <= there


def test_a_module_without_a_docstring_is_found() -> None:
    assert list(form.modules_are_described(parsed("tests/a.py", "x = 1")))


@pytest.mark.parametrize(
    "rule", [*direction.RULES_OF_ALL, *form.RULES_OF_ALL], ids=lambda rule: rule.__name__
)
def test_all_modules_together_keep_the_rule(rule: Callable[..., Iterator[str]]) -> None:
    found = list(rule(modules()))
    assert not found, "\n" + "\n".join(found)


def test_the_program_imports_nothing_that_make_run_does_not_install() -> None:
    """Typst is an extra, which a user without it is told."""
    runtime = set(PINNED.findall((ROOT / "requirements.lock").read_text()))
    installed = packages_distributions()
    imported = {
        name.partition(".")[0]
        for module in modules()
        if module.within("app", "reconcile")
        for _, name in module.imports
    }
    foreign = imported - set(sys.stdlib_module_names) - {"app", "reconcile"}
    missing = {
        name
        for name in foreign
        if runtime.isdisjoint(each.lower().replace("_", "-") for each in installed[name])
    }
    assert missing == {"typst"}


def test_a_circle_is_found_around_a_corner() -> None:
    circle = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "f"}
    tree = [
        parsed(f"app/orders/{name}.py", f"from app.orders.{needed} import x")
        for name, needed in circle.items()
    ]
    assert list(direction.no_circles(tree)) == [
        "app.orders.a, app.orders.b, app.orders.c import each other in a circle"
    ]


def test_many_lines_of_imports_are_found() -> None:
    """Every line of a long import counts, wherever it stands; those of tests do not."""
    names = "from a import (\n    b,\n    c,\n    d,\n)\n"
    deep = parsed("app/core/a.py", names + "\n" * 95)
    tests = parsed("tests/a.py", names)
    assert not list(form.imports_are_few([deep, tests]))
    inner = parsed("app/core/a.py", names + "def f():\n    import g\n" + "\n" * 93)
    (problem,) = form.imports_are_few([inner, tests])
    assert problem.startswith("6 of 100 lines of app and reconcile are imports")


def test_only_listed_modules_are_entered_and_only_used_ones_listed() -> None:
    room = parsed("app/orders/__init__.py", '__all__ = ("a", "unused")')
    user = parsed("app/finance/x.py", "from app.orders.a import y\nfrom app.orders import b")
    own = parsed("app/orders/c.py", "from app.orders.b import z")
    assert list(direction.rooms_show_what_they_list([room, user, own])) == [
        "app/finance/x.py:2: imports app.orders.b, which app/orders/__init__.py does not list",
        "app/orders/__init__.py: lists unused, which no other room uses",
    ]


def test_the_tree_is_really_read() -> None:
    assert {"app/core/clock.py", "reconcile/money.py", "tests/conftest.py"} <= {
        m.path for m in modules()
    }
