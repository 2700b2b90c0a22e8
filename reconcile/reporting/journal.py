"""Journal of a period: the money of payments as double-entry transactions.

Every transaction has one currency, and its postings add up to zero. Sales are normally not in this
journal, because the merchant's own books post sales against the receivable.

For each kind of transaction, the list names the accounts that are debited (+) and credited (-), and
the date:

captured
    clearing +, receivable -, on the provider's date; money on top of the price has own accounts
refunded
    receivable +, clearing -, on the provider's date
dispute lost
    disputes +, clearing -, on the provider's date
settled
    bank + net, fees + fee, clearing - gross, on the statement's date; with bank files, in_transit
    instead of bank
in the bank
    bank +, in_transit -, on the bank's date
captured without an order
    clearing +, unallocated -, on the provider's date
assigned
    unallocated +, receivable -, on the day of the record; reversed if the assignment is withdrawn
other business
    unallocated +, the chosen account -, on the day of the record
settled into a wallet
    wallet + net, fees + fee, clearing - gross, on the statement's date
opening balance of a wallet
    wallet +, openings -, on the date of the first line that states a balance
withdrawn
    in_transit +, wallet -, on the statement's date; reversed if failed, or from the bank
transferred
    transfers +, wallet -, on the date of each side
held
    wallet +, wallet -, from the available part to the held part; reversed if released
converted
    exchange +, wallet -, on the date of each side, in its own currency
disbursed
    other_business +, wallet -, on the statement's date
settled for another shop
    bank + net, fees + fee, other_shops - gross, on the statement's date
exchanged, on the bank's date
    exchange +, in_transit -, in the payout's currency
    bank +, exchange -, in the bank's currency
    exchange +, exchange_gains -, for the excess over the expected rate
settled in another currency, on the statement's date
    exchange +, clearing -, in the payment's currency
    clearing +, exchange -, in the statement's currency
    clearing +, exchange_gains -, for the excess over the expected rate
written off
    write_offs +, clearing -, when a person accepted the break; in_transit for a payout or bank
    line, wallet for a balance
taken back
    clearing +, write_offs -, when later evidence closes the break, or changes its money

With `revenue_at="fulfilment"`, `deposits` replaces the receivable and disputes until the order is
fulfilled:

fulfilled
    deposits +, sales -, on the day of fulfilment, for everything captured so far
captured
    clearing +, sales -, from that day on
refunded
    refunds +, clearing -, from that day on

If a tax rate is given, the tax contained in sales and refunds is posted to `taxes`. The balance of
clearing is money that is not settled yet; that of in_transit is money that is not in the bank yet.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

from reconcile.instants import Instant
from reconcile.ledger.events import PartKind
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.bank import Link
from reconcile.matching.books import OF_WALLET, TO_BANK, BankLine, StatementKind, StatementLine
from reconcile.matching.breaks import Break, Step, acceptances
from reconcile.matching.causes import CAUSES
from reconcile.matching.exchange import expected_of
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.returning import balance_of
from reconcile.matching.rules import ExpectedRate
from reconcile.matching.suspense import Suspended, SuspenseFlow
from reconcile.matching.wallets import HELD_BACK, WalletOpening
from reconcile.money import Money
from reconcile.reporting import inputs

Role = Literal[
    "clearing",
    "in_transit",
    "bank",
    "wallet",
    "transfers",
    "openings",
    "receivable",
    "deposits",
    "sales",
    "refunds",
    "disputes",
    "fees",
    "write_offs",
    "exchange",
    "exchange_gains",
    "unallocated",
    "other_business",
    "other_shops",
    "tips",
    "donations",
    "surcharges",
    "fees_from_customers",
    "shipping",
    "taxes",
    "rounding",
]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

EXCHANGED: Final = "exchanged"
"""Description of the two transactions of a currency exchange."""

_OTHER_SIDE: Final[dict[EntryKind, Role]] = {
    "captured": "receivable",
    "refunded": "receivable",
    "reversed": "receivable",
    "dispute_lost": "disputes",
}
_FULFILLED: Final[dict[EntryKind, Role]] = {
    "captured": "sales",
    "refunded": "refunds",
    "reversed": "refunds",
    "dispute_lost": "disputes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Revenue:
    """Rules for posting sales when the shop fulfills an order. Tax rates are parts per million of
    the net amount."""

    taxes: Mapping[Role, int]


_ON_TOP: Final[dict[PartKind, Role]] = {
    "tip": "tips",
    "donation": "donations",
    "surcharge": "surcharges",
    "fee": "fees_from_customers",
    "shipping": "shipping",
    "tax": "taxes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """One amount on one account, in minor units: debits are positive, credits negative."""

    role: Role
    minor: int
    account: str | None = None
    sub_account: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusts:
    """Closed month that an adjusting entry belongs to."""

    period: str
    original_date: str
    tax_date: str
    reverses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One movement of money in the journal. The transaction's postings add up to zero."""

    at: Instant
    what: str
    currency: str
    postings: tuple[Posting, ...]
    order: str | None = None
    payment: str | None = None
    source: str | None = None
    method: str | None = None
    cites: tuple[str, ...]
    adjusts: Adjusts | None = None


