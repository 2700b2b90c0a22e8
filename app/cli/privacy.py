"""Commands that keep stored data safe and small: backup, restore, prune, erase and privacy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import operators, printing, running
from app.cli.evidence import refuse_existing, write_private
from app.core.clock import SystemClock
from app.core.errors import TallyhookError, UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.access.proposal import Proposal
    from app.config.settings import Settings
    from app.context.context import AppContext
    from app.database.gaps import FoundGap
    from app.privacy.erase import ErasureRequest
    from app.privacy.erase_finding import Erasure
    from app.privacy.export import Exported
    from app.privacy.replay_erasures import Replayed, Without
    from reconcile.instants import Instant

WithoutErasures = Annotated[
    bool,
    typer.Option(
        "--without-erasures",
        help="Continue although the journal of erasures is lost. Needs --reason.",
    ),
]
WhyWithout = Annotated[
    str,
    typer.Option(
        "--reason", help="The reason for --without-erasures or --accept-gap. It is stored."
    ),
]

AcceptGap = Annotated[
    bool,
    typer.Option(
        "--accept-gap",
        help="Continue although acknowledged deliveries may be lost. Without this option, the "
        "command stops and lists these deliveries. Needs --reason.",
    ),
]
WhyGap = Annotated[str, typer.Option("--reason", help="The reason for --accept-gap. It is stored.")]

_KEYS = "the key that signs evidence and the key of phone numbers (*.evidence.key, *.phone.key)"
_JOURNAL = "the journal of erasures with its key (*.erasures, *.erasures.key)"


privacy_group = typer.Typer(
    help="Requests of people for a copy of their data. `erase` deletes the data.",
    no_args_is_help=True,
)


@privacy_group.callback()
def privacy() -> None:
    """Answer a person's request for a copy of their data. `erase` deletes the data."""


def register(application: typer.Typer) -> None:
    """Add the commands `backup`, `restore`, `prune` and `erase`."""
    application.command()(backup)
    application.command()(restore)
    application.command()(prune)
    application.command(
        epilog="Example: tallyhook erase --phone +254700000001 --reason 'asked' --dry-run"
    )(erase)


