"""Order books, statements and bank lines: import them from a file, and list what was imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel

from app.access import operator_store
from app.access.operators import Action, note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError, StoreUnavailable, UsageError
from app.core.text import printable
from app.database.engine import Connection
from app.finance import bank_store, book_line_store, import_store, statement_store
from app.finance.files import (
    bank,
    bank_formats,
    books,
    opening,
    presets,
    shaping,
    statements,
    tables,
)
from app.finance.import_digest_store import digests_of
from app.finance.import_store import ImportKind as ImportKind
from app.finance.order_references import Unfit, name_references, unfit_references
from app.finance.staged_rows import Staged, chunks
from app.receiving.pace import Pace
from reconcile.periods import Calendar

# --- what can be imported, how it is asked for, and what became of it -----------------------------


MAX_PROBLEMS: Final = 100
"""Problems that are reported; the others are counted."""

MONEY: Final = ("minor", "gross", "fee", "net")
"""Staged columns of money: of a book or a bank, and of a statement."""

Write = Callable[..., Awaitable[import_store.WrittenVersions]]

Progress = Callable[[int, int | None], None]
"""(rows so far, rows in all): first as they are read, when nobody knows how many there are, then
as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportForm:
    """What can be imported.

    order           of the columns in which the store wants the rows
    identity        columns in which at most `at_most` rows of a file may be equal, the first ones
    names           the field of the file that a problem of a row too many names; where only one
                    row may be, a column that every good row has, too
    compare, write  what the store does with staged rows
    opens           opens a file as a table
    """

    name: ImportKind
    action: Action
    order: Sequence[str]
    identity: Sequence[str]
    at_most: int
    names: str
    compare: Write
    write: Write
    opens: presets.OpenTable = opening.open_table

    def too_many(self, other: int) -> str:
        """What is wrong with a row that is equal to another one, row `other`."""
        if self.at_most == 1:
            return f"row {other:,} has the same one, and a book says one thing of each"
        return f"there are more than {self.at_most:,} rows of the same one, such as row {other:,}"


def _lines(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of a book without what its orders were paid by, which is no part of a line."""
    return [row[: -len(books.REFERENCES)] for row in rows]


async def _compare_lines(
    connection: Connection, rows: Sequence[tuple[Any, ...]]
) -> import_store.WrittenVersions:
    return await book_line_store.compare_book(connection, _lines(rows))


async def _write_lines(
    connection: Connection, rows: Sequence[tuple[Any, ...]], *, number: int
) -> import_store.WrittenVersions:
    return await book_line_store.write_book(connection, _lines(rows), number=number)


BOOK: Final = ImportForm(
    name="book",
    action="records_imported",
    order=("match_key", "kind"),
    identity=("match_key", "kind"),
    at_most=1,
    names="reference",
    compare=_compare_lines,
    write=_write_lines,
)

STATEMENT: Final = ImportForm(
    name="statement",
    action="statement_imported",
    order=("subject", "kind", "source"),
    identity=("subject", "kind"),
    at_most=2_000,  # each is compared with those that are known
    names="payment_reference",
    compare=statement_store.compare_statement,
    write=statement_store.write_statement,
)

BANK: Final = ImportForm(
    name="bank",
    action="bank_imported",
    order=("subject",),
    identity=("subject",),
    at_most=2_000,  # alike bookings of one day; a till that is paid in by coins has some dozens
    names="entry_reference",
    compare=bank_store.compare_bank,
    write=bank_store.write_bank,
    opens=bank_formats.open_bank_table,
)

FORMS: Final[dict[ImportKind, ImportForm]] = {each.name: each for each in (BOOK, STATEMENT, BANK)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which file is to be imported, and how.

    rejects  where rows that are not taken go when the good ones are; None: nothing is taken unless
             every row is good
    sha256   the digest that the file must have; empty: any
    """

    path: Path
    chosen: presets.ChosenReading
    form: books.Form
    kind: ImportForm
    dry_run: bool = False
    rejects: Path | None = None
    sha256: str = ""


@dataclass(slots=True, kw_only=True)
class Imported(import_store.WrittenVersions):
    """What became of a file. Problems beyond MAX_PROBLEMS are only counted.

    refused  whether it could not be read to its end: then nothing is taken, whatever was asked
    number   of the import; None where nothing was imported
    rejects  the name of the file to which the rejected rows went
    rows     the first rows as understood, in a dry run
    sums     in a dry run, of the rows that are clear: by currency how many, and their amounts in
             minor units by the file's columns of money
    passed_over  columns that nothing was read from, as the heading names them
    totals   the first rows that add up those above, as totals of the file: none of them is taken,
             nor counted as read
    totals_found  how many there are
    preset   the name of the one it was read with; None for none
    notes    how the file was read, and why so, one sentence each
    ignored  how many rows the mapping leaves out, by its column and word
    joined  rows that were read with another row of their order, and are no lines of their own
    """

    file: str
    sha256: str = ""
    read: int = 0
    rejected: int = 0
    problems: list[tables.Problem] = field(default_factory=list)
    found: int = 0
    refused: bool = False
    number: int | None = None
    rejects: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, Counter[str]] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    totals_found: int = 0
    preset: str | None = None
    notes: list[str] = field(default_factory=list)
    ignored: Mapping[shaping.Ignored, int] = field(default_factory=dict)
    joined: int = 0

    @property
    def left_out(self) -> int:
        """How many problems are not among `problems`."""
        return self.found - len(self.problems)

    def ignored_documents(self) -> list[dict[str, Any]]:
        """The rows that were left out, for JSON."""
        return [
            {"column": column, "word": word or None, "rows": rows}
            for (column, word), rows in self.ignored.items()
        ]

    def note(self, problems: Sequence[tables.Problem]) -> None:
        """Keep what is reported, count the rest."""
        self.found += len(problems)
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]

    def add_up(self, rows: Sequence[tuple[Any, ...]], *, columns: Sequence[str]) -> None:
        """Add the money of staged rows, which have these columns."""
        currency = columns.index("currency")
        amounts = [(name, columns.index(name)) for name in MONEY if name in columns]
        for row in rows:
            sums = self.sums.setdefault(row[currency], Counter())
            sums["rows"] += 1
            for name, place in amounts:
                sums[name] += row[place]


