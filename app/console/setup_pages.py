"""The page of setting up: of each source the address to register, what came, and what its silence
means; and a signed test event, in the sandbox alone."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import anyio

from app.access.operators import note_in_trail, permitted
from app.console.view import Asked, Document, Field, Told, View
from app.core.errors import UsageError
from app.core.ids import new_id
from app.orders.delivery_log import last_came
from app.providers.connecting import setup_told
from app.providers.source import Source
from app.sandbox.settings import SandboxSettings
from app.sandbox.webhook_sender import Parcel, WebhookSender, webhook_client
from reconcile.instants import DAY, Instant, format_instant

TESTABLE: Final = "checkout"
"""The profile whose events the sandbox knows how to write."""

SERVE: Final = "http://127.0.0.1:8080"
"""Where `serve` listens by default."""

_NEVER: Final = (
    "Nothing has come yet: register the address with the provider, subscribe to its events and "
    "make a test payment."
)
_ONLY_REFUSED: Final = (
    "Deliveries come, and every one was refused: look at one, its page says which mistake would "
    "explain it."
)
_QUIET: Final = (
    "It has been quiet for more than a day. A shop without orders is quiet, too; where there were "
    "orders, look at the provider's own list of deliveries: does it fail to deliver, or did it "
    "switch the address off?"
)
_REFUSED_SINCE: Final = "The last one was refused: a secret may have been changed at one end alone."
_WELL: Final = "It delivers, and what it delivers is taken."


def meaning(*, taken: Instant | None, refused: Instant | None, now: Instant) -> str:
    """What a source's last deliveries mean: what to do, where there is something to do."""
    if taken is None:
        return _NEVER if refused is None else _ONLY_REFUSED
    if refused is not None and refused > taken:
        return _REFUSED_SINCE
    return _QUIET if now - taken > DAY else _WELL


async def setup_document(view: View) -> Document:
    """GET /setup"""
    unknown = (await last_came(view.context, ""))[1]
    return {
        "receiver": view.console.receiver or None,
        "unknown_refused": None if unknown is None else format_instant(unknown),
        "sources": [
            await _source(view, source) for _, source in sorted(view.console.sources.items())
        ],
    }


async def _source(view: View, source: Source) -> dict[str, Any]:
    taken, refused = await last_came(view.context, source.name)
    profile, now = source.profile, view.context.clock.now()
    places = {
        "order": profile.event.order,
        "session": profile.event.session,
        "payment": profile.event.payment,
        "refund": profile.event.movement,
        "phone number": profile.customer.phone,
    }
    return {
        "source": source.name,
        "address": f"{view.console.receiver}/webhooks/{source.name}",
        "profile": profile.name,
        "verifies_only": profile.verifies_only,
        "last_taken": None if taken is None else format_instant(taken),
        "last_refused": None if refused is None else format_instant(refused),
        "means": meaning(taken=taken, refused=refused, now=now),
        "setup": setup_told(profile),
        "events": [
            {"kind": kind, "claim": claim} for kind, claim in profile.claims if claim != "ignored"
        ],
        "fields": [
            {"name": name, "places": list(found)} for name, found in places.items() if found
        ],
        "testable": _testable(view, source),
    }


def _testable(view: View, source: Source) -> bool:
    return view.console.environment == "sandbox" and source.profile.name == TESTABLE


def _chosen(view: View) -> Source:
    name = view.choice("source", tuple(view.console.sources))
    source = None if name is None else view.console.sources[name]
    if source is None or not _testable(view, source):
        raise UsageError(
            "a test event is sent in the sandbox alone, to a source with the profile "
            f"{TESTABLE}; of others, have the provider send one"
        )
    return source


async def ask_test_event(view: View) -> Asked:
    """What is sent, and where to."""
    source = _chosen(view)
    return Asked(
        subject=source.name,
        lines=(
            "An event is signed as the source's provider signs, with the source's own secret, and "
            "sent to the service as it would come: an order of KES 1.00 that is pending, with a "
            "reference that begins with TEST.",
            "Where it is taken, address, secret and profile are right. The order stays in this "
            "sandbox.",
        ),
        back="/setup",
        reason=False,
        fields=(
            Field(
                name="service",
                label="Where the service listens",
                value=view.console.receiver or SERVE,
                hint="This machine, or the address that is set as TALLYHOOK_PUBLIC_URL.",
            ),
        ),
    )


async def do_test_event(view: View, reason: str) -> Told:
    """Send it, and say what became of it."""
    source = _chosen(view)
    service = service_address(view.given.get("service", ""), own=view.console.receiver)
    reference = new_id("TEST-", view.context.clock.now())
    async with view.context.store.writing() as connection:
        who = await permitted(connection, by=view.person.name, action="test_event_sent")
        await note_in_trail(
            connection,
            who,
            action="test_event_sent",
            subject=source.name,
            at=view.context.clock.now(),
            facts={"order": reference},
        )
    if await _sent(view, source, f"{service}/webhooks/{source.name}", reference=reference):
        return Told(
            title="It was taken",
            lines=(
                f"The service answered that it keeps the event of order {reference}; it stands "
                "among the deliveries and the orders within a second.",
            ),
            back="/deliveries",
        )
    return Told(
        title="It was not taken",
        lines=(
            f"Nothing at {service} took it. Where it was refused, it is among the deliveries, with "
            "the mistake that would explain it; where it is not, the service does not listen "
            "there.",
        ),
        back="/deliveries",
    )


_LOCAL: Final = re.compile(
    r"http://(?:127\.0\.0\.1|localhost|\[::1\])(?::([1-9][0-9]{0,4}))?", re.ASCII
)


def service_address(said: str, *, own: str) -> str:
    """The service's address, without a slash at its end. own: the one that is set; empty: none.

    Raises UsageError for one that is neither this machine's nor the service's own: this must not be
    a way to send anything anywhere, so what is taken is a whole pattern, and nothing is parsed.
    """
    plain = said.strip().rstrip("/")
    local = _LOCAL.fullmatch(plain)
    if (local and int(local[1] or 80) < 1 << 16) or (plain and plain == own.rstrip("/")):
        return plain
    raise UsageError(
        "where the service listens is http://127.0.0.1 with its port, or what is set as "
        "TALLYHOOK_PUBLIC_URL"
    )


async def _sent(view: View, source: Source, url: str, *, reference: str) -> bool:
    now = view.context.clock.now()
    body = json.dumps(
        {
            "id": f"evt_{reference}",
            "type": "payment.pending",
            "occurred_at": format_instant(now),
            "environment": "sandbox",
            "data": {
                "order": {"reference": reference, "amount": 1, "currency": "KES"},
                "session": {"reference": f"cs_{reference}"},
                "payment": {"reference": f"pay_{reference}", "amount": 1, "currency": "KES"},
            },
        }
    ).encode()
    settings = SandboxSettings(webhook_url=url)
    async with webhook_client(settings, view.console.transport) as client:
        sender = WebhookSender(
            settings,
            client=client,
            signer=source,
            clock=view.context.clock,
            sleep=anyio.sleep,
        )
        return await sender.deliver_once(
            Parcel(event_id=f"evt_{reference}", signed=body, sent=body)
        )
