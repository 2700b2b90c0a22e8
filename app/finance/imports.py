"""Order books and statements: import one from a file, and list what was imported."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import NotFoundError, UsageError
from app.finance.files.books import BookForm
from app.finance.files.mapping import MAX_BYTES, Fields, FileMapping, read_mapping
from app.finance.files.statements import StatementForm
from app.finance.files.tables import rejects_beside
from app.finance.import_file import import_file
from app.finance.import_kinds import BOOK, STATEMENT, Imported, Progress, Wanted
from app.finance.import_store import Import, ImportKind
from app.finance.import_store import imports as stored_imports
from app.receiving.context import AppContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asks for. What is declared beside the mapping goes before it."""

    path: Path
    mapping: Path | None = None
    delimiter: str | None = None
    encoding: str | None = None
    dry_run: bool = False
    accept_good: bool = False
    rejects: Path | None = None
    by: str | None = None


async def import_book(
    context: AppContext,
    request: Request,
    *,
    sources: Collection[str] | None = None,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import an order book. Its lines are compared with ledgers, and change none; only what orders
    were paid by leads events to them. sources: the names that a source may have; None: any.

    Raises as `import_file` does, and UsageError for a mapping.
    """
    mapping = _mapping(request, BookForm.FIELDS)
    wanted = Wanted(
        path=request.path,
        mapping=mapping,
        form=BookForm(mapping, sources=sources),
        kind=BOOK,
        dry_run=request.dry_run,
        rejects=_rejects(request),
    )
    return await import_file(context, wanted, by=request.by, progress=progress)


async def import_statement(
    context: AppContext,
    request: Request,
    *,
    source: str,
    own_orders: bool = False,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Import a provider's statement, of a source or of one that is not known (""). Raises as
    `import_book` does. own_orders: whether that source's orders meet no other's."""
    mapping = _mapping(request, StatementForm.FIELDS)
    wanted = Wanted(
        path=request.path,
        mapping=mapping,
        form=StatementForm(mapping, source=source, own_orders=own_orders),
        kind=STATEMENT,
        dry_run=request.dry_run,
        rejects=_rejects(request),
    )
    return await import_file(context, wanted, by=request.by, progress=progress)


def _rejects(request: Request) -> Path | None:
    if request.rejects is not None and not request.accept_good:
        raise UsageError("--rejects says where rows go that --accept-good leaves out: say both")
    if not request.accept_good or request.dry_run:
        return None
    return request.rejects or rejects_beside(request.path)


def _mapping(request: Request, fields: Fields) -> FileMapping:
    content = b""
    if request.mapping is not None:
        try:
            with request.mapping.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise NotFoundError(f"there is no mapping {request.mapping.name}") from None
        except OSError as error:
            raise UsageError(f"the mapping cannot be read: {error.strerror}") from None
    return read_mapping(
        content,
        fields,
        name="the mapping" if request.mapping is None else request.mapping.name,
        delimiter=request.delimiter,
        encoding=request.encoding,
    )


async def past_imports(context: AppContext, *, kind: ImportKind, limit: int) -> list[Import]:
    """The imports of a kind that were published, newest first."""
    async with context.store.reading() as connection:
        return await stored_imports(connection, kind=kind, limit=limit)
