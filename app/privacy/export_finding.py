"""Find a person's data for the person's copy.

1 asked    rows that contain the number or address
2 orders   the person's orders by numbers, addresses, order books and names
3 stated   the customer's other numbers and addresses in these orders' events
4 own      rows that name these orders, or their payments, deliveries, breaks or files
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.reading import Unreadable
from app.database.engine import Connection
from app.database.statements import run
from app.orders.customers import own_phones, phones_of
from app.orders.history_store import gather
from app.orders.read_orders import spoken_of
from app.privacy import erase_store, export_store
from app.privacy.erase_finding import MOST_ORDERS
from app.privacy.export_masking import PersonalCopy
from app.privacy.whose import masked
from app.providers import identifiers
from app.receiving import inbox_store, phone_store
from app.receiving.delivery_log_store import raw_delivery
from app.receiving.header_codec import read_request
from reconcile.matching.books import match_key


@dataclass(slots=True)
class Found:
    """Keys of the rows about a person."""

    identifiers: set[str] = field(default_factory=set, repr=False)
    named_by: list[str] = field(default_factory=list, repr=False)
    orders: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set, repr=False)
    names_of_others: set[str] = field(default_factory=set, repr=False)
    of_others: set[str] = field(default_factory=set)
    """Deliveries about other people's payments for the person's orders."""
    payments: set[tuple[str | None, str]] = field(default_factory=set)
    own: dict[str, set[erase_store.Key]] = field(default_factory=dict)
    """Rows about the person, by table."""
    named: dict[str, set[erase_store.Key]] = field(default_factory=dict, repr=False)
    """Other rows that name the person, by `table.column`."""
    aside: list[bytes] = field(default_factory=list, repr=False)
    """Accepted deliveries that name the person and could not be read."""


async def find_person(
    context: AppContext,
    connection: Connection,
    *,
    person: str | None,
    order: str | None,
    progress: Callable[[int], None],
) -> Found:
    """Return the rows about a person. Raise NotFoundError without rows."""
    found = Found()
    if person is None:
        known = (await gather(connection, [order or ""])).get(order or "")
        if known is None or not spoken_of(known):
            raise NotFoundError(
                f"there is no order {order!r}: `tallyhook orders find` searches for orders"
            )
        found.orders = {order or ""}
        found.identifiers = {*await phones_of(connection, order or "", sources=context.sources)}
        people = list[set[str]]()
        for _, stated, name in (await _stated(context, connection, order or "")).values():
            found.identifiers |= stated
            found.names |= {name} - {""}
            same = [each for each in people if each & stated]
            people = [each for each in people if not each & stated]
            people += [stated.union(*same)] if stated else []
        # One message may state the number, and another one the address of the same customer.
        numbers = sum(any(text.isdecimal() for text in each) for each in people)
        addresses = sum(not all(text.isdecimal() for text in each) for each in people)
        if (count := max(numbers, addresses)) > 1:
            raise UsageError(
                f"messages of {order} may name {count} customers: give the number or email "
                "address of the customer who asked"
            )
        found.named_by = sorted(found.identifiers)
    else:
        found.identifiers, found.named_by = {person}, [person]
    found.named = await erase_store.rows_that_hold(connection, found.named_by, progress=progress)
    things = {"keys": set[str]()}
    if person is not None:
        if context.phone_key is not None:
            digest = context.phone_key.digest(person)
            limit = MOST_ORDERS + 1
            found.orders |= {*await phone_store.orders_by_phone(connection, digest, limit=limit)}
            alone = await phone_store.deliveries_by_phone(connection, digest)
            things["deliveries"] = {
                each.delivery_id
                for each in await erase_store.owners(connection, alone)
                if each.order is None
            }
        asked = found.named.get("unanswered.request", ())
        found.orders |= {*await erase_store.orders_waiting_for(connection, asked)}
        lines = [(each[0], each[1], each[2]) for each in found.named.get("book_lines.phone", ())]
        found.orders |= await export_store.orders_of_lines(connection, lines)
        things["keys"] = {each[0] for each in lines}
    if len(found.orders) > MOST_ORDERS:
        raise UsageError(
            f"more than {MOST_ORDERS:,} orders name this person: export order by order"
        )
    if person is not None:
        await _tell_apart(context, connection, found, person=person)
    await _add_own(connection, found, things)
    found.aside = await _aside(connection, found)
    if not (found.own or found.named or found.aside):
        raise NotFoundError(f"nothing is stored about {masked(person or '')}")
    return found


async def _tell_apart(
    context: AppContext, connection: Connection, found: Found, *, person: str
) -> None:
    stated_by = dict[str, tuple[set[str], set[str], str]]()
    for order in sorted(found.orders):
        stated_by |= await _stated(context, connection, order)
    for _, stated, _ in stated_by.values():
        if person in stated:
            found.identifiers |= stated
    for delivery, (phones, stated, name) in stated_by.items():
        if stated & found.identifiers:
            found.names |= {name} - {""}
        elif phones if person.isdecimal() else stated:
            found.of_others.add(delivery)
            found.names_of_others |= {name} - {""}


async def _stated(
    context: AppContext, connection: Connection, order: str
) -> dict[str, tuple[set[str], set[str], str]]:
    history = (await gather(connection, [order]))[order]
    found = dict[str, tuple[set[str], set[str], str]]()
    for name in sorted({each.delivery_id for each in history.deliveries}):
        delivery = await raw_delivery(connection, name)
        source = context.sources.get(delivery.source) if delivery is not None else None
        if delivery is None or source is None or delivery.body is None:
            continue
        incoming = read_request(delivery.headers, delivery.whole or delivery.body)
        try:
            facts = source.transaction(incoming, digest=delivery.digest)
        except Unreadable:
            continue
        phones = {*own_phones(delivery, context.sources)}
        address = identifiers.email(facts.get("email"))
        stated = phones if address is None else phones | {address}
        found[name] = phones, stated, facts.get("name", "")
    return found


async def _add_own(connection: Connection, found: Found, things: dict[str, set[str]]) -> None:
    histories = await gather(connection, sorted(found.orders))
    deliveries = {e.delivery_id for each in histories.values() for e in each.deliveries}
    deliveries = deliveries - found.of_others | things.get("deliveries", set())
    breaks = await export_store.values_in(
        connection, "breaks.id", where="order_ref", values=found.orders
    )
    files = await export_store.values_in(
        connection, "attachments.sha256", where="order_key", values=found.orders
    )
    found.payments = await export_store.payments_of(connection, found.orders)
    found.own = await export_store.rows_named(
        connection,
        {
            "orders": found.orders,
            "keys": things["keys"] | {match_key(each) for each in found.orders},
            "subjects": found.orders | deliveries | breaks,
            "deliveries": deliveries,
            "payments": {reference for _, reference in found.payments},
            "breaks": breaks,
            "files": files,
        },
    )


async def _aside(connection: Connection, found: Found) -> list[bytes]:
    copy = PersonalCopy(found.named_by, things=found.orders, staff=())
    aside = await run(
        connection, inbox_store.next_suspects, aside=True, limit=erase_store.MOST_ASIDE
    )
    return [each.record for each in aside if copy.passages(each.record)]
