"""Whether a source's payments reach no order at all: a decision, made of what was stored last.

Each such event is genuine, was read and was acknowledged; but where none names an order or is tied
to one, no ledger tells of the money, and every order looks unpaid. A profile that finds nothing
where it looks for the order's reference does that to all of them. A single payment of no order is
no alarm: an account may take money, at a till perhaps, that is not of this shop's orders.

Leaves out: how events are read, and a profile that takes another text for the order's reference, by
which every payment is of an order that nobody placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from app.core.alarm import Alarm
from app.core.text import counted
from reconcile.instants import DAY, HOUR, Duration, Instant

PATIENCE: Final[Duration] = HOUR
"""What ties a payment to its order may come after it: younger payments are not looked at."""

WINDOW: Final[Duration] = 7 * DAY
"""So long after the last such payment the alarm ends: see `unread`."""

LEAST: Final = 3
"""Payments that are a reason where the source never had one of an order: fewer may be the owner
trying something out."""

MOST: Final = 20
"""Payments that are a reason where it had. Where one in five is of an order, all of the last twenty
are of none once in a hundred times."""

LOOKED_AT: Final = 1_000
"""Deliveries of all sources that are looked through for them, the latest ones. Of a source that
sends one in fifty of them the last twenty are among these."""


class Paid(NamedTuple):
    """An event that says a payment has succeeded.

    payment  what several events of one payment have in common
    tied     whether an order has it
    """

    source: str
    payment: str
    delivery_id: str
    received_at: Instant
    tied: bool


class Seen(NamedTuple):
    """What was looked at.

    paid        the latest first, none younger than PATIENCE
    whole       whether these are all that ever came until then
    tied_since  sources that have had a payment of an order since then
    """

    now: Instant
    paid: Iterable[Paid]
    whole: bool
    tied_since: Set[str]


def no_order(seen: Seen) -> Alarm | None:
    """The alarm, if there are sources of whose last payments none belongs to an order."""
    sources: dict[str, dict[str, Paid]] = {}
    for paid in seen.paid:
        payments = sources.setdefault(paid.source, {})
        latest = payments.setdefault(paid.payment, paid)
        payments[paid.payment] = latest._replace(tied=latest.tied or paid.tied)
    untied = {
        source: found
        for source, payments in sorted(sources.items())
        if source not in seen.tied_since and (found := _untied([*payments.values()], seen))
    }
    if not untied:
        return None
    each = ", ".join(
        f"{len(found)} at {source}, the last one delivery {found[0].delivery_id}"
        for source, found in untied.items()
    )
    count = sum(map(len, untied.values()))
    return Alarm(
        reason="payments_of_no_order",
        sentence=f"The last {counted(count, 'payment')} that succeeded ({each}) belong to no order,"
        " so no ledger tells of their money: look at one with `tallyhook deliveries show`, see "
        "that `order` in the source's profile says where an order's reference stands, stop the "
        "service, run `tallyhook reindex` and start it again. Where the provider names only its "
        "session, open the sessions through this service, which keeps both references.",
        pressing=False,
    )


def _untied(payments: Sequence[Paid], seen: Seen) -> Sequence[Paid]:
    """Those that are a reason; the latest first."""
    never_tied = seen.whole and not any(paid.tied for paid in payments)
    latest = payments[:MOST]
    if len(latest) < (LEAST if never_tied else MOST) or any(paid.tied for paid in latest):
        return ()
    return latest if seen.now - latest[0].received_at <= WINDOW else ()
