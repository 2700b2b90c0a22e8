"""Facts that the shop states about an order: price, placement, cancellation, fulfillment, payments.

Facts are only added; a later fact corrects an earlier one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from app.access.operator_store import Operator, keep_entry
from app.access.operators import OWNER, entry_of
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.ids import new_id
from app.core.logs import log
from app.database.locks import STATING, take_lock_of
from app.database.statements import PlainConnection
from app.orders.policy_version_store import forget_required, note_required, required_since
from app.orders.record_store import after_all, keep_records, linked_orders, order_records
from app.orders.shop_facts_store import last_loss
from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.records import Record, RecordKind, Tender
from reconcile.money import Money


async def in_force_since(context: AppContext) -> Instant | None:
    """Return the instant since which orders need a price from the shop. Return None if orders need
    no price."""
    if not context.settings.requires_order_record:
        return None
    async with context.database.reading() as connection:
        return await required_since(connection)


async def start_requiring(context: AppContext) -> Instant | None:
    """Return the instant since which orders need a price from the shop, if they do.

    Stores it when the settings first require prices, and deletes it when they stop. Call it when a
    process starts to serve.
    """
    database, required = context.database, context.settings.requires_order_record
    async with database.reading() as connection:
        since = await required_since(connection)
    if required and since is None:
        async with database.writing() as connection:
            await note_required(connection, now=context.clock.now())
            since = await required_since(connection)
        log.info("from now on an order is fulfillable only if the shop has stated its price")
    elif not required and since is not None:
        async with database.writing() as connection:
            await forget_required(connection)
        log.warning(
            "orders no longer need a price stated by the shop; if the setting is turned on again, "
            "it applies only to orders that become known later"
        )
    return since if required else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A provider's name for a payment or for its session, exactly one of which is set."""

    source: str
    session: str | None = None
    payment: str | None = None
    money: Money | None = None
    """Amount for which the session was opened, if stated."""

    @property
    def name(self) -> str:
        """Return the reference with its kind and source, for people."""
        kind, reference = (
            ("payment", self.payment) if self.session is None else ("session", self.session)
        )
        return f"the {kind} {reference} of source {self.source}"


NOT_SO: Final[Literal["not so"]] = "not so"

