"""Export a copy of a person's data for the person, as a ZIP.

1 find    the person's orders, and every row with the person's number or address
2 mask    other people's and staff's data in these rows (`export_masking`)
3 note    the copy and the identity check in the audit trail
4 place   rows by table, with meaning, source, retention period and legal ground
5 pack    a file for each table, the attached files, `index.json` and `index.html`

The copy includes data that an erasure has to keep.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Set
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, TypedDict

from app.access import proposals
from app.access.operator_store import operators
from app.access.operators import note_in_trail, permitted, who_may
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.masking import EMAIL_KIND
from app.core.text import counted
from app.database.engine import Connection
from app.database.marks import CODES, COUNTS, MARK, Mark
from app.database.statements import tables
from app.evidence.attachments import ENDINGS, media_of
from app.evidence.verify import pack
from app.orders.customers import checked_reason
from app.privacy import export_store
from app.privacy.export_finding import Found, find_person
from app.privacy.export_masking import PersonalCopy
from app.privacy.places import FILES, retained_rows
from app.privacy.prune import retention_of
from app.privacy.whose import is_of, masked, person_of, pseudonym
from app.receiving.caught_up import must_have_read
from reconcile.documents import Count, InstantText
from reconcile.instants import DAY, HOUR, Duration, Instant, format_instant

OPEN_FOR: Final[Duration] = DAY
"""Time after the approval in which the proposer may take the copy."""

NAME: Final = "export"

NOT_ALONE: Final = "a copy of all data about a person needs two operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Request for a copy of the data of one person.

    Included PDFs and pictures cannot be masked.
    """

    phone: str | None = field(default=None, repr=False)
    email: str | None = field(default=None, repr=False)
    order: str | None = None
    attachments: bool = False
    identity: str
    by: str | None


class ExportedDocument(TypedDict):
    sha256: str
    bytes: Count
    as_of: InstantText
    rows: Count
    orders: Count
    unmasked: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Finished copy of a person's data, as a ZIP."""

    archive: bytes = field(repr=False)
    sha256: str
    as_of: Instant
    counts: Mapping[str, int]

    def document(self) -> ExportedDocument:
        return document_of(ExportedDocument, self, bytes=len(self.archive), **self.counts)


async def export(
    context: AppContext,
    asked: ExportRequest,
    *,
    approved: Proposal | None = None,
    progress: Callable[[int], None] = silent,
) -> Exported:
    """Return a copy of a person's data, and write an audit entry.

    Raise NotFoundError without data, and UsageError for a refused request or too much data.
    """
    await must_have_read(context)  # the inbox may hold data of the person
    person, now = person_of(context, phone=asked.phone, email=asked.email), context.clock.now()
    async with context.database.reading(settled=True) as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        if approved is not None:
            proposals.must_be_open(export_kind(context), approved, who=who, now=now)
            _must_be_of(context, approved, asked, person=person)
        elif proposals.proved(who):
            raise UsageError(proposals.PROPOSE.format(NOT_ALONE))
        found = await find_person(
            context, connection, person=person, order=asked.order, progress=progress
        )
        words = asked.identity if approved is None else approved.reason
        identity = _checked_identity(context, words, found)
        staff = {each.name for each in await operators(connection)}
        members, counts = await files_of(
            context, connection, found, staff, now, attachments=asked.attachments
        )
    archive = pack(members)
    sha256 = hashlib.sha256(archive).hexdigest()
    facts: dict[str, str | int] = counts | {"sha256": sha256}
    if person is not None:
        facts["pseudonym"] = pseudonym(context, person)
    if approved is not None and approved.decided is not None:
        facts |= {"proposal": approved.id, "second": approved.decided.who}
    async with context.database.writing() as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        await note_in_trail(
            connection,
            who,
            action="data_exported",
            subject=masked(person) if person is not None else asked.order or "",
            at=context.clock.now(),
            reason=identity,
            facts=facts,
        )
    return Exported(archive=archive, sha256=sha256, as_of=now, counts=counts)


def _checked_identity(context: AppContext, identity: str, found: Found) -> str:
    if not identity.strip():
        raise UsageError("--identity must say how you checked the person's identity")
    return checked_reason(context, identity, phones=found.identifiers)


