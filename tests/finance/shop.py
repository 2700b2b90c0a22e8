"""A merchant with a generated month, who does everything by commands."""

import asyncio
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
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
from tests.finance.loading import cover, keep_arrivals, month_in
from tests.finance.month import Month

LONG_AGO = parse_instant("2024-10-01T00:00:00Z")
"""Commands ask the machine's own clock: whatever it says, this month is long over."""


@dataclass
class Ended:
    """Result of a command: its exit code and its output."""

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
        return environ(self.folder)["TALLYHOOK_DATABASE_URL"]

    def fill(self) -> None:
        """Load what arrived in the month; write book, statement and rules as files."""
        copy_of(month_in, self.folder, self.month)
        self.month.write_book(self.folder / "book.csv")
        self.month.write_statement(self.folder / "statement.csv")
        self.month.write_rules(self.folder / "rules.toml")

    def hear_late(self) -> int:
        """Let the missed webhooks come now. Returns their number."""
        late = self.month.late(SystemClock().now())

        async def keep() -> None:
            async with opened(self.url) as inbox:
                await keep_arrivals(inbox, late)

        asyncio.run(keep())
        return len(late)

    def run(self, *words: str) -> Ended:
        """Run a command in this process."""
        variables = environ(self.folder, **({"TIMEZONE": self.zone} if self.zone else {}))
        return ran(words, variables)

    def did(self, *words: str) -> Ended:
        """Run a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, (words, ended.err, ended.out[:2_000])
        return ended

    def cover(self) -> None:
        """Declare that statements and bank files cover all, so that a month can be closed."""

        async def declare() -> None:
            async with opened(self.url) as inbox:
                await cover(inbox.database, at=self.month.starts, until=SystemClock().now())

        asyncio.run(declare())

    def settle(self) -> None:
        """Import the statement, and cover it."""
        self.did("statement", "import", str(self.folder / "statement.csv"))
        self.cover()

    def reconcile(self) -> Any:
        """Import the files, save the rules and run. Returns the run's document."""
        days = ("--from", self.month.days[0], "--to", self.month.days[1])
        self.did("records", "import", str(self.folder / "book.csv"), *days)
        self.did("statement", "import", str(self.folder / "statement.csv"), *days)
        self.did("reconcile", "rules", "save", str(self.folder / "rules.toml"))
        return self.did("reconcile", "run", "--format", "json").document

    def accept(self, *causes: str) -> int:
        """Accept every open break of these causes. Returns their number."""
        count = 0
        for cause in causes:
            found = self.did("breaks", "list", "--cause", cause, "--format", "json").document
            for each in found:
                self.did("breaks", "accept", each["id"], "--reason", "asked the provider")
            count += len(found)
        return count

    def report(self, start: str, end: str, *, basis: str = "captured") -> Any:
        """Return a report as JSON."""
        words = ("report", "period", "--from", start, "--to", end, "--format", "json")
        return self.did(*words, "--basis", basis).document


def ran(words: Sequence[str], variables: Mapping[str, str]) -> Ended:
    """Run a command in this process, in an environment of its own."""
    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
    with patch.dict("os.environ", variables), redirect_stdout(out), redirect_stderr(err):
        code = main.run(words)
    assert "Traceback" not in err.getvalue()
    return Ended(code, out.buffer.getvalue(), err.getvalue())
