"""Delivery log: all deliveries that arrived, with their verdicts, newest first."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypedDict, get_args
from urllib.parse import unquote_plus

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.masking import Masking, masked_at_sight, masked_phone
from app.database.statements import run
from app.providers.connecting import names_no_order
from app.providers.request import Reason
from app.receiving import delivery_log_store
from app.receiving.append_store import ACCEPTED, StoredVerdict
from app.receiving.header_codec import URL, is_left_out, phones_in
from app.receiving.kept_request import no_delivery
from app.receiving.restrictions import refuse_restricted, restricted_deliveries
from reconcile.documents import Count, InstantText, Keywords, MoneyDocument, NextText
from reconcile.instants import EARLIEST, MINUTE, Instant

_SECRETS: Final = ("api-key", "apikey", "token", "secret", "password")
_TIMES: Final = ("time", "date", "length")

Verdict = Literal[
    StoredVerdict,
    Reason,
    "source_unknown",
    "body_too_large",
    "wrong_environment",
    "wrong_account",
]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Page of the delivery log, newest first."""

    entries: list[delivery_log_store.LogEntry]
    older: str | None = None
    """Id below which the next page begins. None at the end."""
    searched: int | None = None
    """Number of deliveries searched if the search stopped early."""


STRETCH: Final = 20_000
"""Number of deliveries that a filtered list of the delivery log searches in one step."""

STRETCHES: Final = 10
"""Maximum number of search steps for one page of a filtered list. All steps together take about a
second."""


async def list_deliveries(
    context: AppContext,
    *,
    limit: int,
    before: str | None = None,
    verdict: str | None = None,
    source: str | None = None,
    kind: str | None = None,
    order: str | None = None,
    no_order: bool = False,
    refused: bool = True,
) -> LogPage:
    """Return a page with the latest deliveries that match all filters, newest first.

    before    id; only deliveries with lower ids are returned
    kind      the provider's name of the event type
    order     only deliveries whose event is in this order's ledger
    no_order  only deliveries whose event is in no order's ledger
    refused   whether refused deliveries are included

    Raises UsageError if the data of `order` is restricted.
    """
    wanted = delivery_log_store.LogFilter(
        verdict=verdict, source=source, kind=kind, order=order, no_order=no_order, refused=refused
    )
    async with context.database.reading() as connection:
        if order is not None:
            await refuse_restricted(connection, order=order)
        if not wanted.has_no_index:
            found = await delivery_log_store.list_log(
                connection, wanted, limit=limit, before=before
            )
            return LogPage(entries=found, older=_older(found, limit))
        found = []
        for _ in range(STRETCHES):
            first = await delivery_log_store.delivery_before(connection, before, count=STRETCH)
            found += await delivery_log_store.list_log(
                connection, wanted, limit=limit - len(found), before=before, since=first or ""
            )
            if len(found) == limit or first is None:
                return LogPage(entries=found, older=_older(found, limit))
            before = first
    return LogPage(entries=found, older=before, searched=STRETCH * STRETCHES)


def _older(found: list[delivery_log_store.LogEntry], limit: int) -> str | None:
    return found[-1].delivery_id if len(found) == limit else None


async def head_of_log(context: AppContext) -> str:
    """Return the id of the latest delivery. Return an empty text if there is none."""
    async with context.database.reading() as connection:
        return await delivery_log_store.newest_arrival(connection)


MINUTES: Final = 60


async def arrivals_by_minute(context: AppContext) -> list[tuple[Instant, int, int]]:
    """Return each minute of the last hour, with the numbers of accepted and refused deliveries."""
    first = context.clock.now() // MINUTE - MINUTES + 1
    async with context.database.reading() as connection:
        counts = await delivery_log_store.arrivals_since(connection, first)
    return [
        (EARLIEST + minute * MINUTE, *counts.get(minute, (0, 0)))
        for minute in range(first, first + MINUTES)
    ]


async def last_came(context: AppContext, source: str) -> tuple[Instant | None, Instant | None]:
    """Return the minutes of a source's last accepted and last refused deliveries, each or None.

    An empty source stands for all unknown names.
    """
    async with context.database.reading() as connection:
        taken, refused = await delivery_log_store.last_arrivals(connection, source)
    return (
        None if taken is None else EARLIEST + taken * MINUTE,
        None if refused is None else EARLIEST + refused * MINUTE,
    )


REFUSED_LOOKED_AT: Final = 2_000
REFUSED_SHOWN: Final = 20


async def refused_that_may_be_of(
    context: AppContext, names: Collection[str]
) -> list[delivery_log_store.LogEntry]:
    """Return the latest refused deliveries whose bodies contain one of these references. Anybody
    may have sent such deliveries."""
    wanted = sorted(name for name in set(names) if len(name) >= 4)
    if not wanted:
        return []
    async with context.database.reading() as connection:
        found = await delivery_log_store.refused_naming(
            connection, wanted[:10], looked_at=REFUSED_LOOKED_AT, limit=REFUSED_SHOWN
        )
        ids = [each.delivery_id for each in found]
        hidden = await run(connection, restricted_deliveries, ids)
    return [each for each in found if each.delivery_id not in hidden]


