"""Compute the movements of money on each payment.

A movement counts once, however many events state it. If events state different amounts, no amount
is entered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence, Filed, Heard
from reconcile.ledger.events import ClaimKind, speaks_of_money_going_back
from reconcile.ledger.ledger import Balance, Entry, EntryKind, Movement
from reconcile.ledger.positions import NO_POSITION, Position, Step, Undo, still_stated
from reconcile.money import Money

DisputeWord = Literal["open", "lost", "won"]

_WORD: Final[dict[ClaimKind, DisputeWord]] = {
    "disputed": "open",
    "dispute_lost": "lost",
    "dispute_won": "won",
}
_RANK: Final[dict[ClaimKind, int]] = {"disputed": 0, "dispute_won": 1, "dispute_lost": 2}

_MOVES: Final[frozenset[ClaimKind]] = frozenset(
    (
        "refunded",
        "refund_pending",
        "refund_failed",
        "reversed",
        "disputed",
        "dispute_lost",
        "dispute_won",
        "unrecognized",
    )
)

_TRIES: Final[frozenset[ClaimKind]] = frozenset(
    ("pending", "authorized", "declined", "expired", "timed_out")
)


@dataclass(slots=True)
class Dispute:
    """One dispute of one payment, in its latest reported state."""

    heard: list[Heard]
    word: DisputeWord
    amount: Money | None
    """Largest amount that an event states. None for the whole payment."""
    lost: Money | None
    """Part of `amount` that was lost. None for all."""
    returned: Money | None
    """Amount that a win gave back after a loss. None for all."""
    reopened: bool
    unstated: bool
    """True if no event states an amount."""

    @property
    def was_lost(self) -> bool:
        """Check whether the dispute was ever lost."""
        return any(each.event.claim == "dispute_lost" for each in self.heard)


@dataclass(slots=True)
class PendingRefund:
    """Refund that is not finished. Its amount is None if unknown."""

    heard: list[Heard]
    amount: Money | None

    @property
    def begun_at(self) -> Instant:
        """Return the earliest date or arrival of the refund's events."""
        return min([min(each.at, each.first) for each in self.heard])


@dataclass(slots=True)
class Payment:
    """Money of one payment attempt."""

    attempt: AttemptEvidence
    captures: list[Movement]
    returns: Sequence[Movement] = ()
    """Refunds, reversals and lost disputes."""
    disputes: Sequence[Dispute] = ()
    pending: Sequence[PendingRefund] = ()
    failed: Sequence[Heard] = ()
    """Events of refunds that failed and did not succeed later."""
    unread: Sequence[Heard] = ()
    """Events of unknown kinds whose names suggest that money went back."""
    undos: Sequence[Undo] = ()
    """Amounts that the provider's API stopped stating, not yet confirmed."""
    plain: bool = True
    """True if there are only captures."""

    @property
    def known(self) -> bool:
        """Check whether an event reported the payment itself."""
        return bool(self.captures) or not _TRIES.isdisjoint(self.attempt.claims)

    @property
    def moved(self) -> bool:
        """Check whether the payment has captured, returned or disputed money."""
        return bool(self.captures or self.returns or self.disputes)

    @property
    def open_disputes(self) -> list[Dispute]:
        return [each for each in self.disputes if each.word == "open"]

    def captured(self, currency: str) -> int:
        """Return the captured amount in minor units.

        A capture counts only if exactly one amount is stated.
        """
        return _sum(self.captures, currency)

    def returned(self, currency: str) -> int:
        """Return the amount that went back, in minor units.

        A movement counts only if exactly one amount is stated.
        """
        return _sum(self.returns, currency)


def _sum(movements: Sequence[Movement], currency: str) -> int:
    if len(movements) == 1:
        money = movements[0].money
        return 0 if money is None or money.currency != currency else money.minor
    amounts = [m.money for m in movements if m.money is not None]
    return sum([money.minor for money in amounts if money.currency == currency])


