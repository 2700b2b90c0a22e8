"""What became of the money in a period: one frozen value that every format prints.

Leaves out: reading, adding up (`tally`) and wording (`vocabulary`, `words`). The value is bounded:
its tables grow with currencies, causes and months, its lists end at a stated number of lines and
say how many are not listed. Equal knowledge gives an equal value.

Words of a period, by the dates of the evidence:

opening  orders opened before its start that had no final outcome by then
new      orders opened in it
closed   orders of those two that got their final outcome in it (`settle.closed_at`)
closing  orders of those two that had none by its end

other    orders closed before it, or opened after it, that have money placed in it

An order is *of the period* if it is one of opening, new and other.
The basis decides which date places money: `captured` the provider's date of the movement,
`received` when we first knew of it, `settled` the statement's date. Orders open and close by the
dates of their evidence on every basis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, cast, get_args

from reconcile.instants import Duration, Instant
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.vocabulary import FINDINGS, REASONS, FindingCode
from reconcile.matching.breaks import BreakCause
from reconcile.values import frozen

MISTAKES_OF_FILES: Final[frozenset[BreakCause]] = frozenset({"off_by_minor_unit"})
"""Causes whose money is no loss but a factor in a file, a mapping or a profile: it is shown apart
from the money at risk."""

# --- the words of a report ------------------------------------------------------------------------


def reason_words(code: str) -> str:
    """What a reason's code means for many orders; the code itself where it is not known here."""
    known = REASONS.get(code)
    return code.replace("_", " ") if known is None else known.summary


def finding_words(code: str) -> str:
    """What a finding's code means for many orders; the code itself where it is not known here."""
    known = FINDINGS.get(cast(FindingCode, code))
    return code if known is None else known.summary


# --- what became of the money in a period ---------------------------------------------------------


Basis = Literal["captured", "received", "settled"]
BASES: Final[tuple[Basis, ...]] = get_args(Basis)

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
]
FLOWS: Final[tuple[Flow, ...]] = get_args(Flow)
"""The rows of the money table. The first five come from ledgers and fees, the rest lead from net to
the statement: net = settled + not_settled + differs + other_currency − not_notified − no_movement.
other_currency: what was settled in another one, less what was settled of another one; there only
where any was. not_notified: statement lines that no webhook has stated: those of the breaks
`settled_never_notified`. no_movement: lines that are no certain movement of money and are reported
elsewhere: of disputes that are open or were won, of payments in doubt, given to a line of the book
by a person, or of what is carried from one payout to another. The last five are there once files of
the bank are, and lead from the statement to it: settled = in_bank + exchanged + bank_differs +
not_in_bank + no_payout. exchanged: payouts that the bank booked in another currency. bank_differs:
what it booked less than was paid out."""

BANK_FLOWS: Final[frozenset[Flow]] = frozenset(
    {"in_bank", "exchanged", "bank_differs", "not_in_bank", "no_payout"}
)

NoOrder = Literal["no_order"]

OutcomeGroup = Literal["success", "failure", "timeout", "open"]
GROUPS: Final[tuple[OutcomeGroup, ...]] = get_args(OutcomeGroup)

Age = Literal["up_to_1_day", "up_to_7_days", "up_to_30_days", "up_to_90_days", "older"]
AGES: Final[tuple[Age, ...]] = get_args(Age)


@frozen
class Scope:
    """What a report is of. `start` is in the period, `end` is not; `as_of` bounds what is known.

    zone       the name of the zone in which its days and months are counted
    merchant   whose report it is; empty: unknown
    closed_by, closed_at   who closed the month, and when; of an open period empty and None
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


@frozen
class Tie:
    """Two ways to the same number: of lines where `currency` is None, else of minor units.

    left, right      what each side adds up, in words
    """

    name: str
    currency: str | None
    left: str
    left_value: int
    right: str
    right_value: int

    @property
    def holds(self) -> bool:
        """Whether both sides are the same."""
        return self.left_value == self.right_value


@frozen
class FlowRow:
    """Orders of one currency at one step, and what they cost; None: no price and no money known."""

    currency: str | None
    step: FlowStep
    count: int
    sum: int


@frozen
class ControlRow:
    """Orders of the period with one outcome in one currency; every one is in one row. The bucket
    `no_order` has no orders: only money that a statement states and no ledger does.

    sum       what these orders cost; 0 where that is not known
    captured, refunded, lost   money of this currency placed in the period that moved on orders of
              this outcome; what went back is positive here
    """

    currency: str | None
    bucket: Outcome | NoOrder
    count: int
    sum: int
    captured: int
    refunded: int
    lost: int


@frozen
class MatchingRow:
    """Rows of one side of the matching (`matching.control`) in one bucket; every row is in one.

    side    book, takings, settlement or statement
    family  matched, waiting or break
    fee, net  of statement lines; 0 on the other sides
    """

    side: str
    currency: str
    family: str
    bucket: str
    count: int
    sum: int
    fee: int
    net: int


@frozen
class MoneyRow:
    """One row of the way from captured to settled money. `count` is movements or lines."""

    currency: str
    flow: Flow
    count: int
    sum: int


@frozen
class OutcomeRow:
    """Orders of the period by outcome and deciding reason.

    further_attempts  of them, took more than one attempt
    redelivered       of them, had an event delivered more than once
    late              of them, had an event that was long on its way
    out_of_order      of them, had events that came in another order than they occurred
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
        """The reason, for people."""
        return reason_words(self.reason)


