"""Carry out the journal of erasures in a database.

1 fit      check that the journal belongs to this database (`fit_journal`)
2 read     after a restore: the backup's unread deliveries
3 note     the lines in the database, as pending
4 empty    the rows that a line names, in one transaction for each line
5 end      the line, or note the reason to wait

Without the journal a restore stops, unless a person gives a reason.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from app.access import operator_store
from app.access.operators import SERVICE, note_in_trail, permitted, who_may
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError
from app.core.jobs import silent
from app.core.masking import DOT
from app.database.engine import Connection
from app.database.statements import run
from app.evidence import attachment_store
from app.evidence.seal import seal_unsealed
from app.finance import bank_store, book_line_store, import_store
from app.orders import history_store, retention_store
from app.orders.customers import checked_reason
from app.orders.set_aside import HOLDING
from app.privacy import erase_store, erase_texts, erasure_journal
from app.privacy.erase_finding import Erasure
from app.privacy.erase_rules import next_look
from app.privacy.fit_journal import fitted, note_lines, sentence_of
from app.receiving import inbox_store, phone_store
from app.receiving.inbox import Inbox, inbox_of
from app.receiving.journal_state import WAITS
from app.receiving.reader import Reader, ReaderContext
from app.receiving.restriction_store import RestrictionRow, write_restrictions
from app.receiving.restrictions import Kind
from app.sealing import log_queue_store, order_store
from reconcile.instants import Instant
from reconcile.ledger.fold import last_heard

REASON: Final = "erased before, according to the journal of erasures"

SUBJECT: Final = "the journal of erasures"

TRIES: Final = 20
"""Maximum number of attempts to empty the write-ahead log."""

PAUSE_S: Final = 0.25

# --- what the ids in a line refer to --------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class NamedRows:
    """Rows and orders that the journal's lines name by digests. The keys are the digests."""

    orders: dict[str, str] = field(default_factory=dict)
    book_lines: dict[str, book_line_store.LineKey] = field(default_factory=dict)
    bank_lines: dict[str, tuple[bank_store.BankKey, bank_store.BankTexts]] = field(
        repr=False, default_factory=dict
    )
    recipients: dict[str, phone_store.PhoneNote] = field(repr=False, default_factory=dict)
    bookmarks: dict[str, erase_store.Key] = field(repr=False, default_factory=dict)

    def add(self, others: "NamedRows") -> None:
        self.orders |= others.orders
        self.bank_lines |= others.bank_lines


def _row_digest(
    key: erasure_journal.JournalKey, kind: erasure_journal.Kind, *parts: str | int
) -> str:
    return key.digest(kind, "\n".join(map(str, parts)))


def emptied_by(
    erasure: Erasure, key: erasure_journal.JournalKey
) -> tuple[dict[erasure_journal.Kind, list[str]], NamedRows]:
    """Return the journal's ids for an erasure, and their rows."""
    named = NamedRows()
    orders = [each.order for each in erasure.orders]
    named.orders = {key.digest("orders", each): each for each in orders}
    named.book_lines = {_row_digest(key, "book_lines", *each): each for each in erasure.book_lines}
    banks = {_row_digest(key, "bank_lines", *each.key): each for each in erasure.bank_lines}
    named.bank_lines = {digest: (each.key, each.texts) for digest, each in banks.items()}
    named.bookmarks = {_row_digest(key, "bookmarks", *each): each for each in erasure.bookmarks}
    named.recipients = {
        _row_digest(key, "recipients", note[0].hex(), note[2]): note
        for note in erasure.notes
        if note[1] == phone_store.RECIPIENT
    }
    read = {each for order in orders for each in erasure.brought[order]}
    read.update({*erasure.deliveries, *erasure.gone_before} - erasure.unreadable)
    ids: dict[erasure_journal.Kind, list[str]] = {
        "reasons": [delivery for _, delivery in erasure.reasons],
        "deliveries": sorted(read),
        "unreadable": sorted(erasure.unreadable),
        "wholes": list(erasure.wholes),
        "attachments": [each.attachment_id for each in erasure.attachments],
        "orders": list(named.orders),
        "rejections": list(erasure.rejections),
        "book_lines": list(named.book_lines),
        "bank_lines": [f"{digest}/{each.which}" for digest, each in banks.items()],
        "bookmarks": list(named.bookmarks),
        "recipients": list(named.recipients),
    }
    return {kind: some for kind, some in ids.items() if some}, named


