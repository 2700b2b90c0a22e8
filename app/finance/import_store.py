"""Store imports: numbered, one at a time, and invisible until published. A new import first undoes
a killed import."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypedDict, get_args

from sqlalchemy import ColumnElement, column, delete, insert, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.document_of import document_of
from app.database.locks import IMPORTING, take_lock
from app.database.statements import run, statement
from reconcile.documents import Count, InstantText, Keywords, NextNumber
from reconcile.instants import LATEST, TICK, Instant

ImportKind = Literal["book", "statement", "bank"]
KINDS: Final[tuple[ImportKind, ...]] = get_args(ImportKind)


class ImportDocument(TypedDict):
    number: Count
    published_at: InstantText | None
    file: str
    who: str
    read: Count
    new: Count
    changed: Count
    unchanged: Count
    rejected: Count
    withdraws: Annotated[Count | None, "The import that this one withdrew."]
    reason: str | None
    sha256: Annotated[str, Keywords(pattern="^[0-9a-f]*$", examples=["5f" * 32])]


class ImportPageDocument(TypedDict):
    imports: list[ImportDocument]
    next: NextNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Import of a file, with numbers of rows."""

    kind: ImportKind
    file: str
    sha256: str
    who: str
    started_at: Instant
    number: int = 0
    published_at: Instant | None = None
    written: int = 0
    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    withdraws: int | None = None
    reason: str | None = None

    def document(self) -> ImportDocument:
        return document_of(ImportDocument, self)


_COLUMNS: Final = tuple(Import.__dataclass_fields__)
_IMPORTS: Final = table("imports", *map(column, _COLUMNS))

BEYOND: Final = 2**63 - 1
"""Number greater than the number of any import."""


async def newest_published(connection: AsyncConnection, *, as_of: Instant | None = None) -> int:
    """Return the last import published by an instant, or 0."""
    found = await connection.execute(
        text("SELECT coalesce(max(number), 0) FROM imports WHERE published_at <= :as_of"),
        {"as_of": LATEST if as_of is None else as_of},
    )
    return int(found.scalar_one())


async def newest_begun(connection: AsyncConnection, *, as_of: Instant) -> int:
    """Return the last import begun by an instant, or 0."""
    found = await connection.execute(
        text("SELECT coalesce(max(number), 0) FROM imports WHERE started_at <= :as_of"),
        {"as_of": as_of},
    )
    return int(found.scalar_one())


async def under_way(connection: AsyncConnection) -> Import | None:
    """Return the import that is not published yet. If its `written` stops growing, its process was
    killed."""
    return await _one(connection, _IMPORTS.c.published_at.is_(None))


async def importing_alone(connection: AsyncConnection) -> None:
    """Lock all imports until the transaction ends. Take this lock before any other."""
    await run(connection, take_lock, IMPORTING)


async def begin_import(connection: AsyncConnection, wanted: Import) -> tuple[Import, bool]:
    """Store an import under the next number. The second result tells the caller to undo a killed
    import."""
    await importing_alone(connection)
    # Delete first: this waits until an import that is being published has its number.
    left = await connection.execute(
        text("DELETE FROM imports WHERE published_at IS NULL RETURNING number")
    )
    another = left.first() is not None
    begun = replace(wanted, number=await newest_published(connection) + 1)
    await connection.execute(
        insert(_IMPORTS).values({name: getattr(begun, name) for name in _COLUMNS})
    )
    return begun, another


async def go_on(connection: AsyncConnection, of: Import, *, written: int) -> bool:
    """Store an import's progress together with its lines. After False, the caller must stop:
    another process has taken over."""
    found = await connection.execute(
        text(
            "UPDATE imports SET written=:written WHERE number=:number AND sha256=:sha256 "
            "AND started_at=:started_at AND published_at IS NULL RETURNING number"
        ),
        {
            "written": written,
            "number": of.number,
            "sha256": of.sha256,
            "started_at": of.started_at,
        },
    )
    return found.first() is not None


async def publish_import(connection: AsyncConnection, done: Import, *, now: Instant) -> Instant:
    """Publish an import. Return the instant, which is later than any other import's."""
    found = await connection.execute(text("SELECT max(published_at) FROM imports"))
    latest: Instant | None = found.scalar_one()
    at = now if latest is None else max(now, latest + TICK)
    await connection.execute(
        text(
            "UPDATE imports SET published_at=:at, read=:read, new=:new, changed=:changed, "
            "unchanged=:unchanged, rejected=:rejected WHERE number=:number"
        ),
        {
            "at": at,
            "number": done.number,
            "read": done.read,
            "new": done.new,
            "changed": done.changed,
            "unchanged": done.unchanged,
            "rejected": done.rejected,
        },
    )
    return at


_PUBLISHED: Final = _IMPORTS.c.published_at.is_not(None)


async def imports(
    connection: AsyncConnection, *, kind: ImportKind, limit: int, before: int = BEYOND
) -> list[Import]:
    """Return the published imports with numbers below `before`, newest first."""
    number = _IMPORTS.c.number
    published = select(_IMPORTS).where(_IMPORTS.c.kind == kind, _PUBLISHED, number < before)
    rows = await connection.execute(published.order_by(number.desc()).limit(limit))
    return [import_of(row) for row in rows]


async def taken_back(connection: AsyncConnection, numbers: Sequence[int]) -> list[int]:
    """Return the imports, among these numbers, that were withdrawn."""
    rows = await connection.execute(
        select(_IMPORTS.c.withdraws).where(_IMPORTS.c.withdraws.in_(numbers), _PUBLISHED)
    )
    return [row[0] for row in rows]