@frozen
class FindingRow:
    """How many orders of the period have a finding."""

    finding: str
    severity: str
    orders: int

    @property
    def sentence(self) -> str:
        """The finding, for people."""
        return finding_words(self.finding)


@frozen
class TimeRow:
    """Orders opened in one stretch of the period, by how they ended."""

    start: Instant
    success: int
    failure: int
    timeout: int
    open: int


@frozen
class DelayRow:
    """Movements that became known within `up_to` of their date; None: later than all others."""

    up_to: Duration | None
    movements: int


@frozen
class BreakAgeRow:
    """Breaks of one cause, age and state in one currency, with their money.

    at_risk  what of the money may be lost (`breaks.at_risk`), nothing of what was accepted
    """

    cause: BreakCause
    age: Age
    state: str
    currency: str
    count: int
    sum: int
    at_risk: int


@frozen
class BreakLine:
    """One break. `state` is what people made of it so far."""

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


@frozen
class LateRow:
    """Movements dated in an earlier month that became known in the period."""

    month: str
    kind: str
    currency: str
    count: int
    sum: int


@frozen
class LateLine:
    """One such movement; what went back is negative."""

    order: str
    kind: str
    source: str
    payment: str
    currency: str
    sum: int
    at: Instant
    received_at: Instant
    cites: tuple[str, ...]


@frozen
class ChangeRow:
    """Revisions published in the period, of orders opened before it, that changed the outcome."""

    before: str
    after: str
    count: int


@frozen
class ChangeLine:
    """One such revision. `because` is its sentences, with the ids they rest on."""

    order: str
    at: Instant
    before: str
    after: str
    because: str


@frozen
class FeeRow:
    """Statement lines of one kind in one currency; refunds and disputes are negative."""

    currency: str
    kind: str
    count: int
    gross: int
    fee: int
    net: int


@frozen
class AdjustmentRow:
    """What has been learned of a closed month since: one figure of its report that is another now.

    figure    which one: the table of its report, the row in it and, where a row has several sums,
              what of the row: `control/succeeded/captured`
    original  as the closed report says it
    sum_told  what earlier reports have already added to it
    change    what this one adds; `sum_now` is the sum of the three
    closing   the beginning of the digest of the closing that the figure stands in, in hex
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
        """What a report of that month says now."""
        return self.sum_original + self.sum_told + self.sum_change


@frozen
class Unlisted:
    """How many lines of a list are not in it, for it ends at `bound`."""

    table: str
    listed: int
    bound: int
    left_out: int


@frozen
class Note:
    """Something that a reader of the whole must know."""

    sentence: str


@frozen
class PeriodReport:
    """The whole report. Rows are sorted; the lists (`…_lines`) are bounded, and `unlisted` says
    for each how much it leaves out."""

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
    fees: tuple[FeeRow, ...]
    break_lines: tuple[BreakLine, ...]
    late_lines: tuple[LateLine, ...]
    change_lines: tuple[ChangeLine, ...]
    unlisted: tuple[Unlisted, ...]
    notes: tuple[Note, ...]
    adjustments: tuple[AdjustmentRow, ...] = ()

    @property
    def ties_hold(self) -> bool:
        """Whether every tie holds."""
        return all(tie.holds for tie in self.ties)


# --- what must be equal ---------------------------------------------------------------------------


def ties(
    *,
    flow: Sequence[FlowRow],
    control: Sequence[ControlRow],
    money: Sequence[MoneyRow],
) -> tuple[Tie, ...]:
    """Every equation of the period, by name, then by currency."""
    return (
        *_orders(flow),
        *_buckets(flow, control),
        *_placed(control, money),
        *_net(money),
        *_to_bank(money),
    )


def _orders(flow: Sequence[FlowRow]) -> Iterator[Tie]:
    """Opening + new - closed = closing, in orders and in what they cost."""
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


def _buckets(flow: Sequence[FlowRow], control: Sequence[ControlRow]) -> Iterator[Tie]:
    """Every order of the period stands in one bucket."""
    entered = [row for row in flow if row.step in ("opening", "new", "other")]
    yield Tie(
        name="orders of the period",
        currency=None,
        left="all outcomes",
        left_value=sum(row.count for row in control),
        right="opening + new + other",
        right_value=sum(row.count for row in entered),
    )


def _placed(control: Sequence[ControlRow], money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """Money by outcome is all the money there is."""
    for row in money:
        if row.flow in ("captured", "refunded", "lost_in_disputes"):
            name = "lost" if row.flow == "lost_in_disputes" else row.flow
            own = [each for each in control if each.currency == row.currency]
            yield Tie(
                name=row.flow.replace("_", " "),
                currency=row.currency,
                left="all outcomes",
                left_value=sum(getattr(each, name) for each in own),
                right="all movements",
                right_value=row.sum,
            )


def _net(money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """Captured - refunded - lost - fees = net, and net is what the statement leads to."""
    for currency in dict.fromkeys(row.currency for row in money):
        own = {row.flow: row.sum for row in money if row.currency == currency}
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


def _to_bank(money: Sequence[MoneyRow]) -> Iterator[Tie]:
    """What was settled is in the bank, or it is known why not."""
    for currency in dict.fromkeys(row.currency for row in money):
        own = {row.flow: row.sum for row in money if row.currency == currency}
        if "in_bank" in own:
            yield Tie(
                name="settled and the bank",
                currency=currency,
                left="settled",
                left_value=own["settled"],
                right="in bank + exchanged + bank differs + not in bank + no payout",
                right_value=sum(own[flow] for flow in BANK_FLOWS),
            )
