"""Find the order that a customer asks about, by anything that the customer knows about it.

1 understand   what the text can mean (`sought.py`)
2 permit       a search for a person: it needs a role, is rate limited and audited
3 search       by each meaning in turn, the most certain first, until enough orders are found
4 explain      each order as of now, with its customer's phone number masked
"""

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from app.access.operator_store import audit_entries
from app.access.operators import Action, note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.masking import looks_like_a_phone, masked_phone
from app.core.references import composed, fault_of
from app.core.text import counted
from app.database.engine import Connection
from app.database.gaps import accepted_gaps, gaps_until, spans_of
from app.database.statements import PlainConnection, run
from app.orders import read_orders, search_store
from app.orders.customers import phones_of
from app.orders.delivery_log import refused_that_may_be_of
from app.orders.holds import as_judged
from app.orders.read_orders import nothing_known, of_another_shop, order_row, spoken_of
from app.orders.service_holds import unread_naming
from app.orders.shop_facts_store import facts_of_orders
from app.orders.sought import Sought, understood
from app.orders.unallocated import WHY, Unallocated, UnallocatedDocument, found_payment
from app.providers import identifiers
from app.receiving.due_store import backwards, marks_of
from app.receiving.phone_store import deliveries_by_phone, has_other_keys, orders_by_phone
from app.receiving.restriction_store import has_restrictions
from app.receiving.restrictions import Restriction, restricted_deliveries, restricted_orders
from app.receiving.source_state_store import not_kept_in
from app.receiving.unread_store import NO_VALUE, messages_with
from reconcile.instants import DAY, HOUR, Instant, format_instant
from reconcile.ledger.events import UNCONFIRMED
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.money import Money, exponent_of

MAX_HITS: Final = 1_000
"""Maximum number of orders in a search result. The ledger of each found order is computed."""

MAX_LINES: Final = 20
"""Maximum number of imported lines that are shown if nothing else is found."""

READ_FOR_PHONE: Final = 5
"""Maximum number of deliveries that are read for the masked phone number of one found order."""

SHORTEST_END: Final = 3
"""Minimum number of characters for a search by the end of a reference. A shorter end fits too many
references."""

PERSON_SEARCHES: Final = 60
"""Maximum searches for a person by an operator in an hour: enough for calls, too few for lists."""

PERSON_SOUGHT: Final[Action] = "person_sought"

NATIONAL: Final = (
    "If this is a phone number, write it with its country code, such as +254 700 000 001: no "
    "source and no setting names a country for numbers without one."
)

NATIONAL_ELSEWHERE: Final = (
    "If this is a phone number, write it with its country code, such as +254 700 000 001: it "
    "does not begin with +{}, the country codes of the sources and settings."
)


RESTRICTED: Final = (
    "Data that an erasure restricted are not searched: such an order is found only by its own "
    "reference."
)


class FoundOrderDocument(read_orders.OrderRowDocument):
    phone: str | None
    found: str
    unread: list[str]


@dataclass(slots=True, kw_only=True)
class FoundOrders:
    """Result of a search for orders."""

    looked_for: list[str]
    """A sentence for each searched meaning of the text."""
    hits: list[FoundOrderDocument] = field(default_factory=list)
    """A document for each found order, the most certain first."""
    unallocated: list[UnallocatedDocument] = field(default_factory=list)
    """A document for each found payment without an order."""
    more: bool = False
    """True if orders are left out because there were too many."""
    notes: list[str] = field(default_factory=list)
    """Further sentences for the person."""
    looked_in: list[str] = field(default_factory=list)
    """Searched places, shown if nothing is found."""


async def orders_beginning(context: AppContext, text: str, *, limit: int) -> list[str]:
    """Return the order references that begin with a text, sorted. Return none if the text may be a
    phone number."""
    text = composed(text)
    if fault_of(text) is not None or looks_like_a_phone(text):
        return []
    async with context.database.reading() as connection:
        found = await search_store.orders_named(connection, text, beginning=True, limit=limit)
        hidden = await run(connection, restricted_orders, found)
    return [each for each in found if each not in hidden]


