"""What of an order may be erased when its customer asks, and what must stay for now, and why.

A body is the evidence of money: it stays while the payment is not over, while somebody still has to
settle it, and for as long as the law may demand. That the provider may deliver it again is no
reason: a redelivery is known by its digest, and its body is not stored again.

What was refused, or could not be read, may tell of money that no ledger knows yet, and a mended
secret or profile finds it: it stays with the orders that stay, and in any case until somebody has
had the time to mend. Its own order may be unknown, or over, for no other reason than that. For ever
it cannot stay, since anybody may send what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from app.receiving.unread import WINDOW
from reconcile.instants import DAY, Duration, Instant, format_instant
from reconcile.ledger.fold import FINAL, last_heard
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger

Why = Literal[
    "not_over",
    "disputed",
    "to_settle",
    "shared",
    "minimum",
    "refused",
    "unread",
    "beside_unread",
    "in_the_reference",
    "set_aside",
    "changed",
]

SENTENCES: Final[Mapping[Why, str]] = {
    "not_over": "its payment is not over ({})",
    "disputed": "its payment is disputed: the provider decides",
    "to_settle": "a person must settle it first ({})",
    "shared": "it shares events with another order: a person must settle whose they are",
    "minimum": "TALLYHOOK_RETENTION_MINIMUM_DAYS keeps it until {}",
    "refused": "it was refused, and may tell of a payment all the same: mend the secret or the "
    "profile, run `tallyhook deliveries reverify` and ask again; as it is, it can go {}",
    "unread": "it could not be read, and may tell of a payment: correct the profile, run "
    "`tallyhook reindex` and ask again; as it is, it can go {}",
    "beside_unread": "the request that brought it holds an event that could not be read yet ({}): "
    "correct the profile, run `tallyhook reindex` and ask again",
    "in_the_reference": "its reference is, or holds, the number: ledgers are kept",
    "set_aside": "it was accepted and could not be read: see the log, then `tallyhook deliveries "
    "poisoned --retry`, and ask again",
    "changed": "something was said of it meanwhile: ask again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Something that stays, why, and until when if that is known."""

    what: str
    why: Why
    detail: str = ""
    until: Instant | None = None

    @property
    def sentence(self) -> str:
        """For a person."""
        shown = self.detail if self.until is None else format_instant(self.until)
        return SENTENCES[self.why].format(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By what it is judged. `minimum`: how long after the last word everything is kept."""

    minimum: Duration = 0

    @classmethod
    def of_days(cls, minimum: int) -> Rules:
        """The rules that a setting makes."""
        return cls(minimum=minimum * DAY)


def kept_order(history: History, ledger: Ledger, rules: Rules) -> Kept | None:
    """Why an order must stay as of its ledger's instant; None where it may go."""
    order = history.order
    errors = sorted({each.code for each in ledger.findings if each.severity == "error"})
    if ledger.outcome == "disputed":
        return Kept(what=order, why="disputed")
    if ledger.outcome == "unresolved" or errors:
        return Kept(what=order, why="to_settle", detail=", ".join(errors) or ledger.outcome)
    if ledger.outcome not in FINAL or ledger.next_decision_at is not None:
        return Kept(what=order, why="not_over", detail=ledger.outcome)
    if ledger.case.foreign or ledger.case.foreign_records:
        return Kept(what=order, why="shared")
    return kept_since(order, last_heard(history), rules, as_of=ledger.as_of)


def kept_since(what: str, heard: Instant, rules: Rules, *, as_of: Instant) -> Kept | None:
    """Why something must stay that was heard of last at an instant; None where it may go."""
    if as_of < heard + rules.minimum:
        return Kept(what=what, why="minimum", until=heard + rules.minimum)
    return None


def kept_unknown(
    what: str,
    heard: Instant,
    rules: Rules,
    *,
    why: Literal["refused", "unread"],
    beside: str | None,
    as_of: Instant,
) -> Kept | None:
    """Why a delivery must stay of which no ledger knows what it says; None where it may go.

    beside  an order of the same customer, or that it names, that stays: it may be a part of it
    """
    if beside is not None:
        return Kept(what=what, why=why, detail=f"with {beside}")
    if as_of < heard + WINDOW:
        until = heard + max(WINDOW, rules.minimum)
        return Kept(what=what, why=why, detail=f"after {format_instant(until)}")
    return kept_since(what, heard, rules, as_of=as_of)
