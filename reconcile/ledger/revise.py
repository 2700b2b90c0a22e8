"""Find the changes between a published and a new ledger."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reconcile.instants import Instant
from reconcile.ledger.explain import attempt_sentences, finding_text, headline, withheld_text
from reconcile.ledger.grouping import grouped
from reconcile.ledger.ledger import Attempt, Finding, Ledger, Outcome
from reconcile.ledger.vocabulary import FINDING_CODES, FINDINGS, FindingCode
from reconcile.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Content of a published ledger that decides whether to publish a new ledger."""

    outcome: Outcome
    fulfillable: bool
    substance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One published change of an order's ledger."""

    order: str
    at: Instant
    before: Position | None
    """Content that was published before. None for the first revision."""
    after: Position
    because: tuple[str, ...]
    """Sentences with cited ids: the ledger now, then the differences."""


_COUNTS_ONLY = frozenset(("redelivered", "delivered_late", "out_of_order", "semantic_duplicate"))

_EACH_BY_ITSELF: Final[tuple[FindingCode, ...]] = (
    "dispute_open",
    "dispute_lost",
    "dispute_won",
    "refund_pending",
    "refund_failed",
    "unread_money_event",
)


def position_of(ledger: Ledger) -> Position:
    parts = [ledger.outcome, "fulfillable" if ledger.fulfillable else "held"]
    if ledger.expected is not None:
        parts.append(f"due {ledger.expected.minor} {ledger.expected.currency}")
    for b in ledger.balances:
        parts.append(f"got {b.captured}-{b.returned} {b.currency}")
    for a in ledger.attempts:
        parts.append(_attempt_part(a))
    if ledger.findings:
        counts = Counter([f.code for f in ledger.findings])
        parts += sorted(counts.keys() - _COUNTS_ONLY)
        parts += [f"{counts[code]} {code}" for code in _EACH_BY_ITSELF if counts[code] > 1]
        amounts = _amounts(ledger)
        parts += sorted(filter(None, [_restated(f, amounts) for f in ledger.findings]))
    return Position(
        outcome=ledger.outcome, fulfillable=ledger.fulfillable, substance="|".join(parts)
    )


_Amounts = Mapping[str, tuple[int, Money]]


def _amounts(ledger: Ledger) -> _Amounts:
    found: dict[str, tuple[int, Money]] = {}
    if any(each.code == "dispute_open" for each in ledger.findings):
        for place, heard in enumerate(ledger.case.heard):
            if heard.event.money is not None:
                found.setdefault(heard.event.event_id, (place, heard.event.money))
    return found


def _restated(finding: Finding, amounts: _Amounts) -> str:
    if finding.code != "dispute_open":
        return ""
    stated = [amounts[cited] for cited in finding.cites if cited in amounts]
    facts = dict(finding.facts)
    name, amount = facts["dispute"] or facts["attempt"], facts["disputed"]
    if not stated or not isinstance(amount, Money) or amount == min(stated)[1]:
        return ""
    return f"{name} of {amount.minor} {amount.currency}".replace("|", "/")


def _counts_in(parts: Iterable[str]) -> Counter[str]:
    counts = Counter[str]()
    for part in parts:
        number, _, code = part.rpartition(" ")
        if code in _EACH_BY_ITSELF:
            counts[code] = max(counts[code], int(number or 1))
    return counts


def _attempt_part(attempt: Attempt) -> str:
    part = f"{attempt.reference.replace('|', '/')}={attempt.outcome}"
    if attempt.overdue:
        return f"{part} overdue"
    # The shop plans its stock by the end of a slow payment's window.
    return part if attempt.expected_by is None else f"{part} until {attempt.expected_by}"


def revise(
    before: Position | None, ledger: Ledger, *, after: Position | None = None
) -> Revision | None:
    """Return the revision from `before` to this ledger; None if nothing important changed."""
    after = after or position_of(ledger)
    if before is None:
        if ledger.outcome == "not_attempted" and not ledger.findings:
            return None
    elif before.substance == after.substance:
        return None
    because = [headline(ledger)]
    if before is not None:
        because += _differences(before, after, ledger)
    if before is None or before.fulfillable or before.outcome != ledger.outcome:
        # Reasons not to ship that no finding states.
        because += [withheld_text(each) for each in ledger.withheld if each.code not in FINDINGS]
    return Revision(
        order=ledger.order, at=ledger.as_of, before=before, after=after, because=tuple(because)
    )


def _differences(before: Position, after: Position, ledger: Ledger) -> list[str]:
    earlier = frozenset(before.substance.split("|"))
    were, are = _counts_in(earlier), _counts_in(after.substance.split("|"))
    more = {code for code in are if are[code] > were[code]}
    sentences = []
    if before.outcome != after.outcome:
        sentences.append(f"It was {before.outcome} before.")
    if before.fulfillable != after.fulfillable:
        sentences.append(
            "It may be shipped now." if after.fulfillable else "It may not be shipped."
        )
    sentences += attempt_sentences([a for a in ledger.attempts if _attempt_part(a) not in earlier])
    new, amounts = [], _amounts(ledger)
    for finding in ledger.findings:
        if finding.code in _COUNTS_ONLY:
            continue
        restated = _restated(finding, amounts)
        another = finding.code not in earlier or finding.code in more
        if another or (restated and restated not in earlier):
            new.append(finding)
    sentences += [finding_text(finding) for finding in grouped(new)]
    codes = {finding.code for finding in ledger.findings}
    gone = [code for code in FINDING_CODES if code in earlier and code not in codes]
    if gone:
        sentences.append(f"No longer found: {', '.join(gone)}.")
    fewer = [f"{code} ({are[code]} of {were[code]})" for code in are if are[code] < were[code]]
    if fewer:
        sentences.append(f"No longer found as often: {', '.join(fewer)}.")
    return sentences