NOTHING_SUSPENDED: Final[Mapping[tuple[str, str], Suspended]] = MappingProxyType({})


def transactions(
    seen: inputs.OrderSeen,
    *,
    start: Instant,
    end: Instant,
    bank: inputs.BankView | None = None,
    rates: Sequence[ExpectedRate] = (),
    suspense: Mapping[tuple[str, str], Suspended] = NOTHING_SUSPENDED,
    revenue: Revenue | None = None,
    withdrawn: Set[inputs.Key] = frozenset(),
) -> Iterator[Transaction]:
    """Yield the order's transactions of a span of time."""
    order = None if seen.taking is None else seen.taking.order
    methods = {line.payment: line.method for line in seen.lines if line.details is not None}
    on_top = {} if seen.taking is None else _on_top(seen.taking)
    fulfilled = None if seen.taking is None else seen.taking.fulfilled_at
    deposits: Counter[str] = Counter()
    for n, taken in enumerate(() if seen.taking is None else seen.taking.taken):
        stood = suspense.get((taken.source, taken.payment))
        if stood is not None and stood.in_suspense(taken):
            continue
        above = on_top.get(n, {})
        other, role = -taken.minor - sum(above.values()), _OTHER_SIDE[taken.kind]
        if revenue is not None:
            if fulfilled is None or taken.at < fulfilled:
                role = "deposits"
                deposits[taken.currency] -= other
            else:
                role = _FULFILLED[taken.kind]
        if start <= taken.at < end:
            yield Transaction(
                at=taken.at,
                what=taken.kind.replace("_", " "),
                currency=taken.currency,
                postings=_balanced(
                    ("clearing", taken.minor), *_taxed(role, other, revenue), *above.items()
                ),
                order=order,
                payment=taken.payment,
                source=taken.source,
                method=methods.get(taken.payment),
                cites=taken.cites,
            )
    if revenue is not None and seen.taking is not None and fulfilled is not None:
        for day, what, money, cites in _earned(seen.taking, fulfilled, deposits, suspense):
            if start <= day < end and money.minor:
                sold = _taxed("sales", -money.minor, revenue)
                yield Transaction(
                    at=day,
                    what=what,
                    currency=money.currency,
                    postings=_balanced(("deposits", money.minor), *sold),
                    order=order,
                    cites=cites,
                )
    for each in inputs.settled(seen):
        line, at = each.line, each.line.settled_at
        if at is not None and start <= at < end and (each.gross or each.fee or each.net):
            other_shop = _of_other_shop(line, suspense)
            yield Transaction(
                at=at,
                what=("" if line.kind in OF_WALLET else "settled ") + line.kind.replace("_", " "),
                currency=line.currency,
                postings=_of_line(each, bank=bank, withdrawn=withdrawn, other_shop=other_shop),
                order=order or line.order,
                payment=line.payment,
                source=line.source or (each.fresh[0].source if each.fresh else None),
                method=line.method,
                cites=(line.line_id, *(cite for taken in each.fresh for cite in taken.cites)),
            )
    for parts, lines in (*inputs.settled_abroad(seen), *inputs.taken_abroad(seen)):
        found = _abroad(order, parts, lines, rates)
        yield from (step for step in found if start <= step.at < end)


def _taxed(role: Role, minor: int, revenue: Revenue | None) -> Iterator[tuple[Role, int]]:
    rate = 0 if revenue is None else revenue.taxes.get(role, 0)
    above, below = abs(minor) * rate, 1_000_000 + rate
    tax = (2 * above + below) // (2 * below) * (1 if minor >= 0 else -1)
    yield role, minor - tax
    yield "taxes", tax


def _earned(
    taking: LedgerLine,
    fulfilled: Instant,
    deposits: Mapping[str, int],
    suspense: Mapping[tuple[str, str], Suspended],
) -> Iterator[tuple[Instant, str, Money, tuple[str, ...]]]:
    known = dict.fromkeys([(taken.source, taken.payment) for taken in taking.taken])
    placed = [
        step
        for key in known
        if key in suspense
        for step in suspense[key].steps
        if step.flow == "assigned" and step.order == taking.order
    ]
    sums = Counter(deposits)
    for step in placed:
        if step.at < fulfilled:
            sums[step.currency] -= step.minor
        else:
            money = Money(minor=-step.minor, currency=step.currency)
            yield step.at, "assigned after fulfilment", money, step.cites
    for currency, minor in sorted(sums.items()):
        money = Money(minor=minor, currency=currency)
        yield fulfilled, "fulfilled", money, taking.fulfilled_by


