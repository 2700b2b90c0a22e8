"""Arranges what is known of an order at one instant: which event belongs to which attempt.

Leaves out: any judgement of outcome or money. Everything here is found from references alone,
never from the order of arrival.

An attempt is (source, reference); the reference is the payment's, else the session's, else the
order's. A coarse event (one that names no payment) is about the finer attempt it can only mean:
the single one of its session or order, the one with the dispute that it ends by name, the single
one that states the same claim, or the one whose words it repeats. Where none is meant it is an
attempt of its own, unless it says nothing final.

What is unconfirmed anyone may have written: it is placed last, beside what is signed or fetched,
and leads nothing of that anywhere. What the profile ignores belongs to no attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.events import ClaimKind, Event
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import STILL_ASKING, Record

SAYS_NOTHING_FINAL: frozenset[ClaimKind] = frozenset(("pending", "unrecognized"))

FOLLOWS_SUCCESS: frozenset[ClaimKind] = frozenset(
    (
        "refunded",
        "refund_pending",
        "refund_failed",
        "reversed",
        "disputed",
        "dispute_won",
        "dispute_lost",
    )
)
"""What can only be said of an attempt that took money."""


@dataclass(slots=True)
class Heard:
    """One event as heard by as_of: how often, when first, and the moment it is dated to.

    `at` is the provider's date; where the provider gave none, our first arrival stands in.
    """

    event: Event
    first: Instant
    count: int
    at: Instant


def cites_of(heard: Sequence[Heard]) -> tuple[str, ...]:
    """The event ids, each once, in the order given."""
    count = len(heard)
    if count == 1:
        return (heard[0].event.event_id,)
    if count == 2:
        first, second = heard[0].event.event_id, heard[1].event.event_id
        return (first,) if first == second else (first, second)
    return tuple(dict.fromkeys([each.event.event_id for each in heard]))


Link = tuple[str | None, Heard]
"""The refund or dispute by whose name an event is tied to an attempt, None where it is by its
session; and the event that ties."""


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
    """The merchant's records by what they say. Of several of a kind, the one that counts.

    prices  every record that set a price other than the one before, in their order
    named   sessions and payments that the shop says are this order's
    holds   by reason, the record of each hold that stands
    released_at
            when the last hold that was released was; 0 where none was
    """

    placed: Record | None = None
    prices: list[Record] = field(default_factory=list)
    named: list[Record] = field(default_factory=list)
    holds: dict[str, Record] = field(default_factory=dict)
    released_at: Instant = EARLIEST
    canceled: Record | None = None
    fulfilled: Record | None = None
    sessions: dict[str, SessionFile] = field(default_factory=dict)

    def named_amount(self, source: str, session: str) -> Record | None:
        """Where the shop last named the amount of a session."""
        named = [r for r in self.named if (r.source, r.session) == (source, session)]
        return next((record for record in reversed(named) if record.money is not None), None)

    def records(self) -> list[Record]:
        """Every record that counts for something."""
        single = [self.placed, self.canceled, self.fulfilled]
        found = [record for record in single if record is not None]
        found += [*self.prices, *self.named, *self.holds.values()]
        return found + [r for file in self.sessions.values() for r in file.records()]


class AttemptEvidence:
    """All that speaks of one attempt.

    heard        its events, in the order of `Case.heard`
    unconfirmed  unconfirmed events of it, which are no part of `heard`
    session      the first session that its events name
    links        events that tie coarser events to it: to the session of which these speak, or to
                 the refund or dispute that they name
    sums         whether any of its events says what was refunded so far
    """

    __slots__ = (
        "claims",
        "files",
        "heard",
        "links",
        "reference",
        "session",
        "source",
        "sums",
        "unconfirmed",
    )

    def __init__(self, source: str, reference: str) -> None:
        self.source = source
        self.reference = reference
        self.session: str | None = None
        self.heard: list[Heard] = []
        self.unconfirmed: list[Heard] = []
        self.files: list[SessionFile] = []
        self.claims: dict[ClaimKind, list[Heard]] = {}
        self.links: list[Link] = []
        self.sums = False

    def names(self, session: str) -> Heard | None:
        """The first of its events that names this session."""
        return next((h for h in self.heard if h.event.session == session), None)

    def tied(self, heard: Sequence[Heard]) -> Sequence[Heard]:
        """These events of the attempt, and the links without which they would not be its own.

        Only an event that names the payment too is a tie by itself: a coarse one needs the link.
        """
        if not self.links:
            return heard
        tied = list(heard)
        for movement, link in self.links:
            if movement is not None and any(_rests_on(each, movement) for each in heard):
                tied.append(link)
        named = {each.event.session for each in tied if each.event.payment is not None}
        sessions = [link for movement, link in self.links if movement is None]
        return [*tied, *[link for link in sessions if link.event.session not in named]]

    def belongs_to(self, session: str) -> bool:
        """Whether it is an attempt of this session."""
        return session in (self.session, self.reference) or self.names(session) is not None

    def add(self, heard: Heard) -> None:
        """Take in one more event."""
        event = heard.event
        self.heard.append(heard)
        if event.session is not None and self.session is None:
            self.session = event.session
        if event.refunded_total is not None:
            self.sums = True
        same = self.claims.get(event.claim)
        if same is None:
            self.claims[event.claim] = [heard]
        else:
            same.append(heard)


@dataclass(slots=True)
class Case:
    """One order's knowledge at `as_of`, arranged for judging. Lives only during a fold.

    heard            the order's own events, by date, then id, then digest
    foreign          events that name another order but share a reference or an id with this one
    foreign_records  sessions that were opened for another order, where events of them are here
    """

    order: str
    policy: Policy
    as_of: Instant
    heard: list[Heard]
    foreign: list[Heard]
    filed: Filed
    attempts: list[AttemptEvidence]
    foreign_records: Sequence[Record]


NOTHING_FILED: Final = Filed()
"""What is filed of an order without records. Nothing is ever added to it."""


def arrange(history: History, *, policy: Policy, as_of: Instant) -> Case:
    """Keep what was known at `as_of` and group it by attempt."""
    heard, foreign = _hear(history, as_of)
    filed = _file(history, as_of) if history.records else NOTHING_FILED
    others = _foreign_records(history, as_of) if history.records else ()
    attempts = _attempts(history.order, heard, filed)
    return Case(history.order, policy, as_of, heard, foreign, filed, attempts, others)


def _hear(history: History, as_of: Instant) -> tuple[list[Heard], list[Heard]]:
    order = history.order
    by_key: dict[tuple[str, str, str], Heard] = {}
    own: list[Heard] = []
    foreign: list[Heard] = []
    for delivery in history.deliveries:
        received = delivery.received_at
        if received > as_of:
            continue
        event = delivery.event
        key = (event.source, event.event_id, event.digest)
        heard = by_key.get(key)
        if heard is None:
            dated = event.occurred_at
            by_key[key] = heard = Heard(event, received, 1, received if dated is None else dated)
            if event.order is None or event.order == order:
                own.append(heard)
            elif event.standing != "unconfirmed":
                foreign.append(heard)
            continue
        heard.count += 1
        if received < heard.first:
            heard.first = received
            if event.occurred_at is None:
                heard.at = received
    own.sort(key=by_date)
    if foreign:
        foreign.sort(key=by_date)
    return own, foreign


def by_date(heard: Heard) -> tuple[Instant, str, str, str]:
    """The one order in which events are read: date, then id, digest and source."""
    event = heard.event
    return (heard.at, event.event_id, event.digest, event.source)


def _file(history: History, as_of: Instant) -> Filed:
    filed = Filed()
    order = history.order
    known = [r for r in history.records if r.recorded_at <= as_of and r.order == order]
    for record in sorted(known, key=lambda r: (r.recorded_at, r.record_id)):
        if record.kind == "order_placed":
            filed.placed = _priced(filed, record)
        elif record.kind == "order_canceled":
            filed.canceled = filed.canceled or record
        elif record.kind == "order_fulfilled":
            filed.fulfilled = filed.fulfilled or record
        elif record.kind == "reference_named":
            filed.named.append(record)
        elif record.kind == "held":
            filed.holds.setdefault(record.reason or "", record)
        elif record.kind == "released":
            if filed.holds.pop(record.reason or "", None) is not None:
                filed.released_at = record.recorded_at
        else:
            key = record.key or record.session or ""
            _file_session(filed.sessions.setdefault(key, SessionFile()), record)
    return filed


def _foreign_records(history: History, as_of: Instant) -> Sequence[Record]:
    others = [r for r in history.records if r.order != history.order and r.recorded_at <= as_of]
    return sorted(others, key=lambda record: (record.recorded_at, record.record_id))


def _priced(filed: Filed, record: Record) -> Record:
    """The record that last set the price. One that repeats it, or names none, changes nothing."""
    earlier = filed.placed
    if earlier is not None and (record.money is None or record.money == earlier.money):
        return earlier
    if record.money is not None:
        filed.prices.append(record)
    return record


def _file_session(file: SessionFile, record: Record) -> None:
    if record.kind == "session_requested":
        file.requested = file.requested or record
    elif record.kind == "session_opened":
        file.opened = file.opened or record
    elif record.kind == "session_refused":
        file.refused = record
    else:
        # That a person must look outweighs that the service is still being asked.
        if file.unknown is None or file.unknown.reason == STILL_ASKING:
            file.unknown = record


def _attempts(order: str, heard: list[Heard], filed: Filed) -> list[AttemptEvidence]:
    by_payment: dict[tuple[str, str], AttemptEvidence] = {}
    coarse: list[Heard] = []
    unconfirmed: list[Heard] = []
    for each in heard:
        event = each.event
        payment = event.payment
        if event.standing == "unconfirmed":
            unconfirmed.append(each)
            continue
        if event.claim == "ignored":
            continue
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
    if unconfirmed:
        attempts = _with_unconfirmed(order, attempts, unconfirmed)
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


def _with_unconfirmed(
    order: str, attempts: list[AttemptEvidence], unconfirmed: list[Heard]
) -> list[AttemptEvidence]:
    """Unconfirmed events, each to the attempt that it names or can only mean, else its own."""
    known = {(attempt.source, attempt.reference): attempt for attempt in attempts}
    for each in unconfirmed:
        event = each.event
        if event.claim == "ignored":
            continue
        key = (event.source, event.payment or event.session or order)
        if event.payment is None:
            finer = _finer(attempts, event)
        else:  # what was answered of its session alone is the answer to it
            whole = (event.source, event.session)
            finer = [a for a in attempts if (a.source, a.reference) == whole and _answered(a)]
        if len(finer) == 1:
            finer[0].unconfirmed.append(each)
        else:
            known.setdefault(key, AttemptEvidence(*key)).unconfirmed.append(each)
    return list(known.values())


def _answered(attempt: AttemptEvidence) -> bool:
    return any(each.event.standing == "answered" for each in attempt.heard)


def _place_level(
    order: str, attempts: list[AttemptEvidence], level: list[Heard]
) -> list[AttemptEvidence]:
    own: dict[tuple[str, str], AttemptEvidence] = {}
    additions: list[tuple[AttemptEvidence, Heard]] = []
    for each in level:
        event = each.event
        reference = order if event.session is None else event.session
        finer = _finer(attempts, event)
        meant = _meant(finer, event, reference=reference)
        if meant is None and finer and _says_nothing_new(finer, event):
            continue
        _link(finer, event)
        if meant is not None:
            additions.append((meant, each))
        else:
            key = (event.source, reference)
            own.setdefault(key, AttemptEvidence(*key)).add(each)
    for attempt, each in additions:
        attempt.add(each)
        attempt.heard.sort(key=by_date)
        attempt.claims[each.event.claim].sort(key=by_date)
    return attempts + list(own.values())


def _finer(attempts: list[AttemptEvidence], event: Event) -> list[AttemptEvidence]:
    """The attempts that a coarse event may be about."""
    session = event.session
    return [
        attempt
        for attempt in attempts
        if attempt.source == event.source and (session is None or attempt.belongs_to(session))
    ]


def _link(finer: list[AttemptEvidence], event: Event) -> None:
    """Note what ties the attempts to the session of a coarse event: conclusions rest on it too."""
    for attempt in finer if event.session is not None else ():
        link = attempt.names(event.session or "")
        if link is not None and (None, link) not in attempt.links:
            attempt.links.append((None, link))


def _link_by_movement(attempt: AttemptEvidence, movement: str) -> None:
    """Note what ties an event to the payment whose refund or dispute it names: an event that names
    the payment, where there is one."""
    naming = [each for each in attempt.heard if each.event.movement == movement]
    link = next((each for each in naming if each.event.payment is not None), naming[0])
    if (movement, link) not in attempt.links:
        attempt.links.append((movement, link))


def _rests_on(heard: Heard, movement: str) -> bool:
    return heard.event.payment is None and heard.event.movement == movement


def _meant(finer: list[AttemptEvidence], event: Event, *, reference: str) -> AttemptEvidence | None:
    if len(finer) == 1:
        return finer[0]
    claim = event.claim
    if claim == "unrecognized":
        return None  # nobody knows what it is, so nobody knows of which of them
    if claim in FOLLOWS_SUCCESS:
        return _goes_back_on(finer, event)
    same = [a for a in finer if claim in a.claims]
    if len(same) == 1:
        return same[0]
    # Money that several attempts state alike is repeated here, not moved once more.
    repeated = [a for a in same if any(_repeats(event, h.event) for h in a.claims.get(claim, ()))]
    named = [a for a in finer if a.reference == reference]
    return next(iter(repeated or named), None)


def _goes_back_on(finer: list[AttemptEvidence], event: Event) -> AttemptEvidence | None:
    """The payment that names the same refund or dispute, else the only one that was captured, else
    one that states the same without a name. That a payment has a refund or dispute of its own says
    nothing of another."""
    if event.movement is not None:
        named = [a for a in finer if any(h.event.movement == event.movement for h in a.heard)]
        if len(named) == 1:
            _link_by_movement(named[0], event.movement)
            return named[0]
    captured = [a for a in finer if "succeeded" in a.claims]
    if len(captured) == 1:
        return captured[0]
    if event.money is None:
        return None
    repeated = [
        a for a in finer if any(_repeats(event, h.event) for h in a.claims.get(event.claim, ()))
    ]
    return next(iter(repeated), None)


def _says_nothing_new(finer: list[AttemptEvidence], event: Event) -> bool:
    """Whether a coarse event that is about none of several attempts may be left aside: it states
    no money, or the total that they state."""
    if event.refunded_total is not None and event.refunded_total.minor:
        return False
    if event.claim in SAYS_NOTHING_FINAL:
        return True
    if event.claim != "succeeded" or event.money is None:
        return False
    captured = [a.claims["succeeded"] for a in finer if "succeeded" in a.claims]
    amounts = [{h.event.money for h in heard} for heard in captured]
    if len(captured) < 2 or any(len(stated) != 1 or None in stated for stated in amounts):
        return False
    stated = [money for each in amounts for money in each if money is not None]
    if {money.currency for money in stated} != {event.money.currency}:
        return False
    return sum([money.minor for money in stated]) == event.money.minor


def _repeats(event: Event, other: Event) -> bool:
    return event.movement == other.movement and event.money in (None, other.money)


def _with_sessions(
    order: str, attempts: list[AttemptEvidence], filed: Filed
) -> list[AttemptEvidence]:
    """Join the merchant's session files to the attempts of their session, or let them stand."""
    known = {(attempt.source, attempt.reference): attempt for attempt in attempts}
    for file in filed.sessions.values():
        source = _source_of(file)
        session = file.opened.session if file.opened is not None else None
        candidates = [a for a in attempts if source in ("", a.source)]
        joined = [a for a in candidates if session is not None and a.belongs_to(session)]
        if not joined:
            joined = _evidently_used(candidates, file, filed)
        if not joined:
            key = (source, session or order)
            joined = [known.setdefault(key, AttemptEvidence(*key))]
        for attempt in joined:
            attempt.files.append(file)
    return list(known.values())


def _source_of(file: SessionFile) -> str:
    sources = [record.source for record in file.records() if record.source]
    return sources[0] if sources else ""


def _evidently_used(
    attempts: list[AttemptEvidence], file: SessionFile, filed: Filed
) -> list[AttemptEvidence]:
    """Attempts that can only have come from this file's session though nothing names it.

    So it is when the order has one logical payment and the same source reports attempts without
    saying which session they belong to, or reports them although the answer was lost.
    """
    if len(filed.sessions) != 1 or file.refused is not None:
        return []
    unnamed = file.opened is None or file.opened.session is None
    return [a for a in attempts if unnamed or a.session is None]
