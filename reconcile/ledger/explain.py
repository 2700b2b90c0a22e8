"""Format a ledger as sentences and as JSON."""

from collections.abc import Sequence
from typing import Final

from reconcile.canonical import fingerprint
from reconcile.documents import FactDocument, FactsDocument, MoneyDocument
from reconcile.instants import Duration, Instant, format_duration, format_instant, format_known
from reconcile.ledger import ledger_documents
from reconcile.ledger.correlate import Heard, cites_of
from reconcile.ledger.events import ANSWERS
from reconcile.ledger.grouping import ALIKE, grouped, grouped_reasons, some
from reconcile.ledger.ledger import (
    OVERDUE,
    Attempt,
    Balance,
    Facts,
    FactValue,
    Finding,
    Ledger,
    Outcome,
    PaymentWindow,
    Reason,
)
from reconcile.ledger.plain import BESIDE_REFUNDS, plain_headline
from reconcile.ledger.vocabulary import ATTEMPT_REASONS, FINDINGS, MANY, REASONS, FindingCode
from reconcile.money import Money, to_json

UNFILLED: Final = "(missing)"
"""Text shown for a missing fact. If the text appears, the program has a bug."""

WHAT_WOULD_CHANGE_IT: Final[dict[Outcome, str]] = {
    "unresolved": "This stays so until a person settles it with the provider; do not ship",
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
    """Return the sentence for a reason, without cited ids and without a full stop."""
    known = REASONS.get(code)
    sentence = filled(ATTEMPT_REASONS[code] if known is None else known.sentence, facts)
    refunded = code in BESIDE_REFUNDS and any(name == "refunded" for name, _ in facts)
    return sentence + filled("; refunded: {refunded}", facts) if refunded else sentence


def finding_sentence(code: FindingCode, facts: Facts) -> str:
    """Return the sentence for findings, without ids or full stop."""
    count = next((value for name, value in facts if name == ALIKE), None)
    if not isinstance(count, int):
        return filled(FINDINGS[code].sentence, facts)
    if code in MANY:
        return filled(MANY[code].sentence, facts)
    return f"{filled(FINDINGS[code].sentence, facts)}; {count - 1:,} more are like it"


AWAITS_CONFIRMATION: Final = "The provider's own answer would change this"

_MAY_BE_MISSING: Final = {
    "reason": " ({})",
    "author": ", as {} told us",
    "still_lost": ", but {} of it stays lost",
    "not_lost": ", and {} of what was disputed stays with the shop",
    "under_way": ", {} of it is under way",
    "on_top": ", {} of it on top of the price",
    "not_given_back": " but {} on top of the price",
    "discount": ", after a discount of {} at the provider",
    "refused_discount": "; a discount of {} at the provider does not count, as "
    "TALLYHOOK_ACCEPT_PROVIDER_DISCOUNTS does not accept it",
}

_AMOUNTS: Final = frozenset(("disputed", "failed", "lost", "pending", "returned"))


class _Words(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "" if name in _MAY_BE_MISSING else UNFILLED


def filled(template: str, facts: Facts) -> str:
    """Return the template with its placeholders filled."""
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
    return f"{value:,}" if name == ALIKE else str(value)


def facts_document(facts: Facts) -> FactsDocument:
    """Return facts as JSON values. A repeated name gets a list."""
    document: FactsDocument = {}
    for name, value in facts:
        written: FactDocument
        if isinstance(value, Money):
            written = to_json(value)
        elif isinstance(value, int) and name.endswith("_at"):
            written = format_instant(Instant(value))
        else:
            written = value
        if name not in document:
            document[name] = written
        elif isinstance(earlier := document[name], list):
            earlier.append(written)
        else:
            document[name] = [earlier, written]
    return document


def headline(ledger: Ledger) -> str:
    """Return the first sentence of the explanation, which says what happened and cites ids."""
    return _reason(ledger.reasons[0])


PLACED_ELSEWHERE: Final = "a person, or the shop, said that it is not this order's"
FOLLOWS_ELSEWHERE: Final = "its payment is another order's"
RENEWS: Final = (
    "it renews an agreement, and only the agreement's first payment is for the order that it names"
)


def _why_moved(ledger: Ledger, heard: list[Heard]) -> str:
    if any(each.by for each in heard):
        return PLACED_ELSEWHERE
    names = {(each.event.source, each.event.payment) for each in heard}
    return RENEWS if names & ledger.case.renewals else FOLLOWS_ELSEWHERE


def explain(ledger: Ledger) -> tuple[str, ...]:
    """Return sentences on what happened to the order, why, and what would change it."""
    sentences = [_reason(reason) for reason in ledger.reasons]
    if len(ledger.attempts) > 1:
        sentences += attempt_sentences(ledger.attempts)
    moved: dict[str, list[Heard]] = {}
    for each in ledger.case.moved:
        if each.event.order not in (None, ledger.order):
            continue  # the event names another order
        reference = each.event.payment or each.event.session or each.event.event_id
        moved.setdefault(reference, []).append(each)
    by_reason: dict[str, dict[str, list[Heard]]] = {}
    for reference, heard in moved.items():
        by_reason.setdefault(_why_moved(ledger, heard), {})[reference] = heard
    for why, same in by_reason.items():
        verb = "does" if len(same) == 1 else "do"
        cites = _cites(cites_of([each for heard in same.values() for each in heard]))
        sentences.append(f"{some([*same])} {verb} not count here: {why}{cites}")
    sentences += [finding_text(finding) for finding in grouped(ledger.findings)]
    sentences += [withheld_text(reason) for reason in ledger.withheld]
    awaits = ledger.reasons[0].code in ("confirmation_awaited", OVERDUE)
    change = AWAITS_CONFIRMATION if awaits else WHAT_WOULD_CHANGE_IT[ledger.outcome]
    return (*sentences, f"{change}.")


def cited(ledger: Ledger) -> frozenset[str]:
    """Return all ids that the ledger cites."""
    reasons = (*ledger.reasons, *ledger.withheld)
    cites = {cite for reason in reasons for cite in reason.cites}
    canceled = ledger.case.filed.canceled
    return frozenset(cites | ({canceled.record_id} if canceled is not None else set()))


def _cites(cites: tuple[str, ...]) -> str:
    return f" [{some(cites)}]." if cites else "."


def _reason(reason: Reason) -> str:
    return reason_sentence(reason.code, reason.facts) + _cites(reason.cites)


def attempt_sentences(attempts: Sequence[Attempt]) -> list[str]:
    """Return sentences on how the attempts ended, with cited ids."""
    return [
        f"{f'Attempt {names[0]}' if len(names) == 1 else f'Attempts {some(names)}'}: "
        f"{_reason(reason)}"
        for names, reason in grouped_reasons(attempts)
    ]


def finding_text(finding: Finding) -> str:
    """Return the sentence for a finding, with cited ids."""
    return finding_sentence(finding.code, finding.facts) + _cites(finding.cites)


def withheld_text(reason: Reason) -> str:
    """Return a sentence that says why shipping is forbidden."""
    return f"Do not ship: {_reason(reason)}"


def ledger_document(ledger: Ledger) -> ledger_documents.FoldedDocument:
    """Return the ledger as JSON values.

    The digest `fingerprint` covers all members except `as_of`.
    """
    placed = {id(h): a.reference for a in ledger.case.attempts for h in (*a.heard, *a.unconfirmed)}
    document: ledger_documents.FoldedDocument = {
        "order": ledger.order,
        "as_of": format_instant(ledger.as_of),
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "totals": _totals(ledger),
        "explanation": list(explain(ledger)),
        "attempts": [
            {
                "reference": attempt.reference,
                "source": attempt.source,
                "outcome": attempt.outcome,
                "deadline": format_known(attempt.deadline),
                "reasons": [
                    {
                        "code": attempt.reason.code,
                        "cites": list(attempt.reason.cites),
                        "facts": facts_document(attempt.reason.facts),
                        "sentence": reason_sentence(attempt.reason.code, attempt.reason.facts)
                        + ".",
                    }
                ],
            }
            for attempt in ledger.attempts
        ],
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
        "timeline": [_timeline_row(h, ledger, placed.get(id(h))) for h in ledger.case.heard],
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "cites": list(finding.cites),
                "facts": facts_document(finding.facts),
                "sentence": finding_sentence(finding.code, finding.facts) + ".",
            }
            for finding in grouped(ledger.findings)
        ],
        "next_decision_at": format_known(ledger.next_decision_at),
        "fingerprint": "",
    }
    unmarked = ("as_of", "fingerprint")
    document["fingerprint"] = fingerprint(
        {name: value for name, value in document.items() if name not in unmarked}
    )
    return document