def payments_of(attempts: Sequence[AttemptEvidence], filed: Filed) -> list[Payment]:
    """Return the money of each attempt whose evidence mentions money."""
    payments = []
    for attempt in attempts:
        claims = attempt.claims
        captured = claims.get("succeeded")
        position = Position(attempt) if attempt.states else NO_POSITION
        if captured is not None and attempt.states:
            captured = [each for each in captured if not position.states_capture(each)]
        captures = _captures(attempt, captured) if captured else []
        if captures and captures[0].heard[0].event.standing == "answered":
            captures = _as_named(captures, attempts, filed)
        if attempt.sums or attempt.states or not _MOVES.isdisjoint(claims):
            payment = Payment(attempt, captures, plain=False)
            refunds = Refunds(attempt, position)
            payment.returns = returns = refunds.movements()
            payment.pending = refunds.pending(returns)
            payment.failed = refunds.undone()
            payment.disputes = disputes = _disputes(attempt, position)
            lost_again, refunded_again = list[Undo](), refunds.not_repeated()
            for dispute in disputes:
                returns += _loss(payment, dispute, position, lost_again)
            for currency in position.currencies("charged_back"):
                steps = position.steps("charged_back", currency)
                lost = _beyond("dispute_lost", attempt, steps, returns, currency, lost_again)
                if lost:
                    returns += lost
                    disputes.append(_stated_loss(lost, currency))
            for currency in position.currencies("refunded"):
                steps = position.steps("refunded", currency)
                returns += _beyond("refunded", attempt, steps, returns, currency, refunded_again)
            payment.undos = undos = [*lost_again, *refunded_again]
            for currency in position.currencies("captured"):
                _capture_sum(payment, position.steps("captured", currency), currency, undos)
            if "reversed" in claims:
                reversals = _reversals(payment, refunds.not_failed(claims["reversed"]))
                payment.returns = [*payment.returns, *reversals]
            if payment.pending and _nothing_left(payment):
                payment.pending = [each for each in payment.pending if each.amount is not None]
            unread = claims.get("unrecognized", ())
            payment.unread = [h for h in unread if speaks_of_money_going_back(h.event.kind)]
            payments.append(payment)
        elif captures:
            payments.append(Payment(attempt, captures))
    return payments


def _nothing_left(payment: Payment) -> bool:
    captured = [each.money for each in payment.captures]
    currencies = {money.currency for money in captured if money is not None}
    return (
        len(currencies) > 0
        and None not in captured
        and not any(payment.captured(each) > payment.returned(each) for each in currencies)
    )


# --- captures ------------------------------------------------------------------------------------


def _captures(attempt: AttemptEvidence, heard: list[Heard]) -> list[Movement]:
    if len(heard) == 1:
        return [Movement("captured", attempt, heard, _stated(heard))]
    named: dict[str, list[Heard]] = {}
    for each in heard:
        if each.event.capture is not None:
            named.setdefault(each.event.capture, []).append(each)
    if len(named) < 2:
        return [Movement("captured", attempt, heard, _stated(heard))]
    captures = [Movement("captured", attempt, group, _stated(group)) for group in named.values()]
    unnamed = [each for each in heard if each.event.capture is None]
    total, stated = _total(captures), _stated(unnamed)
    if not unnamed or stated == (total,):
        return captures
    if stated and total is not None:
        return [Movement("captured", attempt, heard, _sorted({total, *stated}))]
    return [
        Movement("captured", attempt, [*m.heard, *unnamed], _stated([*m.heard, *unnamed]))
        for m in captures
    ]


def _as_named(
    captures: list[Movement], attempts: Sequence[AttemptEvidence], filed: Filed
) -> list[Movement]:
    attempt = captures[0].attempt
    heard = [each for capture in captures for each in capture.heard]
    proved = filed.assigned.get(attempt.assignment or "")
    if proved is not None and proved.money is not None:
        if any(h.event.standing != "answered" for h in heard):
            return captures
        return [Movement("captured", attempt, heard, (proved.money,), named=proved)]
    named = filed.named_amount(attempt.source, attempt.session or "")
    if named is None or named.money is None or any(h.event.standing != "answered" for h in heard):
        return captures
    alike = [
        (min([h.at for h in each.claims["succeeded"]]), each.reference)
        for each in attempts
        if (each.source, each.session) == (attempt.source, attempt.session)
        and all(h.event.standing == "answered" for h in each.claims.get("succeeded", ()))
        and "succeeded" in each.claims
    ]
    if min(alike)[1] != attempt.reference:
        return []
    return [Movement("captured", attempt, heard, (named.money,), named=named)]