_KEPT: Final[Mapping[erasure_journal.Kind, Kind]] = {
    "kept_orders": "order",
    "kept_deliveries": "delivery",
    "kept_wholes": "whole",
    "kept_attachments": "attachment",
    "kept_bank_lines": "bank_line",
}

_NAMED_AS: Final = {"kept_orders": "orders", "kept_bank_lines": "bank_lines"}


def restricted_by(
    erasure: Erasure, key: erasure_journal.JournalKey
) -> tuple[dict[erasure_journal.Kind, list[str]], NamedRows]:
    """Return the journal's ids for restricted data, and their rows."""
    ids, named = dict[erasure_journal.Kind, list[str]](), NamedRows()
    kinds = {kind: line for line, kind in _KEPT.items()}
    for each in erasure.restricted():
        thing = each.what
        if each.kind == "order":
            thing = key.digest("orders", each.what)
            named.orders[thing] = each.what
        elif each.kind == "bank_line":
            subject, ordinal, since = each.what.split(".")
            row = (subject, int(ordinal), int(since))
            thing = _row_digest(key, "bank_lines", *row)
            named.bank_lines[thing] = (row, ("", "", "", ""))
        assert each.kind is not None, "nothing else is restricted"
        until = "-" if each.until is None else str(each.until)
        ids.setdefault(kinds[each.kind], []).append(f"{thing}/{each.why}/{until}")
    return ids, named


async def named_rows(
    connection: Connection,
    lines: Sequence[erasure_journal.JournalLine],
    key: erasure_journal.JournalKey,
) -> NamedRows:
    """Return the rows of this database that the digests in these lines stand for."""
    found = NamedRows()
    wanted: dict[str, set[str]] = {}
    for line in lines:
        kind = _NAMED_AS.get(line.kind, line.kind)
        wanted.setdefault(kind, set()).update(each.partition("/")[0] for each in line.ids)
    if orders := wanted.get("orders"):
        async for references in erase_store.known_references(connection):
            digests = ((key.digest("orders", each), each) for each in references)
            found.orders |= {digest: each for digest, each in digests if digest in orders}
    if books := wanted.get("book_lines"):
        async for keys in erase_store.lines_with_phones(connection):
            pairs = ((_row_digest(key, "book_lines", *each), each) for each in keys)
            found.book_lines |= {digest: each for digest, each in pairs if digest in books}
    if banks := wanted.get("bank_lines"):
        async for texts in bank_store.bank_texts(connection):
            rows = ((_row_digest(key, "bank_lines", *each[0]), each[:2]) for each in texts)
            found.bank_lines |= {digest: each for digest, each in rows if digest in banks}
    if people := wanted.get("recipients"):
        async for notes in erase_store.notes_of_recipients(connection):
            named = ((_row_digest(key, "recipients", n[0].hex(), n[2]), n) for n in notes)
            found.recipients |= {digest: note for digest, note in named if digest in people}
    if saved := wanted.get("bookmarks"):
        async for marks in erase_store.bookmark_keys(connection):
            own = ((_row_digest(key, "bookmarks", *each), each) for each in marks)
            found.bookmarks |= {digest: each for digest, each in own if digest in saved}
    return found


def _restrictions_of(line: erasure_journal.JournalLine, named: NamedRows) -> list[RestrictionRow]:
    rows, kind = [], next(each for name, each in _KEPT.items() if name == line.kind)
    for each in line.ids:
        name, why, ends = each.split("/")
        thing: str | None = name
        if kind == "order":
            thing = named.orders.get(name)
        elif kind == "bank_line":
            key = named.bank_lines.get(name, (None, None))[0]
            thing = None if key is None else ".".join(map(str, key))
        if thing is not None:
            until = None if ends == "-" else Instant(int(ends))
            rows.append(
                RestrictionRow(
                    kind=kind,
                    thing=thing,
                    since=line.at,
                    until=until,
                    why=why,
                    look_at=next_look(line.at, why, until),
                    erasure=line.at,
                )
            )
    return rows


