"""Types for lines of the merchant's books and the provider's files.

Phone numbers are left out, because matching does not need them.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.money import Money

BookKind = Literal["order", "invoice", "member", "entry"]
BOOK_KINDS: Final[tuple[BookKind, ...]] = get_args(BookKind)

BookStatus = Literal["paid", "unpaid", "canceled", "refunded"]
BOOK_STATUSES: Final[tuple[BookStatus, ...]] = get_args(BookStatus)

StatementKind = Literal[
    "payment",
    "refund",
    "fee",
    "dispute",
    "carried",
    "returned",
    "withdrawal",
    "withdrawal_failed",
    "deposit",
    "transfer",
    "hold",
    "release",
    "conversion",
    "disbursement",
]
STATEMENT_KINDS: Final[tuple[StatementKind, ...]] = get_args(StatementKind)

OUTSIDE_METHODS: Final = (
    "cash", "cash on delivery", "cash on delivery (cod)", "cod", "cheque", "check",
    "check payments", "money order",
)  # fmt: skip
BANK_METHODS: Final = (
    "bank transfer", "direct bank transfer", "bank deposit", "bacs", "wire transfer",
)  # fmt: skip
TENDER_METHODS: Final = ("gift card", "store credit")
"""Payment methods that count as tenders by default, as Shopify and WooCommerce export them."""

_BETWEEN_METHODS: Final = re.compile(r"[+,;]")

TO_BANK: Final[frozenset[StatementKind]] = frozenset({"withdrawal", "withdrawal_failed", "deposit"})

OF_WALLET: Final[frozenset[StatementKind]] = TO_BANK | {
    "transfer",
    "hold",
    "release",
    "conversion",
    "disbursement",
}

_APART = re.compile(r"(?<=[0-9])[\s_-]+(?=[0-9])", re.ASCII)
_BLANKS = re.compile(r"[\s_-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookLine:
    """One line of an order book.

    line_id      id of this version of the line
    reference    the order, invoice, member or entry, as the merchant writes it
    money        amount with the file's sign
    group        name shared by lines that are paid together
    refunded     refunded minor units, never negative
    method       payment method, as the shop writes it; several are joined by `+`
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
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """One line of a provider's settlement or transaction file.

    kind             what the line is about; some kinds need an explanation:
                     carried: money that the provider holds back or moves to a later payout
                     returned: money back from a failed refund or a reversed chargeback
                     withdrawal, withdrawal_failed: money from the wallet to the bank, or back
                     deposit: money from the bank to the wallet
                     transfer: one side of a movement between two wallets of the merchant
                     hold, release: money moved to the held balance, or back
                     conversion: one side of an exchange between two currencies of the wallet
                     disbursement: money paid to, or returned by, somebody else
    gross, fee, net  minor units with gross - fee = net; outgoing money is negative
    settled_at       when the money is paid out, according to the provider
    payout           the transfer to the bank that the line is part of
    source           source whose statement it is; empty if unknown
    wallet           account whose balance the line changes, if stated
    refund           reference of the refund itself
    details          canonical JSON object of details for fees, if any
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
    wallet: str | None = None
    refund: str | None = None
    details: str | None = None

    @property
    def method(self) -> str | None:
        """Return the payment method as the file names it."""
        if self.details is None:
            return None
        found = json.loads(self.details).get("method")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLine:
    """One booking on the merchant's bank account.

    minor         amount in minor units; credit positive, debit negative
    reference     reference of the transfer, by the payer or the bank
    counterparty  name of the payer
    text          remittance information, which OFX files can have in `counterparty`
    """

    line_id: str
    account: str
    currency: str
    minor: int
    booked_at: Instant
    reference: str | None = None
    counterparty: str | None = None
    text: str | None = None


def match_key(reference: str) -> str:
    """Normalize a reference, so that `ORD-1042` and `ord 1042` become equal.

    Separators between two digits count: `12-3` and `1-23` differ.
    """
    return _BLANKS.sub("", _APART.sub("\x00", reference.strip().casefold())).replace("\x00", "-")


def match_keys(references: Sequence[str]) -> list[str]:
    """Return the match key of each reference. No reference may contain U+001F."""
    together = "\x1f".join(reference.strip() for reference in references).casefold()
    apart = _APART.sub("\x00", together)
    return _BLANKS.sub("", apart).replace("\x00", "-").split("\x1f") if references else []


MethodKind = Literal["outside", "bank", "tender", "provider"]

NOT_BY_PROVIDER: Final[frozenset[MethodKind]] = frozenset({"outside", "bank", "tender"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Payment methods whose money comes through no provider.

    outside  methods by which the customer pays the shop directly
    bank     methods by which the customer pays into the shop's bank account
    tender   methods that can pay a part of the price, such as gift cards
    """

    outside: tuple[str, ...] = OUTSIDE_METHODS
    bank: tuple[str, ...] = BANK_METHODS
    tender: tuple[str, ...] = TENDER_METHODS

    def parts(self, cell: str | None) -> frozenset[MethodKind]:
        """Return the kinds of the payment methods in a cell."""
        return _kinds(self, cell or "")


@lru_cache(maxsize=1_000)
def _kinds(methods: Methods, cell: str) -> frozenset[MethodKind]:
    named: dict[str, MethodKind] = dict.fromkeys(map(match_key, methods.outside), "outside")
    named |= dict.fromkeys(map(match_key, methods.bank), "bank")
    named |= dict.fromkeys(map(match_key, methods.tender), "tender")
    parts = [match_key(part) for part in _BETWEEN_METHODS.split(cell)]
    return frozenset([named.get(part, "provider") for part in parts if part])


@dataclass(frozen=True, slots=True, kw_only=True)
class Payout:
    """One transfer of a provider to the bank.

    payout_id  permanent id with the prefix `pyt_`
    minor      sum of net amounts; negative if the provider takes money back
    paid_at    latest date of the lines, if any
    withdrawn  whether the lines are withdrawals from a wallet; a failed one has `minor` zero
    sent       amount that a withdrawal sent, including failed withdrawals
    """

    payout_id: str
    source: str
    reference: str
    currency: str
    minor: int
    paid_at: Instant | None
    lines: int = 1
    withdrawn: bool = False
    sent: int = 0
