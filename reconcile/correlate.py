"""Arranges what is known of an order at one instant: which event belongs to which attempt.

Leaves out: any judgement of outcome or money. Everything here is found from references alone,
never from the order of arrival.

An attempt is (source, reference); the reference is the payment's, else the session's, else the
order's. A coarse event (one that names no payment) is about the finer attempt it can only mean:
the single one of its session or order, or the single one that states the same claim. Where two
would fit it stays an attempt of its own, unless it says nothing final.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reconcile.events import ClaimKind, Delivery, Event
from reconcile.history import History
from reconcile.instants import Instant
from reconcile.policy import Policy
from reconcile.records import Record

SAYS_NOTHING_FINAL: frozenset[ClaimKind] = frozenset(("pending", "unrecognized"))


@dataclass(slots=True)
class Heard:
    """One event as heard by as_of: how often, when first, and the moment it is dated to.

    `at` is the provider's date; where the provider gave none, our first arrival stands in.
    """

    event: Event
    first: Instant
    count: int = 1
    at: Instant = 0


@dataclass(slots=True)
class SessionFile:
    """What the merchant's side knows of one logical payment (one idempotency key)."""

    requested: Record | None = None
    opened: Record | None = None
    refused: Record | None = None
    unknown: Record | None = None

    def records(self) -> list[Record]:
        """The records there are, in the order of a session's life."""
        found = (self.requested, self.opened, self.refused, self.unknown)
        return [record for record in found if record is not None]


@dataclass(slots=True)
class Filed:
    """The merchant's records by what they say. Of several of a kind, the one that counts."""

    placed: Record | None = None
    canceled: Record | None = None
    fulfilled: Record | None = None
    sessions: dict[str, SessionFile] = field(default_factory=dict)


@dataclass(slots=True)
class AttemptEvidence:
    """All that speaks of one attempt. `heard` is in the order of `Case.heard`."""

    source: str
    reference: str
    heard: list[Heard] = field(default_factory=list)
    session: str | None = None
    files: list[SessionFile] = field(default_factory=list)
    claims: dict[ClaimKind, list[Heard]] = field(default_factory=dict)

    def add(self, heard: Heard) -> None:
        """Take in one more event."""
        event = heard.event
        self.heard.append(heard)
        if event.session is not None and self.session is None:
            self.session = event.session
        said = self.claims.get(event.claim)
        if said is None:
            self.claims[event.claim] = [heard]
        else:
            said.append(heard)


@dataclass(slots=True)
class Case:
    """One order's knowledge at `as_of`, arranged for judging. Lives only during a fold.

    heard    the order's own events, by date, then id, then digest
    foreign  events that name another order but share a reference or an id with this one
    """

    order: str
    policy: Policy
    as_of: Instant
    heard: list[Heard]
    foreign: list[Heard]
    filed: Filed
    attempts: list[AttemptEvidence]


def arrange(history: History, *, policy: Policy, as_of: Instant) -> Case:
    """Keep what was known at `as_of` and group it by attempt."""
    heard, foreign = _hear(history, as_of)
    filed = _file(history.records, as_of) if history.records else Filed()
    attempts = _attempts(history.order, heard, filed)
    return Case(history.order, policy, as_of, heard, foreign, filed, attempts)


def _hear(history: History, as_of: Instant) -> tuple[list[Heard], list[Heard]]:
    by_key: dict[tuple[str, str, str], Heard] = {}
    for delivery in history.deliveries:
        if delivery.received_at <= as_of:
            _count(by_key, delivery)
    order = history.order
    own: list[Heard] = []
    foreign: list[Heard] = []
    for heard in by_key.values():
        event = heard.event
        heard.at = heard.first if event.occurred_at is None else event.occurred_at
        (own if event.order is None or event.order == order else foreign).append(heard)
    own.sort(key=by_date)
    if foreign:
        foreign.sort(key=by_date)
    return own, foreign


def _count(by_key: dict[tuple[str, str, str], Heard], delivery: Delivery) -> None:
    event = delivery.event
    key = (event.source, event.event_id, event.digest)
    heard = by_key.get(key)
    if heard is None:
        by_key[key] = Heard(event, delivery.received_at)
        return
    heard.count += 1
    if delivery.received_at < heard.first:
        heard.first = delivery.received_at


def by_date(heard: Heard) -> tuple[Instant, str, str, str]:
    """The one order in which events are read: date, then id, digest and source."""
    event = heard.event
    return (heard.at, event.event_id, event.digest, event.source)