# --- carrying out lines of the journal ------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Replayed:
    """Result of carrying out lines of the journal."""

    lines: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    pending: Counter[str] = field(default_factory=Counter)
    """Number of waiting lines, by the code of the reason."""
    tidied: bool = True
    """True if the erased data is gone from the database's log."""
    copied: bool = False
    """True if the lines came from the backup's copy."""
    unread: int = 0
    """Number of lines that no key could read."""

    def document(self) -> dict[str, Any]:
        names = (
            "orders",
            "deliveries",
            "rejections",
            "session_requests",
            "book_lines",
            "bank_lines",
            "attachments",
            "reasons",
            "bookmarks",
        )
        return {
            "lines": self.lines,
            **{name: self.counts[name] for name in names},
            "pending": [
                {"lines": count, "why": why, "sentence": WAITS[why]}
                for why, count in sorted(self.pending.items())
            ],
            "from_copy": self.copied,
            "unread": self.unread,
        }


class ErasureReplay:
    """Replay of the journal's erasures in a database that is served or just restored."""

    def __init__(
        self,
        context: AppContext,
        *,
        progress: Callable[[int], None] = silent,
        restored: bool = False,
        who: operator_store.Operator = SERVICE,
        reason: str = REASON,
        subject: str = SUBJECT,
    ) -> None:
        """Prepare a replay. With `restored`, nobody may serve the database yet."""
        self.context = context
        self._progress = progress
        self._restored = restored
        self._who, self._reason, self._subject = who, reason, subject
        self._counts = Counter[str]()

    async def replay_all(self, journal: erasure_journal.ErasureJournal) -> Replayed:
        """Carry out all lines of a journal in a restored database that nobody serves."""
        async with self.context.database.writing() as connection:
            await erase_store.note_journal(connection, journal.name)
            now, numbers = self.context.clock.now(), [line.number for line in journal.erased]
            await note_lines(connection, journal, since=now)
            await erase_store.note_pending(connection, numbers, since=now)
        if journal.erased and self._restored:
            environment = self.context.database.environment
            assert environment is not None, "an open database has one"
            reading = ReaderContext(
                self.context, inbox_of(self.context), self.context.sources, environment, HOLDING
            )
            await Reader(reading).read_brought()
        return await self.replay(journal.erased, journal.key)

    async def replay(
        self,
        lines: Sequence[erasure_journal.JournalLine],
        key: erasure_journal.JournalKey,
    ) -> Replayed:
        """Repeat these lines' erasures, with an audit entry."""
        if not lines:
            return Replayed()
        await seal_unsealed(self.context)  # data must be sealed before it is emptied
        async with self.context.database.reading() as connection:
            named = await named_rows(connection, lines, key)
        replayed = await self.carry_out(lines, named)
        if replayed.counts:
            async with self.context.database.writing() as connection:
                await note_in_trail(
                    connection,
                    self._who,
                    action="erased",
                    subject=self._subject,
                    at=self.context.clock.now(),
                    reason=self._reason,
                    facts=dict(replayed.counts),
                )
            replayed.tidied = await self.tidy()
        return replayed

    async def carry_out(
        self, lines: Sequence[erasure_journal.JournalLine], named: NamedRows
    ) -> Replayed:
        """Empty each line's rows in one transaction."""
        replayed, self._counts = Replayed(lines=len(lines)), Counter()
        for line in lines:
            async with self.context.database.writing() as connection:
                why = await self._empty(connection, line, named)
                await erase_store.note_outcome(connection, line.number, why)
            if why is not None:
                replayed.pending[why] += 1
            self._progress(1)
        replayed.counts = +self._counts
        return replayed

    async def _empty(
        self, connection: Connection, line: erasure_journal.JournalLine, named: NamedRows
    ) -> str | None:
        ids = list(line.ids)
        match line.kind:
            case "deliveries" | "unreadable":
                return await self._empty_deliveries(connection, line)
            case "wholes":
                return await self._empty_wholes(connection, ids)
            case "reasons":
                await self._empty_reasons(connection, ids)
            case "orders":
                found = [named.orders[each] for each in ids if each in named.orders]
                await self._empty_orders(connection, found, at=line.at)
            case "attachments":
                rows = [await attachment_store.attachment_named(connection, each) for each in ids]
                await self._empty_attachments(connection, [each for each in rows if each])
            case "rejections":
                refused = await erase_store.rejections_received(connection, ids)
                gone = sorted(name for name, _ in refused)
                await retention_store.drop_rejections(connection, gone)
                self._counts["rejections"] += len(gone)
            case "book_lines" | "bank_lines":
                await self._empty_lines(connection, line, named)
            case "bookmarks":
                marks = [named.bookmarks[each] for each in ids if each in named.bookmarks]
                await erase_store.drop_bookmarks(connection, marks)
                self._counts["bookmarks"] += len(marks)
            case "recipients":
                notes = [named.recipients[each] for each in ids if each in named.recipients]
                await phone_store.drop_notes(connection, [n for n in notes if n[3] <= line.at])
            case _:
                await run(connection, write_restrictions, _restrictions_of(line, named))
        return None

    async def _empty_deliveries(
        self, connection: Connection, line: erasure_journal.JournalLine
    ) -> str | None:
        owned = await erase_store.owners(connection, line.ids)
        # Deliveries that had been read when they were erased are evidence of money: read them here,
        # too.
        was_read = line.kind == "deliveries"
        unread = {e.delivery_id for e in owned if was_read and e.unread and not e.pruned}
        names = line.ids if was_read else ()
        refused = {name for name, _ in await erase_store.rejections_received(connection, names)}
        going = sorted({each.delivery_id for each in owned} - unread)
        absent = {*line.ids}.difference((each.delivery_id for each in owned), refused)
        why = "refused" if refused else "unread" if unread else None
        if why is None and absent and await self._is_set_aside(connection, absent):
            why = "set_aside"
        sizes = await retention_store.sizes_of(connection, going)
        self._counts["deliveries"] += len(sizes)
        await retention_store.prune(connection, going, now=self.context.clock.now())
        beside = await self._empty_wholes(connection, going, counted=False)
        notes = await phone_store.notes_of(connection, going)
        await phone_store.drop_notes(connection, [note for note in notes if note[3] <= line.at])
        return why or beside

    async def _is_set_aside(self, connection: Connection, deliveries: set[str]) -> bool:
        for aside in (True, False):
            suspects = await run(
                connection, inbox_store.next_suspects, aside=aside, limit=erase_store.MOST_ASIDE
            )
            if any(e.item is None or e.item.delivery_id in deliveries for e in suspects):
                return True
        return False

    async def _empty_wholes(
        self, connection: Connection, deliveries: Sequence[str], *, counted: bool = True
    ) -> str | None:
        beside = await erase_store.unread_beside(connection, deliveries)
        waiting = {each for each, others in beside.items() if others.difference(deliveries)}
        going = [each for each in deliveries if each not in waiting]
        if counted:
            self._counts["deliveries"] += len(await erase_store.wholes_of(connection, going))
        await erase_store.empty_wholes(connection, going)
        return "unread" if waiting else None

    async def _empty_reasons(self, connection: Connection, deliveries: Sequence[str]) -> None:
        found = await erase_store.reasons_of(connection, deliveries)
        words = {row: delivery for delivery, row, reason in found if reason != DOT}
        await erase_store.rewrite_reasons(connection, ((row, DOT) for row in words))
        if words:
            await run(connection, log_queue_store.mark_read_again, sorted(set(words.values())))
        self._counts["reasons"] += len(words)

    async def _empty_orders(
        self, connection: Connection, orders: Sequence[str], *, at: Instant
    ) -> None:
        histories = await history_store.gather(connection, orders)
        for order in orders:
            notes = await phone_store.notes_of(connection, [order])
            notes = [note for note in notes if note[1] == "order" and note[3] <= at]
            await phone_store.drop_notes(connection, notes)
            requests, known = 0, False
            if last_heard(histories[order]) <= at:
                requests = await erase_store.drop_requests(connection, [order])
                known = order in await order_store.named_orders(connection, [order])
                await order_store.forget_order(connection, order)
            attached = await attachment_store.living_attachments(connection, [order])
            attached = [each for each in attached if each.at <= at]
            await self._empty_attachments(connection, attached)
            self._counts["session_requests"] += requests
            if not (notes or requests or known or attached):
                continue
            self._counts["orders"] += 1
            if order != self._subject:
                await note_in_trail(
                    connection,
                    self._who,
                    action="erased",
                    subject=order,
                    at=self.context.clock.now(),
                    reason=self._reason,
                )

    async def _empty_attachments(
        self, connection: Connection, records: Sequence[attachment_store.AttachmentRecord]
    ) -> None:
        living = [each for each in records if each.gone_at is None]
        now = self.context.clock.now()
        for each in living:  # an entry for each, which its order's leaves count
            await note_in_trail(
                connection,
                self._who,
                action="detached",
                subject=each.subject,
                at=now,
                reason=self._reason,
                facts={"attachment": each.attachment_id, "sha256": each.sha256},
                order=each.order or None,
            )
        names = [each.attachment_id for each in living]
        await attachment_store.empty_attachments(connection, names, now=now)
        self._counts["attachments"] += len(names)

    async def _empty_lines(
        self, connection: Connection, line: erasure_journal.JournalLine, named: NamedRows
    ) -> None:
        newest = await import_store.newest_begun(connection, as_of=line.at)
        if line.kind == "book_lines":
            books = [named.book_lines[each] for each in line.ids if each in named.book_lines]
            books = [each for each in books if each[2] <= newest]
            await book_line_store.empty_lines(connection, books)
            self._counts["book_lines"] += len(books)
            return
        rewritten = []
        for each in line.ids:
            digest, _, which = each.partition("/")
            if digest not in named.bank_lines:
                continue
            key, texts = named.bank_lines[digest]
            bare = erase_texts.without(texts, which)
            if key[2] <= newest and bare != texts:
                rewritten.append((key, bare))
        await bank_store.rewrite_bank_texts(connection, rewritten)
        self._counts["bank_lines"] += len(rewritten)

    async def tidy(self) -> bool:
        """Empty the write-ahead logs. Return False if still in use."""
        inbox = await self.context.inbox.tidy()
        for _ in range(TRIES):
            if await self.context.database.writer.tidy(erase_store.TABLES):
                return inbox
            await anyio.sleep(PAUSE_S)
        return False