def _total(captures: list[Movement]) -> Money | None:
    amounts = [m.money for m in captures if m.money is not None]
    if len(amounts) < len(captures) or len({money.currency for money in amounts}) != 1:
        return None
    return Money(minor=sum([m.minor for m in amounts]), currency=amounts[0].currency)


# --- refunds -------------------------------------------------------------------------------------


class Refunds:
    """Done, pending and failed refunds of one attempt, with running totals.

    A refund is identified by its reference, or else by its event id.
    """

    def __init__(self, attempt: AttemptEvidence, position: Position) -> None:
        claims, self._position = attempt.claims, position
        if position.claims:
            claims = {c: [*claims.get(c, ()), *position.claims.get(c, ())] for c in _REFUNDS} | {
                "reversed": claims.get("reversed", [])
            }
        self._attempt = attempt
        self.failed = claims.get("refund_failed", [])
        done = [
            h
            for h in claims.get("refunded", ())
            if h.event.money is not None or h.event.refunded_total is None
        ]
        self._done, self._done_unnamed = _by_reference(done), _unnamed(done)
        failures = _by_reference(self.failed)
        # The position has already compared the versions of what answers state.
        own = [each for each in done if not each.event.states]
        ends = _by_reference([*own, *claims.get("reversed", ())]) if failures else {}
        self._failed = {n: h for n, h in failures.items() if not _dated_after(ends.get(n), h)}
        started = claims.get("refund_pending", [])
        self._started, self._started_unnamed = _by_reference(started), _unnamed(started)

    def not_failed(self, reversals: list[Heard]) -> list[Heard]:
        return [each for each in reversals if each.event.movement not in self._failed]

    def undone(self) -> list[Heard]:
        """Return the events about refunds that failed and did not succeed later."""
        known = (None, *self._failed)
        return [each for each in self.failed if each.event.movement in known]

    def movements(self) -> list[Movement]:
        """Return known refunds, then refunds that running totals show."""
        done = [heard for name, heard in self._done.items() if name not in self._failed]
        found = [
            Movement("refunded", self._attempt, heard, _stated(heard))
            for heard in [*done, *self._done_unnamed]
        ]
        found += [m for name in self._failed for m in self._taken_back(name)]
        sums = [h for h in self._attempt.heard if h.event.refunded_total is not None]
        currencies = {h.event.refunded_total.currency for h in sums if h.event.refunded_total}
        beyond = []
        for currency in sorted(currencies):
            stated = [(self._so_far(each, currency), each) for each in sums]
            known, rests_on = _sum(found, currency), [h for m in found for h in m.heard]
            rests_on += [h for name in self._failed for h in self._stating(name)]
            rests_on += [h for heard in self._failed.values() for h in heard]
            for so_far, say in self._rises([each for each in stated if each[0] > 0], found):
                if so_far > known:
                    money = Money(minor=so_far - known, currency=currency)
                    beyond.append(Movement("refunded", self._attempt, say, (money,), rests_on))
                    known, rests_on = so_far, say
        return found + beyond

    def _taken_back(self, name: str) -> list[Movement]:
        done, failures = self._done.get(name, []), self._failed[name]
        stated = _stated(done)
        if len(stated) != 1 or any(not h.event.states for h in failures):
            return []
        back = (Money(minor=-stated[0].minor, currency=stated[0].currency),)
        return [
            Movement("refunded", self._attempt, done, stated),
            Movement("refunded", self._attempt, failures, back, done),
        ]

    def not_repeated(self) -> list[Undo]:
        """Return withdrawn refunds whose withdrawal no later answer confirmed."""
        pairs = [self._taken_back(n) for n in self._failed if n not in self._position.repeated]
        return [
            Undo(pair[0].money, pair[1].heard)
            for pair in pairs
            if pair and pair[0].money is not None
        ]

    def _rises(
        self, stated: list[tuple[int, Heard]], found: list[Movement]
    ) -> list[tuple[int, list[Heard]]]:
        once = len({each.event.event_id for _, each in stated}) == len(stated)
        if found or self.failed or not once or not _all_dated([each for _, each in stated]):
            most = max([so_far for so_far, _ in stated], default=0)
            return [(most, [each for so_far, each in stated if so_far == most])]
        rises: dict[int, list[Heard]] = {}
        for so_far, each in sorted(stated, key=lambda one: (one[1].at, -one[0])):
            if so_far >= max(rises, default=0):
                rises.setdefault(so_far, []).append(each)
        return list(rises.items())

    def _stating(self, name: str) -> list[Heard]:
        return [*self._done.get(name, ()), *self._started.get(name, ())]

    def _so_far(self, each: Heard, currency: str) -> int:
        total = each.event.refunded_total
        if total is None or total.currency != currency:
            return 0
        amount = total.minor
        for name, failures in self._failed.items():
            done = self._stating(name)
            if not done:
                continue
            if min([h.at for h in done]) <= each.at < min([h.at for h in failures]):
                amount -= min([m.minor for m in _stated(done) if m.currency == currency], default=0)
        return max(amount, 0)

    def pending(self, refunded: Sequence[Movement]) -> list[PendingRefund]:
        """Return the unfinished refunds with their unpaid amounts."""
        found = []
        for name, heard in self._started.items():
            failures = self._failed.get(name)
            if failures is None or _dated_after(heard, failures):
                left = _largest(heard)
                if left is not None and failures is None:  # less the smallest stated as refunded
                    done = [
                        m.minor
                        for m in _stated(self._done.get(name, ()))
                        if m.currency == left.currency
                    ]
                    gone = min(done, default=0)
                    left = Money(minor=left.minor - gone, currency=left.currency)
                if left is None or left.minor > 0:
                    found.append(PendingRefund(heard, left))
        if self._started_unnamed:
            found += self._pending_unnamed(refunded)
        return found

    def _pending_unnamed(self, refunded: Sequence[Movement]) -> list[PendingRefund]:
        heard = [h for group in self._started_unnamed for h in group]
        amounts = [_largest(group) for group in self._started_unnamed]
        known = [money for money in amounts if money is not None]
        if len(known) < len(amounts) or len({money.currency for money in known}) > 1:
            return [PendingRefund(heard, None)]
        currency = known[0].currency
        begun = [
            (min([h.at for h in group]), money.minor)
            for group, money in zip(self._started_unnamed, known, strict=True)
        ]
        ended = self._ended(refunded, currency)
        # A refund that was done before another one began cannot have ended that other one.
        left = max(
            [
                sum([minor for at, minor in begun if at >= date])
                - sum([minor for at, minor in ended if at >= date])
                for date, _ in begun
            ]
        )
        return [PendingRefund(heard, Money(minor=left, currency=currency))] if left > 0 else []

    def _ended(self, refunded: Sequence[Movement], currency: str) -> list[tuple[Instant, int]]:
        done = [m for m in refunded if m.heard[0].event.movement not in self._started]
        ended = [(m.heard, m.money) for m in done]
        # A refund that was done and failed later ended the pending refund on the day it was done.
        failed = {n: self._done.get(n, h) for n, h in self._failed.items()}
        named = [heard for name, heard in failed.items() if name not in self._started]
        for group in [*named, *_unnamed(self.failed)]:
            stated = _stated(group)
            ended.append((group, stated[0] if stated else None))
        return [
            (max([h.at for h in heard]), money.minor)
            for heard, money in ended
            if money is not None and money.currency == currency
        ]


