"""The report of a period, as one immutable value that every output format prints.

Tables grow only with currencies, causes and months. Lists end at a limit, and state how many lines
are left out.

opening  opened before the start, without a final outcome at the start
new      opened in the period
closed   opening or new orders that got their final outcome in the period
closing  opening or new orders without a final outcome at the end
other    closed before or opened after the period, with money dated in the period

The basis decides which date of a movement counts: `captured` the provider's, `received` when the
movement first became known, `settled` the statement's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from reconcile.instants import Duration, Instant
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.vocabulary import FINDINGS, REASONS, FindingCode
from reconcile.matching.balances import DifferenceState
from reconcile.matching.causes import BreakCause
from reconcile.matching.exchange import implied_rate
from reconcile.matching.wallets import WalletSums
from reconcile.money import Money


def reason_words(code: str) -> str:
    """Return the summary of a reason, in the plural.

    An unknown code is returned with its underscores replaced by blanks.
    """
    known = REASONS.get(code)
    return code.replace("_", " ") if known is None else known.summary


def finding_words(code: str) -> str:
    """Return the summary of a finding, in the plural. An unknown code is returned unchanged."""
    known = FINDINGS.get(cast(FindingCode, code))
    return code if known is None else known.summary


Basis = Literal["captured", "received", "settled"]

FlowStep = Literal["opening", "new", "closed", "closing", "other"]
STEPS: Final[tuple[FlowStep, ...]] = get_args(FlowStep)

Flow = Literal[
    "captured",
    "refunded",
    "lost_in_disputes",
    "fees",
    "net",
    "settled",
    "not_settled",
    "differs",
    "other_currency",
    "not_notified",
    "no_movement",
    "in_bank",
    "exchanged",
    "bank_differs",
    "not_in_bank",
    "no_payout",
    "in_wallet",
]
FLOWS: Final[tuple[Flow, ...]] = get_args(Flow)
"""Rows of the report's money table.

The first five rows come from ledgers and fees. The next rows lead from net to the statement:

    net = settled + not_settled + differs + other_currency − not_notified − no_movement

With bank files, the last six rows lead from the statement to the bank:

    settled = in_bank + exchanged + bank_differs + not_in_bank + no_payout + in_wallet

