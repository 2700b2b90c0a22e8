"""A server for the whole run, or the one that TEST_DATABASE_URL names; a new database a test."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.engine import URL, make_url

from app.config.settings import Settings
from app.database.database import Database
from app.database.tables import metadata
from app.receiving.inbox import Inbox
from tests.database.builders import opened
from tests.memory import memory
from tests.postgres.server import running
from tests.searching import every

LEFT = "" if os.environ.get("TALLYHOOK_LONG") else "alike"
"""The mark of tests that are left to the long form."""

_numbers = count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of the contract that prove on SQLite what they prove, and of the rest two in
    three; the long form has them."""
    here = str(Path(__file__).parent)
    ours = [each for each in items if LEFT and str(each.path).startswith(here)]
    left = {each: None for each in ours if each.get_closest_marker(LEFT)}
    contract = [each for each in ours if "::TestPostgresql::" in each.nodeid and each not in left]
    left |= {each: None for n, each in enumerate(contract) if n % every(3)}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [each for each in items if each not in left]


def _rendered(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def ask(url: str, *statements: str) -> list[asyncpg.Record]:
    """Run statements one by one, each by itself; return the rows of the last."""
    return asyncio.run(ask_in_loop(url, *statements))


async def ask_in_loop(url: str, *statements: str) -> list[asyncpg.Record]:
    """Run statements as `ask` does, in a running loop."""
    connection = await asyncpg.connect(_rendered(make_url(url).set(drivername="postgresql")))
    try:
        found: list[asyncpg.Record] = []
        for statement in statements:
            found = await connection.fetch(statement)
        return found
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Yield the URL of a database to begin from."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield _rendered(make_url(given).set(drivername="postgresql+asyncpg"))
        return
    with running(within=memory()) as server:
        yield server.url("postgres")


@contextmanager
def a_database(server_url: str, *, like: str = "template1") -> Iterator[str]:
    """Make an empty database, or a copy of one that nobody uses meanwhile."""
    name = f"tallyhook_{os.getpid()}_{next(_numbers)}"
    ask(server_url, f"CREATE DATABASE {name} TEMPLATE {like}")
    try:
        yield _rendered(make_url(server_url).set(database=name))
    finally:
        ask(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def migrate(url: str) -> None:
    """Bring a database to the newest version."""
    inbox = Database(Settings(database_url=url))
    try:
        await inbox.upgrade()
    finally:
        await inbox.close()


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """Make an empty database for the test."""
    with a_database(server_url) as url:
        yield url


@pytest.fixture(scope="session")
def shared_url(server_url: str) -> Iterator[str]:
    """Make a database of the newest version."""
    with a_database(server_url) as url:
        asyncio.run(migrate(url))
        yield url


def emptying() -> str:
    """Return one statement that empties every table, past the triggers of append-only ones."""
    tables = ", ".join(f"'{name}'" for name in metadata.tables)
    return f"""DO $$ DECLARE name text; filled boolean; guarded boolean; BEGIN
        FOREACH name IN ARRAY ARRAY[{tables}] LOOP
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I)', name) INTO filled;
            guarded := EXISTS (SELECT FROM pg_trigger
                WHERE tgrelid = name::regclass AND NOT tgisinternal);
            IF filled AND guarded THEN
                EXECUTE format('ALTER TABLE %I DISABLE TRIGGER USER', name);
                EXECUTE format('DELETE FROM %I', name);
                EXECUTE format('ALTER TABLE %I ENABLE TRIGGER USER', name);
            ELSIF filled THEN
                EXECUTE format('DELETE FROM %I', name);
            END IF;
        END LOOP; END $$"""


@pytest.fixture
def url(shared_url: str) -> str:
    """Return a database of the newest version, emptied; making it anew would take half a second."""
    ask(
        shared_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        emptying(),
    )
    return shared_url


@pytest.fixture
async def inbox(url: str) -> AsyncIterator[Inbox]:
    """Open a serving inbox."""
    async with opened(url) as inbox:
        yield inbox
