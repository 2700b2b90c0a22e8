"""Notify the shop of every published revision, signed, in order for each order, at least once.

    (1) take what is due  (2) sign and POST each, side by side  (3) store the results

Notifications that were interrupted between (1) and (3) are sent again with the same ids. A shop is
away once notifications of two orders have failed in succession: then one process at a time sends a
probe. A single refused notification is retried with growing pauses, and delays only its own order.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypedDict

import httpx2

from app.access.operators import note_in_trail, permitted
from app.config.settings import Settings
from app.context.configured import signer_of_section
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError
from app.core.http import Exchange, asked_to_wait
from app.core.logs import LogLine, Repeating, log
from app.orders import notification_store
from app.orders.history_store import newest_deliveries
from app.orders.ledger_store import windows_of_orders
from app.orders.notification_store import (
    LEASE,
    Away,
    ListedNotification,
    Notification,
    SendResult,
)
from app.orders.published_store import Published
from app.orders.read_feed import OutcomeDocument, outcome_document
from app.orders.shop_facts_store import ShopFacts, facts_of_orders
from app.providers.signed_post import post_signed
from app.providers.source import Source
from reconcile import instants
from reconcile.documents import Count, InstantText, Keywords, NextNumber, OrderReference
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from reconcile.ledger.ledger import NO_WINDOW, Outcome, PaymentWindow

State = notification_store.State
STATES: Final = notification_store.STATES

AT_ONCE: Final = 16
"""Maximum number of simultaneous requests to the shop. A small shop's server can answer 16 requests
at a time."""

LIMIT_S: Final = 10.0
"""Seconds in which the shop must answer. The shop should answer before it processes the
notification."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
"""Pause before the second try. Each further pause is four times as long."""

LONGEST_PAUSE: Final[Duration] = HOUR
"""Maximum pause between two tries of a notification that the shop refuses, while the shop accepts
other notifications."""

LONGEST_PROBE_PAUSE: Final[Duration] = MINUTE
"""Maximum pause between two probes, unless the shop asked for a longer pause (Retry-After)."""

LONGEST_ASKED_PAUSE: Final[Duration] = 15 * MINUTE
"""Maximum pause that a shop can request between two probes with a Retry-After header. A proxy may
ask for hours."""

GIVE_UP_AFTER: Final[Duration] = 3 * DAY
"""Time after which a notification is given up. A shop may be down for a whole weekend."""

MOST_NAMED: Final = 20
"""Maximum number of resent notifications that an audit entry names. All notifications are
counted."""

KIND: Final[Literal["order.revised"]] = "order.revised"