def backup(
    file: Annotated[Path, typer.Argument(help="The backup file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Copy the database to a file, and check the copy. The service may be running."""
    from app.config.load import load_settings
    from app.privacy.backup import back_up

    settings, began = load_settings(), SystemClock().now()
    with printing.measure("copying") as show:
        contents = running.run_loop(back_up(settings, file, replace=force, progress=show))
    if form is printing.Format.table:
        print(f"{file}: {contents.sentence()}. The backup was checked.")
    else:
        printing.document({"file": str(file), **contents.document()}, form)
    printing.note(
        f"The backup does not contain {_KEYS}. Keep copies of both keys, apart from the backup."
    )
    printing.note(
        f"The backup does not contain {_JOURNAL} either. Copy the journal after each erasure: a "
        f"restore stops without an up-to-date copy."
    )
    _note_made(settings, began, file)


def _note_made(settings: Settings, began: Instant, file: Path) -> None:
    from app.privacy.copies import note_backup

    try:
        noting = partial(note_backup, at=began, file=file)
        running.with_context(noting, purpose="writing", loaded=settings)
    except TallyhookError as error:  # such as a schema that this version is yet to upgrade
        printing.note(
            f"The backup is complete, but /metrics and the audit trail will not show it: {error}."
        )


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a database that exists.")] = False,
    without_erasures: WithoutErasures = False,
    accept_gap: AcceptGap = False,
    reason: WhyWithout = "",
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Replace the database by a backup. The service must be stopped. The replaced database is kept
    beside the new one, and erasures since the backup are repeated from their journal."""
    from app.config.database_url import sqlite_file
    from app.config.load import load_settings
    from app.privacy.backup import restore as put_back
    from app.privacy.replay_erasures import erase_in_copy

    settings = load_settings()
    without, accepts = stated_losses(without_erasures, accept_gap, reason=reason, by=by)
    with printing.measure_both("copying", "erasing again") as (show, advance):
        restored = running.run_loop(
            put_back(
                settings,
                file,
                replace=force,
                clock=SystemClock(),
                erase_again=partial(erase_in_copy, without=without, progress=advance),
                progress=show,
                accepts=accepts,
            )
        )
    if form is printing.Format.table:
        print(f"Restored: {restored.contents.sentence()}.")
    else:
        printing.document({"file": str(file), **restored.document()}, form)
    tell_gap(restored.gap)
    for sentence in restored.followed.sentences():
        printing.note(sentence)
    tell_erased(restored.erased)
    if restored.kept is not None:
        printing.note(f"The previous database is kept as {restored.kept}.")
    printing.note(f"Backups do not contain {_KEYS}. Copy both keys back to their places, too.")
    _tell_owner(sqlite_file(settings.database_url))
    printing.note(
        "Now run `tallyhook db check`, then `serve`. Deliveries after the backup are missing: have "
        "the provider send them again."
    )


def _tell_owner(database: Path | None) -> None:
    if database is None or database.stat().st_uid == database.absolute().parent.stat().st_uid:
        return
    folder = database.absolute().parent
    printing.note(
        "The database belongs to this user, but its folder belongs to another user. If the owner "
        f"of the folder runs the service, first run `chown --reference={folder} "
        f"{folder / database.stem}.*`."
    )


def stated_losses(
    without_erasures: bool, accept_gap: bool, *, reason: str, by: str | None
) -> tuple[Without | None, str | None]:
    """Return the accepted losses of a restore: a missing journal of erasures, and a gap. Raise
    UsageError for an option without reason, or a reason without option."""
    from app.privacy.replay_erasures import Without

    if not accept_gap and without_erasures != bool(reason.strip()):
        raise UsageError("give both --without-erasures and --reason, or neither")
    accepts = stated_gap(accept_gap, reason=reason if accept_gap else "")
    return Without(reason=reason, by=by) if without_erasures else None, accepts


def stated_gap(said: bool, *, reason: str) -> str | None:
    """Return the reason for accepting a gap, if accepted. Raise UsageError unless option and reason
    come together."""
    if said != bool(reason.strip()):
        raise UsageError("give both --accept-gap and --reason, or neither")
    return reason if said else None


def tell_gap(found: FoundGap | None) -> None:
    """Print the accepted gap, a period with possibly lost deliveries, if there is one."""
    if found is not None:
        printing.note(f"The gap is accepted and recorded: {found.sentence()}.")


def tell_erased(replayed: Replayed) -> None:
    """Print the result of repeating the erasures from the journal of erasures."""
    if replayed.copied:
        printing.note(
            "The journal of erasures was missing, so its copy in the database was used. Erasures "
            "after the backup are undone: find these people in your records, and erase them "
            "again."
        )
    if replayed.unread:
        printing.note(
            f"{counted(replayed.unread, 'line')} of the journal's copy cannot be read, because "
            "the key is missing. A new journal with a new key was started."
        )
    if replayed.lines:
        printing.note(
            "Erased again according to the journal of erasures "
            f"({counted(replayed.lines, 'line')}): "
            f"{counted(replayed.counts['deliveries'], 'delivery', 'deliveries')} and "
            f"{counted(replayed.counts['orders'], 'order')}."
        )
    for each in replayed.document()["pending"]:
        lines = counted(each["lines"], "line of the journal is", "lines of the journal are")
        printing.note(f"{lines} not carried out yet: {each['sentence']}.")


def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=0, max=100_000, help="Maximum number of orders in the list.")
    ] = 100,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Delete the bodies and headers of settled orders' deliveries, as `serve` does by itself.

    Deliveries about no order and no payment, such as a customer's new address, are deleted after as
    many days. Unreadable deliveries and payments of no order stay, because they need a person.
    Unsealed data is sealed first. TALLYHOOK_RETENTION_DAYS and the settings after it say how long
    other data is kept.
    """
    from app.config.load import load_settings
    from app.context.configured import compile_sources
    from app.evidence.seal import open_signer
    from app.privacy.prune import Pruning, prune_by_hand, prune_settled, retention_of

    settings = load_settings()
    retention = retention_of(settings, compile_sources(settings))
    if retention is None:
        raise UsageError(
            "TALLYHOOK_RETENTION_DAYS is 0, which keeps everything: set it to a number of days"
        )

    async def work(context: AppContext) -> Pruning:
        if dry_run:
            return await prune_settled(
                context, retention, dry_run=True, keep=limit, progress=advance
            )
        signer = await open_signer(context)
        return await prune_by_hand(
            context, retention, by=by, signer=signer, keep=limit, progress=advance
        )

    with printing.progress("looking", None) as advance:
        pruning = running.with_context(work, purpose="reading" if dry_run else "writing")
    found = pruning.document()
    if printing.printed({"dry_run": dry_run, **found}, form):
        return
    _print_pruning(found, "To delete" if dry_run else "Deleted")


def _print_pruning(found: Mapping[str, Any], verb: str) -> None:
    columns = ("order", "outcome", "last_heard", "deliveries", "bytes")
    printing.emit(found["settled"], columns=columns, form=printing.Format.table)
    gone = counted(found["deliveries"], "delivery", "deliveries")
    printing.note(
        f"{verb}: {counted(found['rejections'], 'rejection')}, and the bodies and headers of "
        f"{gone} ({counted(found['bytes'], 'byte')}). Orders of these deliveries: "
        f"{found['orders']:,}. Deliveries without an order: {found['of_no_order']:,}."
    )
    for each in found["classes"]:
        kept = "for ever" if each["days"] is None else counted(each["days"], "day")
        printing.note(f"  {each['class']}: kept {kept}; older items: {each['items']:,}")


PlacesOption = Annotated[
    bool,
    typer.Option("--places", help="Only list where text from outside is stored, and for how long."),
]


def erase(
    phone: Annotated[
        str | None, typer.Option(help="Erase the data of this phone number, such as +254700000001.")
    ] = None,
    email: Annotated[
        str | None,
        typer.Option(help="Erase the data of this email address, such as ann@example.com."),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Erase the data of this order.")] = None,
    reason: Annotated[
        str,
        typer.Option(
            help="The reason, for the audit trail. Do not write the number or address in it."
        ),
    ] = "",
    files_of_others: Annotated[
        bool,
        typer.Option(
            "--files-of-others",
            help="With --order: also erase other orders' files that contain the customer's number.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="List what would be erased and what would stay, and erase nothing."
        ),
    ] = False,
    places: PlacesOption = False,
    by: operators.ByOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Erase a customer's personal data: bodies, headers, phone numbers and session requests.

    Digests, dates, amounts, references, verdicts, ledgers and the sealed log stay. Data that must
    stay for now, such as unread deliveries, is listed with the reason, hidden from searches, and
    erased as soon as possible. The exit code is then 1, unless bookkeeping is the only reason.

    With an operator's own token, the command makes a proposal. The person who approves it types the
    number again.

    The command reads the whole database and the attached files.
    """
    from app.config.database_url import sqlite_file
    from app.config.load import load_settings
    from app.privacy.erase import ErasureRequest, traces_left
    from app.privacy.erase_finding import Erasure

    if places:
        _print_places(form)
        return
    if sum(each is not None for each in (phone, email, order)) != 1:
        raise UsageError("give one of --phone, --email and --order")
    settings = load_settings()
    asked = ErasureRequest(
        phone=phone,
        email=email,
        order=order,
        files_of_others=files_of_others,
        reason=reason,
        by=by,
    )
    erasure = _erased(asked, dry_run=dry_run)
    if not isinstance(erasure, Erasure):
        printing.note(operators.proposal_notice(erasure))
        return
    path = None if dry_run else sqlite_file(settings.database_url)
    left = [] if path is None else traces_left(path, erasure)
    _print_erasure(erasure, left, form)
    if left or any(each.why != "accounts" for each in erasure.kept):
        raise typer.Exit(1)


def _print_places(form: printing.Format) -> None:
    from app.config.load import load_settings
    from app.privacy.places import FILES, columns, retained_rows

    rows = [
        {"where": where, "personal": m.personal, "what": m.what, "erasure": m.erased_words}
        for where, m in (*columns(), *FILES)
    ]
    rows += retained_rows(load_settings())
    printing.emit(rows, columns=("where", "personal", "what", "erasure"), form=form)


def _erased(asked: ErasureRequest, *, dry_run: bool) -> Erasure | Proposal:
    from app.evidence.seal import open_signer, seal_all
    from app.privacy.erase import erase, propose_erasure

    async def work(context: AppContext) -> Erasure | Proposal:
        if not dry_run:
            proposal = await propose_erasure(context, asked, progress=advance)
            if proposal is not None:
                return proposal
            # Data must be sealed in its original form before it is deleted.
            await seal_all(context, await open_signer(context))
        return await erase(context, asked, dry_run=dry_run, progress=advance)

    with printing.progress("looking", None) as advance:
        return running.writing(work)


def _print_erasure(erasure: Erasure, left: list[Path], form: printing.Format) -> None:
    action = "would go" if erasure.dry_run else "erased"
    if form is printing.Format.json:
        printing.document(erasure.document() | {"traces": [str(path) for path in left]}, form)
    else:
        printing.emit(_rows(erasure, action), columns=("what", "deed", "sentence"), form=form)
    counts = erasure.counts()
    printing.note(
        f"{'Would be erased' if erasure.dry_run else 'Erased'}: bodies and headers of "
        f"{counted(counts['deliveries'], 'delivery', 'deliveries')} about "
        f"{counted(counts['orders'], 'order')}; {counted(counts['rejections'], 'rejection')}; "
        f"{counted(counts['session_requests'], 'session request')}; "
        f"{counted(counts['book_lines'], 'phone number')} in order books; "
        f"{counted(counts['bank_lines'], 'text')} in bank files; "
        f"{counted(counts['attachments'], 'attachment')}; {counted(counts['reasons'], 'reason')} "
        f"in events. Items kept: {counts['kept']:,}. Items restricted: {counts['restricted']:,}."
    )
    if erasure.dry_run:
        return
    if not erasure.tidied:
        printing.note(
            "The erased data stays in the database's write-ahead log until the next start, because "
            "another process is still reading the log."
        )
    for path in left:
        printing.note(
            f"{path} still contains the number or address in free space: stop the service, and run "
            f"`tallyhook db vacuum`."
        )
    printing.note(
        f"Not erased: {counted(len(erasure.copies), 'earlier copy', 'earlier copies')} in the "
        "list above, and all backups by other tools. Delete these copies yourself."
    )


def _rows(erasure: Erasure, action: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "what": each.order,
            "deed": action,
            "sentence": f"{each.outcome}; bodies and headers of "
            + counted(len(each.sizes), "delivery", "deliveries"),
        }
        for each in erasure.orders
    ]
    for name in erasure.deliveries:
        rows.append({"what": name, "deed": action, "sentence": "a delivery without an order"})
    for file in erasure.attachments:
        sentence = f"a file of the order {file.order}" if file.order else "a file of a break"
        rows.append({"what": file.attachment_id, "deed": action, "sentence": sentence})
    for name in erasure.rejections:
        rows.append({"what": name, "deed": action, "sentence": "a refused delivery"})
    for kept in erasure.kept:
        rows.append({"what": kept.what, "deed": "kept", "sentence": kept.sentence})
    for copy in erasure.copies:
        rows.append({"what": copy.name, "deed": "not reached", "sentence": copy.sentence})
    for kept in erasure.restricted():
        row = {"what": kept.what, "deed": "restricted", "sentence": kept.restricted_words}
        rows.append(row)
    for place in erasure.places():
        if place.went:
            sentence = counted(place.went, "row")
            rows.append({"what": place.where, "deed": action, "sentence": sentence})
        if place.stays:
            sentence = f"{counted(place.stays, 'row stays', 'rows stay')}: {place.why}"
            rows.append({"what": place.where, "deed": "kept", "sentence": sentence})
    return rows


AttachmentsOption = Annotated[
    bool,
    typer.Option(
        "--with-attachments",
        help="Include attached PDFs and pictures. Personal data in them are not masked.",
    ),
]


@privacy_group.command(
    "export",
    epilog="Example: tallyhook privacy export --order O-1 --identity seen --out c.zip",
)
def export_copy(
    phone: Annotated[
        str | None, typer.Option(help="Copy the data of this phone number, such as +254700000001.")
    ] = None,
    email: Annotated[
        str | None, typer.Option(help="Copy the data of this address, such as ann@example.com.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="Copy this order's customer data.")] = None,
    identity: Annotated[
        str,
        typer.Option(help="How you checked the person's identity, without number and address."),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The ZIP to write, or - for standard output. An existing file is not replaced.",
        ),
    ] = None,
    proposal: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The approved proposal's id, needed with your own token."),
    ] = None,
    attachments: AttachmentsOption = False,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Write a copy of all that is kept about a person.

    Begin with index.html, which names the kept data, its origin, its dates and the legal ground.
    Other people's phone numbers, email addresses and known names are masked. Search free texts for
    names before you hand the copy out. Attached PDFs and pictures are listed; with
    --with-attachments the copy contains them, unmasked. Data that an erasure had to keep is
    included.

    With an operator's own token, the command makes a proposal. After its approval, run the command
    again with --proposal and --out.
    """
    from app.privacy.export import Exported, ExportRequest, export, propose_export
    from app.wiring.work import proposals_of

    if sum(each is not None for each in (phone, email, order)) != 1:
        raise UsageError("give one of --phone, --email and --order")
    if out is not None:
        refuse_existing(out, binary=True)
    asked = ExportRequest(
        phone=phone, email=email, order=order, attachments=attachments, identity=identity, by=by
    )

    async def work(context: AppContext) -> Exported | Proposal:
        approved = None
        if proposal is not None:
            approved = await proposals_of(context).one(proposal)
        elif (made := await propose_export(context, asked, progress=advance)) is not None:
            return made
        if out is None:
            raise UsageError("--out is missing: name the ZIP to write")
        return await export(context, asked, approved=approved, progress=advance)

    with printing.progress("looking", None) as advance:
        done = running.writing(work)
    if not isinstance(done, Exported):
        printing.note(operators.proposal_notice(done))
        return
    assert out is not None
    write_private(out, done.archive)
    if form is not printing.Format.table and out != printing.STANDARD:
        printing.document({"file": str(out), **done.document()}, form)
    printing.note(
        f"{out} was written: {counted(len(done.archive), 'byte')} with "
        f"{counted(done.counts['rows'], 'row')} about {counted(done.counts['orders'], 'order')}. "
        f"Its SHA-256 is {done.sha256}."
    )
    if done.counts["unmasked"]:
        printing.note(
            f"{counted(done.counts['unmasked'], 'attached file')} cannot be masked: look through "
            "files/ before you hand over the copy."
        )
