"""Wiring of a command: from settings to an open store with its context, and to no service.

What one command in many needs is loaded when it is needed: the time that a command takes to begin
is felt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import structlog

from app.config.database_place import sqlite_file
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock, SystemClock
from app.core.errors import ConfigurationError, UnreachableError
from app.core.phone_key import PhoneKey, make_phone_key, read_phone_key
from app.core.zones import zone_named
from app.database.database import Database
from app.database.engine import database_place, is_sqlite, sqlite_path
from app.database.postgresql import Purpose
from app.orders.order_facts import in_force_since, start_requiring
from app.receiving.inbox import open_inbox
from reconcile.ledger.policy import Policy

if TYPE_CHECKING:
    from app.orders.preview import Preview


def phone_key_path(settings: Settings) -> Path:
    """The file of the phone key: as set, else beside the database, else in `var`."""
    if settings.phones.key_file is not None:
        return settings.phones.key_file
    database = sqlite_file(settings.database_url)
    if database is None:
        return Path("var/tallyhook.phone.key")
    return database.with_name(f"{database.stem}.phone.key")


def phone_key(settings: Settings) -> PhoneKey:
    """The phone key, which is made where there is none. Raises ConfigurationError."""
    return make_phone_key(phone_key_path(settings))


def known_phone_key(settings: Settings) -> PhoneKey | None:
    """The phone key; None where none was made yet. Raises ConfigurationError."""
    return read_phone_key(phone_key_path(settings))


def erasure_journal_path(settings: Settings) -> Path | None:
    """The journal of erasures: as set, else beside the database; None on PostgreSQL without one."""
    if settings.erasure_journal is not None:
        return settings.erasure_journal
    database = sqlite_file(settings.database_url)
    return None if database is None else database.with_name(f"{database.stem}.erasures")


log = structlog.get_logger()


@asynccontextmanager
async def open_context(settings: Settings, *, purpose: Purpose) -> AsyncIterator[AppContext]:
    """A context on a database of its own, for a purpose: see `Database.open`."""
    new = purpose == "writing" and no_database_yet(settings)
    async with open_inbox(settings, purpose=purpose) as inbox:
        key = known_phone_key(settings) if purpose == "reading" else phone_key(settings)
        clock = SystemClock()
        serving = purpose == "working"
        policy = await policy_of(inbox.database, settings, clock=clock, serving=serving)
        context = replace(
            inbox.context(clock=clock, policy=policy),
            phone_key=key,
            erasure_journal=erasure_journal_path(settings),
            **of_merchant(settings),
        )
        if purpose in ("working", "writing"):  # to a database that was put back, `restored` sees
            await begin_erasure_journal(context)
        if new:  # of a command: its words, and what it gives, are then of no service that runs
            place = database_place(settings.database_url)
            log.warning("there was no database: a new one is made", database=place)
        yield context


def no_database_yet(settings: Settings) -> bool:
    """Whether an SQLite database is to be made: a path that is wrong, or relative to another
    folder, makes one as well."""
    url = settings.database_url
    return is_sqlite(url) and not sqlite_path(url).exists()


class OfMerchant(TypedDict):
    """What a context has of the merchant; `AppContext` says what each is."""

    zone: tzinfo | None
    phone_country: str
    merchant: str


def of_merchant(settings: Settings) -> OfMerchant:
    """What a context has of the merchant, by the settings."""
    return {
        "zone": zone_named(settings.timezone) if settings.timezone else None,
        "phone_country": settings.phone_country,
        "merchant": settings.merchant,
    }


async def policy_of(
    database: Database, settings: Settings, *, clock: Clock, serving: bool
) -> Policy:
    """By what orders are judged: the settings, and since when the database has one of them."""
    required = settings.requires_order_record
    if serving:
        since = await start_requiring(database, required=required, clock=clock)
    else:
        since = await in_force_since(database, required=required)
    return settings.policy(required_since=since)


async def begin_erasure_journal(context: AppContext) -> None:
    """The journal of erasures is made with the database. Where it cannot be, money is received all
    the same: an erasure reports it."""
    from app.privacy.replay_erasures import begin_journal

    try:
        await begin_journal(context)
    except (ConfigurationError, UnreachableError) as error:
        log.warning("the journal of erasures could not be made", exc_info=error)


async def upgrade_database(settings: Settings) -> tuple[str | None, str]:
    """Run the migrations that are due. Returns the versions before and after."""
    database = Database(settings)
    try:
        return await database.upgrade()
    finally:
        await database.close()


async def create_database(settings: Settings, *, anew: bool) -> Path:
    """Make an SQLite database where there is none; anew: also where there was one. Returns its
    file. Raises UsageError on PostgreSQL, and where there is one."""
    database = Database(settings)
    try:
        return await database.create(anew=anew)
    finally:
        await database.close()


async def preview_upgrade(settings: Settings, *, progress: Callable[[int, int], None]) -> Preview:
    """What `upgrade_database` and the start after it would do. Nothing is written."""
    from app.orders.policy_version_store import required_since
    from app.orders.preview import previewed

    database = Database(settings)
    try:
        async with database.previewing() as (connection, version):
            required = settings.requires_order_record
            since = await required_since(connection) if required else None
            policy = settings.policy(required_since=since)
            return await previewed(connection, version=version, policy=policy, progress=progress)
    finally:
        await database.close()