async def one_import(connection: AsyncConnection, number: int) -> Import | None:
    return await _one(connection, _IMPORTS.c.number == number, _PUBLISHED)


async def import_of_file(
    connection: AsyncConnection, *, kind: ImportKind, sha256: str
) -> int | None:
    """Return the newest import of a file, unless withdrawn."""
    withdrawn = select(_IMPORTS.c.withdraws).where(_IMPORTS.c.withdraws.is_not(None), _PUBLISHED)
    found = await connection.execute(
        select(_IMPORTS.c.number)
        .where(_IMPORTS.c.kind == kind, _IMPORTS.c.sha256 == sha256, _PUBLISHED)
        .where(_IMPORTS.c.withdraws.is_(None), _IMPORTS.c.number.not_in(withdrawn))
        .order_by(_IMPORTS.c.number.desc())
        .limit(1)
    )
    return found.scalar_one_or_none()


async def withdrawal_of(connection: AsyncConnection, number: int) -> Import | None:
    return await _one(connection, _IMPORTS.c.withdraws == number, _PUBLISHED)


async def _one(connection: AsyncConnection, *which: ColumnElement[bool]) -> Import | None:
    rows = await connection.execute(select(_IMPORTS).where(*which))
    row = rows.first()
    return None if row is None else import_of(row)


def import_of(row: Any) -> Import:
    return Import(**dict(zip(_COLUMNS, row, strict=True)))


# --- lines that are current after imports ---------------------------------------------------------


KNOWN: Final = "since <= :number AND (until IS NULL OR until > :number)"
"""SQL condition for versions of lines current after an import."""


HALF: Final = 1_000_000_000


def summed(expression: str) -> str:
    """Return SQL for a sum in two columns, because SQLite refuses sums beyond 64 bits."""
    return statement("sum(({of}) / {half}), sum(({of}) % {half})", of=expression, half=str(HALF))


def sum_of(high: Any, low: Any) -> int:
    """Return the sum from the two columns that `summed` makes."""
    return int(high) * HALF + int(low)


async def later_imports(connection: AsyncConnection, found: Import) -> tuple[int, ...]:
    """Return later imports with lines that perhaps come from `found`."""
    rows = await connection.execute(
        text(
            "SELECT number FROM imports WHERE kind = :kind AND number > :number AND unchanged > 0 "
            "AND withdraws IS NULL AND number NOT IN "
            "(SELECT withdraws FROM imports WHERE withdraws IS NOT NULL) ORDER BY number"
        ),
        {"kind": found.kind, "number": found.number},
    )
    return tuple(row[0] for row in rows)


async def named_by(connection: AsyncConnection, author: str) -> int:
    """Return the number of orders with records by this author."""
    found = await connection.scalar(
        text("SELECT count(DISTINCT order_key) FROM records WHERE author = :author"),
        {"author": author},
    )
    return int(found or 0)


# --- mappings that people saved by name -----------------------------------------------------------


class MappingDocument(TypedDict):
    mapping: str
    kind: ImportKind
    by: str
    at: InstantText


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMapping:
    """Column mapping that a person saved under a name."""

    name: str
    kind: ImportKind
    toml: str
    who: str
    at: Instant

    def document(self) -> MappingDocument:
        return document_of(MappingDocument, self, mapping=self.name, by=self.who)


_MAPPING_COLUMNS: Final = tuple(NamedMapping.__dataclass_fields__)
_MAPPINGS: Final = table("mappings", *map(column, _MAPPING_COLUMNS))


async def named_mappings(connection: AsyncConnection) -> list[NamedMapping]:
    """Return all saved mappings, sorted by name."""
    rows = await connection.execute(select(_MAPPINGS).order_by(_MAPPINGS.c.name))
    return [NamedMapping(**row._mapping) for row in rows]


async def save_mapping(connection: AsyncConnection, saved: NamedMapping) -> None:
    """Store a column mapping under its name."""
    await delete_mapping(connection, saved.name)
    values = {name: getattr(saved, name) for name in _MAPPING_COLUMNS}
    await connection.execute(insert(_MAPPINGS).values(values))


async def delete_mapping(connection: AsyncConnection, name: str) -> None:
    await connection.execute(delete(_MAPPINGS).where(_MAPPINGS.c.name == name))


# --- files in the watched folder that need a person -----------------------------------------------


class ImportTaskDocument(TypedDict):
    folder: str
    file: str
    problem: str
    since: InstantText


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """File that was not imported and needs a person."""

    folder: str
    file: str
    problem: str
    since: Instant


_TASK_COLUMNS: Final = tuple(ImportTask.__dataclass_fields__)
_TASKS: Final = table("import_tasks", *map(column, _TASK_COLUMNS))


async def import_tasks(connection: AsyncConnection) -> list[ImportTask]:
    """Return all files that need a person."""
    rows = await connection.execute(select(_TASKS).order_by(_TASKS.c.folder, _TASKS.c.file))
    return [ImportTask(**row._mapping) for row in rows]


async def replace_import_tasks(connection: AsyncConnection, tasks: Sequence[ImportTask]) -> None:
    await connection.execute(delete(_TASKS))
    if tasks:
        values = [{name: getattr(each, name) for name in _TASK_COLUMNS} for each in tasks]
        await connection.execute(insert(_TASKS).values(values))