def window_document(window: PaymentWindow) -> ledger_documents.WindowDocument:
    """Return the time limits of the order's slow payments as JSON values."""
    return {
        "expected_by": format_known(window.expected_by),
        "method_class": window.method_class,
        "revocable_until": format_known(window.revocable_until),
    }


def _totals(ledger: Ledger) -> ledger_documents.TotalsDocument:
    balances = {b.currency: b for b in ledger.balances}
    main = next(iter(ledger.balances), None)
    if ledger.expected is not None:
        currency = ledger.expected.currency
        main = balances.get(currency, Balance(currency=currency, captured=0, refunded=0))
    totals: ledger_documents.TotalsDocument = {
        "expected": None if ledger.expected is None else to_json(ledger.expected),
        "captured": None,
        "refunded": None,
        "held": None if ledger.held is None else to_json(ledger.held),
    }
    if main is not None:
        totals = {**totals, **_sides(main)}
    placed = ledger.case.filed.placed
    if placed is not None and placed.money is not None and placed.tenders:
        totals["price"] = to_json(placed.money)
        totals["tenders"] = [{"kind": t.kind, **to_json(t.money)} for t in placed.tenders]
    if ledger.discount is not None:
        totals["discount"] = to_json(ledger.discount)
    if ledger.on_top:
        totals["on_top"] = [{"kind": p.kind, **to_json(p.money)} for p in ledger.on_top]
    if ledger.owed is not None:
        totals["owed_back"] = to_json(ledger.owed)
        if ledger.returning is not None:
            left = ledger.owed.minor - ledger.returning.minor
            totals["owed_back"] = to_json(Money(minor=left, currency=ledger.owed.currency))
            totals["on_its_way"] = to_json(ledger.returning)
        if ledger.returning_more:
            totals["owed_back"] = totals["on_its_way"] = None
    others = [b for b in ledger.balances if main is None or b.currency != main.currency]
    if others:
        totals["others"] = [_sides(b) for b in others]
    return totals


