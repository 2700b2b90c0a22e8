"""Restricted data, which only finance and claims may use."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypedDict

from app.core.document_of import document_of
from app.core.errors import UsageError
from app.database.engine import Connection
from app.database.marks import GROUNDS, Ground
from app.database.statements import PlainConnection, run
from app.receiving import restriction_store
from reconcile.documents import InstantText
from reconcile.instants import Instant, format_instant, format_known

Kind = Literal["order", "delivery", "whole", "attachment", "bank_line"]
"""Kinds of restricted data.

order       an order with all its data
delivery    a delivery without an order, or a rejected delivery
whole       the body of a request with several deliveries
attachment  a file of another order that names the customer
bank_line   a version of a bank's line, as `subject.ordinal.since`
"""


class Reason(NamedTuple):
    """Reason of a restriction, and its legal ground."""

    because: str
    ground: Ground


_UNREAD: Final = Reason("a message that may be about a payment must be read first", "claims")

REASONS: Final[Mapping[str, Reason]] = {
    "accounts": Reason("books must be kept", "accounts"),
    "disputable": Reason("its payment can be disputed", "claims"),
    "unallocated": Reason("its payment has no order", "claims"),
    "not_over": Reason("its payment is not over", "claims"),
    "revocable": Reason("the customer can revoke its payment", "claims"),
    "disputed": Reason("its payment is disputed", "claims"),
    "to_settle": Reason("a person must settle it first", "claims"),
    "shared": Reason("a person must decide which order its events belong to", "claims"),
    "minimum": Reason("the shop's law requires it", "accounts"),
    "refused": _UNREAD,
    "unread": _UNREAD,
    "beside_unread": _UNREAD,
    "set_aside": _UNREAD,
    "in_the_reference": Reason("its reference contains the number or address", "accounts"),
    "changed": Reason("new data about it arrived during the erasure", "claims"),
}


class RestrictionDocument(TypedDict):
    """Restriction of the customer's data, which an erasure must not delete yet.

    Nobody can see the data. `until` is null if the restriction ends with its reason. The
    fingerprint does not cover the restriction.
    """

    since: InstantText
    until: InstantText | None
    why: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """Restriction of an order, a delivery or a bank line. A daily check ends restrictions without
    `until`."""

    kind: Kind
    thing: str
    since: Instant
    until: Instant | None
    why: str

    @property
    def sentence(self) -> str:
        """Return a sentence with the start, the end and the reason of the restriction."""
        because, ground = REASONS[self.why]
        until = f"until {format_known(self.until) or 'that ends'}"
        if self.why == "in_the_reference":
            until = "for good"
        return (
            f"Its customer's data are restricted since {format_instant(self.since)}, {until}: "
            f"{because} ({GROUNDS[ground]})."
        )

    def document(self) -> RestrictionDocument:
        return document_of(RestrictionDocument, self)


def restricted_orders(
    connection: PlainConnection, orders: Collection[str]
) -> dict[str, Restriction]:
    rows = restriction_store.restrictions_of(connection, "order", orders)
    return {row.thing: restriction_of(row) for row in rows}


def restricted_deliveries(
    connection: PlainConnection, deliveries: Collection[str]
) -> dict[str, Restriction]:
    """Return each delivery's own or its order's restriction."""
    rows = restriction_store.restrictions_of_deliveries(connection, deliveries)
    return {delivery: restriction_of(row) for delivery, row in rows}


async def refuse_restricted(connection: Connection, *, order: str = "", delivery: str = "") -> None:
    if order:
        found = await run(connection, restricted_orders, [order])
    else:
        found = await run(connection, restricted_deliveries, [delivery])
    for each in found.values():
        raise UsageError(each.sentence.rstrip("."))


def restriction_of(row: restriction_store.RestrictionRow) -> Restriction:
    kinds: tuple[Kind, ...] = ("order", "delivery", "whole", "attachment", "bank_line")
    kind = next(each for each in kinds if each == row.kind)
    return Restriction(kind=kind, thing=row.thing, since=row.since, until=row.until, why=row.why)
