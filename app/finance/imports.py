"""Import order books, statements and bank files."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from datetime import UTC
from functools import partial
from itertools import chain
from typing import Final

from app.access.operators import permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError, TallyhookError, UsageError
from app.database.engine import Connection
from app.database.statements import Rows, run
from app.finance import (
    bank_balances,
    bank_enrichment,
    changed_rows,
    file_identity,
    import_store,
    line_version_store,
    named_mappings,
    order_references,
)
from app.finance.files import (
    bank,
    books,
    containers,
    line_forms,
    mapping_draft,
    opening,
    presets,
    statements,
    tables,
    workbooks,
)
from app.finance.files.banks.entries import Balances
from app.finance.import_store import ImportKind as ImportKind
from app.finance.import_store import ImportPageDocument as ImportPageDocument
from app.finance.line_version_store import WrittenVersions
from app.finance.stage_file import BANK, BOOK, FORMS, STATEMENT, ImportForm, StagedFile
from app.finance.stage_file import Imported as Imported
from app.finance.stage_file import ImportRequest as ImportRequest
from app.finance.staged_rows import chunks
from app.finance.write_import import MOST_ROWS, Progress, Write, write_import
from app.receiving.pace import Pace
from app.receiving.phone_store import recipient_note, write_phone_notes
from reconcile.instants import Instant
from reconcile.periods import Calendar

# --- importing a file -----------------------------------------------------------------------------


async def import_file(
    context: AppContext,
    request: ImportRequest,
    chosen: presets.ChosenReading,
    *,
    form: line_forms.LineForm,
    kind: ImportForm,
    name: str,
    progress: Progress,
) -> Imported:
    """Import a file, or only report what an import would do. Raise UsageError if permission is
    missing, or if a booking would count twice."""
    if request.rejects is not None and not request.accept_good:
        raise UsageError("--rejects works only with --accept-good: give both")
    aside = request.accept_good and not request.dry_run
    rejects = (request.rejects or tables.rejects_beside(request.path)) if aside else None
    who = request.actor
    if who is None:
        async with context.database.reading() as connection:
            who = await permitted(connection, by=request.by, action=kind.action)
    if rejects is not None:
        tables.refuse_to_replace(rejects)
    write = _writing(context, request, kind, Calendar(chosen.mapping.zone or UTC))
    with closing(StagedFile(request, chosen, form, kind, rejects, progress)) as reading:
        await reading.read()
        done = reading.done
        shared = order_references.shared_references(reading.staged) if reading.names else {}
        if reading.names:
            done.notes += order_references.said_of_shared(shared, order_references.OF_BOOK)
            reading.leave_out(await order_references.unfit_references(context, reading.staged))
        if not done.refused:
            reading.state_coverage(name, who=who.name, at=context.clock.now())
        async with context.database.reading() as connection:
            if kind is BANK:
                await _fit_in(connection, reading, now=context.clock.now())
            if request.dry_run:
                for rows in chunks(reading.staged, Pace(first=MOST_ROWS, most=MOST_ROWS)):
                    done.add(await write(connection, rows, number=None))
                    done.add_up(rows, columns=form.STAGED)
        if not request.dry_run and (not done.found or (rejects and not done.refused)):
            reading.set_aside()
            done.number, written = await write_import(
                context,
                import_store.Import(
                    kind=kind.name,
                    file=done.file,
                    sha256=done.sha256,
                    who=who.name,
                    started_at=context.clock.now(),
                    read=done.read,
                    rejected=done.rejected,
                ),
                reading.staged,
                action=kind.action,
                covers=done.covers,
                balances=done.balances,
                who=who,
                write=write,
                progress=progress,
            )
            done.add(written)
            if reading.names:
                unfit = await order_references.name_references(
                    context,
                    reading.staged,
                    number=done.number,
                    without=frozenset(chain.from_iterable(shared.values())),
                )
                reading.report_unfit(unfit)
    if done.refused and not request.mapped and request.preset is None:
        _suggest_kind(context, request, done)
    done.notes += [*done.said_beside(), *done.said_of_words()]
    done.problems.sort(key=lambda problem: problem.row)
    return done


async def _fit_in(connection: Connection, reading: StagedFile, *, now: Instant) -> None:
    done = reading.done
    enriched = await bank_enrichment.accounts_to_enrich(
        connection, done.covers, booked_days=reading.booked_days
    )
    if enriched:
        done.covers = [each for each in done.covers if each.name not in enriched]
        done.balances = [each for each in done.balances if each.account not in enriched]
        done.notes += await bank_enrichment.enrich(connection, reading.staged, enriched, as_of=now)
    done.notes += await bank_balances.notes_on_joins(connection, done.balances, as_of=now)


def _writing(
    context: AppContext, request: ImportRequest, kind: ImportForm, calendar: Calendar
) -> Write:
    write: Write = partial(line_version_store.write_lines, kind=kind.name, calendar=calendar)
    if kind is STATEMENT:
        write = _noting_recipients(context, write)
    if request.changes is not None:
        write = changed_rows.noting_changes(write, kind.name, request.changes)
    return write


def _suggest_kind(context: AppContext, request: ImportRequest, done: Imported) -> None:
    try:
        found = file_identity.identify_file(request, sources=context.settings.sources, source="")
    except TallyhookError:  # reading it has reported why
        return
    if found.kind not in (None, done.kind):
        done.looks_like = found.kind
        name, preset = presets.KIND_NAMES[found.kind], found.preset
        what = "is"
        if preset is not None:
            what = f"looks like {preset.export.name} ({preset.export.title}), which is"
        if (fault := _fault_of(context, request, found.kind)) is not None:
            done.suggestion = f"The file {what} {name}, but cannot be read as one either: {fault}."
        else:
            done.suggestion = (
                f"The file {what} {name}: import it with `{presets.COMMANDS[found.kind]}`, "
                "or with `tallyhook import`, which recognizes it."
            )
    done.notes += found.nearly


def _fault_of(context: AppContext, request: ImportRequest, kind: ImportKind) -> str | None:
    try:
        chosen = presets.choose(request, kind, unstated=_unstated(context))
        form = file_identity.ROW_FORMS[kind](chosen.mapping)
        table = chosen.open(request.table_path, form, opens=FORMS[kind].opens)
        found = next(line_forms.Understanding(table, form, chosen.mapping).batches(), None)
    except (tables.RefusedTable, TallyhookError) as error:
        return str(error)
    if found is None or found.rows or not found.problems:
        return None
    return f"row {found.problems[0].row:,} {found.problems[0].sentence}"


THE_BOOK: Final = "book"
"""Default name of an order book."""


async def import_book(
    context: AppContext,
    request: ImportRequest,
    *,
    sources: Collection[str] | None = None,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import an order book."""
    async with _unpacked(context, request) as request:
        chosen = presets.choose(request, "book", unstated=_unstated(context))
        form = books.BookForm(chosen.mapping, sources=sources)
        name = request.book or (THE_BOOK if chosen.preset is None else chosen.preset.name)
        return await import_file(
            context, request, chosen, form=form, kind=BOOK, name=name, progress=progress
        )


