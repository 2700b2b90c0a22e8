"""Commands that import order books, statements and bank files, and list presets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.cli import operators, printing, running
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.finance.imports import Imported, ImportKind, ImportRequest


FileArgument = Annotated[
    Path, typer.Argument(help="The file: CSV, XLSX or JSON Lines, also in a ZIP or gzip.")
]


ReferenceOption = Annotated[
    str | None, typer.Option(help="Only lines with this order, group or payment.")
]
AsOfOption = Annotated[
    str | None, typer.Option(help="Use what was known at this RFC 3339 time. Default: now.")
]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of lines.")]

IMPORT_COLUMNS = ("number", "published_at", "file", "who", "read", "new", "changed", "unchanged",
           "rejected", "withdraws")  # fmt: skip

COLUMNS_NAMED = 20
"""Maximum number of ignored columns that a message names."""

CHANGES_SHOWN = 20
"""Maximum number of changed rows that a table shows."""

COVERED = ("name", "wallet", "since", "until", "by")

Use = Callable[["AppContext", Any], Awaitable["Imported"]]


def run_import(use: Use, form: printing.Format) -> None:
    """Run an import and print the result. Exit with 1 if rows were rejected."""

    done = _import_one(use)
    if form is printing.Format.table:
        _print(done)
    else:
        printing.document(_document(done), form)
    if done.found:
        raise typer.Exit(1)


def _import_one(use: Use) -> Imported:
    with printing.measure("rows") as show:
        return running.writing(use, show)


def _document(done: Imported) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "file": done.file,
        "kind": done.kind,
        "source": done.source or None,
        "import": done.number,
        "proposal": done.proposal,
        "read": done.read,
        "new": done.new,
        "changed": done.changed,
        "unchanged": done.unchanged,
        "rejected": done.rejected,
        "changes": done.changed_documents(),
        "problems": [each.document() for each in done.problems],
        "problems_left_out": done.left_out,
        "rejects": done.rejects,
        "columns_not_read": done.passed_over,
        "totals_left_out": done.totals,
        "preset": done.preset,
        "notes": [*done.notes, *filter(None, [done.suggestion])],
        "rows_ignored": done.ignored_documents(),
        "told_with_others": done.joined,
        "covers": [
            {name: value for name, value in each.document().items() if name in COVERED}
            for each in done.covers
        ],
    }
    return whole | ({"rows": done.rows} if done.rows else {})


def _print(done: Imported) -> None:
    for sentence in filter(None, (*done.notes, done.suggestion)):
        printing.note(sentence)
    if done.rows:
        printing.emit(done.rows, columns=tuple(done.rows[0]), form=printing.Format.table)
    for line in done.changed_documents()[:CHANGES_SHOWN]:
        for each in line["columns"]:
            before, after = (
                "none" if each[side] is None else printing.shown(each[side])
                for side in ("before", "after")
            )
            printing.say(f"{line['name']}: {each['column']} {before} → {after}")
    if done.changed > CHANGES_SHOWN:
        print(f"… and {counted(done.changed - CHANGES_SHOWN, 'more changed row')}")
    for each in done.problems:
        column = "" if each.column is None else f", column {each.column}"
        printing.say(f"row {each.row}{column}: {each.sentence}")
    if done.left_out:
        print(f"… and {counted(done.left_out, 'more problem')}")
    counts = ", ".join(
        f"{getattr(done, name):,} {name}" for name in ("new", "changed", "unchanged", "rejected")
    )
    printing.say(f"{done.file}: {counted(done.read, 'row')} read: {counts}.")
    if done.totals:
        first = _few([f"row {number:,}" for number in done.totals], of=done.totals_found)
        printing.note(
            f"These rows were left out, because they are totals of the rows above: {first}."
        )
    for (column, word), ignored in done.ignored.items():
        why = f"{column} is {word}" if word else f"it does not list their {column}"
        printing.note(f"The mapping left out {counted(ignored, 'row')} because {why}.")
    if done.joined:
        rows = counted(done.joined, "row")
        printing.note(f"Refunds that were merged into another row of the same order: {rows}.")
    if done.passed_over and done.preset is None:
        printing.note(f"Columns that were ignored: {_few(done.passed_over)}.")
    if done.rejects is not None:
        printing.note(f"Rejected rows are in {done.rejects}.")
    _print_coverage(done)
    if done.number is None:
        printing.note("Nothing was imported.")


def _print_coverage(done: Imported) -> None:
    from app.finance.coverage import days_of_span
    from reconcile.periods import Calendar

    calendar = Calendar(printing.merchant_zone())
    for each in done.covers:
        name = _covered_name(each.name, each.wallet)
        if days := days_of_span(each, calendar):
            by = "as the file states" if each.who == "file" else f"as {each.who} declares"
            printing.note(f"The file covers {days} of {name}, {by}.")
        else:
            missing = f"missing from {name}" if each.name or each.wallet else "missing"
            printing.note(
                f"The file does not state which days it covers, so nothing counts as {missing}. "
                f"To state the days, give --from and --to, or run `tallyhook coverage declare`."
            )


def _covered_name(name: str, wallet: str | None) -> str:
    return " ".join(filter(None, (name or "no named source", wallet)))


def _few(names: Sequence[str], *, of: int | None = None) -> str:
    shown = ", ".join(names[:COLUMNS_NAMED])
    more = (len(names) if of is None else of) - COLUMNS_NAMED
    return f"{shown}, and {more:,} more" if more > 0 else shown


def _options(
    account: Annotated[
        str, typer.Option(help="The bank account, if the rows of a table do not state it.")
    ] = "",
    accept_difference: Annotated[
        str,
        typer.Option(
            "--accept-balance-difference",
            metavar="AMOUNT",
            help="Propose to accept a bank statement whose balances and entries differ by "
            "exactly this amount. Import the statement again after the approval.",
        ),
    ] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why the balances differ.")] = "",
    book: Annotated[
        str,
        typer.Option(help="The order book's name. Default: the preset's."),
    ] = "",
    preset: Annotated[
        str | None,
        typer.Option(help='Preset name, path, or "none". Default: detected by the heading.'),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(help="A TOML file that maps columns, or a name of `mappings list`."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show how rows are read, and their problems."),
    ] = False,
    accept_good: Annotated[
        bool,
        typer.Option(
            "--accept-good",
            help="Import only the good rows. A bad row also excludes the other rows of its "
            "reference. Excluded rows are written to a file.",
        ),
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            help="With --accept-good: the file for excluded rows. Default: beside the imported "
            "file."
        ),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(help="CSV file for all changed rows, with each column before and after."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help='The delimiter of a CSV: "," ";" "|" or tab.')
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of a text file, such as cp1252.")
    ] = None,
    sheet: Annotated[
        str | None, typer.Option(help="The sheet of a workbook. Default: the first one.")
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option(help="Order of day and month in dates, such as day_first or month_first."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(help="The zone for times without one, such as Africa/Nairobi or +03:00."),
    ] = None,
    currency: Annotated[
        str | None, typer.Option(help="The currency for rows without one, such as KES.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="The first day covered, if the file does not state it."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help="The last day that the file covers, inclusive.")
    ] = None,
    by: operators.ByOption = None,
) -> None:
    """Declare the options of the import commands. The options are fields of `ImportRequest`."""


def request_of(
    path: Path, *, since: str | None, until: str | None, delimiter: str | None, **options: Any
) -> ImportRequest:
    """Build a file's import request from the command's options. Raise UsageError for only one of
    `since` and `until`."""
    from app.finance.imports import ImportRequest

    if (since is None) != (until is None):
        raise UsageError("give both --from and --to: the first and the last day of the file")
    return ImportRequest(
        path=path,
        delimiter="\t" if delimiter in ("tab", "\\t") else delimiter,
        days=None if since is None or until is None else (since, until),
        **options,
    )


def register(application: typer.Typer) -> None:
    """Add the command `import`, which imports files of every kind."""
    application.command(
        "import", epilog="Example: tallyhook import october.csv orders.csv bank.xml --dry-run"
    )(import_files)


@printing.sharing(_options, without=("rejects", "changes"))
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Order books, provider statements and bank files, exactly as exported.",
        ),
    ],
    kind: Annotated[
        Literal["book", "statement", "bank"] | None,
        typer.Option(help="The kind of the files, if their content does not show it."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="The source of the statements, needed if several are possible."),
    ] = None,
    *,
    form: printing.DocumentOption = printing.Format.table,
    **options: Any,
) -> None:
    """Import files of any kind, each as a whole or not at all. The content of a file shows its
    kind.

    The provider and the account in a statement determine its source. If several sources are
    possible, the statement is not imported. The JSON output for several files is a list in which
    each failed file has a `problem`.
    """
    documents, code = list[dict[str, Any]](), 0
    for file in files:
        request = request_of(file, **options)
        try:
            done = _import_one(partial(_import, request, kind=kind, source=source))
        except (UsageError, NotFoundError) as error:
            if len(files) == 1:
                raise
            code = code or error.exit_code
            documents.append({"file": file.name, "problem": str(error)})
            printing.note(f"{file.name}: {error}")
            continue
        code = code or int(done.found > 0)
        documents.append(_document(done))
        if form is printing.Format.table:
            _print(done)
    if form is printing.Format.jsonl:
        for each in documents:
            printing.document(each, form)
    elif form is printing.Format.json:
        print(printing.json_text(documents if len(files) > 1 else documents[0], indent=2))
    if code:
        raise typer.Exit(code)


ImportArgument = Annotated[
    int, typer.Argument(metavar="IMPORT", min=1, help="The import's number in `imports`.")
]
ReasonOption = Annotated[str, typer.Option(help="Why, in your words.")]

WITHDRAW: Final = """Undo an import of {}.

