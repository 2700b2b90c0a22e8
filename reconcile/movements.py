"""Which money moved, once each, whatever the number of events that say so.

Leaves out: whether the money is the right money; `outcome` compares it with the order.

A movement is one capture per attempt, one refund per refund reference (per event id where none is
given), one loss per dispute. Several events that state one movement are one movement. Where they
state different amounts, no amount is entered: none wins by coming first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reconcile.correlate import AttemptEvidence, Heard
from reconcile.ledger import Balance, Entry, EntryKind, new_balance, new_entry
from reconcile.money import Money, new_money


@dataclass(slots=True)
class Movement:
    """One movement of money.

    stated    the distinct amounts its events give, sorted
    rests_on  events of other movements that give the amount where its own events give none
    """

    kind: EntryKind
    attempt: AttemptEvidence
    heard: Sequence[Heard]
    stated: tuple[Money, ...]
    rests_on: Sequence[Heard] = ()

    money: Money | None = field(init=False)
    cites: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.money = self.stated[0] if len(self.stated) == 1 else None
        said = [*self.heard, *self.rests_on] if self.rests_on else self.heard
        self.cites = cites_of(self.attempt.tied(said))


def cites_of(heard: Sequence[Heard]) -> tuple[str, ...]:
    """The event ids, each once, in the order given."""
    if len(heard) == 1:
        return (heard[0].event.event_id,)
    return tuple(dict.fromkeys([each.event.event_id for each in heard]))


def movements_of(attempts: Iterable[AttemptEvidence]) -> list[Movement]:
    """Every movement that the attempts' events state."""
    movements = []
    for attempt in attempts:
        claims = attempt.claims
        captured = claims.get("succeeded")
        if captured is not None:
            movements.append(Movement("captured", attempt, captured, _stated(captured)))
        if "refunded" in claims:
            movements += _refunds(attempt, claims["refunded"])
        if "dispute_lost" in claims:
            movements += _losses(attempt, claims["dispute_lost"])
    return movements


def _refunds(attempt: AttemptEvidence, heard: list[Heard]) -> list[Movement]:
    groups: dict[tuple[bool, str], list[Heard]] = {}
    for each in heard:
        movement = each.event.movement
        key = (True, each.event.event_id) if movement is None else (False, movement)
        groups.setdefault(key, []).append(each)
    return [Movement("refunded", attempt, group, _stated(group)) for group in groups.values()]


def _losses(attempt: AttemptEvidence, heard: list[Heard]) -> list[Movement]:
    groups: dict[str | None, list[Heard]] = {}
    for each in heard:
        groups.setdefault(each.event.movement, []).append(each)
    return [_loss(attempt, group) for group in groups.values()]


def _loss(attempt: AttemptEvidence, heard: list[Heard]) -> Movement:
    """A lost dispute. Where it states no amount it takes the disputed money, else the captured."""
    stated = _stated(heard)
    if stated:
        return Movement("dispute_lost", attempt, heard, stated)
    opened = [
        h for h in attempt.claims.get("disputed", ()) if any(closes(c, h, attempt) for c in heard)
    ]
    if _stated(opened):
        return Movement("dispute_lost", attempt, heard, _stated(opened), opened)
    # The opening is what makes a loss that names no payment this attempt's.
    captured = attempt.claims.get("succeeded", [])
    return Movement("dispute_lost", attempt, heard, _stated(captured), [*opened, *captured])


def closes(closing: Heard, opening: Heard, attempt: AttemptEvidence) -> bool:
    """Whether a dispute's end is that of this dispute: not dated before it, and of its name.

    Where one of the two has no name they belong together only if the attempt has had no other
    dispute: nothing is guessed about money.
    """
    if closing.at < opening.at:
        return False
    names = {closing.event.movement, opening.event.movement}
    if len(names) == 1:
        return True
    return None in names and len({h.event.movement for h in attempt.claims["disputed"]}) == 1


def same_dispute(won: Heard, lost: Heard) -> bool:
    """Whether two ends are ends of one dispute: by its name, or where one has no name."""
    names = (won.event.movement, lost.event.movement)
    return None in names or names[0] == names[1]


def _stated(heard: Sequence[Heard]) -> tuple[Money, ...]:
    if len(heard) == 1:
        only = heard[0].event.money
        return () if only is None else (only,)
    amounts: list[Money] = []
    for each in heard:
        money = each.event.money
        # There are hardly ever two: comparing is cheaper than hashing.
        if money is not None and money not in amounts:
            amounts.append(money)
    if len(amounts) > 1:
        amounts.sort(key=lambda m: (m.currency, m.minor))
    return tuple(amounts)


def entries_of(movements: Iterable[Movement]) -> tuple[Entry, ...]:
    """One entry for each movement whose amount is known, in the order of their dates."""
    entries = []
    for movement in movements:
        money = movement.money
        if money is None:
            continue
        if movement.kind != "captured":
            money = new_money(minor=-money.minor, currency=money.currency)
        heard = movement.heard
        entries.append(
            new_entry(
                at=heard[0].at if len(heard) == 1 else min([h.at for h in heard]),
                kind=movement.kind,
                money=money,
                attempt=movement.attempt.reference,
                cites=movement.cites,
            )
        )
    if len(entries) > 1:
        entries.sort(key=lambda e: (e.at, e.attempt, e.kind, e.cites))
    return tuple(entries)


def balances_of(movements: Sequence[Movement]) -> tuple[Balance, ...]:
    """Captured and given back, per currency, from the movements themselves."""
    if len(movements) == 1 and (only := movements[0].money) is not None:
        taken = movements[0].kind == "captured"
        balance = new_balance(
            currency=only.currency,
            captured=only.minor if taken else 0,
            refunded=0 if taken else only.minor,
        )
        return (balance,)
    captured: dict[str, int] = {}
    refunded: dict[str, int] = {}
    for movement in movements:
        money = movement.money
        if money is not None:
            side = captured if movement.kind == "captured" else refunded
            side[money.currency] = side.get(money.currency, 0) + money.minor
    currencies = captured.keys() | refunded.keys()
    return tuple(
        new_balance(currency=c, captured=captured.get(c, 0), refunded=refunded.get(c, 0))
        for c in (currencies if len(currencies) == 1 else sorted(currencies))
    )
