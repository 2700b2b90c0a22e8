"""Bookmarks: the orders and filtered lists that an operator has saved for quick access."""

from typing import Final

from app.access.operator_store import Bookmark, bookmarks, delete_bookmark, put_bookmark
from app.core.errors import NotFoundError, UsageError
from app.core.masking import looks_like_a_phone
from app.core.text import is_human_text
from app.database.database import DatabaseContext

ORDER: Final = "order"

LABEL_MAX: Final = 60
"""Maximum length in characters of a saved list's name."""

MOST: Final = 30
"""Maximum number of bookmarks of one kind that an operator may have."""


async def bookmarks_of(context: DatabaseContext, operator: str) -> list[Bookmark]:
    async with context.database.reading() as connection:
        return await bookmarks(connection, operator)


async def pin_order(context: DatabaseContext, order: str, *, operator: str) -> None:
    """Bookmark an order. Raise UsageError for too many bookmarks."""
    await _put(context, operator, kind=ORDER, label=order, query="")


async def save_list(
    context: DatabaseContext, label: str, *, kind: str, query: str, operator: str
) -> None:
    """Save a list page's filters as a bookmark.

    Raise UsageError for an invalid name or too many bookmarks.
    """
    name = label.strip()
    if not (0 < len(name) <= LABEL_MAX and is_human_text(name)):
        raise UsageError(f"the name must have 1 to {LABEL_MAX} printable characters")
    if looks_like_a_phone(name):
        raise UsageError("remove the phone number from the name")
    await _put(context, operator, kind=kind, label=name, query=query)


async def _put(
    context: DatabaseContext, operator: str, *, kind: str, label: str, query: str
) -> None:
    async with context.database.writing() as connection:
        kept = {each.label for each in await bookmarks(connection, operator) if each.kind == kind}
        if label not in kept and len(kept) >= MOST:
            raise UsageError(
                f"you have saved {MOST} already, which is the maximum; remove one first"
            )
        bookmark = Bookmark(kind=kind, label=label, query=query, at=context.clock.now())
        await put_bookmark(connection, operator, bookmark)


async def remove_bookmark(
    context: DatabaseContext, *, kind: str, label: str, operator: str
) -> None:
    """Delete an operator's bookmark. Raise NotFoundError if no such bookmark exists."""
    async with context.database.writing() as connection:
        if not await delete_bookmark(connection, operator, kind=kind, label=label):
            raise NotFoundError(f"you have nothing saved as {label!r}")
