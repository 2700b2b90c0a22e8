"""Find, judge and count the data that an erasure empties.

`erase` checks who asks, and `replay_erasures` empties the rows.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.masking import written_out, written_pattern
from app.database.engine import Connection
from app.database.marks import GROUNDS
from app.database.statements import run
from app.evidence import attachment_store
from app.finance import book_line_store
from app.orders import history_store, pending_session_store, retention_store
from app.orders.customers import phones_of
from app.orders.unallocated import waiting_among
from app.privacy import erase_rules, erase_store, erase_texts, prune
from app.privacy.copies import TakenCopy
from app.privacy.places import ReportedPlace, columns, is_emptied, reported_places
from app.privacy.whose import masked
from app.receiving import due_store, inbox_store, phone_store
from app.receiving.restriction_store import RestrictionRow
from app.receiving.restrictions import REASONS, Kind
from app.sealing import order_store
from reconcile.instants import EARLIEST, Instant, format_known
from reconcile.ledger.fold import fold, last_heard
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.matching.books import match_key


@dataclass(slots=True)
class JudgedDeliveries:
    """Ids of deliveries that can be erased or must be kept."""

    kind: Kind = "delivery"
    """Kind of data to keep: `delivery`, or `whole` for the whole body of a request."""
    going: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    """Erasable deliveries without bodies and headers."""
    kept: list[erase_rules.KeptData] = field(default_factory=list)
    latest: Instant = EARLIEST

    def add(self, name: str, received: Instant, kept: erase_rules.KeptData | None) -> None:
        """Add a delivery with its arrival, and the reason to keep it, if any."""
        if kept is None:
            self.going.append(name)
            self.latest = max(self.latest, received)
        else:
            self.kept.append(replace(kept, kind=self.kind))


_OF_DELIVERIES: Final = ("deliveries.headers", "deliveries.body")


async def rows_of(
    connection: Connection, orders: Mapping[str, Sequence[str]], phones: Sequence[str]
) -> dict[str, set[erase_store.Key]]:
    """Return the rows that an erasure of these orders empties."""
    deliveries = [*chain.from_iterable(orders.values())]
    owned = await erase_store.owned_rows(connection, {*orders, *deliveries})
    reasons = await erase_texts.bare_reasons(connection, deliveries, phones)
    return owned | {"events": {(row,) for row, _ in reasons}}


MOST_ORDERS: Final = 10_000
"""Maximum number of orders for one phone number."""


@dataclass(slots=True, kw_only=True)
class Erasure:
    """Data that can be erased, the data that stays, and the state of the erasure."""

    subject: str
    identifiers: list[str] = field(repr=False, default_factory=list)
    """Phone numbers as E.164 digits, or EMAIL_KIND and an email address."""
    orders: list[prune.SettledOrder] = field(default_factory=list)
    """Orders whose bodies, headers and phone digests are erased."""
    deliveries: list[str] = field(default_factory=list)
    """Deliveries with the number and without a readable order."""
    unreadable: set[str] = field(default_factory=set)
    """Deliveries that could not be read."""
    gone_before: list[str] = field(default_factory=list)
    """Deliveries without order and body, which a backup can have."""
    wholes: list[str] = field(default_factory=list)
    """Deliveries in a request of which only another delivery's part has the number."""
    brought: dict[str, list[str]] = field(default_factory=dict)
    """Deliveries of each order, even without bodies."""
    notes: list[phone_store.PhoneNote] = field(repr=False, default_factory=list)
    """Stored digests of phone numbers, by which this data is found."""
    rejections: list[str] = field(default_factory=list)
    book_lines: list[book_line_store.LineKey] = field(default_factory=list)
    bank_lines: list[erase_texts.BankText] = field(repr=False, default_factory=list)
    bookmarks: set[erase_store.Key] = field(repr=False, default_factory=set)
    attachments: list[attachment_store.AttachmentRecord] = field(repr=False, default_factory=list)
    reasons: list[tuple[int, str]] = field(default_factory=list)
    """Events that lose their reason, each with a delivery of the event."""
    quoting: set[erase_store.Key] = field(default_factory=set)
    """Revisions that quote an erased reason and stay."""
    staying: dict[str, list[str]] = field(default_factory=dict)
    """Orders that are kept for now, with their deliveries."""
    holding: dict[str, set[erase_store.Key]] = field(repr=False, default_factory=dict)
    """Rows that contain a number, by place."""
    going: dict[str, set[erase_store.Key]] = field(repr=False, default_factory=dict)
    """Rows to empty or delete, by table."""
    waiting: dict[str, set[erase_store.Key]] = field(repr=False, default_factory=dict)
    """Rows of kept orders to empty or delete later, by table."""
    aside: Counter[str] = field(default_factory=Counter)
    """Number of rows of set-aside deliveries that stay, by place."""
    requests: int = 0
    kept: list[erase_rules.KeptData] = field(default_factory=list)
    accounts: dict[str, Instant] = field(default_factory=dict)
    """End of the accounting period of each erased order."""
    copies: list[TakenCopy] = field(default_factory=list)
    dry_run: bool = False
    tidied: bool = False
    """True if the erased data is gone from the database's log."""
    latest: Instant = EARLIEST
    """Arrival of the newest erased data. The erasure's date is no earlier."""

    def is_written_in(self, text: str) -> bool:
        """Return whether a text contains the number or address of the erasure."""
        return any(written_pattern(each).search(text) for each in self.identifiers)

    def keep(self, changed: Collection[str]) -> dict[str, list[str]]:
        """Take orders with new evidence out of the plan."""
        self.kept += [erase_rules.KeptData(what=each, why="changed") for each in sorted(changed)]
        stayed = {each: self.brought.pop(each) for each in sorted(changed)}
        self.staying |= stayed
        ids = {*changed, *chain.from_iterable(stayed.values())}
        self.attachments = [each for each in self.attachments if each.order not in changed]
        self.orders = [each for each in self.orders if each.order not in changed]
        self.reasons = [each for each in self.reasons if each[1] not in ids]
        self.notes = [each for each in self.notes if each[2] not in ids]
        return stayed

    def restricted(self) -> list[erase_rules.KeptData]:
        """Return all data that the erasure restricts instead of erasing."""
        staying = dict[tuple[str, str], erase_rules.KeptData]()
        for each in self.kept:
            if each.kind is not None:  # of two reasons, keep the one that a person can end
                known = staying.get((each.kind, each.what))
                if known is None or known.why in ("accounts", "in_the_reference"):
                    staying[each.kind, each.what] = each
        return [*staying.values()] + [
            erase_rules.KeptData(what=each.order, why="accounts", until=self.accounts[each.order])
            for each in self.orders
            if each.order in self.accounts and ("order", each.order) not in staying
        ]

    def found_after(self, holding: dict[str, set[erase_store.Key]]) -> None:
        """Record the rows that still contain the number."""
        self.holding = holding
        for where, mark in columns():
            if is_emptied(mark) and where in holding:
                self.going.get(where.partition(".")[0], set()).difference_update(holding[where])

    def counts(self) -> dict[str, int]:
        return {
            "orders": len(self.orders),
            "deliveries": sum(len(each.sizes) for each in self.orders)
            + len(self.deliveries)
            + len(self.wholes),
            "rejections": len(self.rejections),
            "session_requests": self.requests,
            "book_lines": len(self.book_lines),
            "bank_lines": len(self.bank_lines),
            "attachments": len(self.attachments),
            "reasons": len(self.reasons),
            "bookmarks": len(self.bookmarks),
            "kept": len(self.kept),
            "restricted": len(self.restricted()),
        }

    def of_others(self) -> list[attachment_store.AttachmentRecord]:
        """Return the attachments of other orders that are erased because they name the customer."""
        return [each for each in self.attachments if each.order not in self.brought]

    def places(self) -> list[ReportedPlace]:
        """Return the erased and remaining data for each place."""
        because = "revisions.because"
        holding = self.holding | {because: self.holding.get(because, set()) | self.quoting}
        return reported_places(holding, going=self.going, waiting=self.waiting, beside=self.aside)

    def document(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "dry_run": self.dry_run,
            **self.counts(),
            "places": [each.document() for each in self.places()],
            "tidied": self.tidied,
            "copies": [each.document() for each in self.copies],
            "erased": [{"order": each.order, "deliveries": len(each.sizes)} for each in self.orders]
            + [{"delivery": each} for each in (*self.deliveries, *self.wholes)],
            "files": [
                {"attachment": each.attachment_id, "order": each.order, "sha256": each.sha256}
                for each in self.attachments
            ],
            "kept": [
                {"what": each.what, "why": each.why, "sentence": each.sentence}
                for each in self.kept
            ],
            "restricted": [
                {
                    "kind": each.kind,
                    "what": each.what,
                    "until": format_known(each.until),
                    "ground": GROUNDS[REASONS[each.why].ground],
                }
                for each in self.restricted()
            ],
        }


