"""The go-live checklist as one page for printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.core.pages.render import page
from reconcile.instants import Instant, format_instant

_WORDS: Final = {"passed": "✓ passed", "failed": "✗ failed", "to_sign": "☐ to sign"}


def page_of(rows: Sequence[Mapping[str, Any]], *, environment: str, at: Instant) -> str:
    """The list as HTML; `rows` as `Item.document` makes them."""
    values = {
        "rows": rows,
        "words": _WORDS,
        "environment": environment,
        "at": format_instant(at),
        "complete": all(row["state"] == "passed" for row in rows),
    }
    return page("golive.html", values)