async def propose_export(
    context: AppContext, asked: ExportRequest, *, progress: Callable[[int], None] = silent
) -> Proposal | None:
    """Propose a copy of a person's data.

    Return None for the machine's owner.
    """
    if not proposals.proved(await who_may(context, by=asked.by, action="data_exported")):
        return None
    await must_have_read(context)
    person = person_of(context, phone=asked.phone, email=asked.email)
    async with context.database.reading(settled=True) as connection:
        found = await find_person(
            context, connection, person=person, order=asked.order, progress=progress
        )
    given = {"order": asked.order or ""}
    attachments = {"attachments": "yes"} if asked.attachments else {}
    unmasked = ", with attached PDFs and pictures as they are" if asked.attachments else ""
    subject = f"the customer of the order {asked.order}"
    if person is not None:
        given = {"pseudonym": pseudonym(context, person)}
        subject = f"{masked(person)} ({given['pseudonym']})"
    async with context.database.writing() as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        return await proposals.propose(
            connection,
            export_kind(context),
            who=who,
            now=context.clock.now(),
            because=NOT_ALONE,
            subject=subject,
            sentence=f"Give {who.name} a copy of all personal data of {subject}, to hand to the "
            f"person. It contains {counted(len(found.orders), 'order')}{unmasked}. It "
            f"can be made for {OPEN_FOR // HOUR} hours from the approval.",
            given=given | attachments,
            reason=_checked_identity(context, asked.identity, found),
        )


async def check_open(context: AppContext, approved: Proposal, *, by: str | None) -> None:
    """Raise UsageError if this operator may not take the approved copy now."""
    who = await who_may(context, by=by, action="data_exported")
    proposals.must_be_open(export_kind(context), approved, who=who, now=context.clock.now())


def export_kind(context: AppContext) -> proposals.ProposalKind:
    """Return the proposal kind for copies of a person's data."""

    return proposals.ProposalKind(
        name=NAME,
        title="Take a copy of a person's data",
        action="data_exported",
        subject_state=proposals.always_same,
        perform=proposals.only_agreed(context),
        open_for=OPEN_FOR,
    )


def _must_be_of(
    context: AppContext, approved: Proposal, asked: ExportRequest, *, person: str | None
) -> None:
    if asked.attachments and "attachments" not in approved.given:
        raise UsageError("the approved copy excludes attached PDFs and pictures")
    known = approved.given.get("pseudonym")
    if person is None or known is None:
        same = person is None and known is None and approved.given.get("order") == asked.order
    else:
        same = is_of(context, person, known)
    if not same:
        raise UsageError(
            f"the approved copy is only for {approved.subject}: name the person as in the proposal"
        )


# --- (4) the files --------------------------------------------------------------------------------

MOST_BYTES: Final = 256 * 1024 * 1024
"""Maximum number of bytes of a copy."""

_SINCE_1973: Final = 10**14
"""Smallest integer that is shown as a time, in microseconds since 1970."""

_MONEY: Final = frozenset({"minor", "amount", "order_amount", "refunded", "refunded_total", "gross",
                           "fee", "net"})  # fmt: skip


LEFT_OUT: Final = (
    "left out ({}, {}): it cannot be masked, and may show other people; ask the shop for it"
)

_SHOWN: Final = (CODES.what, COUNTS.what)


