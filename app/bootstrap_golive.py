"""Wiring: the checks of the go-live checklist, from the configuration and over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import httpx2

from app.access.tokens import ending_soon
from app.bootstrap import watched
from app.bootstrap_context import (
    erasure_journal_path,
    known_phone_key,
    phone_key_path,
    policy_of,
)
from app.bootstrap_evidence import key_path
from app.bootstrap_sources import checkout_settings, compile_sources, problems_of_sources
from app.checkout.client import CheckoutClient
from app.config.load import load_settings
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, TallyhookError
from app.core.http import outgoing_client
from app.database.facts import database_facts
from app.golive import golive, rehearse
from app.monitoring import preflight
from app.monitoring.preflight import Check
from app.monitoring.watchdog import alarms
from app.orders.delivery_log import list_deliveries
from app.privacy.erasure_journal import VARIABLE as JOURNAL
from app.privacy.erasure_journal import key_path_of
from app.privacy.replay_erasures import journal_state
from app.providers.profile import load_profile
from app.providers.provider_client import PROBE_LIMIT_S, probe
from app.providers.source import Source
from app.receiving.caught_up import behind_s
from app.receiving.delivery_log_store import LogEntry
from app.receiving.inbox import open_inbox
from app.receiving.phone_store import a_note, has_other_keys
from app.sandbox.settings import SANDBOX_TOKEN
from app.sealing.log_store import identity


async def play(
    context: AppContext,
    settings: Settings,
    *,
    patience_s: float | None,
    progress: Callable[[rehearse.RehearsedScenario], None],
) -> list[rehearse.RehearsedScenario]:
    """Every scenario that has a number. Raises ConfigurationError where there is no provider, or
    in live no number."""
    given = {name: each.get_secret_value() for name, each in settings.rehearsal.numbers.items()}
    plan = rehearse.RehearsalPlan(
        numbers=rehearse.numbers_for(given, environment=context.database.environment),
        amount=settings.rehearsal.amount,
        currency=settings.rehearsal.currency,
        patience_s=patience_s,
    )
    async with CheckoutClient(checkout_settings(settings)) as client:
        return await rehearse.rehearse(context, client, plan=plan, progress=progress)


EVIDENCE = "TALLYHOOK_EVIDENCE__KEY_FILE"
PHONES = "TALLYHOOK_PHONES__KEY_FILE"


async def examine(environ: Mapping[str, str] | None = None) -> list[Check]:
    """Everything there is to say, in the order in which it should be mended."""
    try:
        settings = load_settings(environ, serving=True, also=problems_of_sources)
    except ConfigurationError as error:
        return list(preflight.of_configuration(error.problems))
    checks = [preflight.ok("configuration", f"Whole, for {settings.environment}.")]
    checks.append(preflight.of_merchant())
    checks += [preflight.weak("configuration", f"{warning}.") for warning in settings.warnings]
    checks += [preflight.of_secret_file(name, _mode(path)) for name, path in secret_files(settings)]
    checks += await _database(settings)
    async with outgoing_client(timeout_s=PROBE_LIMIT_S) as client:
        checks += await _services(settings, client)
    for name, source in settings.sources.items():
        checks += preflight.of_profile(name, load_profile(source.profile))
    return checks


def secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Every file that a secret came from, with its variable."""
    for name, source in settings.sources.items():
        if source.secrets_file is not None:
            yield f"TALLYHOOK_SOURCES__{name.upper()}__SECRETS_FILE", source.secrets_file
    if settings.checkout.token_file is not None:
        yield "TALLYHOOK_CHECKOUT__TOKEN_FILE", settings.checkout.token_file
    if settings.shop.secret_file is not None:
        yield "TALLYHOOK_SHOP__SECRET_FILE", settings.shop.secret_file
    journal = erasure_journal_path(settings)
    own = list(key_files(settings).items())
    if journal is not None:
        own += [(JOURNAL, journal), (f"{JOURNAL} (its key)", key_path_of(journal))]
    for variable, path in own:
        if _may_be_there(path):  # else the first start makes it
            yield variable, path


def key_files(settings: Settings) -> dict[str, Path]:
    """Where the keys lie that are made here, by the variable of each."""
    return {EVIDENCE: key_path(settings), PHONES: phone_key_path(settings)}


