"""A ledger as text and as JSON: the same words in the command line, the API and the evidence.

Leaves out: layout. What is written here is content; colours, columns and pages are others' work.
"""

from __future__ import annotations

from typing import Any

from reconcile.canonical import fingerprint
from reconcile.instants import format_duration, format_instant
from reconcile.ledger.correlate import Heard
from reconcile.ledger.events import ANSWERS
from reconcile.ledger.ledger import Attempt, Balance, Finding, Ledger, Reason
from reconcile.ledger.reasons import (
    WHAT_WOULD_CHANGE_IT,
    facts_document,
    finding_sentence,
    reason_sentence,
)
from reconcile.money import Money, to_json


def headline(ledger: Ledger) -> str:
    """The first sentence of the explanation: what happened and what it rests on."""
    return _reason(ledger.reasons[0])


def explain(ledger: Ledger) -> tuple[str, ...]:
    """What happened, why we say so, and what would change it; each sentence cites its ids."""
    sentences = [_reason(reason) for reason in ledger.reasons]
    if len(ledger.attempts) > 1:
        sentences += [attempt_sentence(attempt) for attempt in ledger.attempts]
    sentences += [finding_text(finding) for finding in ledger.findings]
    sentences += [f"Do not ship: {_reason(reason)}" for reason in ledger.withheld]
    sentences.append(WHAT_WOULD_CHANGE_IT[ledger.outcome] + ".")
    return tuple(sentences)


def cited(ledger: Ledger) -> frozenset[str]:
    """Every event and record id that the deciding reasons rest on, those that withhold a paid order
    included, and a cancellation's."""
    reasons = (*ledger.reasons, *ledger.withheld)
    cites = {cite for reason in reasons for cite in reason.cites}
    canceled = ledger.case.filed.canceled
    return frozenset(cites | ({canceled.record_id} if canceled is not None else set()))


def _cites(cites: tuple[str, ...]) -> str:
    return f" [{', '.join(cites)}]." if cites else "."


def _reason(reason: Reason) -> str:
    return reason_sentence(reason.code, reason.facts) + _cites(reason.cites)


def attempt_sentence(attempt: Attempt) -> str:
    """What became of one attempt, with the ids it rests on."""
    sentence = reason_sentence(attempt.reason.code, attempt.reason.facts)
    return f"Attempt {attempt.reference}: {sentence}{_cites(attempt.reason.cites)}"


def finding_text(finding: Finding) -> str:
    """One finding as a sentence, with the ids it rests on."""
    return finding_sentence(finding.code, finding.facts) + _cites(finding.cites)


def ledger_document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as JSON values, ending in `fingerprint`, which covers all but `as_of`."""
    document: dict[str, Any] = {
        "order": ledger.order,
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "explanation": list(explain(ledger)),
        "attempts": [_attempt_document(attempt) for attempt in ledger.attempts],
        "entries": [
            {
                "at": format_instant(entry.at),
                "kind": entry.kind,
                "money": to_json(entry.money),
                "attempt": entry.attempt,
                "cites": list(entry.cites),
            }
            for entry in ledger.entries
        ],
        "timeline": _timeline(ledger),
        "findings": [_finding_document(finding) for finding in ledger.findings],
        "next_decision_at": _instant(ledger.next_decision_at),
    }
    mark = fingerprint(document)
    return {
        "order": document.pop("order"),
        "as_of": format_instant(ledger.as_of),
        **document,
        "fingerprint": mark,
    }


def _instant(instant: int | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _totals(ledger: Ledger) -> dict[str, Any]:
    """Expected, captured, refunded and held; what was reversed or lost in disputes, where any was.

    Further currencies, if any, stand under `others`.
    """
    main, others = _main_balance(ledger)
    totals: dict[str, Any] = {
        "expected": None if ledger.expected is None else to_json(ledger.expected),
        "captured": None if main is None else _side(main, main.captured),
        "refunded": None if main is None else _side(main, main.refunded),
        "held": None if ledger.held is None else to_json(ledger.held),
        **({} if main is None else _further(main)),
    }
    if others:
        totals["others"] = [
            {
                "captured": _side(b, b.captured),
                "refunded": _side(b, b.refunded),
                **_further(b),
            }
            for b in others
        ]
    return totals


def _further(balance: Balance) -> dict[str, Any]:
    sides = {"reversed": balance.reversed, "lost": balance.lost}
    return {name: _side(balance, minor) for name, minor in sides.items() if minor}


def _main_balance(ledger: Ledger) -> tuple[Balance | None, list[Balance]]:
    """The balance in the order's own currency, else the first there is; and the rest."""
    balances = list(ledger.balances)
    if ledger.expected is not None:
        own = [b for b in balances if b.currency == ledger.expected.currency]
        currency = ledger.expected.currency
        main = own[0] if own else Balance(currency=currency, captured=0, refunded=0)
        return main, [b for b in balances if b.currency != currency]
    return (balances[0], balances[1:]) if balances else (None, [])


def _side(balance: Balance, minor: int) -> dict[str, str]:
    return to_json(Money(minor=minor, currency=balance.currency))


def _attempt_document(attempt: Attempt) -> dict[str, Any]:
    reason = attempt.reason
    return {
        "reference": attempt.reference,
        "source": attempt.source,
        "outcome": attempt.outcome,
        "deadline": _instant(attempt.deadline),
        "reasons": [
            {
                "code": reason.code,
                "cites": list(reason.cites),
                "facts": facts_document(reason.facts),
                "sentence": reason_sentence(reason.code, reason.facts) + ".",
            }
        ],
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "cites": list(finding.cites),
        "facts": facts_document(finding.facts),
        "sentence": finding_sentence(finding.code, finding.facts) + ".",
    }


def _timeline(ledger: Ledger) -> list[dict[str, Any]]:
    attempts = {id(h): a.reference for a in ledger.case.attempts for h in (*a.heard, *a.told)}
    return [_timeline_row(h, ledger, attempt=attempts.get(id(h))) for h in ledger.case.heard]


def _timeline_row(heard: Heard, ledger: Ledger, *, attempt: str | None) -> dict[str, Any]:
    """One event. `attempt` is the one it was taken to speak of; None where it could be several."""
    event = heard.event
    return {
        "occurred_at": _instant(event.occurred_at),
        "received_at": format_instant(heard.first),
        "event": event.event_id,
        "source": event.source,
        "digest": event.digest,
        "kind": event.kind,
        "claim": event.claim,
        "attempt": attempt,
        "money": None if event.money is None else to_json(event.money),
        "deliveries": heard.count,
        "note": _note(heard, ledger),
    }


def _note(heard: Heard, ledger: Ledger) -> str:
    notes = []
    if heard.event.occurred_at is None:
        notes.append("the provider gave no date; our arrival stands in")
    if heard.event.standing == "unconfirmed":
        notes.append("it does not count by itself: its provider has not confirmed it here")
    delay = heard.first - heard.at
    if heard.event.standing in ANSWERS:
        notes.append("the provider's own answer, fetched by us")
    elif delay > ledger.case.policy.late_after:
        notes.append(f"arrived {format_duration(delay)} after it occurred")
    if heard.count > 1:
        notes.append(f"delivered {heard.count} times")
    return "; ".join(notes)


def ledger_summary(ledger: Ledger) -> dict[str, Any]:
    """One row of a listing: what happened in one sentence, without the evidence."""
    return {
        "order": ledger.order,
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "findings": list(dict.fromkeys(finding.code for finding in ledger.findings)),
        "explanation": headline(ledger),
        "next_decision_at": _instant(ledger.next_decision_at),
    }
