"""Stage a file: collect its clear rows and its problems."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import anyio.lowlevel

from app.access import operator_store
from app.access.operators import Action
from app.core.errors import UsageError
from app.core.text import counted, printable
from app.finance import (
    bank_balances,
    changed_rows,
    coverage_store,
    file_identity,
    line_version_store,
    order_references,
)
from app.finance.files import (
    bank,
    bank_formats,
    books,
    line_forms,
    opening,
    presets,
    shaping,
    stated_period,
    tables,
    workbooks,
)
from app.finance.files.banks.entries import Balances, BankTable, day_after
from app.finance.import_store import ImportKind
from app.finance.staged_rows import Staged
from app.finance.write_import import Progress
from reconcile.instants import TICK, Instant
from reconcile.matching.balances import StatementBalances
from reconcile.matching.rules import Span
from reconcile.periods import Calendar

MAX_PROBLEMS: Final = 100

MAX_FORMAT: Final = 300

MONEY: Final = ("minor", "gross", "fee", "net")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportForm:
    """Kind of file that can be imported."""

    name: ImportKind
    action: Action
    identity: Sequence[str]
    at_most: int
    names: str
    opens: presets.OpenTable = opening.open_table

    def too_many(self, other: int) -> str:
        """Return a sentence for a row that is repeated too often."""
        if self.at_most == 1:
            return (
                f"row {other:,} has the same value, but an order book may have each value only once"
            )
        return f"more than {self.at_most:,} rows have the same value, such as row {other:,}"


BOOK: Final = ImportForm(
    name="book",
    action="records_imported",
    identity=("match_key", "kind"),
    at_most=1,
    names="reference",
)

STATEMENT: Final = ImportForm(
    name="statement",
    action="statement_imported",
    identity=("subject", "kind"),
    at_most=2_000,  # each is compared with the known ones
    names="payment_reference",
)

BANK: Final = ImportForm(
    name="bank",
    action="bank_imported",
    identity=("subject",),
    at_most=2_000,  # equal bookings of one day; a till that is paid in by coins has some dozens
    names="entry_reference",
    opens=bank_formats.open_bank_table,
)

FORMS: Final[dict[ImportKind, ImportForm]] = {each.name: each for each in (BOOK, STATEMENT, BANK)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest(presets.ReadingRequest):
    """A person's request to import a file."""

    account: str = ""
    accept_difference: str = ""
    reason: str = ""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Ids of the proposals that accepted differences, by `Balances.name`."""
    book: str = ""
    """The name of the order book. Empty for the preset's name."""
    days: tuple[str, str] | None = None
    """The first and last covered day, if the file states none."""
    dry_run: bool = False
    accept_good: bool = False
    rejects: Path | None = None
    """The path for rejected rows. None for a file beside the imported one."""
    changes: Path | None = None
    by: str | None = None
    sha256: str = ""
    actor: operator_store.Operator | None = None
    """The service, if no person asks."""


