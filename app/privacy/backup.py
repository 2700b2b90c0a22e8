"""Back up an SQLite database while it is served, and restore a backup.

The steps of a restore:

1 lock     the database against all other processes
2 copy     the backup to a file beside the database, and check the copy
3 open     the copy, and upgrade its schema
4 erase    repeat erasures since the backup (`replay_after_restore`)
5 prepare  the restored database for its first start (`follow_on`)
6 switch   rename the present database, and give its name to the copy

Nothing is changed before the last step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from app.access import session_store
from app.access.operators import note_in_trail, owner
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.errors import ConfigurationError, NotFoundError, StoreUnavailable, UsageError
from app.core.text import LEAF, counted
from app.database.database import Database
from app.database.engine import Connection, is_sqlite, sqlite_path
from app.database.gaps import FoundGap
from app.database.schema import SUFFIX as MADE
from app.database.schema import Made
from app.database.statements import run
from app.database.takeover import note_server
from app.evidence import seal
from app.orders.ledger_store import last_revision
from app.privacy import backup_store
from app.privacy.copies import shown_name
from app.privacy.gap import accept_gap, bring_up_to_date, check_accepted, follow_loss
from app.privacy.replay_erasures import ErasureReplay, Replayed, Without, replay_after_restore
from app.receiving import inbox_file_store, inbox_loss_store, inbox_store
from app.receiving.inbox import Inbox, open_inbox
from app.sealing import log_queue_store, log_store
from reconcile.instants import SECOND, Instant

Result = TypeVar("Result")

_POSTGRESQL: Final = (
    "this is a PostgreSQL database: use `pg_dump --format=custom`, or `pg_basebackup` and a log "
    "archive for any point in time"
)

_OURS: Final = (
    *(
        f"{file}{name}"
        for file in ("", inbox_file_store.SUFFIX)
        for name in ("", "-wal", "-shm", "-journal")
    ),
    *(".serving", ".writing", ".waiting", ".reading", MADE),
)


async def rewrite(context: AppContext) -> None:
    """Rewrite an SQLite file without the remains of deleted rows. Raise UsageError for
    PostgreSQL."""
    if context.database.shared:
        raise UsageError(
            "on PostgreSQL, use its own command VACUUM (FULL) instead; it locks the tables"
        )
    await context.database.writer.rewrite()
    await context.inbox.rewrite()


async def back_up(
    settings: Settings,
    target: Path,
    *,
    replace: bool,
    progress: backup_store.Progress,
) -> backup_store.Contents:
    """Copy the database to `target`, which appears when complete.

    Raise UsageError for an existing file without `replace`, and ConfigurationError for another
    environment's database.
    """
    source = file_of(settings.database_url, instead=_POSTGRESQL)
    _check_target(source, target, replace=replace)

    def work(watched: backup_store.Progress) -> backup_store.Contents:
        with backup_store.copied(source, target, progress=watched) as (part, contents):
            if settings.environment not in (None, contents.environment):
                raise ConfigurationError(
                    [f"TALLYHOOK_ENVIRONMENT: this database belongs to {contents.environment}"]
                )
            backup_store.put_in_place(part, target)
        return contents

    return await in_thread(work, progress)


def file_of(url: str, *, instead: str) -> Path:
    """Return the path of the database's file. Raise UsageError for PostgreSQL."""
    if not is_sqlite(url):
        raise UsageError(instead)
    return sqlite_path(url)


def _check_target(source: Path, target: Path, *, replace: bool) -> None:
    Made(source).check_there()
    if not source.exists():
        raise StoreUnavailable(
            f"there is no database at {source.absolute()} yet; `tallyhook serve` creates it"
        )
    if target.absolute() in [Path(f"{source.absolute()}{name}") for name in _OURS] or (
        target.exists() and target.samefile(source)
    ):
        raise UsageError(f"{target} is the database itself or a file of it; name another file")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}; create it first")
    if target.is_dir() or (target.exists() and not replace):
        raise UsageError(f"{target} exists; name another file, or use --force to replace it")