Moment = Instant | Literal["not so"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFacts:
    """Facts that the shop states about an order.

    placed_at, canceled_at, fulfilled_at
                 times that the shop states, or None
    """

    order: str
    money: Money
    """The whole price."""
    placed_at: Instant | None = None
    canceled_at: Moment = None
    fulfilled_at: Moment = None
    references: tuple[Reference, ...] = ()
    tenders: tuple[Tender, ...] | None = None
    """Parts of the price that are not paid through a provider. None to leave them unchanged."""
    free: bool = False
    """True if the order costs nothing. Only with a price of zero."""


class TendersDoNotFit(UsageError):
    """Error for tenders that exceed the order's price or have another currency."""


class ReferenceTaken(UsageError):
    """Error for a reference that already belongs to another order, `order`. Nothing was stored."""

    def __init__(self, reference: Reference, *, order: str) -> None:
        super().__init__(
            f"{reference.name[:1].upper()}{reference.name[1:]} belongs to order {order}, but one "
            "payment pays only one order; nothing was stored. State this reference for the order "
            "that its payment was started for."
        )
        self.reference = reference
        self.order = order


async def tell_order(
    context: AppContext, facts: OrderFacts, *, author: str = OWNER
) -> list[Record]:
    """Store the facts that the shop states about an order, and return the new records.

    author  author of the records, and of the audit entry if the price changes

    Raises ReferenceTaken or TendersDoNotFit; nothing is stored then.
    """

    def record(connection: PlainConnection) -> list[Record]:
        take_lock_of(connection, STATING, facts.order)  # a repeated statement is written once
        known, now = order_records(connection, facts.order), context.clock.now()
        lost_at = last_loss(connection)
        fresh = news(known, facts, now=after_all(known, now=now), author=author, lost_at=lost_at)
        refuse_taken(connection, facts.order, facts.references)
        keep_records(connection, fresh)
        _note_price(connection, known, fresh, at=now)
        return fresh

    fresh = await context.database.writer.commit(record)
    context.signals.evidence_arrived.set()
    return fresh


def news(
    known: list[Record],
    facts: OrderFacts,
    *,
    now: Instant,
    author: str,
    lost_at: Instant | None = None,
) -> list[Record]:
    """Return records for the stated facts that are not recorded yet.

    lost_at  time at which the database last lost statements of the shop; denials from before are
             recorded again

    Raises TendersDoNotFit if the tenders exceed the price or have another currency.
    """
    fresh = _priced(known, facts, now=now, author=author)
    moments: tuple[tuple[Moment, RecordKind, RecordKind], ...] = (
        (facts.canceled_at, "order_canceled", "order_not_canceled"),
        (facts.fulfilled_at, "order_fulfilled", "order_not_fulfilled"),
    )
    for moment, said, denied in moments:
        stated = [record for record in known if record.kind in (said, denied)]
        denials = [place for place, record in enumerate(stated) if record.kind == denied]
        since = stated[denials[-1] :] if denials else stated  # begins with the last denial
        if moment == NOT_SO:
            old = EARLIEST if lost_at is None else lost_at
            if [each.kind for each in since] != [denied] or since[0].recorded_at <= old:
                fresh.append(_record(facts, denied, now, now=now, author=author))
        elif moment is not None and all((each.kind, each.at) != (said, moment) for each in since):
            fresh.append(_record(facts, said, moment, now=now, author=author))
    return fresh + named(known, facts.order, facts.references, now=now, author=author)


def _priced(
    known: Sequence[Record], facts: OrderFacts, *, now: Instant, author: str
) -> list[Record]:
    """Return a record of the order's price, tenders and date, in a list; empty if nothing is new.

    Raise TendersDoNotFit if the tenders exceed the price or have another currency.
    """
    placed = [record for record in known if record.kind == "order_placed"]
    last = placed[-1] if placed else None
    tenders = facts.tenders
    if tenders is None:
        tenders = () if last is None else last.tenders
    made = replace(
        _record(facts, "order_placed", now, now=now, author=author),
        money=facts.money,
        tenders=tenders,
        free=facts.free,
        dated=facts.placed_at is not None,
    )
    tendered = made.tendered
    if tendered is not None and (
        tendered.minor > facts.money.minor
        or any(each.money.currency != facts.money.currency for each in tenders)
    ):
        raise TendersDoNotFit(
            f"The tenders of order {facts.order} are {' and '.join(map(_money_of, tenders))}, but "
            f"its price is {facts.money}: state tenders in the price's currency whose sum is at "
            "most the price."
        )
    if facts.placed_at is not None:
        made = replace(made, at=facts.placed_at)
    elif last is not None:
        made = replace(made, at=last.at, dated=last.dated)
    if last is not None and all(
        getattr(made, name) == getattr(last, name)
        for name in ("money", "tenders", "free", "at", "dated")
    ):
        return []
    return [made]


def _money_of(tender: Tender) -> str:
    return str(tender.money)


def _record(
    facts: OrderFacts, kind: RecordKind, at: Instant, *, now: Instant, author: str
) -> Record:
    return Record(
        record_id=new_id("rec_", now),
        recorded_at=now,
        kind=kind,
        order=facts.order,
        at=at,
        author=author,
    )


def named(
    known: Sequence[Record],
    order: str,
    references: Sequence[Reference],
    *,
    now: Instant,
    author: str,
) -> list[Record]:
    """Return records for references that are new for the order or have a new amount."""
    recorded = {(record.source, record.session, record.payment) for record in known}
    amounts = {
        (record.source, record.session): record.money
        for record in known
        if record.kind == "reference_named" and record.money is not None
    }
    return [
        Record(
            record_id=new_id("rec_", now),
            recorded_at=now,
            kind="reference_named",
            order=order,
            at=now,
            source=each.source,
            session=each.session,
            payment=each.payment,
            money=each.money,
            author=author,
        )
        for each in dict.fromkeys(references)
        if (each.source, each.session, each.payment) not in recorded
        or (each.money is not None and each.money != amounts.get((each.source, each.session)))
    ]


def refuse_taken(connection: PlainConnection, order: str, references: Sequence[Reference]) -> None:
    """Raise ReferenceTaken for a reference that already belongs to another order.

    No other transaction can link references until the caller's transaction ends.
    """
    if not references:
        return
    taken = linked_orders(
        connection, [(each.source, each.session, each.payment) for each in references]
    )
    for each in references:
        owner = taken.get((each.source, each.session, each.payment))
        if owner is not None and owner != order:
            raise ReferenceTaken(each, order=owner)


def _note_price(
    connection: PlainConnection, known: list[Record], fresh: list[Record], *, at: Instant
) -> None:
    prices = {each.kind: each.due for each in known if each.due is not None}
    before = prices.get("order_placed", prices.get("session_requested"))
    for record in fresh:
        if before is None or record.kind != "order_placed" or record.due == before:
            continue
        author = record.author or ""
        who = Operator(name=author, role=author.partition(":")[0], created_at=EARLIEST)
        facts: dict[str, str | int] = {"before": str(before), "after": str(record.due)}
        entry = entry_of(who, action="price_changed", subject=record.order, at=at, facts=facts)
        keep_entry(connection, entry)
