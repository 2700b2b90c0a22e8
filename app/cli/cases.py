"""Commands about disputes: attachments of an order and its breaks, the letter to the bank, and the
checklist of evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli import operators, printing, running
from app.cli.breaks import breaks_group
from app.cli.evidence import AsOf, evidence_group, refuse_existing, write_private
from app.core.errors import UsageError
from app.core.text import counted

if TYPE_CHECKING:
    from app.evidence.attachments import Attachment
    from app.evidence.dispute_case import CaseRequest, DisputeCase
    from app.evidence.dispute_letter import Letter
    from app.evidence.letter_forms import LetterForm

Kind = Annotated[
    str,
    typer.Option(
        help="Kind of file: receipt, delivery, correspondence, terms, refund_policy or other.",
    ),
]
File = Annotated[Path, typer.Argument(help="A PDF, PNG, JPEG or plain text of at most 10 MiB.")]
Carrier = Annotated[str, typer.Option(help="For a delivery: the carrier's name.")]
Tracking = Annotated[str, typer.Option(help="For a delivery: the tracking number.")]
COLUMNS = ("attachment", "kind", "name", "carrier", "tracking", "media", "size", "at", "gone_at")


def attach(
    order: printing.OrderArgument,
    file: File,
    kind: Kind,
    note: Annotated[
        str, typer.Option("--note", help="Note on what the file shows; stored with the file.")
    ] = "",
    carrier: Carrier = "",
    tracking: Tracking = "",
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Attach a file to an order, as an exhibit of the letter about its dispute. The file is erased
    with the order's data."""
    _attach("order", order, file, kind, (note, carrier, tracking), by, form)


