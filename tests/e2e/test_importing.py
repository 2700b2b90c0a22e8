"""An import that is killed, as a process of its own, beside a service that goes on."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.cli.main import run
from app.core.clock import SystemClock
from app.finance import write_import
from tests.api.driving import environ, event
from tests.e2e.processes import command, running, serving
from tests.waiting import until

ROWS = 6_000
PHONE = "254700000001"


NEVER_DONE = """
import sys, time
from app.finance import write_import

chunks = write_import.chunks

def all_but_the_last(staged, pace):
    *parts, _ = chunks(staged, pace)
    yield from parts
    time.sleep(10_000)

write_import.chunks = all_but_the_last
from app.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
"""An import that stands still before its last part, so that it is not done before it is killed."""


def written(database: Path) -> int:
    """Return the number of rows that an import under way has written; 0 without one."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT written FROM imports WHERE published_at IS NULL")
        return int((found.fetchone() or (0,))[0])


def published(folder: Path, what: str) -> list[dict[str, object]]:
    listed = command(folder, "records", what, "--limit", "1", "--format", "json")
    found: list[dict[str, object]] = json.loads(listed.stdout)
    return found


@pytest.mark.slow
def test_a_killed_import_has_imported_nothing_and_the_next_one_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it writes, and after it was killed, deliveries are stored; the next import waits until
    the first has been silent, and then undoes it."""
    path = tmp_path / "book.csv"
    rows = "".join(f"R-{n},{n}.00,KES,{PHONE}\n" for n in range(ROWS))
    path.write_text("reference,amount,currency,phone\n" + rows)
    now = SystemClock().now()
    with serving(tmp_path) as service:
        words = ("records", "import", str(path))
        with running(tmp_path, *words, script=NEVER_DONE, stays=False) as importing:
            until(lambda: written(tmp_path / "t.db") or importing.popen.poll() is not None)
            assert importing.popen.poll() is None, importing.log
            assert service.send(event("e1"), at=now)[0] == 200
            assert importing.end(signal.SIGKILL) == -signal.SIGKILL
        assert 0 < written(tmp_path / "t.db") < ROWS
        assert published(tmp_path, "list") == []
        assert service.send(event("e2"), at=now)[0] == 200
        monkeypatch.setattr(write_import, "SILENT_S", 0.5)
        for name, value in environ(tmp_path).items():
            monkeypatch.setenv(name, value)
        assert run(["records", "import", str(path), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["new"] == ROWS
        assert [each["new"] for each in published(tmp_path, "imports")] == [ROWS]