def _file(records: Iterable[Record], as_of: Instant) -> Filed:
    filed = Filed()
    known = [record for record in records if record.recorded_at <= as_of]
    for record in sorted(known, key=lambda r: (r.recorded_at, r.record_id)):
        if record.kind == "order_placed":
            filed.placed = record
        elif record.kind == "order_canceled":
            filed.canceled = filed.canceled or record
        elif record.kind == "order_fulfilled":
            filed.fulfilled = filed.fulfilled or record
        else:
            _file_session(filed.sessions.setdefault(record.key or "", SessionFile()), record)
    return filed


def _file_session(file: SessionFile, record: Record) -> None:
    if record.kind == "session_requested":
        file.requested = file.requested or record
    elif record.kind == "session_opened":
        file.opened = file.opened or record
    elif record.kind == "session_refused":
        file.refused = record
    else:
        file.unknown = file.unknown or record


def _attempts(order: str, heard: list[Heard], filed: Filed) -> list[AttemptEvidence]:
    by_payment: dict[tuple[str, str], AttemptEvidence] = {}
    coarse: list[Heard] = []
    for each in heard:
        event = each.event
        payment = event.payment
        if payment is None:
            coarse.append(each)
            continue
        key = (event.source, payment)
        attempt = by_payment.get(key)
        if attempt is None:
            attempt = by_payment[key] = AttemptEvidence(event.source, payment)
        attempt.add(each)
    attempts = list(by_payment.values())
    if coarse:
        attempts = _with_coarse(order, attempts, coarse)
    if filed.sessions:
        attempts = _with_sessions(order, attempts, filed)
    if len(attempts) > 1:
        attempts.sort(key=lambda a: (a.reference, a.source))
    return attempts


def _with_coarse(
    order: str, attempts: list[AttemptEvidence], coarse: list[Heard]
) -> list[AttemptEvidence]:
    """Session-level events first, then order-level ones, each to what it can only mean."""
    for by_session in (True, False):
        level = [each for each in coarse if (each.event.session is not None) == by_session]
        attempts = _place_level(order, attempts, level)
    return attempts


def _place_level(
    order: str, attempts: list[AttemptEvidence], level: list[Heard]
) -> list[AttemptEvidence]:
    own: dict[tuple[str, str], AttemptEvidence] = {}
    additions: list[tuple[AttemptEvidence, Heard]] = []
    for each in level:
        event = each.event
        finer = [
            attempt
            for attempt in attempts
            if attempt.source == event.source
            and (event.session is None or attempt.session == event.session)
        ]
        meant = _meant(finer, event.claim)
        if meant is not None:
            additions.append((meant, each))
        elif not finer or event.claim not in SAYS_NOTHING_FINAL:
            reference = order if event.session is None else event.session
            key = (event.source, reference)
            own.setdefault(key, AttemptEvidence(*key)).add(each)
    for attempt, each in additions:
        attempt.add(each)
        attempt.heard.sort(key=by_date)
    return attempts + list(own.values())


def _meant(finer: list[AttemptEvidence], claim: ClaimKind) -> AttemptEvidence | None:
    if len(finer) == 1:
        return finer[0]
    same = [attempt for attempt in finer if claim in attempt.claims]
    return same[0] if len(same) == 1 else None


def _with_sessions(
    order: str, attempts: list[AttemptEvidence], filed: Filed
) -> list[AttemptEvidence]:
    """Join the merchant's session files to the attempts of their session, or let them stand."""
    standing: dict[tuple[str, str], AttemptEvidence] = {}
    for file in filed.sessions.values():
        source = _source_of(file)
        reference = file.opened.session if file.opened and file.opened.session else None
        joined = _of_session(attempts, source=source, session=reference)
        for attempt in joined:
            attempt.files.append(file)
        if not joined and not _evidently_used(attempts, file, filed, source=source):
            key = (source, reference or order)
            evidence = standing.setdefault(key, AttemptEvidence(*key, session=reference))
            evidence.files.append(file)
    return attempts + list(standing.values())


def _source_of(file: SessionFile) -> str:
    sources = [record.source for record in file.records() if record.source]
    return sources[0] if sources else ""


def _of_session(
    attempts: list[AttemptEvidence], *, source: str, session: str | None
) -> list[AttemptEvidence]:
    if session is None:
        return []
    return [a for a in attempts if a.session == session and a.source == source]


def _evidently_used(
    attempts: list[AttemptEvidence], file: SessionFile, filed: Filed, *, source: str
) -> bool:
    """Whether an attempt that names no session can only have come from this file's session.

    So it is when the order has one logical payment and the same source reports attempts without
    saying which session they belong to, or reports them although the answer was lost.
    """
    if len(filed.sessions) != 1 or file.refused is not None:
        return False
    unanswered = file.opened is None
    return any(a.source == source and (unanswered or a.session is None) for a in attempts)
