"""Tells the shop of every published revision: signed, in order for each order, at least once.

    (1) take what is due  (2) sign and POST each, side by side  (3) write down what became of them

Between (1) and (3) others pass over what was taken; if this process dies there, it comes due again
and is sent with the same id. No transaction is open while the shop is waited for.

A shop that takes nothing of what is sent at one moment is away. From then on one notification is
tried at a time (a probe), by one of all processes, soon again; the first that is taken has all that
wait sent at once. A single notification that is refused while others are taken is tried again by
itself, with a pause that grows, and holds up no order but its own.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final

import httpx2
import structlog

from app.access.operators import note_in_trail, permitted
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.http import Exchange, asked_to_wait
from app.core.logs import LogLine
from app.orders.history_store import newest_deliveries
from app.orders.notification_store import (
    LEASE,
    STATES,
    Away,
    Notification,
    NotificationEntry,
    SendResult,
    State,
    away,
    call_all_up,
    claim_probe,
    next_notification,
    note_away,
    note_back,
    notifications_in,
    send_again,
    settle_notifications,
    take_notifications,
)
from app.orders.published_store import Published
from app.orders.read_feed import outcome_document
from app.providers.configured import signer_of_section
from app.providers.signed_post import post_signed
from app.providers.source import Source
from reconcile.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_instant,
    format_known,
)

__all__ = [
    "STATES",
    "NotificationEntry",
    "Notifier",
    "Shop",
    "destination_of",
    "list_notifications",
    "notification_document",
    "notify_due",
    "redeliver",
]

log = structlog.get_logger()

AT_ONCE: Final = 16
"""Requests to the shop at one moment: what a small shop's server bears."""

LIMIT_S: Final = 10.0
"""Seconds that the shop has to answer; it should do its work afterwards."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
"""Before the second try; each further pause is four times as long."""

LONGEST_PAUSE: Final[Duration] = HOUR
"""Between two tries of one notification that is refused while others are taken."""

LONGEST_PROBE_PAUSE: Final[Duration] = MINUTE
"""Between two probes: what a shop that is back waits for at most, if it did not ask for longer."""

LONGEST_ASKED_PAUSE: Final[Duration] = 15 * MINUTE
"""What a shop may ask for (Retry-After); what a proxy in front of it says may be hours."""

GIVE_UP_AFTER: Final[Duration] = 3 * DAY
"""A shop that is down over a weekend still hears of everything by itself."""

MOST_NAMED: Final = 20
"""Notifications that the trail names of those that a person had sent again; it counts all."""

KIND: Final = "order.revised"

_log_taken = LogLine("notification", "delivery", "order", "revision", "attempt_number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Where the shop listens, and what signs for it: a source of the `checkout` profile."""

    url: str
    signer: Source = field(repr=False)

    @property
    def destination(self) -> str:
        """What its health is kept under."""
        return destination_of(self.url)