other_currency  money settled in another currency, minus money that came from another currency
not_notified    statement lines for which no webhook came, as in breaks `settled_never_notified`
no_movement     statement lines of disputes, doubtful payments, matches by hand, and carried money
exchanged       payouts that the bank booked in another currency
bank_differs    amount by which the bank booked less than was paid out
in_wallet       money settled into a balance at the provider, and withdrawn later
"""

BANK_FLOWS: Final[frozenset[Flow]] = frozenset(
    {"in_bank", "exchanged", "bank_differs", "not_in_bank", "no_payout", "in_wallet"}
)

NoOrder = Literal["no_order"]

OutcomeGroup = Literal["success", "failure", "timeout", "open"]
GROUPS: Final[tuple[OutcomeGroup, ...]] = get_args(OutcomeGroup)

Age = Literal["up_to_1_day", "up_to_7_days", "up_to_30_days", "up_to_90_days", "older"]
AGES: Final[tuple[Age, ...]] = get_args(Age)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Scope of a report, such as its period. `start` is in the period, `end` is not.

    Only evidence known at `as_of` is used.

    zone         name of the time zone of the period's days and months
    merchant     name of the merchant; may be empty
    closed_by    who closed the month; empty for an open period
    closed_at    when the month was closed; None for an open period
    approved_by  who approved the closing; empty if one person closed the month
    proposed_at  when the closing was proposed; None if one person closed the month
    version      version of the closing; more than 1 if the month was reopened
    """

    start: Instant
    end: Instant
    as_of: Instant
    basis: Basis
    environment: str
    zone: str = "UTC"
    merchant: str = ""
    closed_by: str = ""
    closed_at: Instant | None = None
    approved_by: str = ""
    proposed_at: Instant | None = None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Comparison of two numbers that are computed in different ways and must be equal.

    The numbers are minor units, or counts if `currency` is None.

    left, right  descriptions of the two numbers
    """

    name: str
    currency: str | None
    left: str
    left_value: int
    right: str
    right_value: int

    @property
    def holds(self) -> bool:
        return self.left_value == self.right_value


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """Number and total price of the orders of one currency that take one step in the period."""

    currency: str | None
    step: FlowStep
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRow:
    """Orders of the period with one outcome in one currency. Every order is in one row.

    bucket                    the outcome; `no_order` for money that only a statement shows
    sum                       prices of these orders; 0 if unknown
    captured, refunded, lost  money of this currency dated in the period, never negative
    """

    currency: str | None
    bucket: Outcome | NoOrder
    count: int
    sum: int
    captured: int
    refunded: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingRow:
    """Number and sums of the rows that matching put into one bucket.

    side      kind of the rows, such as `book` or `bank`
    family    `matched`, `waiting` or `break`
    fee, net  sums of fee and net of statement lines; 0 on other sides
    """

    side: str
    currency: str
    family: str
    bucket: str
    count: int
    sum: int
    fee: int
    net: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyRow:
    """Number and sum of one flow of money, such as `captured` or `settled`.

    count  number of movements or statement lines
    """

    currency: str
    flow: Flow
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """Number of orders of the period with one outcome and one deciding reason.

    further_attempts  orders with more than one attempt
    redelivered       orders with an event delivered more than once
    late              orders with an event that arrived late
    out_of_order      orders with events that arrived out of order
    """

    outcome: Outcome
    group: OutcomeGroup
    reason: str
    orders: int
    further_attempts: int
    redelivered: int
    late: int
    out_of_order: int

    @property
    def sentence(self) -> str:
        return reason_words(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """Number of orders of the period that have a finding."""

    finding: str
    severity: str
    orders: int

    @property
    def sentence(self) -> str:
        return finding_words(self.finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """Number of orders opened in one interval of the period, for each group of outcomes."""

    start: Instant
    success: int
    failure: int
    timeout: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRow:
    """Number of movements of money that became known no later than `up_to` after their date.

    In the last row, `up_to` is None, and the row counts all later movements.
    """

    up_to: Duration | None
    movements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAgeRow:
    """Number and money of the breaks of one cause, age, state and currency.

    at_risk  money that may be lost; 0 if accepted
    """

    cause: BreakCause
    age: Age
    state: str
    currency: str
    count: int
    sum: int
    at_risk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakLine:
    """One break, as a line of the report."""

    identity: str
    cause: BreakCause
    state: str
    order: str | None
    payment: str | None
    currency: str
    sum: int
    since: Instant
    age_days: int
    sentence: str
    next_step: str
    cites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRow:
    """Number and sum of movements dated in an earlier month that became known in the period."""

    month: str
    kind: str
    currency: str
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateLine:
    """One movement of money that became known late. Returned money is negative."""

    order: str
    kind: str
    source: str
    payment: str
    currency: str
    sum: int
    at: Instant
    received_at: Instant
    cites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """Number of earlier orders whose outcome was changed by a revision published in the period.

    The orders were opened before the period.
    """

    before: str
    after: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """One order whose outcome was changed by a revision published in the period.

    because  sentences of the revision, with cited ids
    """

    order: str
    at: Instant
    before: str
    after: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeRow:
    """Sums of the statement lines of one kind in one currency. Refunds and disputes are
    negative."""

    currency: str
    kind: str
    count: int
    gross: int
    fee: int
    net: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledInRow:
    """Sum of the captures in one currency, and of what statements settle for them.

    settled_in  currency of the statements; None if not settled yet
    settled     gross amount in that currency
    """

    captured_in: str
    settled_in: str | None
    count: int
    captured: int
    settled: int | None

    @property
    def rate(self) -> str | None:
        """Return the exchange rate for one unit of the captured currency; None if the captures were
        not settled in another currency."""
        if self.settled_in in (None, self.captured_in) or not self.captured:
            return None
        assert self.settled_in is not None
        assert self.settled is not None
        return implied_rate(
            Money(minor=self.captured, currency=self.captured_in),
            Money(minor=self.settled, currency=self.settled_in),
        )


OwnFlow = Flow | Literal["residual"]
RateFrom = Literal["file", "statement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRow:
    """Flow of money in the merchant's own currency, converted at the rate of each day.

    of   currency that was converted; None for all currencies
    sum  amount of the flow; `residual` is the part of `net` that rounding and other days' rates
         leave unexplained
    """

    currency: str
    of: str | None
    flow: OwnFlow
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """Exchange rate used for the totals in the merchant's own currency.

    day   the day in the merchant's file; None for a rate derived from statements
    rate  units of the own currency for one unit of the other
    """

    of: str
    day: str | None
    rate: str
    origin: RateFrom


SuspenseLine = Literal[
    "opening",
    "received",
    "assigned",
    "refunded",
    "other_business",
    "closing",
    "days_0_to_30",
    "days_31_to_90",
    "days_over_90",
]
SUSPENSE_LINES: Final[tuple[SuspenseLine, ...]] = get_args(SuspenseLine)
"""Rows of the table of money without an order.

