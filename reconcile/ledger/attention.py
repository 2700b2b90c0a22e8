"""Findings and outcomes that need a person, until they are settled or accepted.

Leaves out: who settles it, and how; `plain` says what to do.
"""

from typing import Final

from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.ledger import Finding, Ledger, Outcome
from reconcile.ledger.vocabulary import FindingCode

NEEDS_A_PERSON: Final = "needs_a_person"
"""The word under which such orders are counted and listed, beside the codes of findings."""

OPEN_OUTCOMES: Final[tuple[Outcome, ...]] = ("unresolved", "disputed")
"""Outcomes that need a person by themselves."""

ACCEPTABLE: Final[tuple[FindingCode, ...]] = (
    "refund_failed",
    "refund_overdue",
    "paid_twice",
    "overpaid",
    "paid_after_cancel",
    "fulfilled_but_not_paid",
)
"""Findings that need a person until they are settled or accepted."""


def needs_person(ledger: Ledger) -> bool:
    """Return whether an outcome, a hold or a finding left to settle needs a person."""
    return (
        ledger.outcome in OPEN_OUTCOMES
        or bool(ledger.case.filed.holds)
        or bool(left_to_settle(ledger))
    )


def left_to_settle(ledger: Ledger) -> tuple[FindingCode, ...]:
    """Return the codes of findings that are neither settled nor accepted, each once."""
    left = [
        each.code
        for each in ledger.findings
        if each.code in ACCEPTABLE and not is_accepted(each, ledger) and not _settled(each, ledger)
    ]
    return tuple(dict.fromkeys(left))


def is_accepted(finding: Finding, ledger: Ledger) -> bool:
    """Return whether a person has accepted a finding since all that it rests on is known."""
    record = ledger.case.filed.accepted.get(finding.code)
    if record is None:
        return False
    known = [h.first for h in ledger.case.heard if h.event.event_id in finding.cites]
    known += [r.recorded_at for r in ledger.case.filed.records() if r.record_id in finding.cites]
    return max(known, default=EARLIEST) <= record.recorded_at


def _settled(finding: Finding, ledger: Ledger) -> bool:
    """Return whether the money has gone back since: all of it, or as much as failed to."""
    if finding.code == "paid_after_cancel":
        return ledger.held is not None and ledger.held.minor <= 0
    if finding.code != "refund_failed":
        return False
    held = ledger.held_for_price
    if held is not None and held.minor <= 0 and ledger.outcome == "refunded":
        return True
    facts = dict(finding.facts)
    failed_at, failed = facts["failed_at"], facts["failed"]
    assert isinstance(failed_at, int)
    return any(
        entry.kind == "refunded"
        and entry.at > Instant(failed_at)
        and entry.attempt == facts["attempt"]
        and (-entry.money.minor, entry.money.currency)
        == (getattr(failed, "minor", None), getattr(failed, "currency", None))
        for entry in ledger.entries
    )
