"""Receive news of orders, from verified notifications and from the feed."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from .asking import Ask, NotUnderstood, Steps, checked, sentence_of

TOLERANCE_S: Final = 300
"""Maximum seconds between a notification's time and the shop's clock."""

MAX_BODY_BYTES: Final = 256 * 1024
KIND: Final = "order.revised"
UNKNOWN: Final = "unknown"
"""Value of a time that a restore lost."""

_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """News of one revision of an order."""

    id: int
    """Increases with every revision, even after restores."""
    order: str
    outcome: str
    fulfillable: bool
    """True if the order is paid and nothing holds it."""
    because: tuple[str, ...]
    """Sentences for people."""
    at: str
    """Time of the revision in RFC 3339, in UTC."""
    fulfilled_at: str | None
    canceled_at: str | None
    superseded: bool = False
    """True if the feed has later news of the order. Do not ship then."""

    @property
    def may_ship(self) -> bool:
        """Check whether Tallyhook permits shipping the order.

        Also check that your own books do not show shipping.
        """
        return self.fulfillable and not self.superseded and self.fulfilled_at is None


class Refused(Exception):
    """Error for a notification that is not genuine. Answer 401, and discard the notification."""


class Keeper(Protocol):
    """Interface of the store of news that the shop has handled, such as
    `shop_store.SqliteKeeper`."""

    def take(self, news: News) -> bool:
        """Act on the news and store its id, in one transaction.

        Return False if an equal or higher id is stored.
        """
        ...

    def undecided(self) -> Sequence[tuple[str, int]]:
        """Return some undecided orders, with their last news' ids."""
        ...

    def settle(self, news: News) -> None:
        """Act on the state of an undecided order, in one transaction.

        With `fulfilled_at` UNKNOWN, the order stays undecided.
        """
        ...

    def place(self) -> int:
        """Return the cursor up to which the feed was read; 0 at first."""
        ...

    def move(self, place: int) -> None:
        """Store the cursor up to which the feed was read."""
        ...


def verify_notification(
    secrets: str | Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float
) -> News:
    """Verify a notification (Standard Webhooks, HMAC-SHA256) and return its news.

    secrets  a secret `whsec_…`, or several during a rotation
    body     the raw bytes, not serialized again
    now      seconds since 1970 in UTC, by the shop's clock

    Raises Refused for a forged notification, and ValueError for an invalid secret.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        key, stamp, signatures = (
            named[f"webhook-{name}"] for name in ("id", "timestamp", "signature")
        )
    except KeyError:
        raise Refused("a signature header is missing") from None
    if len(body) > MAX_BODY_BYTES:
        raise Refused("the body is too large to come from Tallyhook")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise Refused("the timestamp is not a number of seconds")
    content = b".".join((key.encode("latin-1", "replace"), stamp.encode("ascii"), body))
    given = [
        part[3:].encode("utf-8", "replace") for part in signatures.split() if part.startswith("v1,")
    ]
    matches = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        if not secret.startswith(_PREFIX):
            raise ValueError("a secret must begin with whsec_")
        secret_key = base64.b64decode(secret.removeprefix(_PREFIX) + "==")
        if not secret_key:
            raise ValueError("a secret is empty")
        signature = base64.b64encode(hmac.new(secret_key, content, hashlib.sha256).digest())
        matches |= any(hmac.compare_digest(signature, each) for each in given)
    if not matches:
        raise Refused("the signature does not match any secret")
    if abs(now - int(stamp)) > TOLERANCE_S:
        raise Refused("the timestamp is too far from the current time")
    try:
        document = json.loads(body)
        if document["type"] != KIND:
            raise Refused("the message is not about an order")
        return news_of(document["data"])
    except (ValueError, KeyError, TypeError, NotUnderstood):
        raise Refused("the message is signed but cannot be parsed") from None


def news_of(found: Any) -> News:
    """Convert an entry of the feed to News. Raises NotUnderstood for unknown forms."""
    try:
        number, may_ship = found["id"], found["fulfillable"]
        fulfilled_at, canceled_at = found["fulfilled_at"], found["canceled_at"]
        if type(number) is not int or type(may_ship) is not bool:
            raise TypeError
        if not all(at is None or type(at) is str for at in (fulfilled_at, canceled_at)):
            raise TypeError
        return News(
            id=number,
            order=str(found["order"]),
            outcome=str(found["outcome"]),
            fulfillable=may_ship,
            because=tuple(str(each) for each in found["because"]),
            at=str(found["at"]),
            fulfilled_at=fulfilled_at,
            canceled_at=canceled_at,
        )
    except (KeyError, TypeError):
        raise NotUnderstood("an entry of the feed cannot be parsed") from None


def follow(keeper: Keeper, *, wait_s: int = 0, limit: int = 100) -> Steps[int]:
    """Read the feed to its end, and return how many entries were new.

    Raises TokenRefused, Unavailable and NotUnderstood. The keeper keeps what it took before.
    """
    place, new, lost = keeper.place(), 0, False
    while True:
        query = urlencode({"after": place, "limit": limit, "wait": wait_s})
        answer = checked((yield Ask(method="GET", path=f"/api/v1/outcomes?{query}")))
        page = answer.document()
        if answer.status == 410 and not lost and type(page.get("read_from")) is int:
            # A backup was restored: numbers beyond its last one belong to revisions that are gone.
            place, lost = page["read_from"], True
            keeper.move(place)
            continue
        if answer.status != 200:
            raise NotUnderstood(f"the feed cannot be read: {sentence_of(answer)}")
        lost = False
        entries, superseded = page.get("outcomes"), page.get("superseded", [])
        is_rest_right = isinstance(superseded, list) and type(page.get("cursor")) is int
        if not (isinstance(entries, list) and is_rest_right):
            raise NotUnderstood("a page of the feed cannot be parsed")
        for news in map(news_of, entries):
            new += keeper.take(replace(news, superseded=news.id in superseded))
        if not entries:
            break
        place = page["cursor"]
        keeper.move(place)
    for order, number in keeper.undecided():
        path = f"/api/v1/orders/{quote(order, safe='')}"
        answer = checked((yield Ask(method="GET", path=path)))
        found = answer.document() if answer.status == 200 else {}
        waits = answer.status == 404 or "behind_s" in found
        if not waits and answer.status != 200:
            raise NotUnderstood(f"the order cannot be read: {sentence_of(answer)}")
        stated = UNKNOWN if waits else found.get("fulfilled_at", UNKNOWN)
        document = {
            "outcome": UNKNOWN, "fulfillable": False, "canceled_at": UNKNOWN, **found,
            "id": number, "order": order, "fulfilled_at": stated,
            "because": found.get("explanation", ()), "at": found.get("as_of", ""),
        }  # fmt: skip
        keeper.settle(news_of(document))
    return new