The first six rows agree:

    opening + received − assigned − refunded − other_business = closing

The last three rows divide the closing amount by the age of its payments.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspenseRow:
    """Number and sum of one kind of change of unallocated money, or of payments of one age.

    line   kind of change, or age of the money
    count  number of changes, or of payments that hold money
    """

    currency: str
    line: SuspenseLine
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """One span of the period that files of a source, bank account or order book cover.

    wallet       sub-account of the source; None for the whole source
    since        start of the span; None if nothing is covered
    until        end of the span; None if nothing is covered
    whole        whether the files cover the whole period
    payments     captured payments of the source in the period; 0 for others
    declared_by  person who declared a part of the span; empty if files state all of it
    """

    kind: Literal["statement", "bank", "book"]
    name: str
    wallet: str | None
    since: Instant | None
    until: Instant | None
    whole: bool
    payments: int
    declared_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceRow:
    """Bank statement that two people accepted although its entries do not explain its balances.

    opened, closed  the days of the two balances
    difference      amount by which the balances and the entries differ
    state           whether the next statement confirms the stated closing balance
    next_opening    opening balance of the next statement, if known
    """

    account: str
    currency: str
    opened: str
    closed: str
    opening: int
    closing: int
    difference: int
    state: DifferenceState
    next_opening: int | None
    accepted_by: str
    second: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledRow:
    """Number and sum of the period's captured payments whose statement line is overdue.

    Each row has one currency and age. Payments whose missing line a person accepted are left out.
    """

    currency: str
    age: Age
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRow:
    """Condition that was not met when two people closed the month, with their reason for closing
    the month anyway.

    line  name of the condition, such as `coverage:shop`
    """

    line: str
    sentence: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentRow:
    """One figure of a closed month's report that has changed since.

    figure        table, row and, if there are several, the sum: `control/succeeded/captured`
    sum_original  sum in the report at closing
    sum_told      sum of the changes that earlier reports stated
    sum_change    change that this report states
    closing       first hex digits of the closing's digest
    """

    period: str
    figure: str
    currency: str | None
    count_change: int
    sum_original: int
    sum_told: int
    sum_change: int
    closing: str

    @property
    def sum_now(self) -> int:
        """Return the present value of the figure."""
        return self.sum_original + self.sum_told + self.sum_change


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlisted:
    """Number of lines that a list of the report leaves out. `bound` is the limit of the list."""

    table: str
    listed: int
    bound: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Remark that concerns the whole report."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodReport:
    """The whole report of a period. All rows are sorted.

    `unlisted` states how many lines each list (`…_lines`) leaves out.
    """

    scope: Scope
    ties: tuple[Tie, ...]
    flow: tuple[FlowRow, ...]
    control: tuple[ControlRow, ...]
    matching: tuple[MatchingRow, ...]
    money: tuple[MoneyRow, ...]
    outcomes: tuple[OutcomeRow, ...]
    findings: tuple[FindingRow, ...]
    times: tuple[TimeRow, ...]
    delays: tuple[DelayRow, ...]
    breaks: tuple[BreakAgeRow, ...]
    late: tuple[LateRow, ...]
    changes: tuple[ChangeRow, ...]
    settled_in: tuple[SettledInRow, ...]
    fees: tuple[FeeRow, ...]
    suspense: tuple[SuspenseRow, ...]
    coverage: tuple[CoverageRow, ...]
    unsettled: tuple[UnsettledRow, ...]
    own: tuple[OwnRow, ...]
    rates: tuple[RateRow, ...]
    break_lines: tuple[BreakLine, ...]
    late_lines: tuple[LateLine, ...]
    change_lines: tuple[ChangeLine, ...]
    unlisted: tuple[Unlisted, ...]
    notes: tuple[Note, ...]
    wallets: tuple[WalletSums, ...] = ()
    adjustments: tuple[AdjustmentRow, ...] = ()
    balances: tuple[BalanceRow, ...] = ()
    exceptions: tuple[ExceptionRow, ...] = ()

    @property
    def ties_hold(self) -> bool:
        return all(tie.holds for tie in self.ties)