_REFUNDS: Final[tuple[ClaimKind, ...]] = ("refunded", "refund_pending", "refund_failed")


def _beyond(
    kind: EntryKind,
    attempt: AttemptEvidence,
    steps: Sequence[Step],
    returns: Sequence[Movement],
    currency: str,
    undos: list[Undo],
) -> list[Movement]:
    same = [m for m in returns if m.kind == kind]
    known, rests_on = _sum(same, currency), [h for m in same for h in m.heard]
    undone = [
        (min([h.event.stated_at or h.at for h in m.heard]), m.money.minor)
        for m in same
        if m.money is not None and m.money.minor < 0 and m.money.currency == currency
    ]
    found, before = list[Movement](), 0
    for step in steps:
        # A sum stated before a refund failed included that refund.
        late = [minor for at, minor in undone if step is not steps[-1] and at > step.version]
        now = max(0, step.minor - known + sum(late))
        if now != before:
            money = Money(minor=now - before, currency=currency)
            rests_on = [*rests_on, *steps[-1].said]
            found.append(Movement(kind, attempt, step.said, (money,), rests_on))
            rests_on, before = [*rests_on, *step.said], now
    already = sum([each.money.minor for each in undos if each.money.currency == currency])
    back = max(0, still_stated(steps) - known - already) - before
    if back > 0:
        heard = [h for step in steps for h in step.said]
        undos.append(Undo(Money(minor=back, currency=currency), heard))
    return found