async def find_orders(
    context: AppContext, text: str, *, limit: int, refused: bool = True, by: str | None = None
) -> FoundOrders:
    """Search for orders by a text. Raise UsageError if the text can have no meaning.

    refused  whether refused deliveries may be mentioned if nothing is found
    by       the operator who searches; None for the token's owner or the environment's operator

    Orders with restricted data are not found.
    """
    sought = understood(text, countries=context.countries, zone=context.calendar_zone)  # 1
    found = FoundOrders(looked_for=[])
    if sought.of_a_person and (why_not := await _refused_search(context, sought, by=by)):  # 2
        found.notes.append(why_not)
        sought = replace(sought, phones=(), email=None, person=None)
    found.looked_for = sought.sentences()
    if sought.national:
        found.notes.append(
            NATIONAL_ELSEWHERE.format(", +".join(sorted(context.countries)))
            if context.countries
            else NATIONAL
        )
    hits: dict[str, str] = {}
    async with context.database.reading() as connection:
        look = _Look(context, connection, sought, limit, found.notes)
        async for order, how in look.visible():  # 3
            if order not in hits and len(hits) == limit:
                found.more = True
                break
            hits.setdefault(order, how)
        histories = await as_judged(connection, hits, policy=context.policy)
        facts = await facts_of_orders(connection, hits)
        for order, how in hits.items():  # 4
            history = histories[order]
            instant = history.instant_at(context.clock.now())
            if not spoken_of(history):
                found.notes.append(await run(connection, _no_order, history, instant))
                continue
            ledger = fold(history, policy=context.policy, as_of=instant)
            phones = await phones_of(
                connection, order, sources=context.sources, most=READ_FOR_PHONE
            )
            naming = (await run(connection, unread_naming, {order: history})).get(order, ())
            found.hits.append(
                {
                    **order_row(ledger, facts[order]),
                    "phone": ", ".join(map(masked_phone, phones)) or None,
                    "found": how,
                    "unread": [each.delivery_id for each in naming[:MOST_UNREAD]],
                }
            )
        names = [name for name in sought.names if not looks_like_a_phone(name)]
        now = context.clock.now()
        nothing = not found.hits and not look.hidden
        found.notes += await run(connection, _unread_notes, names, nothing=nothing)
        if names and nothing:
            found.notes += await run(connection, _not_kept_notes, context.sources, now)
        if nothing:
            found.notes += await run(connection, _gap_notes)
            if await run(connection, has_restrictions):
                found.notes.append(RESTRICTED)
        for event in look.unplaced.values():
            name = f"{event.source}:{event.unplaced_name}"
            try:
                payment = await run(connection, found_payment, context.policy, now, name)
            except NotFoundError:  # its event states no money
                found.notes.append(
                    f"The event {event.event_id} is stored, but belongs to no order yet."
                )
                continue
            if await run(connection, restricted_deliveries, payment.deliveries):
                continue
            found.unallocated.append(payment.document(now=now))
            found.notes.append(_without_order(payment))
    found.looked_in = [*look.looked_in]
    if refused and nothing and sought.names:
        found.looked_in.append("refused deliveries")
        found.notes += await _refused_notes(context, sought.names)
    return found


async def _refused_notes(context: AppContext, names: Collection[str]) -> list[str]:
    ids = [each.delivery_id for each in await refused_that_may_be_of(context, names)]
    if not ids:
        return []
    count = counted(len(ids), "refused delivery", "refused deliveries")
    return [
        f"Nothing was received about it, but {count} may be about it and do not count: `tallyhook "
        f"deliveries show {ids[0]}` says why it was refused ({', '.join(ids[:3])})."
    ]


def _no_order(connection: PlainConnection, history: History, until: Instant) -> str:
    aside = of_another_shop(connection, history, until=until)
    gaps = gaps_until(connection, until)
    said = str(nothing_known(history, None, gaps=gaps, aside=aside))
    return f"{said[:1].upper()}{said[1:]}."


MOST_UNREAD: Final = 5
"""Maximum number of unreadable messages that one search names."""


def _unread_notes(connection: PlainConnection, names: list[str], *, nothing: bool) -> list[str]:
    """Return notes on the unreadable messages that contain one of these names.

    nothing  whether to mention messages without readable values, too
    """
    naming = messages_with(connection, names)[:MOST_UNREAD]
    hidden = restricted_deliveries(connection, [each.delivery_id for each in naming])
    notes = [
        f"A message of {each.source}, received at {format_instant(each.received_at)}, names "
        f"{each.value} but is unreadable: `tallyhook deliveries show {each.delivery_id}` says why."
        for each in naming
        if each.delivery_id not in hidden
    ]
    nameless = messages_with(connection, [NO_VALUE]) if nothing else []
    if nameless:
        count = counted(len(nameless), "message")
        notes.append(
            f"{count} without any readable value may be about it: `tallyhook deliveries list "
            "--verdict unreadable` lists them."
        )
    return notes


def _not_kept_notes(
    connection: PlainConnection, sources: Collection[str], now: Instant
) -> list[str]:
    count = not_kept_in(connection, sources, since=now - DAY, until=now)
    if not count:
        return []
    requests = counted(count, "unsigned request was", "unsigned requests were")
    return [
        f"{requests} not stored in the last day, and one may be about it: look it up at the "
        "provider."
    ]


