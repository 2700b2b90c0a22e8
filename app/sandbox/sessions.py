"""One checkout session: what was asked, when it opened, and every name that will be used in it.

All names are drawn at the opening from a generator seeded with the run's seed and the
idempotency key, so neither concurrency nor the clock changes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from app.sandbox.requests import SessionRequest
from app.sandbox.scenarios import AMOUNTS, AmountRule, Scenario, Step, scenario_of
from reconcile.instants import MILLISECOND, SECOND, Duration, Instant
from reconcile.money import Money

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An open session.

    unit       one scenario unit, in microseconds
    payments   attempt number to payment reference
    movements  the scenario's name of a refund or dispute to its reference
    events     one event id for each step of the scenario
    """

    reference: str
    asked: SessionRequest
    scenario: Scenario
    opened_at: Instant
    expires_at: Instant
    unit: Duration
    payments: dict[int, str]
    movements: dict[str, str]
    events: tuple[str, ...]

    def happens_at(self, step: Step) -> Instant:
        """When the step happens: whole milliseconds, as the provider writes them."""
        return self.opened_at + _milliseconds(step.at * self.unit)

    def sent_at(self, step: Step) -> Instant:
        """When the step's first delivery leaves."""
        if step.sent is None:
            return self.happens_at(step)
        start = self.expires_at if step.sent_after == "expiry" else self.opened_at
        return start + _milliseconds(step.sent * self.unit)

    def paid_by(self, step: Step) -> Money:
        """What the step's payment is about, whatever the step does to it."""
        return self.amount(step.amount if step.movement is None else self._capture_rule(step))

    def amount(self, rule: AmountRule) -> Money:
        """The rule applied to the order's money."""
        return AMOUNTS[rule](self.asked.money)

    def _capture_rule(self, step: Step) -> AmountRule:
        captures = (
            other.amount
            for other in self.scenario.steps
            if other.kind == "payment.succeeded" and other.attempt == step.attempt
        )
        return next(captures, "order")


def open_session(
    asked: SessionRequest,
    *,
    key: str,
    seed: int,
    now: Instant,
    unit_s: float,
    lifetime_units: float,
) -> Session:
    """Open a session at `now`; its scenario is the one its phone number chooses."""
    chance = random.Random(f"{seed}:{key}")  # noqa: S311  # a simulation that must repeat itself
    scenario = scenario_of(asked.phone)
    unit = round(unit_s * SECOND)
    opened_at = now // MILLISECOND * MILLISECOND
    return Session(
        reference=_name(chance, "cs_"),
        asked=asked,
        scenario=scenario,
        opened_at=opened_at,
        expires_at=opened_at + _milliseconds(lifetime_units * unit),
        unit=unit,
        payments={n: _name(chance, "pay_") for n in _in_order(s.attempt for s in scenario.steps)},
        movements=_movements(chance, scenario),
        events=tuple(_name(chance, "evt_") for _ in scenario.steps),
    )


def _movements(chance: random.Random, scenario: Scenario) -> dict[str, str]:
    """`re_1` becomes `re_` and 20 hex digits."""
    names = _in_order(step.movement for step in scenario.steps if step.movement is not None)
    return {name: _name(chance, name.split("_")[0] + "_") for name in names}


def _in_order(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))


def _name(chance: random.Random, prefix: str) -> str:
    return f"{prefix}{chance.getrandbits(80):020x}"


def _milliseconds(microseconds: float) -> Duration:
    return round(microseconds / MILLISECOND) * MILLISECOND
