"""A ledger as text and as JSON: the same words in the command line, the API and the evidence.

Leaves out: layout. What is written here is content; colours, columns and pages are others' work.
"""

from __future__ import annotations

from typing import Any, Final

from reconcile.canonical import fingerprint
from reconcile.instants import Duration, Instant, format_duration, format_instant, format_known
from reconcile.ledger.correlate import Heard
from reconcile.ledger.events import ANSWERS
from reconcile.ledger.ledger import (
    Attempt,
    Balance,
    Facts,
    FactValue,
    Finding,
    Ledger,
    Outcome,
    Reason,
)
from reconcile.ledger.plain import BESIDE_REFUNDS, plain_headline
from reconcile.ledger.vocabulary import ATTEMPT_REASONS, FINDINGS, REASONS, FindingCode
from reconcile.money import Money, to_json

# --- sentences ------------------------------------------------------------------------------------


UNFILLED: Final = "(missing)"
"""Stands where a sentence asks for a fact that its reason does not give: a fault of ours."""

WHAT_WOULD_CHANGE_IT: Final[dict[Outcome, str]] = {
    "unresolved": "It stays so until a person settles it with the provider; do not ship on it",
    "disputed": "The provider's word that the dispute is won or lost would change this",
    "charged_back": "Only a further payment, or money that comes back after all, would change this",
    "refunded": "Only a further payment would change this",
    "partially_refunded": "A further refund, or a further payment, would change this",
    "succeeded": "Only a refund, a dispute or a contradicting event would change this",
    "authorized": "The provider's word that the money was taken, or released, would change this",
    "pending": "A final event, or the passing of that moment, would change this",
    "failed": "A later attempt, or a late success, would change this",
    "canceled": "A later attempt, or a late success, would change this",
    "expired": "A later attempt, or a late success, would change this",
    "timed_out": "A late final event would still change this",
    "not_attempted": "The first session or event would change this",
}


def reason_sentence(code: str, facts: Facts) -> str:
    """The sentence of a reason, without its cites and its full stop."""
    known = REASONS.get(code)
    sentence = filled(ATTEMPT_REASONS[code] if known is None else known.sentence, facts)
    refunded = code in BESIDE_REFUNDS and any(name == "refunded" for name, _ in facts)
    return sentence + filled("; refunded: {refunded}", facts) if refunded else sentence


def finding_sentence(code: FindingCode, facts: Facts) -> str:
    """The sentence of a finding, without its cites and its full stop."""
    return filled(FINDINGS[code].sentence, facts)


AWAITS_CONFIRMATION: Final = "The provider's own answer would change this"
"""What would change an order that only waits for this, and until no moment."""

_MAY_BE_MISSING: Final = {
    "reason": " ({})",
    "author": ", as {} told us",
    "still_lost": ", but {} of it stays lost",
    "not_lost": ", and {} of what was disputed stays with the shop",
}
"""Facts that a sentence can do without, and the words around them where they are given."""


_AMOUNTS: Final = frozenset(("disputed", "lost", "pending", "returned"))
"""Facts that a sentence speaks of as of a thing, also where they are not known."""


class _Words(dict[str, str]):
    """Facts by name. One that is not given shows as UNFILLED; what may be missing is left out."""

    def __missing__(self, name: str) -> str:
        return "" if name in _MAY_BE_MISSING else UNFILLED


def filled(template: str, facts: Facts) -> str:
    """The template with the facts that it names, in words."""
    words = _Words()
    for name, value in facts:
        text = _in_words(name, value)
        if text and name in words:
            text = f"{words[name]} and {text}"
        if text:
            words[name] = text
    return template.format_map(words)


def _in_words(name: str, value: FactValue) -> str:
    if name in _MAY_BE_MISSING:
        return "" if value is None else _MAY_BE_MISSING[name].format(value)
    if value is None:
        return "an unknown amount" if name in _AMOUNTS else "not known"
    if isinstance(value, int) and name.endswith("_at"):
        return format_instant(Instant(value))
    if isinstance(value, int) and name.endswith("_us"):
        return format_duration(Duration(value))
    return str(value)


def facts_document(facts: Facts) -> dict[str, object]:
    """Facts for JSON: money as decimal strings, instants in RFC 3339, durations in microseconds.

    A name that stands several times (captured, in several currencies) becomes a list.
    """
    document: dict[str, object] = {}
    for name, value in facts:
        written = _written(name, value)
        if name not in document:
            document[name] = written
        elif isinstance(earlier := document[name], list):
            earlier.append(written)
        else:
            document[name] = [earlier, written]
    return document


def _written(name: str, value: FactValue) -> object:
    if isinstance(value, Money):
        return to_json(value)
    if isinstance(value, int) and name.endswith("_at"):
        return format_instant(Instant(value))
    return value


# --- A ledger as text and as JSON -----------------------------------------------------------------


def headline(ledger: Ledger) -> str:
    """The first sentence of the explanation: what happened and what it rests on."""
    return _reason(ledger.reasons[0])


def explain(ledger: Ledger) -> tuple[str, ...]:
    """What happened, why we say so, and what would change it; each sentence cites its ids."""
    sentences = [_reason(reason) for reason in ledger.reasons]
    if len(ledger.attempts) > 1:
        sentences += [attempt_sentence(attempt) for attempt in ledger.attempts]
    sentences += [finding_text(finding) for finding in ledger.findings]
    sentences += [withheld_text(reason) for reason in ledger.withheld]
    sentences.append(_what_would_change_it(ledger) + ".")
    return tuple(sentences)


def _what_would_change_it(ledger: Ledger) -> str:
    if ledger.reasons[0].code == "confirmation_awaited":
        return AWAITS_CONFIRMATION
    return WHAT_WOULD_CHANGE_IT[ledger.outcome]


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


def withheld_text(reason: Reason) -> str:
    """Why a paid order is not to be fulfilled, with the ids that this rests on."""
    return f"Do not ship: {_reason(reason)}"


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
        "next_decision_at": format_known(ledger.next_decision_at),
    }
    mark = fingerprint(document)
    return {
        "order": document.pop("order"),
        "as_of": format_instant(ledger.as_of),
        **document,
        "fingerprint": mark,
    }


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
        "deadline": format_known(attempt.deadline),
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
    attempts = {
        id(h): a.reference for a in ledger.case.attempts for h in (*a.heard, *a.unconfirmed)
    }
    return [_timeline_row(h, ledger, attempt=attempts.get(id(h))) for h in ledger.case.heard]


def _timeline_row(heard: Heard, ledger: Ledger, *, attempt: str | None) -> dict[str, Any]:
    """One event. `attempt` is the one it was taken to speak of; None where it could be several."""
    event = heard.event
    return {
        "occurred_at": format_known(event.occurred_at),
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
    """One row of a listing: what happened in one sentence, without the evidence; `plain` says it in
    words for a customer."""
    return {
        "order": ledger.order,
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "findings": list(dict.fromkeys(finding.code for finding in ledger.findings)),
        "plain": plain_headline(ledger),
        "explanation": headline(ledger),
        "next_decision_at": format_known(ledger.next_decision_at),
    }
