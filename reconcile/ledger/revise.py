"""How and why a published ledger differs from the one published before.

Leaves out: where the earlier one is kept. A late event needs no path of its own: it is the
difference between two folds of one growing set at two instants, and `revise` is that difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from reconcile.instants import Instant
from reconcile.ledger.explain import attempt_sentence, finding_text, headline, withheld_text
from reconcile.ledger.ledger import Attempt, Finding, Ledger, Outcome
from reconcile.ledger.vocabulary import FINDING_CODES, FINDINGS, FindingCode
from reconcile.money import Money
from reconcile.values import frozen, maker


@frozen
class Position:
    """What a published ledger said, without the counts that change with every redelivery.

    `substance` is one line of text: outcome, money, attempts and findings other than counts, how
    many there are of those of which each is news, and what an open dispute has come to be about.
    Two ledgers with equal substance need no revision between them.
    """

    outcome: Outcome
    fulfillable: bool
    substance: str


new_position = maker(Position)


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


_EACH_BY_ITSELF: Final[tuple[FindingCode, ...]] = (
    "dispute_open",
    "dispute_lost",
    "dispute_won",
    "refund_pending",
    "refund_failed",
    "unread_money_event",
)
"""Findings about money that goes back: a person has something to do about each, by its own time, so
that another one is news. Of the other codes the first is."""


def position_of(ledger: Ledger) -> Position:
    """The position a ledger takes."""
    return new_position(
        outcome=ledger.outcome, fulfillable=ledger.fulfillable, substance=_substance(ledger)
    )


def _substance(ledger: Ledger) -> str:
    parts = [ledger.outcome, "fulfillable" if ledger.fulfillable else "held"]
    if ledger.expected is not None:
        parts.append(f"due {ledger.expected.minor} {ledger.expected.currency}")
    for b in ledger.balances:
        parts.append(f"got {b.captured}-{b.returned} {b.currency}")
    for a in ledger.attempts:
        parts.append(_attempt_part(a))
    if ledger.findings:
        codes = {f.code for f in ledger.findings if f.code not in _COUNTS_ONLY}
        parts += sorted(codes)
        parts += _several(ledger)
        parts += sorted(filter(None, [_restated(f, ledger) for f in ledger.findings]))
    return "|".join(parts)


def _several(ledger: Ledger) -> list[str]:
    """How many there are of what counts each by itself, where there is more than one."""
    counts = Counter([f.code for f in ledger.findings if f.code in _EACH_BY_ITSELF])
    return [f"{counts[code]} {code}" for code in _EACH_BY_ITSELF if counts[code] > 1]


def _restated(finding: Finding, ledger: Ledger) -> str:
    """What an open dispute is about, where that is more than its first amount; else nothing, so
    that what was published of all others stays as it was written."""
    if finding.code != "dispute_open":
        return ""
    events = [heard.event for heard in ledger.case.heard if heard.event.event_id in finding.cites]
    stated = [each.money for each in events if each.money is not None]
    facts = dict(finding.facts)
    name, amount = facts["dispute"] or facts["attempt"], facts["disputed"]
    if not stated or not isinstance(amount, Money) or amount == stated[0]:
        return ""
    return f"{name} of {amount.minor} {amount.currency}".replace("|", "/")


def _counts_in(parts: Sequence[str]) -> Counter[str]:
    """The same in the parts of a substance, where one alone is a code without a number."""
    counts = Counter[str]()
    for part in parts:
        number, _, code = part.rpartition(" ")
        if code in _EACH_BY_ITSELF:
            counts[code] = max(counts[code], int(number or 1))
    return counts


def _attempt_part(attempt: Attempt) -> str:
    return f"{attempt.reference.replace('|', '/')}={attempt.outcome}"


def revise(
    before: Position | None, ledger: Ledger, *, after: Position | None = None
) -> Revision | None:
    """The revision that leads from `before` to this ledger; None where nothing of substance did.

    `after` is the ledger's own position, for a caller that has it already.
    An order of which only a `not_attempted` could be published is not worth a first revision.
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
        because=(headline(ledger), *_differences(before, after, ledger), *_why_not(before, ledger)),
    )


def _why_not(before: Position | None, ledger: Ledger) -> list[str]:
    """Why an order that is paid now, or was to be shipped, is not to be: what no finding says."""
    if before is not None and not before.fulfillable and before.outcome == ledger.outcome:
        return []
    return [withheld_text(each) for each in ledger.withheld if each.code not in FINDINGS]


def _differences(before: Position | None, after: Position, ledger: Ledger) -> list[str]:
    """What is new since, each with its ids, and what is gone, part by part of the substance."""
    if before is None:
        return []
    earlier = before.substance.split("|")
    were, are = _counts_in(earlier), _counts_in(after.substance.split("|"))
    more = {code for code in are if are[code] > were[code]}
    sentences = []
    if before.outcome != after.outcome:
        sentences.append(f"It was {before.outcome} before.")
    if before.fulfillable != after.fulfillable:
        sentences.append(
            "It may be shipped now." if after.fulfillable else "It may not be shipped."
        )
    sentences += [attempt_sentence(a) for a in ledger.attempts if _attempt_part(a) not in earlier]
    sentences += [
        finding_text(f)
        for f in ledger.findings
        if f.code not in _COUNTS_ONLY and _is_news(f, ledger, earlier=earlier, more=more)
    ]
    codes = {finding.code for finding in ledger.findings}
    gone = [code for code in FINDING_CODES if code in earlier and code not in codes]
    if gone:
        sentences.append(f"No longer found: {', '.join(gone)}.")
    fewer = [f"{code} ({are[code]} of {were[code]})" for code in are if are[code] < were[code]]
    if fewer:
        sentences.append(f"No longer found as often: {', '.join(fewer)}.")
    return sentences


def _is_news(finding: Finding, ledger: Ledger, *, earlier: Sequence[str], more: set[str]) -> bool:
    """Whether it was not there, not as often, or of another amount."""
    if finding.code not in earlier or finding.code in more:
        return True
    restated = _restated(finding, ledger)
    return restated != "" and restated not in earlier
