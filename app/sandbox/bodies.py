"""The JSON a session's events are written in (the form that profile `checkout` reads).

Amounts are JSON numbers in major units, written from decimals digit for digit: 1500.00 stays
1500.00. The bodies of one session and seed are equal in every run but for their times.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from app.sandbox.scenarios import Copy, Step
from app.sandbox.sessions import Session
from reconcile.instants import format_instant
from reconcile.money import Money, major_text


def event_body(session: Session, step: Step, *, event_id: str, copy: Copy = "true") -> bytes:
    """The event as it is, or (any other copy) with another amount of the same payment."""
    document = {
        "id": event_id,
        "type": step.kind,
        "occurred_at": format_instant(session.happens_at(step)),
        "environment": "sandbox",
        "data": _data(session, step, copy),
    }
    return exact_json(document).encode()


def _data(session: Session, step: Step, copy: Copy) -> dict[str, Any]:
    asked = session.asked
    paid = session.paid_by(step) if copy == "true" else session.amount("other")
    data: dict[str, Any] = {
        "order": {"reference": asked.order, **_figures(asked.money)},
        "session": {"reference": session.reference},
        "payment": {"reference": session.payments[step.attempt], **_figures(paid)},
    }
    if step.reason is not None:
        data["payment"]["reason"] = step.reason
    if step.movement is not None:
        moved = session.amount(step.amount)
        data["refund"] = {"reference": session.movements[step.movement], **_figures(moved)}
    return data if asked.phone is None else data | {"customer": {"phone": asked.phone}}


def _figures(money: Money) -> dict[str, Any]:
    return {"amount": Decimal(major_text(money)), "currency": money.currency}


def exact_json(value: Any) -> str:
    """JSON where a Decimal is a number of exactly its own digits. Raises TypeError on floats."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)}: {exact_json(item)}" for name, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, str):
        return json.dumps(value)
    raise TypeError(f"an event has no place for a {type(value).__name__}")