def _of_line(
    each: inputs.SettledLine,
    *,
    bank: inputs.BankView | None,
    withdrawn: Set[inputs.Key],
    other_shop: bool,
) -> tuple[Posting, ...]:
    line, against = each.line, None
    transit = bank is not None and bank.on_its_way(line)
    into: Role = "in_transit" if transit else "bank"
    out_of: Role = "other_shops" if other_shop else "clearing"
    if line.kind in TO_BANK:
        into, out_of = "wallet", "in_transit" if transit or bank is None else "bank"
    elif inputs.stays_in_wallet(line, withdrawn):
        into = "wallet"
    if line.kind in ("hold", "release"):
        out_of, against = "wallet", HELD_BACK
    elif line.kind in _AGAINST:
        out_of = _AGAINST[line.kind]
    postings = (
        Posting(role=into, minor=each.net, sub_account=line.wallet if into == "wallet" else None),
        Posting(role="fees", minor=each.fee),
        Posting(role=out_of, minor=-each.gross, sub_account=against),
    )
    return tuple([posting for posting in postings if posting.minor])


_AGAINST: Final[dict[StatementKind, Role]] = {
    "transfer": "transfers",
    "conversion": "exchange",
    "disbursement": "other_business",
}


def _of_other_shop(line: StatementLine, suspense: Mapping[tuple[str, str], Suspended]) -> bool:
    if not suspense or line.payment is None:
        return False
    if line.source:
        found = suspense.get((line.source, line.payment))
        return found is not None and found.bucket == "other_shop"
    return any(
        each.payment == line.payment and each.bucket == "other_shop" for each in suspense.values()
    )


def _on_top(whole: LedgerLine) -> dict[int, dict[Role, int]]:
    found: dict[int, dict[Role, int]] = {}
    for currency in sorted({each.money.currency for each in whole.on_top}):
        parts = [each for each in whole.on_top if each.money.currency == currency]
        came = {_ON_TOP[each.kind]: each.money.minor for each in parts}
        own = [
            (n, taken.minor) for n, taken in enumerate(whole.taken) if taken.currency == currency
        ]
        price = sum([minor for _, minor in own if minor > 0]) - sum(came.values())
        beyond, gone = [], 0
        for n, minor in own:
            if minor < 0:
                beyond.append((n, max(0, gone - minor - max(gone, price))))
                gone -= minor
        brought = [(n, minor) for n, minor in reversed(own) if minor > 0]
        for steps, sign in ((brought, -1), (beyond, 1)):
            left = dict(came)
            for n, most in steps:
                for role in left:
                    moved = min(most, left[role])
                    most -= moved
                    left[role] -= moved
                    if moved:
                        found.setdefault(n, {})[role] = sign * moved
    return found


def _abroad(
    order: str | None,
    taken: Sequence[Taken],
    lines: Sequence[StatementLine],
    rates: Sequence[ExpectedRate],
) -> Iterator[Transaction]:
    came = Money(minor=sum([each.minor for each in taken]), currency=taken[0].currency)
    arrived = Money(minor=sum(map(balance_of, lines)), currency=lines[0].currency)
    due, within = expected_of(came, arrived, rates)
    steps: list[tuple[str, Money, Role, Role]] = [
        (EXCHANGED, came, "exchange", "clearing"),
        (EXCHANGED, due, "clearing", "exchange"),
    ]
    if within and arrived != due:
        more = Money(minor=arrived.minor - due.minor, currency=due.currency)
        steps.append(("exchanged at another rate", more, "clearing", "exchange_gains"))
    for what, money, into, out_of in steps:
        yield Transaction(
            at=max([line.settled_at for line in lines if line.settled_at is not None]),
            what=what,
            currency=money.currency,
            postings=_moving(into, out_of, money.minor),
            order=order,
            payment=taken[0].payment,
            source=taken[0].source,
            method=lines[0].method,
            cites=(
                *[line.line_id for line in lines],
                *dict.fromkeys([cite for each in taken for cite in each.cites]),
            ),
        )


def of_suspense(
    payment: Suspended, *, start: Instant, end: Instant, revenue: Revenue | None = None
) -> Iterator[Transaction]:
    """Yield a payment's transactions into and out of suspense."""
    placed: dict[SuspenseFlow, Role] = {**_PLACED}
    if revenue is not None:
        placed["assigned"] = "deposits"
    for step in payment.steps:
        if not start <= step.at < end:
            continue
        against, back = placed[step.flow], step.minor > 0
        account = step.account if step.flow == "other_business" else None
        yield Transaction(
            at=step.at,
            what=_WHAT[step.flow, back],
            currency=step.currency,
            postings=(
                Posting(role=against, minor=step.minor, account=account),
                Posting(role="unallocated", minor=-step.minor),
            ),
            order=step.order,
            payment=payment.payment,
            source=payment.source,
            cites=step.cites,
        )


