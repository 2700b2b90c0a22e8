"""News of orders: verified where they are posted, and read from the feed across restores.

    notification ──verify──▶ news ─┐
    feed ──page by page──▶ news ───┴─▶ keeper: each once, in the shop's own transaction

Both ways bring the same news; a shop may use the one, the other, or both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from .asking import Ask, NotUnderstood, Steps, checked, sentence_of, with_query

TOLERANCE_S: Final = 300
"""Seconds that a notification's time may differ from the shop's clock, both ways."""

MAX_BODY_BYTES: Final = 256 * 1024
KIND: Final = "order.revised"
_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One revision of an order.

    id           rises with every revision, also across restores; the larger one is the later
    fulfillable  whether the order may be shipped, as of this revision
    because      sentences for people, with the ids of the evidence
    at           RFC 3339, in UTC
    superseded   whether the order has later news by now, as the feed said: then it is not shipped
                 on these
    """

    id: int
    order: str
    outcome: str
    fulfillable: bool
    because: tuple[str, ...]
    at: str
    superseded: bool = False


class Refused(Exception):
    """A notification that is not genuine: answer 401, and take nothing of it."""


class Keeper(Protocol):
    """Where the shop keeps what it heard; `shop_store.SqliteKeeper` is one."""

    def take(self, news: News) -> bool:
        """Act on it, in one transaction with keeping its id: all of it or nothing. False where an
        id as large is kept of its order already: then nothing is done."""
        ...

    def place(self) -> int:
        """Up to where the feed was read; 0 at first."""
        ...

    def move(self, place: int) -> None:
        """Keep that the feed was read up to there."""
        ...


def verify_notification(
    secrets: str | Sequence[str], headers: Mapping[str, str], body: bytes, *, now: float
) -> News:
    """The news in a genuine notification (Standard Webhooks, HMAC-SHA256).

    secrets  `whsec_…`; several while one is exchanged for another
    headers  by name, in any case
    body     as it came: not parsed and written again
    now      seconds since 1970 in UTC, by the shop's clock

    Raises Refused.
    """
    named = {name.lower(): value for name, value in headers.items()}
    try:
        key, stamp, signatures = (
            named[f"webhook-{name}"] for name in ("id", "timestamp", "signature")
        )
    except KeyError:
        raise Refused("a header of the signature is missing") from None
    if len(body) > MAX_BODY_BYTES:
        raise Refused("the body is larger than any of ours")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise Refused("the time is no number of seconds")
    content = b".".join((key.encode("latin-1", "replace"), stamp.encode("ascii"), body))
    given = [part[3:] for part in signatures.split() if part.startswith("v1,")]
    if not any(_fits(secret, content, given) for secret in _listed(secrets)):
        raise Refused("no signature was made with the secret")
    if abs(now - int(stamp)) > TOLERANCE_S:
        raise Refused("its time is too far from now")
    return _news_in(body)


def _listed(secrets: str | Sequence[str]) -> Iterable[str]:
    return [secrets] if isinstance(secrets, str) else secrets


def _fits(secret: str, content: bytes, given: Iterable[str]) -> bool:
    if not secret.startswith(_PREFIX):
        raise ValueError("a secret begins with whsec_")
    key = base64.b64decode(secret.removeprefix(_PREFIX) + "==")
    if not key:
        raise ValueError("a secret is empty")
    signature = hmac.new(key, content, hashlib.sha256).digest()
    return any(hmac.compare_digest(signature, each) for each in map(_decoded, given))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _news_in(body: bytes) -> News:
    try:
        document = json.loads(body)
        if document["type"] != KIND:
            raise Refused("it is no news of an order")
        return news_of(document["data"])
    except (ValueError, KeyError, TypeError, NotUnderstood):
        raise Refused("it is signed, and cannot be read") from None


def news_of(found: Any) -> News:
    """One entry of the feed. Raises NotUnderstood."""
    try:
        number, may_ship = found["id"], found["fulfillable"]
        if type(number) is not int or type(may_ship) is not bool:
            raise TypeError
        return News(
            id=number,
            order=str(found["order"]),
            outcome=str(found["outcome"]),
            fulfillable=may_ship,
            because=tuple(str(each) for each in found["because"]),
            at=str(found["at"]),
        )
    except (KeyError, TypeError):
        raise NotUnderstood("an entry of the feed cannot be read") from None


def follow(keeper: Keeper, *, wait_s: int = 0, limit: int = 100) -> Steps[int]:
    """Read the feed from the keeper's place until there is nothing more; returns how many news
    were new.

    wait_s  seconds that the last, empty page waits for something to come

    Raises TokenRefused, Unavailable and NotUnderstood; what was taken until then stays taken.
    """
    place, new, lost = keeper.place(), 0, False
    while True:
        path = with_query("/api/v1/outcomes", after=place, limit=limit, wait=wait_s)
        answer = checked((yield Ask(method="GET", path=path)))
        page = answer.document()
        if answer.status == 410 and not lost and type(page.get("read_from")) is int:
            # The database was put back: numbers beyond its head are of revisions that are gone.
            place, lost = page["read_from"], True
            keeper.move(place)
            continue
        if answer.status != 200:
            raise NotUnderstood(f"the feed cannot be read: {sentence_of(answer)}")
        lost = False
        entries = _entries(page)
        for news in entries:
            new += keeper.take(news)
        if not entries:
            return new
        place = page["cursor"]
        keeper.move(place)


def _entries(page: Mapping[str, Any]) -> list[News]:
    """The entries of a page of the feed. Raises NotUnderstood."""
    found, superseded = page.get("outcomes"), page.get("superseded", [])
    if not isinstance(found, list) or type(page.get("cursor")) is not int:
        raise NotUnderstood("a page of the feed cannot be read")
    if not isinstance(superseded, list):
        raise NotUnderstood("a page of the feed cannot be read")
    return [replace(news, superseded=news.id in superseded) for news in map(news_of, found)]
