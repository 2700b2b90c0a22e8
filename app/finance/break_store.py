"""Breaks, and their steps by runs and by people."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from sqlalchemy import ColumnElement, column, func, or_, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import RECONCILING, take_lock
from app.database.statements import Rows, run, select_in, statement, stream
from reconcile.instants import LATEST, Instant
from reconcile.matching.breaks import STATES, Break, Step, break_in
from reconcile.matching.rows import name_of
from reconcile.matching.rules import HandMatch, hand_match
from reconcile.money import Money

_TURNS: Final = (
    "SELECT break_turns.break_id, runs.at, 0, runs.number, turn, minor, currency, cites, seen "
    "FROM break_turns JOIN runs ON runs.number = break_turns.run "
    "JOIN break_versions ON break_versions.break_id = break_turns.break_id "
    "AND break_versions.version = break_turns.version WHERE break_turns.break_id IN ({})"
)

_ACTS: Final = (
    "SELECT break_id, at, 1, number, deed, minor, currency, who, second, value, reason "
    "FROM break_deeds WHERE break_id IN ({})"
)

_LATEST: Final = (
    "SELECT break_id, seen FROM break_versions AS version WHERE break_id IN ({}) AND version = "
    "(SELECT turn.version FROM break_turns AS turn JOIN runs ON runs.number = turn.run "
    "WHERE turn.break_id = version.break_id ORDER BY turn.run DESC LIMIT 1)"
)


_BREAKS: Final = table("breaks", *map(column, ("id", "cause", "order_ref", "subject")))
_SEEN: Final = table("break_seen", *map(column, ("break_id", "run")))
_TURNED: Final = table("break_turns", *map(column, ("break_id",)))
_DONE_ABOUT: Final = table("break_deeds", *map(column, ("break_id", "deed", "value")))
_RUNS: Final = table("runs", *map(column, ("number", "lived")))

_NEWEST: Final = select(func.max(_RUNS.c.number)).where(_RUNS.c.lived == 1).scalar_subquery()
"""The newest run that changed breaks. Every break that it saw is open."""

_LIVED: Final = select(_BREAKS.c.id).where(
    select(_TURNED.c.break_id).where(_TURNED.c.break_id == _BREAKS.c.id).exists()
)

_LIVING: Final = (
    select(_SEEN.c.break_id)
    .join_from(_SEEN, _BREAKS, _BREAKS.c.id == _SEEN.c.break_id)
    .where(_SEEN.c.run == _NEWEST)
)

_NOT_SEEN: Final = (
    ~select(_SEEN.c.break_id)
    .where(_SEEN.c.break_id == _BREAKS.c.id, _SEEN.c.run == _NEWEST)
    .exists()
)

_DONE: Final = {"assigned": ("assigned",), "accepted": ("accepted", "settled")}
"""Acts that may have brought a break into each state."""


async def breaks_after(
    connection: AsyncConnection,
    *,
    after: str,
    limit: int,
    causes: Collection[str] = (),
    states: Collection[str] = STATES,
    assignee: str | None = None,
) -> list[str]:
    """Return ids of published breaks, by id.

    causes    only breaks of these causes, if any are given
    states    all breaks in these states, and some others whose act was undone
    assignee  all breaks of this person, and others that once were
    """
    among = _LIVED if "closed" in states else _LIVING
    if set(states) == {"closed"}:
        among = _LIVED.where(or_(_NOT_SEEN, _somebody_did(_DONE_ABOUT.c.deed == "matched")))
    (key,) = among.selected_columns
    among = among.where(key > after).order_by(key).limit(limit)
    if causes:
        among = among.where(_BREAKS.c.cause.in_(tuple(causes)))
    done = {_DONE[state] for state in states if state in _DONE}
    if len(done) == len(states) == 1:
        among = among.where(_somebody_did(_DONE_ABOUT.c.deed.in_(done.pop())))
    if assignee is not None:
        assigned = _DONE_ABOUT.c.deed == "assigned", _DONE_ABOUT.c.value == assignee
        among = among.where(_somebody_did(*assigned))
    return [row[0] for row in await connection.execute(among)]


def _somebody_did(*which: ColumnElement[bool]) -> ColumnElement[bool]:
    about_it = _DONE_ABOUT.c.break_id == _BREAKS.c.id
    return select(_DONE_ABOUT.c.break_id).where(about_it, *which).exists()


async def breaks_of_subject(connection: AsyncConnection, subject: str) -> list[str]:
    """Return ids of the published breaks about this line."""
    about_it = _LIVED.where(_BREAKS.c.subject == subject).order_by(_BREAKS.c.id)
    return [row[0] for row in await connection.execute(about_it)]


async def breaks_of_order(connection: AsyncConnection, order: str, *, limit: int) -> list[str]:
    """Return ids of the published breaks of this order."""
    of_it = _LIVED.where(_BREAKS.c.order_ref == order).order_by(_BREAKS.c.id).limit(limit)
    return [row[0] for row in await connection.execute(of_it)]


async def breaks_in_run(connection: AsyncConnection, number: int) -> AsyncIterator[Rows]:
    """Yield (id, cause, minor units, currency, since) for each break that a run saw."""
    sql = (
        "SELECT breaks.id, cause, minor, currency, since FROM break_seen "
        "JOIN breaks ON breaks.id = break_seen.break_id "
        "JOIN break_versions ON break_versions.break_id = break_seen.break_id "
        "AND break_versions.version = break_seen.version WHERE break_seen.run = :run"
    )
    async for rows in stream(connection, sql, at_once=1_000, values={"run": number}):
        yield rows


async def breaks_done_about(
    connection: AsyncConnection, number: int, *, decided: bool = False
) -> AsyncIterator[list[str]]:
    """Yield ids of breaks that a run saw and a person acted on, or decided."""
    sql = (
        "SELECT break_id FROM break_seen WHERE run = :run AND EXISTS (SELECT 1 FROM break_deeds "
        "WHERE break_deeds.break_id = break_seen.break_id{which})"
    )
    which = " AND deed IN ('accepted', 'settled', 'matched')" if decided else ""
    sql = statement(sql, which=which)
    async for rows in stream(connection, sql, at_once=500, values={"run": number}):
        yield [row[0] for row in rows]


async def steps_of(
    connection: AsyncConnection, names: Sequence[str], *, as_of: Instant = LATEST
) -> dict[str, list[Step]]:
    """Return the steps of each of these breaks up to an instant, in order."""
    rows = [
        *await select_in(connection, sql=_TURNS, values=names),
        *await select_in(connection, sql=_ACTS, values=names),
    ]
    found: dict[str, list[Step]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[:4]):
        name, at, by_person, number, kind, minor, currency, *rest = row
        if at > as_of:
            continue
        money = Money(minor=minor, currency=currency)
        if by_person:
            who, second, value, reason = rest
            step = Step(
                at=at, kind=kind, money=money, by=who, second=second, value=value, reason=reason
            )
        else:
            cites = tuple(json.loads(rest[0]))
            left = break_in(rest[1]).left
            step = Step(at=at, kind=kind, money=money, cites=cites, run=number, left=left)
        found[name].append(step)
    return found


async def latest_seen(connection: AsyncConnection, names: Sequence[str]) -> dict[str, Break]:
    """Return the latest version of each of these published breaks."""
    rows = await select_in(connection, sql=_LATEST, values=names)
    return {row[0]: break_in(row[1]) for row in rows}


# --- what people do -------------------------------------------------------------------------------


async def deciding_alone(connection: AsyncConnection) -> None:
    """Lock decisions on breaks, and runs' writes of breaks, until the transaction ends."""
    await run(connection, take_lock, RECONCILING)


