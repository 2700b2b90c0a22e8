"""Decide which payment attempt of an order each event belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.events import FOLLOWS_SUCCESS, UNCONFIRMED, ClaimKind, Event
from reconcile.ledger.history import History
from reconcile.ledger.placing import CLAIMS, Placing, keys_of
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import PLACINGS, STILL_ASKING, Record
from reconcile.ledger.shops import judge_shops
from reconcile.money import Money

SAYS_NOTHING_FINAL: frozenset[ClaimKind] = frozenset(("pending", "unrecognized"))


@dataclass(slots=True)
class Heard:
    """Event with the facts about its deliveries at one instant."""

    event: Event
    first: Instant
    count: int
    at: Instant
    """The provider's date, or else the first arrival."""
    by: tuple[str, ...] = ()
    """Ids of the evidence that gives the event to an order."""
    whose: tuple[str, ...] = ()
    """Ids of other events that show that the payment belongs to our shop."""
    follows: tuple[str, ...] = ()
    """Ids of other evidence that links the event to its order, if that can be disputed."""


def cites_of(heard: Sequence[Heard]) -> tuple[str, ...]:
    """Return the ids of the events and of the evidence that assigned them."""
    first = heard[0] if heard else None
    if len(heard) == 1 and first and not (first.by or first.whose or first.follows):  # mostly
        return (first.event.event_id,)
    ids = [each.event.event_id for each in heard]
    by = [cite for each in heard for cite in (*each.by, *each.whose, *each.follows)]
    if by:
        return tuple(dict.fromkeys([*ids, *by]))
    if len(ids) == 2:
        return (ids[0],) if ids[0] == ids[1] else (ids[0], ids[1])
    return tuple(dict.fromkeys(ids))


Link = tuple[str | None, Heard]
"""Reference of a refund or dispute, with an event that links it."""


@dataclass(slots=True)
class SessionFile:
    """Shop's records about the session of one payment. The records share an idempotency key."""

    requested: Record | None = None
    opened: Record | None = None
    refused: Record | None = None
    unknown: Record | None = None

    def records(self) -> list[Record]:
        """Return the records that exist, in the order of a session's stages."""
        found = (self.requested, self.opened, self.refused, self.unknown)
        return [record for record in found if record is not None]


@dataclass(slots=True)
class Filed:
    """The shop's records of one order, sorted by kind.

    not_canceled, not_fulfilled  last record that withdrew the cancellation or the fulfillment, if
                                 still valid
    """

    placed: Record | None = None
    prices: list[Record] = field(default_factory=list)
    """Records that changed the price, oldest first."""
    named: list[Record] = field(default_factory=list)
    """Records that gave a session or payment to this order."""
    assigned: dict[str, Record] = field(default_factory=dict)
    """Records that assign single payments to this order, by record id."""
    holds: dict[str, Record] = field(default_factory=dict)
    """Records of the holds that are not released, by reason."""
    released_at: Instant = EARLIEST
    """Time when a hold was last released; 0 if none was."""
    accepted: dict[str, Record] = field(default_factory=dict)
    """Last record that accepted a finding, for each finding code."""
    placed_at: Instant | None = None
    canceled: Record | None = None
    not_canceled: Record | None = None
    fulfilled: Record | None = None
    not_fulfilled: Record | None = None
    sessions: dict[str, SessionFile] = field(default_factory=dict)

    def named_amount(self, source: str, session: str) -> Record | None:
        """Return the shop's last record with an amount for a session."""
        named = [r for r in self.named if (r.source, r.session) == (source, session)]
        return next((record for record in reversed(named) if record.money is not None), None)

    def records(self) -> list[Record]:
        single = [self.placed, self.canceled, self.fulfilled]
        single += [self.not_canceled, self.not_fulfilled]
        found = [record for record in single if record is not None]
        found += [*self.prices, *self.named, *self.assigned.values(), *self.holds.values()]
        return found + [r for file in self.sessions.values() for r in file.records()]