async def import_statement(
    context: AppContext,
    request: ImportRequest,
    *,
    source: str,
    own_orders: bool = False,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a provider's statement."""
    async with _unpacked(context, request) as request:
        chosen = presets.choose(request, "statement", unstated=_unstated(context))
        if chosen.preset is not None:
            file_identity.check_source(
                context.settings.sources, source, chosen.preset.profiles, known=chosen.notes
            )
        form = statements.StatementForm(chosen.mapping, source=source, own_orders=own_orders)
        done = await import_file(
            context, request, chosen, form=form, kind=STATEMENT, name=source, progress=progress
        )
    done.source = source
    return done


def _noting_recipients(context: AppContext, write: Write) -> Write:
    payment, recipient = (
        statements.StatementForm.STAGED.index(each) for each in ("payment", "recipient")
    )

    async def noting(connection: Connection, rows: Rows, *, number: int | None) -> WrittenVersions:
        key, now = context.phone_key, context.clock.now()
        notes = [
            recipient_note(key.digest(row[recipient]), row[payment], now)
            for row in rows
            if key is not None and row[recipient] and row[payment]
        ]
        if number is not None and notes:
            await run(connection, write_phone_notes, notes)
        return await write(connection, rows, number=number)

    return noting


async def import_bank(
    context: AppContext,
    request: ImportRequest,
    *,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a bank file."""
    async with _unpacked(context, request) as request:
        chosen = presets.choose(request, "bank", unstated=_unstated(context))
        if request.account:
            defaults = {**chosen.mapping.defaults, "account": request.account}
            chosen = replace(chosen, mapping=replace(chosen.mapping, defaults=defaults))
        if bool(request.accept_difference) != bool(request.reason):
            raise UsageError("give both --accept-balance-difference and --reason, or neither")
        while True:
            form = bank.BankForm(chosen.mapping)
            done = await import_file(
                context, request, chosen, form=form, kind=BANK, name="", progress=progress
            )
            if (differs := done.differs) is None:
                break
            known = await bank_balances.approval_of(context, done.sha256, differs)
            if known is None and request.accept_difference:
                bank_balances.check_amount(differs, request.accept_difference)
                if not request.dry_run:
                    return await _proposed_difference(context, request, done, differs)
                known = ""
            if known is None:
                return done
            request = replace(request, accepted={**request.accepted, differs.name: known})
        if request.accept_difference and not request.accepted and not done.refused:
            raise UsageError(
                "every statement in the file adds up: leave --accept-balance-difference out"
            )
        return done


async def _proposed_difference(
    context: AppContext, request: ImportRequest, done: Imported, differs: Balances
) -> Imported:
    made = await bank_balances.propose_difference(
        context,
        differs,
        file=done.file,
        sha256=done.sha256,
        reason=request.reason,
        by=request.by,
    )
    done.problems, done.found, done.refused, done.proposal = [], 0, False, made.id
    done.notes.append(
        f"Proposed as {made.id}. Import the file again once a second operator has approved it "
        f"(`tallyhook proposals show {made.id}`)."
    )
    return done


async def identify(
    context: AppContext, request: ImportRequest, *, kind: ImportKind | None, source: str | None
) -> file_identity.FileIdentity:
    """Identify a file's kind and its configured source."""
    async with _unpacked(context, request) as request:
        found = file_identity.identify_file(
            request,
            sources=context.settings.sources,
            kind=kind,
            source=source,
            account=request.account,
            saved=await named_mappings.list_mappings(context),
        )
        if not found.kinds and request.sheet is None and len(sheets := _sheets(request)) > 1:
            names = ", ".join(map(repr, sheets[:MOST_SHEETS]))
            others = (
                f"Only one of the workbook's sheets was examined; {names} have content. To read "
                "another one, "
                "name it with --sheet."
            )
            found = replace(found, because=[*found.because, others])
    return found


MOST_SHEETS: Final = 10


async def sheets_of(context: AppContext, request: ImportRequest) -> Sequence[str]:
    """Return a workbook's sheets with content; none for other files."""
    async with _unpacked(context, request) as request:
        return _sheets(request)


def _sheets(request: ImportRequest) -> Sequence[str]:
    try:
        if opening.format_of(request.table_path) == "workbook":
            return workbooks.sheets_with_rows(request.table_path)
    except tables.RefusedTable:  # reading the file reports why
        pass
    return ()


async def preview(context: AppContext, request: ImportRequest) -> mapping_draft.TablePreview:
    """Return the columns and first rows of an unknown file."""
    async with _unpacked(context, request) as request:
        try:
            return mapping_draft.preview_table(
                request.table_path,
                delimiter=request.delimiter,
                encoding=request.encoding,
                sheet=request.sheet,
            )
        except tables.RefusedTable as refused:
            raise UsageError(str(refused)) from None


@asynccontextmanager
async def _unpacked(context: AppContext, request: ImportRequest) -> AsyncIterator[ImportRequest]:
    request = await named_mappings.with_named_mapping(context, request)
    with ExitStack() as stack:
        with suppress(tables.RefusedTable, OSError):
            table = stack.enter_context(containers.unpacked(request.path))
            request = replace(request, inside=table)
        yield request


async def import_kind(
    context: AppContext,
    request: ImportRequest,
    *,
    kind: ImportKind,
    source: str,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a file of the given kind."""
    sources = context.settings.sources
    if kind != "bank" and request.accept_difference:
        raise UsageError(
            "only a bank's statement has balances: leave --accept-balance-difference out"
        )
    if kind == "book":
        return await import_book(context, request, sources=sources.keys(), progress=progress)
    if kind == "bank":
        return await import_bank(context, request, progress=progress)
    known = sources.get(source)
    own_orders = known is not None and known.orders == "own"
    return await import_statement(
        context, request, source=source, own_orders=own_orders, progress=progress
    )


def _unstated(context: AppContext) -> presets.ReadingDefaults:
    country = context.settings.phone_country or None
    return presets.ReadingDefaults(zone=context.zone, phone_country=country)


async def past_import(context: AppContext, number: int) -> import_store.Import:
    """Return a published import. Raise NotFoundError for other numbers."""
    async with context.database.reading() as connection:
        found = await import_store.one_import(connection, number)
    if found is None:
        raise NotFoundError(
            f"there is no import {number}; `tallyhook records imports`, `statement imports` and "
            "`bank imports` list the imports"
        )
    return found


async def past_imports(
    context: AppContext,
    *,
    kind: ImportKind,
    limit: int,
    before: int = import_store.BEYOND,
) -> list[import_store.Import]:
    """Return the published imports with numbers below `before`, newest first."""
    async with context.database.reading() as connection:
        return await import_store.imports(connection, kind=kind, limit=limit, before=before)


async def taken_back(context: AppContext, found: Sequence[import_store.Import]) -> list[int]:
    async with context.database.reading() as connection:
        return await import_store.taken_back(connection, [each.number for each in found])
