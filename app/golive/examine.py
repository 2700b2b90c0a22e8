"""Run the checks of `tallyhook doctor` and the checklist."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import httpx2

from app.access.company_account import BACK, CompanyProvider
from app.access.tokens import ending_soon
from app.checkout.client import client_settings
from app.config.database_url import sqlite_file
from app.config.load import load_settings
from app.config.settings import Settings
from app.context.configured import compile_sources, keep_profiles, questions_of, signer_of_section
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, TallyhookError, UsageError
from app.core.http import exchange, outgoing_client
from app.database.facts import database_facts
from app.golive import golive
from app.monitoring import preflight
from app.monitoring.preflight import Check
from app.monitoring.service_note import changed_settings, noted_service
from app.monitoring.watchdog import Watched, alarms, unallocated_words
from app.orders.delivery_log import list_deliveries
from app.orders.order_facts import in_force_since
from app.orders.reindex import sources_read_otherwise
from app.orders.service_holds import gaps_with_holds
from app.orders.unallocated import unallocated_totals
from app.privacy.erasure_journal import VARIABLE as JOURNAL
from app.privacy.erasure_journal import key_path_of
from app.privacy.fit_journal import journal_state
from app.providers.profile import load_profile
from app.providers.provider_client import PROBE_LIMIT_S, probe
from app.receiving.caught_up import behind_s
from app.receiving.delivery_log_store import LogEntry
from app.receiving.inbox import open_inbox
from app.receiving.phone_store import is_other_key, key_in_use
from app.receiving.source_state import explained_states
from app.sandbox.settings import SANDBOX_TOKEN
from app.sealing.log_store import identity


def problems_of_sources(settings: Settings) -> list[str]:
    """Return every mistake in profiles, secrets and credentials."""
    problems: list[str] = []
    for check in (compile_sources, questions_of, _check_token, _check_signers):
        try:
            check(settings)
        except ConfigurationError as error:
            problems += error.problems
    return problems


def _check_token(settings: Settings) -> None:
    source = settings.sources.get(settings.checkout.source or "")
    if settings.checkout.base_url is None or settings.checkout.token is None or source is None:
        return
    try:
        load_profile(source.profile)
    except ConfigurationError:
        return  # reported when it is compiled
    client_settings(settings)


def _check_signers(settings: Settings) -> None:
    problems: list[str] = []
    for section in ("shop", "reports", "alarms"):
        secret = getattr(settings, section).secret
        if secret is not None:
            try:
                signer_of_section(section, secret)
            except ConfigurationError as error:
                problems += error.problems
    if problems:
        raise ConfigurationError(problems)


EVIDENCE = "TALLYHOOK_EVIDENCE__KEY_FILE"
PHONES = "TALLYHOOK_PHONES__KEY_FILE"


async def examine(environ: Mapping[str, str] | None = None) -> list[Check]:
    """Return all checks of `tallyhook doctor`, the most urgent first."""
    try:
        settings = load_settings(environ, serving=True, also=problems_of_sources)
    except ConfigurationError as error:
        return list(preflight.of_configuration(error.problems))
    checks = [preflight.ok("configuration", f"Whole, for {settings.environment}.")]
    checks.append(preflight.of_merchant())
    checks += [preflight.weak("configuration", f"{warning}.") for warning in settings.warnings]
    checks += [preflight.of_secret_file(name, _mode(path)) for name, path in secret_files(settings)]
    async with outgoing_client(timeout_s=PROBE_LIMIT_S) as client:
        checks += await _database(settings, client)
        checks += await _services(settings, client)
    if (folder := settings.import_folder) is not None:
        usable = folder.is_dir() and _may_write_to(folder)
        checks.append(preflight.of_import_folder(folder, usable=usable))
    for name, source in settings.sources.items():
        checks += preflight.of_profile(name, load_profile(source.profile))
    return checks


def secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield (setting, path) for every file with a secret."""
    for name, source in settings.sources.items():
        if source.secrets_file is not None:
            yield f"TALLYHOOK_SOURCES__{name.upper()}__SECRETS_FILE", source.secrets_file
    if settings.checkout.token_file is not None:
        yield "TALLYHOOK_CHECKOUT__TOKEN_FILE", settings.checkout.token_file
    if settings.shop.secret_file is not None:
        yield "TALLYHOOK_SHOP__SECRET_FILE", settings.shop.secret_file
    if settings.oidc.client_secret_file is not None:
        yield "TALLYHOOK_OIDC__CLIENT_SECRET_FILE", settings.oidc.client_secret_file
    journal = settings.erasure_journal_path
    own = list(key_files(settings).items())
    if journal is not None:
        own += [(JOURNAL, journal), (f"{JOURNAL} (its key)", key_path_of(journal))]
    for variable, path in own:
        if _may_be_there(path):  # else the first start makes it
            yield variable, path


