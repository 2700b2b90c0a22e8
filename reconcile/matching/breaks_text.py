"""A break in one line of text, to be kept and read again.

Leaves out: wording for people (`breaks_words`).
"""

from __future__ import annotations

import json
from typing import Any

from reconcile.ledger.ledger import Facts
from reconcile.matching.breaks import Break, Candidate
from reconcile.money import Money


def break_text(found: Break) -> str:
    """All that a run saw of it, as JSON. Equal breaks give equal text."""
    parts: list[Any] = [
        found.cause,
        found.order,
        found.payment,
        found.subject,
        (found.money.minor, found.money.currency),
        found.since,
        found.cites,
        _facts_json(found.facts),
        [
            (c.line, c.reference, (c.money.minor, c.money.currency), c.apart, _facts_json(c.facts))
            for c in found.candidates
        ],
    ]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def break_in(text: str) -> Break:
    """The break that `break_text` wrote."""
    cause, order, payment, subject, money, since, cites, facts, candidates = json.loads(text)
    return Break(
        cause=cause,
        order=order,
        payment=payment,
        subject=subject,
        money=_money_in(money),
        since=since,
        cites=tuple(cites),
        facts=_facts_in(facts),
        candidates=tuple([_candidate_in(each) for each in candidates]),
    )


def _candidate_in(parts: list[Any]) -> Candidate:
    line, reference, money, apart, facts = parts
    return Candidate(
        line=line,
        reference=reference,
        money=_money_in(money),
        apart=apart,
        facts=_facts_in(facts),
    )


def _facts_json(facts: Facts) -> list[Any]:
    """Money becomes a pair; every other value is its own."""
    return [
        (name, (value.minor, value.currency) if isinstance(value, Money) else value)
        for name, value in facts
    ]


def _facts_in(parts: list[Any]) -> Facts:
    return tuple(
        [(name, _money_in(value) if isinstance(value, list) else value) for name, value in parts]
    )


def _money_in(pair: list[Any]) -> Money:
    return Money(minor=pair[0], currency=pair[1])
