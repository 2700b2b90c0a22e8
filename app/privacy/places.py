"""List every place that stores text from outside."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from app.config.settings import Settings
from app.core.text import counted
from app.database import marks


class Place(NamedTuple):
    """Place that stores text: a column, written as `table.column`, or a file."""

    where: str
    mark: marks.Mark


FILES: Final[tuple[Place, ...]] = (
    Place(
        "<database>.inbox",
        marks.personal(
            "the tables inbox and suspects, if the database is SQLite", erased="deleted"
        ),
    ),
    Place("write-ahead logs (*-wal)", marks.personal("recently written rows", erased="emptied")),
    Place(
        "<database>.erasures",
        marks.not_personal("ids and keyed digests", because="a backup lacks later erasures"),
    ),
    Place("*.erasures.key, *.phone.key, *.evidence.key", marks.not_personal("random")),
    Place(
        "log lines and metrics",
        marks.possibly_personal(
            "ids, masked references, sources and verdicts; no numbers, names or bodies",
            because="an erasure cannot change them; the machine decides how long they stay",
        ),
    ),
    Place(
        "backups",
        marks.personal(
            "a whole database of an earlier day",
            because="an erasure cannot change them; a restore repeats erasures from the journal",
        ),
    ),
    Place(
        "evidence bundles, letters and reports that people took",
        marks.possibly_personal(
            "references; in full bundles also bodies",
            because="an erasure cannot change them; the audit trail names the people who took them",
        ),
    ),
)


class RetainedClass(NamedTuple):
    """Class of data that an erasure keeps for a time."""

    setting: str
    what: str
    ground: marks.Ground


CLASSES: Final[tuple[RetainedClass, ...]] = (
    RetainedClass(
        "retention_accounts_days",
        "accounting records: an order after its last evidence, a bank's line after its booking",
        "accounts",
    ),
    RetainedClass(
        "retention_disputes_days", "evidence of a payment, after its last capture", "claims"
    ),
    RetainedClass(
        "retention_unallocated_days", "payers of money without an order, after it came", "claims"
    ),
    RetainedClass(
        "retention_minimum_days", "an order or a delivery, after its last evidence", "accounts"
    ),
)


def retained_rows(settings: Settings) -> list[dict[str, str]]:
    """Return a row for each class of retained data."""
    rows = []
    for each in CLASSES:
        days = getattr(settings, each.setting)
        kept = f"restricted for {counted(days, 'day')}, then erased automatically"
        rows.append(
            {
                "where": f"TALLYHOOK_{each.setting.upper()}",
                "personal": "personal",
                "what": each.what,
                "erasure": f"{kept} ({marks.GROUNDS[each.ground]})" if days else "kept no longer",
            }
        )
    return rows


@cache
def columns() -> tuple[Place, ...]:
    """Return every column of text or bytes with its declaration for erasures, by table."""
    from app.database.tables import metadata  # loads SQLModel: a fifth of a second

    return tuple(
        Place(f"{table.name}.{column.name}", column.info[marks.MARK])
        for _, table in sorted(metadata.tables.items())
        for column in table.columns
        if marks.MARK in column.info
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPlace:
    """Result of one erasure in one place. `stays` counts rows of kept orders, too."""

    where: str
    went: int
    stays: int
    why: str

    def document(self) -> dict[str, str | int]:
        return {"place": self.where, "went": self.went, "stays": self.stays, "why": self.why}


WAITS: Final = f"this order's data is kept for another reason ({marks.GROUNDS['claims']})"

UNEXPECTED: Final = "no number should be here: report this to the program's maintainer"


def is_emptied(mark: marks.Mark) -> bool:
    """Return whether an erasure empties a place with this mark."""
    return mark.erased != "kept" and mark.personal != "not"


def reported_places(
    holding: Mapping[str, Set[Any]],
    *,
    going: Mapping[str, Set[Any]],
    waiting: Mapping[str, Set[Any]],
    beside: Mapping[str, int],
) -> list[ReportedPlace]:
    """Return one erasure's result for each place that has rows."""
    rows = []
    for where, mark in columns():
        table = where.partition(".")[0]
        goes = going.get(table, set()) if is_emptied(mark) else set()
        held = holding.get(where, set()) | (
            waiting.get(table, set()) if is_emptied(mark) else set()
        )
        stays = len(held - goes) + beside.get(where, 0)
        if goes or stays:
            why = WAITS if is_emptied(mark) else UNEXPECTED if mark.personal == "not" else mark.why
            rows.append(
                ReportedPlace(where=where, went=len(goes), stays=stays, why=why if stays else "")
            )
    return rows


def places_table() -> str:
    """Return the list of places with personal text in Markdown, without column names."""
    tables = [(where.partition(".")[0], mark) for where, mark in columns()]
    lines = ["Each line: a text, its places, what an erasure does, and the legal ground if kept:"]
    for personal in get_args(marks.Personal):
        if personal == "not":
            continue
        lines.append(f"- {personal}:")
        rows: dict[marks.Mark, list[str]] = {}
        for where, mark in (*tables, *FILES):
            if mark.personal == personal and where not in rows.setdefault(mark, []):
                rows[mark].append(where)
        for mark, places in rows.items():
            shown = f"`{'`, `'.join(places)}`" if len(places) < 9 else f"{len(places)} tables"
            lines.append(f"  - {mark.what} ({shown}): {mark.erased_words}")
    return "\n".join(lines) + "\n"
