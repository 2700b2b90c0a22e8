"""Let a person accept a gap, in which commits or deliveries can be lost.

1 check    the whole file, which can mix old and new pages
2 store    the gap, with the person's reason and an audit entry
3 go on    reading the inbox file after its last deleted row
"""

from app.access.operators import SERVICE, note_in_trail, owner
from app.config.settings import Settings
from app.core.clock import Clock
from app.core.errors import ConfigurationError, StoreUnavailable, UsageError
from app.database.database import Database
from app.database.engine import Connection
from app.database.facts import damage
from app.database.faults import PUT_BACK
from app.database.gaps import ACCEPT, FoundGap, add_gap
from app.database.statements import run
from app.database.takeover import accept_gap_of_server
from app.orders import published_store, shop_facts_store
from app.receiving.inbox import open_inbox
from app.receiving.inbox_file_store import facts_at
from app.receiving.inbox_store import go_on_from
from reconcile.instants import Instant


async def accept_found(
    settings: Settings, *, reason: str, clock: Clock, follow: bool = True
) -> FoundGap:
    """Accept that a database lost commits, before anybody uses it. Return the gap.

    Raise UsageError without a loss, or for a server with `follow`, and StoreUnavailable for a
    damaged file.
    """
    await bring_up_to_date(settings)
    async with open_inbox(settings, purpose="alone", refuses_gap=False) as inbox:
        found, path, at = await inbox.gap(), inbox.database.path, clock.now()
        check_accepted(found, reason, command="tallyhook serve")
        assert found is not None
        if follow and path is None:  # erased data may be back
            raise UsageError("after a takeover, use `tallyhook db restored` with the same options")
        async with inbox.database.reading() as connection:  # 1
            problems = await damage(connection, thorough=True)
        if problems:
            raise StoreUnavailable(f"{problems[0]}: {PUT_BACK}")
        async with inbox.database.writing() as connection:
            await accept_gap(connection, found, at=at, reason=reason)
            if path is not None:
                await follow_loss(connection, at=at)
            file = None if path is None else facts_at(path)
            if file is not None:
                await run(connection, go_on_from, file)  # 3
            await run(connection, accept_gap_of_server)
    return found


async def bring_up_to_date(settings: Settings) -> None:
    """Upgrade a database that nobody serves."""
    database = Database(settings)
    try:
        await database.upgrade()
    finally:
        await database.close()


async def follow_takeover(connection: Connection, *, at: Instant) -> None:
    """Continue after a standby's takeover without loss."""
    head, first = await _jump(connection, at=at)
    await note_in_trail(
        connection,
        SERVICE,
        action="took_over",
        subject="database",
        at=at,
        facts={"head": head, "first": first},
    )


async def accept_gap(connection: Connection, found: FoundGap, *, at: Instant, reason: str) -> None:
    """Store a gap that the machine's owner accepts, in the caller's transaction."""
    who = owner()
    gap = found.accepted(at=at, by=who.name, reason=reason)
    await run(connection, add_gap, gap)  # 2
    await note_in_trail(
        connection, who, action="gap_accepted", subject=gap.id, at=at, reason=reason
    )


def check_accepted(found: FoundGap | None, accepts: str | None, *, command: str) -> None:
    """Raise ConfigurationError for an unaccepted gap, and UsageError for a needless acceptance."""
    if found is not None and accepts is None:
        raise ConfigurationError(
            [f"TALLYHOOK_DATABASE_URL: {found.sentence()}; to continue, run `{command} {ACCEPT}`"]
        )
    if found is None and accepts is not None:
        raise UsageError("nothing is missing: leave out --accept-gap and --reason")


async def follow_loss(connection: Connection, *, at: Instant, given: int = 0) -> int:
    """Repair the feed and the shop's facts after a loss.

    Return the feed's next number.
    """
    _, first = await _jump(connection, at=at, given=given)
    await shop_facts_store.note_loss(connection, at=at)
    return first


async def _jump(connection: Connection, *, at: Instant, given: int = 0) -> tuple[int, int]:
    head = await published_store.head_of(connection)
    first = published_store.first_after_restore(head, at, given=given)
    await published_store.go_on_from(connection, first)
    return head, first