async def files_of(
    context: AppContext,
    connection: Connection,
    found: Found,
    staff: Set[str],
    now: Instant,
    *,
    attachments: bool,
) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the copy's files, and the numbers of rows, orders and unmasked files.

    Raise UsageError for too much data.
    """
    things = found.orders | {reference for _, reference in found.payments}
    copy = PersonalCopy(
        found.identifiers,
        things=things,
        staff=staff,
        names=found.names,
        others=found.names_of_others,
    )
    members: dict[str, bytes] = {}
    places: list[dict[str, Any]] = []
    retention = _retention(context)
    for name in sorted({*found.own, *(each.partition(".")[0] for each in found.named)}):
        rows = [each async for each in _rows(connection, name, found, copy, members, attachments)]
        if rows:
            members[f"data/{name}.json"] = _json(rows)
            places.append(_place(name, rows, retention))
        if sum(map(len, members.values())) > MOST_BYTES:
            raise UsageError(
                f"the copy has more than {MOST_BYTES >> 20} MiB: export order by order"
            )
    if found.aside:
        rows = [{"says": copy.passages(each)} for each in found.aside]
        members["data/suspects.json"] = _json(rows)
        places.append(_place("suspects", rows, retention))
    counts = {
        "rows": sum(each["rows"] for each in places),
        "orders": len(found.orders),
        "unmasked": sum(name.endswith((".pdf", ".png", ".jpg")) for name in members),
    }
    index = {
        "as_of": format_instant(now),
        "found_by": [each.removeprefix(EMAIL_KIND) for each in found.named_by]
        or sorted(found.orders),
        "orders": sorted(found.orders),
        "places": places,
        "periods": [
            {"what": each["what"], "kept": each["erasure"]}
            for each in retained_rows(context.settings)
        ],
        "elsewhere": [
            {"where": where, "what": mark.what, "until": mark.why}
            for where, mark in FILES
            if mark.personal != "not" and mark.because
        ],
    }
    members |= {"index.json": _json(index), "index.html": index_page(index, members)}
    return members, counts


def _retention(context: AppContext) -> Mapping[str, str]:
    kept = retention_of(context.settings, context.sources)
    days = {} if kept is None else kept.classes()
    classes = {"bodies": ("deliveries", "envelopes"), "phones": ("phones",),
               "rejections": ("rejections",), "book_phones": ("book_lines",)}  # fmt: skip
    return {
        table: (
            f"{counted(span, 'day')} after the last evidence about it, or until you ask for erasure"
        )
        for name, span in days.items()
        if span is not None
        for table in classes.get(name, ())
    }


def _place(name: str, rows: list[dict[str, Any]], retention: Mapping[str, str]) -> dict[str, Any]:
    shown = {column for row in rows for column in row}
    marks: list[Mark] = [
        each.info[MARK]
        for each in tables().tables[name].columns
        if MARK in each.info and each.info[MARK].personal != "not" and {each.name, "says"} & shown
    ]
    until = {
        retention.get(name, "until you ask for erasure") if not each.because else each.why
        for each in marks
    }
    dated = [v for row in rows for n, v in row.items() if n == "at" or (n.endswith("_at") and v)]
    return {
        "place": name,
        "file": f"data/{name}.json",
        "rows": len(rows),
        "what": sorted({each.what for each in marks}),
        "from": sorted({str(row["source"]) for row in rows if row.get("source")}),
        "since": min((each for each in dated if isinstance(each, str)), default=None),
        "until": sorted(until),
    }


async def _rows(
    connection: Connection,
    name: str,
    found: Found,
    copy: PersonalCopy,
    members: dict[str, bytes],
    attachments: bool,
) -> AsyncIterator[dict[str, Any]]:
    table = tables().tables[name]
    marks = {each.name: each.info[MARK] for each in table.columns if MARK in each.info}
    places = {each: found.named.get(f"{name}.{each}", set()) for each in marks}
    mine = found.own.get(name, set())
    for key in sorted(mine.union(*places.values()), key=repr):
        row = await export_store.row_of(connection, name, key)
        if row is None:
            continue
        own = key in mine and _of_own_payment(row, found)
        shown: dict[str, Any] = {}
        for column, content in row.items():
            mark = marks.get(column)
            if content in (None, "", b"") or (mark is None and not isinstance(content, int)):
                continue
            if mark is None:
                shown[column] = _number(column, content)
            elif mark.personal == "not":
                if mark.what in _SHOWN and isinstance(content, str) and content[0] != "{":
                    shown[column] = copy.text(content)
            elif own:
                shown[column] = _own(copy, f"{name}.{column}", content, members, attachments)
            elif key in places[column]:
                shown.setdefault("says", []).extend(copy.passages(content))
        if own or "says" in shown:
            yield shown


def _of_own_payment(row: Mapping[str, Any], found: Found) -> bool:
    if "payment" not in row or not row.get("source") or row.get("order_key") in found.orders:
        return True
    if row.get("order_ref") in found.orders:
        return True
    return (row["source"], row["payment"]) in found.payments


def _number(column: str, content: int) -> int | str:
    if content >= _SINCE_1973 and column not in _MONEY:
        return format_instant(Instant(content))
    return content


def _own(
    copy: PersonalCopy,
    place: str,
    content: str | bytes,
    members: dict[str, bytes],
    attachments: bool,
) -> Any:
    if place == "attachment_files.body":
        raw = bytes(content) if not isinstance(content, str) else content.encode()
        ending = ENDINGS.get(media_of(raw) or "", "txt")
        if ending != "txt" and not attachments:
            return LEFT_OUT.format(ending.upper(), counted(len(raw), "byte"))
        name = f"files/{hashlib.sha256(raw).hexdigest()[:16]}.{ending}"
        members[name] = (
            raw if ending != "txt" else copy.text(raw.decode("utf-8", "replace")).encode()
        )
        return name
    if place.endswith(".headers"):
        return copy.headers(str(content))
    if isinstance(content, bytes):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            return content.hex() if len(content) <= 64 else copy.passages(content)
    return copy.whole(content)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode(
        "utf-8", "backslashreplace"
    )


# --- (5) the index for people ---------------------------------------------------------------------

_STYLE: Final = (
    "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{border:1px solid #999;padding:.3rem .5rem;"
    "text-align:left;vertical-align:top}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "background:#f4f4f4;padding:.5rem}"
)

_MOST_SHOWN: Final = 100_000


def index_page(index: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Build the index page as HTML that loads nothing."""
    found_by = ", ".join(index["found_by"])
    orders = ", ".join(index["orders"]) or "none"
    rows, parts = list[str](), list[str]()
    for each in index["places"]:
        cells = (
            f'<a href="#{escape(each["place"])}">{escape(each["place"])}</a>',
            escape("; ".join(each["what"]) or "codes and dates"),
            str(each["rows"]),
            escape(", ".join(each["from"]) or "this shop"),
            escape(each["since"] or "not noted"),
            escape("; ".join(each["until"]) or "as long as the record to which it belongs"),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        text = members[each["file"]].decode("utf-8", "replace")
        more = "" if len(text) <= _MOST_SHOWN else f"<p>The rest is in {escape(each['file'])}.</p>"
        parts.append(
            f'<h2 id="{escape(each["place"])}">{escape(each["place"])}</h2>'
            f"<pre>{escape(text[:_MOST_SHOWN])}</pre>{more}"
        )
    files = "".join(
        f'<li><a href="{escape(name)}">{escape(name)}</a></li>'
        for name in sorted(members)
        if name.startswith("files/")
    )
    elsewhere = "".join(
        f"<li>{escape(each['where'])}: {escape(each['what'])}; {escape(each['until'])}</li>"
        for each in index["elsewhere"]
    )
    periods = "".join(
        f"<li>{escape(each['what'])}: {escape(each['kept'])}</li>" for each in index["periods"]
    )
    head = "".join(
        f"<th>{each}</th>"
        for each in (
            "Where",
            "What",
            "Rows",
            "From",
            "Since",
            "Until when, and on which legal ground",
        )
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Your data</title>'
        f"<style>{_STYLE}</style><h1>Your data</h1>"
        f"<p>All that this payment system keeps about {escape(found_by)}, as of "
        f"{escape(index['as_of'])}. Your orders: {escape(orders)}.</p>"
        "<p>Phone numbers, email addresses and known names of other people are masked. You may "
        "ask the shop to correct or erase your data; data that the law obliges the shop to keep "
        "is deleted later.</p>"
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
        + (f"<h2>Attached files</h2><ul>{files}</ul>" if files else "")
        + f"<h2>Data that is kept even if you ask for erasure</h2><ul>{periods}</ul>"
        + f"<h2>Elsewhere</h2><p>Copies that are not in this file:</p><ul>{elsewhere}</ul>"
        + "".join(parts)
        + "</html>"
    ).encode("utf-8", "backslashreplace")