# --- imports an order book or a statement from a file ---------------------------------------------


FIRST_ROWS, MOST_ROWS = 500, 4_000
"""Rows in the first transaction, and in any."""

SILENT_S: Final = 5.0
"""An import that writes nothing for so long was killed."""


async def write_and_publish(
    context: AppContext,
    wanted: Wanted,
    staged: Staged,
    done: Imported,
    *,
    who: operator_store.Operator,
    progress: Progress,
) -> None:
    """Write what was staged, and complete `done`. Raises StoreUnavailable as the store does, and
    where another import took this one for killed."""
    await _wait_for_others(context)
    begun = await _begin(context, wanted, done, who)
    written, pace = 0, Pace(first=FIRST_ROWS, most=MOST_ROWS)
    for rows in chunks(staged, pace):
        async with pace.writing(context.database, pieces=len(rows)) as connection:
            written += len(rows)
            await _still_ours(connection, begun, written)
            done.add(await wanted.kind.write(connection, rows, number=begun.number))
        progress(written, done.read - done.rejected)
    digests = await _digests(context, begun)
    async with context.database.writing() as connection:
        await _still_ours(connection, begun, written)
        names = ("read", "new", "changed", "unchanged", "rejected")
        full = replace(begun, **{name: getattr(done, name) for name in names})
        await _publish(connection, full, digests, context=context, who=who)
    done.number = begun.number


async def _wait_for_others(context: AppContext) -> None:
    """Until no import is under way, or the one that is has been silent for long."""
    before: import_store.Import | None = None
    while True:
        async with context.database.reading() as connection:
            now = await import_store.under_way(connection)
        if now in (None, before):
            return
        before = now
        await anyio.sleep(SILENT_S)


async def _begin(
    context: AppContext, wanted: Wanted, done: Imported, who: operator_store.Operator
) -> import_store.Import:
    new = import_store.Import(
        kind=wanted.kind.name,
        file=done.file,
        sha256=done.sha256,
        who=who.name,
        started_at=context.clock.now(),
    )
    async with context.database.writing() as connection:
        begun, another = await import_store.begin_import(connection, new)
    if another:
        await _undo(context, begun)
    return begun


async def _undo(context: AppContext, begun: import_store.Import) -> None:
    """Take back what a killed import wrote. It may have been of any kind: whoever is killed
    while undoing leaves no word of what was to be undone."""
    looked = 0
    for kind in FORMS:
        async with context.database.reading() as connection:
            ends = [end async for end in import_store.stretches(connection, kind)]
        after: str | None = None
        for end in ends:
            async with context.database.writing() as connection:
                looked -= 1
                await _still_ours(connection, begun, looked)
                await import_store.undo_stretch(connection, kind, after=after, to=end)
            after = end


