"""Makes the files of a person's copy from the rows that were found.

1 show   of the person's own rows what may be theirs, of others' rows what names them
2 place    by table: what it is, where from, since when, until when, on which ground
3 index    one for programs (`index.json`), one for people (`index.html`)
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Set
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import EMAIL_KIND
from app.core.text import counted
from app.database.engine import Connection
from app.database.marks import CODES, COUNTS, MARK, Mark
from app.database.statements import tables
from app.evidence.attachments import ENDINGS, media_of
from app.privacy import export_store
from app.privacy.export_finding import Found
from app.privacy.export_masking import PersonalCopy
from app.privacy.export_pages import index_page
from app.privacy.places import FILES, retained_rows
from app.privacy.prune import retention_of
from reconcile.instants import Instant, format_instant

MOST_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of a copy. It is made in memory, and a person has to be able to open it."""

_SINCE_1973: Final = 10**14
"""Integers from here on are taken as instants, in microseconds of Unix time. Amounts and counts are
normally smaller. A larger one is shown as a date by mistake, but not left out."""

_MONEY: Final = frozenset({"minor", "amount", "order_amount", "refunded", "refunded_total", "gross",
                           "fee", "net"})  # fmt: skip


LEFT_OUT: Final = (
    "left out ({}, {}): it cannot be masked, and may show other people; ask the shop for it"
)
"""Text that replaces an attached file unless the copy includes it."""

_SHOWN: Final = (CODES.what, COUNTS.what)
"""Contents that are shown beside personal ones, though they are not personal and name nobody."""


async def files_of(
    context: AppContext,
    connection: Connection,
    found: Found,
    staff: Set[str],
    now: Instant,
    *,
    attachments: bool,
) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the files of the copy by name, and their counts. Raise UsageError for too much.

    attachments  whether attached PDFs and pictures, which cannot be masked, are in it
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
    """Return until when rows that an erasure empties are kept, by table."""
    kept = retention_of(context.settings, context.sources)
    days = {} if kept is None else kept.classes()
    classes = {"bodies": ("deliveries", "envelopes"), "phones": ("phones",),
               "rejections": ("rejections",), "book_phones": ("book_lines",)}  # fmt: skip
    return {
        table: f"{counted(span, 'day')} after the last news of it, or until you ask for erasure"
        for name, span in days.items()
        if span is not None
        for table in classes.get(name, ())
    }


def _place(name: str, rows: list[dict[str, Any]], retention: Mapping[str, str]) -> dict[str, Any]:
    """Describe the rows of a table: their meaning, source, time, period and reason."""
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
    """Yield the rows of a table as JSON values. Files that are not text are added to the
    members."""
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
    """Return whether a row found by a payment's reference belongs to this payment. Another source
    may use the same reference."""
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
    """Return the content of a row of the person. For a file, return its place in the copy, or why
    it is left out."""
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
