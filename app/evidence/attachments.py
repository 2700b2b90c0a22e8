"""Attach files to an order or a break.

1 check   the size, type and completeness of the file
2 store   the bytes by digest; name and note as personal data
3 seal    an audit entry with both digests

The audit trail keeps a deleted file's digest.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Final, Literal, TypedDict, get_args

from app.access.operator_store import acting_alone
from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.ids import new_id, new_salts
from app.core.masking import masked_words
from app.core.text import JOINER, NON_JOINER, counted, is_human_text, printable
from app.database.engine import Connection
from app.evidence import attachment_store
from app.evidence.mail_text import is_mail
from app.orders.customers import checked_reason
from app.orders.read_orders import explain_order
from reconcile.canonical import canonical_json
from reconcile.documents import Count, InstantText, Keywords, Sha256
from reconcile.instants import format_instant

AttachmentKind = Literal["receipt", "delivery", "correspondence", "terms", "refund_policy", "other"]
ATTACHMENT_KINDS: Final[tuple[AttachmentKind, ...]] = get_args(AttachmentKind)

KIND_WORDS: Final[dict[str, str]] = {
    "receipt": "receipt or invoice",
    "delivery": "proof of delivery",
    "correspondence": "correspondence with the customer",
    "terms": "terms that the customer accepted",
    "refund_policy": "refund policy",
    "other": "other",
}

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
"""Maximum size of an attached file in bytes."""

MAX_BYTES_OF_ONE: Final = 50 * 1024 * 1024
"""Maximum total bytes of an order's or break's files."""

MOST_OF_ONE: Final = 30
"""Maximum number of an order's or break's files, because somebody must look through them."""

MAX_NAME: Final = 120
MAX_NOTE: Final = 500
MAX_PARCEL: Final = 80
"""Maximum length in characters of a carrier or a tracking number."""

_PDF, _PNG, _JPEG, _TEXT = "application/pdf", "image/png", "image/jpeg", "text/plain"

ENDINGS: Final = {_PDF: "pdf", _PNG: "png", _JPEG: "jpg", _TEXT: "txt"}
"""Accepted media types with their file endings. None is executable."""

_MAGIC: Final = ((b"%PDF-", _PDF), (b"\x89PNG\r\n\x1a\n", _PNG), (b"\xff\xd8\xff", _JPEG))
_WHOLE: Final[Mapping[str, tuple[bytes, ...]]] = {
    _PDF: (b"startxref", b"%%EOF"),
    _PNG: (b"IHDR", b"IEND"),
    _JPEG: (b"\xff\xd9",),
}

MAX_PIXELS: Final = 50_000_000
"""Maximum pixels of a picture."""

_JPEG_SIZE: Final = re.compile(
    rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]\x00.[\x08\x0c](..)(..)", re.DOTALL
)
"""Pattern of a JPEG frame header (ITU-T T.81, B.2.2): precision, lines, columns."""

PDF_END_BYTES: Final = 4096
"""Number of bytes at a PDF's end to search."""

_MEDIA_BY_NAME: Final = {
    ".pdf": _PDF, ".png": _PNG, ".jpg": _JPEG, ".jpeg": _JPEG, ".jpe": _JPEG, ".txt": _TEXT,
}  # fmt: skip

_WORDS: Final = {_PDF: "a PDF", _PNG: "a PNG", _JPEG: "a JPEG", _TEXT: "plain text"}

_IN_TEXT: Final = frozenset(("\n", "\r", "\t", "\f", NON_JOINER, JOINER))

ID: Final = "att_"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """Request to attach a file to an order or break."""

    about: attachment_store.About
    subject: str
    name: str
    content: bytes = field(repr=False)
    kind: AttachmentKind
    note: str = ""
    carrier: str = ""
    tracking: str = ""
    by: str | None


KindText = Annotated[str, Keywords(enum=ATTACHMENT_KINDS)]


class AttachmentDocument(TypedDict):
    attachment: str
    about: attachment_store.About
    subject: str
    order: str
    kind: KindText
    name: Annotated[str, "Empty once the file is deleted."]
    note: str
    carrier: str
    tracking: str
    media: Annotated[str, Keywords(examples=["application/pdf"])]
    size: Count
    sha256: Sha256
    by: str
    at: InstantText
    deed: Annotated[Count, "The number of the audit entry that says so."]
    gone_at: InstantText | None


