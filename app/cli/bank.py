"""Commands on the merchant's bank: import its files, list and show what it booked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.imports import (
    AcceptGoodOption,
    AsOfOption,
    CurrencyOption,
    DatesOption,
    DelimiterOption,
    DryRunOption,
    EncodingOption,
    LimitOption,
    MappingOption,
    RejectsOption,
    ZoneOption,
    add_past_imports,
    request_of,
    run_import,
)
from app.cli.operators import ByOption
from app.cli.output import (
    DocumentOption,
    Format,
    FormatOption,
    document,
    emit,
    emit_up_to,
    moment,
)
from app.cli.running import with_context

bank_group = typer.Typer(
    help="The bank: what it booked on the merchant's accounts.", no_args_is_help=True
)

COLUMNS = ("line", "booked_at", "account", "amount", "stands", "payouts", "reference")


@bank_group.command("import", epilog="Such as: tallyhook bank import october.xml --dry-run")
def import_bank_lines(
    file: Annotated[
        Path, typer.Argument(help="The file: CAMT.053, MT940, OFX, or CSV, XLSX, JSON Lines.")
    ],
    account: Annotated[
        str, typer.Option(help="Of which account it is, where the rows of a table do not say.")
    ] = "",
    mapping: MappingOption = None,
    dry_run: DryRunOption = False,
    accept_good: AcceptGoodOption = False,
    rejects: RejectsOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    dates: DatesOption = None,
    zone: ZoneOption = None,
    currency: CurrencyOption = None,
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Import what the bank booked, to be reconciled with what providers paid out. All, or nothing.

    The same file again changes nothing, nor does one that overlaps with it. What is not booked yet
    is left out. A row of CAMT.053 and OFX is an entry of the file, counted from one.
    """
    from app.finance.imports import import_bank

    request = request_of(
        file,
        mapping=mapping,
        dry_run=dry_run,
        accept_good=accept_good,
        rejects=rejects,
        delimiter=delimiter,
        encoding=encoding,
        dates=dates,
        zone=zone,
        currency=currency,
        by=by,
    )
    request = replace(request, account=account)
    run_import(
        lambda context, settings, show: import_bank(context, request, progress=show),
        form,
    )


@bank_group.command("list")
def list_bank_lines(
    stands: Annotated[
        str | None, typer.Option(help="Only lines that stand there, such as bank_line_unknown.")
    ] = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    form: FormatOption = Format.table,
) -> None:
    """List what the bank booked, the newest first, with the payouts it is matched with."""
    from app.finance.bank_match import booked_lines, check_bucket

    check_bucket(stands)
    at = moment(as_of, "--as-of")
    found = with_context(
        lambda context, _: booked_lines(context, as_of=at, stands=stands, limit=limit)
    )
    emit_up_to(limit, [_row(each) for each in found], columns=COLUMNS, form=form)


def _row(found: Any) -> dict[str, Any]:
    told = found.document()
    return {name: told[name] for name in COLUMNS} | {
        "payouts": [each["reference"] for each in told["payouts"]]
    }


@bank_group.command("show")
def show_bank_line(
    line: Annotated[str, typer.Argument(help="The line's id: bnk_ and 20 hex digits.")],
    as_of: AsOfOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Show one bank line: all that the bank told, where it stands, its payouts and their rate."""
    from app.finance.bank_match import booked_line

    at = moment(as_of, "--as-of")
    found = with_context(lambda context, _: booked_line(context, line, as_of=at))
    told = found.document(whole=True)
    if form is not Format.table:
        document(told, form)
        return
    paid = told.pop("payouts")
    rows = [{"what": name.replace("_", " "), "value": value} for name, value in told.items()]
    emit(rows, columns=("what", "value"), form=form)
    if paid:
        columns = ("payout", "reference", "source", "amount", "paid_at", "lines")
        emit(paid, columns=columns, form=form)


add_past_imports(bank_group, "bank", files="the files of banks", one="a bank's file")
