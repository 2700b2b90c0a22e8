"""PostgreSQL's own tools put a database back; a server that is not there yet is waited for."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from tests.api.driving import of_order
from tests.e2e.processes import Process, command, running, serving, token
from tests.memory import memory
from tests.postgres.conftest import ask
from tests.postgres.server import Programs, Server, programs
from tests.waiting import until

pytestmark = pytest.mark.postgres

IMPATIENT = """
import sys
from app.database import database
database.SERVER_S = 0.5
from app.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Programs, Path]]:
    """Yield the programs, and a folder for servers."""
    with programs(within=memory()) as found:
        yield found


def paid(process: Process, *orders: str) -> None:
    for order in orders:
        status, _ = process.send(of_order(order, f"e-{order}"), at=SystemClock().now())
        assert status == 200


def numbers(url: str) -> list[int]:
    return [row[0] for row in ask(url, "SELECT seq FROM revisions ORDER BY seq")]


def asked_for(folder: Path, url: str) -> list[str]:
    """Return what `doctor` says about a restore."""
    said = command(folder, "doctor", "--format", "json", DATABASE_URL=url)
    return [each["do"] for each in json.loads(said.stdout) if each["what"] == "restored"]


def readiness(process: Process) -> Any:
    return process.get("/readyz")


@pytest.mark.slow
@pytest.mark.soak
def test_after_a_base_backup_was_restored_db_restored_is_asked_for(
    place: tuple[Programs, Path], tmp_path: Path
) -> None:
    """It has another timeline. Afterwards revisions go on beyond those published since."""
    found, folder = place
    first, back = Server(found, folder / "first"), Server(found, folder / "back")
    try:
        first.make()
        first.start()
        old, new = first.url("postgres"), back.url("postgres")
        assert command(tmp_path, "db", "upgrade", DATABASE_URL=old).returncode == 0
        secret = token(tmp_path, DATABASE_URL=old)
        with serving(tmp_path, DATABASE_URL=old) as process:
            paid(process, "A")
            until(lambda: numbers(old) == [1])
            assert asked_for(tmp_path, old) == []
            back.copy_from(first, name="back")
            paid(process, "B", "C")
            until(lambda: numbers(old) == [1, 2, 3])
            assert "unsafe" not in readiness(process)
        first.stop()
        (back.data / "postgresql.auto.conf").write_text(
            ""
        )  # nothing more is fetched from the first
        back.start()
        back.promote()
        until(lambda: ask(new, "SELECT pg_is_in_recovery()")[0][0] is False)
        accept = ("--accept-gap", "--reason", "put back to before B")
        (do,) = asked_for(tmp_path, new)
        assert "run `tallyhook db restored --accept-gap" in do
        impatient = running(
            tmp_path, "serve", "--port", "0", script=IMPATIENT, stays=False, DATABASE_URL=new
        )
        with impatient as process:
            assert process.code() == 4
            assert b"run `tallyhook db restored --accept-gap" in process.log
        refused = command(tmp_path, "db", "restored", DATABASE_URL=new)
        assert refused.returncode == 3
        assert b"has confirmed that nothing is missing" in refused.stderr
        done = command(tmp_path, "db", "restored", *accept, "--format", "json", DATABASE_URL=new)
        assert done.returncode == 0, done.stderr
        noted = json.loads(done.stdout)
        assert (noted["last_revision"], noted["in_force"]["tokens"]) == (1, ["shop"])
        assert asked_for(tmp_path, new) == []
        with serving(tmp_path, DATABASE_URL=new) as process:
            paid(process, "C")
            until(lambda: len(numbers(new)) == 3)
            news = process.get("/api/v1/outcomes?after=3", secret)["outcomes"]
            beginning = noted["next_revision"]
            assert [each["id"] for each in news] == [beginning, beginning + 1]
            held = {each["order"]: each["fulfillable"] for each in news}
            assert held == {"A": False, "C": False}, "paid within the gap"
            assert "unsafe" not in readiness(process)
    finally:
        first.stop()
        back.stop()


@pytest.mark.slow
@pytest.mark.soak
def test_a_worker_waits_for_a_starting_server(place: tuple[Programs, Path], tmp_path: Path) -> None:
    """`serve` does, too. Where none comes, it ends with exit code 4 and a sentence."""
    found, folder = place
    server = Server(found, folder / "later")
    url = server.url("postgres")
    server.make()
    server.start()
    try:
        assert command(tmp_path, "db", "upgrade", DATABASE_URL=url).returncode == 0
        server.stop()
        for words in (["worker"], ["serve", "--port", "0"]):
            impatient = [*words]
            with running(
                tmp_path, *impatient, script=IMPATIENT, stays=False, DATABASE_URL=url
            ) as process:
                assert process.code() == 4
                assert b"waiting for the database server" in process.log
                assert b"does not answer" in process.log
            with running(tmp_path, *words, stays=False, DATABASE_URL=url) as process:
                until(lambda: b"waiting for the database server" in process.log)
                server.start()
                process.wait_until_ready()
                assert process.end() == 0
            server.stop()
    finally:
        server.stop()
