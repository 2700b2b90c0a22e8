"""Page of an order's dispute case, with the dispute letter and attachments. Breaks' attachments are
handled here, too."""

from datetime import tzinfo
from typing import Any, Final

from starlette.responses import Response

from app.console.pages import download, file_part
from app.console.view import Act, Document, Field, Form, View
from app.console.words import address
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.core.zones import typed_deadline, typed_instant, wall_clock
from app.evidence import attachments, dispute, dispute_case
from app.evidence.dispute import to_second
from app.evidence.letter_forms import LetterForm, take_letter
from app.finance.break_acts import one_break
from app.finance.read_lines import lines_naming
from app.orders.read_orders import explain_order
from reconcile.instants import Instant, format_instant


async def case_document(view: View) -> Document:
    """Return the content of `GET /cases/{order}?family=`: the dispute case of an order."""
    family = dispute_case.stated_family(view.choice("family", dispute.FAMILIES))
    case = await dispute_case.dispute_case(
        view.context, dispute_case.CaseRequest(order=view.subject, family=family)
    )
    found = await attachments.attachments_of(view.context, order=view.subject)
    return case.document() | {
        "subject": view.subject,
        "chosen": family,
        "families": [
            {"family": each, "about": dispute.FAMILY_WORDS[each]} for each in dispute.FAMILIES
        ],
        "attachments": [_shown(each) for each in found],
    }


async def attachments_of_break(view: View, name: str) -> list[dict[str, Any]]:
    return [_shown(each) for each in await attachments.attachments_of(view.context, break_=name)]


def _shown(attachment: attachments.Attachment) -> dict[str, Any]:
    return attachment.document() | {"words": attachments.KIND_WORDS[attachment.record.kind]}


async def ask_attach(view: View) -> Form:
    about, subject, back = await _subject(view)
    kinds = tuple((each, attachments.KIND_WORDS[each]) for each in attachments.ATTACHMENT_KINDS)
    fields = [
        Field(
            "file",
            "The file",
            kind="file",
            hint="A PDF, PNG, JPEG, plain text or mail (.eml) of at most "
            f"{attachments.MAX_FILE_BYTES >> 20} MiB.",
        ),
        Field("kind", "What it is", choices=kinds),
        Field("note", "What it shows", hint="It is stored with the file.", required=False),
    ]
    if about == "order":
        only = "Only for a proof of delivery; else leave it empty."
        fields += [
            Field("carrier", "Carrier", hint=only, required=False),
            Field("tracking", "Tracking number", hint=only, required=False),
        ]
    return Form(
        subject,
        back,
        "The file is kept until it is detached, or the order's personal data are erased. The "
        "letter contains it, and so do evidence bundles that ask for it.",
        "The audit trail records that you attached it, with its digest; the log seals that entry.",
        reason=False,
        fields=tuple(fields),
    )


async def _subject(view: View) -> tuple[str, str, str]:
    name = view.word("break")
    if name is not None:
        await one_break(view.context, name)
        return "break", name, address("breaks", name)
    order = view.needed("order")
    await explain_order(view.context, order)
    return "order", order, address("cases", order)


async def do_attach(view: View, reason: str) -> str:
    about, subject, back = await _subject(view)
    if view.file is None:
        raise UsageError("choose a file that is not empty")
    if view.file.size > attachments.MAX_FILE_BYTES:
        raise UsageError(f"the file is larger than {attachments.MAX_FILE_BYTES >> 20} MiB")
    named: dict[str, attachments.AttachmentKind] = {
        each: each for each in attachments.ATTACHMENT_KINDS
    }
    asked = attachments.AttachRequest(
        about="break" if about == "break" else "order",
        subject=subject,
        name=attachments.shown_name(view.file.path.name),
        content=view.file.path.read_bytes(),
        kind=named.get(view.given.get("kind", ""), "other"),
        note=view.given.get("note", ""),
        carrier=view.given.get("carrier", ""),
        tracking=view.given.get("tracking", ""),
        by=view.person.name,
    )
    await attachments.attach(view.context, asked)
    return back


async def _attached(view: View) -> attachments.Attachment:
    about, subject, _ = await _subject(view)
    found = await attachments.attachments_of(
        view.context,
        order=subject if about == "order" else None,
        break_=subject if about == "break" else None,
    )
    wanted = view.needed("attachment")
    for each in found:
        if each.record.attachment_id == wanted and not each.gone:
            return each
    raise NotFoundError("this file is no longer attached")