_log_taken = LogLine("notification", "delivery", "order", "revision", "attempt_number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Address of the shop, and the source whose secret signs the notifications."""

    url: str
    signer: Source = field(repr=False)

    @property
    def destination(self) -> str:
        """Return the digest under which the shop's state is stored."""
        return destination_of(self.url)


def shop_of(settings: Settings) -> Shop | None:
    """Return the shop that is notified of every revision, if one is configured.

    Raise ConfigurationError if its secret cannot sign.
    """
    shop = settings.shop
    if shop.url is None or shop.secret is None:
        return None
    return Shop(url=shop.url, signer=signer_of_section("shop", shop.secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Everything that is needed to send notifications: context, shop and HTTP client."""

    context: AppContext
    shop: Shop
    client: httpx2.AsyncClient
    failed: Repeating = field(default_factory=Repeating)


def destination_of(url: str) -> str:
    """Return a digest that identifies an address. The address itself is not stored, because it may
    contain a credential."""
    return sha256(url.encode("utf-8")).hexdigest()


async def notify_due(notifier: Notifier) -> int:
    """Send the due notifications, up to 16, or only one if the shop seems unreachable. Return the
    number of sent notifications."""
    context, shop = notifier.context, notifier.shop
    now = context.clock.now()
    async with context.database.reading() as connection:
        due = await notification_store.next_notification(connection)
        health = await notification_store.away(connection, shop.destination)
    if due is None or now < (due if health is None else health.probe_at):
        return 0
    taken = await _take(notifier, now)  # (1)
    if not taken:
        return 0
    async with context.database.reading() as connection:
        orders = {each.published.order for each in taken}
        facts = await facts_of_orders(connection, orders)
        windows = await windows_of_orders(connection, orders)
    requests = [
        post_signed(
            notifier.client,
            shop.url,
            notification_body(
                each.published,
                facts[each.published.order],
                window=windows[each.published.order],
            ),
            signer=shop.signer,
            event_id=notification_id(each.published),
            now=context.clock.now(),
            limit_s=LIMIT_S,
        )
        for each in taken
    ]
    answers = await asyncio.gather(*requests)  # (2)
    await _settle(notifier, taken, answers)  # (3)
    return len(taken)


async def _take(notifier: Notifier, now: Instant) -> list[Notification]:
    """Take due notifications for this process to send.

    None if another process was faster, or the shop is away and no probe is due.
    """
    destination, take = notifier.shop.destination, notification_store.take_notifications
    async with notifier.context.database.writing() as connection:
        health = await notification_store.away(connection, destination)
        if health is None:
            return await take(connection, now=now, limit=AT_ONCE, lease=LEASE)
        ours = now >= health.probe_at and await notification_store.claim_probe(
            connection, destination, health, until=now + LEASE
        )
        if not ours:
            return []
        return await take(connection, now=now, limit=1, lease=LEASE, whenever_due=True)


async def _settle(
    notifier: Notifier, taken: Sequence[Notification], answers: Sequence[Exchange]
) -> None:
    context, destination = notifier.context, notifier.shop.destination
    now = context.clock.now()
    async with context.database.writing() as connection:
        before = await notification_store.failing(connection, destination)
        health, results = judge(taken, answers, before=before, now=now)
        await notification_store.settle_notifications(connection, results, now=now)
        if health is not None:
            await notification_store.note_away(connection, destination, health)
        elif before is not None and await notification_store.note_back(connection, destination):
            await notification_store.call_all_up(connection, now=now)
    was_away = before is not None and before.only is None
    is_away = health is not None and health.only is None
    if was_away != is_away:
        context.signals.alarming.set()
    if health is not None and is_away:
        if not was_away:
            log.error("the shop does not accept notifications", reason=health.problem)
    elif before is not None and was_away:
        log.info("the shop accepts notifications again", count=before.failures)
    for one in results:
        if one.delivered or (is_away and not one.given_up):  # a shop that is away is logged once
            continue
        order, problem = one.sent.published.order, str(one.problem)
        if times := notifier.failed.times(f"{one.given_up} {problem}"):
            if one.given_up:
                log.error("a notification was given up", order=order, reason=problem, count=times)
            else:
                log.warning(
                    "a notification was not delivered", order=order, reason=problem, count=times
                )
    delivered = [one.sent for one in results if one.delivered]
    if not delivered:
        return
    published = [(each.published.order, each.published.at) for each in delivered]
    async with context.database.reading() as connection:
        deliveries = await newest_deliveries(connection, published)
    for each, delivery in zip(delivered, deliveries, strict=True):
        # Traced under the newest delivery that its revision rests on.
        _log_taken(delivery, each.published.order, each.published.seq, each.tries + 1)


def judge(
    taken: Sequence[Notification],
    answers: Sequence[Exchange],
    *,
    before: Away | None,
    now: Instant,
) -> tuple[Away | None, list[SendResult]]:
    """Return the state of the shop, and the result of each notification, all sent at one time.

    The state is None if the shop accepted one, or if the only one is now given up.
    """
    sent = list(zip(taken, answers, strict=True))
    if any(answer.taken for answer in answers):
        return None, [_result(each, answer, now=now) for each, answer in sent]
    seq = taken[0].published.seq
    alone = len(taken) == 1 and (before is None or before.only == seq)
    problem, failures = answers[-1].why, 1 if before is None else before.failures + 1
    probe_at = now + max(probe_pause(failures, headers=answer.headers) for answer in answers)
    # The notification failed more often than the shop in a row: the shop accepted others meanwhile.
    own = alone and taken[0].tries >= failures
    results = [
        _result(each, answer, now=now, again_at=None if own else probe_at) for each, answer in sent
    ]
    if any(one.again_at is None for one in results):
        probe_at = now  # a notification given up delays no other
    since = now if before is None else before.since
    if alone and results[0].given_up:
        return None, results  # the order's next notification is judged separately
    health = Away(
        since=since,
        failures=failures,
        probe_at=probe_at,
        problem=problem,
        only=seq if alone else None,
    )
    return health, results


def _result(
    sent: Notification, answer: Exchange, *, now: Instant, again_at: Instant | None = None
) -> SendResult:
    if answer.taken:
        return SendResult(sent=sent, delivered=True)
    until = again_at
    if until is None:
        busy = answer.status == HTTPStatus.TOO_MANY_REQUESTS
        until = now + pause_after(
            sent.tries, seq=sent.published.seq, headers=answer.headers, busy=busy
        )
    if until > sent.since + GIVE_UP_AFTER:
        return SendResult(sent=sent, problem=answer.why)
    return SendResult(sent=sent, problem=answer.why, again_at=until)


def probe_pause(failures: int, *, headers: Mapping[str, str]) -> Duration:
    """Return the pause before the next probe of the shop, after this number of failures in a
    row."""
    pause: Duration = min(FIRST_PAUSE * 4 ** min(failures - 1, 10), LONGEST_PROBE_PAUSE)
    return max(pause, min(asked_to_wait(headers), LONGEST_ASKED_PAUSE))


def pause_after(
    tries: int, *, seq: int, headers: Mapping[str, str], busy: bool = False
) -> Duration:
    """Return the pause before the next try of a notification that the shop refused.

    busy  whether the shop answered that it had too many requests

    The pause grows with each try, and by up to a sixteenth so that retries spread. The shop can ask
    for a longer pause (Retry-After, in seconds).
    """
    longest = LONGEST_PROBE_PAUSE if busy else LONGEST_PAUSE
    pause: Duration = min(FIRST_PAUSE * 4 ** min(tries, 10), longest)
    pause = max(pause, min(asked_to_wait(headers), LONGEST_PAUSE))
    return pause + pause * (seq % 16) // 256


def notification_id(published: Published) -> str:
    """Return the notification's id, equal in all tries and different for every revision.

    A restored database can assign a revision number again; the ids still differ.
    """
    content = f"{published.seq}|{published.order}|{published.at}|{'|'.join(published.because)}"
    return f"ntf_{published.seq}_{sha256(content.encode('utf-8')).hexdigest()[:16]}"


class NotificationDocument(TypedDict):
    """Notification of the shop about one published change."""

    type: Literal["order.revised"]
    timestamp: InstantText
    data: OutcomeDocument


def notification_body(
    published: Published, facts: ShopFacts, *, window: PaymentWindow = NO_WINDOW
) -> bytes:
    """Return the body of a notification: `type`, `timestamp`, and the feed's entry.

    Tries have equal bytes unless facts or the payment window changed. See
    https://www.standardwebhooks.com, "Payload structure".
    """
    document: NotificationDocument = {
        "type": KIND,
        "timestamp": instants.format_instant(published.at),
        "data": outcome_document(published, facts, window=window),
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8")


# --- lists of notifications, for people -----------------------------------------------------------


async def list_notifications(
    context: AppContext,
    *,
    state: notification_store.State | None,
    limit: int,
    order: str | None = None,
    before: int | None = None,
) -> list[ListedNotification]:
    """Return notifications for a list, newest first.

    state   their state; None for all
    order   their order; None for all
    before  only smaller numbers; None for all
    """
    url = context.settings.shop.url
    async with context.database.reading() as connection:
        away = url and await notification_store.away(connection, destination_of(url))
        return await notification_store.notifications_in(
            connection,
            state=state,
            is_away=bool(away),
            limit=limit,
            order=order,
            before=before,
        )


class SentDocument(TypedDict):
    id: Annotated[int, Keywords(minimum=1), "The id of the change in the feed."]
    order: OrderReference
    outcome: Outcome
    state: State
    tries: Count
    published_at: InstantText
    due_at: InstantText | None
    delivered_at: InstantText | None
    problem: Annotated[str | None, "A code for why the last try failed."]


class SentPageDocument(TypedDict):
    notifications: list[SentDocument]
    next: NextNumber


def notification_document(entry: ListedNotification) -> SentDocument:
    """Return one notification as JSON values for a list."""
    return document_of(SentDocument, entry, id=entry.seq)


async def redeliver(
    context: AppContext,
    revisions: Collection[int] | None,
    *,
    by: str | None = None,
    why: str = "",
) -> int:
    """Make notifications due again, and return their number.

    revisions  their numbers; None for all that were tried and not accepted

    Raises NotFoundError for a number without a notification, and UsageError if permission is
    missing.
    """
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="notifications_redelivered")
        found = await notification_store.send_again(connection, now=now, revisions=revisions)
        if revisions is not None and found < len(set(revisions)):
            raise NotFoundError(
                "some of these ids are not ids of notifications; `tallyhook notifications list` "
                "shows the ids"
            )
        subject = "all that were not accepted"
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