# --- after a restore ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """Person's decision to continue a restore without the lost journal."""

    reason: str
    by: str | None


async def replay_after_restore(again: ErasureReplay, *, without: Without | None) -> Replayed:
    """Carry out the whole journal in a restored database, before any use.

    `without` permits replacing an unusable journal. Raise ConfigurationError for an unusable
    journal, and UsageError for an invalid permission.
    """
    context = again.context
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        if path is None and await erase_store.journal_name(connection) is None:
            return Replayed()  # PostgreSQL, and nobody was ever erased
    try:
        if path is None:
            raise erasure_journal.journal_problem(
                "is not set, but this database uses a journal; name its file"
            )
        journal = await fitted(context, path)
    except ConfigurationError as error:
        if without is None:
            raise erasure_journal.journal_problem(f"{sentence_of(error)}; {_OR_WITHOUT}") from error
        if path is None:
            raise
        return await _without(again, path, without)
    return await again.replay_all(journal)


async def erase_in_copy(
    inbox: Inbox, *, without: Without | None, progress: Callable[[int], None]
) -> Replayed:
    """Repeat the journal's erasures in a restored copy."""
    again = ErasureReplay(inbox.context(clock=SystemClock()), progress=progress, restored=True)
    return await replay_after_restore(again, without=without)


