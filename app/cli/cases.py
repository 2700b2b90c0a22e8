"""Commands on an order's case: files that people attach to it or its breaks, letter, checklist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli.breaks import breaks_group
from app.cli.evidence import evidence_group
from app.cli.operators import ByOption
from app.cli.output import DocumentOption, Format, document, emit, note
from app.cli.running import with_context
from app.core.errors import UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.evidence.attachments import Attachment

Kind = Annotated[
    str,
    typer.Option(
        help="receipt, delivery, correspondence, terms, refund_policy or other.",
    ),
]
File = Annotated[Path, typer.Argument(help="A PDF, PNG, JPEG or plain text of at most 10 MiB.")]
Carrier = Annotated[str, typer.Option(help="Of a delivery: who brought it.")]
Tracking = Annotated[str, typer.Option(help="Of a delivery: its tracking number.")]
COLUMNS = ("attachment", "kind", "name", "carrier", "tracking", "media", "size", "at", "gone_at")


def attach(
    order: Annotated[str, typer.Argument(help="The order's reference.")],
    file: File,
    kind: Kind,
    said: Annotated[str, typer.Option("--note", help="What it shows; it goes with the file.")] = "",
    carrier: Carrier = "",
    tracking: Tracking = "",
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Attach a file to an order: an exhibit of its letter. It is erased with the order's data."""
    _attach("order", order, file, kind, (said, carrier, tracking), by, form)


def attach_to_break(
    name: Annotated[str, typer.Argument(metavar="ID", help="The break's id.")],
    file: File,
    kind: Kind = "other",
    said: Annotated[str, typer.Option("--note", help="What it shows; it goes with the file.")] = "",
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Attach a file to a break, such as the provider's answer. It is the order's, too."""
    _attach("break", name, file, kind, (said, "", ""), by, form)


def _attach(
    about: Literal["order", "break"],
    subject: str,
    file: Path,
    kind: str,
    told: tuple[str, str, str],
    by: str | None,
    form: Format,
) -> None:
    from app.evidence.attachments import ATTACHMENT_KINDS, AttachRequest, shown_name
    from app.evidence.attachments import attach as attach_file

    known = next((each for each in ATTACHMENT_KINDS if each == kind), None)
    if known is None:
        raise UsageError(f"--kind is one of: {', '.join(ATTACHMENT_KINDS)}")
    said, carrier, tracking = told
    asked = AttachRequest(
        about=about,
        subject=subject,
        name=shown_name(file.name),
        content=_read(file),
        kind=known,
        note=said,
        carrier=carrier,
        tracking=tracking,
        by=by,
    )
    kept = with_context(lambda context, settings: attach_file(context, asked), purpose="writing")
    if form is not Format.table:
        document(kept.document(), form)
        return
    print(kept.record.attachment_id)
    note(
        f"{asked.name}, {counted(kept.record.size, 'byte')}, SHA-256 {kept.record.sha256}, is "
        f"attached to {subject}. The log seals its digest; erasing the order takes the file."
    )


def _read(path: Path) -> bytes:
    from app.evidence.attachments import MAX_FILE_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def attachments(
    order: Annotated[str, typer.Argument(help="The order's reference.")],
    form: DocumentOption = Format.table,
) -> None:
    """List what is attached to an order and its breaks; what went is told without its name."""
    from app.evidence.attachments import attachments_of

    found = with_context(lambda context, settings: attachments_of(context, order=order))
    _print(found, form)


def attachments_of_break(
    name: Annotated[str, typer.Argument(metavar="ID", help="The break's id.")],
    form: DocumentOption = Format.table,
) -> None:
    """List what is attached to a break; what went is told without its name."""
    from app.evidence.attachments import attachments_of

    found = with_context(lambda context, settings: attachments_of(context, break_=name))
    _print(found, form)


def _print(found: list[Attachment], form: Format) -> None:
    from app.evidence.attachments import listing

    told: dict[str, Any] = listing(found)
    if form is not Format.table:
        document(told, form)
    elif found:
        emit(told["attachments"], columns=COLUMNS, form=form)
    else:
        note("Nothing is attached to it.")


def detach(
    name: Annotated[str, typer.Argument(metavar="ID", help="The attachment's id.")],
    reason: Annotated[str, typer.Option(help="Why; the audit trail keeps it.")],
    by: ByOption = None,
    form: DocumentOption = Format.table,
) -> None:
    """Let an attachment go, of an order or a break: the file is deleted, and the trail says so."""
    from app.evidence.attachments import detach as let_go

    gone = with_context(
        lambda context, settings: let_go(context, name, reason=reason, by=by), purpose="writing"
    )
    if form is not Format.table:
        document(gone.document(), form)
        return
    note(f"{name} is gone; its digest, and why it went, stay in the trail.")


def register() -> None:
    """Add them to their groups."""
    such_as = "Such as: tallyhook evidence attach ORD-1042 parcel.pdf --kind delivery"
    evidence_group.command("attach", epilog=such_as)(attach)
    evidence_group.command("attachments")(attachments)
    evidence_group.command("detach")(detach)
    breaks_group.command("attach")(attach_to_break)
    breaks_group.command("attachments")(attachments_of_break)