def _capture_sum(payment: Payment, steps: Sequence[Step], currency: str, undos: list[Undo]) -> None:
    most, top, gone = _sum(payment.captures, currency), 0, 0
    rests_on = [h for m in payment.captures for h in m.heard]
    returns, falls = [*payment.returns], list[Step]()
    for step in steps:
        rests_on = [*rests_on, *step.said, *steps[-1].said]
        if step.minor > most:
            money = Money(minor=step.minor - most, currency=currency)
            capture = Movement("captured", payment.attempt, step.said, (money,), rests_on)
            payment.captures, most = [*payment.captures, capture], step.minor
        top = max(top, step.minor)
        fallen = top - step.minor
        if fallen != gone:
            said = [
                Heard(replace(h.event, money=None), h.first, h.count, step.version, h.by)
                for h in step.said
            ]
            money = Money(minor=fallen - gone, currency=currency)
            returns.append(Movement("reversed", payment.attempt, said, (money,), rests_on))
            gone = fallen
        falls.append(Step(step.version, fallen, step.said))
    payment.returns = returns
    back = still_stated(falls) - gone
    if back > 0:
        heard = [h for step in steps for h in step.said]
        undos.append(Undo(Money(minor=back, currency=currency), heard))


def _stated_loss(lost: Sequence[Movement], currency: str) -> Dispute:
    heard, amounts = list[Heard](), [0]
    for movement in lost:
        assert movement.money is not None
        amounts.append(amounts[-1] + movement.money.minor)
        money = Money(minor=amounts[-1], currency=currency)
        claim: ClaimKind = "dispute_lost" if amounts[-1] else "dispute_won"
        for each in movement.heard:
            event = replace(each.event, claim=claim, movement=None, money=money)
            heard.append(Heard(event, each.first, each.count, each.at, each.by))
    most, last = max(amounts), amounts[-1]
    return Dispute(
        heard=heard,
        word="lost" if last else "won",
        amount=Money(minor=most, currency=currency),
        lost=Money(minor=last, currency=currency) if 0 < last < most else None,
        returned=None,
        reopened=False,
        unstated=False,
    )


def _dated_after(stating: list[Heard] | None, failures: list[Heard]) -> bool:
    if not stating or not _all_dated([*stating, *failures]):
        return False
    return max([h.at for h in stating]) > max([h.at for h in failures])


def _by_reference(heard: Iterable[Heard]) -> dict[str, list[Heard]]:
    groups: dict[str, list[Heard]] = {}
    for each in heard:
        if each.event.movement is not None:
            groups.setdefault(each.event.movement, []).append(each)
    return groups


def by_movement(heard: Iterable[Heard]) -> list[list[Heard]]:
    """Group the events by refund reference, or else by event id."""
    events = list(heard)
    return [*_by_reference(events).values(), *_unnamed(events)]


def _unnamed(heard: Iterable[Heard]) -> list[list[Heard]]:
    groups: dict[str, list[Heard]] = {}
    for each in heard:
        if each.event.movement is None:
            groups.setdefault(each.event.event_id, []).append(each)
    return list(groups.values())


def _largest(heard: Sequence[Heard]) -> Money | None:
    known = [each.event.money for each in heard if each.event.money is not None]
    if len(known) < len(heard):
        return None
    return max(known, key=lambda money: (money.minor, money.currency))


# --- disputes ------------------------------------------------------------------------------------


def _disputes(attempt: AttemptEvidence, position: Position) -> list[Dispute]:
    heard = [
        h for claims in (attempt.claims, position.claims) for c in _RANK for h in claims.get(c, ())
    ]
    groups = _by_reference(heard)
    unnamed = [each for each in heard if each.event.movement is None]
    if unnamed:
        only = next(iter(groups)) if len(groups) == 1 else ""
        groups.setdefault(only, []).extend(unnamed)
    return [_dispute(group) for _, group in sorted(groups.items())]


