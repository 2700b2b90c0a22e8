"""One cluster for the whole run, and a distributed database."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.database.layout import DISTRIBUTED, LAYOUT
from app.wiring.opening import distribute_database
from tests.citus.cluster import Cluster, cluster, installed
from tests.postgres.conftest import ask, emptying, inbox, migrate

__all__ = ["inbox"]

WHY = "Citus is not installed; build it for the PostgreSQL of this machine to try this"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip visibly where there is no Citus."""
    if installed() is None:
        here = Path(__file__).parent
        for each in items:
            if each.path.is_relative_to(here):
                each.add_marker(pytest.mark.skip(reason=WHY))


@pytest.fixture(scope="session")
def citus() -> Iterator[Cluster]:
    """Run a cluster."""
    with cluster() as found:
        yield found


@pytest.fixture
def empty_url(citus: Cluster) -> str:
    """Make an empty database for the test."""
    return citus.database()


@pytest.fixture(scope="session")
def shared_url(citus: Cluster) -> str:
    """Make a database of the newest version, and distribute it."""
    url = citus.database()
    asyncio.run(migrate(url))
    asyncio.run(distribute_database(Settings(database_url=url)))
    return url


@pytest.fixture
def url(shared_url: str) -> str:
    """Return the distributed database, emptied but for the note of its layout."""
    ask(
        shared_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name LIKE 'tallyhook%'",
        emptying(),
        f"INSERT INTO meta (name, value) VALUES ('{LAYOUT}', '{DISTRIBUTED}')",
    )
    return shared_url