class AttachmentListDocument(TypedDict):
    attachments: list[AttachmentDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Attachment with its personal data, which not everybody may see.

    The texts are empty after deletion.
    """

    record: attachment_store.AttachmentRecord
    name: str = ""
    note: str = ""
    carrier: str = ""
    tracking: str = ""

    @property
    def gone(self) -> bool:
        return self.record.gone_at is not None

    def document(self) -> AttachmentDocument:
        """Return the attachment as JSON with masked phone numbers."""
        return document_of(
            AttachmentDocument,
            self.record,
            attachment=self.record.attachment_id,
            name=masked_words(self.name),
            note=masked_words(self.note),
            carrier=masked_words(self.carrier),
            tracking=self.tracking,
            by=self.record.who,
            deed=self.record.audit_number,
        )


def attachment_of(record: attachment_store.AttachmentRecord) -> Attachment:
    """Build an attachment from its stored form."""
    details = json.loads(record.details) if record.details is not None else {}
    names = ("name", "note", "carrier", "tracking")
    return Attachment(record=record, **{name: details.get(name, "") for name in names})


def media_of(content: bytes) -> str | None:
    """Return a file's accepted media type, found from its bytes."""
    for begin, media in _MAGIC:
        if content.startswith(begin):
            return media
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        if not is_mail(content):
            return None
        text = content.decode("ascii", "replace")  # its parts declare their own character sets
    plain = all(each.isprintable() or each in _IN_TEXT for each in text.removeprefix("\ufeff"))
    return _TEXT if text.strip() and plain else None


def fault_of(name: str, content: bytes, media: str) -> str | None:
    """Return the fault in a file's content or type."""
    by_name = _MEDIA_BY_NAME.get(PurePath(name).suffix.lower(), media)
    if by_name != media:
        return (
            f"{name} is {_WORDS[media]}, but its name says {_WORDS[by_name]}: attach the intended "
            "file, or correct the ending of this file's name"
        )
    sizes = _JPEG_SIZE.findall(content) if media == _JPEG else []
    if media == _PNG and content[12:16] == b"IHDR":  # must be the first chunk of a PNG (11.2.1)
        sizes = [(content[16:20], content[20:24])]
    if any(int.from_bytes(a) * int.from_bytes(b) > MAX_PIXELS for a, b in sizes):
        return (
            f"{name} has more than {MAX_PIXELS:,} pixels: make it smaller, for example with a "
            "screenshot, and attach that"
        )
    looked_at = content[-PDF_END_BYTES:] if media == _PDF else content
    if all(mark in looked_at for mark in _WHOLE.get(media, ())):
        return None
    return (
        f"{name} begins as {_WORDS[media]} does but does not end as one: it was cut off or is "
        "damaged. Download it again or print it to a new PDF, check that it opens, and attach that"
    )


async def attach(context: AppContext, asked: AttachRequest) -> Attachment:
    """Store a file, and record the attachment in the audit trail.

    Raise UsageError for a refused file, and NotFoundError for an unknown order or break.
    """
    media = _checked(asked)
    if asked.about == "order":
        order: str | None = asked.subject
        await explain_order(context, asked.subject)
    else:
        async with context.database.reading() as connection:
            order = await attachment_store.order_of_break(connection, asked.subject)
    if order is None:
        raise _no_break(asked.subject)
    # The salt. Once it is deleted, the digest in the trail reveals nothing about the details.
    said = {name: getattr(asked, name).strip() for name in ("note", "carrier", "tracking")}
    said |= {"name": asked.name, "salt": new_salts(1)[0].hex()}
    details = canonical_json(said).decode()
    sha256 = hashlib.sha256(asked.content).hexdigest()
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=asked.by, action="attached")
        await _check_room(connection, asked, sha256)
        now = context.clock.now()
        name = new_id(ID, now)
        facts: dict[str, str | int] = {
            "attachment": name,
            "about": asked.about,
            "kind": asked.kind,
            "media": media,
            "sha256": sha256,
            "size": len(asked.content),
            "details": hashlib.sha256(details.encode()).hexdigest(),
        }
        audit_number = await note_in_trail(
            connection,
            who,
            action="attached",
            subject=asked.subject,
            at=now,
            facts=facts,
            order=order or None,
        )
        record = attachment_store.AttachmentRecord(
            attachment_id=name,
            about=asked.about,
            subject=asked.subject,
            order=order,
            kind=asked.kind,
            media=media,
            sha256=sha256,
            size=len(asked.content),
            who=who.name,
            at=now,
            audit_number=audit_number,
            details=details,
        )
        await attachment_store.add_attachment(connection, record, asked.content)
    return attachment_of(record)


