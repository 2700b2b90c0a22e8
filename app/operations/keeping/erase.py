"""Erases a customer's personal data, and keeps what the money rests on.

    1 find    what a phone number, or an order, touches: by digests, and by looking through bytes
    2 judge   each order, stray and refused delivery: what may go, and what must stay and why
    3 note    who asked, and why, before the first row is touched
    4 erase   in short transactions beside the running service; nothing that was said of meanwhile
    5 tidy    the database's log, so that the bytes are gone, too

Digests, ids, dates, amounts, references, verdicts and ledgers stay: the sealed log still verifies,
and a redelivery is still a duplicate, whose body is not stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from app.errors import NotFoundError, UsageError
from app.masking import hint_pattern, masked_phone, written_pattern
from app.operations.desk import Desk
from app.operations.keeping.erase_rules import Kept, Rules, kept_order
from app.operations.keeping.erase_unknown import Judging, judge_refused, judge_strays, kept_wholes
from app.operations.keeping.prune import Settled, prune_orders
from app.operations.orders.customers import checked_reason, phones_of
from app.operations.orders.search_terms import understood
from app.operations.people.people import note_deed, permitted
from app.providers.source import Source
from app.store.arrivals.phones import (
    PhoneNote,
    deliveries_by_phone,
    drop_notes,
    notes_of,
    orders_by_phone,
)
from app.store.database.engine import Connection
from app.store.finance.book_phones import LineKey, empty_lines, lines_with
from app.store.folding.due_marks import marks_of
from app.store.folding.histories import gather
from app.store.keeping.erasing import (
    TABLES,
    deliveries_that_hold,
    drop_requests,
    empty_wholes,
    orders_asked_for,
    owners,
    with_wholes,
)
from app.store.keeping.retention import drop_rejections, prune, sizes_of
from app.store.keeping.traces import files_with
from app.store.people.operators import Operator
from app.store.unanswered import unanswered_of
from reconcile.books import match_key
from reconcile.fold import fold
from reconcile.settle import last_heard

Row = TypeVar("Row")

MOST_ORDERS: Final = 10_000
"""Orders of one number: beyond it, it is a test number, and not a person's."""

AT_ONCE: Final = 100
"""Rows emptied in one transaction, so that no acknowledgement waits long for it."""

BARE_DIGITS: Final = 11
"""Of a number without its plus: fewer are more likely a part of one."""

TRIES: Final = 20
PAUSE_S: Final = 0.25
"""How often, and how far apart, the log is tried to be emptied while a reader holds it up."""


