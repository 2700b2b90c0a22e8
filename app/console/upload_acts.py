"""Actions on uploads: upload a file, read it with other options, import it, or discard it."""

from dataclasses import replace
from hmac import compare_digest
from pathlib import Path
from typing import Final

from app.access.operators import Action
from app.console import imports_pages
from app.console.coverage_pages import day_fields
from app.console.proposals_pages import proposed
from app.console.uploads import (
    KEPT_FOR,
    MAX_FILE_BYTES,
    MOST_KEPT,
    ReceivedFile,
    Upload,
    mappings_in,
)
from app.console.view import PROPOSE, Act, ActionResult, Field, Form, View
from app.console.words import address, of_forms, plain_money
from app.core.errors import UsageError
from app.core.ids import new_token
from app.core.text import capital, counted
from app.finance import bank_balances, import_folder, imports
from app.finance.files.presets import KIND_NAMES, NO_PRESET, shipped_exports
from app.finance.named_mappings import list_mappings
from reconcile.instants import MINUTE

ACTIONS: Final[dict[imports.ImportKind, Action]] = {
    "book": "records_imported",
    "statement": "statement_imported",
    "bank": "bank_imported",
}

DELIMITERS: Final = (("", "found out"), (",", "comma"), (";", "semicolon"), ("tab", "tab"),
                     ("|", "bar"))  # fmt: skip

DATES: Final = (("", "as the file or its mapping says"), ("day_first", "the day first"),
                ("month_first", "the month first"), ("excel", "as numbers of Excel"))  # fmt: skip

PRESETS: Final = (
    ("", "recognize it"),
    *((each.name, f"{each.title} ({KIND_NAMES[each.kind]})") for each in shipped_exports()),
    (NO_PRESET, "none of the known exports"),
)


async def _mappings(view: View) -> dict[str, Path]:
    saved = {each.name: Path(each.name) for each in await list_mappings(view.context)}
    return saved | mappings_in(view.context.settings.console.mappings)


async def _reading_fields(view: View) -> tuple[Field, ...]:
    kinds = tuple(
        (kind, f"{imports_pages.WHOSE[kind]} {word}") for kind, word in imports_pages.KINDS.items()
    )
    return (
        Field("kind", "What it is", choices=(("", "recognize it"), *kinds), required=False),
        Field(
            "source",
            "Whose statement",
            choices=(
                ("", "recognize it"),
                *((name, name) for name in sorted(view.context.settings.sources)),
            ),
            hint="Only for a provider's statement.",
            required=False,
        ),
        Field(
            "account",
            "Which account of the bank",
            hint="Only for a bank's file whose rows have no account.",
            required=False,
        ),
        Field(
            "preset",
            "Whose export",
            choices=PRESETS,
            hint="Not for a bank's file, whose format is detected.",
            required=False,
        ),
        Field(
            "mapping",
            "Mapping",
            choices=(
                ("", "none: it is a known export, or its columns have the usual names"),
                *((name, name) for name in await _mappings(view)),
            ),
            hint="Mappings saved here, and those of TALLYHOOK_CONSOLE__MAPPINGS.",
            required=False,
        ),
        *day_fields(required=False),
        Field(
            "book", "Which order book", hint="Only if you have several order books.", required=False
        ),
        Field("delimiter", "What divides cells", choices=DELIMITERS, required=False),
        Field(
            "dates",
            "How dates are written",
            choices=DATES,
            hint="Needed if 05/06/2026 could be the fifth of June or the sixth of May.",
            required=False,
        ),
        Field("currency", "Currency of rows without one", hint="Such as KES.", required=False),
        Field(
            "encoding",
            "Encoding",
            hint="Only for a text file that is not UTF-8, such as cp1252.",
            required=False,
        ),
    )


async def ask_upload(view: View) -> Form:
    return Form(
        "Imports",
        "/imports",
        "CSV, a workbook (.xlsx) or JSON Lines; from a bank also CAMT, MT940, MT942, BAI2 or "
        f"OFX. It may be in a ZIP, and have at most {MAX_FILE_BYTES >> 20} MiB. At first the "
        "file is only read: you see its counts, its money and every row that is not clear, and "
        "then decide.",
        f"The file waits for you for {KEPT_FOR // MINUTE} minutes. It is deleted after that, or "
        "as soon as it is imported.",
        reason=False,
        fields=(
            Field(
                "file",
                "The files",
                kind="files",
                hint=f"At most {MOST_KEPT} files, together at most {MAX_FILE_BYTES >> 20} MiB.",
            ),
            *await _reading_fields(view),
        ),
    )