class AttemptEvidence:
    """Everything that is known about one payment attempt.

    heard        confirmed events of the attempt, sorted by date
    unconfirmed  events of the attempt that nothing has confirmed
    links        references of refunds and disputes, each with the event that links it
    sums         whether an event states a running total of refunds
    slow         whether an event names a slow method or a revocation period
    parts        whether an event names parts of its amount
    states       whether an event states how much is captured or refunded
    """

    __slots__ = (
        "claims",
        "files",
        "heard",
        "links",
        "parts",
        "reference",
        "session",
        "slow",
        "source",
        "states",
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
        self.slow = False
        self.states = False
        self.parts = False

    def names(self, session: str) -> Heard | None:
        """Return the attempt's first event that names the session; None if no event does."""
        return next((h for h in self.heard if h.event.session == session), None)

    def tied(self, heard: Sequence[Heard]) -> Sequence[Heard]:
        """Return the events, then the events that link them here."""
        if not self.links:
            return heard
        coarse = {each.event.movement for each in heard if each.event.payment is None} - {None}
        tied = [*heard, *[link for movement, link in self.links if movement in coarse]]
        named = {each.event.session for each in tied if each.event.payment is not None}
        sessions = [link for movement, link in self.links if movement is None]
        return [*tied, *[link for link in sessions if link.event.session not in named]]

    @property
    def assignment(self) -> str | None:
        """Return the id of the record that assigns the payment."""
        return next((each.by[0] for each in self.heard if each.by), None)

    def belongs_to(self, session: str) -> bool:
        return session in (self.session, self.reference) or self.names(session) is not None

    def add(self, heard: Heard) -> None:
        event = heard.event
        self.heard.append(heard)
        if event.session is not None and self.session is None:
            self.session = event.session
        if event.refunded_total is not None:
            self.sums = True
        if event.states:
            self.states = True
        if event.method is not None or event.revocable_days is not None:
            self.slow = True
        if event.parts:
            self.parts = True
        same = self.claims.get(event.claim)
        if same is None:
            self.claims[event.claim] = [heard]
        else:
            same.append(heard)


@dataclass(slots=True)
class Case:
    """All evidence of one order as of an instant, by attempt."""

    order: str
    policy: Policy
    as_of: Instant
    heard: list[Heard]
    """Events of this order, sorted by date, then id, then digest."""
    foreign: list[Heard]
    """Events that name another order but share a reference or id with this order."""
    moved: list[Heard]
    """Events of payments that were assigned to another order."""
    renewals: frozenset[tuple[str, str]]
    """Source and payment of each subscription payment in `moved` that began here."""
    not_ours: list[Heard]
    """Events of payments that belong to another or unknown shop."""
    filed: Filed
    attempts: list[AttemptEvidence]
    foreign_records: Sequence[Record]
    """Records of other orders whose sessions have events in this order."""


NOTHING_FILED: Final = Filed()
"""Shared empty set of records. Callers must not add records to this object."""


def arrange(history: History, *, policy: Policy, as_of: Instant) -> Case:
    """Group the evidence that was known at `as_of` by payment attempt."""
    order = history.order
    filed = NOTHING_FILED
    others: Sequence[Record] = ()
    claims: Sequence[Record] = ()
    placed: Sequence[Record] = ()
    if history.records:
        known = [r for r in history.records if r.recorded_at <= as_of and r.kind != "redated"]
        known.sort(key=lambda r: (r.recorded_at, r.record_id))
        filed = file_records([r for r in known if r.order == order])
        others = [
            r
            for r in known
            if r.order != order and r.kind not in PLACINGS and r.kind != "order_placed"
        ]
        claims = [r for r in known if r.kind in CLAIMS]
        placed = [r for r in known if r.kind == "order_placed"]
    # If payments must match a price, the payments that the shop named matter even in one order.
    heard, foreign, moved, not_ours = _hear(
        history, as_of, claims, placed=placed, always=bool(policy.mismatch_held)
    )
    if alone := [h for h in heard if h.event.standalone and h.event.order == order]:
        makers = made_by(history.known_at(as_of))
        for each in alone:
            each.follows += makers
        if not makers:
            heard = [each for each in heard if each not in alone]
    renewals = _renewals(heard, claims)
    if renewals:
        moved = sorted([*moved, *(h for h in heard if _payment_of(h) in renewals)], key=by_date)
        heard = [h for h in heard if _payment_of(h) not in renewals]
    return Case(
        order=order,
        policy=policy,
        as_of=as_of,
        heard=heard,
        foreign=foreign,
        moved=moved,
        renewals=renewals,
        not_ours=not_ours,
        filed=filed,
        attempts=_attempts(order, heard, filed),
        foreign_records=others,
    )


def made_by(history: History) -> tuple[str, ...]:
    """Return the ids of the evidence that proves that the order exists."""
    order = history.order
    alone, making = list[Event](), list[Event]()
    for delivery in history.deliveries:
        event = delivery.event
        if event.standing != UNCONFIRMED:
            (alone if event.standalone and event.order == order else making).append(event)
    own: list[tuple[int, int, str]] = [
        (0, r.recorded_at, r.record_id)
        for r in history.records
        if r.order == order and r.kind != "redated"
    ]
    own += [(1, 0, event.event_id) for event in making if event.order == order]
    if own:
        return (min(own)[-1],)
    shared = [
        (record.record_id, event.event_id)
        for event in alone
        for record in history.records
        if not set(keys_of(event)).isdisjoint(keys_of(record))
    ]
    shared += [
        (other.event_id, event.event_id)
        for event in alone
        for other in making
        if not set(keys_of(event)).isdisjoint(keys_of(other))
        or (event.source, event.event_id) == (other.source, other.event_id)
    ]
    return min(shared, default=())


def _hear(
    history: History,
    as_of: Instant,
    claims: Sequence[Record],
    *,
    placed: Sequence[Record],
    always: bool,
) -> tuple[list[Heard], list[Heard], list[Heard], list[Heard]]:
    order = history.order
    by_key: dict[tuple[str, str, str], Heard] = {}
    own: list[Heard] = []
    foreign: list[Heard] = []
    asks = False
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
            asks = asks or event.shop is not None
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
    moved: list[Heard] = []
    not_ours = _not_ours(by_key, claims) if asks else []
    if not_ours:
        own = [each for each in own if each.event.key in by_key]
        foreign = [each for each in foreign if each.event.key in by_key]
    if foreign or (
        claims and (always or any(r.order != order or r.kind in PLACINGS for r in claims))
    ):
        own, foreign, moved = _placed(order, list(by_key.values()), [*claims, *placed])
    own.sort(key=by_date)
    if foreign:
        foreign.sort(key=by_date)
    return own, foreign, moved, not_ours


def _not_ours(by_key: dict[tuple[str, str, str], Heard], claims: Sequence[Record]) -> list[Heard]:
    events = [each.event for each in by_key.values()]
    shops = judge_shops(events)
    for key, ids in shops.rests_on.items():
        by_key[key].whose = ids
    placing = Placing(claims, events) if shops.aside and claims else None
    found: list[Heard] = []
    for key in shops.aside:
        placed = None if placing is None else placing.placed(by_key[key].event)
        if placed is not None and placed.order is not None:
            by_key[key].by = placed.by
        else:
            found.append(by_key.pop(key))
    found.sort(key=by_date)
    return found


def _placed(
    order: str, heard: list[Heard], claims: Sequence[Record]
) -> tuple[list[Heard], list[Heard], list[Heard]]:
    own: list[Heard] = []
    foreign: list[Heard] = []
    moved: list[Heard] = []
    elsewhere: dict[str, tuple[str, ...]] = {}
    placing = Placing(claims, [each.event for each in heard])
    for each in heard:
        event, placed = each.event, placing.placed(each.event)
        if placed is not None and (placed.order is not None or event.order is None):
            each.by = placed.by
            if placed.order == order:
                own.append(each)
            else:
                moved.append(each)
                elsewhere[event.event_id] = placed.by
        elif (followed := placing.followed(event)) is not None:
            if event.order is not None:
                each.follows = followed.by
            if followed.order == order:
                own.append(each)
            else:
                moved.append(each)
                elsewhere[event.event_id] = followed.by
        elif event.order is None or event.order == order:
            if event.order is None or event.claim in FOLLOWS_SUCCESS:
                each.follows = placing.contested(event, order)
            own.append(each)
        elif event.standing != "unconfirmed":
            foreign.append(each)
    for each in own if elsewhere else ():
        # These ids prove that an event with the same id belongs to another order.
        each.follows += elsewhere.get(each.event.event_id, ())
    moved.sort(key=by_date)
    return own, foreign, moved


def _payment_of(heard: Heard) -> tuple[str, str]:
    return heard.event.source, heard.event.payment or ""


def _renewals(own: Sequence[Heard], claims: Sequence[Record]) -> frozenset[tuple[str, str]]:
    agreements: dict[tuple[str, str], list[Heard]] = {}
    for each in own:
        event = each.event
        if event.agreement is None or event.payment is None or event.standing == "unconfirmed":
            continue
        agreements.setdefault((event.source, event.agreement), []).append(each)
    found: set[tuple[str, str]] = set()
    for naming in agreements.values():
        payments = {_payment_of(each) for each in naming}
        if len(payments) < 2:
            continue
        heard = [each for each in own if _payment_of(each) in payments]
        heard.sort(key=lambda each: (each.at, *_payment_of(each), each.event.event_id))
        begun = list(dict.fromkeys(_payment_of(each) for each in heard))
        captured = {_payment_of(h) for h in heard if h.event.claim == "succeeded"}
        first = next((number for number, each in enumerate(begun) if each in captured), None)
        if first is None:
            continue
        placing = Placing(claims, [each.event for each in own])
        renewing = set(begun[first + 1 :])
        for each in heard:
            placed = placing.placed(each.event)
            if placed is not None and placed.order is not None:
                renewing.discard(_payment_of(each))
                each.by = placed.by
        rests_on = [h for h in heard if _payment_of(h) == begun[first]]
        for each in heard:
            if _payment_of(each) in renewing:
                each.follows = tuple(h.event.event_id for h in rests_on)
        found |= renewing
    return frozenset(found)


def by_date(heard: Heard) -> tuple[Instant, str, str, str]:
    """Return the key that sorts events by date, then by id, digest and source."""
    event = heard.event
    return (heard.at, event.event_id, event.digest, event.source)


def file_records(records: Sequence[Record]) -> Filed:
    """Sort the order's records by kind, given in recording order."""
    filed = Filed()
    for record in records:
        if record.kind == "order_placed":
            # A record that repeats the price, or states none, changes nothing.
            earlier, price = filed.placed, record.money
            if earlier is None or (price is not None and _price(record) != _price(earlier)):
                filed.placed = record
                if price is not None:
                    filed.prices.append(record)
            if record.dated:
                filed.placed_at = record.at
        elif record.kind == "order_canceled":
            filed.canceled, filed.not_canceled = filed.canceled or record, None
        elif record.kind == "order_not_canceled":
            filed.canceled, filed.not_canceled = None, record
        elif record.kind == "order_fulfilled":
            filed.fulfilled, filed.not_fulfilled = filed.fulfilled or record, None
        elif record.kind == "order_not_fulfilled":
            filed.fulfilled, filed.not_fulfilled = None, record
        elif record.kind == "reference_named":
            filed.named.append(record)
        elif record.kind == "held":
            filed.holds.setdefault(record.reason or "", record)
        elif record.kind == "released":
            if filed.holds.pop(record.reason or "", None) is not None:
                filed.released_at = record.recorded_at
        elif record.kind == "payment_assigned":
            filed.assigned[record.record_id] = record
        elif record.kind == "finding_accepted":
            filed.accepted[record.reason or ""] = record
        elif record.kind not in ("payment_dismissed", "redated"):
            file = filed.sessions.setdefault(record.key or record.session or "", SessionFile())
            if record.kind == "session_requested":
                file.requested = file.requested or record
            elif record.kind == "session_opened":
                file.opened = file.opened or record
            elif record.kind == "session_refused":
                file.refused = record
            elif file.unknown is None or file.unknown.reason == STILL_ASKING:
                # A record that needs a person has priority over one whose answer is still expected.
                file.unknown = record
    return filed


def _price(record: Record) -> tuple[Money | None, Money | None, bool]:
    return record.money, record.due, record.free


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
    if coarse:  # events with a session first
        for by_session in (True, False):
            level = [each for each in coarse if (each.event.session is not None) == by_session]
            attempts = _with_coarse(order, attempts, level)
    if filed.sessions:
        attempts = _with_sessions(order, attempts, filed)
    if unconfirmed:
        attempts = _with_unconfirmed(order, attempts, unconfirmed)
    if len(attempts) > 1:
        attempts.sort(key=lambda a: (a.reference, a.source))
    return attempts


def _with_unconfirmed(
    order: str, attempts: list[AttemptEvidence], unconfirmed: list[Heard]
) -> list[AttemptEvidence]:
    known = {(attempt.source, attempt.reference): attempt for attempt in attempts}
    for each in unconfirmed:
        event = each.event
        if event.claim == "ignored":
            continue
        key = (event.source, event.payment or event.session or order)
        if event.payment is None:
            finer = _finer(attempts, event)
        else:  # an answer about only its session confirms it
            whole = (event.source, event.session)
            finer = [
                a
                for a in attempts
                if (a.source, a.reference) == whole
                and any(h.event.standing == "answered" for h in a.heard)
            ]
        if len(finer) == 1:
            finer[0].unconfirmed.append(each)
        else:
            known.setdefault(key, AttemptEvidence(*key)).unconfirmed.append(each)
    return list(known.values())


def _with_coarse(
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
        if event.session is not None:  # the links to its session are evidence
            for attempt in finer:
                link = attempt.names(event.session)
                if link is not None and (None, link) not in attempt.links:
                    attempt.links.append((None, link))
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
    session = event.session
    return [
        attempt
        for attempt in attempts
        if attempt.source == event.source and (session is None or attempt.belongs_to(session))
    ]


def _meant(finer: list[AttemptEvidence], event: Event, *, reference: str) -> AttemptEvidence | None:
    if len(finer) == 1:
        return finer[0]
    claim = event.claim
    if claim == "unrecognized":
        return None  # an event of unknown kind can't be assigned
    if claim in FOLLOWS_SUCCESS:
        return _goes_back_on(finer, event)
    same = [a for a in finer if claim in a.claims]
    if len(same) == 1:
        return same[0]
    # An equal amount on several attempts is repeated here, not moved once more.
    repeated = [a for a in same if _repeats(event, a)]
    named = [a for a in finer if a.reference == reference]
    return next(iter(repeated or named), None)


def _goes_back_on(finer: list[AttemptEvidence], event: Event) -> AttemptEvidence | None:
    if event.movement is not None:
        named = [a for a in finer if any(h.event.movement == event.movement for h in a.heard)]
        if len(named) == 1:
            naming = [h for h in named[0].heard if h.event.movement == event.movement]
            tie = next((h for h in naming if h.event.payment is not None), naming[0])
            if (event.movement, tie) not in named[0].links:
                named[0].links.append((event.movement, tie))
            return named[0]
    captured = [a for a in finer if "succeeded" in a.claims]
    if len(captured) == 1:
        return captured[0]
    if event.money is None:
        return None
    return next((a for a in finer if _repeats(event, a)), None)


def _says_nothing_new(finer: list[AttemptEvidence], event: Event) -> bool:
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


def _repeats(event: Event, attempt: AttemptEvidence) -> bool:
    others = [h.event for h in attempt.claims.get(event.claim, ())]
    return any(event.movement == o.movement and event.money in (None, o.money) for o in others)


def _with_sessions(
    order: str, attempts: list[AttemptEvidence], filed: Filed
) -> list[AttemptEvidence]:
    known = {(attempt.source, attempt.reference): attempt for attempt in attempts}
    for file in filed.sessions.values():
        source = next((record.source for record in file.records() if record.source), "")
        session = file.opened.session if file.opened is not None else None
        candidates = [a for a in attempts if source in ("", a.source)]
        joined = [a for a in candidates if session is not None and a.belongs_to(session)]
        if not joined and len(filed.sessions) == 1 and file.refused is None:
            # The order has one logical payment, so attempts that name no session belong to it. If
            # the answer that names the session was lost, all attempts do.
            joined = [a for a in candidates if session is None or a.session is None]
        if not joined:
            key = (source, session or order)
            joined = [known.setdefault(key, AttemptEvidence(*key))]
        for attempt in joined:
            attempt.files.append(file)
    return list(known.values())
