"""Imports an order book or a statement from a file: all of it, or nothing.

    1 permit     who asks may import
    2 read       every row becomes a staged row, or problems; the store is not touched
    3 look       rows that cannot both be true; where any problem is left, it ends here, unless
                 the good rows shall be taken
    4 write      in key order, some thousand rows in a transaction, seen by nobody
    5 publish    in one short transaction, with the deed in the trail

Whoever is killed before the end has imported nothing; the next import undoes what was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel

from app.errors import StoreUnavailable
from app.files.forms import Form, Understanding, recognizing
from app.files.mapping import FileMapping
from app.files.opening import open_table
from app.files.problems import Problem, Refused
from app.operations.desk import Desk
from app.operations.people import Action, note_deed, permitted
from app.store.book_lines import compare_book, write_book
from app.store.engine import Connection
from app.store.imports import (
    Import,
    ImportKind,
    begin_import,
    go_on,
    newest_published,
    publish_import,
    stretches,
    under_way,
    undo_stretch,
)
from app.store.line_versions import Written
from app.store.operators import Operator
from app.store.staging import Staged
from app.store.statement_lines import compare_statement, write_statement

MAX_PROBLEMS: Final = 100
"""Problems that are told; the others are counted."""

SHOWN: Final = 5
"""Rows that are shown as they were understood."""

PAUSE_S: Final = 0.006
"""Between two transactions: longer than a service that waits for the writer sleeps."""

SILENT_S: Final = 5.0
"""An import that writes nothing for so long was killed."""

Write = Callable[..., Awaitable[Written]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be imported.

    order           of the columns in which the store wants the rows
    identity        columns in which no two rows of a file may be equal; empty: they may
    compare, write  what the store does with staged rows
    """

    name: ImportKind
    action: Action
    order: Sequence[str]
    identity: Sequence[str]
    compare: Write
    write: Write