def _sides(balance: Balance) -> ledger_documents.BalanceDocument:
    def money(minor: int) -> MoneyDocument:
        return to_json(Money(minor=minor, currency=balance.currency))

    sides: ledger_documents.BalanceDocument = {
        "captured": money(balance.captured),
        "refunded": money(balance.refunded),
    }
    if balance.reversed:
        sides["reversed"] = money(balance.reversed)
    if balance.lost:
        sides["lost"] = money(balance.lost)
    return sides


def _timeline_row(
    heard: Heard, ledger: Ledger, attempt: str | None
) -> ledger_documents.TimelineRowDocument:
    event = heard.event
    notes = []
    if event.occurred_at is None:
        notes.append("the provider gave no date; our arrival stands in")
    if event.standing == "unconfirmed":
        notes.append("it does not count by itself: its provider has not confirmed it here")
    delay = heard.first - heard.at
    if event.standing in ANSWERS:
        notes.append("the provider's own answer, fetched by us")
    elif delay > ledger.case.policy.late_after:
        notes.append(f"arrived {format_duration(delay)} after it occurred")
    if heard.count > 1:
        notes.append(f"delivered {heard.count} times")
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
        "note": "; ".join(notes),
    }


def ledger_summary(ledger: Ledger) -> ledger_documents.SummaryDocument:
    """Return a ledger as a row of a list."""
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
