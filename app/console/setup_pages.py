"""Setup page, which shows each source's address, deliveries and advice. In the sandbox, the page
also sends test events."""

import asyncio
import re
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from app.access.operators import note_in_trail, permitted
from app.config.load import load_settings
from app.console.view import Act, ActionResult, Document, Field, Form, View
from app.context.configured import keep_profiles
from app.context.context import AppContext
from app.core.errors import ConfigurationError, UsageError
from app.core.http import Exchange
from app.core.ids import new_id
from app.core.recorded import Recorded, send_on
from app.monitoring.preflight import Check, of_configuration, of_readings, of_settings
from app.monitoring.service_note import changed_settings, noted_service
from app.orders.delivery_log import last_came
from app.orders.reindex import sources_read_otherwise
from app.orders.service_holds import gaps_with_holds
from app.providers.connecting import names_no_order, setup_facts
from app.providers.examples import WantedEvent, examples_of, shape_event
from app.providers.source import Source
from app.receiving.source_state import SourceState, explained_states
from reconcile.instants import format_known

LIMIT_S: Final = 10.0
"""Maximum number of seconds to wait for the service's answer."""

SERVE: Final = "http://127.0.0.1:8080"


async def setup_document(view: View) -> Document:
    unknown = (await last_came(view.context, ""))[1]
    changed = await sources_read_otherwise(view.context)
    return {
        "settings": [asdict(each) for each in await _settings(view.context)],
        "receiver": view.context.settings.public_url or None,
        "unknown_refused": format_known(unknown),
        "gaps": [
            {
                "what": f"{gap.sentence()}.",
                "accepted_by": gap.accepted_by,
                "accepted_at": format_known(gap.accepted_at),
                "reason": gap.reason,
                "held": held,
            }
            for gap, held in await gaps_with_holds(view.context)
        ],
        "sources": [
            await _source(view, state, changed=state.source in changed)
            for state in await explained_states(view.context)
        ],
    }


async def _settings(context: AppContext) -> list[Check]:
    note, key = await noted_service(context), context.phone_key
    if note is None or key is None:
        return []
    try:
        settings = await asyncio.to_thread(load_settings, serving=True)
    except ConfigurationError as error:
        return list(of_configuration(error.problems))
    keep_profiles(settings)
    return list(of_settings(changed_settings(note, settings, key)))


async def _source(view: View, state: SourceState, *, changed: bool) -> dict[str, Any]:
    source = view.context.sources[state.source]
    taken, refused = await last_came(view.context, source.name)
    profile = source.profile
    places = {
        "order": profile.event.order,
        "session": profile.event.session,
        "payment": profile.event.payment,
        "refund": profile.event.movement,
        "phone number": profile.customer.phone,
    }
    return {
        "source": source.name,
        "address": f"{view.context.settings.public_url}{source.shown_path}",
        "profile": profile.name,
        "verifies_only": profile.verifies_only,
        "last_taken": format_known(taken),
        "last_refused": format_known(refused),
        "state": state.state,
        "since": format_known(state.since),
        "means": state.whole_sentence,
        "do": state.do,
        "reindex": [
            {"sentence": each.sentence, "do": each.do}
            for each in of_readings([state.source] if changed else [])
        ],
        "setup": setup_facts(profile),
        "events": [
            {"kind": kind, "claim": claim} for kind, claim in profile.claims if claim != "ignored"
        ],
        "fields": [
            {"name": name, "places": list(found)} for name, found in places.items() if found
        ],
        "testable": _testable(view, source),
    }


def _testable(view: View, source: Source) -> bool:
    return view.context.database.environment == "sandbox" and bool(examples_of(source.profile.name))


def _chosen(view: View) -> Source:
    name = view.choice("source", tuple(view.context.sources))
    source = None if name is None else view.context.sources[name]
    if source is None or not _testable(view, source):
        raise UsageError(
            "no test event can be sent for this source, because this needs the sandbox and an "
            "example event in the profile: have the provider send an event"
        )
    return source


