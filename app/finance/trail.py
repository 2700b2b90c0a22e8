"""Follow money from an order to the bank, or back."""

from dataclasses import dataclass, field
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.masking import looks_like_a_phone
from app.finance import bank_store, book_line_store, break_acts, ledger_line_store, statement_store
from app.finance.bank_match import Booked, bank_words, booked_with, payout_document
from app.finance.read_lines import book_document, statement_document
from reconcile.instants import Instant, format_instant
from reconcile.matching.books import BookLine, Payout, StatementLine, match_key
from reconcile.matching.rows import subject_of
from reconcile.money import Money, to_json

MOST: Final = 200


@dataclass(slots=True, kw_only=True)
class Trail:
    """Connected orders, lines, payouts and bank lines."""

    orders: dict[str, None] = field(default_factory=dict)
    book: list[BookLine] = field(default_factory=list)
    statement: list[StatementLine] = field(default_factory=list)
    payouts: list[Payout] = field(default_factory=list)
    bank: list[Booked] = field(default_factory=list)


FOUND: Final = 20

SHORTEST_WORDS: Final = 3
"""Minimum number of characters in a text to search for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMoney:
    """Payouts and bank lines that a search found."""

    rows: list[dict[str, Any]]
    more: bool = False
    before: Instant | None = None


async def find_money(
    context: AppContext, words: str, *, before: Instant | None = None
) -> FoundMoney:
    """Find payouts and bank lines. `before` continues an earlier search."""
    sought, now = words.strip(), context.clock.now()
    if len(sought) < SHORTEST_WORDS or looks_like_a_phone(sought):
        return FoundMoney(rows=[])
    async with context.database.reading() as connection:
        paid = await statement_store.payouts_called(connection, sought, as_of=now)
        booked, rest = await bank_store.bank_lines_saying(
            connection, sought, as_of=now, limit=FOUND, before=before
        )
    rows: list[dict[str, Any]] = [
        *[
            {"name": bank_store.payout_id(source, sought, currency), "payout": sought,
             "source": source, "text": None, "booked_at": None, "amount": None}
            for source, currency in paid
        ],
        *[
            {"name": each.line_id, "payout": None, "source": each.account,
             "text": bank_words(each), "booked_at": format_instant(each.booked_at),
             "amount": to_json(Money(minor=each.minor, currency=each.currency))}
            for each in booked
        ],
    ]  # fmt: skip
    return FoundMoney(rows=rows, more=len(booked) == FOUND, before=rest)


async def trail_document(context: AppContext, name: str) -> dict[str, Any]:
    """Return everything connected with an order, payment, payout or line."""
    found = await _trail(context, name)
    breaks: list[break_acts.SeenBreak] = []
    for order in list(found.orders)[:MOST]:
        breaks += await break_acts.breaks_of(context, order)
    now = context.clock.now()
    return {
        "name": name,
        "orders": list(found.orders)[:MOST],
        "book": [book_document(each) for each in found.book[:MOST]],
        "statement": [statement_document(each) for each in found.statement[:MOST]],
        "payouts": [payout_document(each) for each in found.payouts[:MOST]],
        "bank": [each.whole_document() for each in found.bank[:MOST]],
        "breaks": [each.document(as_of=now) for each in breaks if each.life.state != "closed"],
        "more": max(len(found.statement), len(found.orders)) > MOST,
    }


async def _trail(context: AppContext, name: str) -> Trail:
    found, now = Trail(), context.clock.now()
    subjects = {subject_of(name)} if name.startswith("bnk_") else set[str]()
    async with context.database.reading() as connection:
        paid = await bank_store.payouts(connection, as_of=now)
        keys, payments, wanted = set[str](), set[str](), set[str]()
        if name.startswith("pyt_"):
            wanted = {name}
        elif name.startswith("stm_"):
            found.statement = await statement_store.statement_lines_named(
                connection, [subject_of(name)], as_of=now
            )
            if not found.statement:
                raise NotFoundError(f"there is no statement line {name[:40]!r}")
        elif not subjects:
            keys, payments = {match_key(name)}, {name}
            wanted = {each.payout_id for each in paid if each.reference == name}
    if subjects:
        found.bank = await booked_with(context, subjects=subjects)
        if not found.bank:
            raise NotFoundError(f"there is no bank line {name[:40]!r}")
        wanted = {payout.payout_id for each in found.bank for payout in each.payouts}
        found.book = [order for each in found.bank for order in each.orders]
        found.orders = dict.fromkeys([each.reference for each in found.book])
    async with context.database.reading() as connection:
        # From orders and payments down to their lines, or from payouts up.
        for row in await ledger_line_store.ledger_lines_of_keys(connection, keys, as_of=now):
            found.orders[row.order] = None
            taken = () if row.whole is None else row.whole.taken
            payments |= {each.payment for each in taken} | ({row.payment} if row.payment else set())
        if keys:
            found.book = [
                line for _, line in await book_line_store.book_lines_of(connection, keys, as_of=now)
            ]
            found.orders |= dict.fromkeys([each.reference for each in found.book])
            found.statement = await statement_store.statement_lines_of(
                connection, keys, payments=payments, as_of=now
            )
        of = {(each.source, each.payout, each.currency) for each in found.statement if each.payout}
        found.payouts = [
            each
            for each in paid
            if each.payout_id in wanted or (each.source, each.reference, each.currency) in of
        ]
        if wanted:
            chosen = [each for each in paid if each.payout_id in wanted]
            lines = await statement_store.statement_lines_of_payouts(
                connection, chosen, as_of=now, limit=MOST + 1
            )
            known = {each.line_id for each in found.statement}
            found.statement += [each for each in lines if each.line_id not in known]
        orders = await statement_store.orders_of_lines(connection, found.statement)
        found.orders |= dict.fromkeys(orders)
    if not (found.orders or found.statement or found.payouts or found.bank):
        raise NotFoundError(
            f"nothing has the reference {name[:40]!r}: give the reference of an order, a payment "
            "or a payout"
        )
    found.bank = await booked_with(
        context,
        payouts={each.payout_id for each in found.payouts},
        orders={subject_of(each.line_id) for each in found.book},
        subjects=subjects,
    )
    return found