_PLACED: Final[dict[SuspenseFlow, Role]] = {
    "received": "clearing",
    "refunded": "clearing",
    "assigned": "receivable",
    "other_business": "other_business",
}
_WHAT: Final[dict[tuple[SuspenseFlow, bool], str]] = {
    ("received", True): "captured without an order",
    ("refunded", False): "refunded without an order",
    ("assigned", False): "assigned to an order",
    ("assigned", True): "assignment withdrawn",
    ("other_business", False): "other business",
    ("other_business", True): "other business reopened",
}


def opened(
    openings: Iterable[WalletOpening], *, start: Instant, end: Instant
) -> Iterator[Transaction]:
    """Yield the opening balances of wallets."""
    for each in openings:
        if start <= each.at < end:
            yield Transaction(
                at=each.at,
                what="opening balance",
                currency=each.currency,
                postings=(
                    Posting(role="wallet", minor=each.minor, sub_account=each.wallet),
                    Posting(role="openings", minor=-each.minor),
                ),
                source=each.source or None,
                cites=(each.line_id,),
            )


def confirmed(bank: inputs.BankView, *, start: Instant, end: Instant) -> Iterator[Transaction]:
    """Yield transactions for booked or exchanged money."""
    found = [each for link in bank.links for each in _of_link(link)]
    found += [_in_bank(line, "in_transit", cites=()) for line in bank.unbooked if line.minor]
    yield from (each for each in found if start <= each.at < end)


def _of_link(link: Link) -> Iterator[Transaction]:
    payouts = tuple([each.payout_id for each in link.payouts])
    against: Role = "in_transit" if link.expected is None else "exchange"
    for line in link.lines:
        if line.minor:
            yield _in_bank(line, against, cites=payouts)
    if link.expected is None:
        return
    more = Money(minor=-link.missing.minor, currency=link.booked.currency)
    gains: Role = "in_transit" if link.bucket == "payout_amount_differs" else "exchange_gains"
    steps: list[tuple[str, Money, Role]] = [("exchanged", link.paid, "in_transit")]
    if more.minor:
        steps.append(("exchanged at another rate", more, gains))
    for what, money, out_of in steps:
        yield Transaction(
            at=inputs.dated(link),
            what=what,
            currency=money.currency,
            postings=_moving("exchange", out_of, money.minor),
            source=link.payouts[0].source or None,
            cites=(*payouts, *[each.line_id for each in link.lines]),
        )


def _in_bank(line: BankLine, against: Role, *, cites: tuple[str, ...]) -> Transaction:
    return Transaction(
        at=line.booked_at,
        what="confirmed by bank statement",
        currency=line.currency,
        postings=_moving("bank", against, line.minor),
        cites=(line.line_id, *cites),
    )


def _moving(into: Role, out_of: Role, minor: int) -> tuple[Posting, ...]:
    return Posting(role=into, minor=minor), Posting(role=out_of, minor=-minor)


def written_off(
    found: Break, steps: Iterable[Step], *, start: Instant, end: Instant
) -> Iterator[Transaction]:
    """Yield a break's write-offs and their reversals."""
    account: Role = "in_transit" if CAUSES[found.cause].about == "bank" else "clearing"
    source = wallet = None
    if CAUSES[found.cause].about == "wallet":
        account, facts = "wallet", dict(found.facts)
        source, wallet = (str(facts.get(name) or "") or None for name in ("source", "sub_account"))
    for step, before, after in acceptances(steps):
        was, now = (() if each is None else each.left for each in (before, after))
        if not start <= step.at < end or (before and after and was == now):
            continue
        changes = [("write-off taken back", money, 1) for money in was]
        for what, money, sign in (*changes, *[("written off", money, -1) for money in now]):
            minor = sign * money.minor
            yield Transaction(
                at=step.at,
                what=f"{what}: {found.cause}",
                currency=money.currency,
                postings=(
                    Posting(role=account, minor=minor, sub_account=wallet),
                    Posting(role="write_offs", minor=-minor),
                ),
                order=found.order,
                payment=found.payment,
                source=source,
                cites=(found.identity, *step.cites),
            )


def _balanced(*postings: tuple[Role, int]) -> tuple[Posting, ...]:
    left = sum(minor for _, minor in postings)
    given: Counter[Role] = Counter()
    for role, minor in postings:
        given[role] += minor
    given["clearing"] -= left
    return tuple(Posting(role=role, minor=minor) for role, minor in given.items() if minor)