async def add_act(connection: AsyncConnection, break_id: str, step: Step) -> None:
    number = await connection.scalar(
        text(
            "INSERT INTO counters (name, value) VALUES ('break_deeds', 1) "
            "ON CONFLICT (name) DO UPDATE SET value=counters.value+1 RETURNING value"
        )
    )
    await connection.execute(
        text(
            "INSERT INTO break_deeds (number, break_id, at, who, deed, value, reason, second, "
            "minor, currency) VALUES (:number, :break_id, :at, :who, :deed, :value, :reason, "
            ":second, :minor, :currency)"
        ),
        {
            "number": number,
            "break_id": break_id,
            "at": step.at,
            "who": step.by,
            "deed": step.kind,
            "value": step.value,
            "reason": step.reason,
            "second": step.second,
            "minor": step.money.minor,
            "currency": step.money.currency,
        },
    )


MATCH_STANDS: Final = (
    "deed = 'matched' AND at <= {as_of} AND NOT EXISTS (SELECT 1 FROM break_deeds AS later "
    "WHERE later.deed = 'unmatched' "
    "AND later.break_id = break_deeds.break_id AND later.value = break_deeds.value "
    "AND later.number > break_deeds.number AND later.at <= {as_of})"
)
"""Rows of `break_deeds` that are matches by hand not undone by an instant."""

_STANDS: Final = statement(MATCH_STANDS, as_of=":as_of")
_HAND_MATCHES: Final = statement(
    "SELECT cause, order_ref, subject, value FROM break_deeds "
    "JOIN breaks ON id = break_id WHERE {stands} ORDER BY number",
    stands=_STANDS,
)
_MATCHED: Final = statement(
    "SELECT break_id, value FROM break_deeds WHERE {stands} ORDER BY number", stands=_STANDS
)
_MATCHED_WITH: Final = statement(
    "SELECT value FROM break_deeds WHERE {stands} AND break_id = :name ORDER BY number",
    stands=_STANDS,
)


async def hand_matches(connection: AsyncConnection, *, as_of: Instant) -> list[HandMatch]:
    rows = await connection.execute(text(_HAND_MATCHES), {"as_of": as_of})
    return [
        hand_match(cause, order=order, subject=subject, given=given)
        for cause, order, subject, given in rows
    ]


async def matched_by_hand(connection: AsyncConnection, line: str) -> str | None:
    """Return the break that a person matched with this line, in any version; None if nobody did."""
    rows = await connection.execute(text(_MATCHED), {"as_of": LATEST})
    wanted = name_of(line)
    return next((row[0] for row in rows if name_of(row[1]) == wanted), None)


async def claimed_by_hand(connection: AsyncConnection) -> set[str]:
    rows = await connection.execute(text(_MATCHED), {"as_of": LATEST})
    return {name_of(row[1]) for row in rows}


async def lines_matched_with(connection: AsyncConnection, name: str) -> list[str]:
    """Return the lines that people matched with a break, in the versions that they saw."""
    rows = await connection.execute(text(_MATCHED_WITH), {"as_of": LATEST, "name": name})
    return [row[0] for row in rows]