def _gap_notes(connection: PlainConnection) -> list[str]:
    gaps = accepted_gaps(connection)
    if not gaps:
        return []
    return [
        f"Data received {spans_of(gaps)} may be lost, and your search may concern it: look it up "
        "at the provider."
    ]


async def _refused_search(context: AppContext, sought: Sought, *, by: str | None) -> str:
    """Return why the operator may not search for a person, or record the search and return ""."""
    only = f"only references and amounts were searched, not {sought.of_a_person}".capitalize()
    async with context.database.writing() as connection:
        try:
            who = await permitted(connection, by=by, action=PERSON_SOUGHT)
        except UsageError as error:
            return f"{only}: {error}."
        now = context.clock.now()
        last = await audit_entries(
            connection, who=who.name, action=PERSON_SOUGHT, before=2**62, limit=PERSON_SEARCHES
        )
        if len(last) == PERSON_SEARCHES and last[-1].at > now - HOUR:
            return (
                f"{only}: {who.name} has searched for {PERSON_SEARCHES} persons within the last "
                f"hour, the limit; try again at {format_instant(last[-1].at + HOUR)}."
            )
        await note_in_trail(
            connection, who, action=PERSON_SOUGHT, subject=sought.of_a_person, at=now
        )
    return ""


class _Look:
    """One search on one snapshot. `all` yields each found order with a phrase on how it was
    found."""

    def __init__(
        self,
        context: AppContext,
        connection: Connection,
        sought: Sought,
        limit: int,
        notes: list[str],
    ) -> None:
        self._context = context
        self._connection = connection
        self._sought = sought
        self._enough = limit + 1
        self._notes = notes
        self.unplaced: dict[tuple[str, str], search_store.FoundEvent] = {}
        self._unconfirmed = set[tuple[str, str]]()
        self._looked = False
        self.looked_in: list[str] = []
        self.hidden: dict[str, Restriction] = {}

    async def visible(self) -> AsyncIterator[tuple[str, str]]:
        """Yield the found orders whose data is not restricted. If somebody searched for a
        restricted order by its reference, add a note."""
        judged = set[str]()
        async for order, how in self.all():
            if order not in judged:
                judged.add(order)
                found = await run(self._connection, restricted_orders, [order])
                self.hidden |= found
                if order in found and order in self._sought.names:
                    self._notes.append(f"{order}: {found[order].sentence}")
            if order not in self.hidden:
                yield order, how

    async def all(self) -> AsyncIterator[tuple[str, str]]:
        found = False
        for look, places in (
            (self._by_names, NAMED_IN),
            (self._by_phone, "customers' phone numbers, in events and order books"),
            (self._by_identifiers, "customers' email addresses, names and cards, in events"),
            (self._by_day, "events, orders and order books of the day"),
            (self._by_amount, "the amounts of the newest events, and of the shop's orders"),
        ):
            if look == self._by_amount and self._sought.message and found:
                return
            async for each in look():
                found = True
                yield each
            if places not in self.looked_in and self._looked:
                self.looked_in.append(places)
            self._looked = False

    async def _by_names(self) -> AsyncIterator[tuple[str, str]]:
        for name in self._sought.names:
            self._looked = True
            async for each in self._by_name(name):
                yield each

    async def _by_name(self, name: str) -> AsyncIterator[tuple[str, str]]:
        found = False
        noted = len(self._notes)
        async for each in self._named(name):
            found = True
            yield each
        # References are case-sensitive, but people ignore case. Shopify's begin with a sign,
        # #1042, that people leave out.
        signed = name[1:] if name.startswith("#") else f"#{name}"
        others = [] if found else sorted({name.upper(), name.lower(), signed} - {name, ""})
        for other in others:
            async for order, how in self._named(other):
                found = True
                yield order, f"{how}, written {other}"
        if found or len(self._notes) > noted or self.unplaced:
            return
        tail = backwards(name)
        if len(tail) >= SHORTEST_END and not looks_like_a_phone(name):
            for order in await search_store.orders_ending(
                self._connection, tail, limit=self._enough
            ):
                found = True
                same = backwards(order) == tail
                how = "this is its reference" if same else "its reference ends with this text"
                yield order, f"{how}, written {order}" if same else how
        if found:
            return
        lines = await search_store.lines_named(self._connection, name, limit=MAX_LINES)
        orders = {each.order for each in lines if each.order is not None}
        known = {mark.order for mark in await marks_of(self._connection, sorted(orders))}
        for line in lines:
            if line.order in known:
                whose = f"a statement from {line.source}" if line.source else "the order book"
                yield line.order, f"{whose} names it as {line.order}"
            else:
                self._notes.append(_nothing_received(line))

    async def _named(self, name: str) -> AsyncIterator[tuple[str, str]]:
        connection = self._connection
        for order in await search_store.orders_named(connection, name, beginning=False, limit=1):
            yield order, "this is its reference"
        for order, kind, source in await search_store.orders_linked(connection, name):
            yield order, f"this is a {kind} of it, at {source}"
        with_name = await search_store.events_with(connection, name, limit=self._enough)
        with_name += await search_store.unplaced_of_event(connection, name, limit=self._enough)
        with_name += await search_store.events_suggesting(connection, name, limit=NEWEST_UNPLACED)
        for event in with_name:
            if event.order is None:
                self._note_unplaced(event)
            elif event.standing == UNCONFIRMED:
                yield (
                    event.order,
                    f"an unconfirmed message from {event.source} names this payment: it counts "
                    "once the provider confirms it",
                )
            else:
                yield event.order, f"this is a {_movement(event)} of it, at {event.source}"
        for owner, kind in await search_store.orders_of_event(connection, name, limit=self._enough):
            if owner is not None:
                yield owner, f"this is the id of its {kind}"
        further = identifiers.further_id(name)
        if further is not None:
            async for order in self._by_digest(further):
                yield order, "an event of it names this id"
        limit = self._enough
        for order in await search_store.orders_of_payout(connection, name, limit=limit):
            yield order, f"it was settled in the payout {name}"
        for order in await search_store.orders_named(connection, name, beginning=True, limit=limit):
            yield order, "its reference begins with this text"

    async def _by_digest(self, identifier: str) -> AsyncIterator[str]:
        """Yield the orders of the customer with this phone number, mail address, name or card.

        Without any, note the customer's payments of no order.
        """
        key = self._context.phone_key
        if key is None:
            return
        digest = key.digest(identifier)
        orders = await orders_by_phone(self._connection, digest, limit=self._enough)
        for order in orders:
            yield order
        if not orders:
            found = await deliveries_by_phone(self._connection, digest)
            hidden = await run(self._connection, restricted_deliveries, found)
            newest = sorted({*found} - hidden.keys())[-NEWEST_UNPLACED:]
            for event in await search_store.events_of_deliveries(self._connection, newest):
                self._note_unplaced(event)

    def _note_unplaced(self, event: search_store.FoundEvent) -> None:
        key = event.source, event.unplaced_name
        if event.standing != UNCONFIRMED:
            self.unplaced.setdefault(key, event)
        elif key not in self._unconfirmed:
            self._unconfirmed.add(key)
            self._notes.append(_unconfirmed(event))

    async def _by_identifiers(self) -> AsyncIterator[tuple[str, str]]:
        sought = self._sought
        for identifier, how in (
            (sought.email, "its customer has this email address"),
            (sought.person, "its customer has this name"),
            (sought.card, f"it was paid by a card that ends in {(sought.card or '')[-4:]}"),
        ):
            if identifier is not None:
                self._looked = True
                async for order in self._by_digest(identifier):
                    yield order, how

    async def _by_phone(self) -> AsyncIterator[tuple[str, str]]:
        key = self._context.phone_key
        if not self._sought.phones or key is None:
            return
        self._looked = True
        for digits in self._sought.phones:
            async for order in self._by_digest(digits):
                yield order, f"its customer's phone is {masked_phone(digits)}"
            named = await search_store.references_in_books(
                self._connection, digits, limit=self._enough
            )
            known = {mark.order for mark in await marks_of(self._connection, named)}
            self._notes += [
                f"The order book's line {each} names this number, but no order has that reference."
                for each in named
                if each not in known
            ]
            for reference in filter(known.__contains__, named):
                yield reference, f"its line in the order book names {masked_phone(digits)}"
        if await has_other_keys(self._connection, key.name):
            self._notes.append(
                "Some phone numbers were stored with another key and cannot be found: put that "
                "key's file back, or run `tallyhook reindex` while the service is stopped."
            )

    async def _by_day(self) -> AsyncIterator[tuple[str, str]]:
        minors = set((self._sought.amounts or {}).values())
        for day, end in self._sought.days.values():
            self._looked = True
            async for part in search_store.events_of_day(self._connection, day, end, minors=minors):
                for each in self._stating(part, any_amount=not minors):
                    yield each
            if not minors:
                continue
            async for part in search_store.events_happened(
                self._connection, day, end, minors=minors
            ):
                for each in self._stating(part):
                    yield each
            for order, money in await search_store.records_of_amount(
                self._connection, minors, limit=MAX_HITS, during=(day, end)
            ):
                if self._stated(money):
                    yield order, f"the shop stated its price as {money}, and it was placed that day"
            async for each in self._in_books(minors, day, end):
                yield each

    async def _in_books(
        self, minors: set[int], day: Instant, end: Instant
    ) -> AsyncIterator[tuple[str, str]]:
        lines = await search_store.book_lines_of_day(
            self._connection, day, end, minors=minors, limit=MAX_LINES
        )
        lines = [each for each in lines if self._stated(each.money)]
        orders = {each.order for each in lines if each.order is not None}
        known = {mark.order for mark in await marks_of(self._connection, sorted(orders))}
        for line in lines:
            if line.order in known:
                yield line.order, f"the order book has it on that day with {line.money}"
            else:
                self._notes.append(_nothing_received(line))

    async def _by_amount(self) -> AsyncIterator[tuple[str, str]]:
        sought = self._sought
        if sought.amounts is None or sought.days:
            return
        self._looked = True
        minors = set(sought.amounts.values())
        async for part, left in search_store.events_of_amount(self._connection, minors):
            for each in self._stating(part):
                yield each
            if left:
                self._notes.append(
                    f"Only the newest {search_store.MOST:,} events were searched for the amount: "
                    "add the day, such as 1500.00 2026-11-20."
                )
        for order, money in await search_store.records_of_amount(
            self._connection, minors, limit=MAX_HITS
        ):
            if self._stated(money):
                yield order, f"the shop stated its price as {money}"

    def _stating(
        self, events: Iterable[search_store.FoundEvent], *, any_amount: bool = False
    ) -> Iterable[tuple[str, str]]:
        for event in events:
            money = self._stated(event.money) or self._stated(event.order_money)
            if money is None and not any_amount:
                continue
            if event.order is not None:
                yield event.order, _event_sentence(event, money)
            elif len(self.unplaced) < NEWEST_UNPLACED and event.is_payment:
                self._note_unplaced(event)

    def _stated(self, money: Money | None) -> Money | None:
        if money is None or (
            self._sought.currencies and money.currency not in self._sought.currencies
        ):
            return None
        wanted = (self._sought.amounts or {}).get(exponent_of(money.currency))
        return money if money.minor == wanted else None