def attach_to_break(
    name: Annotated[str, typer.Argument(metavar="ID", help="The break's id.")],
    file: File,
    kind: Kind = "other",
    note: Annotated[
        str, typer.Option("--note", help="Note on what the file shows; stored with the file.")
    ] = "",
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Attach a file to a break and to the break's order, such as the provider's answer."""
    _attach("break", name, file, kind, (note, "", ""), by, form)


def _attach(
    about: Literal["order", "break"],
    subject: str,
    file: Path,
    kind: str,
    texts: tuple[str, str, str],
    by: str | None,
    form: printing.Format,
) -> None:
    from app.evidence.attachments import ATTACHMENT_KINDS, AttachRequest, shown_name
    from app.evidence.attachments import attach as attach_file

    known = next((each for each in ATTACHMENT_KINDS if each == kind), None)
    if known is None:
        raise UsageError(f"--kind must be one of: {', '.join(ATTACHMENT_KINDS)}")
    note, carrier, tracking = texts
    asked = AttachRequest(
        about=about,
        subject=subject,
        name=shown_name(file.name),
        content=_read(file),
        kind=known,
        note=note,
        carrier=carrier,
        tracking=tracking,
        by=by,
    )
    kept = running.writing(attach_file, asked)
    if printing.printed(kept.document(), form):
        return
    print(kept.record.attachment_id)
    printing.note(
        f"{asked.name}, {counted(kept.record.size, 'byte')}, SHA-256 {kept.record.sha256}, is "
        f"attached to {subject}. The log seals its digest. Erasing the order deletes the file."
    )


def _read(path: Path) -> bytes:
    from app.evidence.attachments import MAX_FILE_BYTES

    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def attachments(
    order: printing.OrderArgument,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """List the files that are attached to an order and to its breaks."""
    from app.evidence.attachments import attachments_of

    found = running.reading(attachments_of, order=order)
    _print(found, form)


def attachments_of_break(
    name: Annotated[str, typer.Argument(metavar="ID", help="The break's id.")],
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """List the files that are attached to a break."""
    from app.evidence.attachments import attachments_of

    found = running.reading(attachments_of, break_=name)
    _print(found, form)


def _print(found: list[Attachment], form: printing.Format) -> None:
    from app.evidence.attachments import listing

    listed = listing(found)
    if form is not printing.Format.table:
        printing.document(listed, form)
    elif found:
        printing.emit(listed["attachments"], columns=COLUMNS, form=form)
    else:
        printing.note("There are no attachments.")


def detach(
    name: Annotated[str, typer.Argument(metavar="ID", help="The attachment's id.")],
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")],
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Delete an attachment of an order or a break. The audit trail records the deletion."""
    from app.evidence.attachments import detach as delete

    gone = running.writing(delete, name, reason=reason, by=by)
    if printing.printed(gone.document(), form):
        return
    printing.note(f"{name} is deleted; its digest and the reason stay in the audit trail.")


Family = Annotated[
    str | None,
    typer.Option(
        "--reason-family",
        help="Kind of dispute, if its reason does not show it: fraud, not_received, "
        "not_as_described, duplicate, credit_not_processed, subscription_canceled, "
        "debit_not_authorized, processing_error or other.",
    ),
]
RespondBy = Annotated[
    str | None,
    typer.Option(
        help="The bank's deadline for your answer, if no event states it: a date, or an "
        "RFC 3339 time."
    ),
]


def letter(
    order: printing.OrderArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write, .pdf or .html. An existing file is not replaced.",
        ),
    ] = None,
    as_of: AsOf = None,
    family: Family = None,
    respond_by: RespondBy = None,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Write the letter that answers a dispute, with its attachments, and print what is missing.

    With --format json and without -o, print the letter's content.
    """
    from app.evidence.letter_forms import letter_form, unshown

    if output is None and form is printing.Format.table:
        raise UsageError(
            "give -o FILE with a name that ends in .pdf or .html, or give --format json"
        )
    kind = None if output is None else letter_form(output)
    if output is not None:
        refuse_existing(output)
    asked = _asked(order, as_of, family, respond_by, by)
    made, content = _letter(asked, kind, "" if output is None else output.name)
    if output is not None:
        write_private(output, content)
        exhibits = counted(len(made.exhibits), "exhibit")
        printing.note(f"{output}: {counted(len(content), 'byte')}, {exhibits}.")
        if kind == "pdf" and (lacking := unshown(made)):
            printing.note(lacking)
    if printing.printed({**made.document, "checklist": made.case.document()}, form):
        return
    _say_missing(made.case)


def _letter(asked: CaseRequest, kind: LetterForm | None, name: str) -> tuple[Letter, bytes]:
    from app.evidence.letter_forms import take_letter
    from app.finance.read_lines import lines_naming

    return running.writing(take_letter, asked, kind, lines=lines_naming, name=name)


def _asked(
    order: str, as_of: str | None, family: str | None, respond_by: str | None, by: str | None
) -> CaseRequest:
    from app.evidence.dispute_case import CaseRequest, stated_family

    return CaseRequest(
        order=order,
        as_of=printing.moment(as_of, "--as-of"),
        family=stated_family(family),
        respond_by=printing.deadline(respond_by, "--respond-by"),
        by=by,
    )


def _say_missing(case: DisputeCase) -> None:
    missing = [each for each in case.items if not each.there]
    _say_deadline(case)
    if case.limits.sources:
        printing.note(case.limits.words)
    for each in missing:
        printing.note(f"Not met: {each.sentence} To do: {each.do}.")
    if not missing:
        printing.note("The case has everything that banks usually expect in such a dispute.")


def _say_deadline(case: DisputeCase) -> None:
    from app.core.zones import local_text

    printing.note(local_text(case.deadline, printing.merchant_zone(), named=True))


def checklist(
    order: printing.OrderArgument,
    as_of: AsOf = None,
    family: Family = None,
    respond_by: RespondBy = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """List the evidence that a bank expects about a dispute, and show what is missing."""
    from app.evidence.dispute_case import dispute_case

    asked = _asked(order, as_of, family, respond_by, None)
    case = running.reading(dispute_case, asked)
    document = case.document()
    if printing.printed(document, form):
        return
    for each in case.rules:
        printing.note(each.sentence)
    if case.limits.sources:
        printing.note(case.limits.words)
    if case.dispute is None:
        printing.note(
            "The order has no dispute. The list shows what an answer to a dispute would need."
        )
    else:
        printing.note(f"The dispute: {document['about']}.")
    if case.dispute is not None or case.respond_by is not None:
        _say_deadline(case)
    rows = [{**each, "there": "yes" if each["there"] else "NO"} for each in document["items"]]
    printing.emit(rows, columns=("there", "sentence", "do"), form=form)


def register() -> None:
    """Add the commands of this module to their groups."""
    such_as = "Example: tallyhook evidence attach ORD-1042 parcel.pdf --kind delivery"
    evidence_group.command("attach", epilog=such_as)(attach)
    evidence_group.command("letter", epilog="Example: tallyhook evidence letter ORD-1042 -o a.pdf")(
        letter
    )
    evidence_group.command("checklist")(checklist)
    evidence_group.command("attachments")(attachments)
    evidence_group.command("detach")(detach)
    breaks_group.command("attach")(attach_to_break)
    breaks_group.command("attachments")(attachments_of_break)