def _checked(asked: AttachRequest) -> str:
    if asked.kind not in ATTACHMENT_KINDS:
        raise UsageError(f"the kind must be one of: {', '.join(ATTACHMENT_KINDS)}")
    if len(asked.content) > MAX_FILE_BYTES:
        raise UsageError(
            f"the file is larger than {MAX_FILE_BYTES >> 20} MiB: send the pages that matter, or a "
            "smaller scan"
        )
    media = media_of(asked.content)
    if media is None:
        raise UsageError(
            "the file's content is not PDF, PNG, JPEG or plain text in UTF-8: print the file to "
            "a PDF, and attach the PDF"
        )
    bounds = (
        ("name", asked.name, MAX_NAME), ("note", asked.note, MAX_NOTE),
        ("carrier", asked.carrier, MAX_PARCEL), ("tracking", asked.tracking, MAX_PARCEL),
    )  # fmt: skip
    for what, text, most in bounds:
        if len(text) > most or not is_human_text(text):
            raise UsageError(f"the {what} must have at most {most} printable characters")
    if not asked.name:
        raise UsageError("the file has no name")
    fault = fault_of(asked.name, asked.content, media)
    if fault is not None:
        raise UsageError(fault)
    if (asked.carrier or asked.tracking) and asked.kind != "delivery":
        raise UsageError(
            "only attachments of the kind delivery have a carrier and a tracking number: leave "
            "both out"
        )
    return media


def shown_name(path_name: str) -> str:
    return printable(path_name)[-MAX_NAME:] or "file"


def _no_break(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no open break {name}: `tallyhook breaks list` shows the open breaks"
    )


async def _check_room(connection: Connection, asked: AttachRequest, sha256: str) -> None:
    found = await attachment_store.attachments_of_subject(connection, asked.about, asked.subject)
    there = [each for each in found if each.gone_at is None]
    for each in there:
        if each.sha256 == sha256:
            raise UsageError(f"this file is attached already, as {each.attachment_id}")
    if len(there) >= MOST_OF_ONE:
        raise UsageError(
            f"{asked.subject} already has {counted(MOST_OF_ONE, 'attachment')}, the maximum: put "
            "several pages into one PDF, or detach files that you do not need"
        )
    if sum(each.size for each in there) + len(asked.content) > MAX_BYTES_OF_ONE:
        raise UsageError(
            f"with this file {asked.subject} would have more than {MAX_BYTES_OF_ONE >> 20} MiB "
            "attached: detach files that you do not need, or make the scans smaller"
        )


async def _standing(connection: Connection, name: str) -> attachment_store.AttachmentRecord:
    found = await attachment_store.attachment_named(connection, name)
    if found is None:
        raise NotFoundError(
            f"there is no attachment {name!r}: `tallyhook evidence attachments` lists them"
        )
    if found.gone_at is not None:
        raise UsageError(
            f"{name} was deleted on {format_instant(found.gone_at)}; its content is not kept"
        )
    return found


async def detach(context: AppContext, name: str, *, reason: str, by: str | None) -> Attachment:
    """Delete an attachment's bytes, name and note. The audit trail keeps the digest.

    Raise NotFoundError for an unknown attachment, and UsageError if deletion is refused.
    """
    checked = checked_reason(context, reason)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="detached")
        found = await _standing(connection, name)
        now = context.clock.now()
        await note_in_trail(
            connection, who, action="detached", subject=found.subject, at=now, reason=checked,
            facts={"attachment": name, "sha256": found.sha256}, order=found.order or None,
        )  # fmt: skip
        await attachment_store.empty_attachments(connection, [name], now=now)
        gone = await attachment_store.attachment_named(connection, name)
    assert gone is not None
    return attachment_of(gone)


async def attachments_of(
    context: AppContext, *, order: str | None = None, break_: str | None = None
) -> list[Attachment]:
    """Return the attachments of an order or break, with deleted ones.

    Raise NotFoundError for an unknown order or break.
    """
    async with context.database.reading() as connection:
        if break_ is not None:
            if await attachment_store.order_of_break(connection, break_) is None:
                raise _no_break(break_)
            found = await attachment_store.attachments_of_subject(connection, "break", break_)
        else:
            found = await attachment_store.attachments_of_order(connection, order or "")
    if order is not None and not found:
        await explain_order(context, order)
    return [attachment_of(each) for each in found]


def listing(attachments: Iterable[Attachment]) -> AttachmentListDocument:
    return {"attachments": [each.document() for each in attachments]}


async def attachment_bytes(
    connection: Connection, record: attachment_store.AttachmentRecord
) -> bytes:
    """Return an attachment's bytes. Raises UsageError if they are missing or altered."""
    body = await attachment_store.attached_bytes(connection, record.sha256)
    if body is None or hashlib.sha256(body).hexdigest() != record.sha256:
        raise UsageError(
            f"the content of {record.attachment_id} is missing or was changed: run `tallyhook db "
            "check` to see what is wrong"
        )
    return body


async def read_attachment(
    context: AppContext, name: str, *, by: str | None
) -> tuple[Attachment, bytes]:
    """Return an attachment with its bytes, and write an audit entry.

    Raise UsageError if permission is missing, or for a deleted file, and NotFoundError for an
    unknown attachment.
    """
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="attachment_read")
        found = await _standing(connection, name)
        content = await attachment_bytes(connection, found)
        await note_in_trail(
            connection, who, action="attachment_read", subject=found.subject,
            at=context.clock.now(), facts={"attachment": name},
        )  # fmt: skip
    return attachment_of(found), content
