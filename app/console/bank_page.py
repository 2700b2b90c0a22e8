"""Page of the bank: what it booked, where each line stands, and the payouts that explain it."""

from __future__ import annotations

from collections import Counter

from app.console.view import ROWS, Document, View
from app.console.words import BANK_PLACES
from app.finance.bank_match import booked_lines
from app.finance.reconcile_rows import MOST


async def bank_document(view: View) -> Document:
    """GET /bank: the newest lines first, of one place where one is asked for."""
    stands = view.choice("stands", tuple(BANK_PLACES))
    skip = view.number("skip") or 0
    found = await booked_lines(view.context, limit=MOST)
    counts = Counter(each.bucket for each in found)
    wanted = [each for each in found if stands in (None, each.bucket)]
    return {
        "filters": {"stands": stands},
        "places": {place: counts[place] for place in BANK_PLACES if counts[place]},
        "lines": [each.document() for each in wanted[skip : skip + ROWS]],
        "skip": skip,
        "next": skip + ROWS if len(wanted) > skip + ROWS else None,
        "imported": bool(found),
    }
