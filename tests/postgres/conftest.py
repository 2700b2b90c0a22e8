"""A server for the whole run, or the one that TEST_DATABASE_URL names; a new database a test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from app.store.store import Store, StoreSettings
from tests.postgres.server import running
from tests.store.builders import opened

_numbers = count(1)


def ask(url: str, *statements: str) -> list[asyncpg.Record]:
    """Run statements one by one, each by itself; what the last one finds."""

    async def work() -> list[asyncpg.Record]:
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        connection = await asyncpg.connect(plain)
        try:
            found: list[asyncpg.Record] = []
            for statement in statements:
                found = await connection.fetch(statement)
            return found
        finally:
            await connection.close()

    return asyncio.run(work())


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A database on the server, to begin from."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    with running() as server:
        yield server.url("postgres")


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database that the migrations have just made."""
    name = f"tallyhook_template_{os.getpid()}"
    ask(server_url, f"CREATE DATABASE {name}")
    asyncio.run(_migrate(database(server_url, name)))
    yield name
    ask(server_url, f"DROP DATABASE {name}")


async def _migrate(url: str) -> None:
    store = Store(StoreSettings(url=url))
    try:
        await store.upgrade()
    finally:
        await store.close()


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def url(server_url: str, template: str) -> Iterator[str]:
    """A database of the newest version that nobody has used yet."""
    name = f"tallyhook_{os.getpid()}_{next(_numbers)}"
    ask(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield database(server_url, name)
    ask(server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """A database without any table."""
    name = f"tallyhook_{os.getpid()}_{next(_numbers)}"
    ask(server_url, f"CREATE DATABASE {name}")
    yield database(server_url, name)
    ask(server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A serving store."""
    async with opened(url) as store:
        yield store
