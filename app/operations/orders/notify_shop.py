"""Tells the shop of every published revision: signed, in order for each order, at least once.

    (1) take what is due  (2) sign and POST each, side by side  (3) write down what became of them

Between (1) and (3) others pass over what was taken; if this process dies there, it comes due again
and is sent with the same id. No transaction is open while the shop is waited for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import httpx2
import structlog

from app.errors import NotFoundError
from app.operations.desk import Desk
from app.operations.orders.read_feed import outcome_document
from app.operations.people.people import note_deed, permitted
from app.outbound.http import Exchange, asked_to_wait, exchange
from app.providers.source import Source
from app.store.folding.outbox import (
    LEASE,
    STATES,
    Entry,
    Fate,
    Notification,
    State,
    next_notification,
    notifications_in,
    send_again,
    settle_notifications,
    take_notifications,
)
from app.store.folding.published import Published
from reconcile.instants import DAY, HOUR, SECOND, Duration, Instant, format_instant

__all__ = ["STATES", "Entry", "Notifier", "Shop", "list_notifications", "notify_due", "redeliver"]

log = structlog.get_logger()

AT_ONCE: Final = 16
"""Requests to the shop at one moment: what a small shop's server bears."""

LIMIT_S: Final = 10.0
"""Seconds that the shop has to answer; it should do its work afterwards."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
"""Before the second try; each further pause is four times as long."""

LONGEST_PAUSE: Final[Duration] = 8 * HOUR

GIVE_UP_AFTER: Final[Duration] = 3 * DAY
"""A shop that is down over a weekend still hears of everything by itself."""

MOST_TOLD: Final = 20
"""Notifications that the trail names of those that a person had sent again; it counts all."""

KIND: Final = "order.revised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Where the shop listens, and what signs for it: a source of the `checkout` profile."""

    url: str
    signer: Source = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """What telling the shop needs."""

    desk: Desk
    shop: Shop
    client: httpx2.AsyncClient


async def notify_due(notifier: Notifier) -> int:
    """Send what is due now, up to AT_ONCE. Returns how many were."""
    desk = notifier.desk
    now = desk.clock.now()
    async with desk.store.reading() as connection:
        due = await next_notification(connection)
    if due is None or due > now:
        return 0
    async with desk.store.writing() as connection:
        taken = await take_notifications(connection, now=now, limit=AT_ONCE, lease=LEASE)  # (1)
    answers = await asyncio.gather(*(_send(notifier, each) for each in taken))  # (2)
    if taken:
        now = desk.clock.now()
        fates = [_fate(sent, answer, now=now) for sent, answer in zip(taken, answers, strict=True)]
        async with desk.store.writing() as connection:
            await settle_notifications(connection, fates, now=now)  # (3)
    return len(taken)


async def _send(notifier: Notifier, taken: Notification) -> Exchange:
    body = notification_body(taken.published)
    signed = notifier.shop.signer.sign(
        body, event_id=notification_id(taken.published), now=notifier.desk.clock.now()
    )
    return await exchange(
        notifier.client,
        "POST",
        notifier.shop.url,
        headers={**dict(signed), "content-type": "application/json"},
        content=body,
        limit_s=LIMIT_S,
    )


def _fate(sent: Notification, answer: Exchange, *, now: Instant) -> Fate:
    if answer.status is not None and 200 <= answer.status < 300:
        return Fate(sent=sent, delivered=True)
    problem = answer.problem or f"status_{answer.status}"
    until = now + pause_after(sent.tries, seq=sent.published.seq, headers=answer.headers)
    if until > sent.since + GIVE_UP_AFTER:
        log.error("notification given up", order=sent.published.order, reason=problem)
        return Fate(sent=sent, problem=problem)
    log.warning("notification not delivered", order=sent.published.order, reason=problem)
    return Fate(sent=sent, problem=problem, again_at=until)


def pause_after(tries: int, *, seq: int, headers: Mapping[str, str]) -> Duration:
    """From a failed try to the next. The shop may ask for longer (Retry-After, in seconds).

    A sixteenth at most is added by the notification's number: what failed together, when the shop
    was down, does not come back all at once.
    """
    pause: Duration = min(FIRST_PAUSE * 4 ** min(tries, 10), LONGEST_PAUSE)
    pause = max(pause, min(asked_to_wait(headers), LONGEST_PAUSE))
    return pause + pause * (seq % 16) // 256


def notification_id(published: Published) -> str:
    """The same at every try, and of no other revision: not even of one that takes its number
    after an older backup was restored."""
    said = f"{published.seq}|{published.order}|{published.at}|{'|'.join(published.because)}"
    return f"ntf_{published.seq}_{sha256(said.encode('utf-8')).hexdigest()[:16]}"


def notification_body(published: Published) -> bytes:
    """The same bytes at every try: `type`, `timestamp`, and as `data` the feed's own entry
    (https://www.standardwebhooks.com, "Payload structure")."""
    document: dict[str, Any] = {
        "type": KIND,
        "timestamp": format_instant(published.at),
        "data": outcome_document(published),
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8")


# --- for people ----------------------------------------------------------------------------------


async def list_notifications(desk: Desk, *, state: State | None, limit: int) -> list[Entry]:
    """Notifications, the newest first."""
    async with desk.store.reading() as connection:
        return await notifications_in(connection, state=state, limit=limit)


async def redeliver(desk: Desk, revisions: Collection[int] | None, *, by: str | None = None) -> int:
    """Send these revisions again, or (None) all that were given up; a service or worker that runs
    does it at once. Raises NotFoundError where one of them is none that the shop was to be told of,
    UsageError for who may not.
    """
    async with desk.store.writing() as connection:
        now = desk.clock.now()
        who = await permitted(connection, by=by, action="notifications_redelivered")
        found = await send_again(connection, now=now, revisions=revisions)
        if revisions is not None and found < len(set(revisions)):
            raise NotFoundError("not all of these are notifications; see `notifications list`")
        subject = "all that were given up"
        if revisions is not None:
            subject = ", ".join(map(str, sorted(set(revisions))[:MOST_TOLD]))
        await note_deed(
            connection,
            who,
            action="notifications_redelivered",
            subject=subject,
            at=now,
            facts={"notifications": found},
        )
    return found