async def do_upload(view: View, reason: str) -> str:
    """Store the uploaded files, and read each file in a dry run."""
    if not view.files:
        raise UsageError("choose a file that is not empty")
    kind, source = _said_identity(view)
    uploads = [
        Upload(
            name=new_token("upl_"),
            file=file,
            by=view.person.name,
            at=view.context.clock.now(),
            kind=kind,
            source=source,
            mapping=view.given.get("mapping", ""),
            preset=view.given.get("preset", ""),
            request=await _request(view, file),
        )
        for file in view.files
    ]
    for upload in uploads:
        view.console.uploads.keep(upload)
    for upload in uploads:
        begin_reading(view, upload, kind=kind, source=source)
    if len(uploads) > 1:
        await view.console.jobs.settle([each.job for each in uploads if each.job is not None])
        return "/imports"
    (upload,) = uploads
    assert upload.job is not None
    try:
        await view.console.jobs.wait(upload.job)
    except UsageError as error:
        view.console.uploads.forget(upload)
        raise UsageError(of_forms(str(error))) from None
    return address("imports", upload.name)


def days_in(view: View) -> tuple[str, str] | None:
    """Return the first and the last day of the form, if stated.

    Raises UsageError for only one day.
    """
    first, last = (view.given.get(name, "").strip() for name in ("first_day", "last_day"))
    if bool(first) != bool(last):
        raise UsageError("say both the first and the last day that the file covers, or neither")
    return (first, last) if first else None


def _said_identity(view: View) -> tuple[imports.ImportKind | None, str | None]:
    given = view.given
    named: dict[str, imports.ImportKind] = {each: each for each in imports_pages.KINDS}
    kind = named.get(given.get("kind", ""))
    if kind is not None and not view.person.may(ACTIONS[kind]):
        raise UsageError(f"your role may not import files of the kind {imports_pages.KINDS[kind]}")
    source = given.get("source", "") if kind in (None, "statement") else ""
    if source and source not in view.context.settings.sources:
        raise UsageError("there is no source of this name")
    return kind, source or None


def begin_reading(
    view: View,
    upload: Upload,
    *,
    kind: imports.ImportKind | None,
    source: str | None,
    content: str = "",
) -> None:
    """Begin the job that reads a file in a dry run.

    kind     kind of the file; None to recognize it
    source   source of a statement; None to recognize it
    """
    console = view.console
    if content:
        upload.mapping, upload.preset = "your choice of columns", ""
        upload.request = imports.ImportRequest(
            path=upload.file.path,
            content=content,
            sheet=upload.request.sheet,
            by=upload.by,
            sha256=upload.file.sha256,
        )
    upload.kind, upload.source = kind, source
    upload.seen = upload.done = upload.identity = upload.columns = None
    upload.changes_file.unlink(missing_ok=True)

    async def work() -> None:
        async with console.uploads.reading:
            upload.sheets = await console.work(imports.sheets_of, upload.request)
            upload.identity = found = await console.work(
                imports.identify, upload.request, kind=kind, source=source
            )
            upload.kind, upload.source = found.kind, found.source
            upload.request = found.reading(upload.request)
            upload.mapping = found.mapping or upload.mapping
            if found.kind is None or found.source is None:
                return
            request = replace(upload.request, dry_run=True, changes=upload.changes_file)
            upload.seen = await console.work(
                imports.import_kind, request, kind=found.kind, source=found.source
            )
            upload.seen.explain(found)

    upload.job = console.jobs.begin("import", upload.name, by=upload.by, work=work)


async def _request(view: View, file: ReceivedFile) -> imports.ImportRequest:
    given = view.given
    mappings = await _mappings(view)
    mapping, preset = given.get("mapping", ""), given.get("preset", "")
    if mapping and mapping not in mappings:
        raise UsageError("there is no mapping of this name any more")
    if preset not in dict(PRESETS):
        raise UsageError("there is no known export of this name")
    if preset and mapping:
        raise UsageError("choose a known export or a mapping, not both")
    delimiter = given.get("delimiter", "")
    if delimiter not in dict(DELIMITERS):
        raise UsageError("choose one of the listed delimiters")
    dates = given.get("dates", "")
    if dates not in dict(DATES):
        raise UsageError("choose one of the listed date formats")
    return imports.ImportRequest(
        path=file.path,
        account=given.get("account", "").strip(),
        mapping=mappings.get(mapping),
        preset=preset or None,
        delimiter={"": None, "tab": "\t"}.get(delimiter, delimiter),
        encoding=given.get("encoding", "").strip() or None,
        sheet=given.get("sheet") or None,
        dates=dates or None,
        currency=given.get("currency", "").strip().upper() or None,
        by=view.person.name,
        sha256=file.sha256,
        book=given.get("book", "").strip(),
        days=days_in(view),
    )


