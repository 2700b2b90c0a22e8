"""Record copies of stored data that an erasure cannot reach."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from app.access.operator_store import AuditEntry, audit_entries, entries_about
from app.access.operators import AFTER_ALL, Action, note_in_trail, owner
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.masking import masked_at_sight
from app.database.engine import Connection
from app.database.statements import run
from app.privacy.whose import is_of, masked
from app.receiving.inbox_file_store import path_of
from app.receiving.inbox_loss_store import LOST_AS
from app.receiving.inbox_store import LAST_BACKUP, last_backup, put_counter
from reconcile.documents import InstantText
from reconcile.instants import DAY, Instant, format_instant


async def note_backup(context: AppContext, *, at: Instant, file: Path) -> None:
    """Record a complete backup in database and audit trail."""
    async with context.database.writing() as connection:
        await run(connection, put_counter, LAST_BACKUP, at)
        await note_in_trail(
            connection,
            owner(),
            action="backed_up",
            subject="database",
            at=at,
            facts={"file": shown_name(file)},
        )


def shown_name(file: Path) -> str:
    """Return a file's masked name for the audit trail."""
    return masked_at_sight(file.stem) + file.suffix


MOST_BACKUPS: Final = 1_000
"""Maximum number of listed backups."""

_TAKEN: Final[dict[Action, str]] = {
    "evidence_built": "an evidence bundle",
    "letter_taken": "a letter",
    "attachment_read": "an attached file",
    "unmasked": "numbers or a body in full",
    "data_exported": "a copy of a person's data",
}


class TakenCopyDocument(TypedDict):
    what: str
    name: str
    at: InstantText
    by: str
    until: InstantText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenCopy:
    """Copy of stored data that an erasure does not reach."""

    what: str
    name: str
    at: Instant
    who: str
    until: Instant | None = None

    @property
    def sentence(self) -> str:
        """Return a sentence on the copy's maker, time and retention."""
        kept = "its retention period is not known here"
        if self.until is not None:
            kept = f"kept until {format_instant(self.until)}"
        return (
            f"{self.what}, taken at {format_instant(self.at)} by {self.who}: an erasure does not "
            f"change this copy; {kept}"
        )

    def document(self) -> TakenCopyDocument:
        return document_of(TakenCopyDocument, self, by=self.who)


async def earlier_copies(
    context: AppContext,
    connection: Connection,
    *,
    subjects: Collection[str],
    person: str | None,
    since: Instant,
) -> list[TakenCopy]:
    """Return the copies that can hold erased data, oldest first."""
    found = await _backups(context, connection, since=since)
    found += lost_inboxes(context, since=since)
    entries = await entries_about(connection, subjects)
    if person is not None:
        of_person = await audit_entries(
            connection, subject=masked(person), action="data_exported", limit=MOST_BACKUPS
        )
        known = [each.facts.get("pseudonym") for each in of_person]
        entries += [
            each
            for each, name in zip(of_person, known, strict=True)
            if isinstance(name, str) and is_of(context, person, name)
        ]
    for each in entries:
        if each.action in _TAKEN:
            what = _TAKEN[each.action]
            found.append(TakenCopy(what=what, name=each.subject, at=each.at, who=each.who))
    return sorted(found, key=lambda each: (each.at, each.name, each.what))


def lost_inboxes(context: AppContext, *, since: Instant) -> list[TakenCopy]:
    """Return the inbox files that were lost since an instant."""
    path = context.database.path
    if path is None:
        return []
    inbox, found = path_of(path), list[TakenCopy]()
    for each in inbox.parent.glob(f"{inbox.name}{LOST_AS}*"):
        at = Instant(each.stat().st_mtime_ns // 1_000)
        if at >= since and not each.name.endswith("-shm"):
            found.append(
                TakenCopy(what="a part of a lost inbox", name=each.name, at=at, who="the service")
            )
    return found


async def _backups(
    context: AppContext, connection: Connection, *, since: Instant
) -> list[TakenCopy]:
    days = context.settings.backups_kept_days
    now = context.clock.now()

    def until(at: Instant) -> Instant | None:
        return Instant(at + days * DAY) if days else None

    def copies(entry: AuditEntry) -> list[TakenCopy]:
        facts = entry.facts
        return [
            TakenCopy(what=what, name=str(facts[fact]), at=entry.at, who=entry.who, until=ends)
            for fact, what, ends in (
                ("file", "a backup", until(entry.at)),
                ("kept", "the database before a restore", None),
            )
            if fact in facts
        ]

    found = list[TakenCopy]()
    for action in ("backed_up", "restored"):
        entries = await audit_entries(
            connection, action=action, before=AFTER_ALL, limit=MOST_BACKUPS
        )
        found += [copy for each in entries for copy in copies(each)]
    latest = await run(connection, last_backup)
    if latest is not None and all(each.at < latest for each in found):
        found.append(TakenCopy(what="a backup", name="by another tool, such as pg_dump",
                               at=latest, who="the machine", until=until(latest)))  # fmt: skip
    return [each for each in found if each.at >= since and (each.until is None or each.until > now)]
