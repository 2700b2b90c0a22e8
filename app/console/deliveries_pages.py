"""Pages of deliveries: what arrived, newest first, and one of them with its headers masked and, of
a refused one, the mistake that would explain it."""

from __future__ import annotations

from typing import Any

from app.console.view import ROWS, Document, View
from app.console.words import VERDICTS as SENTENCES
from app.core.errors import NotFoundError, UsageError
from app.orders.delivery_log import (
    VERDICTS,
    is_nameless,
    is_refused,
    list_deliveries,
    listed_delivery,
    masked_parts,
    note_reading,
    order_of,
    show_delivery,
)
from app.receiving.diagnose import diagnose_delivery
from reconcile.instants import format_instant


def _row(entry: Any) -> dict[str, Any]:
    return listed_delivery(entry) | {"sentence": SENTENCES[entry.verdict]}


async def deliveries_document(view: View) -> Document:
    """GET /deliveries?verdict=&source=&before="""
    refused = view.person.may_read("refused_deliveries")
    verdicts = VERDICTS if refused else VERDICTS[:4]
    verdict, source = view.choice("verdict", verdicts), view.word("source")
    found = await list_deliveries(
        view.context,
        verdict=verdict,
        source=source,
        before=view.word("before"),
        limit=ROWS,
        refused=refused,
    )
    return {
        "filters": {"verdict": verdict, "source": source, "before": view.word("before")},
        "verdicts": list(verdicts),
        "sources": sorted(view.console.sources),
        "deliveries": [_row(each) for each in found],
        "next": found[-1].delivery_id if len(found) == ROWS else None,
    }


async def delivery_document(view: View) -> Document:
    """GET /deliveries/{delivery}. Who looks at a refused one is in the trail."""
    entry = await show_delivery(view.context, view.subject)
    refused = is_refused(entry)
    if refused:
        if not view.person.may_read("refused_deliveries"):
            raise NotFoundError(f"there is no delivery {view.subject!r}")
        await note_reading(view.context, entry, by=view.person.name)
    order = await order_of(view.context, entry)
    phones, headers = await masked_parts(view.context, entry, sources=view.console.sources)
    pairs = [line.partition(": ") for line in headers]
    return _row(entry) | {
        "order": order,
        "nameless": is_nameless(entry, order),
        "refused": refused,
        "problem": entry.problem,
        "digest": entry.digest,
        "phone": ", ".join(phones) or None,
        "pruned_at": None if entry.pruned_at is None else format_instant(entry.pruned_at),
        "headers": [{"name": name, "value": value} for name, _, value in pairs],
        "doctor": await _doctor(view) if refused else None,
    }


async def _doctor(view: View) -> dict[str, Any]:
    """Which known mistakes would explain the refusal; why none could be tried, where none could."""
    try:
        found = await diagnose_delivery(view.context, view.subject, accounts=view.console.accounts)
    except (UsageError, NotFoundError) as error:
        return {"mistakes": [], "untried": str(error)}
    return {
        "mistakes": [
            {"mistake": each.mistake, "sentence": each.sentence} for each in found.diagnoses
        ],
        "untried": None,
    }