async def ask_read_as(view: View) -> Form:
    upload = imports_pages.upload_of(view, view.needed("upload"))
    sheet = Field(
        "sheet",
        "Which sheet",
        choices=(("", "the first that is shown"), *((name, name) for name in upload.sheets)),
        required=False,
    )
    return Form(
        upload.file.path.name,
        address("imports", upload.name),
        "The file is read again with these choices. Nothing is imported yet.",
        ready=not upload.busy and imports_pages.state_of(upload) != "imported",
        reason=False,
        fields=(*([sheet] if len(upload.sheets) > 1 else []), *await _reading_fields(view)),
    )


async def do_read_as(view: View, reason: str) -> str:
    """Read an uploaded file again with other options."""
    upload = imports_pages.upload_of(view, view.needed("upload"))
    kind, source = _said_identity(view)
    if "encoding" in view.given:
        upload.request = await _request(view, upload.file)
    else:
        upload.request = replace(upload.request, mapping=None, content="", preset=None)
    upload.mapping, upload.preset = view.given.get("mapping", ""), view.given.get("preset", "")
    begin_reading(view, upload, kind=kind, source=source)
    assert upload.job is not None
    await view.console.jobs.wait(upload.job)
    return address("imports", upload.name)


async def ask_import(view: View) -> Form:
    upload = imports_pages.upload_of(view, view.needed("upload"))
    seen, state = upload.seen, imports_pages.state_of(upload)
    back = address("imports", upload.name)
    subject = upload.file.path.name
    if state != "to_confirm" or seen is None:
        line = (
            "There is nothing to import: it is being read, was imported before, or no row is clear."
        )
        return Form(subject, back, line, ready=False)
    subject = f"{subject}, {imports_pages.KINDS[seen.kind]}"
    lines = [
        f"{counted(seen.read, 'row')} read: {seen.new:,} new, {seen.changed:,} changed, "
        f"{seen.unchanged:,} as known before, {seen.rejected:,} not clear."
    ]
    for row in imports_pages.money_rows(seen):
        names = [name for name in ("amount", "gross", "fee", "net") if name in row]
        amounts = ", ".join(f"{name} {plain_money(row[name])}" for name in names)
        lines.append(f"{counted(row['rows'], 'row')}: {amounts}.")
    lines += seen.said_beside()
    if seen.rejected:
        lines.append(
            f"{counted(seen.rejected, 'row is', 'rows are')} set aside: you get them as a file "
            "afterwards, to correct and send again. To import all rows or none, leave this page, "
            "correct the file and send it again."
        )
    if not seen.new and not seen.changed:
        lines.append("The file contains nothing new: nothing will change.")
    lines.append(
        f"The SHA-256 of the file is {upload.file.sha256}. A changed row is a new version, and "
        "the old one is kept; the next run compares all of it."
    )
    sealed = Field("sha256", "Digest", kind="hidden", value=upload.file.sha256)
    return Form(subject, back, *lines, reason=False, fields=(sealed,))


async def do_import(view: View, reason: str) -> str:
    """Import the uploaded file, exactly as the dry run read it."""
    upload = imports_pages.upload_of(view, view.needed("upload"))
    if not compare_digest(view.given.get("sha256", "").encode(), upload.file.sha256.encode()):
        raise UsageError("the file has changed since it was shown: look at the file again")
    if imports_pages.state_of(upload) != "to_confirm" or upload.seen is None:
        raise UsageError("this file is still being read, or was imported already: look at the list")
    _begin_import(view, upload)
    assert upload.job is not None
    await view.console.jobs.wait(upload.job)
    done = _forget_imported(view, upload)
    if done is None:
        return address("imports", upload.name)
    kept = view.console.uploads.of_person(view.person.name)
    waits = any(imports_pages.state_of(each) != "imported" for each in kept)
    return "/imports" if waits else address("imports", str(done))


def _begin_import(view: View, upload: Upload) -> None:
    assert upload.seen is not None
    kind, source, request = upload.seen.kind, upload.seen.source, upload.request
    if upload.seen.rejected:
        rejects = upload.file.folder / f"{upload.file.path.stem}.rejects.csv"
        rejects.unlink(missing_ok=True)
        request = replace(request, accept_good=True, rejects=rejects)
        upload.request = request

    async def work() -> None:
        async with view.console.uploads.importing:
            upload.done = await view.console.work(
                imports.import_kind, request, kind=kind, source=source
            )
        if upload.done.number is not None:
            upload.file.path.unlink(missing_ok=True)

    upload.job = view.console.jobs.begin("import", upload.name, by=upload.by, work=work)


def _forget_imported(view: View, upload: Upload) -> int | None:
    if upload.done is None or upload.done.number is None or upload.done.rejects is not None:
        return None
    view.console.uploads.forget(upload)
    return upload.done.number


