"""Real processes on one PostgreSQL: several of each kind, and who must wait for whom."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from app.core.clock import SystemClock
from app.core.errors import ConfigurationError
from app.database import schema
from app.receiving.inbox import open_inbox
from tests.api.driving import environ, of_order
from tests.contexts import settings_of
from tests.e2e.processes import Process, command, running, serving
from tests.forking import Started, start
from tests.memory import memory
from tests.postgres.conftest import a_database, ask, migrate
from tests.postgres.server import Server
from tests.postgres.server import running as a_server
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.postgres

ORDERS = 24


def word(answer: subprocess.CompletedProcess[bytes]) -> str:
    """Return the output of a failed command, on one line."""
    lines = answer.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def deliver(process: Process, name: str) -> tuple[int, Any]:
    """Deliver the payment of an order now. Where there is no answer, nothing was stored."""
    try:
        return process.send(of_order(name, f"evt-{name}"), at=SystemClock().now())
    except OSError:
        return 0, None


def delivered_at_once(
    receivers: Sequence[Process], names: Sequence[str]
) -> list[tuple[tuple[int, Any], ...]]:
    """Deliver each payment to all receivers at the same instant; return their answers."""
    instant = Barrier(len(receivers))

    def deliver_all(receiver: Process) -> list[tuple[int, Any]]:
        answers = []
        for name in names:
            instant.wait(PATIENCE_S)
            answers.append(deliver(receiver, name))
        return answers

    with ThreadPoolExecutor(len(receivers)) as pool:
        return list(zip(*pool.map(deliver_all, receivers), strict=True))


def _words_of(process: Started) -> str:
    assert process.stderr is not None
    with process.stderr as stream:
        return str(stream.read().decode())


async def test_a_worker_that_comes_first_to_a_new_database_says_what_is_missing(
    empty_url: str,
) -> None:
    """Its environment, which `db upgrade` was not told; the server takes writes."""
    await migrate(empty_url)
    with pytest.raises(ConfigurationError, match="has no environment yet; start `tallyhook serve`"):
        async with open_inbox(settings_of(empty_url), purpose="working"):
            pass


@pytest.mark.slow
@pytest.mark.soak
def test_several_upgrade_at_once(empty_url: str, tmp_path: Path) -> None:
    """Replicas that start together on a new database bring it up to date once, and none fails."""
    variables = environ(tmp_path, DATABASE_URL=empty_url)
    words = [sys.executable, "-m", "app", "db", "upgrade"]
    pipe = subprocess.PIPE
    silent = subprocess.DEVNULL
    started = [start(words, env=variables, stdout=silent, stderr=pipe) for _ in range(3)]
    said = [_words_of(each) for each in started]
    assert [each.wait(PATIENCE_S) for each in started] == [0] * 3, said
    assert sum("was empty. Its tables were created" in each for each in said) == 1
    assert ask(empty_url, "SELECT version_num FROM alembic_version")[0][0] == (schema.NEWEST)


def test_serve_asks_for_the_upgrade(empty_url: str, tmp_path: Path) -> None:
    refused = command(tmp_path, "serve", "--port", "0", DATABASE_URL=empty_url)
    assert (refused.returncode, "run `tallyhook db upgrade`" in word(refused)) == (3, True)
    assert "the database is empty and has no table of Tallyhook's yet" in word(refused)


def test_a_database_from_before_the_first_release_is_refused(
    empty_url: str, tmp_path: Path
) -> None:
    """One sentence says what to do instead of `db upgrade`."""
    ask(
        empty_url,
        "CREATE TABLE alembic_version AS SELECT '0031' AS version_num",
    )
    for words in (["serve", "--port", "0"], ["db", "upgrade"], ["orders", "list"]):
        refused = command(tmp_path, *words, DATABASE_URL=empty_url)
        assert refused.returncode == 3
        assert "has version 0031, which is older than 0.1.0" in word(refused)
        assert "start with a new database" in word(refused)


def test_text_is_compared_by_its_bytes(url: str) -> None:
    """Whatever the server's locale."""
    others = ask(
        url,
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid "
        "WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') AND attnum > 0 "
        "AND atttypid = 'text'::regtype AND attcollation <> '\"C\"'::regcollation",
    )
    assert others == []


@pytest.mark.slow
@pytest.mark.soak
def test_two_receivers_and_four_workers_store_and_fold_all_once(url: str, tmp_path: Path) -> None:
    """Meanwhile nobody can rebuild."""
    own: dict[str, Any] = {"DATABASE_URL": url}
    with ExitStack() as stack:
        receivers = [stack.enter_context(serving(tmp_path, "--no-worker", **own)) for _ in range(2)]
        for _ in range(4):  # each reads, too
            stack.enter_context(running(tmp_path, "worker", **own))
        names = [f"ORD-{number}" for number in range(ORDERS)]
        with ThreadPoolExecutor(4) as pool:
            parts = pool.map(lambda n: delivered_at_once(receivers, names[n::4]), range(4))
            sent = [pair for part in parts for pair in part]
        assert len(sent) == ORDERS
        assert {status for pair in sent for status, _ in pair} == {200}
        counted = "SELECT verdict, count(*) FROM deliveries GROUP BY verdict ORDER BY verdict"
        until(lambda: ask(url, counted) == [("duplicate", ORDERS), ("stored", ORDERS)])
        until(lambda: ask(url, "SELECT count(*) FROM revisions")[0][0] == ORDERS)
        refused = command(tmp_path, "refold", "--all", **own)
        assert (refused.returncode, "stop all of them" in word(refused)) == (2, True)
        assert [process.get("/readyz")["status"] for process in receivers] == ["ready"] * 2
        assert [process.end() for process in receivers] == [0, 0]
    assert command(tmp_path, "refold", "--all", **own).returncode == 0
    other = command(tmp_path, "serve", "--port", "0", **own, ENVIRONMENT="live")
    assert "belongs to sandbox" in word(other)
    assert ask(url, "SELECT count(*) FROM revisions")[0][0] == ORDERS


@pytest.fixture
def mortal() -> Iterator[Server]:
    """Run a server that the test may kill."""
    with a_server(within=memory()) as server:
        yield server


@pytest.mark.slow
def test_a_service_outlives_its_server(mortal: Server, tmp_path: Path) -> None:
    """Meanwhile senders are refused and readiness is red; then the same process goes on."""
    with a_database(mortal.url("postgres")) as url:
        own: dict[str, Any] = {"DATABASE_URL": url}
        assert command(tmp_path, "db", "upgrade", **own).returncode == 0
        with serving(tmp_path, **own) as process:
            assert deliver(process, "A")[0] == 200
            mortal.kill()
            for name in ("B", "C"):
                assert deliver(process, name)[0] == 503
            assert process.request("GET", "/readyz")[0] == 503
            mortal.start()
            until(lambda: deliver(process, "B")[0] == 200)
            until(lambda: process.get("/readyz")["status"] == "ready")
            until(lambda: ask(url, "SELECT count(*) FROM ledgers")[0][0] == 2)
            assert process.end() == 0
            assert all("Traceback" not in str(line) for line in process.lines)
        assert ask(url, "SELECT count(*) FROM deliveries WHERE verdict = 'stored'")[0][0] == 2
