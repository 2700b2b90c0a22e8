"""Times at which the shop canceled and fulfilled orders, by the shop's statements.

A time is null if the shop has stated none, and "unknown" if a statement may be lost: statements
since a backup are lost after its restore.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypedDict

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.mapping import RECORD_SELECT, record_of
from app.database.statements import PlainConnection, run, select_rows, statement
from reconcile.documents import InstantText
from reconcile.instants import Instant, format_instant
from reconcile.ledger.correlate import Filed, file_records
from reconcile.ledger.records import Record

UNKNOWN: Final[Literal["unknown"]] = "unknown"
"""Value for a time that the shop may have stated before statements were lost."""

Stated = Instant | Literal["unknown"] | None


StatedText = InstantText | Literal["unknown"] | None


class ShopFactsDocument(TypedDict):
    fulfilled_at: Annotated[
        StatedText,
        "When the shop fulfilled the order, as last stated; null if it has not. After a restore "
        "`unknown` until the shop states a time or null. Ship only if it is null.",
    ]
    canceled_at: Annotated[
        StatedText, "When the shop canceled the order; its values are like those of `fulfilled_at`."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopFacts:
    """Times at which the shop fulfilled and canceled an order, as stated, or None."""

    fulfilled_at: Stated = None
    canceled_at: Stated = None

    def document(self) -> ShopFactsDocument:
        return {
            "fulfilled_at": _stated_text(self.fulfilled_at),
            "canceled_at": _stated_text(self.canceled_at),
        }


def _stated_text(at: Stated) -> StatedText:
    return at if at is None or at == UNKNOWN else format_instant(at)


def shop_facts(
    connection: PlainConnection, orders: Collection[str], *, as_of: Instant | None = None
) -> dict[str, ShopFacts]:
    """Return what the shop stated about the fulfillment and cancellation of each order, as of now
    or of `as_of`."""
    known: dict[str, list[Record]] = {order: [] for order in orders}
    for row in select_rows(connection, sql=_RECORDS, values=known):
        record = record_of(row)
        if as_of is None or record.recorded_at <= as_of:
            known[record.order].append(record)
    filed = {
        order: file_records(sorted(each, key=lambda r: (r.recorded_at, r.record_id)))
        for order, each in known.items()
    }
    lost_at = last_loss(connection)
    if lost_at is None or (as_of is not None and as_of < lost_at):
        return {order: _facts(each, lost_at=None) for order, each in filed.items()}
    began = _began_after(connection, filed, lost_at)
    return {
        order: _facts(each, lost_at=None if order in began else lost_at)
        for order, each in filed.items()
    }


_RECORDS: Final = statement(
    "SELECT {record} FROM records WHERE order_key IN ({}) AND kind IN ('order_placed', "
    "'order_canceled', 'order_not_canceled', 'order_fulfilled', 'order_not_fulfilled')",
    record=RECORD_SELECT,
)


async def facts_of_orders(
    connection: AsyncConnection, orders: Collection[str]
) -> dict[str, ShopFacts]:
    """Return what the shop stated about the fulfillment and cancellation of each order, as of
    now."""
    return await run(connection, shop_facts, orders)


def _facts(filed: Filed, *, lost_at: Instant | None) -> ShopFacts:
    """Return the shop's times of fulfillment and cancellation from an order's records.

    lost_at  instant before which statements may be lost, if any
    """

    def stated(said: Record | None, denied: Record | None) -> Stated:
        if said is not None:
            return said.at
        if lost_at is None or (denied is not None and denied.recorded_at > lost_at):
            return None
        return UNKNOWN

    return ShopFacts(
        fulfilled_at=stated(filed.fulfilled, filed.not_fulfilled),
        canceled_at=stated(filed.canceled, filed.not_canceled),
    )


def _began_after(
    connection: PlainConnection, filed: dict[str, Filed], lost_at: Instant
) -> set[str]:
    rows = select_rows(connection, sql=_DATES, values=filed)
    dated = {order for order, undated, first in rows if not undated and first > lost_at}
    placed = {order: each.placed_at for order, each in filed.items()}
    return {each for each in dated if (at := placed[each]) is None or at > lost_at}


_DATES: Final = (
    "SELECT order_key, count(*) - count(occurred_at), min(occurred_at) FROM events "
    "WHERE order_key IN ({}) AND standing <> 'unconfirmed' GROUP BY order_key"
)


def last_loss(connection: PlainConnection) -> Instant | None:
    """Return when statements of the shop were last lost, by a restore or an accepted takeover, or
    None."""
    rows: Sequence[Any] = connection.ask("SELECT value FROM meta WHERE name='facts_lost_at'")
    return Instant(rows[0][0]) if rows else None


async def note_loss(connection: AsyncConnection, *, at: Instant) -> None:
    """Store the instant before which the shop's statements may be lost."""
    await connection.execute(
        text(
            "INSERT INTO meta (name, value) VALUES ('facts_lost_at', :at) "
            "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
        ),
        {"at": str(at)},
    )