@dataclass(slots=True, kw_only=True)
class Imported(line_version_store.WrittenVersions):
    """Result of an import. Problems beyond MAX_PROBLEMS are only counted."""

    file: str
    kind: ImportKind
    source: str = ""
    looks_like: ImportKind | None = None
    suggestion: str = ""
    sha256: str = ""
    read: int = 0
    rejected: int = 0
    problems: list[tables.Problem] = field(default_factory=list)
    words: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    """Number of problems for each unknown word, by column and word."""
    found: int = 0
    refused: bool = False
    """True if the file could not be read to its end. Then nothing is imported."""
    number: int | None = None
    """The number of the import. None if nothing was imported."""
    rejects: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The first rows as parsed. Only in a dry run."""
    sums: dict[str, Counter[str]] = field(default_factory=dict)
    """Rows and minor units by currency. Only in a dry run."""
    passed_over: list[str] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)
    totals_found: int = 0
    preset: str | None = None
    notes: list[str] = field(default_factory=list)
    of_workbook: Sequence[str] = ()
    ignored: Mapping[shaping.Ignored, int] = field(default_factory=dict)
    joined: int = 0
    covers: list[coverage_store.CoverageLine] = field(default_factory=list)
    balances: list[StatementBalances] = field(default_factory=list)
    differs: Balances | None = None
    proposal: str | None = None

    @property
    def left_out(self) -> int:
        return self.found - len(self.problems)

    def ignored_documents(self) -> list[dict[str, Any]]:
        return [
            {"column": column, "word": word or None, "rows": rows}
            for (column, word), rows in self.ignored.items()
        ]

    def explain(self, found: file_identity.FileIdentity) -> None:
        self.notes += [each for each in found.because if each not in self.notes]

    def changed_documents(self) -> list[dict[str, Any]]:
        return [changed_rows.changed_document(self.kind, each) for each in self.changes]

    def note(self, problems: Sequence[tables.Problem]) -> None:
        """Count the problems, and keep the first MAX_PROBLEMS of them."""
        self.found += len(problems)
        for each in problems:
            key = (each.column, each.word or "")
            if each.word and (key in self.words or len(self.words) < MAX_PROBLEMS):
                self.words[key] += 1
        self.problems += problems[: MAX_PROBLEMS - len(self.problems)]

    def said_of_words(self) -> list[str]:
        """Return a sentence that lists all unknown words."""
        said = [
            f"{word} ({counted(rows, 'row')}{f', column {column}' if column else ''})"
            for (column, word), rows in self.words.most_common()
        ]
        return [f"Words that the mapping does not know: {', '.join(said)}."] if said else []

    def add_up(self, rows: Sequence[tuple[Any, ...]], *, columns: Sequence[str]) -> None:
        """Add the money of staged rows to `sums`."""
        currency = columns.index("currency")
        amounts = [(name, columns.index(name)) for name in MONEY if name in columns]
        for row in rows:
            sums = self.sums.setdefault(row[currency], Counter())
            sums["rows"] += 1
            for name, place in amounts:
                sums[name] += row[place]


SHOWN: Final = 5


class StagedFile:
    """File while it is read: staged rows and problems."""

    def __init__(
        self,
        request: ImportRequest,
        chosen: presets.ChosenReading,
        form: line_forms.LineForm,
        kind: ImportForm,
        rejects: Path | None,
        progress: Progress,
    ) -> None:
        self._request, self._chosen, self._form, self._kind = request, chosen, form, kind
        self._rejects, self._progress = rejects, progress
        # A name on disk consists of bytes, and is not always text that can be stored or shown.
        self.done = Imported(
            file=printable(request.path.name), kind=kind.name, sha256=request.sha256
        )
        # A statement's rows are of one source, so this keeps each group of lines together.
        self.staged = Staged(("number", *form.STAGED), order=(*kind.identity, "number"))
        self._problems = Staged(("row", "named", "sentence"), order=("row",))
        self._negative = self._claims = self.names = False
        self._spans: list[tuple[str, Span]] = []
        self._accounts: set[str | None] = set()
        self._booked: dict[str, tuple[Instant, Instant]] = {}
        self._format = ""
        self._bank: BankTable | None = None
        names = [
            1 + form.STAGED.index(each) for each in ("account", "wallet") if each in form.STAGED
        ]
        self._account_place = names[0] if names else None

    def close(self) -> None:
        self.staged.close()
        self._problems.close()

    async def read(self) -> None:
        """Stage every clear row that contradicts no other row."""
        try:
            self._sign()
            understanding = await self._read_rows()
            self._sign()
        except tables.RefusedTable as refused:
            self.done.refused = True
            if self._bank is not None:
                self.done.differs = self._bank.differs
            self._note([refused.problem])
        except OSError as error:
            name = self._request.path.name
            raise UsageError(f"{name} cannot be read: {error.strerror}") from None
        else:
            # None of the contradicting rows is imported, as it is unknown which one is true.
            if self._kind is not BOOK or self._join_stories(understanding):
                self._report_crowds(understanding.name_of(self._kind.names))
            if self._claims:
                self.staged.drop_without(self._kind.names)
            if self._kind is STATEMENT:
                self.done.notes += order_references.said_of_shared(
                    order_references.shared_payments(self.staged), order_references.OF_STATEMENT
                )
            self._count_rejected()

    def _sign(self) -> None:
        digest = opening.file_digest(self._request.path)
        if self.done.sha256 not in ("", digest):
            raise tables.RefusedTable(1, "the file changed while it was read: import it again")
        self.done.sha256 = digest

    def state_coverage(self, name: str, *, who: str, at: Instant) -> None:
        """Record the days that the file covers."""
        days, asked = self._request.days, None
        if days is not None and not self._spans:
            try:
                asked = stated_period.days_of(*days, self._chosen.mapping)
            except ValueError as error:
                raise UsageError(f"--from and --to: {error}") from None
        of_bank, found = self._kind is BANK, self._accounts or {None}
        if of_bank:
            found |= {account for account, _ in self._spans if account}
            found = found - {None} or {self._request.account or None}
        for account in sorted(found, key=str):
            own = [s for of, s in self._spans if not of_bank or of in ("", account)]
            asked_too = [] if self._spans else [asked]
            for span in (*own, *asked_too):
                # A file made before its period ended does not cover the rest.
                ended = None if span is None or span.since >= at else min(span.until, at)
                line = coverage_store.CoverageLine(
                    kind=self._kind.name,
                    name=(account or "") if of_bank else name,
                    wallet=None if of_bank else account,
                    since=None if span is None or ended is None else span.since,
                    until=ended,
                    who=coverage_store.BY_FILE if self._spans else who,
                    at=at,
                )
                self.done.covers.append(self._with_days(line) if of_bank else line)

    def _with_days(self, line: coverage_store.CoverageLine) -> coverage_store.CoverageLine:
        calendar = Calendar(self._chosen.mapping.zone or UTC)
        days = [*map(calendar.day_of, self._booked.get(line.name, ()))]
        if line.since is not None and line.until is not None:
            first, last = map(calendar.day_of, (line.since, Instant(line.until - TICK)))
            # Banks may date an opening balance on the day before, which then has no booking.
            opens_before = first < min([last, *days])
            days += [day_after(first) if opens_before else first, last]
        first_day, last_day = min(days, default=None), max(days, default=None)
        return replace(line, format=self._format, first_day=first_day, last_day=last_day)

    def booked_days(self, account: str) -> set[str]:
        """Return the days with bookings of an account."""
        calendar = Calendar(self._chosen.mapping.zone or UTC)
        of, booked_at = (1 + self._form.STAGED.index(n) for n in ("account", "booked_at"))
        rows = (row for batch in self.staged.in_order() for row in batch if row[of] == account)
        return {calendar.day_of(row[booked_at]) for row in rows}

    def _open(self) -> tables.SourceTable:
        table = self._chosen.open(self._request.table_path, self._form, opens=self._kind.opens)
        inner = table.table if isinstance(table, shaping.Shaped) else table
        if isinstance(inner, workbooks.XlsxTable):
            self.done.of_workbook = inner.besides
        if isinstance(inner, BankTable):
            self._bank, inner.accepted = inner, self._request.accepted
        return table

    async def _read_rows(self) -> line_forms.Understanding:
        done, chosen = self.done, self._chosen
        done.preset = None if chosen.preset is None else chosen.preset.name
        if self._request.inside is not None:
            inside = printable(self._request.inside.name)
            done.notes.append(f"Read from {inside}, the table in this file.")
        done.notes += chosen.notes
        table = self._open()
        done.notes += table.notes
        understanding = line_forms.Understanding(table, self._form, chosen.mapping)
        done.passed_over = understanding.passed_over()
        for found in understanding.batches():
            self._stage(found)
            self._note(found.problems)
            done.totals_found += len(found.totals)
            done.totals += found.totals[: MAX_PROBLEMS - len(done.totals)]
            done.read += found.read
            done.rejected += found.read - len(found.rows)
            if self._request.dry_run:
                shown = found.rows[: SHOWN - len(done.rows)]
                done.rows += [self._form.shown(row) for row in shown]
            self._progress(done.read, None)
            await anyio.lowlevel.checkpoint()
        done.ignored = dict(understanding.ignored())
        said = [*table.notes, *understanding.notes()]
        done.notes += [each for each in said if each not in done.notes]
        self._spans = stated_period.spans_of(table, self._request.table_path, chosen)
        if self._kind is BANK:
            self._spans = [(bank.account_name(of), span) for of, span in self._spans]
            self._accounts |= {bank.account_name(each.name) or None for each in table.periods}
            # Do not compare the name: a mapping may be tried first, and saved under a name later.
            read = map(understanding.name_of, self._form.FIELDS.names)
            columns = printable(", ".join(filter(None, read)))[:MAX_FORMAT]
            named = done.preset if self._bank is None else self._bank.format
            self._format = named or f"a table with {columns}"
        if self._bank is not None:
            done.balances = bank_balances.stored_form(
                self._bank.balances, account=self._request.account
            )
        is_empty = self._bank is not None and self._bank.statements
        if not done.read and not self._spans and not is_empty:
            left_out = f"; {sum(done.ignored.values()):,} are left out" if done.ignored else ""
            raise tables.RefusedTable(
                table.heading_row, f"the file has a heading, but no rows to import{left_out}"
            )
        return understanding

    def _stage(self, found: line_forms.Understood) -> None:
        self.staged.add(found.rows)
        if (place := self._account_place) is not None:
            self._accounts.update([row[place] for row in found.rows])
        if self._kind is BANK:
            of, booked_at = (1 + self._form.STAGED.index(n) for n in ("account", "booked_at"))
            for row in found.rows:
                account, at = row[of], row[booked_at]
                first, last = self._booked.get(account, (at, at))
                if not first < at < last:
                    self._booked[account] = (min(first, at), max(last, at))
        if self._kind is BOOK:
            minor, source = (1 + self._form.STAGED.index(n) for n in ("minor", "source"))
            self._negative = self._negative or any(row[minor] < 0 for row in found.rows)
            self.names = self.names or any(row[source] is not None for row in found.rows)
        if self._kind.at_most == 1:
            width = 1 + len(self._kind.identity)
            claims = [row for row in found.unclear if None not in row[:width]]
            self.staged.add((*row[:width], *(None,) * (len(row) - width)) for row in claims)
            self._claims = self._claims or bool(claims)

    def _report_crowds(self, column: str | None) -> None:
        kind, before, any_crowd = self._kind, None, False
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

    def _join_stories(self, understanding: line_forms.Understanding) -> bool:
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

    def leave_out(self, unfit: Sequence[order_references.Unfit]) -> None:
        """Drop the rows with another order's reference."""
        if unfit:
            self.report_unfit(unfit)
            self.staged.drop(number for number, _ in unfit)
            self._count_rejected()

    def report_unfit(self, unfit: Sequence[order_references.Unfit]) -> None:
        """Report why these rows, or their references, are not imported."""
        self._note([tables.Problem(row=row, column=None, sentence=text) for row, text in unfit])

    def _note(self, problems: Sequence[tables.Problem]) -> None:
        self.done.note(problems)
        if self._rejects is not None:
            self._problems.add((each.row, each.column, each.sentence) for each in problems)

    def set_aside(self) -> None:
        """Write the rejected rows, if any, to a file."""
        if self._rejects is None or not self.done.found:
            return
        table = self._open()
        problems = (
            tables.Problem(row=row, column=column, sentence=sentence)
            for rows in self._problems.in_order()
            for row, column, sentence in rows
        )
        decimal = self._chosen.mapping.marks.decimal
        tables.write_rejects(self._rejects, table, problems, decimal=decimal)
        self.done.rejects = printable(self._rejects.name)
