"""Which money moved on each payment, once each, whatever the number of events that say so.

Leaves out: whether the money is the right money, and which payments are in doubt for what other
events and orders say; `doubt` and `outcome` look at that.

A movement is one capture per attempt (per capture reference where the profile names one), one
refund per refund reference (per event id where none is given), what sums state beyond those, one
reversal, and what was lost in each dispute. Several events that state one movement are one
movement. Where they state different amounts, no amount is entered: none wins by coming first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from reconcile.instants import Instant
from reconcile.ledger.correlate import AttemptEvidence, Filed, Heard
from reconcile.ledger.events import ClaimKind, speaks_of_money_going_back
from reconcile.ledger.ledger import Balance, Entry, EntryKind, Movement, new_balance, new_entry
from reconcile.money import Money, new_money

DisputeWord = Literal["open", "lost", "won"]

_WORD: Final[dict[ClaimKind, DisputeWord]] = {
    "disputed": "open",
    "dispute_lost": "lost",
    "dispute_won": "won",
}
_RANK: Final[dict[ClaimKind, int]] = {"disputed": 0, "dispute_won": 1, "dispute_lost": 2}
"""Of words of one date the highest is the latest."""

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
"""Claims that make a payment more than its captures."""

_TRIES: Final[frozenset[ClaimKind]] = frozenset(
    ("pending", "authorized", "declined", "expired", "timed_out")
)
"""Claims of one who tried to pay."""


@dataclass(slots=True)
class Dispute:
    """One dispute of one payment, as its latest word has it.

    amount    the largest that its own events state; None: all of its payment
    lost      of that the part that its loss took, as all events of the loss state it; None: all
    returned  what a win gave back of the loss before it; None: all of that
    reopened  whether it is open again after it had been lost
    unstated  whether an event of it states no amount, so that it may be about all of the payment
    """

    heard: list[Heard]
    word: DisputeWord
    amount: Money | None
    lost: Money | None
    returned: Money | None
    reopened: bool
    unstated: bool

    @property
    def was_lost(self) -> bool:
        """Whether money went back in it, even if it came again."""
        return any(each.event.claim == "dispute_lost" for each in self.heard)


@dataclass(slots=True)
class PendingRefund:
    """A refund under way. amount: what of it has not been refunded; None: it is not stated."""

    heard: list[Heard]
    amount: Money | None


@dataclass(slots=True)
class Payment:
    """The money of one attempt.

    captures  what came
    returns   what went back: refunds, what sums state beyond them, reversals, net losses
    disputes  every dispute, whatever its word
    pending   refunds under way
    failed    events that say of a refund that it failed, if it was not done later
    unread    events of kinds that nobody explained, whose words speak of money going back
    plain     whether there is nothing but captures: so it is with nearly all
    known     whether anything but unread events speaks of it
    """

    attempt: AttemptEvidence
    captures: list[Movement]
    returns: Sequence[Movement] = ()
    disputes: Sequence[Dispute] = ()
    pending: Sequence[PendingRefund] = ()
    failed: Sequence[Heard] = ()
    unread: Sequence[Heard] = ()
    plain: bool = True

    @property
    def known(self) -> bool:
        """Whether it was reported as a payment, and not only that money of it goes back."""
        return bool(self.captures) or not _TRIES.isdisjoint(self.attempt.claims)

    @property
    def moved(self) -> bool:
        """Whether it is about money that moved, or is about to."""
        return bool(self.captures or self.returns or self.disputes)

    @property
    def open_disputes(self) -> list[Dispute]:
        """Those whose latest word is that they are open."""
        return [each for each in self.disputes if each.word == "open"]

    def captured(self, currency: str) -> int:
        """Minor units that came, as far as one amount is stated."""
        return _sum(self.captures, currency)

    def returned(self, currency: str) -> int:
        """Minor units that went back, as far as one amount is stated."""
        return _sum(self.returns, currency)


def _sum(movements: Sequence[Movement], currency: str) -> int:
    if len(movements) == 1:
        money = movements[0].money
        return 0 if money is None or money.currency != currency else money.minor
    amounts = [m.money for m in movements if m.money is not None]
    return sum([money.minor for money in amounts if money.currency == currency])


def payments_of(attempts: Sequence[AttemptEvidence], filed: Filed) -> list[Payment]:
    """The money of every attempt of which any is spoken."""
    payments = []
    for attempt in attempts:
        claims = attempt.claims
        captured = claims.get("succeeded")
        captures = [] if captured is None else _captures(attempt, captured)
        if captures and captures[0].heard[0].event.standing == "answered":
            captures = _as_named(captures, attempts, filed)
        if attempt.sums or not _MOVES.isdisjoint(claims):
            payments.append(_more_than_captures(Payment(attempt, captures)))
        elif captures:
            payments.append(Payment(attempt, captures))
    return payments


def _more_than_captures(payment: Payment) -> Payment:
    payment.plain = False
    attempt, claims = payment.attempt, payment.attempt.claims
    refunds = Refunds(attempt)
    payment.returns = returns = refunds.movements()
    payment.pending = refunds.pending(returns)
    payment.failed = refunds.undone()
    payment.disputes = _disputes(attempt)
    returns += [m for d in payment.disputes if (m := _loss(payment, d)) is not None]
    if "reversed" in claims:
        returns += _reversals(payment, refunds.not_failed(claims["reversed"]))
    unread = claims.get("unrecognized", ())
    payment.unread = [h for h in unread if speaks_of_money_going_back(h.event.kind)]
    return payment


# --- captures ------------------------------------------------------------------------------------


def _captures(attempt: AttemptEvidence, heard: list[Heard]) -> list[Movement]:
    """One capture, or one for each capture reference.

    An event that names no capture beside several that do restates their total, or contradicts it:
    then all are one movement of which two amounts are stated. Where they have no total it stands
    beside each of them.
    """
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
    """What a provider answered without an amount, where the shop named the amount of the session:
    that amount, whatever amounts stood in the events that were asked about; once, on the payment of
    the session that was answered first."""
    attempt = captures[0].attempt
    heard = [each for capture in captures for each in capture.heard]
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
    """What several captures come to; None where one has no one amount, or another currency."""
    amounts = [m.money for m in captures if m.money is not None]
    if len(amounts) < len(captures) or len({money.currency for money in amounts}) > 1:
        return None
    return new_money(minor=sum([m.minor for m in amounts]), currency=amounts[0].currency)


# --- refunds -------------------------------------------------------------------------------------


class Refunds:
    """What is said of refunds of one attempt: done, under way, failed, and so far in sum.

    A refund is known by its own reference, else by the event's id. One that failed was none, unless
    it was done later, also in every sum that is dated from it until before the failure. So it is
    with a reversal whose own reference a failure has.
    """

    def __init__(self, attempt: AttemptEvidence) -> None:
        claims = attempt.claims
        self._attempt = attempt
        self.failed = claims.get("refund_failed", [])
        done = [h for h in claims.get("refunded", ()) if not _states_only_a_sum(h)]
        self._done, self._done_unnamed = _by_reference(done), _unnamed(done)
        failures = _by_reference(self.failed)
        ends = [*done, *claims.get("reversed", ())] if failures else []
        done_after_all = [n for n, h in failures.items() if _dated_after(_named(ends, n), h)]
        self._failed = {n: h for n, h in failures.items() if n not in done_after_all}
        started = claims.get("refund_pending", [])
        self._started, self._started_unnamed = _by_reference(started), _unnamed(started)

    def not_failed(self, reversals: list[Heard]) -> list[Heard]:
        """The reversals that took money back, and did not fail themselves."""
        return [each for each in reversals if each.event.movement not in self._failed]

    def undone(self) -> list[Heard]:
        """What says that a refund failed, of those that were not done after all."""
        known = (None, *self._failed)
        return [each for each in self.failed if each.event.movement in known]

    def movements(self) -> list[Movement]:
        """Each refund once, and what sums state beyond them."""
        done = [heard for name, heard in self._done.items() if name not in self._failed]
        found = [
            Movement("refunded", self._attempt, heard, _stated(heard))
            for heard in [*done, *self._done_unnamed]
        ]
        sums = [h for h in self._attempt.heard if h.event.refunded_total is not None]
        if sums:
            found += self._beyond(found, sums)
        return found

    def _beyond(self, found: list[Movement], sums: list[Heard]) -> list[Movement]:
        """What sums state beyond the refunds that are known, in each currency: rise by rise."""
        beyond = []
        currencies = {h.event.refunded_total.currency for h in sums if h.event.refunded_total}
        for currency in sorted(currencies):
            stated = [(self._so_far(each, currency), each) for each in sums]
            known, rests_on = _sum(found, currency), [h for m in found for h in m.heard]
            rests_on += self._undone()
            for so_far, say in self._rises([each for each in stated if each[0] > 0], found):
                if so_far > known:
                    money = new_money(minor=so_far - known, currency=currency)
                    beyond.append(Movement("refunded", self._attempt, say, (money,), rests_on))
                    known, rests_on = so_far, say
        return beyond

    def _rises(
        self, stated: list[tuple[int, Heard]], found: list[Movement]
    ) -> list[tuple[int, list[Heard]]]:
        """The sums that were more than any before, by date, each with what stated it while it was
        the largest. The largest alone where refunds or failures are stated beside them, or where
        dates are missing or an id has several bodies."""
        once = len({each.event.event_id for _, each in stated}) == len(stated)
        if found or self.failed or not once or not _all_dated([each for _, each in stated]):
            most = max([so_far for so_far, _ in stated], default=0)
            return [(most, [each for so_far, each in stated if so_far == most])]
        rises: dict[int, list[Heard]] = {}
        for so_far, each in sorted(stated, key=lambda one: (one[1].at, -one[0])):
            if so_far >= max(rises, default=0):
                rises.setdefault(so_far, []).append(each)
        return list(rises.items())

    def _undone(self) -> list[Heard]:
        undone = [h for name in self._failed for h in self._stating(name)]
        return undone + [h for heard in self._failed.values() for h in heard]

    def _stating(self, name: str) -> list[Heard]:
        return [*self._done.get(name, ()), *self._started.get(name, ())]

    def _so_far(self, each: Heard, currency: str) -> int:
        """A sum without the refunds that are in it and failed later."""
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
        """Refunds under way, each with what of it has not been refunded yet.

        Nothing tells which refund ends one without a reference: all that was refunded, or failed,
        without the name of one under way counts against them.
        """
        found = []
        for name, heard in self._started.items():
            failures = self._failed.get(name)
            if failures is None or _dated_after(heard, failures):
                done = self._done.get(name, []) if failures is None else []
                left = _less(_largest(heard), done)
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
        left = max([_from(begun, date) - _from(ended, date) for date, _ in begun])
        return [PendingRefund(heard, new_money(minor=left, currency=currency))] if left > 0 else []

    def _ended(self, refunded: Sequence[Movement], currency: str) -> list[tuple[Instant, int]]:
        """The dates and amounts of what may have ended a refund under way that has no name."""
        done = [m for m in refunded if m.heard[0].event.movement not in self._started]
        ended = [(m.heard, m.money) for m in done]
        # One that was done and failed later ended what was under way when it was done, no later.
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


def _dated_after(stating: list[Heard], failures: list[Heard]) -> bool:
    """Whether the provider dates what states a refund after its failure: it was done after all,
    or is tried again."""
    if not stating or not _all_dated([*stating, *failures]):
        return False
    return max([h.at for h in stating]) > max([h.at for h in failures])


def _from(amounts: Iterable[tuple[Instant, int]], date: Instant) -> int:
    """What is dated then or later: a refund that was done before cannot be the one under way."""
    return sum([minor for at, minor in amounts if at >= date])


def _named(heard: Iterable[Heard], name: str) -> list[Heard]:
    return [each for each in heard if each.event.movement == name]


def _states_only_a_sum(heard: Heard) -> bool:
    return heard.event.money is None and heard.event.refunded_total is not None


def _by_reference(heard: Iterable[Heard]) -> dict[str, list[Heard]]:
    groups: dict[str, list[Heard]] = {}
    for each in heard:
        if each.event.movement is not None:
            groups.setdefault(each.event.movement, []).append(each)
    return groups


def by_movement(heard: Iterable[Heard]) -> list[list[Heard]]:
    """Grouped by the reference that they give, else by their event id."""
    events = list(heard)
    return [*_by_reference(events).values(), *_unnamed(events)]


def _without_name(heard: Iterable[Heard]) -> list[Heard]:
    return [each for each in heard if each.event.movement is None]


def _unnamed(heard: Iterable[Heard]) -> list[list[Heard]]:
    """Those without a reference, by their event id."""
    groups: dict[str, list[Heard]] = {}
    for each in _without_name(heard):
        groups.setdefault(each.event.event_id, []).append(each)
    return list(groups.values())


def _less(amount: Money | None, refunded: list[Heard]) -> Money | None:
    """What is left of an amount after the smallest that was stated as refunded; None of none."""
    if amount is None:
        return None
    gone = [money.minor for money in _stated(refunded) if money.currency == amount.currency]
    return new_money(minor=amount.minor - min(gone, default=0), currency=amount.currency)


def _largest(heard: Sequence[Heard]) -> Money | None:
    """The largest amount stated; None where one of them states none."""
    stated = [each.event.money for each in heard]
    known = [money for money in stated if money is not None]
    if len(known) < len(stated):
        return None
    return max(known, key=lambda money: (money.minor, money.currency))


# --- disputes ------------------------------------------------------------------------------------


def _disputes(attempt: AttemptEvidence) -> list[Dispute]:
    """Each dispute by its reference. What has none is of the only one there is, else of its own."""
    heard = [h for claim in _RANK for h in attempt.claims.get(claim, ())]
    if not heard:
        return []
    groups = _by_reference(heard)
    unnamed = _without_name(heard)
    if unnamed:
        only = next(iter(groups)) if len(groups) == 1 else ""
        groups.setdefault(only, []).extend(unnamed)
    return [_dispute(group) for _, group in sorted(groups.items())]


def _dispute(heard: list[Heard]) -> Dispute:
    heard.sort(key=_latest)
    last = heard[-1]
    word = _WORD[last.event.claim]
    losses = [h for h in heard if h.event.claim == "dispute_lost"]
    if word == "won" and losses and not _all_dated([last, *losses]):
        word = "lost"
    stated = [h.event.money for h in heard if h.event.claim != "dispute_won"]
    known = [money for money in stated if money is not None]
    wins = [h.event.money for h in heard if h.event.claim == "dispute_won"]
    given = [money for money in wins if money is not None]
    amount = max(known, key=lambda m: (m.minor, m.currency)) if known else None
    return Dispute(
        heard=heard,
        word=word,
        amount=amount,
        lost=_part_lost([h.event.money for h in losses], amount),
        returned=max(given, key=lambda m: (m.minor, m.currency)) if given else None,
        reopened=word == "open" and bool(losses),
        unstated=len(known) < len(stated),
    )


def _part_lost(stated: Sequence[Money | None], amount: Money | None) -> Money | None:
    """The largest that the events of a loss state, where that is less than the dispute is about:
    an end that takes a part gives back the rest. One that states nothing, or zero, takes all."""
    taken = [m.minor for m in stated if m is not None and amount and m.currency == amount.currency]
    if amount is None or len(taken) < len(stated) or not min(taken, default=0) > 0:
        return None
    minor = max(taken)
    return new_money(minor=minor, currency=amount.currency) if minor < amount.minor else None


def _latest(heard: Heard) -> tuple[Instant, int, str, str]:
    event = heard.event
    return (heard.at, _RANK[event.claim], event.event_id, event.digest)


def _all_dated(heard: Iterable[Heard]) -> bool:
    return all(each.event.occurred_at is not None for each in heard)


def amount_of(dispute: Dispute, payment: Payment) -> Money | None:
    """What a dispute is about; None where it states nothing and neither does its payment."""
    if dispute.amount is not None:
        return dispute.amount
    known = [m.money for m in payment.captures if m.money is not None]
    if len(known) < len(payment.captures) or len({money.currency for money in known}) != 1:
        return None
    return new_money(minor=sum([m.minor for m in known]), currency=known[0].currency)


def lost_of(dispute: Dispute, payment: Payment) -> Money | None:
    """What a loss took of what a dispute is about; None where it is not known."""
    return dispute.lost or amount_of(dispute, payment)


def _loss(payment: Payment, dispute: Dispute) -> Movement | None:
    """What a dispute cost: what its loss took, less what a later win gave back. None: nothing."""
    if dispute.word == "open" or not dispute.was_lost:
        return None
    amount, attempt = lost_of(dispute, payment), payment.attempt
    rests_on = [] if dispute.amount is not None else [h for m in payment.captures for h in m.heard]
    if amount is None:
        stated = tuple({m for c in payment.captures for m in c.stated})
        return Movement("dispute_lost", attempt, dispute.heard, _sorted(stated), rests_on)
    minor = amount.minor
    if dispute.word == "won":
        back = dispute.returned
        if back is not None and back.currency != amount.currency:
            return Movement("dispute_lost", attempt, dispute.heard, _sorted((amount, back)))
        minor -= amount.minor if back is None else min(back.minor, amount.minor)
    if minor == 0:
        return None
    money = new_money(minor=minor, currency=amount.currency)
    return Movement("dispute_lost", attempt, dispute.heard, (money,), rests_on)


# --- reversals -----------------------------------------------------------------------------------


def _reversals(payment: Payment, heard: list[Heard]) -> list[Movement]:
    """What is left of the captures that a reversal takes back, in each currency."""
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
        gone = payment.returned(currency) + _reopened(payment, currency)
        left = min(minor, payment.captured(currency) - gone)
        if left > 0:
            rests_on = [h for m in (*payment.captures, *payment.returns) for h in m.heard]
            money = new_money(minor=left, currency=currency)
            say = list(effective.values())
            found.append(Movement("reversed", payment.attempt, say, (money,), rests_on))
    return found


def _reopened(payment: Payment, currency: str) -> int:
    """What disputes are about that are open again: it is as gone as when they were lost."""
    amounts = [amount_of(each, payment) for each in payment.disputes if each.reopened]
    return sum([m.minor for m in amounts if m is not None and m.currency == currency])


def _takes_back(reversal: Heard, capture: Movement, names: set[str | None]) -> bool:
    """Unless it names another capture of `names`, or the provider dates it before this one."""
    own, event = {h.event.capture for h in capture.heard}, reversal.event
    named = event.capture or (event.movement if event.movement in names else None)
    if named is not None and any(own) and named not in own:
        return False
    dated = event.occurred_at is not None and _all_dated(capture.heard)
    return not dated or reversal.at >= min([h.at for h in capture.heard])


def at_most_returned(payment: Payment, currency: str) -> int:
    """The most that may have gone back of a payment by what is stated: of each refund the largest
    amount, and all that lost disputes took, but for what was won."""
    gone = 0
    for movement in payment.returns:
        if movement.kind != "dispute_lost":
            stated = [money.minor for money in movement.stated if money.currency == currency]
            gone += max(stated, default=0)
    for dispute in payment.disputes:
        if dispute.was_lost:
            gone += _at_most_lost(dispute, currency)
    return gone


def _at_most_lost(dispute: Dispute, currency: str) -> int:
    stated = [h.event.money for h in dispute.heard if h.event.claim != "dispute_won"]
    lost = max([m.minor for m in stated if m is not None and m.currency == currency], default=0)
    if dispute.word != "open" and dispute.lost is not None:
        lost = dispute.lost.minor if dispute.lost.currency == currency else 0
    if dispute.word != "won":
        return lost
    back = dispute.returned
    if back is None:
        return 0
    return max(0, lost - back.minor) if back.currency == currency else lost


# --- amounts, entries, balances ------------------------------------------------------------------


def _stated(heard: Sequence[Heard]) -> tuple[Money, ...]:
    if len(heard) == 1:
        only = heard[0].event.money
        return () if only is None else (only,)
    amounts: list[Money] = []
    # An amount that an answer did not state is no match for one that was signed or answered.
    own = [each for each in heard if each.event.standing != "answered"]
    for each in own or heard:
        money = each.event.money
        # There are hardly ever two: comparing is cheaper than hashing.
        if money is not None and money not in amounts:
            amounts.append(money)
    return _sorted(tuple(amounts)) if len(amounts) > 1 else tuple(amounts)


def _sorted(amounts: Iterable[Money]) -> tuple[Money, ...]:
    return tuple(sorted(amounts, key=lambda m: (m.currency, m.minor)))


def movements_of(payments: Sequence[Payment]) -> list[Movement]:
    """Every movement of the payments."""
    if len(payments) == 1 and not payments[0].returns:
        return payments[0].captures
    return [m for payment in payments for m in (*payment.captures, *payment.returns)]


def entries_of(movements: Iterable[Movement]) -> tuple[Entry, ...]:
    """One entry for each movement whose amount is known, in the order of their dates."""
    entries = []
    for movement in movements:
        money = movement.money
        if money is None:
            continue
        if movement.kind != "captured":
            money = new_money(minor=-money.minor, currency=money.currency)
        entries.append(
            new_entry(
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
    """The earliest date of what states it."""
    return min([each.at for each in movement.stating])


def balances_of(movements: Sequence[Movement]) -> tuple[Balance, ...]:
    """What came and what went back in each way, per currency, from the movements themselves."""
    if len(movements) == 1 and movements[0].kind == "captured":
        money = movements[0].money
        if money is None:
            return ()
        return (new_balance(currency=money.currency, captured=money.minor, refunded=0),)
    sums: dict[str, dict[EntryKind, int]] = {}
    for movement in movements:
        money = movement.money
        if money is not None:
            sides = sums.setdefault(money.currency, {})
            sides[movement.kind] = sides.get(movement.kind, 0) + money.minor
    return tuple(
        [
            new_balance(
                currency=currency,
                captured=sides.get("captured", 0),
                refunded=sides.get("refunded", 0),
                reversed=sides.get("reversed", 0),
                lost=sides.get("dispute_lost", 0),
            )
            for currency, sides in (sums.items() if len(sums) == 1 else sorted(sums.items()))
        ]
    )