def key_files(settings: Settings) -> dict[str, Path]:
    """Return the paths of generated key files, by setting."""
    return {EVIDENCE: settings.evidence_key_path, PHONES: settings.phone_key_path}


def _may_be_there(path: Path) -> bool:
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


def _may_write_to(folder: Path) -> bool:
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return os.access(there, os.W_OK | os.X_OK)


async def of_running_service(context: AppContext, client: httpx2.AsyncClient) -> list[Check]:
    """Compare the settings with the running service's."""
    note, key = await noted_service(context), context.phone_key
    if note is None:
        return []
    address = f"{note.address}/readyz"
    answer = await exchange(client, "GET", address, headers={}, limit_s=PROBE_LIMIT_S)
    keep_profiles(context.settings)
    changed = [] if key is None else changed_settings(note, context.settings, key)
    return [*preflight.of_settings(changed), *preflight.of_service(note, answer)]


async def _database(settings: Settings, client: httpx2.AsyncClient) -> list[Check]:
    file = sqlite_file(settings.database_url)
    if file is not None:
        folder = file.absolute().parent
        if found := list(preflight.of_database_folder(folder, writable=_may_write_to(folder))):
            return found  # else its other files would be reported, which are not the cause
    try:
        async with open_inbox(settings, purpose="reading") as inbox:
            context = inbox.context(clock=SystemClock())
            pooled = await inbox.database.is_pooled()
            async with inbox.database.reading() as connection:
                facts = await database_facts(connection, pooled=pooled)
                checks = list(preflight.of_database(facts))
                key, used = context.phone_key, await key_in_use(connection)
                needed = {EVIDENCE: await identity(connection), PHONES: used}
                others = key is not None and await is_other_key(connection, used, key.name)
            checks += await of_running_service(context, client)
            checks += preflight.of_phone_notes(PHONES, others=others)
            checks += preflight.of_readings(await sources_read_otherwise(context))
            checks.append(
                preflight.of_order_records(
                    required=settings.requires_order_record,
                    since=await in_force_since(context),
                    live=settings.environment == "live",
                )
            )
            checks += preflight.of_erasure_journal(JOURNAL, await journal_state(context))
            totals = await unallocated_totals(context)
            raised = await alarms(Watched(context, unallocated=totals))
            checks += [preflight.of_alarm(name, alarm) for name, alarm in raised.items()]
            if totals.count and "unallocated" not in raised:
                checks.append(preflight.of_unallocated(unallocated_words(totals)))
            checks += [
                preflight.of_gap(gap, held=held) for gap, held in await gaps_with_holds(context)
            ]
            checks += preflight.of_tokens(await ending_soon(context))
            checks += [preflight.of_source(each) for each in await explained_states(context)]
            free = inbox.database.writer.space.free_bytes()
    except TallyhookError as error:
        return [preflight.of_no_database(error)]
    for variable, path in key_files(settings).items():
        needs = needed[variable] is not None
        checks += preflight.of_key_file(variable, there=_may_be_there(path), needed=needs)
    low_water = settings.disk_low_water_mb
    return checks + list(preflight.of_disk(free, low_water_mib=low_water))