def _known(erasure: Erasure) -> Erasure:
    if not any(erasure.counts().values()):
        raise NotFoundError(f"nothing is stored about {erasure.subject}")
    return erasure


class ErasureFinder:
    """Finder of personal data on one snapshot of the database. It also judges what may be
    erased."""

    def __init__(self, context: AppContext, progress: Callable[[int], None]) -> None:
        self._context = context
        self._periods = erase_rules.periods_of(context.settings)
        self._progress = progress

    async def of_identifier(self, connection: Connection, identifier: str) -> Erasure:
        """Find all data about a phone number or `email:` address."""
        erasure = Erasure(subject=masked(identifier), identifiers=[identifier])
        written = written_pattern(identifier)
        erasure.holding = await erase_store.rows_that_hold(
            connection, [identifier], progress=self._progress
        )

        def holding(*places: str) -> set[erase_store.Key]:
            return set[erase_store.Key]().union(*(erasure.holding.get(e, ()) for e in places))

        waits_for = await erase_store.orders_waiting_for(connection, holding("unanswered.request"))
        orders, strays = set(waits_for), {each[0] for each in holding(*_OF_DELIVERIES)}
        strays |= {delivery for _, delivery in holding("unread_values.value")}
        strays |= set(await erase_store.deliveries_of_events(connection, holding("events.reason")))
        wholes = {each[0] for each in holding("envelopes.body")}
        if self._context.phone_key is not None:
            digest = self._context.phone_key.digest(identifier)
            noted = await phone_store.orders_by_phone(connection, digest, limit=MOST_ORDERS + 1)
            orders.update(noted)
            strays.update(await phone_store.deliveries_by_phone(connection, digest))
        for owned in await erase_store.owners(connection, strays):
            if owned.order is not None:
                orders.add(owned.order)
        if len(orders) > MOST_ORDERS:
            raise UsageError(
                f"more than {MOST_ORDERS} orders name this number or address, so several people "
                "may use it; erase order by order"
            )
        await self._judge(connection, erasure, sorted(orders))
        refused = await erase_store.rejections_that_hold(connection, [written])
        await self._judge_unknown(connection, erasure, strays, refused=refused)
        await self._keep_set_aside(connection, erasure, written)
        found_in = strays.union(*erasure.brought.values(), *erasure.staying.values())
        await self._judge_wholes(connection, erasure, wholes, found=found_in)
        lines = await book_line_store.lines_with(connection, phones=[identifier])
        # Include notations that the digest does not match.
        erasure.book_lines = sorted({*lines, *holding("book_lines.phone")})
        await self._judge_bank_lines(connection, erasure, [written])
        return _known(await self._checked(connection, erasure))

    async def of_order(self, connection: Connection, order: str) -> Erasure:
        erasure = Erasure(subject=order)
        erasure.identifiers = await phones_of(connection, order, sources=self._context.sources)
        erasure.holding = await erase_store.rows_that_hold(
            connection, erasure.identifiers, progress=self._progress
        )
        await self._judge(connection, erasure, [order])
        named = re.compile(rf"(?<![\w-]){re.escape(order)}(?![\w-])")
        refused = await erase_store.rejections_that_hold(connection, [named])
        await self._judge_unknown(connection, erasure, set(), refused=refused)
        await self._keep_set_aside(connection, erasure, named)
        erasure.book_lines = await book_line_store.lines_with(connection, keys=[match_key(order)])
        patterns = [written_pattern(phone) for phone in erasure.identifiers]
        await self._judge_bank_lines(connection, erasure, patterns)
        return _known(await self._checked(connection, erasure))

    async def of_restricted(
        self, connection: Connection, row: RestrictionRow, *, beside: str | None
    ) -> Erasure:
        """Find one restriction's data, and judge by present facts."""
        erasure, names = Erasure(subject=row.thing), [row.thing]
        if row.kind == "order":
            erasure.identifiers = await phones_of(
                connection, row.thing, sources=self._context.sources
            )
            await self._judge(connection, erasure, names)
            await self._judge_unknown(connection, erasure, set(), refused=())
        elif row.kind == "delivery":
            refused = await erase_store.rejections_received(connection, names)
            await self._judge_unknown(
                connection, erasure, {row.thing}, refused=refused, beside=beside
            )
            if row.why == "set_aside":
                await self._keep_set_aside(connection, erasure, None, only=row.thing)
            erasure.gone_before = []
        elif row.kind == "whole":
            digests = [key[0] for key in await erase_store.wholes_by_name(connection, names)]
            await self._judge_wholes(connection, erasure, digests, found=set())
        elif row.kind == "attachment":
            file = await attachment_store.attachment_named(connection, row.thing)
            found = [] if file is None or file.gone_at is not None else [file]
            erasure.attachments = await self._free_attachments(connection, erasure, found)
        elif row.until is None or row.until <= self._context.clock.now():
            subject, ordinal, since = row.thing.split(".")
            key = (subject, int(ordinal), int(since))
            erasure.bank_lines = [erase_texts.BankText(key, ("", "", "", ""))]
        return await self._checked(connection, erasure)

    async def _checked(self, connection: Connection, erasure: Erasure) -> Erasure:
        brought = set[str]().union(*erasure.brought.values())
        things = {*erasure.brought, *brought, *erasure.deliveries}
        notes = await phone_store.notes_of(connection, things)
        key = self._context.phone_key
        shown = [] if key is None else [key.digest(each) for each in erasure.identifiers]
        erasure.notes = notes + await phone_store.recipient_notes(connection, {*shown})
        held = {note[2] for note in erasure.notes}
        held |= {
            row.order
            for row in await pending_session_store.pending_sessions_of(
                connection, list(erasure.brought)
            )
        }
        held |= (await erase_store.wholes_of(connection, brought)).keys()
        held |= (await order_store.named_orders(connection, erasure.brought)).keys()
        for order, deliveries in erasure.brought.items():
            bare = await erase_texts.bare_reasons(connection, deliveries, erasure.identifiers)
            erasure.reasons += bare
            held |= {order} if bare else set()
        erasure.reasons += await erase_texts.bare_reasons(
            connection, erasure.deliveries, erasure.identifiers
        )
        erasure.attachments += await self._attachments(connection, erasure)
        held |= {each.order for each in erasure.attachments}
        erasure.orders = [
            each
            for each in erasure.orders
            if each.sizes or held.intersection((each.order, *erasure.brought[each.order]))
        ]
        erasure.bookmarks = {
            key
            for place in ("bookmarks.label", "bookmarks.query")
            for key in erasure.holding.get(place, ())
        }
        # The last sign of anything other than a delivery.
        moments = [each.last_heard for each in erasure.orders]
        moments += [note[3] for note in erasure.notes] + [each.at for each in erasure.attachments]
        if erasure.book_lines or erasure.bank_lines:
            moments.append(await book_line_store.last_import_at(connection))
        erasure.latest = max([erasure.latest, *moments])
        erasure.waiting = await rows_of(connection, erasure.staying, erasure.identifiers)
        erasure.going = await self._going(connection, erasure)
        erasure.quoting = await erase_texts.quoting_revisions(
            connection, erasure.brought, erasure.reasons
        )
        return erasure

    async def _going(
        self, connection: Connection, erasure: Erasure
    ) -> dict[str, set[erase_store.Key]]:
        alone = {each: [each] for each in erasure.deliveries}
        going = await rows_of(connection, erasure.brought | alone, erasure.identifiers)
        going["envelopes"] |= await erase_store.wholes_by_name(connection, erasure.wholes)
        going["phones"] = {note[:3] for note in erasure.notes}
        going["rejections"] = {(each,) for each in erasure.rejections}
        going["book_lines"] = set(erasure.book_lines)
        going["bank_lines"] = {each.key for each in erasure.bank_lines}
        going["bookmarks"] = erasure.bookmarks
        going["attachments"] = {(each.attachment_id,) for each in erasure.attachments}
        going["attachment_files"] = {
            (each,)
            for each in await attachment_store.files_of_none_but(
                connection, [each.attachment_id for each in erasure.attachments]
            )
        }
        return going

    async def _attachments(
        self, connection: Connection, erasure: Erasure
    ) -> list[attachment_store.AttachmentRecord]:
        found = await erase_texts.attachments_with(connection, erasure.brought, erasure.holding)
        staying = {each.what for each in erasure.kept} - erasure.brought.keys()
        found = [each for each in found if each.order not in staying]
        return await self._free_attachments(connection, erasure, found)

    async def _free_attachments(
        self,
        connection: Connection,
        erasure: Erasure,
        found: Sequence[attachment_store.AttachmentRecord],
    ) -> list[attachment_store.AttachmentRecord]:
        others = {each.order for each in found} - erasure.brought.keys() - {""}
        needed = set[str]()
        for history in (await history_store.gather(connection, others)).values():
            if last_heard(history) == EARLIEST:
                continue
            _, kept = await self._judged(connection, history)
            if kept is not None:
                needed.add(kept.what)
                erasure.kept += [
                    replace(kept, what=each.attachment_id, kind="attachment")
                    for each in found
                    if each.order == kept.what
                ]
        return [each for each in found if each.order not in needed]

    async def _judged(
        self, connection: Connection, history: History
    ) -> tuple[Ledger, erase_rules.KeptData | None]:
        now = history.instant_at(self._context.clock.now())
        ledger = fold(history, policy=self._context.policy, as_of=now)
        to_do = await erase_rules.left_to_settle(connection, history, ledger)
        return ledger, erase_rules.kept_order(history, ledger, self._periods, to_do=to_do)

    async def _judge(self, connection: Connection, erasure: Erasure, orders: list[str]) -> None:
        histories = await history_store.gather(connection, orders)
        marks = {mark.order: mark for mark in await due_store.marks_of(connection, orders)}
        for order in orders:
            history, mark = histories[order], marks.get(order)
            if mark is None:
                continue
            ledger, kept = await self._judged(connection, history)
            ids = sorted({each.delivery_id for each in history.deliveries})
            if kept is not None:
                erasure.kept.append(kept)
                erasure.staying[order] = ids
                continue
            if erasure.is_written_in(order):
                erasure.kept.append(erase_rules.KeptData(what=order, why="in_the_reference"))
            erasure.brought[order] = ids
            until = Instant(last_heard(history) + self._periods.accounts)
            if until > self._context.clock.now():
                erasure.accounts[order] = until
            erasure.orders.append(
                prune.SettledOrder(
                    order=order,
                    outcome=ledger.outcome,
                    last_heard=last_heard(history),
                    sizes=await retention_store.sizes_of(connection, ids),
                    mark=mark,
                )
            )

    async def _judge_unknown(
        self,
        connection: Connection,
        erasure: Erasure,
        strays: set[str],
        *,
        refused: Iterable[tuple[str, Instant]],
        beside: str | None = None,
    ) -> None:
        staying = {each.what for each in erasure.kept} - erasure.brought.keys()
        beside = min(staying, default=beside)
        unowned = await self._judge_strays(connection, strays, beside)
        judged = self._judge_refused(refused, beside)
        would_go = erasure.brought | {each: [each] for each in unowned.going}
        waiting = await self._kept_wholes(connection, would_go, going=unowned.going)
        for order in erasure.brought.keys() & waiting.keys():
            erasure.staying[order] = erasure.brought.pop(order)
        erasure.orders = [each for each in erasure.orders if each.order not in waiting]
        erasure.deliveries = [each for each in unowned.going if each not in waiting]
        erasure.unreadable = unowned.unread.intersection(erasure.deliveries)
        erasure.gone_before = unowned.gone
        erasure.rejections = judged.going
        erasure.latest = max(unowned.latest, judged.latest)
        erasure.kept += [*waiting.values(), *unowned.kept, *judged.kept]

    async def _keep_set_aside(
        self,
        connection: Connection,
        erasure: Erasure,
        named: re.Pattern[str] | None,
        *,
        only: str | None = None,
    ) -> None:
        suspects = await run(
            connection, inbox_store.next_suspects, aside=True, limit=erase_store.MOST_ASIDE
        )
        for one in suspects:
            known = None if one.item is None else one.item.delivery_id
            texts = {
                "suspects.record": written_out(one.record.decode("utf-8", "replace")),
                "suspects.orders": "\n".join(one.orders),
            }
            found = [where for where, text in texts.items() if named and named.search(text)]
            erasure.aside.update(found)
            if found or (named is None and known == only):
                erasure.kept.append(
                    erase_rules.KeptData(
                        what=known or f"row {one.seq}",
                        why="set_aside",
                        kind=None if known is None else "delivery",
                    )
                )

    async def _judge_bank_lines(
        self, connection: Connection, erasure: Erasure, written: Sequence[re.Pattern[str]]
    ) -> None:
        now = self._context.clock.now()
        for each in await erase_texts.bank_lines_with(connection, written):
            until = Instant(each.booked_at + self._periods.accounts)
            if until <= now:
                erasure.bank_lines.append(each)
                continue
            erasure.kept.append(
                erase_rules.KeptData(
                    what=".".join(map(str, each.key)),
                    why="accounts",
                    until=until,
                    kind="bank_line",
                )
            )

    async def _judge_strays(
        self, connection: Connection, deliveries: Iterable[str], beside: str | None
    ) -> JudgedDeliveries:
        judged, now = JudgedDeliveries(), self._context.clock.now()
        found = await erase_store.owners(connection, deliveries)
        strays = [each for each in found if each.order is None]
        names = [each.delivery_id for each in strays]
        paying = await run(connection, waiting_among, self._context.policy, now, names)
        for owned in strays:
            name, received = owned.delivery_id, owned.received_at
            until = Instant(received + self._periods.unallocated)
            if owned.pruned:
                judged.gone.append(name)
                continue
            if owned.unread:
                judged.unread.add(name)
                kept = erase_rules.kept_unknown(
                    name, received, self._periods.minimum, why="unread", beside=beside, as_of=now
                )
            elif name in paying and now < until:
                kept = erase_rules.KeptData(what=name, why="unallocated", until=until)
            else:
                kept = erase_rules.kept_since(name, received, self._periods.minimum, as_of=now)
            judged.add(name, received, kept)
        return judged

    def _judge_refused(
        self, refused: Iterable[tuple[str, Instant]], beside: str | None
    ) -> JudgedDeliveries:
        judged, now = JudgedDeliveries(), self._context.clock.now()
        for name, received in refused:
            kept = erase_rules.kept_unknown(
                name, received, self._periods.minimum, why="refused", beside=beside, as_of=now
            )
            judged.add(name, received, kept)
        return judged

    async def _kept_wholes(
        self, connection: Connection, brought: Mapping[str, Sequence[str]], *, going: Iterable[str]
    ) -> dict[str, erase_rules.KeptData]:
        unread = await erase_store.unread_beside(connection, chain.from_iterable(brought.values()))
        found, gone = dict[str, erase_rules.KeptData](), set(going)
        for what, deliveries in brought.items():
            others = set[str]().union(*(unread.get(each, ()) for each in deliveries)) - gone
            if others:
                detail = min(others)
                kind: Kind = "delivery" if what in gone else "order"
                found[what] = erase_rules.KeptData(
                    what=what, why="beside_unread", detail=detail, kind=kind
                )
        return found

    async def _judge_wholes(
        self, connection: Connection, erasure: Erasure, digests: Iterable[str], *, found: set[str]
    ) -> None:
        judged, now = JudgedDeliveries(kind="whole"), self._context.clock.now()
        for owned in (await erase_store.owners_in_wholes(connection, digests)).values():
            names, received = [each.delivery_id for each in owned], owned[0].received_at
            if not found.isdisjoint(names):
                continue
            unread = [each.delivery_id for each in owned if each.unread and not each.pruned]
            kept = erase_rules.kept_since(names[0], received, self._periods.minimum, as_of=now)
            if unread:
                kept = erase_rules.KeptData(what=names[0], why="beside_unread", detail=unread[0])
            judged.add(names[0], received, kept)
        erasure.wholes = judged.going
        erasure.latest = max(erasure.latest, judged.latest)
        erasure.kept += judged.kept