async def ask_detach(view: View) -> Form:
    found = await _attached(view)
    _, subject, back = await _subject(view)
    document = found.document()
    return Form(
        subject,
        back,
        f"{document['name']} ({attachments.KIND_WORDS[found.record.kind]}, "
        f"{counted(found.record.size, 'byte')}) is deleted, with what was said of it.",
        "The audit trail records that it was attached, its digest, and why it was deleted.",
    )


async def do_detach(view: View, reason: str) -> str:
    found = await _attached(view)
    await attachments.detach(
        view.context, found.record.attachment_id, reason=reason, by=view.person.name
    )
    return (await _subject(view))[2]


async def ask_exhibit(view: View) -> Form:
    found = await _attached(view)
    _, subject, back = await _subject(view)
    return Form(
        subject,
        back,
        f"You get {found.document()['name']} unchanged: {counted(found.record.size, 'byte')}. The "
        "file may contain the customer's name, number and address: keep it no longer than you "
        "need it.",
        "The audit trail records that you took it.",
        reason=False,
    )


async def do_exhibit(view: View, reason: str) -> Response:
    name = (await _attached(view)).record.attachment_id
    found, content = await attachments.read_attachment(view.context, name, by=view.person.name)
    return download(content, f"{name}.{attachments.ENDINGS[found.record.media]}")


async def ask_letter(view: View) -> Form:
    order = view.needed("order")
    case = await dispute_case.dispute_case(view.context, dispute_case.CaseRequest(order=order))
    missing = [each for each in case.items if not each.there]
    return Form(
        order,
        address("cases", order),
        "You get a letter for a bank. It states what happened, to the second, and the evidence "
        "for each fact. The attached files are at its end.",
        f"The letter still lacks {counted(len(missing), 'thing')}; the order's case lists what "
        "is missing."
        if missing
        else "The case has everything that is usual for such a dispute.",
        case.deadline,
        *([case.limits.words] if case.limits.sources else []),
        "The letter contains the attached files unchanged. The audit trail records that you took "
        "it.",
        reason=False,
        fields=(
            Field("ending", "As", choices=(("pdf", "PDF"), ("html", "a page (HTML)"))),
            Field(
                "family",
                "Why the customer disputes it",
                choices=tuple((each, dispute.FAMILY_WORDS[each]) for each in dispute.FAMILIES),
                value=case.family,
            ),
            Field(
                "respond_by",
                f"Deadline for an answer to the bank ({view.context.calendar_zone})",
                value=_typed_moment(case.respond_by, view.context.calendar_zone),
                hint="Such as 2026-12-24 10:00, or a day; leave it empty if you do not know.",
                required=False,
            ),
        ),
    )


def _typed_moment(at: Instant | None, zone: tzinfo) -> str:
    if at is None:
        return ""
    moment = to_second(at)
    local = format_instant(wall_clock(moment, zone)).replace("T", " ").removesuffix("Z")
    local = local.removesuffix(":00")
    return local if typed_instant(local, zone) == moment else format_instant(moment)


async def do_letter(view: View, reason: str) -> Response:
    """Return the dispute letter as a download."""
    order, given = view.needed("order"), view.given.get("respond_by", "").strip()
    try:
        respond_by = typed_deadline(given, view.context.calendar_zone) if given else None
    except ValueError as error:
        raise UsageError(f"until when: {error}") from None
    asked = dispute_case.CaseRequest(
        order=order,
        family=dispute_case.stated_family(view.given.get("family") or None),
        respond_by=respond_by,
        by=view.person.name,
    )
    form: LetterForm = "pdf" if view.given.get("ending") == "pdf" else "html"
    short, content = await view.console.makes(_letter_taken, asked, form)
    media = "application/pdf" if form == "pdf" else "text/html"
    name = "letter" if short else f"letter-{file_part(order)}"
    return download(content, f"{name}.{form}", media)


async def _letter_taken(
    context: AppContext, asked: dispute_case.CaseRequest, form: LetterForm
) -> tuple[bool, bytes]:
    letter, content = await take_letter(context, asked, form, lines=lines_naming)
    return letter.case.limits.name_chars is not None, content


ACTS: Final = (
    Act(
        "Letter", "letter_taken", ask_letter, do_letter, button="Download the letter", download=True
    ),
    Act(
        "Attach a file", "attached", ask_attach, do_attach, done="The file is attached.", file=True
    ),
    Act(
        "Detach a file",
        "detached",
        ask_detach,
        do_detach,
        button="Delete it",
        done="The file is deleted.",
    ),
    Act(
        "See an attached file",
        "attachment_read",
        ask_exhibit,
        do_exhibit,
        button="Download it",
        download=True,
    ),
)