async def _still_ours(connection: Connection, begun: import_store.Import, written: int) -> None:
    if not await import_store.go_on(connection, begun, written=written):
        raise StoreUnavailable(
            "another import began, for this one had been silent for long; nothing was imported: "
            "import the file again"
        )


async def _digests(context: AppContext, begun: import_store.Import) -> dict[str, str]:
    """Outside the last transaction, for it takes seconds; nobody is to take it for killed then."""
    looked = count(-1, -1)

    async def go_on() -> None:
        async with context.database.writing() as connection:
            await _still_ours(connection, begun, next(looked))

    async with context.database.reading() as connection:
        return await digests_of(connection, begun.kind, number=begun.number, between=go_on)


async def _publish(
    connection: Connection,
    done: import_store.Import,
    digests: Mapping[str, str],
    *,
    context: AppContext,
    who: operator_store.Operator,
) -> None:
    at = await import_store.publish_import(connection, done, now=context.clock.now())
    counts = {name: getattr(done, name) for name in ("read", "new", "changed", "rejected")}
    await note_in_trail(
        connection,
        who,
        action=FORMS[done.kind].action,
        subject=done.file,
        at=at,
        facts={"import": done.number, "sha256": done.sha256, **counts, **digests},
    )


SHOWN: Final = 5
"""Rows that are shown as they were understood."""


async def import_file(
    context: AppContext, wanted: Wanted, *, by: str | None, progress: Progress
) -> Imported:
    """Import it, or find out what an import would do. `progress` is called with how far it is.

    Raises NotFoundError for a file that is not there, UsageError for who may not.
    """
    async with context.database.reading() as connection:
        who = await permitted(connection, by=by, action=wanted.kind.action)
    if wanted.rejects is not None:
        tables.refuse_to_replace(wanted.rejects)
    with closing(_Reading(wanted, progress)) as reading:
        await reading.read()
        done = reading.done
        if reading.names:
            reading.leave_out(await unfit_references(context, reading.staged))
        if wanted.dry_run:
            async with context.database.reading() as connection:
                for rows in chunks(reading.staged, Pace(first=MOST_ROWS, most=MOST_ROWS)):
                    done.add(await wanted.kind.compare(connection, rows))
                    done.add_up(rows, columns=wanted.form.STAGED)
        elif not done.found or (wanted.rejects is not None and not done.refused):
            reading.set_aside()
            await write_and_publish(
                context, wanted, reading.staged, done, who=who, progress=progress
            )
            if reading.names and done.number is not None:
                unfit = await name_references(context, reading.staged, number=done.number)
                reading.report_unfit(unfit)
    done.notes += done.said_beside()
    done.problems.sort(key=lambda problem: problem.row)
    return done