Its lines count as never imported, and earlier imports of the same lines count again. Above one
person's limit the undo becomes a proposal.
"""


def add_past_imports(group: typer.Typer, kind: ImportKind, *, files: str, one: str) -> None:
    """Add the commands `imports` and `withdraw` for one kind of import.

    files  plural for help texts, such as `the order books`
    one    singular, such as `an order book`
    """

    @group.command("imports", help=f"List {files} that were imported, newest first.")
    def imports(
        limit: LimitOption = 50, form: printing.FormatOption = printing.Format.table
    ) -> None:
        from app.finance.imports import past_imports

        found = running.reading(past_imports, kind=kind, limit=limit)
        rows = [each.document() for each in found]
        printing.emit_up_to(limit, rows, columns=IMPORT_COLUMNS, form=form)

    @group.command("withdraw", help=WITHDRAW.format(one))
    def withdraw(
        number: ImportArgument,
        reason: ReasonOption,
        by: operators.ByOption = None,
        form: printing.DocumentOption = printing.Format.table,
    ) -> None:
        _withdraw(kind, number, reason=reason, by=by, form=form)


def _withdraw(
    kind: ImportKind, number: int, *, reason: str, by: str | None, form: printing.Format
) -> None:
    from app.cli import operators
    from app.finance.withdraw_import import Withdrawn, withdraw_import

    done = running.writing(withdraw_import, number, kind=kind, by=by, reason=reason)
    if not isinstance(done, Withdrawn):
        printing.note(operators.proposal_notice(done))
        return
    if form is not printing.Format.table:
        printing.document(
            {
                "import": done.number,
                "withdraws": number,
                "file": done.withdrawn.file,
                "lines": done.lines,
                "restored": done.restored,
                "of_closed_months": done.closed,
                "later_imports": list(done.unchanged),
                "orders_named": done.named,
            },
            form,
        )
        return
    printing.say(
        f"Undid import {number} of {done.withdrawn.file}: {counted(done.lines, 'line')}, of which "
        f"{done.restored:,} have their earlier values again. The undo is recorded as import "
        f"{done.number}."
    )
    for sentence in done.notes:
        printing.note(sentence)


records_group = typer.Typer(
    help="Order books: what the merchant's own records say is owed and paid.",
    no_args_is_help=True,
)


@records_group.command(
    "import",
    epilog="Example: tallyhook records import orders.csv --preset shopify_orders",
)
@printing.sharing(_options, without=("account", "accept_difference", "reason"))
def import_records(
    file: FileArgument,
    *,
    form: printing.DocumentOption = printing.Format.table,
    **options: Any,
) -> None:
    """Import an order book, to reconcile it with received money. One bad row stops the import,
    except with --accept-good.

    Importing a file again changes nothing. A changed row becomes a new version. The columns source,
    session_reference and payment_reference assign the provider's events to orders; no other column
    changes a ledger, not even an order's price.
    """
    from app.finance.imports import import_book

    request = request_of(file, **options)
    run_import(
        lambda context, show: import_book(
            context, request, sources=context.settings.sources.keys(), progress=show
        ),
        form,
    )


@records_group.command("list")
def list_records(
    reference: ReferenceOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List the order book's lines, sorted by key; with --as-of, as known at an earlier time."""
    from app.finance.read_lines import book_document, list_book

    at = printing.moment(as_of, "--as-of")
    lines = running.reading(list_book, reference=reference, as_of=at, limit=limit)
    rows = [book_document(line) for line in lines]
    columns = (
        "line", "reference", "kind", "amount", "placed_at", "status", "refunded_amount",
        "refunded_at", "method", "group",
    )  # fmt: skip
    printing.emit_up_to(limit, rows, columns=columns, form=form)