def _dispute(heard: list[Heard]) -> Dispute:
    heard.sort(key=lambda h: (h.at, _RANK[h.event.claim], h.event.event_id, h.event.digest))
    last = heard[-1]
    word = _WORD[last.event.claim]
    losses = [h for h in heard if h.event.claim == "dispute_lost"]
    if word == "won" and losses and not _all_dated([last, *losses]):
        word = "lost"
    stated = [h for h in heard if h.event.claim != "dispute_won"]
    known = [h for h in stated if h.event.money is not None]
    given = [h for h in heard if h.event.claim == "dispute_won" and h.event.money is not None]
    amount = _largest(known) if known else None
    lost = None
    if amount is not None:
        # A loss that takes a part returns the rest. A loss that states nothing, or zero, takes all.
        stating = [h.event.money for h in losses if h.event.money is not None]
        taken = [m.minor for m in stating if m.currency == amount.currency]
        if len(taken) == len(losses) and min(taken, default=0) > 0 and max(taken) < amount.minor:
            lost = Money(minor=max(taken), currency=amount.currency)
    return Dispute(
        heard=heard,
        word=word,
        amount=amount,
        lost=lost,
        returned=_largest(given) if given else None,
        reopened=word == "open" and bool(losses),
        unstated=len(known) < len(stated),
    )


def _all_dated(heard: Iterable[Heard]) -> bool:
    return all(each.event.occurred_at is not None for each in heard)


def amount_of(dispute: Dispute, payment: Payment) -> Money | None:
    """Return the disputed amount; None if neither the dispute nor its payment states it."""
    return _total(payment.captures) if dispute.amount is None else dispute.amount


def lost_of(dispute: Dispute, payment: Payment) -> Money | None:
    """Return the amount that was lost in a dispute; None if unknown."""
    return dispute.lost or amount_of(dispute, payment)


def _loss(
    payment: Payment, dispute: Dispute, position: Position, undos: list[Undo]
) -> list[Movement]:
    if dispute.word == "open" or not dispute.was_lost:
        return []
    amount, attempt = lost_of(dispute, payment), payment.attempt
    rests_on = [] if dispute.amount is not None else [h for m in payment.captures for h in m.heard]
    if amount is None:
        stated = tuple({m for c in payment.captures for m in c.stated})
        return [Movement("dispute_lost", attempt, dispute.heard, _sorted(stated), rests_on)]
    minor = amount.minor
    if dispute.word == "won":
        wins = [h for h in dispute.heard if h.event.claim == "dispute_won"]
        if minor and all(h.event.states for h in wins):
            losses = [h for h in dispute.heard if h.event.claim == "dispute_lost"]
            back = (Money(minor=-minor, currency=amount.currency),)
            if wins[0].event.movement not in position.repeated:
                undos.append(Undo(amount, wins))
            return [
                Movement("dispute_lost", attempt, losses, (amount,), rests_on),
                Movement("dispute_lost", attempt, wins, back, [*losses, *rests_on]),
            ]
        returned = dispute.returned
        if returned is not None and returned.currency != amount.currency:
            return [Movement("dispute_lost", attempt, dispute.heard, _sorted((amount, returned)))]
        minor -= amount.minor if returned is None else min(returned.minor, amount.minor)
    if minor == 0:
        return []
    money = Money(minor=minor, currency=amount.currency)
    return [Movement("dispute_lost", attempt, dispute.heard, (money,), rests_on)]


# --- reversals -----------------------------------------------------------------------------------


def _reversals(payment: Payment, heard: list[Heard]) -> list[Movement]:
    taken, effective = dict[str, int](), dict[int, Heard]()
    names = {h.event.capture for capture in payment.captures for h in capture.heard}
    for capture in payment.captures:
        back = [h for h in heard if _takes_back(h, capture, names)]
        if back and capture.money is not None:
            currency = capture.money.currency
            taken[currency] = taken.get(currency, 0) + capture.money.minor
            effective |= {id(h): h for h in back}
    found = []
    for currency, minor in sorted(taken.items()):
        # A dispute that is open again holds as much as its loss took.
        again = [amount_of(each, payment) for each in payment.disputes if each.reopened]
        gone = payment.returned(currency)
        gone += sum([m.minor for m in again if m is not None and m.currency == currency])
        left = min(minor, payment.captured(currency) - gone)
        if left > 0:
            rests_on = [h for m in (*payment.captures, *payment.returns) for h in m.heard]
            money = Money(minor=left, currency=currency)
            say = list(effective.values())
            found.append(Movement("reversed", payment.attempt, say, (money,), rests_on))
    return found


