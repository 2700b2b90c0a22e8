"""Adyen: payment methods that capture automatically, and orders closed unpaid.

Source: docs.adyen.com, "Capture" and "Webhook structure: ORDER_CLOSED".
"""

import hashlib
from dataclasses import replace
from typing import Final

from app.providers import fields, kit, paths
from reconcile.ledger.events import Event

MOST_PARTS: Final = 50
"""Maximum number of payments that one event can list."""


def _method(event: Event, data: fields.EventData) -> object:
    return data.document.get("paymentMethod") if event.kind == "AUTHORISATION:true" else None


def _parts(event: Event, raw: bytes, data: fields.EventData) -> list[tuple[bytes, Event]]:
    if event.kind != "ORDER_CLOSED:false":
        return [(raw, event)]
    found: list[tuple[bytes, Event]] = []
    for number in range(1, MOST_PARTS + 1):
        path = ("additionalData", f"order-{number}-pspReference")
        payment = fields.as_text(paths.find_paths(data.document, path), "a listed payment")
        if payment is None:
            break
        (name,) = paths.slices(raw.decode("utf-8"), path)
        own = name.encode("utf-8") if found else raw
        part = replace(
            event,
            event_id=f"{event.event_id}:{number}",
            digest=hashlib.sha256(own).hexdigest(),
            payment=fields.required_text(payment, "a listed payment"),
            movement=None,
            money=None,
        )
        found.append((own, part))
    return found or [(raw, replace(event, claim="ignored"))]


PARTICULARS: Final = kit.Particulars(capturing=_method, split=_parts)