add_past_imports(records_group, "book", files="the order books", one="an order book")


statement_group = typer.Typer(
    help="Statements: the provider's settlement and transaction files.", no_args_is_help=True
)


@statement_group.command(
    "import", epilog="Example: tallyhook statement import october.csv --source shop --dry-run"
)
@printing.sharing(_options, without=("account", "accept_difference", "reason", "book"))
def import_statement(
    file: FileArgument,
    source: Annotated[
        str | None, typer.Option(help="The source of the statement, needed if you have several.")
    ] = None,
    *,
    form: printing.DocumentOption = printing.Format.table,
    **options: Any,
) -> None:
    """Import a provider's statement, to reconcile it with received money. One bad row stops the
    import, except with --accept-good.

    Importing a file again changes nothing. A changed row becomes a new version.
    """
    request = request_of(file, **options)
    run_import(partial(_import, request, kind="statement", source=source), form)


async def _import(
    request: ImportRequest,
    context: AppContext,
    show: Any,
    *,
    kind: ImportKind | None,
    source: str | None,
) -> Imported:
    from app.finance.imports import identify, import_kind

    known = sorted(context.settings.sources)
    if source is not None and source not in known:
        raise UsageError(f"there is no source {source[:40]!r}; there are: {', '.join(known)}")
    found = await identify(context, request, kind=kind, source=source)
    kind, source = found.settled()
    request = found.reading(request)
    done = await import_kind(context, request, kind=kind, source=source, progress=show)
    done.explain(found)
    return done