def shop_of(settings: Settings) -> Shop | None:
    """Return the shop that is notified of every revision; None where none is configured.

    Raises ConfigurationError where its secret cannot sign.
    """
    shop = settings.shop
    if shop.url is None or shop.secret is None:
        return None
    return Shop(url=shop.url, signer=signer_of_section("shop", shop.secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """What telling the shop needs."""

    context: AppContext
    shop: Shop
    client: httpx2.AsyncClient


def destination_of(url: str) -> str:
    """A name for an address of notifications that holds nothing of it: it may have a credential."""
    return sha256(url.encode("utf-8")).hexdigest()


async def notify_due(notifier: Notifier) -> int:
    """Send what is due now, up to AT_ONCE; to a shop that is away, one. Returns how many were."""
    context = notifier.context
    now = context.clock.now()
    async with context.database.reading() as connection:
        due = await next_notification(connection)
        health = await away(connection, notifier.shop.destination)
    if due is None or now < (due if health is None else health.probe_at):
        return 0
    taken = await _take(notifier, now)  # (1)
    answers = await asyncio.gather(*(_send(notifier, each) for each in taken))  # (2)
    if taken:
        await _settle(notifier, taken, answers)  # (3)
    return len(taken)


async def _take(notifier: Notifier, now: Instant) -> list[Notification]:
    """What is to be sent now; none where another process was faster."""
    destination = notifier.shop.destination
    async with notifier.context.database.writing() as connection:
        health = await away(connection, destination)
        if health is None:
            return await take_notifications(connection, now=now, limit=AT_ONCE, lease=LEASE)
        ours = now >= health.probe_at and await claim_probe(
            connection, destination, health, until=now + LEASE
        )
        if not ours:
            return []
        return await take_notifications(
            connection, now=now, limit=1, lease=LEASE, whenever_due=True
        )


async def _settle(
    notifier: Notifier, taken: Sequence[Notification], answers: Sequence[Exchange]
) -> None:
    """Write down what became of them, and what that says of the shop."""
    context, destination = notifier.context, notifier.shop.destination
    now = context.clock.now()
    async with context.database.writing() as connection:
        before = await away(connection, destination)
        health, results = judge(taken, answers, before=before, now=now)
        await settle_notifications(connection, results, now=now)
        if health is not None:
            await note_away(connection, destination, health)
        elif before is not None and await note_back(connection, destination):
            await call_all_up(connection, now=now)
    if before is None and health is not None:
        log.error("the shop takes no notifications", reason=health.problem)
    elif before is not None and health is None:
        log.info("the shop takes notifications again", count=before.failures)
    await _log_delivered(context, [one.sent for one in results if one.delivered])


async def _log_delivered(context: AppContext, sent: Sequence[Notification]) -> None:
    """One line for each that was taken, under the newest delivery that its revision rests on."""
    if not sent:
        return
    published = [(each.published.order, each.published.at) for each in sent]
    async with context.database.reading() as connection:
        deliveries = await newest_deliveries(connection, published)
    for each, delivery in zip(sent, deliveries, strict=True):
        _log_taken(delivery, each.published.order, each.published.seq, each.tries + 1)


def judge(
    taken: Sequence[Notification],
    answers: Sequence[Exchange],
    *,
    before: Away | None,
    now: Instant,
) -> tuple[Away | None, list[SendResult]]:
    """What the answers to all that was sent at one moment say of the shop, and of each. The shop is
    away if it took none of them: None says that it is not."""
    sent = list(zip(taken, answers, strict=True))
    if any(answer.taken for answer in answers):
        return None, [_result(each, answer, now=now) for each, answer in sent]
    problem, failures = answers[-1].why, 1 if before is None else before.failures + 1
    probe_at = now + max(probe_pause(failures, headers=answer.headers) for answer in answers)
    results = [_result(each, answer, now=now, again_at=probe_at) for each, answer in sent]
    if any(one.again_at is None for one in results):
        probe_at = now  # what is behind one that was given up need not wait for it any more
    since = now if before is None else before.since
    return Away(since=since, failures=failures, probe_at=probe_at, problem=problem), results


async def _send(notifier: Notifier, taken: Notification) -> Exchange:
    return await post_signed(
        notifier.client,
        notifier.shop.url,
        notification_body(taken.published),
        signer=notifier.shop.signer,
        event_id=notification_id(taken.published),
        now=notifier.context.clock.now(),
        limit_s=LIMIT_S,
    )


def _result(
    sent: Notification, answer: Exchange, *, now: Instant, again_at: Instant | None = None
) -> SendResult:
    """again_at: when it is tried again if it was not taken; None: by its own pauses."""
    if answer.taken:
        return SendResult(sent=sent, delivered=True)
    problem = answer.why
    until = again_at
    if until is None:
        busy = answer.status == HTTPStatus.TOO_MANY_REQUESTS
        until = now + pause_after(
            sent.tries, seq=sent.published.seq, headers=answer.headers, busy=busy
        )
    if until > sent.since + GIVE_UP_AFTER:
        log.error("notification given up", order=sent.published.order, reason=problem)
        return SendResult(sent=sent, problem=problem)
    log.warning("notification not delivered", order=sent.published.order, reason=problem)
    return SendResult(sent=sent, problem=problem, again_at=until)


def probe_pause(failures: int, *, headers: Mapping[str, str]) -> Duration:
    """From the last of so many failed tries in succession to the next probe."""
    pause: Duration = min(FIRST_PAUSE * 4 ** min(failures - 1, 10), LONGEST_PROBE_PAUSE)
    return max(pause, min(asked_to_wait(headers), LONGEST_ASKED_PAUSE))


def pause_after(
    tries: int, *, seq: int, headers: Mapping[str, str], busy: bool = False
) -> Duration:
    """From a failed try to the next of one that is refused while others are taken. The shop may ask
    for longer (Retry-After, in seconds). busy: it had too many at that moment, whichever they were.

    A sixteenth at most is added by the notification's number: what failed together does not come
    back all at once.
    """
    longest = LONGEST_PROBE_PAUSE if busy else LONGEST_PAUSE
    pause: Duration = min(FIRST_PAUSE * 4 ** min(tries, 10), longest)
    pause = max(pause, min(asked_to_wait(headers), LONGEST_PAUSE))
    return pause + pause * (seq % 16) // 256


def notification_id(published: Published) -> str:
    """The same at every try, and of no other revision: not even of one that takes its number in a
    database that was put back, and of which nobody said so."""
    content = f"{published.seq}|{published.order}|{published.at}|{'|'.join(published.because)}"
    return f"ntf_{published.seq}_{sha256(content.encode('utf-8')).hexdigest()[:16]}"


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


async def list_notifications(
    context: AppContext,
    *,
    state: State | None,
    limit: int,
    order: str | None = None,
    before: int | None = None,
) -> list[NotificationEntry]:
    """Notifications, the newest first; of one order, where one is named; with numbers below
    `before`."""
    async with context.database.reading() as connection:
        return await notifications_in(
            connection, state=state, limit=limit, order=order, before=before
        )


def notification_document(entry: NotificationEntry) -> dict[str, Any]:
    """One notification in a list, for JSON; `id` is the revision's in the feed."""
    return {
        "id": entry.seq,
        "order": entry.order,
        "outcome": entry.outcome,
        "state": entry.state,
        "tries": entry.tries,
        "published_at": format_known(entry.published_at),
        "due_at": format_known(entry.due_at),
        "delivered_at": format_known(entry.delivered_at),
        "problem": entry.problem,
    }


async def redeliver(
    context: AppContext,
    revisions: Collection[int] | None,
    *,
    by: str | None = None,
    why: str = "",
) -> int:
    """Send these revisions again, or (None) all that were tried and not taken, whether they wait or
    were given up; a service or worker that runs does it at once. Raises NotFoundError where one of
    them is none that the shop was to be notified of, UsageError for who may not.
    """
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="notifications_redelivered")
        found = await send_again(connection, now=now, revisions=revisions)
        if revisions is not None and found < len(set(revisions)):
            raise NotFoundError("not all of these are notifications; see `notifications list`")
        subject = "all that were not taken"
        if revisions is not None:
            subject = ", ".join(map(str, sorted(set(revisions))[:MOST_NAMED]))
        await note_in_trail(
            connection,
            who,
            action="notifications_redelivered",
            subject=subject,
            at=now,
            reason=why,
            facts={"notifications": found},
        )
    return found
