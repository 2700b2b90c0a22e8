"""Pages of column mappings. People draft a mapping on an upload's page, save it under a name, and
delete it."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.console.imports_pages import KINDS, upload_of
from app.console.upload_acts import begin_reading
from app.console.uploads import Upload
from app.console.view import Act, Field, Form, View
from app.console.words import address
from app.core.errors import UsageError
from app.finance.files import presets
from app.finance.files.mapping_draft import IGNORED, MappingDraft, TablePreview
from app.finance.imports import ImportKind, preview
from app.finance.named_mappings import delete_named, one_mapping, save_named

NEEDED: Final[dict[ImportKind, str]] = {
    "book": "An order book needs reference, amount and currency.",
    "statement": "A statement needs payment reference or order reference; gross, or net and fee; "
    "and currency.",
    "bank": "A bank file needs account, booked at, currency; and amount, or credit and debit.",
}

SUBTRACTABLE: Final = frozenset({"gross"})
"""Money fields that need one column for each direction."""

NUMBERS: Final = (
    ("", "1500.00"), (".,", "1,500.00"), (",", "1500,00"), (",.", "1.500,00"), (", ", "1 500,00"),
    (".'", "1'500.00"),
)  # fmt: skip
"""Number formats that a person can choose, each with an example."""

SIGNS: Final = (
    ("", "as in files with the usual columns"),
    ("none", "500.00; the type or the column shows that it is outgoing"),
    ("minus", "-500.00"),
    ("any", "with any sign; the type or the column shows that it is outgoing"),
)

DATES: Final = (
    ("iso", "2026-11-20, 20261120 or Nov 20, 2026"),
    ("day_first", "20/11/2026"), ("month_first", "11/20/2026"),
    ("unix_s", "seconds since 1970"), ("unix_ms", "milliseconds since 1970"),
    ("excel", "numbers of Excel"),
)  # fmt: skip


NAMES_COLUMNS: Final = "names"

FIRST_ROWS: Final = ((NAMES_COLUMNS, "names the columns"), ("data", "is an ordinary row"))


async def _looked_at(view: View, upload: Upload) -> TablePreview:
    if upload.columns is None:
        upload.columns = await view.console.work(preview, upload.request)
    return upload.columns


def _kind(view: View) -> ImportKind:
    kind = view.choice("kind", tuple(KINDS))
    if kind is None:
        raise UsageError("choose the kind of the file")
    return kind


async def ask_map_columns(view: View) -> Form:
    """Return the form that asks for the columns' meanings."""
    upload, kind = upload_of(view, view.needed("upload")), _kind(view)
    seen = await _looked_at(view, upload)
    known, given = presets.KINDS[kind], view.given
    columns = (("", "no column"), *((name, name) for name in seen.columns))
    asked = []
    for name in known.names:
        label = name.replace("_", " ").capitalize()
        asked.append(
            Field(
                f"column.{name}", label, choices=columns, value=seen.suggested(name), required=False
            )
        )
        if name in SUBTRACTABLE:
            asked.append(
                Field(
                    f"less.{name}",
                    f"{label}, minus the column",
                    choices=columns,
                    hint="Only if outgoing money has its own column.",
                    required=False,
                )
            )
    words = _word_fields(seen, kind, given)
    shown = any(field.name in given for field in words)
    numbers = Field("numbers", "How amounts are written", choices=NUMBERS)
    signs = Field("signs", "How outgoing money is written", choices=SIGNS)
    zone = Field(
        "zone",
        "Time zone of times without one",
        hint="Such as Africa/Nairobi or +03:00. If empty: the merchant's time zone.",
        required=False,
    )
    account = Field("account", "Account of rows without one", required=False)
    sources = tuple((name, name) for name in sorted(view.context.settings.sources))
    whose = Field("source", "Whose statement", choices=sources, required=False)
    return Form(
        upload.file.path.name,
        address("imports", upload.name),
        NEEDED[kind],
        *(("Now choose what each word in these columns means.",) if words else ()),
        ready=not upload.busy,
        reason=False,
        columns=tuple(seen.columns),
        rows=tuple(tuple(row) for row in seen.rows),
        fields=(
            *words,
            *asked,
            Field("first", "The first row", choices=FIRST_ROWS),
            Field("dates", "How dates are written", choices=DATES),
            numbers,
            *((signs,) if kind in ("statement", "bank") else ()),
            zone,
            Field("currency", "Currency of rows without one", hint="Such as KES.", required=False),
            *((whose,) if kind == "statement" and sources else ()),
            *((account,) if kind == "bank" else ()),
        ),
        preview=bool(words) and not shown and view.request.method == "POST",
    )