@statement_group.command("list")
def list_statement_lines(
    reference: ReferenceOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List the statements' lines, sorted by key; with --as-of, as known at an earlier time."""
    from app.finance.read_lines import list_statement, statement_document

    at = printing.moment(as_of, "--as-of")
    lines = running.reading(list_statement, reference=reference, as_of=at, limit=limit)
    rows = [statement_document(line) for line in lines]
    columns = ("line", "payment", "order", "type", "gross", "fee", "net", "settled_at", "payout")
    printing.emit_up_to(limit, rows, columns=columns, form=form)


add_past_imports(statement_group, "statement", files="the statements", one="a statement")


presets_group = typer.Typer(
    help="Export files that Tallyhook reads without a mapping.", no_args_is_help=True
)

PRESET_COLUMNS = ("preset", "kind", "title", "recognized_by")


@presets_group.command("list")
def list_presets(form: printing.FormatOption = printing.Format.table) -> None:
    """List the presets, and the columns by which their files are recognized."""
    from app.finance.files.presets import list_presets

    printing.emit(list_presets(), columns=PRESET_COLUMNS, form=form)


@presets_group.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(help="A shipped preset's name, or the path of a file.")],
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show a preset's file, which you can edit and pass as --preset FILE."""
    from app.finance.files.presets import show_preset

    shown = show_preset(name)
    if form is printing.Format.table:
        printing.print_file(shown["file"])
    else:
        printing.document(shown, form)


