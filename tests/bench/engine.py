"""The pure engine and the provider engine, in this process: one fold, one verification."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from app.core.ids import new_secret
from app.core.process import look_seldom, pass_over_start
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import MINUTE, SECOND, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from tests.bench.orders import Message, Stretch
from tests.bench.requests import secret_text, source

AT = Instant(1_795_168_800_000_000)
"""2026-11-20T10:00:00Z"""
POLICY = Policy()

WANTED = frozenset({"redelivered", "same_id_different_body"})
KILOBYTE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """µs of one call: the best of all repeats, and their median."""

    best: float
    median: float


def cost(call: Callable[[], object], *, calls: int, repeats: int) -> Cost:
    """Time `calls` calls, `repeats` times over, with the collector set as every command sets it."""
    look_seldom()
    pass_over_start()
    found = []
    for _ in range(repeats):
        started = perf_counter()
        for _ in range(calls):
            call()
        found.append((perf_counter() - started) / calls * 1e6)
    return Cost(best=min(found), median=statistics.median(found))


def new_source() -> Source:
    """A source with a secret of its own."""
    return source(secret_text(new_secret()))


def crooked_history() -> History:
    """Seven deliveries: four events, one of them twice, one with a second body, one that claims
    the contrary of the last."""
    reader = new_source()
    first, declined, again, paid = next(
        Stretch(seed=1, first=0, count=1).messages(ended_at=AT - MINUTE)
    )
    other_body = Message(paid.event_id, paid.body.replace(b"}}}", b"}}} "))
    contrary = Message("evt_contrary", paid.body.replace(b"payment.succeeded", b"payment.declined"))
    contrary = Message(
        contrary.event_id,
        contrary.body.replace(paid.event_id.encode(), contrary.event_id.encode()),
    )
    told = (first, declined, again, paid, paid, other_body, contrary)
    deliveries = [_delivery(reader, place, message) for place, message in enumerate(told)]
    order = deliveries[0].event.order
    assert order is not None
    return History(order=order, deliveries=frozenset(deliveries))


def _delivery(reader: Source, place: int, message: Message) -> Delivery:
    digest = hashlib.sha256(message.body).hexdigest()
    event = reader.read(Incoming([], message.body), digest=digest).events[0]
    return Delivery(delivery_id=f"dlv_{place}", received_at=AT + place * SECOND, event=event)


def fold_once(history: History) -> Ledger:
    """The ledger of the history a minute after its last delivery."""
    return fold(history, policy=POLICY, as_of=AT + MINUTE)


def found_in(ledger: Ledger) -> frozenset[str]:
    """The codes of a ledger's findings."""
    return frozenset(finding.code for finding in ledger.findings)


@dataclass(frozen=True, slots=True)
class SignedKilobyte:
    """A genuine delivery whose body is 1,024 bytes."""

    reader: Source
    request: Incoming

    @classmethod
    def make(cls) -> SignedKilobyte:
        """Sign one now (by `AT`); what the provider says beyond what we read fills it up."""
        reader = new_source()
        message = next(Stretch(seed=1, first=0, count=1).messages(ended_at=AT))[3]
        start = b'{"note": "%b", ' % (b"x" * (KILOBYTE - len(message.body) - len(b'"note": "", ')))
        body = start + message.body[1:]
        headers = reader.sign(body, event_id=message.event_id, now=AT)
        raw = [(name.encode(), value.encode()) for name, value in headers]
        return cls(reader, Incoming(raw, body))

    def verify(self) -> object:
        """None: it is genuine."""
        return self.reader.verify(self.request, now=AT)

    def read(self) -> object:
        """The event, with the digest taken as at the door."""
        digest = hashlib.sha256(self.request.body).hexdigest()
        return self.reader.read(self.request, digest=digest)
