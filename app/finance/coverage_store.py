"""Store the spans of time that files cover."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.gaps import accepted_gaps
from app.database.statements import run, statement
from app.finance.import_store import ImportKind
from reconcile.instants import TICK, Instant, format_known
from reconcile.matching.rules import Coverage, Covered, Span, common_spans, joined_spans

BY_FILE: Final = "file"
"""Author of a coverage line that a file states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageLine:
    """Span of time that files cover."""

    kind: ImportKind
    name: str
    since: Instant | None
    until: Instant | None
    who: str
    """BY_FILE, or the person who declared the line."""
    at: Instant
    number: int = 0
    """Number of the line, from 1; 0 for a line that is not stored yet."""
    of_import: int | None = None
    wallet: str | None = None
    """Name of the wallet; None for the whole source."""
    reason: str | None = None
    withdraws: int | None = None
    """Number of the declared line that this line withdraws."""
    format: str | None = None
    first_day: str | None = None
    last_day: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "kind": self.kind,
            "name": self.name,
            "wallet": self.wallet,
            "since": format_known(self.since),
            "until": format_known(self.until),
            "import": self.of_import,
            "by": self.who,
            "at": format_known(self.at),
            "reason": self.reason,
        }


_COLUMNS: Final = tuple(CoverageLine.__dataclass_fields__)

_ADD: Final = statement(
    "INSERT INTO coverage ({columns}) VALUES ({values})",
    columns=", ".join(_COLUMNS),
    values=", ".join(f":{name}" for name in _COLUMNS),
)

_STANDING: Final = statement(
    "SELECT {columns} FROM coverage AS one WHERE at <= :as_of AND withdraws IS NULL "
    "AND NOT EXISTS (SELECT 1 FROM coverage AS other "
    "WHERE other.withdraws = one.number AND other.at <= :as_of) "
    "AND NOT EXISTS (SELECT 1 FROM imports WHERE imports.withdraws = one.of_import "
    "AND imports.published_at <= :as_of) ORDER BY number",
    columns=", ".join(_COLUMNS),
)


_OF_ANOTHER_FORMAT: Final = (
    "SELECT imports.number, file, format, min(first_day), max(last_day) FROM coverage "
    "JOIN imports ON imports.number = of_import "
    "WHERE coverage.kind = 'bank' AND name = :name AND format <> :format "
    "AND first_day IS NOT NULL AND NOT EXISTS "
    "(SELECT 1 FROM imports AS other WHERE other.withdraws = imports.number "
    "AND other.published_at IS NOT NULL) "
    "GROUP BY imports.number, file, format ORDER BY imports.number"
)


class BankDays(NamedTuple):
    """Days of one account that an imported bank file covers."""

    number: int
    file: str
    format: str
    first_day: str
    last_day: str


async def of_another_format(
    connection: AsyncConnection, *, account: str, form: str
) -> list[BankDays]:
    """Return the days that other formats cover for an account."""
    rows = await connection.execute(text(_OF_ANOTHER_FORMAT), {"name": account, "format": form})
    return [BankDays(*row) for row in rows]


async def add_coverage(connection: AsyncConnection, lines: Iterable[CoverageLine]) -> int:
    """Store coverage lines and return their highest number. The caller must hold the lock of
    `importing_alone`."""
    found = await connection.execute(text("SELECT coalesce(max(number), 0) FROM coverage"))
    number = int(found.scalar_one())
    for line in lines:
        number += 1
        await connection.execute(text(_ADD), {**asdict(line), "number": number})
    return number


async def coverage_lines(connection: AsyncConnection, *, as_of: Instant) -> list[CoverageLine]:
    """Return the coverage lines in force at an instant."""
    rows = await connection.execute(text(_STANDING), {"as_of": as_of})
    return [CoverageLine(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]


async def coverage(connection: AsyncConnection, *, as_of: Instant) -> Coverage:
    """Return all coverage as known at an instant."""
    lines = await coverage_lines(connection, as_of=as_of)
    # Ids of deliveries begin with the time of their arrival.
    arrived = await connection.scalar(
        text("SELECT received_at FROM deliveries ORDER BY id LIMIT 1")
    )
    return Coverage(
        books=covered_by(lines, "book"),
        statements=covered_by(lines, "statement"),
        wallets=wallets_of(lines),
        bank=covered_by(lines, "bank"),
        takings=as_of if arrived is None else arrived,
        lost=joined_spans(
            Span(since=gap.since, until=Instant(gap.until + TICK))
            for gap in await run(connection, accepted_gaps)
            if gap.accepted_at <= as_of
        ),
    )


def covered_by(lines: Iterable[CoverageLine], kind: ImportKind) -> tuple[Covered, ...]:
    """Return the spans that files of this kind cover, by name. A day is covered only if all wallets
    are."""
    found = []
    for name, by_wallet in sorted(_by_name(lines, kind).items()):
        own = joined_spans(_spans(by_wallet.pop(None, ())))
        shared = common_spans([joined_spans(_spans(some)) for some in by_wallet.values()])
        every = [line for line in lines if (line.kind, line.name) == (kind, name)]
        spans = joined_spans((*own, *shared))
        found.append(Covered(name=name, spans=spans, declared_by=_people(every)))
    return tuple(found)


def wallets_of(lines: Iterable[CoverageLine]) -> tuple[Covered, ...]:
    """Return the coverage of each wallet."""
    found = []
    for name, by_wallet in sorted(_by_name(lines, "statement").items()):
        of_all = by_wallet.pop(None, [])
        found += [
            Covered(
                name=name,
                wallet=wallet,
                spans=joined_spans(_spans((*some, *of_all))),
                declared_by=_people((*some, *of_all)),
            )
            for wallet, some in sorted(by_wallet.items(), key=str)
        ]
    return tuple(found)


def _by_name(
    lines: Iterable[CoverageLine], kind: ImportKind
) -> dict[str, dict[str | None, list[CoverageLine]]]:
    found: dict[str, dict[str | None, list[CoverageLine]]] = {}
    for line in lines:
        if line.kind == kind:
            found.setdefault(line.name, {}).setdefault(line.wallet, []).append(line)
    return found


def _spans(lines: Iterable[CoverageLine]) -> list[Span]:
    return [
        Span(since=line.since, until=line.until)
        for line in lines
        if line.since is not None and line.until is not None
    ]


def _people(lines: Iterable[CoverageLine]) -> tuple[str, ...]:
    stated = [line for line in lines if line.since is not None and line.who != BY_FILE]
    return tuple(sorted({line.who for line in stated}))