mappings_group = typer.Typer(
    help="Mappings that were saved on the console's import page.", no_args_is_help=True
)


@mappings_group.command("list")
def list_mappings(form: printing.FormatOption = printing.Format.table) -> None:
    """List the saved mappings, sorted by name."""
    from app.finance.named_mappings import list_mappings

    rows = [each.document() for each in running.reading(list_mappings)]
    printing.emit(rows, columns=("mapping", "kind", "by", "at"), form=form)


@mappings_group.command("show")
def show_mapping(
    name: Annotated[str, typer.Argument(help="A saved mapping's name.")],
) -> None:
    """Print a saved mapping's file, which you can edit and pass as --mapping FILE."""
    from app.finance.named_mappings import one_mapping

    printing.print_file(running.reading(one_mapping, name).toml)


# --- bank -----------------------------------------------------------------------------------------

bank_group = typer.Typer(
    help="The bank's booked lines on the merchant's accounts.", no_args_is_help=True
)

COLUMNS = ("line", "booked_at", "account", "amount", "stands", "payouts", "reference")


@bank_group.command("import", epilog="Example: tallyhook bank import october.xml --dry-run")
@printing.sharing(_options, without=("book",))
def import_bank_lines(
    file: Annotated[
        Path,
        typer.Argument(help="The file: CAMT, MT940, MT942, BAI2, OFX, CSV, XLSX, JSON Lines."),
    ],
    *,
    form: printing.DocumentOption = printing.Format.table,
    **options: Any,
) -> None:
    """Import a bank's booked lines, to reconcile them with payouts. One bad line stops the import,
    except with --accept-good.

    Pending lines and lines that were imported earlier are left out. If a file in another format
    already covers a day, the import only adds the bank's references to that day's lines. In
    messages about CAMT and OFX files, row 1 is the first entry.
    """
    from app.finance.imports import import_bank

    request = request_of(file, **options)
    run_import(lambda context, show: import_bank(context, request, progress=show), form)


