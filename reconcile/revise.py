"""How and why a published ledger differs from the one published before.

Leaves out: where the earlier one is kept. A late event needs no path of its own: it is the
difference between two folds of one growing set at two instants, and `revise` is that difference.
"""

from __future__ import annotations

from reconcile.explain import headline
from reconcile.instants import Instant
from reconcile.ledger import Ledger, Outcome
from reconcile.values import frozen


@frozen
class Position:
    """What a published ledger said, without the counts that change with every redelivery.

    `substance` is one line of text: outcome, money, attempts and findings other than counts.
    Two ledgers with equal substance need no revision between them.
    """

    outcome: Outcome
    fulfillable: bool
    substance: str


@frozen
class Revision:
    """One published change of an order's ledger.

    before   the position published before; None for the first
    because  sentences, each with the ids it rests on: what the ledger says now, then what differs
    """

    order: str
    at: Instant
    before: Position | None
    after: Position
    because: tuple[str, ...]


_COUNTS_ONLY = frozenset(("redelivered", "delivered_late", "out_of_order", "semantic_duplicate"))


def position_of(ledger: Ledger) -> Position:
    """The position a ledger takes."""
    return Position(
        outcome=ledger.outcome, fulfillable=ledger.fulfillable, substance=_substance(ledger)
    )


def _substance(ledger: Ledger) -> str:
    parts = [ledger.outcome, "fulfillable" if ledger.fulfillable else "held"]
    if ledger.expected is not None:
        parts.append(f"due {ledger.expected.minor} {ledger.expected.currency}")
    for b in ledger.balances:
        parts.append(f"got {b.captured}-{b.refunded} {b.currency}")
    for a in ledger.attempts:
        parts.append(f"{a.reference.replace('|', '/')}={a.outcome}")
    if ledger.findings:
        codes = {f.code for f in ledger.findings if f.code not in _COUNTS_ONLY}
        parts += sorted(codes)
    return "|".join(parts)


def revise(
    before: Position | None, ledger: Ledger, *, after: Position | None = None
) -> Revision | None:
    """The revision that leads from `before` to this ledger; None where nothing of substance did.

    `after` is the ledger's own position, for a caller that has it already.
    An order of which only a `not_attempted` could be told is not worth a first revision.
    """
    after = after or position_of(ledger)
    if before is None:
        if ledger.outcome == "not_attempted" and not ledger.findings:
            return None
    elif before.substance == after.substance:
        return None
    return Revision(
        order=ledger.order,
        at=ledger.as_of,
        before=before,
        after=after,
        because=(headline(ledger), *_differences(before, after)),
    )


def _differences(before: Position | None, after: Position) -> list[str]:
    """What is new and what is gone, part by part of the substance after outcome and shipping."""
    if before is None:
        return []
    earlier, later = before.substance.split("|"), after.substance.split("|")
    sentences = []
    if before.outcome != after.outcome:
        sentences.append(f"It was {before.outcome} before.")
    if before.fulfillable != after.fulfillable:
        sentences.append(
            "It may be shipped now." if after.fulfillable else "It may not be shipped."
        )
    new = [part for part in later[2:] if part not in earlier]
    gone = [part for part in earlier[2:] if part not in later]
    if new:
        sentences.append(f"New: {', '.join(new)}.")
    if gone:
        sentences.append(f"No longer: {', '.join(gone)}.")
    return sentences
