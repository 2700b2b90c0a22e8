"""Holds that the service records by itself: for unreadable messages, and for accepted gaps.

    1 judge   which holds begin or end by everything known: unread_holds.py, gap_holds.py
    2 record  in the transaction that publishes the fold that sees it

A reader assumes the record where the fold worker has not reached the order yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.context.context import AppContext
from app.core.ids import new_id
from app.database.statements import PlainConnection
from app.orders.gap_holds import gap_changes
from app.orders.hold_store import HoldChange
from app.orders.record_store import after_all, hold_record, keep_records
from app.orders.unread_holds import unread_changes
from app.receiving.confirmation_store import ToAsk, note_confirmations
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Record

SUPPOSED: Final = "rec_to_be_noted"
"""The id of the record that a reader assumes."""


def _changes(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, list[HoldChange]]:
    found: dict[str, list[HoldChange]] = {}
    for changes in (
        unread_changes(connection, histories),
        gap_changes(connection, histories, policy=policy),
    ):
        for order, change in changes.items():
            found.setdefault(order, []).append(change)
    return found


def with_supposed(
    connection: PlainConnection, histories: Mapping[str, History], *, policy: Policy
) -> dict[str, History]:
    """Return histories with the records that the fold worker is about to write."""
    found = dict(histories)
    for order, changes in _changes(connection, histories, policy=policy).items():
        for change in changes:
            record = _record(found[order], change, now=change.at, record_id=SUPPOSED)
            found[order] = with_record(found[order], record)
    return found


def record_holds(
    connection: PlainConnection, context: AppContext, histories: Mapping[str, History]
) -> dict[str, History]:
    """Record the holds that are due for these orders, in the transaction.
    Return their histories."""
    now = context.clock.now()
    found: dict[str, History] = {}
    records: list[Record] = []
    asks: list[ToAsk] = []
    for order, changes in sorted(_changes(connection, histories, policy=context.policy).items()):
        found[order] = histories[order]
        for change in changes:
            records.append(_record(found[order], change, now=now, record_id=new_id("rec_", now)))
            found[order] = with_record(found[order], records[-1])
            asks += [ToAsk(event, now, 0) for event in change.ask if _states(context, event.source)]
    keep_records(connection, records)
    note_confirmations(connection, asks)
    return found


def _states(context: AppContext, source: str) -> bool:
    """Return whether the provider of a source can be asked for the position of a payment."""
    known = context.sources.get(source)
    rule = None if known is None else known.profile.fetch_back
    return rule is not None and rule.states


def _record(history: History, change: HoldChange, *, now: Instant, record_id: str) -> Record:
    return hold_record(
        history.order,
        change.kind,
        at=after_all(history.records, now=max(now, change.at)),
        record_id=record_id,
        reason=change.reason,
    )


def with_record(history: History, record: Record) -> History:
    """Return the history with one more record."""
    return replace(history, records=history.records | {record})
