"""The path of a delivery from the socket to a durable row of the inbox.

1 source
2 size
3 signature
4 age
5 account and environment
6 inbox             the row is committed together with many others
7 acknowledgement

A signed request that cannot be read is stored and acknowledged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Final, NamedTuple

from app.core.clock import Clock
from app.core.errors import NotStored, StorePoisoned, StoreUnavailable
from app.core.ids import new_id
from app.core.logs import LogLine, Repeating, log
from app.providers.request import Incoming
from app.providers.source import UNSHOWN, ProviderReply, Source
from app.receiving import verify
from app.receiving.framing import Received
from app.receiving.inbox_queue import InboxQueue
from app.receiving.refusal_store import NOT_KEPT, Rejection
from app.receiving.refusals import AGES, RefusedAges, RejectionRate, kind_of, lane_of
from app.receiving.unsigned import UnsignedAllowance
from reconcile.instants import Instant

_REFUSED_STATUS: Final = {"source_unknown": 404, "body_too_large": 413, "wrong_environment": 403}


_log_rejection = LogLine("delivery", "delivery", "source", "verdict", "digest", "peer")

MAX_UNSIGNED_BYTES: Final = 64 * 1024
MAX_UNSIGNED_VALUES: Final = 2_000
"""Maximum number of values in an unsigned body."""

RETRY_AFTER_S: Final = 5
"""Seconds in the Retry-After header of a 503 answer. A restart usually takes less."""


class ReceiverAnswer(NamedTuple):
    """Answer to the sender of a delivery."""

    status: int
    verdict: str | None
    """Verdict on the delivery; None for an answer 503."""
    delivery_id: str
    reply: ProviderReply | None = None
    """Answer that the provider expects; None for the usual answer."""
    reason: NotStored | None = None


class Unstored:
    """Log of the reasons for 503 answers, once a minute."""

    def __init__(self) -> None:
        self._reason: NotStored | None = None
        self._lines = Repeating(lambda: monotonic())
        self._count = 0
        self._at = 0.0

    def note(self, reason: NotStored) -> None:
        if self._lines.times(reason):
            log.error("deliveries are not stored", reason=reason, count=self._count)
        self._reason = reason
        self._count += 1
        self._at = monotonic()

    def over(self) -> None:
        if self._reason is not None and monotonic() - self._at >= RETRY_AFTER_S:
            log.info("deliveries are stored again", reason=self._reason, count=self._count)
            self._reason, self._count, self._lines = None, 0, Repeating(lambda: monotonic())


LEAST_SECRET_END: Final = 16
"""Minimum characters of a secret address; unknown ones of this length are masked."""


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """Everything that is needed to receive deliveries."""

    sources: Mapping[str, Source]
    queue: InboxQueue
    clock: Clock
    environment: str
    rejected_body_bytes: int
    rejection_rate: RejectionRate
    unsigned: UnsignedAllowance
    ages: RefusedAges
    unstored: Unstored = field(default_factory=Unstored)
    not_kept: Repeating = field(default_factory=Repeating)

    @cached_property
    def _ends(self) -> Mapping[str, tuple[str, Instant | None]]:
        return {
            end: (name, until)
            for name, source in self.sources.items()
            for end, until in source.addresses.items()
        }

    def source_of(self, end: str) -> str:
        """Return the source for this last part of a path, or the part itself.

        A part that can be secret becomes `(secret)`.
        """
        name, until = self._ends.get(end, ("", None))
        if name and (until is None or self.clock.now() < until):
            return name
        secret = any(source.name not in source.addresses for source in self.sources.values())
        masked = end in self.sources or (secret and len(end) >= LEAST_SECRET_END)
        return UNSHOWN if masked else end

    @property
    def private_headers(self) -> frozenset[bytes]:
        """Names of all headers in which any source can send a token."""
        return frozenset().union(*(source.private_headers for source in self.sources.values()))


class Rejected(NamedTuple):
    """A rejected request: the verdict, a sentence for the log, the arrival, and the delivery's
    id."""

    verdict: str
    problem: str
    received_at: Instant
    delivery_id: str


async def receive_delivery(receiver: Receiver, incoming: Incoming) -> ReceiverAnswer:
    """Verify and store one request. Return the answer after the commit."""
    decided = _decide(receiver, incoming)
    if isinstance(decided, Rejected):
        return await _reject(receiver, incoming, decided)
    if isinstance(decided, ReceiverAnswer):
        if decided.verdict == NOT_KEPT:
            await _count_not_kept(receiver, incoming.source, decided.delivery_id)
        return decided
    try:
        await receiver.queue.submit(decided)  # 6
    except (StoreUnavailable, StorePoisoned) as error:
        return _not_stored(receiver, decided, error)
    return _accepted(receiver, incoming, decided)  # 7


def _decide(receiver: Receiver, incoming: Incoming) -> ReceiverAnswer | Rejected | Received:
    now = receiver.clock.now()
    delivery_id = new_id("dlv_", now)
    source = receiver.sources.get(incoming.source)
    if source is None:  # 1
        problem = "no source with this name is configured"
        return Rejected("source_unknown", problem, now, delivery_id)
    if incoming.oversized or (source.unsigned and _is_long(incoming.body)):  # 2
        problem = (
            "the body is larger than TALLYHOOK_MAX_BODY_BYTES or, from an unsigned source, than "
            f"64 KiB or {MAX_UNSIGNED_VALUES:,} values"
        )
        return Rejected("body_too_large", problem, now, delivery_id)
    if source.unsigned and not receiver.unsigned.takes(source.name, incoming):
        return ReceiverAnswer(429, NOT_KEPT, delivery_id)
    environment = receiver.environment
    refused = verify.refusal_of(source, incoming, now=now, environment=environment)  # 3 to 5
    if isinstance(refused, verify.RefusedDelivery):
        if refused.verdict in AGES:
            digest = verify.digest_of(incoming.body, incoming.url)
            receiver.ages.refused(source.name, digest=digest, at=now, problem=refused.problem)
        return Rejected(refused.verdict, refused.problem, now, delivery_id)
    receiver.ages.taken(source.name)
    if refused is not None:
        return ReceiverAnswer(refused.status, "handshake", delivery_id, refused)
    return Received(
        delivery_id=delivery_id,
        received_at=now,
        source=source.name,
        headers=verify.kept_head(incoming, source),
        body=incoming.body,
        url=verify.readable_url(source, incoming.url),
        peer=kind_of(incoming.address),
        lane=lane_of(incoming.address),
    )


def _is_long(body: bytes) -> bool:
    return len(body) > MAX_UNSIGNED_BYTES or body.count(b",") >= MAX_UNSIGNED_VALUES


def _accepted(receiver: Receiver, incoming: Incoming, received: Received) -> ReceiverAnswer:
    receiver.unstored.over()
    source = receiver.sources[incoming.source]
    reply = source.acknowledge(incoming)
    return ReceiverAnswer(source.acknowledgement_status, "accepted", received.delivery_id, reply)


def _not_stored(
    receiver: Receiver, received: Received, error: StoreUnavailable | StorePoisoned
) -> ReceiverAnswer:
    receiver.unstored.note(error.reason)
    return ReceiverAnswer(503, None, received.delivery_id, reason=error.reason)


async def _reject(receiver: Receiver, incoming: Incoming, refusal: Rejected) -> ReceiverAnswer:
    verdict, problem, received_at, delivery_id = refusal
    decided = receiver.rejection_rate.decide(incoming.address)
    if decided == "too_many":
        return ReceiverAnswer(429, "too_many_rejections", delivery_id)
    status = _REFUSED_STATUS.get(verdict, 401)
    if decided == "counted":
        return ReceiverAnswer(status, verdict, delivery_id)
    body = incoming.body
    rejection = Rejection(
        delivery_id=delivery_id,
        received_at=received_at,
        source=_shown_source(incoming.source),
        verdict=verdict,
        digest=verify.digest_of(body, incoming.url),
        size=len(body),
        headers=verify.kept_head(
            incoming, receiver.sources.get(incoming.source), receiver.private_headers
        ),
        body=body[: receiver.rejected_body_bytes],
        problem=problem,
    )
    try:
        await receiver.queue.submit(rejection)
    except (StoreUnavailable, StorePoisoned) as error:
        _log_not_kept(receiver, delivery_id, error)
    peer = kind_of(incoming.address)
    _log_rejection(delivery_id, rejection.source, verdict, rejection.digest, peer)
    return ReceiverAnswer(status, verdict, delivery_id)


def _log_not_kept(
    receiver: Receiver, delivery_id: str, error: StoreUnavailable | StorePoisoned
) -> None:
    kind = type(error).__name__
    if times := receiver.not_kept.times(kind):
        log.warning(
            "a rejection was not stored", delivery=delivery_id, error_class=kind, count=times
        )


async def _count_not_kept(receiver: Receiver, source: str, delivery_id: str) -> None:
    count = receiver.unsigned.to_note(source)
    if not count:
        return
    if receiver.not_kept.times(f"source {source}"):
        log.warning("unsigned requests were not stored", source=source)
    dropped = Rejection(
        delivery_id=delivery_id,
        received_at=receiver.clock.now(),
        source=source,
        verdict=NOT_KEPT,
        digest="",
        size=0,
        headers="",
        body=b"",
        problem="more unsigned requests came than are stored",
        count=count,
    )
    try:
        await receiver.queue.submit(dropped)
    except (StoreUnavailable, StorePoisoned) as error:
        _log_not_kept(receiver, delivery_id, error)


def _shown_source(name: str) -> str:
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:40])
