"""Store scheduled runs, one row for each due time of each entry."""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, and_, column, delete, func, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import DAY, Instant

State = Literal["seen", "running", "waiting", "done", "failed"]

KEPT: Final = 400 * DAY
"""Age at which rows are deleted, except the newest."""

_COLUMNS: Final = (
    "name", "due_at", "cron", "state", "asked", "late", "tries", "as_of", "until", "ended_at",
    "waits_since", "run", "problem", "delivered",
)  # fmt: skip
_RUNS: Final = table("scheduled_runs", *map(column, _COLUMNS))
_LATER: Final = _RUNS.alias("later")
_ADD: Final = (
    "INSERT INTO scheduled_runs (name, due_at, cron, state, asked, late, tries, as_of, until, "
    "ended_at, waits_since, run, problem, delivered) VALUES (:name, :due_at, :cron, :state, "
    ":asked, :late, :tries, :as_of, :until, :ended_at, :waits_since, :run, :problem, :delivered) "
    "ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """File that was delivered, with its SHA-256 in hex."""

    way: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRun:
    """Run of a schedule's entry at one due time. `until` is the lease's end or the next try."""

    name: str
    due_at: Instant
    cron: str
    state: State
    asked: bool
    late: bool
    tries: int
    as_of: Instant
    until: Instant | None = None
    ended_at: Instant | None = None
    waits_since: Instant | None = None
    reconciled: int | None = None
    problem: str | None = None
    delivered: tuple[Delivered, ...] = ()


def _run_of(row: Any) -> ScheduledRun:
    given = dict(row._mapping)
    delivered, reconciled = json.loads(given.pop("delivered")), given.pop("run")
    return ScheduledRun(
        reconciled=reconciled,
        **{**given, "asked": bool(given["asked"]), "late": bool(given["late"])},
        delivered=tuple(Delivered(**each) for each in delivered),
    )


def _values(run: ScheduledRun) -> dict[str, Any]:
    values = {name: getattr(run, name) for name in _COLUMNS if name != "run"}
    return values | {
        "asked": int(run.asked),
        "late": int(run.late),
        "run": run.reconciled,
        "delivered": json.dumps([asdict(each) for each in run.delivered]),
    }


async def newest_runs(connection: AsyncConnection, *, until: Instant) -> dict[str, ScheduledRun]:
    """Return each entry's newest scheduled run as of an instant."""
    newest = _newest_of(and_(_LATER.c.asked == 0, _LATER.c.due_at <= until))
    rows = await connection.execute(
        select(_RUNS).where(_RUNS.c.asked == 0, _RUNS.c.due_at == newest)
    )
    return {run.name: run for run in map(_run_of, rows)}


async def last_runs(connection: AsyncConnection, names: Collection[str]) -> dict[str, ScheduledRun]:
    """Return the last begun run of each entry."""
    if not names:
        return {}
    newest = _newest_of(_LATER.c.state != "seen")
    begun = select(_RUNS).where(_RUNS.c.state != "seen", _RUNS.c.due_at == newest)
    rows = await connection.execute(begun.where(_RUNS.c.name.in_(list(names))))
    return {run.name: run for run in map(_run_of, rows)}


def _newest_of(which: ColumnElement[bool]) -> Any:
    return (
        select(func.max(_LATER.c.due_at))
        .where(_LATER.c.name == _RUNS.c.name, which)
        .scalar_subquery()
    )


async def any_run_after(connection: AsyncConnection, instant: Instant) -> bool:
    rows = await connection.execute(select(_RUNS.c.name).where(_RUNS.c.due_at > instant).limit(1))
    return rows.first() is not None


async def forget_runs_after(connection: AsyncConnection, instant: Instant) -> None:
    await connection.execute(delete(_RUNS).where(_RUNS.c.due_at > instant))


async def run_at(connection: AsyncConnection, name: str, due_at: Instant) -> ScheduledRun | None:
    rows = await connection.execute(
        select(_RUNS).where(_RUNS.c.name == name, _RUNS.c.due_at == due_at)
    )
    row = rows.one_or_none()
    return None if row is None else _run_of(row)


async def add_run(connection: AsyncConnection, run: ScheduledRun) -> bool:
    """Add a scheduled run."""
    found = await connection.execute(text(_ADD), _values(run))
    return found.rowcount == 1


async def change_run(
    connection: AsyncConnection, run: ScheduledRun, *, before: ScheduledRun
) -> bool:
    """Change a stored run from `before` to `run`. Return False if the lease was lost."""
    found = await connection.execute(
        text(
            "UPDATE scheduled_runs SET state = :state, late = :late, tries = :tries, "
            "until = :until, ended_at = :ended_at, waits_since = :waits_since, run = :run, "
            "problem = :problem, delivered = :delivered WHERE name = :name AND due_at = :due_at "
            "AND state = :state_before AND tries = :tries_before"
        ),
        {**_values(run), "state_before": before.state, "tries_before": before.tries},
    )
    return found.rowcount == 1


async def forget_runs(connection: AsyncConnection, *, before: Instant) -> None:
    """Delete the old runs, except each entry's newest."""
    await connection.execute(
        text(
            "DELETE FROM scheduled_runs WHERE due_at < :before AND due_at < "
            "(SELECT max(due_at) FROM scheduled_runs AS later "
            "WHERE later.name = scheduled_runs.name AND later.asked = 0)"
        ),
        {"before": before},
    )


async def failed_runs(connection: AsyncConnection, names: Iterable[str]) -> list[ScheduledRun]:
    """Return the last runs that failed, sorted by name."""
    found = await last_runs(connection, list(names))
    return [run for _, run in sorted(found.items()) if run.state == "failed"]


async def waiting_runs(connection: AsyncConnection, names: Iterable[str]) -> list[ScheduledRun]:
    """Return the last runs that wait for unread deliveries."""
    found = await last_runs(connection, list(names))
    return [run for _, run in sorted(found.items()) if run.waits_since is not None]