class _Reading:
    """One file being read: its rows that are clear, staged, and the problems of the others."""

    def __init__(self, wanted: Wanted, progress: Progress) -> None:
        self._wanted, self._progress = wanted, progress
        # A name on the disk is bytes: not always text that can be kept, or shown.
        self.done = Imported(file=printable(wanted.path.name), sha256=wanted.sha256)
        self.staged = Staged(("number", *wanted.form.STAGED), order=(*wanted.kind.order, "number"))
        self._problems = Staged(("row", "named", "sentence"), order=("row",))
        self._negative = self._claims = self.names = False

    def close(self) -> None:
        """Forget the rows."""
        self.staged.close()
        self._problems.close()

    async def read(self) -> None:
        """Stage every row that is clear and fits the others."""
        try:
            self._sign()
            understanding = await self._read_rows()
            self._sign()
        except tables.RefusedTable as refused:
            self.done.refused = True
            self._note([refused.problem])
        except OSError as error:
            name = self._wanted.path.name
            raise UsageError(f"{name} cannot be read: {error.strerror}") from None
        else:
            self._look(understanding)

    def _sign(self) -> None:
        """Remember which content it is. Raises RefusedTable where it became another one."""
        digest = opening.file_digest(self._wanted.path)
        if self.done.sha256 not in ("", digest):
            raise tables.RefusedTable(1, "the file changed while it was read: import it again")
        self.done.sha256 = digest

    def _open(self) -> tables.SourceTable:
        wanted = self._wanted
        return wanted.chosen.open(wanted.path, wanted.form, opens=wanted.kind.opens)

    async def _read_rows(self) -> books.Understanding:
        wanted, done = self._wanted, self.done
        chosen = wanted.chosen
        done.preset = None if chosen.preset is None else chosen.preset.name
        done.notes += chosen.notes
        table = self._open()
        understanding = books.Understanding(table, wanted.form, chosen.mapping)
        done.notes += table.notes
        done.passed_over = understanding.passed_over()
        for batch in table.batches():
            found = understanding.batch(batch)
            self._stage(found)
            self._note(found.problems)
            done.totals_found += len(found.totals)
            done.totals += found.totals[: MAX_PROBLEMS - len(done.totals)]
            done.read += found.read
            done.rejected += found.read - len(found.rows)
            if wanted.dry_run:
                shown = found.rows[: SHOWN - len(done.rows)]
                done.rows += [wanted.form.shown(row) for row in shown]
            self._progress(done.read, None)
            await anyio.lowlevel.checkpoint()
        done.ignored = dict(understanding.ignored())
        if not done.read:
            left_out = f"; {sum(done.ignored.values()):,} are left out" if done.ignored else ""
            raise tables.RefusedTable(
                table.heading_row, f"the file has a heading and no rows{left_out}"
            )
        return understanding

    def _stage(self, found: books.Understood) -> None:
        """Keep rows, and of those that are not clear what they speak of, where that is clear: once
        put right it may be the true one of two."""
        self.staged.add(found.rows)
        if self._wanted.kind is BOOK:
            minor, source = (1 + self._wanted.form.STAGED.index(n) for n in ("minor", "source"))
            self._negative = self._negative or any(row[minor] < 0 for row in found.rows)
            self.names = self.names or any(row[source] is not None for row in found.rows)
        if self._wanted.kind.at_most == 1:
            width = 1 + len(self._wanted.kind.identity)
            claims = [row for row in found.unclear if None not in row[:width]]
            self.staged.add((*row[:width], *(None,) * (len(row) - width)) for row in claims)
            self._claims = self._claims or bool(claims)

    def _look(self, understanding: books.Understanding) -> None:
        """Find rows that cannot all be true; none is taken, for which is true is unknown."""
        kind = self._wanted.kind
        if kind is not BOOK or self._join_stories(understanding):
            self._report_crowds(understanding.name_of(kind.names))
        if self._claims:
            self.staged.drop_without(kind.names)
        self._count_rejected()

    def _report_crowds(self, column: str | None) -> None:
        """Refuse rows of which too many are equal."""
        kind, before, any_crowd = self._wanted.kind, None, False
        for first, row in self.staged.crowded(kind.identity, at_most=kind.at_most):
            any_crowd = True
            if first == row:
                before = row
                continue
            pairs = [(row, first)] if before is None else [(before, row), (row, first)]
            before = None
            self._note(
                [
                    tables.Problem(row=one, column=column, sentence=kind.too_many(other))
                    for one, other in pairs
                ]
            )
        if any_crowd:
            self.staged.drop_crowded(kind.identity, at_most=kind.at_most)

    def _join_stories(self, understanding: books.Understanding) -> bool:
        """Bring together the rows of one order that add up; refuse refunds without their order.
        Returns whether any rows are of one order."""
        stories, parts, several = list[tuple[Any, ...]](), list[int](), False
        for rows in self.staged.crowds(BOOK.identity):
            several, story = True, books.story_of(rows)
            if story is not None:
                stories.append(story)
                parts += [row[0] for row in rows]
        self.staged.drop(parts)
        self.staged.add(stories)
        self.done.joined = len(parts) - len(stories)
        column, alone = understanding.name_of("amount"), list[int]()
        for rows in self.staged.negative("minor") if self._negative else ():
            alone += [row[0] for row in rows if row[2] != "entry"]
        self._note(
            [tables.Problem(row=row, column=column, sentence=books.REFUND_ALONE) for row in alone]
        )
        self.staged.drop(alone)
        return several

    def _count_rejected(self) -> None:
        self.done.rejected = self.done.read - self.done.joined - self.staged.count()

    def leave_out(self, unfit: Sequence[Unfit]) -> None:
        """Take none of these rows: what they name pays another order."""
        if unfit:
            self.report_unfit(unfit)
            self.staged.drop(number for number, _ in unfit)
            self._count_rejected()

    def report_unfit(self, unfit: Sequence[Unfit]) -> None:
        """Note why these rows, or what they name, are not taken."""
        self._note([tables.Problem(row=row, column=None, sentence=text) for row, text in unfit])

    def _note(self, problems: Sequence[tables.Problem]) -> None:
        self.done.note(problems)
        if self._wanted.rejects is not None:
            self._problems.add((each.row, each.column, each.sentence) for each in problems)

    def set_aside(self) -> None:
        """Write the rows that are not taken into a file of their own, if there are any."""
        wanted = self._wanted
        if wanted.rejects is None or not self.done.found:
            return
        table = self._open()
        problems = (
            tables.Problem(row=row, column=column, sentence=sentence)
            for rows in self._problems.in_order()
            for row, column, sentence in rows
        )
        decimal = wanted.chosen.mapping.marks.decimal
        tables.write_rejects(wanted.rejects, table, problems, decimal=decimal)
        self.done.rejects = printable(wanted.rejects.name)


