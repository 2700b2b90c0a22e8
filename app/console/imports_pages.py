"""Pages of imports: what was imported, and a file between its dry run and its import."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import FileResponse, Response

from app.console.proposals_pages import waiting_about
from app.console.uploads import KEPT_FOR, MAX_FILE_BYTES, Upload
from app.console.view import ROWS, Document, View
from app.core.errors import NotFoundError
from app.core.jobs import job_document
from app.finance.imports import MONEY, Imported, ImportKind, past_import, past_imports
from app.finance.withdraw_import import ACTIONS as WITHDRAWALS
from app.finance.withdraw_import import withdrawn_by
from reconcile.instants import MINUTE, format_instant
from reconcile.money import Money, to_json

KINDS: Final[dict[ImportKind, str]] = {
    "statement": "statement",
    "book": "order book",
    "bank": "bank file",
}
"""What can be imported, as a person calls it."""

COUNTS: Final = ("read", "new", "changed", "unchanged", "rejected")

MAX_NUMBER: Final = 10**9


async def imports_document(view: View) -> Document:
    """GET /imports?kind="""
    wanted = view.choice("kind", tuple(KINDS))
    found = []
    for kind in KINDS:
        if wanted in (None, kind):
            found += await past_imports(view.context, kind=kind, limit=ROWS)
    found.sort(key=lambda each: -each.number)
    return {
        "filters": {"kind": wanted},
        "waiting": [
            {
                "upload": each.name,
                "kind": each.kind,
                "file": each.file.path.name,
                "at": format_instant(each.at),
                "state": state_of(each),
            }
            for each in view.console.uploads.of_person(view.person.name)
        ],
        "imports": [_row(each) for each in found[:ROWS]],
        "taken_back": [each.withdraws for each in found if each.withdraws is not None],
        "most_bytes": MAX_FILE_BYTES,
        "kept_minutes": KEPT_FOR // MINUTE,
    }


def _row(found: Any) -> dict[str, Any]:
    return {
        "import": found.number,
        "at": None if found.published_at is None else format_instant(found.published_at),
        "kind": found.kind,
        "file": found.file,
        "by": found.who,
        **{name: getattr(found, name) for name in COUNTS},
        "withdraws": found.withdraws,
        "sha256": found.sha256,
    }


def upload_of(view: View, name: str) -> Upload:
    """An upload of who asks. Raises NotFoundError with what to do."""
    found = view.console.uploads.of(name, by=view.person.name)
    if found is None:
        raise NotFoundError(
            "this file is kept no longer: files wait for an hour, for who sent them, and end with "
            "the console. Send it again"
        )
    return found


def state_of(upload: Upload) -> str:
    """reading, to_confirm, importing, imported, or failed."""
    job = upload.job
    if job is not None and job.ended is None:
        return "reading" if upload.seen is None else "importing"
    if upload.done is not None and upload.done.number is not None:
        return "imported"
    return "to_confirm" if upload.seen is not None else "failed"


async def import_document(view: View) -> Document | Response:
    """GET /imports/{number or upload}: what an import came to, or what one would do; `?rejects=1`
    of an upload is the file of the rows that were not taken."""
    if view.subject.isascii() and view.subject.isdigit():
        return await _past(view, min(int(view.subject[:12]), MAX_NUMBER))
    upload = upload_of(view, view.subject)
    if view.word("rejects") is not None:
        return _rejects(upload)
    state, told = state_of(upload), upload.done or upload.seen
    return {
        "state": state,
        "upload": upload.name,
        "kind": upload.kind,
        "source": upload.source or None,
        "file": upload.file.path.name,
        "size": upload.file.size,
        "sha256": upload.file.sha256,
        "mapping": upload.mapping or None,
        "by": upload.by,
        "at": format_instant(upload.at),
        "problem": None if upload.job is None else upload.job.problem,
        **dict.fromkeys(("withdraws", "taken_back", "job", "proposal")),
        "takes_back": False,
    } | _told(told, upload)


async def _past(view: View, number: int) -> Document:
    """An import of before: what it came to, and whether it was taken back."""
    found, taken_back = await past_import(view.context, number), None
    by = await withdrawn_by(view.context, number)
    if by is not None:
        taken_back = {
            "import": by.number,
            "by": by.who,
            "at": None if by.published_at is None else format_instant(by.published_at),
            "reason": by.reason,
        }
    stands = by is None and found.withdraws is None
    job = view.console.jobs.newest("withdraw", str(number))
    return {
        "state": "imported" if by is None else "withdrawn",
        "upload": None,
        "source": None,
        "problem": None if job is None else job.problem,
        **_row(found),
        "reason": found.reason,
        "taken_back": taken_back,
        "takes_back": stands and view.person.may(WITHDRAWALS[found.kind]),
        "job": job_document(job),
        "proposal": await waiting_about(view, f"import {number}"),
        "problems": [],
        "rejects": None,
    }


def _told(told: Imported | None, upload: Upload) -> dict[str, Any]:
    """What is known of the file's rows; nothing where it could not be read."""
    told = told or Imported(file="")
    seen = upload.seen or told
    return {
        "import": told.number,
        **{name: getattr(told, name) for name in COUNTS},
        "ready": not seen.refused and seen.read > seen.rejected,
        "refused": seen.refused,
        "money": money_of(seen),
        "problems": [each.document() for each in told.problems],
        "problems_left_out": told.left_out,
        "rejects": told.rejects,
        "preset": seen.preset,
        "notes": seen.notes,
        "rows_ignored": seen.ignored_documents(),
        "told_with_others": seen.told_with,
        "columns_not_read": seen.passed_over,
        "totals_left_out": seen.totals_found,
        "rows": seen.rows,
    }


def money_of(seen: Imported) -> list[dict[str, Any]]:
    """Of each currency how many rows are clear, and their money by column."""
    return [
        {
            "currency": currency,
            "rows": sums["rows"],
            **{
                "amount" if name == "minor" else name: _sum(sums[name], currency)
                for name in MONEY
                if name in sums
            },
        }
        for currency, sums in sorted(seen.sums.items())
    ]


def _sum(minor: int, currency: str) -> dict[str, str]:
    return to_json(Money(minor=minor, currency=currency))


def _rejects(upload: Upload) -> Response:
    name = None if upload.done is None else upload.done.rejects
    if upload.request.rejects is None or name is None:
        raise NotFoundError("no row of this file was set aside")
    return FileResponse(upload.request.rejects, media_type="text/csv", filename=name)