@bank_group.command("list")
def list_bank_lines(
    stands: Annotated[
        str | None, typer.Option(help="Only lines in this state, such as bank_line_unknown.")
    ] = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List bank lines, newest first, with the payouts that they are matched with."""
    from app.finance.bank_match import booked_lines, check_bucket

    check_bucket(stands)
    at = printing.moment(as_of, "--as-of")
    found = running.reading(booked_lines, as_of=at, stands=stands, limit=limit)
    rows = [_row(each) for each in found]
    if form is printing.Format.table:
        zone = printing.merchant_zone()
        rows = [printing.local_moment(row, zone, name="booked_at") for row in rows]
    printing.emit_up_to(limit, rows, columns=COLUMNS, form=form)


def _row(found: Any) -> dict[str, Any]:
    document = found.document()
    return {name: document[name] for name in COLUMNS} | {
        "payouts": [each["reference"] for each in document["payouts"]]
    }


@bank_group.command("show")
def show_bank_line(
    line: Annotated[str, typer.Argument(help="The line's id: bnk_ and 20 hex digits.")],
    as_of: AsOfOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show one bank line: what the bank stated, state, payouts and exchange rate."""
    from app.finance.bank_match import booked_line

    at = printing.moment(as_of, "--as-of")
    found = running.reading(booked_line, line, as_of=at)
    document = found.whole_document()
    if printing.printed(document, form):
        return
    shown = printing.local_moment(document, printing.merchant_zone(), name="booked_at")
    paid = shown.pop("payouts")
    printing.members(shown)
    if paid:
        columns = ("payout", "reference", "source", "amount", "paid_at", "lines")
        printing.emit(paid, columns=columns, form=form)


@bank_group.command("balances")
def list_bank_balances(form: printing.FormatOption = printing.Format.table) -> None:
    """List the balances of bank statements, and whether the next statement continues each closing
    balance."""
    from app.finance.bank_balances import list_balances

    columns = ("account", "opened", "opening", "closed", "closing", "difference", "state", "import")
    printing.emit(running.reading(list_balances), columns=columns, form=form)


add_past_imports(bank_group, "bank", files="the files of banks", one="a bank's file")


# --- coverage -------------------------------------------------------------------------------------

coverage_group = typer.Typer(
    help="The days that imported files cover. On other days, nothing counts as missing "
    "or as agreed.",
    no_args_is_help=True,
)


@coverage_group.command("list")
def list_coverage(form: printing.FormatOption = printing.Format.table) -> None:
    """List the days for which the imported files are complete, as stated by a file or declared by a
    person."""
    from app.finance.coverage import list_coverage

    rows = [each.document() for each in running.reading(list_coverage)]
    columns = ("number", "kind", "name", "wallet", "since", "until", "import", "by", "reason")
    printing.emit(rows, columns=columns, form=form)


@coverage_group.command("declare")
def declare_coverage(
    since: Annotated[
        str, typer.Option("--from", help="The first day, in the merchant's time zone.")
    ],
    until: Annotated[str, typer.Option("--to", help="The last day, inclusive.")],
    reason: ReasonOption,
    source: Annotated[
        str | None, typer.Option(help="The source whose statements cover these days.")
    ] = None,
    wallet: Annotated[
        str | None, typer.Option(help="Only this sub-account of the source. Default: all.")
    ] = None,
    bank: Annotated[
        str | None,
        typer.Option(metavar="ACCOUNT", help="The bank account whose files cover these days."),
    ] = None,
    book: Annotated[
        str | None, typer.Option(metavar="NAME", help="The order book that covers these days.")
    ] = None,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Declare which days the imported files of a source, bank account or order book cover.

    Money of these days then counts as missing if no file contains it. Declare only days that you
    have checked. The report names the person who declared them.
    """
    from app.finance.coverage import Declaration, days_of_span
    from app.finance.coverage import declare_coverage as declare
    from reconcile.periods import Calendar

    named: dict[ImportKind, str | None] = {"statement": source, "bank": bank, "book": book}
    given = [(kind, name) for kind, name in named.items() if name is not None]
    if len(given) != 1:
        raise UsageError(
            "give one of --source, --bank and --book, to say whose files cover these days"
        )
    ((kind, name),) = given
    asked = Declaration(
        kind=kind, name=name, wallet=wallet, first=since, last=until, reason=reason, by=by
    )
    line = running.writing(declare, asked)
    if printing.printed(line.document(), form):
        return
    days = days_of_span(line, Calendar(printing.merchant_zone()))
    printing.say(
        f"Declared as coverage {line.number}: files of {_covered_name(line.name, line.wallet)} "
        f"cover {days}."
    )


@coverage_group.command("withdraw")
def withdraw_coverage(
    number: Annotated[int, typer.Argument(min=1, help="The coverage's number in `coverage list`.")],
    reason: ReasonOption,
    by: operators.ByOption = None,
) -> None:
    """Withdraw a person's declaration of coverage. To withdraw days that a file states, withdraw
    the import."""
    from app.finance.coverage import withdraw_coverage as withdraw

    line = running.writing(withdraw, number, reason=reason, by=by)
    printing.say(f"Withdrew coverage {line.number} of {_covered_name(line.name, line.wallet)}.")
