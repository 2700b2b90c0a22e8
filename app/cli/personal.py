"""Commands on personal data: erase."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.operators import ByOption
from app.cli.output import Format, FormatOption, document, emit, note, progress
from app.core.text import counted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.privacy.erase import Asked
    from app.privacy.erase_finding import Erasure
    from app.receiving.context import AppContext


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command(
        epilog="Such as: tallyhook erase --phone +254700000001 --reason 'asked' --dry-run"
    )(erase)


EverywhereOption = Annotated[
    bool, typer.Option("--everywhere", help="Look for the number in every body and header, too.")
]


def erase(
    phone: Annotated[
        str | None, typer.Option(help="Everything of this number, such as +254700000001.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="Everything of this order.")] = None,
    reason: Annotated[
        str, typer.Option(help="Why; kept in the trail, so without the number itself.")
    ] = "",
    everywhere: EverywhereOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would go, and what would stay.")
    ] = False,
    by: ByOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Erase a customer's personal data: bodies, headers, phone numbers and session requests.

    Digests, dates, amounts, references, verdicts, ledgers and the sealed log stay. What must stay
    for now, unread deliveries too, is listed with why, and the exit code is 1: ask again later.

    A number is found where events name it as the customer's. `--everywhere` also finds it in other
    members, texts and headers, and looks for traces in the files: it reads the whole database.
    """
    from app.config.checks import sqlite_file
    from app.config.load import load_settings
    from app.core.errors import UsageError
    from app.privacy.erase import Asked, traces_left

    if (phone is None) == (order is None):
        raise UsageError("say --phone or --order, one of the two")
    settings = load_settings()
    # Where digests are let go by themselves, they do not lead to all that is there.
    everywhere |= bool(settings.retention_days or settings.retention_phones_days)
    asked = Asked(phone=phone, order=order, reason=reason, by=by, everywhere=everywhere)
    erasure = _erased(asked, settings, dry_run=dry_run)
    path = None if dry_run else sqlite_file(settings.database_url)
    left = [] if path is None else traces_left(path, erasure)
    _tell(erasure, left, form)
    if erasure.kept or left:
        raise typer.Exit(1)


def _erased(asked: Asked, settings: Settings, *, dry_run: bool) -> Erasure:
    from app.bootstrap_evidence import signer_of
    from app.bootstrap_sources import compile_sources
    from app.cli.running import with_context
    from app.evidence.seal import seal_all
    from app.privacy.erase import erase
    from app.privacy.erase_finding import Rules

    sources = compile_sources(settings)
    rules = Rules.of_days(settings.retention_minimum_days)

    async def work(context: AppContext, settings: Settings) -> Erasure:
        if not dry_run:  # what is let go must have been sealed as it came
            await seal_all(context, await signer_of(context, settings))
        return await erase(
            context, asked, sources=sources, rules=rules, dry_run=dry_run, progress=advance
        )

    with progress("looking", None) as advance:
        return with_context(work, purpose="writing")


def _tell(erasure: Erasure, left: list[Path], form: Format) -> None:
    deed = "would go" if erasure.dry_run else "erased"
    if form is Format.json:
        document(erasure.document() | {"traces": [str(path) for path in left]}, form)
    else:
        emit(_rows(erasure, deed), columns=("what", "deed", "sentence"), form=form)
    counts = erasure.counts()
    note(
        f"{'Would go' if erasure.dry_run else 'Erased'}: bodies and headers of "
        f"{counted(counts['deliveries'], 'delivery', 'deliveries')} of "
        f"{counted(counts['orders'], 'order')}; {counted(counts['rejections'], 'rejection')}; "
        f"{counted(counts['session_requests'], 'session request')}; "
        f"{counted(counts['book_lines'], 'phone')} in order books. Kept: {counts['kept']}."
    )
    if erasure.by_index:
        note(
            "Looked at where events name the number as the customer's; --everywhere looks through "
            "every body and header, too."
        )
    if erasure.dry_run:
        return
    if not erasure.tidied:
        note("A reader holds up the database's log: what was erased is in it until the next start.")
    for path in left:
        note(
            f"{path} still holds the number in an unused place: stop the service and run "
            "`tallyhook db vacuum`."
        )
    note("Backups made before still hold it; delete them in time.")


def _rows(erasure: Erasure, deed: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "what": each.order,
            "deed": deed,
            "sentence": f"{each.outcome}; bodies and headers of "
            + counted(len(each.sizes), "delivery", "deliveries"),
        }
        for each in erasure.orders
    ]
    for name in erasure.deliveries:
        rows.append({"what": name, "deed": deed, "sentence": "a delivery of no order"})
    for name in erasure.rejections:
        rows.append({"what": name, "deed": deed, "sentence": "a refused delivery"})
    for kept in erasure.kept:
        rows.append({"what": kept.what, "deed": "kept", "sentence": kept.sentence})
    return rows
