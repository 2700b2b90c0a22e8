"""What the merchant's books and the provider's files say, one value a line.

Leaves out: how a file writes it. A line is what was understood of a row, with the row's own id;
phones are not here, for no judgement about money needs one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money
from reconcile.values import frozen

BookKind = Literal["order", "invoice", "member", "entry"]
BOOK_KINDS: Final[tuple[BookKind, ...]] = get_args(BookKind)

BookStatus = Literal["paid", "unpaid", "canceled", "refunded"]
BOOK_STATUSES: Final[tuple[BookStatus, ...]] = get_args(BookStatus)

StatementKind = Literal["payment", "refund", "fee", "dispute", "carried"]
STATEMENT_KINDS: Final[tuple[StatementKind, ...]] = get_args(StatementKind)

_APART = re.compile(r"(?<=[0-9])[\s_-]+(?=[0-9])", re.ASCII)
_BLANKS = re.compile(r"[\s_-]+", re.ASCII)


@frozen
class BookLine:
    """One line of an order book.

    line_id    names this version of this line; a changed line has another
    reference  the order, invoice, member or entry, as the merchant writes it
    money      what it is for; its sign is the file's
    placed_at  when the merchant says it began; None where the file does not say
    status     what the merchant believes became of it; None where the file does not say
    group      lines that are paid together share one; None for a line alone
    refunded   minor units of `money`'s currency that the merchant says went back, never negative;
               None where the file does not say
    refunded_at  when it last went back; None where the file does not say
    """

    line_id: str
    reference: str
    kind: BookKind
    money: Money
    placed_at: Instant | None = None
    status: BookStatus | None = None
    group: str | None = None
    refunded: int | None = None
    refunded_at: Instant | None = None


@frozen
class StatementLine:
    """One line of a provider's settlement or transaction file. At least one reference is given; a
    fee, and what is carried, may name its payout alone.

    kind             carried: what the provider keeps back of a payout, or moves to a later one,
                     and on the other side what it adds to it; no movement of an order
    gross, fee, net  minor units of `currency`: what leaves the merchant is negative, a refund's
                     gross always; fee is positive where it costs; gross - fee = net holds
    settled_at       when the provider says the money was paid out, or will be
    payout           the transfer to the bank that it was part of
    source           whose statement it is; empty where that is not known
    """

    line_id: str
    payment: str | None
    order: str | None
    kind: StatementKind
    currency: str
    gross: int
    fee: int
    net: int
    settled_at: Instant | None = None
    payout: str | None = None
    source: str = ""


def match_key(reference: str) -> str:
    """The form in which references are compared: `ORD-1042`, `ord 1042` and `Ord_1042` are one.

    Case, blanks, dashes and underscores do not matter, but between two digits their place does:
    `12-3` and `1-23` stay apart, as do `0123` and `123`. Digits are never dropped.
    """
    return _BLANKS.sub("", _APART.sub("\x00", reference.strip().casefold())).replace("\x00", "-")


def match_keys(references: Sequence[str]) -> list[str]:
    """`match_key` of each. At once, for a million of them; none may hold the character U+001F."""
    together = "\x1f".join(reference.strip() for reference in references).casefold()
    apart = _APART.sub("\x00", together)
    return _BLANKS.sub("", apart).replace("\x00", "-").split("\x1f") if references else []