async def show_delivery(context: AppContext, delivery_id: str) -> delivery_log_store.LogEntry:
    """Return one delivery of the log, without headers if restricted. Raise NotFoundError if not
    stored."""
    async with context.database.reading() as connection:
        entry = await delivery_log_store.find_in_log(connection, delivery_id)
        hidden = await run(connection, restricted_deliveries, [delivery_id])
    if entry is None:
        raise no_delivery(delivery_id)
    for each in hidden.values():
        return replace(entry, headers="", problem=each.sentence, restricted=True)
    return entry


class ArrivalDocument(TypedDict):
    delivery: Annotated[str, Keywords(examples=["dlv_1"])]
    received_at: InstantText
    source: str
    verdict: Annotated[str, Keywords(enum=VERDICTS)]
    kind: Annotated[str | None, "The provider's word for its event; null if none was read."]
    order: Annotated[
        str | None, "The order whose ledger contains the event; null if there is none."
    ]
    claim: Annotated[str | None, "What the event claims about a payment."]
    money: MoneyDocument | None
    event: str | None
    size: Count
    problem: Annotated[str | None, "Why the delivery was refused or could not be read."]


class WholeArrivalDocument(ArrivalDocument):
    digest: str
    phones: Annotated[list[str], "The phone numbers of its customers, masked."]
    pruned_at: Annotated[
        InstantText | None,
        "When its body was deleted; for a redelivery of a deleted body, its arrival.",
    ]
    headers: Annotated[
        list[str], "As `name: value`. Secrets are hidden, and customers' numbers are masked."
    ]


class ArrivalPageDocument(TypedDict):
    deliveries: list[ArrivalDocument]
    next: NextText


def listed_delivery(entry: delivery_log_store.LogEntry) -> ArrivalDocument:
    """Return one delivery as JSON values for a list."""
    return document_of(ArrivalDocument, entry, delivery=entry.delivery_id, event=entry.event_id)


def order_cell(entry: delivery_log_store.LogEntry) -> str | None:
    """Return the text for a delivery's order in a table; `none` for an event in no ledger."""
    return "none" if is_nameless(entry) else entry.order


def is_nameless(entry: delivery_log_store.LogEntry) -> bool:
    """Return whether the delivery brought an event that is in no order's ledger."""
    return entry.event_id is not None and entry.order is None


def no_order_sentence(context: AppContext, entry: delivery_log_store.LogEntry) -> str | None:
    """Return a sentence on why a delivery is in no order's ledger, and what to do, or None."""
    source = context.sources.get(entry.source)
    if source is None or not is_nameless(entry) or entry.claim == "ignored":
        return None
    return names_no_order(source.profile)


def verdicts(*, refused: bool) -> tuple[Verdict, ...]:
    """Return the verdicts of acknowledged deliveries, or all verdicts.

    refused  whether the verdicts of refused deliveries are included
    """
    return VERDICTS if refused else ACCEPTED


def is_refused(entry: delivery_log_store.LogEntry) -> bool:
    """Return whether a delivery was refused. The content of a refused delivery is unverified."""
    return entry.verdict not in ACCEPTED


async def note_reading(
    context: AppContext, entry: delivery_log_store.LogEntry, *, by: str | None
) -> None:
    """Record in the audit trail that a person reads a refused delivery. Raise UsageError if the
    permission is missing."""
    read, now = entry.delivery_id, context.clock.now()
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="rejection_read")
        await note_in_trail(connection, who, action="rejection_read", subject=read, at=now)


async def masked_parts(
    context: AppContext, entry: delivery_log_store.LogEntry
) -> tuple[list[str], list[str]]:
    """Return a delivery's phone numbers and its headers, all masked.

    Both are empty if the data is restricted. Numbers are read only from accepted, stored bodies.
    """
    if entry.restricted:
        return [], []
    async with context.database.reading() as connection:
        delivery = await delivery_log_store.raw_delivery(connection, entry.delivery_id)
    phones = [] if delivery is None else phones_in(delivery, context.sources)
    lines = [line.partition(": ") for line in entry.headers.split("\n") if line]
    headers = [f"{name}: {shown_header(name, value, Masking(phones))}" for name, _, value in lines]
    return [masked_phone(digits) for digits in phones], headers


def shown_header(name: str, value: str, masking: Masking) -> str:
    """Return a header's value for display. Personal data is masked, and a possible secret is
    hidden."""
    if name == URL:
        return shown_address(value, masking)
    name = name.lower()
    if any(word in name for word in _SECRETS) and not is_left_out(
        value.encode("latin-1", "replace")
    ):
        return "(hidden)"
    masked: str = masking.value({name: value})[name]
    return masked if any(word in name for word in _TIMES) else masked_at_sight(masked)


def shown_address(address: str, masking: Masking) -> str:
    """Return an address for display. Each query value is masked like a header with its name."""
    path, mark, query = address.partition("?")
    pairs = []
    for name, sign, value in (pair.partition("=") for pair in query.split("&")):
        plain = unquote_plus(value)
        shown = shown_header(name, plain, masking)
        pairs.append(f"{name}{sign}{value if shown == plain else shown}")
    return f"{masking.text(path)}{mark}{'&'.join(pairs)}"
