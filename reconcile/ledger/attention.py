"""Decide whether an order needs a person."""

from collections.abc import Callable, Mapping
from typing import Final

from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.ledger import Finding, Ledger, Outcome
from reconcile.ledger.vocabulary import FindingCode
from reconcile.money import Money

NEEDS_A_PERSON: Final = "needs_a_person"

OPEN_OUTCOMES: Final[tuple[Outcome, ...]] = ("unresolved", "disputed")
"""Outcomes that always need a person."""

ACCEPTABLE: Final[tuple[FindingCode, ...]] = (
    "refund_failed",
    "refund_overdue",
    "paid_twice",
    "overpaid",
    "paid_after_cancel",
    "fulfilled_but_not_paid",
)


def needs_person(ledger: Ledger) -> bool:
    """Check whether the order needs a person."""
    return (
        ledger.outcome in OPEN_OUTCOMES
        or bool(ledger.case.filed.holds)
        or bool(left_to_settle(ledger))
    )


def left_to_settle(ledger: Ledger) -> tuple[FindingCode, ...]:
    """Return the codes of findings that a person must still settle."""
    found = [each for each in ledger.findings if each.code in ACCEPTABLE]
    if not found:
        return ()
    is_accepted, refunds = acceptance(ledger), dict[_Refund, Instant]()
    for entry in ledger.entries:
        if entry.kind == "refunded":
            refund = (entry.attempt, -entry.money.minor, entry.money.currency)
            refunds[refund] = max(entry.at, refunds.get(refund, EARLIEST))
    left = [
        each.code for each in found if not is_accepted(each) and not _settled(each, ledger, refunds)
    ]
    return tuple(dict.fromkeys(left))


def acceptance(ledger: Ledger) -> Callable[[Finding], bool]:
    """Return a function that tells whether a person has accepted a finding.

    An acceptance does not cover evidence that came after it.
    """
    accepted, known = ledger.case.filed.accepted, dict[str, Instant]()
    for heard in ledger.case.heard if accepted else ():
        event_id = heard.event.event_id
        known[event_id] = max(heard.first, known.get(event_id, EARLIEST))
    for record in ledger.case.filed.records() if accepted else ():
        known[record.record_id] = record.recorded_at

    def is_accepted(finding: Finding) -> bool:
        record = accepted.get(finding.code)
        return record is not None and (
            max((known.get(cited, EARLIEST) for cited in finding.cites), default=EARLIEST)
            <= record.recorded_at
        )

    return is_accepted


_Refund = tuple[str, int, str]


def _settled(finding: Finding, ledger: Ledger, refunds: Mapping[_Refund, Instant]) -> bool:
    if finding.code == "paid_after_cancel":
        return ledger.held is not None and ledger.held.minor <= 0
    if finding.code != "refund_failed":
        return False
    held = ledger.held_for_price
    if held is not None and held.minor <= 0 and ledger.outcome == "refunded":
        return True
    facts = dict(finding.facts)
    attempt, failed, failed_at = facts["attempt"], facts["failed"], facts["failed_at"]
    assert isinstance(attempt, str)
    assert isinstance(failed_at, int)
    return isinstance(failed, Money) and (
        refunds.get((attempt, failed.minor, failed.currency), EARLIEST) > failed_at
    )