@dataclass(slots=True, kw_only=True)
class Erasure:
    """What may go, what stays, and whether it is done.

    orders      of which bodies, headers and digests of phones go
    deliveries  of no order, or unreadable, that hold the number
    brought     the deliveries of each order, those too of which the bodies are gone already
    notes       the digests by which they are found
    tidied      whether the database's log has been emptied of it
    """

    subject: str
    phones: list[str] = field(repr=False, default_factory=list)
    orders: list[Settled] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    brought: dict[str, list[str]] = field(default_factory=dict)
    notes: list[PhoneNote] = field(repr=False, default_factory=list)
    rejections: list[str] = field(default_factory=list)
    book_lines: list[LineKey] = field(default_factory=list)
    requests: int = 0
    kept: list[Kept] = field(default_factory=list)
    dry_run: bool = False
    tidied: bool = False

    def counts(self) -> dict[str, int]:
        """What goes, as numbers."""
        return {
            "orders": len(self.orders),
            "deliveries": sum(len(each.sizes) for each in self.orders) + len(self.deliveries),
            "rejections": len(self.rejections),
            "session_requests": self.requests,
            "book_lines": len(self.book_lines),
            "kept": len(self.kept),
        }

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "subject": self.subject,
            "dry_run": self.dry_run,
            **self.counts(),
            "tidied": self.tidied,
            "erased": [{"order": each.order, "deliveries": len(each.sizes)} for each in self.orders]
            + [{"delivery": each} for each in self.deliveries],
            "kept": [
                {"what": each.what, "why": each.why, "sentence": each.sentence}
                for each in self.kept
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be erased: everything of one phone number, or of one order."""

    phone: str | None = None
    order: str | None = None
    reason: str
    by: str | None


async def erase(
    desk: Desk,
    asked: Asked,
    *,
    sources: Mapping[str, Source],
    rules: Rules,
    dry_run: bool,
    progress: Callable[[int], None],
) -> Erasure:
    """Erase, or with `dry_run` only say what would go.

    Raises UsageError for words that do not fit and for who may not, NotFoundError where nothing
    personal is known of the number or the order.
    """
    finding = _Finding(desk, sources, rules, progress)
    digits = None if asked.phone is None else _digits(asked.phone, sources)
    async with desk.store.reading() as connection:
        if digits is not None:
            erasure = await finding.of_phone(connection, digits)  # 1, 2
        else:
            erasure = await finding.of_order(connection, asked.order or "")
    erasure.dry_run = dry_run
    reason = "" if dry_run else checked_reason(asked.reason, erasure.phones)
    async with desk.store.writing() as connection:
        who = await permitted(connection, by=asked.by, action="erased")
        if not dry_run:
            await note_deed(  # 3
                connection,
                who,
                action="erased",
                subject=erasure.subject,
                at=desk.clock.now(),
                reason=reason,
                facts=erasure.counts(),
            )
    if not dry_run:
        await _Erasing(desk, who, erasure, reason).run()  # 4, 5
    return erasure


def _digits(text: str, sources: Mapping[str, Source]) -> str:
    countries = [source.profile.customer.country for source in sources.values()]
    phones = understood(text, countries=[each for each in countries if each is not None]).phones
    whole = text.strip().startswith(("+", "0")) or len(text.strip()) >= BARE_DIGITS
    if len(phones) != 1 or not whole:
        raise UsageError("--phone is one whole number with its country, such as +254 700 000 001")
    return phones[0]


def traces_left(path: Path, erasure: Erasure) -> list[Path]:
    """Files of an SQLite database that still hold one of the numbers, though nothing was kept. For
    a process that no longer has it open."""
    if erasure.kept or not erasure.phones:
        return []
    return files_with(path, [phone.encode() for phone in erasure.phones])


class _Finding:
    """Steps 1 and 2, on one snapshot."""

    def __init__(
        self,
        desk: Desk,
        sources: Mapping[str, Source],
        rules: Rules,
        progress: Callable[[int], None],
    ) -> None:
        self._desk = desk
        self._sources = sources
        self._rules = rules
        self._progress = progress

    async def of_phone(self, connection: Connection, digits: str) -> Erasure:
        erasure = Erasure(subject=masked_phone(digits), phones=[digits])
        written = written_pattern(digits)
        orders, strays = set(await orders_asked_for(connection, digits)), set[str]()
        if self._desk.phone_key is not None:
            digest = self._desk.phone_key.digest(digits)
            orders |= set(await orders_by_phone(connection, digest, limit=MOST_ORDERS + 1))
            strays |= set(await deliveries_by_phone(connection, digest))
        async for looked, held in deliveries_that_hold(connection, written, hint_pattern(digits)):
            strays |= set(held)
            self._progress(looked)
        for owned in await owners(connection, strays):
            if owned.order is not None:
                orders.add(owned.order)
        if len(orders) > MOST_ORDERS:
            raise UsageError(
                f"more than {MOST_ORDERS:,} orders name this number, which is no one person's; "
                "erase order by order"
            )
        await self._judge(connection, erasure, sorted(orders))
        await self._judge_unknown(connection, erasure, strays, written)
        erasure.book_lines = await lines_with(connection, phones=[digits])
        return await self._checked(connection, erasure)

    async def of_order(self, connection: Connection, order: str) -> Erasure:
        erasure = Erasure(subject=order)
        erasure.phones = await phones_of(connection, order, sources=self._sources)
        await self._judge(connection, erasure, [order])
        named = re.compile(rf"(?<![\w-]){re.escape(order)}(?![\w-])")
        await self._judge_unknown(connection, erasure, set(), named)
        erasure.book_lines = await lines_with(connection, keys=[match_key(order)])
        return await self._checked(connection, erasure)

    async def _checked(self, connection: Connection, erasure: Erasure) -> Erasure:
        """With its notes, and without the orders of which nothing is left."""
        brought = set[str]().union(*erasure.brought.values())
        things = {*erasure.brought, *brought, *erasure.deliveries}
        erasure.notes = await notes_of(connection, things)
        held = {note[2] for note in erasure.notes}
        held |= {row.order for row in await unanswered_of(connection, list(erasure.brought))}
        held |= await with_wholes(connection, brought)
        erasure.orders = [
            each
            for each in erasure.orders
            if each.sizes or held.intersection((each.order, *erasure.brought[each.order]))
        ]
        if not any(erasure.counts().values()):
            raise NotFoundError(f"nothing is kept of {erasure.subject}")
        return erasure

    async def _judge(self, connection: Connection, erasure: Erasure, orders: list[str]) -> None:
        histories = await gather(connection, orders)
        marks = {mark.order: mark for mark in await marks_of(connection, orders)}
        now = self._desk.clock.now()
        for order in orders:
            history, mark = histories[order], marks.get(order)
            if mark is None:
                continue
            ledger = fold(history, policy=self._desk.policy, as_of=history.instant_at(now))
            kept = kept_order(history, ledger, self._rules)
            if kept is not None:
                erasure.kept.append(kept)
                continue
            if any(written_pattern(phone).search(order) for phone in erasure.phones):
                erasure.kept.append(Kept(what=order, why="in_the_reference"))
            ids = sorted({delivery.delivery_id for delivery in history.deliveries})
            erasure.brought[order] = ids
            erasure.orders.append(
                Settled(
                    order=order,
                    outcome=ledger.outcome,
                    last_heard=last_heard(history),
                    sizes=await sizes_of(connection, ids),
                    mark=mark,
                )
            )

    async def _judge_unknown(
        self,
        connection: Connection,
        erasure: Erasure,
        strays: set[str],
        named: re.Pattern[str],
    ) -> None:
        """What no ledger knows of, once it is known which orders stay."""
        staying = {each.what for each in erasure.kept} - erasure.brought.keys()
        by = Judging(
            rules=self._rules, now=self._desk.clock.now(), staying=min(staying, default=None)
        )
        unowned = await judge_strays(connection, strays, by)
        refused = await judge_refused(connection, named, by)
        would_go = erasure.brought | {each: [each] for each in unowned.going}
        beside = await kept_wholes(connection, would_go, going=unowned.going)
        for order in erasure.brought.keys() & beside.keys():
            del erasure.brought[order]
        erasure.orders = [each for each in erasure.orders if each.order not in beside]
        erasure.deliveries = [each for each in unowned.going if each not in beside]
        erasure.rejections = refused.going
        erasure.kept += [*beside.values(), *unowned.kept, *refused.kept]


class _Erasing:
    """Steps 4 and 5."""

    def __init__(self, desk: Desk, who: Operator, erasure: Erasure, reason: str) -> None:
        self._desk = desk
        self._who = who
        self._erasure = erasure
        self._reason = reason

    async def run(self) -> None:
        erasure = self._erasure
        gone = {each.order: each for each in await prune_orders(self._desk, erasure.orders)}
        for each in erasure.orders:
            if each.order not in gone:
                erasure.kept.append(Kept(what=each.order, why="changed"))
        erasure.orders = [each for each in erasure.orders if each.order in gone]
        for settled in erasure.orders:
            await self._let_go(settled)
        for part in _parts(erasure.deliveries):
            async with self._desk.store.writing() as connection:
                await prune(connection, part, now=self._desk.clock.now())
                await empty_wholes(connection, part)
                await drop_notes(connection, self._notes_of(part))
        for part in _parts(erasure.rejections):
            async with self._desk.store.writing() as connection:
                await drop_rejections(connection, part)
        for lines in _parts(erasure.book_lines):
            async with self._desk.store.writing() as connection:
                await empty_lines(connection, lines)
        erasure.tidied = await self._tidy()

    async def _let_go(self, settled: Settled) -> None:
        deliveries = self._erasure.brought[settled.order]
        async with self._desk.store.writing() as connection:
            await empty_wholes(connection, deliveries)
            await drop_notes(connection, self._notes_of([settled.order, *deliveries]))
            self._erasure.requests += await drop_requests(connection, [settled.order])
            if settled.order != self._erasure.subject:
                await note_deed(
                    connection,
                    self._who,
                    action="erased",
                    subject=settled.order,
                    at=self._desk.clock.now(),
                    reason=self._reason,
                    facts={"deliveries": len(settled.sizes)},
                )

    def _notes_of(self, things: list[str]) -> list[PhoneNote]:
        wanted = set(things)
        return [note for note in self._erasure.notes if note[2] in wanted]

    async def _tidy(self) -> bool:
        for _ in range(TRIES):
            if await self._desk.store.writer.tidy(TABLES):
                return True
            await anyio.sleep(PAUSE_S)
        return False


def _parts(rows: Sequence[Row]) -> list[list[Row]]:
    return [list(rows[at : at + AT_ONCE]) for at in range(0, len(rows), AT_ONCE)]
