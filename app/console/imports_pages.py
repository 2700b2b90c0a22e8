"""Pages that list imports and show an uploaded file before its import.

The actions on uploads are in `upload_acts.py`.
"""

from functools import partial
from typing import Any, Final

from starlette.responses import FileResponse, Response, StreamingResponse

from app.access.proposal import Proposal
from app.console import uploads
from app.console.coverage_pages import covered_days
from app.console.proposals_pages import proposed, waiting_about
from app.console.view import PROPOSE, Act, ActionResult, Document, Field, Form, View, stated
from app.console.words import address, file_part, of_forms
from app.core.errors import NotFoundError, UsageError
from app.core.jobs import job_document
from app.core.text import capital, counted
from app.finance import imports, stage_file, withdraw_import
from app.finance.bank_balances import Balances
from app.finance.changed_rows import changes_file, first_changes
from app.finance.file_identity import FileIdentity
from app.finance.import_folder import import_task_documents
from app.finance.named_mappings import list_mappings, one_mapping
from reconcile.instants import MINUTE, format_instant
from reconcile.money import Money, to_json
from reconcile.periods import Calendar

KINDS: Final[dict[imports.ImportKind, str]] = {
    "statement": "statement",
    "book": "order book",
    "bank": "bank file",
}

WHOSE: Final[dict[imports.ImportKind, str]] = {
    "statement": "a provider's",
    "book": "an",
    "bank": "a",
}

COUNTS: Final = ("read", "new", "changed", "unchanged", "rejected")

MAX_NUMBER: Final = 10**9

BEYOND: Final = MAX_NUMBER + 1