def _takes_back(reversal: Heard, capture: Movement, names: set[str | None]) -> bool:
    own, event = {h.event.capture for h in capture.heard}, reversal.event
    named = event.capture or (event.movement if event.movement in names else None)
    if named is not None and any(own) and named not in own:
        return False
    dated = event.occurred_at is not None and _all_dated(capture.heard)
    return not dated or reversal.at >= min([h.at for h in capture.heard])


def at_most_returned(payment: Payment, currency: str) -> int:
    """Return the largest amount that may have gone back."""
    gone = 0
    for movement in payment.returns:
        if movement.kind != "dispute_lost":
            stated = [money.minor for money in movement.stated if money.currency == currency]
            gone += max(stated, default=0)
    for dispute in payment.disputes:
        if not dispute.was_lost:
            continue
        said = [h.event.money for h in dispute.heard if h.event.claim != "dispute_won"]
        lost = max([m.minor for m in said if m is not None and m.currency == currency], default=0)
        if dispute.word != "open" and dispute.lost is not None:
            lost = dispute.lost.minor if dispute.lost.currency == currency else 0
        if dispute.word == "won":
            back = dispute.returned
            if back is None:
                lost = 0
            elif back.currency == currency:
                lost = max(0, lost - back.minor)
        gone += lost
    return gone


# --- amounts, entries, balances ------------------------------------------------------------------


def _stated(heard: Sequence[Heard]) -> tuple[Money, ...]:
    if len(heard) == 1:
        only = heard[0].event.money
        return () if only is None else (only,)
    amounts: list[Money] = []
    # An answer that states no amount yields to signed and fetched amounts.
    own = [each for each in heard if each.event.standing != "answered"]
    for each in own or heard:
        money = each.event.money
        # There are hardly ever two: comparing is cheaper than hashing.
        if money is not None and money not in amounts:
            amounts.append(money)
    if len(amounts) < 2:
        return tuple(amounts)
    # An amount that another event states in another currency is no second amount.
    shown = [p.money for each in heard for p in each.event.parts if p.kind == "presented"]
    return _sorted([money for money in amounts if money not in shown] or amounts)


def _sorted(amounts: Iterable[Money]) -> tuple[Money, ...]:
    return tuple(sorted(amounts, key=lambda m: (m.currency, m.minor)))


def movements_of(payments: Sequence[Payment]) -> list[Movement]:
    if len(payments) == 1 and not payments[0].returns:
        return payments[0].captures
    return [m for payment in payments for m in (*payment.captures, *payment.returns)]


def entries_of(movements: Iterable[Movement]) -> tuple[Entry, ...]:
    """Return a ledger entry for each movement with a known amount, sorted by date."""
    entries = []
    for movement in movements:
        money = movement.money
        if money is None:
            continue
        if movement.kind != "captured":
            money = Money(minor=-money.minor, currency=money.currency)
        entries.append(
            Entry(
                at=movement_date(movement),
                kind=movement.kind,
                money=money,
                attempt=movement.attempt.reference,
                cites=movement.cites,
            )
        )
    if len(entries) > 1:
        entries.sort(key=lambda e: (e.at, e.attempt, e.kind, e.cites))
    return tuple(entries)


def movement_date(movement: Movement) -> Instant:
    """Return the earliest date of the events that report the movement."""
    return min([each.at for each in movement.stating])


def balances_of(movements: Sequence[Movement]) -> tuple[Balance, ...]:
    """Add up the movements for each currency and kind."""
    if len(movements) == 1 and movements[0].kind == "captured":
        money = movements[0].money
        if money is None:
            return ()
        return (Balance(currency=money.currency, captured=money.minor, refunded=0),)
    sums: dict[str, dict[EntryKind, int]] = {}
    for movement in movements:
        money = movement.money
        if money is not None:
            sides = sums.setdefault(money.currency, {})
            sides[movement.kind] = sides.get(movement.kind, 0) + money.minor
    return tuple(
        [
            Balance(
                currency=currency,
                captured=sides.get("captured", 0),
                refunded=sides.get("refunded", 0),
                reversed=sides.get("reversed", 0),
                lost=sides.get("dispute_lost", 0),
            )
            for currency, sides in (sums.items() if len(sums) == 1 else sorted(sums.items()))
        ]
    )