def _may_be_there(path: Path) -> bool:
    """Whether there is a file, or it cannot be looked at: then it is not reported as gone."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None


async def _database(settings: Settings) -> list[Check]:
    try:
        async with open_inbox(settings, purpose="reading") as inbox:
            async with inbox.database.reading() as connection:
                checks = list(preflight.of_database(await database_facts(connection)))
                needed = {EVIDENCE: await identity(connection), PHONES: await a_note(connection)}
                key = known_phone_key(settings)
                others = key is not None and await has_other_keys(connection, key.name)
            checks += preflight.of_phone_notes(PHONES, others=others)
            clock = SystemClock()
            policy = await policy_of(inbox.database, settings, clock=clock, serving=False)
            context = replace(
                inbox.context(clock=clock, policy=policy),
                erasure_journal=erasure_journal_path(settings),
            )
            checks.append(
                preflight.of_order_records(
                    required=settings.requires_order_record,
                    since=policy.require_order_record_since,
                    live=settings.environment == "live",
                )
            )
            checks += preflight.of_erasure_journal(JOURNAL, await journal_state(context))
            raised = await alarms(watched(context, settings))
            checks += [preflight.of_alarm(name, alarm) for name, alarm in raised.items()]
            checks += preflight.of_tokens(await ending_soon(context))
            free = inbox.database.writer.space.free_bytes()
    except TallyhookError as error:
        sentence = str(error)
        return [
            preflight.must(
                "database", f"{sentence[:1].upper()}{sentence[1:]}.", "then run this again"
            )
        ]
    for variable, path in key_files(settings).items():
        needs = needed[variable] is not None
        checks += preflight.of_key_file(variable, there=_may_be_there(path), needed=needs)
    low_water = settings.disk_low_water_mb
    return checks + list(preflight.of_disk(free, low_water_mib=low_water))


async def _services(settings: Settings, client: httpx2.AsyncClient) -> list[Check]:
    """The provider, whose clock counts, and the shop."""
    clock, checks = SystemClock(), list[Check]()
    provider = settings.checkout.base_url
    if provider is None:
        checks.append(
            preflight.weak(
                "provider",
                "No address is configured, so nothing was asked.",
                "set TALLYHOOK_CHECKOUT__BASE_URL where sessions are opened from here",
            )
        )
    else:
        before = clock.now()
        seen = await probe(client, provider)
        checks += preflight.of_reach("provider", seen, now=before)
        if seen.status is not None:
            checks.append(preflight.of_clock(seen, before=before, after=clock.now()))
    if settings.shop.url is not None:
        seen = await probe(client, settings.shop.url)
        checks += preflight.of_reach("shop", seen, now=clock.now())
    return checks


async def run_checklist(context: AppContext, settings: Settings) -> list[golive.ChecklistItem]:
    """Check what can be checked, and add what was rehearsed and stated."""
    return await golive.checklist(context, await check_now(context, settings))


async def check_now(context: AppContext, settings: Settings) -> list[golive.ChecklistItem]:
    """What can be checked: nothing is written down."""
    sources = compile_sources(settings)
    unmarked = [name for name, each in sources.items() if not each.profile.environment.where]
    return [
        golive.keys_item(
            list(_key_problems(context, settings)),
            sources=bool(sources),
            starts_payments=settings.checkout.token is not None,
        ),
        await _tried(context, settings, sources),
        golive.separation_item(context.database.environment or "no environment", unmarked=unmarked),
    ]


def _key_problems(context: AppContext, settings: Settings) -> Iterator[str]:
    try:
        load_settings(serving=True, also=problems_of_sources)
    except ConfigurationError as error:
        yield from error.problems
    token = settings.checkout.token
    live = context.database.environment == "live"
    if live and token is not None and token.get_secret_value() == SANDBOX_TOKEN:
        yield "TALLYHOOK_CHECKOUT__TOKEN: is the simulated provider's; write the live one"


async def _tried(
    context: AppContext, settings: Settings, sources: dict[str, Source]
) -> golive.ChecklistItem:
    address = settings.public_url
    trials = []
    async with outgoing_client(timeout_s=golive.TRIAL_LIMIT_S) as client:
        for name, source in sources.items() if address else ():
            before = {each.delivery_id for each in await _newest(context, name)}
            arrived = partial(_arrived, context, name, before=before)
            trials.append(
                await golive.try_endpoint(
                    client,
                    source,
                    url=f"{address}/webhooks/{name}",
                    now=context.clock.now(),
                    arrived=arrived,
                )
            )
    return golive.webhook_item(trials, public_url=address)


MOST_BESIDE: Final = 2_000
"""Deliveries of one source that may come while its endpoint is tried: those of a second or two."""


async def _newest(context: AppContext, source: str) -> list[LogEntry]:
    return await list_deliveries(
        context, verdict=None, limit=MOST_BESIDE, source=source, refused=False
    )


async def _arrived(context: AppContext, source: str, digest: str, *, before: set[str]) -> bool:
    """Whether a trial of this digest has been read since."""
    await behind_s(context)
    found = await _newest(context, source)
    return any(each.digest == digest and each.delivery_id not in before for each in found)
