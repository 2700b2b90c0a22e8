"""Types for lines of the merchant's books and provider's files."""

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
    """One line of an order book."""

    line_id: str
    """Id of this version of the line."""
    reference: str
    """The order, invoice, member or entry, as the merchant writes it."""
    kind: BookKind
    money: Money
    """Amount with the file's sign."""
    placed_at: Instant | None = None
    status: BookStatus | None = None
    group: str | None = None
    """Name shared by lines that are paid together."""
    refunded: int | None = None
    """Refunded minor units, never negative."""
    refunded_at: Instant | None = None
    method: str | None = None
    """Payment method, as the shop writes it. Several are joined by `+`."""


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
    """Time when the money is paid out, according to the provider."""
    payout: str | None = None
    """The transfer to the bank that the line is part of."""
    source: str = ""
    """Source whose statement it is. Empty if unknown."""
    wallet: str | None = None
    """Account whose balance the line changes, if stated."""
    refund: str | None = None
    """Reference of the refund itself."""
    details: str | None = None
    """Canonical JSON object of details for fees, if any."""

    @property
    def method(self) -> str | None:
        """Return the payment method as the file names it."""
        if self.details is None:
            return None
        found = json.loads(self.details).get("method")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLine:
    """One booking on the merchant's bank account."""

    line_id: str
    account: str
    currency: str
    minor: int
    """Amount in minor units. Credit positive, debit negative."""
    booked_at: Instant
    reference: str | None = None
    """Reference of the transfer, by the payer or the bank."""
    counterparty: str | None = None
    """Name of the payer."""
    text: str | None = None
    """Remittance information, which OFX files can have in `counterparty`."""


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
    """Payment methods whose money comes through no provider."""

    outside: tuple[str, ...] = OUTSIDE_METHODS
    """Methods by which the customer pays the shop directly."""
    bank: tuple[str, ...] = BANK_METHODS
    """Methods by which the customer pays into the shop's bank account."""
    tender: tuple[str, ...] = TENDER_METHODS
    """Methods that can pay a part of the price, such as gift cards."""

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
    """One transfer of a provider to the bank."""

    payout_id: str
    """Permanent id with the prefix `pyt_`."""
    source: str
    reference: str
    currency: str
    minor: int
    """Sum of net amounts. Negative if the provider takes money back."""
    paid_at: Instant | None
    """Latest date of the lines, if any."""
    lines: int = 1
    withdrawn: bool = False
    """True if the lines are withdrawals from a wallet. A failed one has `minor` zero."""
    sent: int = 0
    """Amount that a withdrawal sent, including failed withdrawals."""