async def _services(settings: Settings, client: httpx2.AsyncClient) -> list[Check]:
    clock, checks = SystemClock(), list[Check]()
    provider = settings.checkout.base_url
    if provider is None:
        checks.append(
            preflight.weak(
                "provider",
                "No service address is configured, so this was not checked.",
                "set TALLYHOOK_CHECKOUT__BASE_URL if this service opens sessions",
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
    if settings.oidc.issuer is not None:
        company = CompanyProvider(settings.oidc, back=BACK, clock=clock)
        checks.append(preflight.of_company(settings.oidc.issuer, await company.problem()))
    return checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Results of the checks before going live."""

    doctor: list[Check]
    checklist: list[golive.ChecklistItem]


CHECKS_LIMIT_S: Final = 120.0
"""Time limit for all checks in the console, in seconds."""


async def check_all(context: AppContext) -> Checked:
    """Run all checks. Raises UsageError after the time limit."""
    try:
        async with asyncio.timeout(CHECKS_LIMIT_S):
            doctor = await examine()
            found = await check_now(context)
    except TimeoutError:
        raise UsageError(
            f"the checks took longer than {CHECKS_LIMIT_S:.0f} s, so something does not answer: "
            "run `tallyhook doctor` and `tallyhook golive` on the machine"
        ) from None
    await golive.checklist(context, found)
    return Checked(doctor=doctor, checklist=found)


# --- checks of the checklist's items --------------------------------------------------------------


async def check_now(context: AppContext) -> list[golive.ChecklistItem]:
    """Check the checklist's items that a program can check."""
    from app.finance.match_rules import current_rules, rules_of  # a fifth of a receiver's start

    sources, configured = context.sources, context.settings.sources
    unmarked = [name for name, each in sources.items() if not each.profile.environment.where]
    rules = rules_of(await current_rules(context))
    return [
        golive.keys_item(
            list(_key_problems(context)),
            sources=bool(sources),
            starts_payments=context.settings.checkout.token is not None,
        ),
        await _tried(context),
        golive.separation_item(context.database.environment or "no environment", unmarked=unmarked),
        golive.sharing_item(
            unknown=[name for name, each in configured.items() if each.shared == "unknown"],
            apart=[name for name, each in configured.items() if each.shared == "yes"],
        ),
        golive.limits_item(currencies=list(rules.alone_max)),
    ]


def _key_problems(context: AppContext) -> Iterator[str]:
    try:
        load_settings(serving=True, also=problems_of_sources)
    except ConfigurationError as error:
        yield from error.problems
    token = context.settings.checkout.token
    live = context.database.environment == "live"
    if live and token is not None and token.get_secret_value() == SANDBOX_TOKEN:
        yield "TALLYHOOK_CHECKOUT__TOKEN: is the simulated provider's token; write the live one"


async def _tried(context: AppContext) -> golive.ChecklistItem:
    address = context.settings.public_url
    trials = []
    async with outgoing_client(timeout_s=golive.TRIAL_LIMIT_S) as client:
        for name, source in context.sources.items() if address else ():
            before = {each.delivery_id for each in await _newest(context, name)}
            arrived = partial(_arrived, context, name, before=before)
            trials.append(
                await golive.try_endpoint(
                    client,
                    source,
                    url=f"{address}{source.path}",
                    now=context.clock.now(),
                    arrived=arrived,
                )
            )
    return golive.webhook_item(trials, public_url=address)


MOST_BESIDE: Final = 2_000
"""Maximum number of newest deliveries that are searched."""


async def _newest(context: AppContext, source: str) -> list[LogEntry]:
    page = await list_deliveries(context, limit=MOST_BESIDE, source=source, refused=False)
    return page.entries


async def _arrived(context: AppContext, source: str, digest: str, *, before: set[str]) -> bool:
    await behind_s(context)
    found = await _newest(context, source)
    return any(each.digest == digest and each.delivery_id not in before for each in found)