BOOK: Final = Kind(
    name="book",
    action="records_imported",
    order=("match_key", "kind"),
    identity=("match_key", "kind"),
    compare=compare_book,
    write=write_book,
)
STATEMENT: Final = Kind(
    name="statement",
    action="statement_imported",
    order=("subject", "kind", "source"),
    identity=(),
    compare=compare_statement,
    write=write_statement,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which file is to be imported, and how."""

    path: Path
    mapping: FileMapping
    form: Form
    kind: Kind
    dry_run: bool = False
    accept_good: bool = False


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of a file. Problems beyond MAX_PROBLEMS are only counted.

    number  of the import; None where nothing was imported
    rows    the first rows as understood, in a dry run
    """

    file: str
    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    problems: list[Problem] = field(default_factory=list)
    found: int = 0
    number: int | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """How many problems are not among `problems`."""
        return self.found - len(self.problems)


async def import_file(
    desk: Desk,
    wanted: Wanted,
    *,
    by: str | None,
    progress: Callable[[int], None] = lambda count: None,
) -> Imported:
    """Import it, or find out what an import would do. `progress` is told of rows.

    Raises NotFoundError for a file that is not there, UsageError for who may not.
    """
    async with desk.store.reading() as connection:
        who = await permitted(connection, by=by, action=wanted.kind.action)
    done = Imported(file=wanted.path.name)
    staged = Staged(("number", *wanted.form.STAGED), order=(*wanted.kind.order, "number"))
    with closing(staged):
        await _read(wanted, staged, done, progress)
        if wanted.dry_run:
            await _compare(desk, wanted, staged, done)
        elif not done.found or wanted.accept_good:
            await _write(desk, wanted, staged, done, who=who)
    return done


async def _read(
    wanted: Wanted, staged: Staged, done: Imported, progress: Callable[[int], None]
) -> None:
    """Stage every row that is clear, and note the problems of the others."""
    try:
        table = open_table(
            wanted.path,
            wanted.mapping,
            recognize=recognizing(wanted.form.FIELDS, wanted.mapping),
        )
        understanding = Understanding(table, wanted.form, wanted.mapping)
        for batch in table.batches():
            found = understanding.batch(batch)
            staged.add(found.rows)
            _note(done, found.problems)
            done.read += found.read
            done.rejected += found.read - len(found.rows)
            progress(found.read)
            await anyio.lowlevel.checkpoint()
    except Refused as refused:
        _note(done, [refused.problem])
        return
    if not done.read:
        _note(done, [Problem(row=1, column=None, sentence="the file has a heading and no rows")])


def _note(done: Imported, problems: Sequence[Problem]) -> None:
    done.found += len(problems)
    done.problems += problems[: MAX_PROBLEMS - len(done.problems)]


async def _compare(desk: Desk, wanted: Wanted, staged: Staged, done: Imported) -> None:
    async with desk.store.reading() as connection:
        for rows in _chunks(wanted, staged):
            _count(done, await wanted.kind.compare(connection, rows))


def _chunks(wanted: Wanted, staged: Staged) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in order, without their numbers; rows of one key or subject are not parted."""
    held: list[tuple[Any, ...]] = []
    for rows in staged.in_order():
        held += [row[1:] for row in rows]
        last = len(held) - 1
        while last and held[last - 1][0] == held[-1][0]:
            last -= 1
        yield held[:last]
        held = held[last:]
    yield held


def _count(done: Imported, written: Written) -> None:
    done.new += written.new
    done.changed += written.changed
    done.unchanged += written.unchanged


async def _write(
    desk: Desk, wanted: Wanted, staged: Staged, done: Imported, *, who: Operator
) -> None:
    begun = await _begin(desk, wanted, who)
    written = 0
    for rows in _chunks(wanted, staged):
        async with desk.store.writing() as connection:
            written += len(rows)
            await _still_ours(connection, begun, written)
            _count(done, await wanted.kind.write(connection, rows, number=begun.number))
        await anyio.sleep(PAUSE_S)
    async with desk.store.writing() as connection:
        await _still_ours(connection, begun, written)
        await _publish(connection, wanted, begun, done, who=who, desk=desk)


async def _begin(desk: Desk, wanted: Wanted, who: Operator) -> Import:
    await _wait_for_others(desk)
    with wanted.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    async with desk.store.writing() as connection:
        left = await under_way(connection)
        begun = Import(
            number=await newest_published(connection) + 1,
            kind=wanted.kind.name,
            file=wanted.path.name,
            sha256=digest,
            who=who.name,
            started_at=desk.clock.now(),
        )
        await begin_import(connection, begun)
    if left is not None:
        await _undo(desk)
    return begun


async def _wait_for_others(desk: Desk) -> None:
    """Until no import is under way, or the one that is has been silent for long."""
    while (before := await _under_way(desk)) is not None:
        await anyio.sleep(SILENT_S)
        if await _under_way(desk) == before:
            return


async def _under_way(desk: Desk) -> Import | None:
    async with desk.store.reading() as connection:
        return await under_way(connection)


async def _undo(desk: Desk) -> None:
    """Take back what a killed import wrote; it may have been of either kind."""
    kinds: tuple[ImportKind, ...] = ("book", "statement")
    for kind in kinds:
        after: str | None = None
        async with desk.store.reading() as connection:
            ends = [end async for end in stretches(connection, kind)]
        for end in ends:
            async with desk.store.writing() as connection:
                await undo_stretch(connection, kind, after=after, to=end)
            after = end


async def _still_ours(connection: Connection, begun: Import, written: int) -> None:
    if not await go_on(connection, begun, written=written):
        raise StoreUnavailable(
            "another import began, for this one had been silent for long; nothing was imported: "
            "import the file again"
        )


async def _publish(
    connection: Connection,
    wanted: Wanted,
    begun: Import,
    done: Imported,
    *,
    who: Operator,
    desk: Desk,
) -> None:
    counts: dict[str, Any] = {
        "read": done.read,
        "new": done.new,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "rejected": done.rejected,
    }
    at = await publish_import(connection, replace(begun, **counts), now=desk.clock.now())
    await note_deed(
        connection,
        who,
        action=wanted.kind.action,
        subject=done.file,
        at=at,
        facts={"import": begun.number, "sha256": begun.sha256, **counts},
    )
    done.number = begun.number
