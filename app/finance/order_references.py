"""Store an order book's references to payments and sessions. A stored reference belongs to its
order forever."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from app.access.operators import author_of_import
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.text import counted
from app.database.statements import PlainConnection, run
from app.finance.files.books import REFERENCES
from app.finance.files.statements import StatementForm
from app.finance.staged_rows import Staged
from app.orders.order_facts import Reference, ReferenceTaken, named, refuse_taken
from app.orders.record_store import after_all, keep_records, order_records, owners_of
from app.receiving.pace import Pace

FIRST_ORDERS, MOST_ORDERS = 20, 200
"""Maximum number of orders in the first and later transactions."""

SHOWN = 3

_ORDER = 3

Unfit = tuple[int, str]
"""Row whose reference was not stored: (row number, reason)."""


def shared_references(staged: Staged) -> dict[str, list[int]]:
    """Return the numbers of the rows that share a reference. No order gets a shared reference,
    because a spreadsheet can shorten references."""
    pairs = {kind: staged.crowded(("source", kind), at_most=1) for kind in ("session", "payment")}
    rows = {kind: sorted({row for pair in found for row in pair}) for kind, found in pairs.items()}
    return {kind: some for kind, some in rows.items() if some}


def shared_payments(staged: Staged) -> dict[str, list[int]]:
    """Return the statement rows with a payment of several orders."""
    payment, order = (1 + StatementForm.STAGED.index(name) for name in ("payment", "match_key"))
    rows = [
        row[0]
        for some in staged.crowds(("subject",))
        if some[0][payment] and len({row[order] for row in some} - {None}) > 1
        for row in some
    ]
    return {"payment": sorted(rows)} if rows else {}


OF_BOOK: Final = (
    "These orders are imported without the references: correct the references, and import the "
    "file again."
)
OF_STATEMENT: Final = "Compare these rows with the provider's export."


def said_of_shared(shared: Mapping[str, Sequence[int]], then: str) -> list[str]:
    """Return a sentence for each kind of shared reference."""
    return [
        f"{counted(len(rows), 'row')}, the first being {', '.join(map(str, rows[:SHOWN]))}, name "
        f"a {kind} that a row of another order also names, but one {kind} pays only one order. "
        f"{then}"
        for kind, rows in shared.items()
    ]


async def unfit_references(context: AppContext, staged: Staged) -> list[Unfit]:
    """Return the rows whose reference already belongs to another order."""
    found: dict[int, str] = {}
    for rows in staged.having("source"):
        async with context.database.reading() as connection:
            references = [_triple(each) for row in rows for each in _references(row)]
            owners = await owners_of(connection, references, lasting=False)
        for row in rows:
            for each in _references(row):
                owner = owners.get(_triple(each))
                if owner is not None and owner != row[_ORDER]:
                    found.setdefault(row[0], f"{each.name} belongs to order {owner}")
    return sorted(found.items())


async def name_references(
    context: AppContext, staged: Staged, *, number: int, without: Container[int]
) -> list[Unfit]:
    """Store the rows' references. Return the rows with foreign references."""
    unfit: list[Unfit] = []
    author, pace = author_of_import(number), Pace(first=FIRST_ORDERS, most=MOST_ORDERS)
    for found in staged.having("source"):
        rows = [row for row in found if row[0] not in without]
        while rows:
            part, rows = rows[: pace.size], rows[pace.size :]
            async with pace.writing(context.database, pieces=len(part)) as connection:
                unfit += await run(connection, _name, part, clock=context.clock, author=author)
            context.signals.evidence_arrived.set()
    return unfit


def _name(
    connection: PlainConnection, rows: Sequence[Sequence[Any]], *, clock: Clock, author: str
) -> list[Unfit]:
    unfit: list[Unfit] = []
    for row in rows:
        order, references = row[_ORDER], list(_references(row))
        try:
            refuse_taken(connection, order, references)
        except ReferenceTaken as error:
            unfit.append((row[0], f"{error.reference.name} belongs to {error.order}"))
            continue
        known = order_records(connection, order)
        now = after_all(known, now=clock.now())
        fresh = named(known, order, references, now=now, author=author)
        keep_records(connection, fresh)
    return unfit


def _references(row: Sequence[Any]) -> Iterator[Reference]:
    source, session, payment = row[-len(REFERENCES) :]
    if session is not None:
        yield Reference(source=source, session=session)
    if payment is not None:
        yield Reference(source=source, payment=payment)


def _triple(each: Reference) -> tuple[str, str | None, str | None]:
    return each.source, each.session, each.payment