async def ask_test_event(view: View) -> Form:
    source = _chosen(view)
    examples = examples_of(source.profile.name)
    return Form(
        source.name,
        "/setup",
        "An event from the provider's documentation is signed with the source's secret, and sent "
        "to the service like a real webhook"
        + (
            ", about an order whose reference begins with TEST."
            if source.profile.event.order
            else "."
        ),
        "If it is accepted, the address, secret and profile are right. The data that it creates "
        "stays in this sandbox.",
        *((UNCONFIRMED,) if source.profile.unconfirmed else ()),
        reason=False,
        fields=(
            Field(
                "event",
                "Which event",
                choices=tuple(
                    (each.name, f"{each.event} ({each.name.replace('_', ' ')})")
                    for each in examples
                ),
                value=next((e.name for e in examples if e.name == "succeeded"), examples[0].name),
            ),
            Field(
                "service",
                "Where the service listens",
                value=view.context.settings.public_url or SERVE,
                hint="This machine, or the address that is set as TALLYHOOK_PUBLIC_URL.",
            ),
        ),
    )


UNCONFIRMED: Final = (
    "Events of this provider count only after the provider confirms them. It does not know this "
    "one, so its order stays pending."
)


async def do_test_event(view: View, reason: str) -> ActionResult:
    source = _chosen(view)
    service = service_address(view.given.get("service", ""), own=view.context.settings.public_url)
    known = {each.name: each for each in examples_of(source.profile.name)}
    example = known.get(view.given.get("event", ""))
    if example is None:
        raise UsageError("choose one of the provider's events")
    now = view.context.clock.now()
    reference = new_id("TEST-", now)[:20].upper() if source.profile.event.order else None
    async with view.context.database.writing() as connection:
        who = await permitted(connection, by=view.person.name, action="test_event_sent")
        await note_in_trail(
            connection,
            who,
            action="test_event_sent",
            subject=source.name,
            at=now,
            facts={"event": example.event} | ({} if reference is None else {"order": reference}),
        )
    service_path = f"{service}{source.path}"
    # Signed for the address configured at the provider.
    known_as = f"{view.context.settings.public_url or SERVE}{urlsplit(service_path).path}"
    signed = shape_event(source, example, WantedEvent(order=reference), now=now, url=known_as)
    query = urlsplit(signed.url).query
    request = Recorded(
        method=example.method,
        url=f"?{query}" if query else "",
        headers=signed.headers,
        body=signed.body,
    )
    async with httpx2.AsyncClient(transport=view.console.transport, trust_env=False) as client:
        answer = await send_on(client, request, service_path, limit_s=LIMIT_S)
    nameless = names_no_order(source.profile) if reference is None else None
    return _outcome(answer, service, reference, nameless=nameless)


def _outcome(
    answer: Exchange, service: str, reference: str | None, *, nameless: str | None
) -> ActionResult:
    if answer.taken:
        about = "" if reference is None else f" of order {reference}"
        return ActionResult(
            "The event was accepted",
            "/deliveries",
            f"The service answered that it keeps the event{about}; it appears among the "
            "deliveries within a second and, if it belongs to an order, among the orders.",
            *([] if nameless is None else [nameless]),
        )
    if answer.status is None:
        sentence = f"Nothing at {service} answered: does the service run, and listen there?"
    else:
        sentence = (
            f"The service refused it with {answer.status}. The list of deliveries shows it, with "
            "the mistake that would explain it."
        )
    return ActionResult("The event was not accepted", "/deliveries", sentence)


_LOCAL: Final = re.compile(
    r"http://(?:127\.0\.0\.1|localhost|\[::1\])(?::([1-9][0-9]{0,4}))?", re.ASCII
)


def service_address(given: str, *, own: str) -> str:
    """Return the service's address without a slash at its end.

    Raises UsageError for any address but `own` or one on this machine.
    """
    plain = given.strip().rstrip("/")
    local = _LOCAL.fullmatch(plain)
    if (local and int(local[1] or 80) < 1 << 16) or (plain and plain == own.rstrip("/")):
        return plain
    raise UsageError(
        "enter http://127.0.0.1 with the service's port, or the address that is set as "
        "TALLYHOOK_PUBLIC_URL"
    )


ACTS: Final = (Act("Send a test event", "test_event_sent", ask_test_event, do_test_event),)