async def ask_import_all(view: View) -> Form:
    clear = imports_pages.clear_of(view)
    lines = [
        f"{each.file.path.name}, {imports_pages.KINDS[each.seen.kind]}: {each.seen.new:,} new, "
        f"{each.seen.changed:,} changed, {each.seen.unchanged:,} as known before."
        for each in clear
        if each.seen is not None
    ]
    names = " ".join(each.name for each in clear)
    return Form(
        "Imports",
        "/imports",
        *lines or ["No file whose rows are all clear waits here."],
        ready=bool(clear),
        reason=False,
        fields=(Field("uploads", "Files", kind="hidden", value=names),),
    )


async def do_import_all(view: View, reason: str) -> str:
    """Import the shown files that have no rejected rows, one after another."""
    shown = set(view.given.get("uploads", "").split())
    clear = [each for each in imports_pages.clear_of(view) if each.name in shown]
    for upload in clear:
        _begin_import(view, upload)
    await view.console.jobs.settle([each.job for each in clear if each.job is not None])
    for upload in clear:
        _forget_imported(view, upload)
    return "/imports"


async def ask_accept_balance_difference(view: View) -> Form:
    upload = imports_pages.upload_of(view, view.needed("upload"))
    differs, back = imports_pages.differs_in(upload), address("imports", upload.name)
    if differs is None:
        line = "There is nothing to accept in this file: read it again."
        return Form(upload.file.path.name, back, line, ready=False)
    lines = (
        f"{capital(differs.said())}.",
        "Ask the bank first: usually the file was cut off or changed. An accepted difference is "
        "in the report of its month. The next statement confirms the closing balance, or opens "
        "the difference again.",
        "You propose it. Once another operator has approved it, send the file again, or have it "
        "read again while it waits here.",
    )
    amount = f"{differs.difference():f}"
    sealed = Field("difference", "Difference", kind="hidden", value=amount)
    return Form(upload.file.path.name, back, *lines, fields=(sealed,), button=PROPOSE)


async def do_accept_balance_difference(view: View, reason: str) -> ActionResult:
    """Propose to import a bank file although its balances differ by the shown amount."""
    upload = imports_pages.upload_of(view, view.needed("upload"))
    differs = imports_pages.differs_in(upload)
    if differs is None:
        raise UsageError(
            "this file was read again with other choices since this page was shown: open the "
            "page again"
        )
    bank_balances.check_amount(differs, view.given.get("difference", ""))
    made = await bank_balances.propose_difference(
        view.context,
        differs,
        file=upload.file.path.name,
        sha256=upload.file.sha256,
        reason=reason,
        by=view.person.name,
    )
    return proposed(made)


async def ask_discard(view: View) -> Form:
    upload = imports_pages.upload_of(view, view.needed("upload"))
    return Form(
        upload.file.path.name,
        address("imports", upload.name),
        "The file is deleted here, and nothing of it is imported.",
        ready=not upload.busy,
        reason=False,
    )


async def do_discard(view: View, reason: str) -> str:
    upload = imports_pages.upload_of(view, view.needed("upload"))
    if upload.busy:
        raise UsageError("this file is being read: wait until it has been read")
    view.console.uploads.forget(upload)
    return "/imports"


async def ask_try_folder(view: View) -> Form:
    count = len(await import_folder.import_task_documents(view.context))
    return Form(
        "the import folder",
        "/imports",
        f"The service reads {counted(count, 'file')} again, and imports what is clear now. It "
        "does so by itself when a file changes, a mapping is saved or an import is withdrawn.",
        ready=count > 0,
        reason=False,
    )


async def do_try_folder(view: View, reason: str) -> str:
    await import_folder.try_again(view.context)
    return "/imports"


ACTS: Final = (
    Act("Send files", "statement_imported", ask_upload, do_upload, button="Read them", file=True),
    Act("Import a file", "statement_imported", ask_import, do_import),
    Act(
        "Import all clear files",
        "statement_imported",
        ask_import_all,
        do_import_all,
        button="Import them",
    ),
    Act("Read a file otherwise", "statement_imported", ask_read_as, do_read_as),
    Act(
        "Accept a difference of balances",
        "bank_imported",
        ask_accept_balance_difference,
        do_accept_balance_difference,
        button=PROPOSE,
    ),
    Act(
        "Delete a file that waits",
        "statement_imported",
        ask_discard,
        do_discard,
        done="The file was deleted; nothing of it was imported.",
    ),
    Act(
        "Try the files of the import folder again",
        "statement_imported",
        ask_try_folder,
        do_try_folder,
        button="Try them again",
        done="The service reads these files again within half a minute.",
    ),
)