def _nothing_received(line: search_store.ImportedLine) -> str:
    if not line.source:
        status = f", {line.what}" if line.what else ""
        return f"The order book has {line.order}, {line.money}{status}, but no event names it."
    order = f" of {line.order}" if line.order else ""
    payment = f" {line.payment}" if line.payment else ""
    return (
        f"A statement from {line.source} has the {line.what}{payment}{order}, {line.money}, but "
        "no order here has it: ask the provider to send its event again. After a run, `tallyhook "
        "breaks list` shows the difference."
    )


NAMED_IN: Final = (
    "orders by reference; payments, sessions, refunds, disputes, charges, payouts, events and "
    "deliveries by id, including those without an order; order books and statements"
)

NEWEST_UNPLACED: Final = 10
"""Maximum number of payments without an order that are shown for one search."""


def _movement(event: search_store.FoundEvent) -> str:
    if event.claim.startswith("dispute"):
        return "dispute"
    if event.claim == "succeeded":
        return "capture"
    return "reversal" if event.claim == "reversed" else "refund"


def _unconfirmed(event: search_store.FoundEvent) -> str:
    money = event.money or event.order_money
    amount = "" if money is None else f", {money}"
    return (
        f"A message from {event.source} names {event.unplaced_name}{amount}, received at "
        f"{format_instant(event.received_at)}. It is unconfirmed, because anyone can send such a "
        "message: it counts once the provider confirms it; look again later."
    )


def _without_order(payment: Unallocated) -> str:
    amount = "" if payment.captured is None else f", {payment.captured}"
    at = format_instant(payment.received_at)
    if payment.dismissed is not None:
        state = "It was dismissed."
    elif payment.assigned_to is not None:
        state = f"It is assigned to the order {payment.assigned_to}."
    else:
        state = WHY[payment.why]
    return (
        f"We have the payment {payment.reference} of {payment.source}{amount}, received at {at} "
        f"({payment.outcome}), but it is linked to no order. {state} `tallyhook unallocated show "
        f"{payment.id}` shows it."
    )


def _event_sentence(event: search_store.FoundEvent, money: Money | None) -> str:
    at = format_instant(event.received_at)
    what = "" if money is None else f" states {money}, and"
    return f"its event {event.event_id}{what} was received at {at}"
