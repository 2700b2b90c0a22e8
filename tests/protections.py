"""Break the protections of what was acknowledged, one at a time, and see that a test notices.

    make mutants ARGS=protections

Each is one change of the product that no chance would make, with the tests that must fail under it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants import copied

LIMIT_S: Final = 600
"""Longest that the tests of one may take."""


class Protection(NamedTuple):
    """A protection by its name: the text of a module that is it, what breaks it, and its tests."""

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


PROTECTIONS: Final = (
    Protection(
        "acknowledge after the commit",
        "app/receiving/inbox_queue.py",
        "        await answer\n",
        "        await asyncio.sleep(0)\n",
        ("tests/receiving/test_inbox_queue.py",),
    ),
    Protection(
        "sync each commit",
        "app/database/engine.py",
        '    if (journal, synchronous) != ("wal", 2):',
        "    cursor.execute('PRAGMA synchronous=NORMAL')\n    if journal != 'wal':",
        ("tests/database/test_sqlite.py::test_connections_have_their_pragmas",),
    ),
    Protection(
        "sync the folder at a start",
        "app/database/database.py",
        "    sync_folder(path.parent)\n",
        "",
        ("tests/receiving/test_store_files.py",),
    ),
    Protection(
        "take no row at or below the position",
        "app/receiving/inbox_store.py",
        "for row in in_file if row.seq > position]",
        "for row in in_file]",
        ("tests/database/test_inbox_file.py",),
    ),
    Protection(
        "miss rows below the position",
        "app/receiving/inbox.py",
        "            if await file.on_snapshot(inbox_store.last_number) >= least:",
        "            if await file.on_snapshot(inbox_store.last_number) >= 0:",
        ("tests/receiving/test_inbox_loss.py",),
    ),
    Protection(
        "delete only what the database's file holds",
        "app/receiving/inbox_writer_store.py",
        "            if seq > self._covered or (last",
        "            if (last",
        ("tests/receiving/test_inbox_writer.py",),
    ),
    Protection(
        "look at device and inode",
        "app/database/writer.py",
        "            if found != opened:",
        "            if False:",
        ("tests/database/test_place.py",),
    ),
    Protection(
        "look at the size",
        "app/database/writer.py",
        "        return size < longest\n",
        "        return False\n",
        ("tests/database/test_place.py",),
    ),
    Protection(
        "look before a transaction, too",
        "app/database/writer.py",
        "self.check_place()  # a later write can restore a file's former length\n",
        "pass\n",
        ("tests/database/test_place.py",),
    ),
    Protection(
        "take back at a start that the inbox was closed",
        "app/receiving/inbox.py",
        "            await run(connection, inbox_loss_store.note_open, last=last, "
        "now=SystemClock().now())\n",
        "",
        ("tests/receiving/test_inbox_loss.py",),
    ),
)


def fail(folder: Path, tests: tuple[str, ...]) -> bool:
    """Return whether the tests fail, or do not end, in a copy of the repository."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def played() -> int:
    """Break each and print what became of it. Return 0 if all were noticed, 1 if one was not, and 2
    if tests fail without any change."""
    survived = 0
    with tempfile.TemporaryDirectory(prefix="protections-") as made:
        folder = Path(made).resolve()
        copied(folder)
        for each in PROTECTIONS:
            file = folder / each.path
            source = file.read_text()
            if fail(folder, each.tests):
                print(f"without any change they do not pass: {' '.join(each.tests)}")
                return 2
            file.write_text(source.replace(each.before, each.after))
            noticed = fail(folder, each.tests)
            file.write_text(source)
            survived += not noticed
            print(f"{'killed' if noticed else 'SURVIVED':9} {each.name}", flush=True)
    return 1 if survived else 0
