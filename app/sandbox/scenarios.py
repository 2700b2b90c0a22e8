"""Table of the sixteen scenarios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from reconcile.money import Money

AmountRule = Literal["order", "other", "third", "rest"]
"""Rule that derives an amount from the order's amount.

order  the order's amount
other  an amount that differs by 1 or 100 minor units
third  a third of the order's amount
rest   the order's amount less a third
"""

Copy = Literal["true", "other_amount", "tampered"]
"""Kind of delivered copy: true, wrong amount, or tampered."""

Start = Literal["opening", "expiry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """Event in a scenario."""

    kind: str
    at: float
    """Time of the event (`occurred_at`), in units after the opening."""
    sent: float | None = None
    """Time of the first delivery, in units after `sent_after`. None for `at`."""
    sent_after: Start = "opening"
    """`opening` or `expiry` of the session."""
    attempt: int = 1
    """Number of the customer's attempt to pay, from 1."""
    amount: AmountRule = "order"
    movement: str | None = None
    """Shared name of one refund's or dispute's steps. None for payments."""
    reason: str | None = None
    copies: tuple[Copy, ...] = ("true",)
    """Deliveries in order, each repeated until acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Scenario that the simulated provider can play."""

    ending: str
    """Last two digits of the phone numbers that select the scenario."""
    name: str
    story: str
    steps: tuple[ScenarioStep, ...]
    refusals: int = 0
    """Number of 503 answers before a session request is accepted."""
    drops_answer: bool = False


def _third(money: Money) -> Money:
    return Money(minor=max(1, money.minor // 3), currency=money.currency)


def _rest(money: Money) -> Money:
    return Money(minor=money.minor - _third(money).minor, currency=money.currency)


def _other(money: Money) -> Money:
    change = -100 if money.minor > 100 else -1 if money.minor > 1 else 100
    return Money(minor=money.minor + change, currency=money.currency)


AMOUNTS: Final[Mapping[AmountRule, Callable[[Money], Money]]] = MappingProxyType(
    {"order": lambda money: money, "other": _other, "third": _third, "rest": _rest}
)

PENDING: Final = ScenarioStep(kind="payment.pending", at=1)
SUCCEEDED: Final = ScenarioStep(kind="payment.succeeded", at=3)

_ROWS: Final = (
    Scenario(
        ending="01",
        name="success",
        story="The customer pays.",
        steps=(PENDING, SUCCEEDED),
    ),
    Scenario(
        ending="02",
        name="decline",
        story="The customer's account has too little money.",
        steps=(PENDING, ScenarioStep(kind="payment.declined", at=3, reason="insufficient_funds")),
    ),
    Scenario(
        ending="03",
        name="timeout",
        story="The customer begins to pay and never finishes.",
        steps=(PENDING,),
    ),
    Scenario(
        ending="04",
        name="duplicate webhook",
        story="The customer pays; every event is delivered three times.",
        steps=(
            ScenarioStep(kind="payment.pending", at=1, copies=("true",) * 3),
            ScenarioStep(kind="payment.succeeded", at=3, copies=("true",) * 3),
        ),
    ),
    Scenario(
        ending="05",
        name="delayed webhook",
        story="The customer pays in time; the news of it arrives after the deadline.",
        steps=(
            PENDING,
            ScenarioStep(kind="payment.succeeded", at=3, sent=5, sent_after="expiry"),
        ),
    ),
    Scenario(
        ending="06",
        name="out of order",
        story="The customer pays; the last event arrives before the first.",
        steps=(ScenarioStep(kind="payment.pending", at=1, sent=4), SUCCEEDED),
    ),
    Scenario(
        ending="07",
        name="declined, then paid",
        story="The customer is declined, tries again and pays.",
        steps=(
            PENDING,
            ScenarioStep(kind="payment.declined", at=2, reason="insufficient_funds"),
            ScenarioStep(kind="payment.pending", at=3, attempt=2),
            ScenarioStep(kind="payment.succeeded", at=4, attempt=2),
        ),
    ),
    Scenario(
        ending="08",
        name="paid twice",
        story="The customer pays, and pays again.",
        steps=(
            PENDING,
            SUCCEEDED,
            ScenarioStep(kind="payment.pending", at=4, attempt=2),
            ScenarioStep(kind="payment.succeeded", at=5, attempt=2),
        ),
    ),
    Scenario(
        ending="09",
        name="other amount",
        story="The customer pays another amount than the order's.",
        steps=(PENDING, ScenarioStep(kind="payment.succeeded", at=3, amount="other")),
    ),
    Scenario(
        ending="10",
        name="same id, other body",
        story="The customer pays; one event id arrives with two bodies.",
        steps=(
            PENDING,
            ScenarioStep(kind="payment.succeeded", at=3, copies=("true", "other_amount")),
        ),
    ),
    Scenario(
        ending="11",
        name="tampered",
        story="The customer pays; somebody changes one delivery on its way.",
        steps=(
            PENDING,
            ScenarioStep(kind="payment.succeeded", at=3, copies=("tampered", "true")),
        ),
    ),
    Scenario(
        ending="12",
        name="refund",
        story="The customer pays, gets a third back, then the rest.",
        steps=(
            PENDING,
            SUCCEEDED,
            ScenarioStep(kind="payment.refunded", at=4, amount="third", movement="re_1"),
            ScenarioStep(kind="payment.refunded", at=5, amount="rest", movement="re_2"),
        ),
    ),
    Scenario(
        ending="13",
        name="dispute",
        story="The customer pays and disputes it; the merchant wins.",
        steps=(
            PENDING,
            SUCCEEDED,
            ScenarioStep(kind="payment.disputed", at=4, movement="dp_1"),
            ScenarioStep(kind="payment.dispute_won", at=6, movement="dp_1"),
        ),
    ),
    Scenario(
        ending="14",
        name="reported timeout, then paid",
        story="The service gives up on the customer, who then pays.",
        steps=(
            PENDING,
            ScenarioStep(kind="payment.timed_out", at=3),
            ScenarioStep(kind="payment.succeeded", at=5),
        ),
    ),
    Scenario(
        ending="15",
        name="no answer",
        story="The customer pays; the merchant never saw the answer to its request.",
        steps=(PENDING, SUCCEEDED),
        drops_answer=True,
    ),
    Scenario(
        ending="16",
        name="service trouble",
        story="The service is down for two requests; then the customer pays.",
        steps=(PENDING, SUCCEEDED),
        refusals=2,
    ),
)

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({row.ending: row for row in _ROWS})


def scenario_for(phone: str | None) -> Scenario:
    """Return the scenario for a phone number, by default 01."""
    return SCENARIOS.get((phone or "")[-2:], SCENARIOS["01"])