# --- order books and statements -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest(presets.ReadingRequest):
    """What a person asks for: which file, how it is to be read, and what is to be done with it.
    Where a digest is said, nothing but the file that has it is taken.

    account  of a bank's file: of which account it is, where its rows do not say
    """

    account: str = ""
    dry_run: bool = False
    accept_good: bool = False
    rejects: Path | None = None
    by: str | None = None
    sha256: str = ""


async def import_book(
    context: AppContext,
    request: ImportRequest,
    *,
    sources: Collection[str] | None = None,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import an order book. Its lines are compared with ledgers, and change none; only what orders
    were paid by leads events to them. sources: the names that a source may have; None: any.

    Raises as `import_file` does, and UsageError for a mapping.
    """
    chosen = presets.choose(request, "book", unstated=_unstated(context))
    wanted = Wanted(
        path=request.path,
        chosen=chosen,
        form=books.BookForm(chosen.mapping, sources=sources),
        kind=BOOK,
        dry_run=request.dry_run,
        rejects=_rejects(request),
        sha256=request.sha256,
    )
    return await import_file(context, wanted, by=request.by, progress=progress)


async def import_statement(
    context: AppContext,
    request: ImportRequest,
    *,
    source: str,
    own_orders: bool = False,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a provider's statement, of a source or of one that is not known (""). Raises as
    `import_book` does. own_orders: whether that source's orders meet no other's."""
    chosen = presets.choose(request, "statement", unstated=_unstated(context))
    calendar = Calendar(chosen.mapping.zone or UTC)
    wanted = Wanted(
        path=request.path,
        chosen=chosen,
        form=statements.StatementForm(chosen.mapping, source=source, own_orders=own_orders),
        kind=replace(
            STATEMENT,
            compare=partial(statement_store.compare_statement, calendar=calendar),
            write=partial(statement_store.write_statement, calendar=calendar),
        ),
        dry_run=request.dry_run,
        rejects=_rejects(request),
        sha256=request.sha256,
    )
    return await import_file(context, wanted, by=request.by, progress=progress)


async def import_bank(
    context: AppContext,
    request: ImportRequest,
    *,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a bank's file: CAMT.053, MT940, OFX, or a table. Raises as `import_book` does."""
    chosen = presets.choose_mapping(request, bank.BankForm.FIELDS, unstated=_unstated(context))
    if request.account:
        defaults = {**chosen.mapping.defaults, "account": request.account}
        chosen = replace(chosen, mapping=replace(chosen.mapping, defaults=defaults))
    wanted = Wanted(
        path=request.path,
        chosen=chosen,
        form=bank.BankForm(chosen.mapping),
        kind=BANK,
        dry_run=request.dry_run,
        rejects=_rejects(request),
        sha256=request.sha256,
    )
    return await import_file(context, wanted, by=request.by, progress=progress)


def _unstated(context: AppContext) -> presets.ReadingDefaults:
    return presets.ReadingDefaults(zone=context.zone, phone_country=context.phone_country or None)


def _rejects(request: ImportRequest) -> Path | None:
    if request.rejects is not None and not request.accept_good:
        raise UsageError("--rejects says where rows go that --accept-good leaves out: say both")
    if not request.accept_good or request.dry_run:
        return None
    return request.rejects or tables.rejects_beside(request.path)


async def past_import(context: AppContext, number: int) -> import_store.Import:
    """A published import. Raises NotFoundError where there is none of this number."""
    async with context.database.reading() as connection:
        found = await import_store.one_import(connection, number)
    if found is None:
        raise NotFoundError(
            f"there is no import {number}; `tallyhook records imports`, `statement imports` and "
            "`bank imports` show which are"
        )
    return found


async def past_imports(
    context: AppContext,
    *,
    kind: ImportKind,
    limit: int,
    before: int = import_store.BEYOND,
) -> list[import_store.Import]:
    """The imports of a kind that were published, newest first. before: of lower numbers."""
    async with context.database.reading() as connection:
        return await import_store.imports(connection, kind=kind, limit=limit, before=before)


async def taken_back(context: AppContext, found: Sequence[import_store.Import]) -> list[int]:
    """The numbers of those that were taken back."""
    async with context.database.reading() as connection:
        return await import_store.taken_back(connection, [each.number for each in found])
