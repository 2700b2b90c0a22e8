"""Open a context for a command, from its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock, SystemClock
from app.core.errors import ConfigurationError, UnreachableError
from app.core.logs import log
from app.core.phone_key import make_phone_key, read_phone_key
from app.database.database import Database
from app.database.engine import Connection, database_place, is_sqlite, sqlite_path
from app.database.postgresql import Purpose
from app.orders.order_facts import in_force_since, start_requiring
from app.receiving.inbox import Inbox, open_inbox
from app.receiving.phone_store import claim_key, is_other_key, key_in_use

if TYPE_CHECKING:
    from app.orders.preview import Preview


@asynccontextmanager
async def open_context(
    settings: Settings, *, purpose: Purpose, clock: Clock | None = None
) -> AsyncIterator[AppContext]:
    """Open the database in the settings, with its inbox, for a purpose. See `Database.open`."""
    new = purpose == "writing" and no_database_yet(settings)
    async with open_inbox(settings, purpose=purpose) as inbox:
        writes = purpose in ("serving", "working", "writing")
        if writes:
            await _check_phone_key(inbox.database, settings.phone_key_path)
        if purpose != "reading":
            make_phone_key(settings.phone_key_path)
        context = inbox.context(clock=clock or SystemClock())
        _ = context.phone_key  # an invalid key file stops the start
        serving = purpose in ("serving", "working")
        since = await (start_requiring if serving else in_force_since)(context)
        context = replace(context, policy=settings.policy(required_since=since))
        if serving:
            from app.orders.reindex import note_first_readings

            await note_first_readings(context)
        if (watch := inbox.database.watch) is not None:
            watch.follow = partial(_follow_takeover, context)
        if writes:
            # `restored` handles a restored database.
            await _begin_erasure_journal(context)
        if new:  # a command then describes no running service
            place = database_place(settings.database_url)
            log.warning("there was no database, so a new one is created", database=place)
        yield context


async def _check_phone_key(database: Database, path: Path) -> None:
    key = read_phone_key(path)
    async with database.reading() as connection:
        used = await key_in_use(connection)
        strange = await is_other_key(connection, used, bytes(4) if key is None else key.name)
    if used is None and not strange:
        key = make_phone_key(path)
        async with database.writing() as connection:
            strange = not await claim_key(connection, key.name)
    if strange:
        raise ConfigurationError(
            [
                "TALLYHOOK_PHONES__KEY_FILE: "
                + (f"{path} does not hold" if key else f"{path} is missing, and it held")
                + " the key that this database uses for customers' numbers: restore that file from "
                "your backup; if it is lost, run `tallyhook reindex`, which stores the numbers "
                "with " + ("this key" if key else "a new one")
            ]
        )


def no_database_yet(settings: Settings) -> bool:
    """Check whether this start would create an SQLite database."""
    url = settings.database_url
    return is_sqlite(url) and not sqlite_path(url).exists()


async def _follow_takeover(context: AppContext, connection: Connection) -> None:
    from app.privacy.gap import follow_takeover

    await follow_takeover(connection, at=context.clock.now())


async def _begin_erasure_journal(context: AppContext) -> None:
    from app.privacy.fit_journal import begin_journal

    try:
        await begin_journal(context)
    except (ConfigurationError, UnreachableError) as error:
        log.warning("the journal of erasures could not be created", exc_info=error)


async def upgrade_database(settings: Settings) -> tuple[str | None, str]:
    """Run the pending migrations. Return the database's versions before and after."""
    inbox = Inbox(settings, purpose="upgrading")
    try:
        return await inbox.database.upgrade()
    finally:
        await inbox.close()


async def distribute_database(settings: Settings) -> list[str]:
    """Distribute the local tables over a Citus cluster, and return their names.

    Raises UsageError without a cluster, or while another process serves the database.
    """
    database = Database(settings, purpose="alone")
    try:
        return await database.distribute()
    finally:
        await database.close()


async def create_database(settings: Settings, *, anew: bool) -> Path:
    """Create an SQLite database, and return its file.

    If `anew` is set, an earlier database may be missing. Raises UsageError on PostgreSQL, and if
    the database exists.
    """
    database = Database(settings)
    try:
        return await database.create(anew=anew)
    finally:
        await database.close()


async def preview_upgrade(settings: Settings, *, progress: Callable[[int, int], None]) -> Preview:
    """Return what `upgrade_database` and the following start would change. Nothing is written."""
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
