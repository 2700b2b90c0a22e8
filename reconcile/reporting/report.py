"""The report of a period, as one immutable value. The basis decides which date of a movement
counts:

captured  the provider's date
received  the date on which the movement first became known
settled   the statement's date
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
    """Return the summary of a reason, in the plural."""
    known = REASONS.get(code)
    return code.replace("_", " ") if known is None else known.summary


def finding_words(code: str) -> str:
    """Return the summary of a finding, in the plural."""
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
"""Rows of the report's money table. These equations hold:

net = settled + not_settled + differs + other_currency − not_notified − no_movement

settled = in_bank + exchanged + bank_differs + not_in_bank + no_payout + in_wallet
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
    """Scope of a report. `start` is in the period, `end` is not."""

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
    """Two numbers that must be equal although they are computed in different ways. Without a
    currency, the numbers are counts."""

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
    """Orders of one currency that take one step."""

    currency: str | None
    step: FlowStep
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRow:
    """Orders of the period with one outcome in one currency. Every order is in one row."""

    currency: str | None
    bucket: Outcome | NoOrder
    count: int
    sum: int
    captured: int
    refunded: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingRow:
    """Rows in one bucket of the matching."""

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
    """Number and sum of one flow of money, such as `captured`."""

    currency: str
    flow: Flow
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """Orders of the period with one outcome and reason."""

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
    """Orders opened in one interval, by group."""

    start: Instant
    success: int
    failure: int
    timeout: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRow:
    """Number of movements that became known at most `up_to` after their date. The row with None
    counts all later movements."""

    up_to: Duration | None
    movements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAgeRow:
    """Breaks of one cause, age, state and currency."""

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
    """Movements of an earlier month that became known late."""

    month: str
    kind: str
    currency: str
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateLine:
    """One movement of money that became known late."""

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
    """Earlier orders with an outcome changed in the period."""

    before: str
    after: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """One order whose outcome was changed in the period."""

    order: str
    at: Instant
    before: str
    after: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeRow:
    """Sums of the statement lines of one kind in one currency."""

    currency: str
    kind: str
    count: int
    gross: int
    fee: int
    net: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledInRow:
    """Captures in one currency, with their settled sums. `settled_in` is None for captures that are
    not settled yet."""

    captured_in: str
    settled_in: str | None
    count: int
    captured: int
    settled: int | None

    @property
    def rate(self) -> str | None:
        """Return the exchange rate for one captured unit."""
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
    """Flow of money, converted to the own currency."""

    currency: str
    of: str | None
    flow: OwnFlow
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """Exchange rate used for totals in the own currency."""

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
"""Rows of the table of money without an order. These rows agree:

opening + received − assigned − refunded − other_business = closing
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspenseRow:
    """Unallocated money of one kind of change or one age."""

    currency: str
    line: SuspenseLine
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRow:
    """One span of the period that a source's, bank's or order book's files cover. `since` and
    `until` are None if nothing is covered."""

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
    """Bank statement that was accepted despite a difference."""

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
    """Captured payments with an overdue statement line."""

    currency: str
    age: Age
    count: int
    sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionRow:
    """Unmet condition of closing, with the people's reason."""

    line: str
    sentence: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentRow:
    """Figure of a closed month that has changed since."""

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
    """Number of lines that a list leaves out."""

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
    """The whole report of a period."""

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
    """Return all comparisons that must hold between tables."""
    return (*_ties_of_orders(flow, control), *_ties_of_money(control, money))


def suspense_ties(rows: Sequence[SuspenseRow]) -> Iterator[Tie]:
    """Yield comparisons of unallocated money by change and age."""
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
