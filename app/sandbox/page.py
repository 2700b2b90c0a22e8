"""The page a customer would see: plain HTML without scripts that says what the simulation does."""

from __future__ import annotations

from html import escape
from typing import Final

from app.sandbox.sessions import Session
from reconcile.instants import format_instant

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Simulated checkout {reference}</title></head>
<body>
<h1>Simulated checkout</h1>
<p>Order <strong>{order}</strong>: {money}. No money moves here.</p>
<p>Scenario {ending}, {name}: {story}</p>
<p>The session ends at {expires_at}.</p>
<p><a href="{success}">Back to the shop, paid</a> · <a href="{cancel}">Back, not paid</a></p>
</body>
</html>
"""


def checkout_page(session: Session) -> str:
    """The page of one session. It never shows the phone number."""
    asked, scenario = session.asked, session.scenario
    texts = {
        "reference": session.reference,
        "order": asked.order,
        "money": str(asked.money),
        "ending": scenario.ending,
        "name": scenario.name,
        "story": scenario.story,
        "expires_at": format_instant(session.expires_at),
        # Without an address the customer stays here.
        "success": asked.success_url or "#",
        "cancel": asked.cancel_url or "#",
    }
    return _PAGE.format_map({name: escape(text) for name, text in texts.items()})