async def imports_document(view: View) -> Document | Response:
    """Return the imports for `GET /imports`, or the file of a column mapping."""
    if (name := view.word("mapping")) is not None:
        found_mapping = await one_mapping(view.context, name)
        headers = {"Content-Disposition": f'attachment; filename="{file_part(name)}.toml"'}
        return Response(found_mapping.toml, media_type="application/toml", headers=headers)
    wanted, before = view.choice("kind", tuple(KINDS)), view.number("before")
    found = []
    for kind in KINDS:
        if wanted in (None, kind):
            found += await imports.past_imports(
                view.context, kind=kind, limit=view.rows + 1, before=min(before or BEYOND, BEYOND)
            )
    found.sort(key=lambda each: -each.number)
    shown = found[: view.rows]
    return {
        "filters": {"kind": wanted},
        "before": before,
        "next": shown[-1].number if len(found) > view.rows else None,
        "waiting": [
            {
                "upload": each.name,
                "kind": each.kind,
                "source": each.source or None,
                "preset": None if each.seen is None else each.seen.preset,
                "file": each.file.path.name,
                "at": format_instant(each.at),
                "state": state_of(each),
                "problem": _problem_of(each),
                "sha256": each.file.sha256,
                **{name: getattr(each.done or each.seen, name, None) for name in COUNTS},
            }
            for each in view.console.uploads.of_person(view.person.name)
        ],
        "mappings": [each.document() for each in await list_mappings(view.context)],
        "tasks": await import_task_documents(view.context),
        "all_clear": " ".join(each.name for each in clear_of(view)),
        "imports": [_row(each) for each in shown],
        "taken_back": await imports.taken_back(view.context, shown),
        "most_bytes": uploads.MAX_FILE_BYTES,
        "kept_minutes": uploads.KEPT_FOR // MINUTE,
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


def upload_of(view: View, name: str) -> uploads.Upload:
    """Return the operator's upload. Raises NotFoundError if not stored."""
    found = view.console.uploads.of(name, by=view.person.name)
    if found is None:
        raise NotFoundError(
            "this file is not stored for you: upload it again. The console keeps a file for one "
            "hour or until a restart, and only for the operator who uploaded it"
        )
    return found


def _problem_of(upload: uploads.Upload) -> str | None:
    if upload.job is not None and upload.job.problem is not None:
        return upload.job.problem
    if upload.seen is None or not upload.seen.refused:
        return None
    return next((each.sentence for each in upload.seen.problems), None)


def differs_in(upload: uploads.Upload) -> Balances | None:
    """Return the balances that made a statement refused, if any."""
    return None if upload.seen is None or upload.busy else upload.seen.differs


def clear_of(view: View) -> list[uploads.Upload]:
    """Return the operator's uploads that await import and have no rejected rows, oldest first."""
    return [
        each
        for each in reversed(view.console.uploads.of_person(view.person.name))
        if state_of(each) == "to_confirm" and each.seen is not None and not each.seen.rejected
    ]


def state_of(upload: uploads.Upload) -> str:
    """Return an upload's state."""
    job = upload.job
    if job is not None and job.ended is None:
        return "reading" if upload.seen is None else "importing"
    if upload.done is not None and upload.done.number is not None:
        return "imported"
    seen = upload.seen
    if seen is None:
        unsettled = upload.identity is not None and job is not None and job.problem is None
        return "to_choose" if unsettled else "failed"
    return "refused" if seen.refused or seen.read <= seen.rejected else "to_confirm"


async def import_document(view: View) -> Document | Response:
    """Return the result of an import or dry run.

    With `?rejects=1` or `?changes=1`, return the file of these rows.
    """
    if view.subject.isascii() and view.subject.isdigit():
        return await _past(view, min(int(view.subject[:12]), MAX_NUMBER))
    upload = upload_of(view, view.subject)
    if view.word("rejects") is not None:
        name = None if upload.done is None else upload.done.rejects
        if upload.request.rejects is None or name is None:
            raise NotFoundError("no row of this file was left out")
        return FileResponse(upload.request.rejects, media_type="text/csv", filename=name)
    imported = upload.done or upload.seen or imports.Imported(file="", kind=upload.kind or "book")
    seen, identity = upload.seen or imported, upload.identity
    if view.word("changes") is not None:
        if not upload.changes_file.exists():
            raise NotFoundError("no row of this file is changed")
        name = f"{upload.file.path.stem}.changes.csv"
        return FileResponse(upload.changes_file, media_type="text/csv", filename=name)
    return {
        "state": state_of(upload),
        "upload": upload.name,
        "kind": upload.kind,
        "source": upload.source or None,
        "file": upload.file.path.name,
        "size": upload.file.size,
        "sha256": upload.file.sha256,
        "mapping": upload.mapping or None,
        "drafted": upload.request.content or None,
        "by": upload.by,
        "at": format_instant(upload.at),
        "problem": None if upload.job is None else upload.job.problem,
        **dict.fromkeys(("withdraws", "taken_back", "job", "proposal")),
        "takes_back": False,
        "import": imported.number,
        **{name: getattr(imported, name) for name in COUNTS},
        "ready": not seen.refused and seen.read > seen.rejected,
        "refused": seen.refused,
        "looks_like": seen.looks_like,
        "differs": differs_in(upload) is not None,
        "choices": [] if identity is None or upload.seen is not None else _choices(identity),
        "because": [] if identity is None else list(identity.because),
        "changes": imported.changed_documents(),
        "money": money_rows(seen),
        "problems": [each.document() for each in imported.problems],
        "problems_left_out": imported.left_out,
        "rejects": imported.rejects,
        "preset": seen.preset,
        "notes": [*map(of_forms, seen.notes)],
        "covers": covered_days(seen.covers, Calendar(view.context.calendar_zone)),
        "rows_ignored": seen.ignored_documents(),
        "told_with_others": seen.joined,
        "columns_not_read": seen.passed_over,
        "totals_left_out": seen.totals_found,
        "rows": seen.rows,
    }


def _choices(identity: FileIdentity) -> list[dict[str, str]]:
    if identity.kind == "statement":
        return [{"kind": "statement", "source": each} for each in identity.sources]
    return [{"kind": each, "source": ""} for each in identity.kinds]


async def _past(view: View, number: int) -> Document | Response:
    found, taken_back = await imports.past_import(view.context, number), None
    if view.word("changes") is not None:
        name = f"import-{number}.changes.csv"
        return StreamingResponse(
            changes_file(view.context, found),
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
    by = await withdraw_import.withdrawn_by(view.context, number)
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
        "takes_back": stands and view.person.may(withdraw_import.ACTIONS[found.kind]),
        "job": job_document(job),
        "proposal": await waiting_about(view, f"import {number}"),
        "changes": await first_changes(view.context, found),
        "problems": [],
        "rejects": None,
    }


def money_rows(seen: imports.Imported) -> list[dict[str, Any]]:
    """Return the number of rows and totals by currency."""
    return [
        {
            "currency": currency,
            "rows": sums["rows"],
            **{
                "amount" if name == "minor" else name: to_json(
                    Money(minor=sums[name], currency=currency)
                )
                for name in stage_file.MONEY
                if name in sums
            },
        }
        for currency, sums in sorted(seen.sums.items())
    ]


# --- withdrawing an import ------------------------------------------------------------------------


async def _of_address(view: View) -> tuple[int, imports.ImportKind, str]:
    number = stated("import", view.number("import"))
    found = await imports.past_import(view.context, min(number, MAX_NUMBER))
    return found.number, found.kind, found.file


async def ask_withdraw_import(view: View) -> Form:
    number, kind, file = await _of_address(view)
    count = partial(
        view.console.work, withdraw_import.withdrawable, number, kind=kind, by=view.person.name
    )
    subject, back = f"import {number}, {KINDS[kind]} {file}", address("imports", str(number))
    seen = await view.shared_job("withdrawal", str(number), work=count)
    if seen.ended is None:
        line = (
            "Its lines in force are being counted, which takes a while with many lines: look again."
        )
        return Form(subject, back, line, ready=False)
    would: withdraw_import.Foreseen = seen.result
    lines = (
        f"{counted(would.lines, 'line')} of this import {'is' if would.lines == 1 else 'are'} in "
        f"force, {would.moneys}. After the withdrawal it is as if the file had not been "
        "imported: if an earlier file has a line, its version is in force again.",
        *would.notes,
        "Nothing is deleted. To restore its lines, import the file again.",
        "The import is withdrawn in your name; the next run compares what is left."
        if would.because is None
        else (
            f"{capital(would.because)}: you propose the withdrawal, and it is carried out "
            "when another operator approves it."
        ),
    )
    sealed = Field("seen", "What was shown", kind="hidden", value=would.mark)
    button = "" if would.because is None else PROPOSE
    return Form(subject, back, *lines, fields=(sealed,), button=button)


async def do_withdraw_import(view: View, reason: str) -> str | ActionResult:
    """Withdraw the import. If a second person must approve, make a proposal."""
    number, kind, _ = await _of_address(view)
    by, shown = view.person.name, view.given.get("seen", "")
    if not shown:
        raise UsageError("this form is incomplete: open it again to see what would be withdrawn")
    take_back = partial(
        view.console.work,
        withdraw_import.withdraw_import,
        number,
        kind=kind,
        by=by,
        reason=reason,
        seen_as=shown,
    )
    back = address("imports", str(number))
    job = await view.job("withdraw", str(number), work=take_back)
    if job.ended is None:
        line = "You may leave this page. The import's page says when it is withdrawn."
        return ActionResult("The import is being withdrawn", back, line)
    return proposed(job.result) if isinstance(job.result, Proposal) else back


ACTS: Final = (
    Act(
        "Withdraw an import",
        "records_withdrawn",
        ask_withdraw_import,
        do_withdraw_import,
        button="Take it back",
        done="The import was withdrawn: none of its lines is in force any more.",
    ),
)
