"""An order's evidence as a scenario: what arrived, in which order and when, to be played again.

No secret, no phone number and no name is in it; bodies keep their amounts and their structure. The
simulated provider plays it, signed with a secret of its own, into any instance in sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.access.operators import note_deed, permitted
from app.core.errors import ConfigurationError, UsageError
from app.core.masking import Masking
from app.evidence.dossier import Dossier, Told
from app.evidence.gather_evidence import Providers, gather_dossier
from app.evidence.pseudonyms import FORMAT, Piece, Read, StandIns
from app.providers.fetched import is_answer
from app.providers.request import Headers
from app.providers.sections import Profile
from app.providers.unverified import ProfileReader
from app.receiving.context import AppContext
from reconcile.instants import Instant, format_instant
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import RecordKind
from reconcile.transparency.evidence import history_document

TOLD: Final[frozenset[RecordKind]] = frozenset(
    {"order_placed", "order_canceled", "order_fulfilled"}
)
"""Records that a replay can make: the shop tells them by the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario as JSON values. `left_out`: what a replay cannot make, one sentence each."""

    document: dict[str, Any]
    left_out: tuple[str, ...]


async def tell_scenario(
    context: AppContext, order: str, *, as_of: Instant | None, by: str | None, providers: Providers
) -> Scenario:
    """The scenario of an order as of an instant; the audit trail says who took it.

    Raises NotFoundError for no such order, UsageError where bodies were let go or cannot be freed
    of personal data.
    """
    async with context.store.reading() as connection:
        await permitted(connection, by=by, action="evidence_built")
    dossier = await gather_dossier(context, order, as_of=as_of, full=True, providers=providers)
    scenario = scenario_of(dossier, providers)
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="evidence_built")
        await note_deed(
            connection,
            who,
            action="evidence_built",
            subject=order,
            at=now,
            facts={"kind": "scenario", "as_of": format_instant(dossier.as_of)},
        )
    return scenario


def scenario_of(dossier: Dossier, providers: Providers) -> Scenario:
    """The scenario. Its expectation rests on what a replay can make, and on nothing else."""
    played, left_out = _playable(dossier)
    masking = Masking(dossier.phones)
    stand_ins = StandIns()
    steps = [_arrival(told, dossier, stand_ins, providers) for told in played]
    history = _only(dossier.history, played)
    records = history_document(history, policy=dossier.policy, as_of=dossier.as_of)["records"]
    steps += [{"at": each["recorded_at"], "record": each} for each in records]
    if not steps:
        raise UsageError("nothing is known of this order that could be played again")
    steps.sort(key=lambda step: step["at"])
    ledger = _settled(history, dossier, since=max(_moments(history)))
    document = {
        "format": FORMAT,
        "order": dossier.history.order,
        "sources": _sources(played, dossier),
        "policy": history_document(history, policy=dossier.policy, as_of=dossier.as_of)["policy"],
        "steps": steps,
        "expected": {"at": format_instant(ledger.as_of), **_expected(ledger)},
    }
    if masking.touches(json.dumps(document, ensure_ascii=False)):
        raise UsageError("a reference of this order holds a customer's number: no scenario of it")
    return Scenario(document=document, left_out=tuple(left_out))


def _playable(dossier: Dossier) -> tuple[list[Told], list[str]]:
    played, left_out = [], []
    for told in dossier.told:
        if is_answer(told.arrived.headers):
            left_out.append("what was fetched from the provider: a replay has nobody to ask")
        elif told.body is None:
            raise UsageError("bodies of this order were let go: there is nothing to play again")
        elif told.arrived.envelope is not None:
            raise UsageError("its events came with others in one request: no scenario can be told")
        else:
            played.append(told)
    if any(record.kind not in TOLD for record in dossier.history.records):
        left_out.append("its checkout session: a replay begins with the first webhook")
    return played, sorted(set(left_out))


def _only(history: History, played: list[Told]) -> History:
    wanted = {each.arrived.delivery_id for each in played}
    return History(
        order=history.order,
        deliveries=frozenset(d for d in history.deliveries if d.delivery_id in wanted),
        records=frozenset(r for r in history.records if r.kind in TOLD),
    )


def _moments(history: History) -> list[Instant]:
    heard = [each.received_at for each in history.deliveries]
    return heard + [each.recorded_at for each in history.records]


def _settled(history: History, dossier: Dossier, *, since: Instant) -> Ledger:
    """The ledger at the earliest instant from which on it is what it is at the scenario's end."""
    last = fold(history, policy=dossier.policy, as_of=dossier.as_of)
    ledger = fold(history, policy=dossier.policy, as_of=since)
    while _expected(ledger) != _expected(last) and ledger.next_decision_at is not None:
        ledger = fold(history, policy=dossier.policy, as_of=ledger.next_decision_at)
    return ledger


def _expected(ledger: Ledger) -> dict[str, Any]:
    document = ledger_document(ledger)
    return {
        "outcome": ledger.outcome,
        "fulfillable": ledger.fulfillable,
        "findings": [each["code"] for each in document["findings"]],
        "explanation": document["explanation"],
    }


def _arrival(
    told: Told, dossier: Dossier, stand_ins: StandIns, providers: Providers
) -> dict[str, Any]:
    arrived = told.arrived
    account = providers.accounts.get(arrived.source)
    if account is None:
        raise UsageError(f"source {arrived.source} is no longer configured: its bodies stay unread")
    delivery = next(
        each for each in dossier.history.deliveries if each.delivery_id == arrived.delivery_id
    )
    return {
        "at": format_instant(arrived.received_at),
        "source": arrived.source,
        "event_id": delivery.event.event_id,
        "verdict": arrived.verdict,
        "body": _body(told, account.profile, stand_ins),
    }


def _body(told: Told, profile: Profile, stand_ins: StandIns) -> list[Piece]:
    assert told.body is not None
    if profile.request.body != "json" or not told.body:
        raise UsageError(f"bodies of profile {profile.name} are not JSON: no scenario can be told")
    return stand_ins.body(told.body, _read(told, profile))


def _read(told: Told, profile: Profile) -> Read:
    try:
        reader = ProfileReader(told.arrived.source, profile)
    except ConfigurationError as error:
        raise UsageError(f"{error.problems[0]}: no scenario can be told") from None
    headers: Headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in told.headers]
    return lambda body: reader.read(body, digest="", headers=headers, url=told.url).events[0]


def _sources(played: list[Told], dossier: Dossier) -> list[Mapping[str, str]]:
    names = {each.arrived.source for each in played}
    return [
        {"source": each.source, "profile": each.profile, "text": each.text.decode()}
        for each in dossier.profiles
        if each.source in names
    ]
