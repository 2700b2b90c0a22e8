"""Store breaks, the reconciliation runs that found them, and later steps. The last write of a run
publishes the whole run."""

import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, column, func, insert, or_, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.locks import RECONCILING, take_lock
from app.database.statements import Rows, insert_rows, run, select_in, statement, stream
from app.finance.import_store import newest_published
from reconcile.instants import EARLIEST, LATEST, Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import STATES, Break, Step, break_in, break_text
from reconcile.matching.causes import CAUSES
from reconcile.matching.rows import name_of
from reconcile.matching.rules import HandMatch, hand_match
from reconcile.money import Money

AT_ONCE: Final = 500

_MATCH_STANDS: Final = (
    "deed = 'matched' AND at <= {as_of} AND NOT EXISTS (SELECT 1 FROM break_deeds AS later "
    "WHERE later.deed = 'unmatched' "
    "AND later.break_id = break_deeds.break_id AND later.value = break_deeds.value "
    "AND later.number > break_deeds.number AND later.at <= {as_of})"
)

_STANDS: Final = statement(_MATCH_STANDS, as_of=":as_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Finished reconciliation run. `rules` is 0 without rules, and None for rules from a file.
    `lived` is true if the run may change breaks."""

    number: int
    at: Instant
    as_of: Instant
    since: Instant | None
    until: Instant | None
    rules: int | None
    lived: bool
    breaks: int
    ties: bool
    result: str


_COLUMNS: Final = tuple(Run.__dataclass_fields__)
_RUNS: Final = table("runs", *map(column, _COLUMNS))


async def take_run_number(connection: AsyncConnection) -> int:
    """Return the number for a new run. The number of a killed run stays unused."""
    number = await connection.scalar(
        text(
            "INSERT INTO counters (name, value) VALUES ('runs', 1) "
            "ON CONFLICT (name) DO UPDATE SET value=counters.value+1 RETURNING value"
        )
    )
    assert isinstance(number, int)
    return number


async def save_seen(
    connection: AsyncConnection, found: Sequence[Break], *, number: int, as_of: Instant
) -> None:
    """Store the breaks that a run found."""
    await run(connection, take_lock, RECONCILING)
    breaks = {each.identity: (each, break_text(each)) for each in found}
    versions: dict[str, dict[str, int]] = defaultdict(dict)
    sql = "SELECT break_id, version, digest FROM break_versions WHERE break_id IN ({})"
    for name, version, digest in await select_in(connection, sql=sql, values=list(breaks)):
        versions[name][digest] = version
    seen, fresh = [], []
    for name, (each, words) in breaks.items():
        undated = break_text(replace(each, since=EARLIEST)) if each.since == as_of else words
        digest = hashlib.sha256(undated.encode()).hexdigest()
        known = versions.get(name, {})
        version = known.get(digest)
        if version is None:
            version = len(known) + 1
            money = each.money
            fresh.append((name, version, digest, money.minor, money.currency, each.since, words))
        seen.append((number, name, version))
    new = [
        (name, each.cause, each.order, each.payment, each.subject)
        for name, (each, _) in breaks.items()
        if name not in versions
    ]
    await run(connection, insert_rows, table="breaks", columns=_BREAK, rows=new)
    await run(connection, insert_rows, table="break_versions", columns=_VERSION, rows=fresh)
    await run(connection, insert_rows, table="break_seen", columns=_SEEN_COLUMNS, rows=seen)


_BREAK: Final = ("id", "cause", "order_ref", "payment", "subject")
_VERSION: Final = ("break_id", "version", "digest", "minor", "currency", "since", "seen")
_SEEN_COLUMNS: Final = ("run", "break_id", "version")
_TURN: Final = ("break_id", "run", "turn", "version", "cites")


# --- changes of breaks ----------------------------------------------------------------------------

_OPENED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'opened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND NOT EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id)"
)

_REOPENED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'reopened', seen.version, '[]' FROM break_seen AS seen "
    "WHERE seen.run = :run AND EXISTS "
    "(SELECT 1 FROM break_turns WHERE break_turns.break_id = seen.break_id) AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS last WHERE last.run = :last AND last.break_id = seen.break_id)"
)

_CHANGED: Final = (
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'changed', seen.version, '[]' FROM break_seen AS seen "
    "JOIN break_seen AS last ON last.run = :last AND last.break_id = seen.break_id "
    "WHERE seen.run = :run AND last.version <> seen.version"
)

_REOPEN_MATCHED: Final = statement(
    "INSERT INTO break_turns (break_id, run, turn, version, cites) "
    "SELECT seen.break_id, :run, 'reopened', seen.version, '[]' FROM break_seen AS seen "
    "JOIN break_seen AS last ON last.run = :last AND last.break_id = seen.break_id "
    "WHERE seen.run = :run AND last.version = seen.version AND EXISTS (SELECT 1 FROM break_deeds "
    "WHERE break_deeds.break_id = seen.break_id AND break_deeds.at > :last_as_of AND {stands})",
    stands=_STANDS,
)

_GONE: Final = (
    "SELECT last.break_id, last.version, break_versions.seen FROM break_seen AS last "
    "JOIN break_versions ON break_versions.break_id = last.break_id "
    "AND break_versions.version = last.version "
    "WHERE last.run = :last AND last.break_id > :after AND NOT EXISTS "
    "(SELECT 1 FROM break_seen AS seen WHERE seen.run = :run AND seen.break_id = last.break_id) "
    "ORDER BY last.break_id LIMIT :limit"
)


async def last_lived(connection: AsyncConnection) -> Run | None:
    lived = select(_RUNS).where(_RUNS.c.lived == 1)
    found = await _runs(connection, lived.order_by(_RUNS.c.number.desc()).limit(1))
    return next(iter(found), None)


async def gone_breaks(
    connection: AsyncConnection, *, number: int, last: Run
) -> AsyncIterator[list[tuple[str, int, Break]]]:
    """Yield the breaks that only the run `last` found."""
    after = ""
    while True:
        rows = await connection.execute(
            text(_GONE), {"run": number, "last": last.number, "after": after, "limit": AT_ONCE}
        )
        found = [(row[0], row[1], break_in(row[2])) for row in rows]
        if not found:
            return
        yield found
        after = found[-1][0]


async def save_closed(
    connection: AsyncConnection, closed: Sequence[tuple[str, int, Sequence[str]]], *, number: int
) -> None:
    """Store closed breaks: (id, last version, closing evidence)."""
    rows = [
        (name, number, "closed", version, json.dumps(cites, ensure_ascii=False))
        for name, version, cites in closed
    ]
    await run(connection, insert_rows, table="break_turns", columns=_TURN, rows=rows)


async def finish_run(connection: AsyncConnection, done: Run, *, last: Run | None) -> None:
    """Publish a finished run with the changes of its breaks."""
    if done.lived:
        both = {"run": done.number, "last": 0 if last is None else last.number}
        since = {"as_of": done.as_of, "last_as_of": EARLIEST if last is None else last.as_of}
        for turned, values in (
            (_CHANGED, both),
            (_REOPENED, both),
            (_OPENED, {"run": done.number}),
            (_REOPEN_MATCHED, both | since),
        ):
            await connection.execute(text(turned), values)
    values_of = {name: getattr(done, name) for name in _COLUMNS}
    values_of |= {"lived": int(done.lived), "ties": int(done.ties)}
    await connection.execute(insert(_RUNS).values(values_of))


# --- reading --------------------------------------------------------------------------------------


async def run_of(connection: AsyncConnection, number: int) -> Run | None:
    found = await _runs(connection, select(_RUNS).where(_RUNS.c.number == number))
    return next(iter(found), None)


async def runs(connection: AsyncConnection, *, limit: int, before: int | None = None) -> list[Run]:
    """Return the finished runs, newest first."""
    listing = select(_RUNS).order_by(_RUNS.c.number.desc()).limit(limit)
    if before is not None:
        listing = listing.where(_RUNS.c.number < before)
    return await _runs(connection, listing)


async def _runs(connection: AsyncConnection, which: Select[Any]) -> list[Run]:
    rows = await connection.execute(which)
    found = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
    return [
        Run(**each | {"lived": each["lived"] == 1, "ties": each["ties"] == 1}) for each in found
    ]


async def seen_by(
    connection: AsyncConnection, number: int, *, after: str
) -> list[tuple[str, Break]]:
    """Return the next AT_ONCE breaks of a run, sorted by id."""
    rows = await connection.execute(
        text(
            "SELECT break_seen.break_id, break_versions.seen FROM break_seen JOIN break_versions "
            "ON break_versions.break_id = break_seen.break_id "
            "AND break_versions.version = break_seen.version "
            "WHERE run = :run AND break_seen.break_id > :after "
            "ORDER BY break_seen.break_id LIMIT :limit"
        ),
        {"run": number, "after": after, "limit": AT_ONCE},
    )
    return [(row[0], break_in(row[1])) for row in rows]


MOST_CITED: Final = 20


_EVENTS_SINCE: Final = (
    "SELECT order_key, event_id FROM events "
    "WHERE received_at > ? AND received_at <= ? AND order_key IN ({})"
)
_RECORDS_SINCE: Final = (
    "SELECT order_key, id FROM records "
    "WHERE recorded_at > ? AND recorded_at <= ? AND order_key IN ({})"
)
_BOOK_SINCE: Final = (
    "SELECT match_key, line || '.' || since FROM book_lines "
    "WHERE since > ? AND since <= ? AND match_key IN ({})"
)
_STATEMENTS_SINCE: Final = (
    "SELECT match_key, line || '.' || since FROM statement_lines "
    "WHERE since > ? AND since <= ? AND match_key IN ({})"
)
_PAYMENTS_SINCE: Final = (
    "SELECT subject, line || '.' || since FROM statement_lines "
    "WHERE since > ? AND since <= ? AND subject IN ({})"
)
_MATCHED_SINCE: Final = statement(
    "SELECT break_id, value, who FROM break_deeds WHERE {stands} AND at > ? AND break_id IN ({})",
    stands=statement(_MATCH_STANDS, as_of="?"),
)


async def closing_evidence(
    connection: AsyncConnection,
    gone: Mapping[str, Break],
    *,
    last: Run,
    as_of: Instant,
    rules: int | None,
) -> dict[str, list[str]]:
    """Return, by break, the evidence that can have closed it."""
    found: dict[str, list[str]] = {name: [] for name in gone}
    by_key: dict[str, set[str]] = defaultdict(set)
    by_payment: dict[str, set[str]] = defaultdict(set)
    for name, each in gone.items():
        if each.order is not None:
            by_key[match_key(each.order)].add(name)
        if each.payment is not None:
            by_payment[each.payment].add(name)

    async def cite(sql: str, since: Sequence[int], names: Mapping[str, set[str]]) -> None:
        rows = await select_in(connection, sql=sql, values=sorted(names), first=since)
        for key, cited in sorted(rows):
            for name in names[key]:
                found[name].append(cited)

    orders: dict[str, set[str]] = defaultdict(set)
    sql = "SELECT order_key, key FROM takings WHERE key IN ({})"
    for order, key in await select_in(connection, sql=sql, values=sorted(by_key)):
        orders[order] |= by_key[key]
    sql = "SELECT order_key, reference FROM links WHERE kind = 'payment' AND reference IN ({})"
    for order, payment in await select_in(connection, sql=sql, values=sorted(by_payment)):
        orders[order] |= by_payment[payment]
    for sql in (_EVENTS_SINCE, _RECORDS_SINCE):
        await cite(sql, (last.as_of, as_of), orders)
    before = await newest_published(connection, as_of=last.as_of)
    imports = (before, await newest_published(connection, as_of=as_of))
    for sql in (_BOOK_SINCE, _STATEMENTS_SINCE):
        await cite(sql, imports, by_key)
    await cite(_PAYMENTS_SINCE, imports, {f"p:{each}": names for each, names in by_payment.items()})
    stands = (as_of, as_of, last.as_of)
    for name, line, who in await select_in(
        connection, sql=_MATCHED_SINCE, values=sorted(gone), first=stands
    ):
        found[name] += [line, f"match by {who}"]
    of_bank = [
        name for name, each in gone.items() if CAUSES[each.cause].about in ("bank", "wallet")
    ]
    if of_bank:  # an import may have brought the payout or its bank line
        numbers = await connection.scalars(
            text(
                "SELECT number FROM imports WHERE kind IN ('bank', 'statement') "
                "AND number > :first AND number <= :last ORDER BY number LIMIT :most"
            ),
            {"first": imports[0], "last": imports[1], "most": MOST_CITED},
        )
        imported = [f"import {number}" for number in numbers]
        for name in of_bank:
            found[name] += imported
    by_rules = [] if rules == last.rules else [f"rules {rules}"]
    return {name: list(dict.fromkeys(ids + by_rules))[:MOST_CITED] for name, ids in found.items()}


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

_NEWEST: Final = select(func.max(_RUNS.c.number)).where(_RUNS.c.lived == 1).scalar_subquery()

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


async def breaks_after(
    connection: AsyncConnection,
    *,
    after: str,
    limit: int,
    causes: Collection[str] = (),
    states: Collection[str] = STATES,
    assignee: str | None = None,
) -> list[str]:
    """Return up to `limit` sorted ids of published breaks. The caller must check state and assignee
    again."""
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
    about_it = _LIVED.where(_BREAKS.c.subject == subject).order_by(_BREAKS.c.id)
    return [row[0] for row in await connection.execute(about_it)]


async def breaks_of_order(connection: AsyncConnection, order: str, *, limit: int) -> list[str]:
    of_it = _LIVED.where(_BREAKS.c.order_ref == order).order_by(_BREAKS.c.id).limit(limit)
    return [row[0] for row in await connection.execute(of_it)]


async def breaks_in_run(connection: AsyncConnection, number: int) -> AsyncIterator[Rows]:
    """Yield (id, cause, amount, currency, since) for a run's breaks."""
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
    """Yield the run's breaks on which a person acted, in batches."""
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
    """Return the breaks' steps up to an instant."""
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
    """Return the latest content of each break, by id."""
    rows = await select_in(connection, sql=_LATEST, values=names)
    return {row[0]: break_in(row[1]) for row in rows}


# --- what people do -------------------------------------------------------------------------------


async def deciding_alone(connection: AsyncConnection) -> None:
    """Lock all breaks until the transaction ends."""
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
    """Return the break that a person matched with this line."""
    rows = await connection.execute(text(_MATCHED), {"as_of": LATEST})
    wanted = name_of(line)
    return next((row[0] for row in rows if name_of(row[1]) == wanted), None)


async def claimed_by_hand(connection: AsyncConnection) -> set[str]:
    rows = await connection.execute(text(_MATCHED), {"as_of": LATEST})
    return {name_of(row[1]) for row in rows}


async def lines_matched_with(connection: AsyncConnection, name: str) -> list[str]:
    """Return the lines that people matched with a break."""
    rows = await connection.execute(text(_MATCHED_WITH), {"as_of": LATEST, "name": name})
    return [row[0] for row in rows]