async def in_thread(
    work: Callable[[backup_store.Progress], Result], progress: backup_store.Progress
) -> Result:
    """Run blocking work in a thread. Cancellation waits for `progress`."""
    ended = False

    def watched(done: int, total: int) -> None:
        if ended:
            raise UsageError("stopped before the copy was complete; nothing was changed")
        progress(done, total)

    try:
        return await asyncio.to_thread(work, watched)
    finally:
        ended = True


_RESTORED_BY_POSTGRESQL: Final = (
    "this is a PostgreSQL database: use `pg_restore`, or a base backup and the archived log; then "
    "run `tallyhook db restored` before you start anything"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Names of API tokens and of operators."""

    tokens: tuple[str, ...]
    operators: tuple[str, ...]

    def document(self) -> dict[str, list[str]]:
        return {"tokens": list(self.tokens), "operators": list(self.operators)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedLog:
    """Transparency log after a restore."""

    leaves: int
    cut: int = 0
    """Number of leaves in the replaced log if its last leaf is lost, otherwise 0."""
    renamed: str | None = None
    """The log's new origin. None if unchanged."""
    sure: bool = True
    """False if the replaced log could not be read."""

    def document(self) -> dict[str, Any]:
        return {"leaves": self.leaves, "renamed": self.renamed, "compared": self.sure}

    def sentences(self) -> list[str]:
        have = counted(self.leaves, *LEAF)
        if self.renamed is not None:
            return [
                f"The replaced log had {counted(self.cut, *LEAF)}, and the backup's has only "
                f"{have}: it continues under a new origin, {self.renamed}. Send the output of "
                "`tallyhook log key` to the operators of its witnesses, and explain this to "
                "everyone who has a later checkpoint."
            ]
        if self.sure or not self.leaves:
            return []
        return [
            f"Whether the log continued after the backup's last checkpoint ({have}) is unknown. "
            "If it did, it must not continue under the same origin: run `tallyhook log rename "
            "--reason TEXT` before you start anything."
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Changes of a restored database before its first start."""

    head: int
    """Number of the last revision in the backup."""
    first: int
    """Number of the next revision."""
    may: People
    """People who can sign in again. Everybody if unknown."""
    gone: People | None
    """People who could sign in before. None if unknown."""
    log: FollowedLog

    def document(self) -> dict[str, Any]:
        return {
            "next_revision": self.first,
            "compared": self.gone is not None,
            "in_force": self.may.document(),
            "gone": None if self.gone is None else self.gone.document(),
            "log": self.log.document(),
        }

    def sentences(self) -> list[str]:
        lines = [
            f"Revisions continue at {self.first}; readers of the feed and of notifications need "
            "no change. All login sessions have ended."
        ]
        lines += self.log.sentences()
        may = "are valid again" if self.gone is not None else "are in force"
        for kind, names, undo in (
            ("tokens", self.may.tokens, "tokens revoke"),
            ("operators", self.may.operators, "operators disable"),
        ):
            if names:
                sentence = f"These {kind} {may}: {', '.join(names)}"
                lines.append(
                    f"{sentence}. End each one that is not wanted with `tallyhook {undo} NAME`."
                )
        for kind, names in (
            ("tokens", self.gone.tokens if self.gone else ()),
            ("operators", self.gone.operators if self.gone else ()),
        ):
            if names:
                lines.append(
                    f"These {kind} are not in the backup and no longer work: {', '.join(names)}."
                )
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Result of a restore."""

    contents: backup_store.Contents
    kept: Path | None
    """Path of the former database, or None."""
    followed: Followed
    erased: Replayed
    gap: FoundGap | None
    """Accepted loss of later data, or None."""

    def document(self) -> dict[str, Any]:
        return {
            "kept": None if self.kept is None else str(self.kept),
            "gap": None if self.gap is None else self.gap.sentence(),
            **self.contents.document(),
            **self.followed.document(),
            "erasures": self.erased.document(),
        }


async def restore(
    settings: Settings,
    backup: Path,
    *,
    replace: bool,
    clock: Clock,
    erase_again: Callable[[Inbox], Awaitable[Replayed]],
    progress: backup_store.Progress,
    accepts: str | None = None,
) -> Restored:
    """Put `backup` in the database's place, and keep the former database.

    `erase_again` repeats the journal's erasures; `accepts` is the reason for accepting a loss.
    Raise ConfigurationError for a running service or unaccepted loss, NotFoundError without a
    backup, UsageError without `replace`, and StoreUnavailable for a damaged backup.
    """
    url = settings.database_url
    database = file_of(url, instead=_RESTORED_BY_POSTGRESQL)
    _check_backup(database, backup, replace=replace)
    async with backup_store.alone(database):  # 1
        with ExitStack() as stack:
            part, contents = await in_thread(  # 2
                lambda watched: stack.enter_context(
                    backup_store.laid_beside(
                        backup, database, environment=settings.environment, progress=watched
                    )
                ),
                progress,
            )
            now = clock.now()
            copy = settings.for_copy(backup_store.url_of_copy(url, part))
            with backup_store.found_in(backup):
                await bring_up_to_date(copy)  # its schema may be older
                async with open_inbox(copy, purpose="alone") as inbox:  # 3
                    replaced = backup_store.replaced_by(database, now=now)
                    file = inbox_file_store.facts_at(database)
                    found = await inbox.database.on_snapshot(
                        inbox_store.gap_since_backup,
                        file,
                        last=None if replaced is None else replaced.last_commit,
                        now=now,
                    )
                    if found is not None:
                        check_accepted(found, accepts, command=f"tallyhook restore {backup}")
                    erased = await erase_again(inbox)  # 4
                    async with inbox.database.writing() as connection:
                        if found is not None and accepts is not None:
                            await accept_gap(connection, found, at=now, reason=accepts)
                        # The backup may have read beyond a file with another history.
                        await run(connection, inbox_store.adopt, file)
                    keep_as = f"{database.name}.replaced-{now // SECOND}"
                    files = {"file": shown_name(backup)}
                    if replaced is not None:
                        files["kept"] = keep_as
                    followed = await follow_on(  # 5
                        inbox.database, at=now, replaced=replaced, files=files
                    )
            kept = backup_store.in_place(part, database, keep_as=keep_as)  # 6
    return Restored(contents=contents, kept=kept, followed=followed, erased=erased, gap=found)


async def after_restore(
    again: ErasureReplay, *, without: Without | None
) -> tuple[Followed, Replayed]:
    """Run the last steps of a restore by other tools.

    Open the database `alone`.
    """
    context, erased = again.context, await replay_after_restore(again, without=without)
    return await follow_on(context.database, at=context.clock.now(), replaced=None), erased


async def follow_on(
    database: Database,
    *,
    at: Instant,
    replaced: backup_store.Replaced | None,
    files: Mapping[str, str] | None = None,
) -> Followed:
    """Prepare a restored database for its first start, in one transaction.

    1 numbers   revisions continue beyond every published number
    2 sessions  every session and invitation ends
    3 people    operators and tokens are compared with the replaced database
    4 log       the log gets a new origin if the last leaf is missing
    5 server    the server and its timeline are recorded for `doctor`
    6 audit     an audit entry names the restore and the person

    `files` has names for the trail: the backup (`file`) and the former database (`kept`).
    """
    async with database.writing() as connection:
        given = 0 if replaced is None else replaced.head
        head = await last_revision(connection)
        first = await follow_loss(connection, at=at, given=given)  # 1
        await session_store.end_everything(connection)  # 2
        may, gone = _compared(await backup_store.in_force(connection, now=at), replaced)  # 3
        log = await _log(connection, replaced, environment=database.environment, at=at)  # 4
        await run(connection, note_server)  # 5
        await note_in_trail(  # 6
            connection,
            owner(),
            action="restored",
            subject="database",
            at=at,
            facts={
                "head": head,
                "first": first,
                **(files or {}),
                **({"log": log.renamed} if log.renamed else {}),
            },
        )
    return Followed(head=head, first=first, may=may, gone=gone, log=log)


async def _log(
    connection: Connection,
    replaced: backup_store.Replaced | None,
    *,
    environment: str | None,
    at: Instant,
) -> FollowedLog:
    known = await log_store.identity(connection)
    if known is None:
        return FollowedLog(leaves=0)
    leaves = await log_queue_store.log_size(connection)
    if replaced is None or known.origin not in replaced.origins:
        return FollowedLog(leaves=leaves, sure=False)
    if replaced.log is None:
        return FollowedLog(leaves=leaves)
    size, last = replaced.log
    here = await log_store.leaves_after(connection, size - 1, limit=1)
    if replaced.origins[-1] == known.origin and here and bytes(here[0].hash) == last:
        return FollowedLog(leaves=leaves)
    renamed = await seal.begin_origin(connection, environment=environment, at=at)
    return FollowedLog(leaves=leaves, cut=size, renamed=renamed)


async def adopt_inbox(
    settings: Settings, *, clock: Clock, accepts: str | None
) -> tuple[int, FoundGap | None]:
    """Continue with the inbox file in the database's folder. Return unread records and any gap.

    Stop all processes first. Raise UsageError for PostgreSQL, and ConfigurationError for an
    unaccepted gap.
    """
    async with open_inbox(settings, purpose="alone", refuses_gap=False) as inbox:
        database, at = inbox.database, clock.now()
        if database.path is None:
            raise UsageError("on PostgreSQL the inbox is a table of the database, not a file")
        file, lost = inbox_file_store.facts_at(database.path), await inbox.loss()
        gaps = [each for each in (lost, await inbox.gap()) if each is not None]
        if not gaps:
            other = await database.on_snapshot(inbox_store.gap_of_inbox, file, now=at)
            gaps = [] if other is None else [other]
        elif lost is not None and lost.deliveries == 0:
            gaps.remove(lost)
        found = gaps[0] if gaps else None
        check_accepted(found, accepts, command="tallyhook db adopt-inbox")
        if lost is not None:
            await inbox.make_way()
        async with database.writing() as connection:
            if accepts is not None:
                for each in gaps:
                    await accept_gap(connection, each, at=at, reason=accepts)
                await follow_loss(connection, at=at)
            if lost is None:
                await run(connection, inbox_store.adopt, file)
            else:
                await run(connection, inbox_loss_store.go_on_without)
            await note_in_trail(connection, owner(), action="inbox_adopted", subject="inbox", at=at)
        return (await inbox.backlog()).records, found


def _compared(
    now: backup_store.InForce, replaced: backup_store.Replaced | None
) -> tuple[People, People | None]:
    if replaced is None:
        return _named(now), None
    before = replaced.in_force
    again = backup_store.InForce(
        tokens=now.tokens - before.tokens, operators=now.operators - before.operators
    )
    gone = backup_store.InForce(
        tokens=before.tokens - now.tokens, operators=before.operators - now.operators
    )
    return _named(again), _named(gone)


def _named(people: backup_store.InForce) -> People:
    tokens, operators = (
        tuple(sorted(each[0] for each in some)) for some in (people.tokens, people.operators)
    )
    return People(tokens=tokens, operators=operators)


def _check_backup(database: Path, backup: Path, *, replace: bool) -> None:
    if not backup.is_file():
        raise NotFoundError(f"there is no backup {backup}")
    if database.exists() and backup.samefile(database):
        raise UsageError(f"{backup} is the database itself; name a backup")
    if database.exists() and not replace:
        raise UsageError(
            f"{database} exists; use --force to put the backup in its place and keep the old files"
        )
