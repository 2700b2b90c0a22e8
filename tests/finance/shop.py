"""A merchant with a generated month, who does everything by commands."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.cli import main
from app.core.clock import SystemClock
from reconcile.instants import parse_instant
from tests.api.driving import environ
from tests.copied import copy_of
from tests.database.builders import opened
from tests.finance.loading import keep_arrivals, month_in
from tests.finance.month import Month

LONG_AGO = parse_instant("2024-10-01T00:00:00Z")
"""Commands ask the machine's own clock: whatever it says, this month is long over."""


@dataclass
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be JSON."""
        return json.loads(self.out)


@dataclass
class Shop:
    """One folder with the database `t.db` and the month's files.

    zone  the merchant's; empty: UTC
    """

    folder: Path
    month: Month
    zone: str = ""

    @property
    def url(self) -> str:
        """The database."""
        return environ(self.folder)["TALLYHOOK_DATABASE_URL"]

    def fill(self) -> None:
        """What came to the door in the month; books, statement and rules as files."""
        copy_of(month_in, self.folder, self.month)
        self.month.write_book(self.folder / "book.csv")
        self.month.write_statement(self.folder / "statement.csv")
        self.month.write_rules(self.folder / "rules.toml")

    def _environ(self) -> dict[str, str]:
        return environ(self.folder, **({"TIMEZONE": self.zone} if self.zone else {}))

    def hear_late(self) -> int:
        """The webhooks that were missed come now. Returns how many."""
        late = self.month.late(SystemClock().now())

        async def keep() -> None:
            async with opened(self.url) as inbox:
                await keep_arrivals(inbox, late)

        asyncio.run(keep())
        return len(late)

    def run(self, *words: str) -> Ended:
        """A command, in this process."""
        out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        with patch.dict("os.environ", self._environ()), _written(out, err):
            code = main.run(words)
        written = out.buffer.getvalue()
        assert "Traceback" not in err.getvalue()
        return Ended(code, written, err.getvalue())

    def did(self, *words: str) -> Ended:
        """The same, of a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, (words, ended.err, ended.out[:2_000])
        return ended

    def reconcile(self) -> Any:
        """Import the files, save the rules and run. Returns the run's document."""
        self.did("records", "import", str(self.folder / "book.csv"))
        self.did("statement", "import", str(self.folder / "statement.csv"))
        self.did("reconcile", "rules", "save", str(self.folder / "rules.toml"))
        return self.did("reconcile", "run", "--format", "json").document

    def accept(self, *causes: str) -> int:
        """Accept every open break of these causes. Returns how many there were."""
        count = 0
        for cause in causes:
            found = self.did("breaks", "list", "--cause", cause, "--format", "json").document
            for each in found:
                self.did("breaks", "accept", each["id"], "--reason", "asked the provider")
            count += len(found)
        return count

    def report(self, start: str, end: str, *, basis: str = "captured") -> Any:
        """A report as JSON."""
        words = ("report", "period", "--from", start, "--to", end, "--format", "json")
        return self.did(*words, "--basis", basis).document


@contextmanager
def _written(out: io.TextIOWrapper, err: io.StringIO) -> Iterator[None]:
    with redirect_stdout(out), redirect_stderr(err):
        yield
