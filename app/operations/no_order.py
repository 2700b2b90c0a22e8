"""Whether a source's payments reach no order at all: a decision, made of what was stored last.

Leaves out: how the events are read. Each of them is genuine, was read and was acknowledged; but
where none names an order that is known, no ledger tells of the money, and every order looks unpaid.
A profile that looks for the order's reference in the wrong place does that to all of them. Single
payments of no order are no alarm: not every payment of an account is one of this shop's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from app.operations.alarm import Alarm
from app.words import counted
from reconcile.instants import DAY, HOUR, Duration, Instant

WINDOW: Final[Duration] = 7 * DAY
"""How far back is looked: see `unread`."""

PATIENCE: Final[Duration] = HOUR
"""What ties a payment to its order, another event or the shop's record, may come after it."""

LEAST: Final = 3
"""Payments of no order that are a reason: fewer may be the owner trying something out."""

MOST: Final = 20
"""Payments of a source that are looked at. Where one in five is of an order, all of the last twenty
are of none once in a hundred times."""

LOOKED_AT: Final = 1_000
"""Events of all sources that are read for them, the latest ones."""


class Paid(NamedTuple):
    """An event that says a payment has succeeded."""

    source: str
    delivery_id: str
    received_at: Instant
    tied: bool


def no_order(latest: Iterable[Paid], *, now: Instant) -> Alarm | None:
    """The alarm, if there are sources of whose last payments none belongs to an order.

    latest  payments of all sources, the latest first
    """
    sources: dict[str, list[Paid]] = {}
    for paid in latest:
        waited = now - paid.received_at
        if waited <= WINDOW and (paid.tied or waited >= PATIENCE):
            sources.setdefault(paid.source, []).append(paid)
    untied = {source: found for source, paid in sources.items() if (found := _untied(paid[:MOST]))}
    if not untied:
        return None
    each = ", ".join(
        f"{len(found)} at {source}, the last one delivery {found[0].delivery_id}"
        for source, found in sorted(untied.items())
    )
    count = sum(map(len, untied.values()))
    return Alarm(
        reason="payments_of_no_order",
        sentence=f"The last {counted(count, 'payment')} that succeeded ({each}) belong to no order,"
        " so no ledger tells of their money: look at one with `tallyhook deliveries show`, see "
        "that `order` in the source's profile says where an order's reference stands, stop the "
        "service, run `tallyhook reindex` and start it again. Where the provider names only its "
        "session, open the sessions through this service, which keeps both references.",
    )


def _untied(paid: Sequence[Paid]) -> Sequence[Paid]:
    """All of them, or none."""
    return paid if len(paid) >= LEAST and not any(each.tied for each in paid) else ()
