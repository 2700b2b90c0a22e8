"""PgBouncer between the service and its server: in session mode all works, with all limits in
force; in transaction mode nothing is written."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from app.config.settings import Settings
from app.core.errors import StoreUnavailable, UsageError
from app.database.database import Database
from app.database.facts import database_facts
from app.monitoring.preflight import of_database
from app.receiving.reader import read_some
from tests.database.builders import arrival, fetch, keep, opened, rows, said, submit
from tests.postgres.test_holders import opened_for, write, written
from tests.postgres.test_inbox import reading
from tests.waiting import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed"),
]

PORT = 6432
"""Number in the socket's name."""

CONFIGURATION = """
[databases]
* = host={server} port={port} user=postgres
[pgbouncer]
pool_mode = {mode}
auth_type = any
listen_addr =
listen_port = {own}
unix_socket_dir = {folder}
logfile = {folder}/log
"""


@contextmanager
def pooled(url: str, mode: Literal["session", "transaction"]) -> Iterator[str]:
    """Run a PgBouncer in front of a server; yield the URL of the same database by way of it."""
    assert PROGRAM is not None
    folder = Path(tempfile.mkdtemp(prefix="tpb", dir="/tmp"))
    server = make_url(url).query
    file = folder / "ini"
    file.write_text(
        CONFIGURATION.format(
            server=server["host"], port=server["port"], mode=mode, own=PORT, folder=folder
        )
    )
    user = None if os.geteuid() else pwd.getpwnam("nobody")
    if user is not None:  # it refuses to run as root
        for path in (folder, file):
            os.chown(path, user.pw_uid, user.pw_gid)
    process = subprocess.Popen(
        [PROGRAM, "--quiet", str(file)],
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
    )
    try:
        until((folder / f".s.PGSQL.{PORT}").exists)
        query = {"host": str(folder), "port": str(PORT)}
        yield make_url(url).set(query=query).render_as_string(hide_password=False)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


async def limits(connection: AsyncConnection) -> list[str]:
    names = "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"
    found = [await connection.exec_driver_sql(f"SHOW {name}") for name in names]
    return [str(each.scalar_one()) for each in found]


async def test_in_session_mode_all_limits_are_in_force(url: str) -> None:
    with pooled(url, "session") as by_way:
        async with opened(by_way) as inbox, opened(by_way) as other:
            await submit(inbox, arrival(said("e1", order="A")))
            assert await read_some(reading(other)) == 1
            await keep(inbox, arrival(said("e2", order="A")))
            assert await rows(other, "SELECT count(*) FROM events") == [(2,)]
            async with inbox.database.writing() as connection:
                assert await limits(connection) == ["15s", "10s", "5s"]
            assert await fetch(inbox, limits) == ["0", "10s", "1h"]
            with pytest.raises(UsageError, match="stop all of them first"):
                async with opened_for(by_way, "alone"):
                    pass


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_doctor_finds_a_pooler_by_what_it_does(
    url: str, mode: Literal["session", "transaction"]
) -> None:
    """It raises no error while it has a connection for each of ours."""
    with pooled(url, mode) as by_way:
        database = Database(Settings(database_url=by_way), purpose="reading")
        try:
            assert await database.is_pooled() == (mode == "transaction")
            async with database.reading() as connection:
                facts = await database_facts(connection, pooled=mode == "transaction")
            checks = {each.what: each for each in of_database(facts)}
            if mode == "transaction":
                assert "pool_mode to session" in str(checks["pooler"].do)
            else:
                assert "pooler" not in checks
        finally:
            await database.close()


@pytest.mark.parametrize("service", ["beside the pooler", "by way of it"])
async def test_in_transaction_mode_nothing_is_rebuilt_beside_a_service(
    url: str, service: str
) -> None:
    """Not because of errors that a pooler happens to raise: the row of the service says so."""
    async with opened_for(url, "writing"):
        pass  # so that the database is stamped
    with pooled(url, "transaction") as by_way:
        async with opened_for(url if service == "beside the pooler" else by_way, "writing") as live:
            for _ in range(5):
                with pytest.raises((UsageError, StoreUnavailable), match=r"stop all|pooler"):
                    async with opened_for(by_way, "alone") as alone:
                        await write(alone, "rebuilt")
            if service == "beside the pooler":
                await write(live, "ada")
        assert "rebuilt" not in await written(url)