_OR_WITHOUT: Final = (
    "with --without-erasures and --reason the copy in the backup is used instead; that copy lacks "
    "later erasures"
)


async def _without(again: ErasureReplay, path: Path, without: Without) -> Replayed:
    context = again.context
    action: Final = "restored_without_erasures"
    reason = checked_reason(context, without.reason)
    await who_may(context, by=without.by, action=action)
    async with context.database.reading() as connection:
        copy = await erase_store.known_lines(connection)
    now = context.clock.now()
    lines = []  # none if the key is missing or belongs to another journal
    with suppress(ConfigurationError):
        if (key := erasure_journal.read_key(path)) is not None:
            lines = erasure_journal.journal_lines(copy, key)
    erasure_journal.set_aside(path, at=now)
    if lines:
        erasure_journal.write_again(path, lines)
    else:
        erasure_journal.set_aside(erasure_journal.key_path_of(path), at=now)
    journal = erasure_journal.make_journal(path, at=now)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=without.by, action=action)
        await erase_store.forget_pending(connection)  # of the journal that is lost
        await erase_store.note_journal(connection, journal.name, instead=True)
        unread = 0 if lines else max(len(copy) - 1, 0)
        facts = {"lines": len(journal.erased), "unread": unread}
        await note_in_trail(
            connection, who, action=action, subject=SUBJECT, at=now, reason=reason, facts=facts
        )
    replayed = await again.replay_all(journal)
    replayed.copied, replayed.unread = True, unread
    return replayed