def _word_fields(seen: TablePreview, kind: ImportKind, given: Mapping[str, str]) -> list[Field]:
    found = []
    for name, meanings in presets.KINDS[kind].words.items():
        for place, word in enumerate(_words_in(seen, given.get(f"column.{name}", ""), given)):
            choices = (
                ("", "unknown: its rows are not imported"),
                *((each, each.replace("_", " ")) for each in meanings),
                (IGNORED, "leave its rows out"),
            )
            found.append(
                Field(
                    f"word.{name}.{place}",
                    f"{name.capitalize()} {f'“{word}”' if word else '(an empty cell)'} means",
                    choices=choices,
                    value=word.lower() if word.lower() in meanings else "",
                    required=False,
                )
            )
    return found


def _words_in(seen: TablePreview, column: str, given: Mapping[str, str]) -> Sequence[str]:
    words = seen.words.get(column, ())
    is_word = words and given.get("first", NAMES_COLUMNS) != NAMES_COLUMNS
    return list(dict.fromkeys([column, *words])) if is_word else words


async def do_map_columns(view: View, reason: str) -> str:
    """Read the uploaded file with the chosen columns."""
    upload, kind, given = upload_of(view, view.needed("upload")), _kind(view), view.given
    seen, known = await _looked_at(view, upload), presets.KINDS[kind]
    columns = {name: given.get(f"column.{name}", "") for name in known.names}
    less = {name: given.get(f"less.{name}", "") for name in SUBTRACTABLE & {*known.names}}
    if not {*columns.values(), *less.values()} <= {"", *seen.columns}:
        raise UsageError("the file has no column of this name")
    numbers, dates = given.get("numbers", ""), given.get("dates", "iso")
    first = given.get("first", NAMES_COLUMNS)
    signs = given.get("signs", "")
    asked = ((numbers, NUMBERS), (dates, DATES), (first, FIRST_ROWS), (signs, SIGNS))
    if not all(value in dict(choices) for value, choices in asked):
        raise UsageError("this form is not from this console: open the page again")
    words = {name: _words_in(seen, column, given) for name, column in columns.items()}
    if first != NAMES_COLUMNS:
        if not {*columns.values(), *less.values()} <= {"", *seen.places}:
            raise UsageError(
                "two columns have the same text in the first row, so their names are ambiguous: "
                "use a mapping file, which can name columns by position"
            )
        columns = {name: seen.places.get(column, "") for name, column in columns.items()}
        less = {name: seen.places.get(column, "") for name, column in less.items()}
    draft = MappingDraft(
        kind=kind,
        columns=columns,
        has_heading=first == NAMES_COLUMNS,
        less=less,
        words={
            name: {
                word: given.get(f"word.{name}.{place}", "")
                for place, word in enumerate(words[name])
            }
            for name in known.words
        },
        keys={
            "decimal": numbers[:1],
            "thousands": numbers[1:],
            "dates": dates,
            "zone": given.get("zone", "").strip(),
            "signs": signs,
        },
        defaults={
            "currency": given.get("currency", "").strip().upper(),
            "account": given.get("account", "").strip() if kind == "bank" else "",
        },
    )
    begin_reading(
        view,
        upload,
        content=draft.toml(known, seen.columns if draft.has_heading else []),
        kind=kind,
        source=given.get("source") or None if kind == "statement" else "",
    )
    assert upload.job is not None
    await view.console.jobs.wait(upload.job)
    return address("imports", upload.name)


async def ask_save_mapping(view: View) -> Form:
    upload = upload_of(view, view.needed("upload"))
    return Form(
        upload.file.path.name,
        address("imports", upload.name),
        "From then on, a file that has all columns of the mapping is read with it: here, by "
        "command (--mapping NAME) and from the import folder. A saved mapping of this name is "
        "replaced.",
        ready=bool(upload.request.content),
        reason=False,
        fields=(Field("name", "Name of the mapping"),),
    )


async def do_save_mapping(view: View, reason: str) -> str:
    upload = upload_of(view, view.needed("upload"))
    if upload.kind is None or not upload.request.content:
        raise UsageError("choose the columns first")
    name = view.given.get("name", "").strip()
    await save_named(
        view.context, name, kind=upload.kind, toml=upload.request.content, by=view.person.name
    )
    return address("imports", upload.name)


async def ask_drop_mapping(view: View) -> Form:
    found = await one_mapping(view.context, view.needed("mapping"))
    return Form(
        found.name,
        "/imports",
        f"This mapping reads {KINDS[found.kind]}s, and was saved by {found.who}. Files that were "
        "imported with it stay imported.",
        reason=False,
    )


async def do_drop_mapping(view: View, reason: str) -> str:
    await delete_named(view.context, view.needed("mapping"), by=view.person.name)
    return "/imports"


ACTS: Final = (
    Act(
        "Map the columns of a file",
        "statement_imported",
        ask_map_columns,
        do_map_columns,
        button="Read the file with these columns",
    ),
    Act(
        "Save a mapping",
        "mapping_saved",
        ask_save_mapping,
        do_save_mapping,
        done="The mapping is saved.",
    ),
    Act(
        "Delete a mapping",
        "mapping_deleted",
        ask_drop_mapping,
        do_drop_mapping,
        done="The mapping is deleted.",
    ),
)