def ties(
    *,
    flow: Sequence[FlowRow],
    control: Sequence[ControlRow],
    money: Sequence[MoneyRow],
) -> tuple[Tie, ...]:
    """Return all comparisons that must hold if the report's tables agree, sorted by name, then by
    currency."""
    return (*_ties_of_orders(flow, control), *_ties_of_money(control, money))


def suspense_ties(rows: Sequence[SuspenseRow]) -> Iterator[Tie]:
    """Yield comparisons of two sums of unallocated money: the sum of all changes, and the sum of
    all ages."""
    for currency in dict.fromkeys(row.currency for row in rows):
        own = {row.line: row.sum for row in rows if row.currency == currency}
        gone = own["assigned"] + own["refunded"] + own["other_business"]
        yield Tie(
            name="captured without an order",
            currency=currency,
            left="at the start + received − assigned − given back − other business",
            left_value=own["opening"] + own["received"] - gone,
            right="at the end",
            right_value=own["closing"],
        )
        yield Tie(
            name="captured without an order, by age",
            currency=currency,
            left="0 to 30 + 31 to 90 + over 90 days",
            left_value=own["days_0_to_30"] + own["days_31_to_90"] + own["days_over_90"],
            right="at the end",
            right_value=own["closing"],
        )


def _ties_of_orders(flow: Sequence[FlowRow], control: Sequence[ControlRow]) -> Iterator[Tie]:
    for currency in dict.fromkeys(row.currency for row in flow):
        own = {row.step: row for row in flow if row.currency == currency}
        begun, closed = (own["opening"], own["new"]), own["closed"]
        yield Tie(
            name=f"orders in {currency}" if currency else "orders of unknown price",
            currency=None,
            left="opening + new − closed",
            left_value=sum(row.count for row in begun) - closed.count,
            right="closing",
            right_value=own["closing"].count,
        )
        if currency is not None:
            yield Tie(
                name="price of orders",
                currency=currency,
                left="opening + new − closed",
                left_value=sum(row.sum for row in begun) - closed.sum,
                right="closing",
                right_value=own["closing"].sum,
            )
    entered = [row for row in flow if row.step in ("opening", "new", "other")]
    yield Tie(
        name="orders of the period",
        currency=None,
        left="all outcomes",
        left_value=sum(row.count for row in control),
        right="opening + new + other",
        right_value=sum(row.count for row in entered),
    )


def _ties_of_money(control: Sequence[ControlRow], money: Sequence[MoneyRow]) -> Iterator[Tie]:
    for row in money:
        if row.flow in ("captured", "refunded", "lost_in_disputes"):
            name = "lost" if row.flow == "lost_in_disputes" else row.flow
            alike = [each for each in control if each.currency == row.currency]
            yield Tie(
                name=row.flow.replace("_", " "),
                currency=row.currency,
                left="all outcomes",
                left_value=sum(getattr(each, name) for each in alike),
                right="all movements",
                right_value=row.sum,
            )
    sums: dict[str, dict[Flow, int]] = {}
    for row in money:
        sums.setdefault(row.currency, {})[row.flow] = row.sum
    for currency, own in sums.items():
        yield Tie(
            name="net",
            currency=currency,
            left="captured − refunded − lost in disputes − fees",
            left_value=own["captured"] - own["refunded"] - own["lost_in_disputes"] - own["fees"],
            right="settled + not settled + differs "
            + ("+ other currency " if "other_currency" in own else "")
            + "− not notified − no movement",
            right_value=own["settled"]
            + own["not_settled"]
            + own["differs"]
            + own.get("other_currency", 0)
            - own["not_notified"]
            - own["no_movement"],
        )
    for currency, own in sums.items():
        if "in_bank" in own:
            yield Tie(
                name="settled and the bank",
                currency=currency,
                left="settled",
                left_value=own["settled"],
                right="in bank + exchanged + bank differs + not in bank + no payout + in wallets",
                right_value=sum(own[flow] for flow in BANK_FLOWS),
            )
