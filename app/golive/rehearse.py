"""Rehearse payments: play the scenarios against the configured provider, and compare. The service
must be running, and the provider must deliver to the service."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from app.checkout.client import CheckoutClient, client_settings
from app.checkout.open_checkout import CheckoutResult, open_checkout
from app.checkout.request import CheckoutRequest, Opened, SoundRequest, check_request, request_body
from app.context.context import AppContext
from app.core.errors import ConfigurationError, TallyhookError
from app.core.ids import new_id
from app.core.text import counted
from app.golive.signoff_store import Judged, Signoff, add_signoff
from app.orders.ledger_store import times_released
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.read_orders import LedgerDocument, order_document
from app.sandbox.scenarios import SCENARIOS
from reconcile.instants import SECOND
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.vocabulary import FindingCode

SIMULATED: Final = "2547000000"
"""First digits of the simulated provider's test numbers."""

NUMBERS: Final = "TALLYHOOK_REHEARSAL__NUMBERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Ledger that an order must have after a scenario."""

    outcome: Outcome
    ships: bool = False
    claims: frozenset[str] = frozenset()
    findings: frozenset[FindingCode] = frozenset()

    def met_by(self, ledger: Mapping[str, Any]) -> bool:
        """Check whether a ledger, given as JSON, meets all expectations."""
        claims = {line["claim"] for line in ledger["timeline"]}
        codes = {finding["code"] for finding in ledger["findings"]}
        same = ledger["outcome"] == self.outcome and ledger["fulfillable"] is self.ships
        return same and self.claims <= claims and self.findings <= codes

    def __str__(self) -> str:
        return end_words(self.outcome, ships=self.ships, findings=self.findings)


def end_words(outcome: str, *, ships: bool, findings: frozenset[Any]) -> str:
    words = f"{outcome}, {'ship' if ships else 'do not ship'}"
    return f"{words} ({', '.join(sorted(findings))})" if findings else words


def _paid(*findings: FindingCode, claims: tuple[str, ...] = ("succeeded",)) -> Expected:
    return Expected(
        outcome="succeeded", ships=True, claims=frozenset(claims), findings=frozenset(findings)
    )


EXPECTED: Final[Mapping[str, Expected]] = MappingProxyType(
    {
        "success": _paid(),
        "decline": Expected(outcome="failed", claims=frozenset({"declined"})),
        "timeout": Expected(outcome="timed_out"),
        "duplicate webhook": _paid("redelivered"),
        "delayed webhook": _paid(),  # within the grace it is not late
        "out of order": _paid("out_of_order"),
        "declined, then paid": _paid("recovered_on_later_attempt"),
        "paid twice": _paid("paid_twice"),
        "other amount": Expected(outcome="unresolved", findings=frozenset({"amount_mismatch"})),
        "same id, other body": Expected(
            outcome="unresolved", findings=frozenset({"same_id_different_body"})
        ),
        "tampered": _paid(),
        "refund": Expected(outcome="refunded", claims=frozenset({"refunded"})),
        "dispute": _paid(claims=("succeeded", "dispute_won")),
        "reported timeout, then paid": _paid(claims=("timed_out", "succeeded")),
        "no answer": _paid(),
        "service trouble": _paid(),
    }
)
"""Expected end of each scenario of the simulated provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalPlan:
    """Scenarios to play in a rehearsal. `amount` is in major units."""

    numbers: Mapping[str, str] = field(repr=False)
    amount: str
    currency: str
    patience_s: float | None = None


def numbers_for(given: Mapping[str, str], *, environment: str | None) -> Mapping[str, str]:
    """Return the configured test numbers, or the simulated provider's. Raises ConfigurationError
    for an unknown scenario, or in live without numbers."""
    unknown = [name for name in given if name not in EXPECTED]
    if unknown:
        known = ", ".join(EXPECTED)
        raise ConfigurationError([f"{NUMBERS}: names an unknown scenario; known are: {known}"])
    if not given and environment != "sandbox":
        raise ConfigurationError(
            [
                f"{NUMBERS}: is missing; in live, only test numbers may be charged: name these "
                "numbers"
            ]
        )
    return given or {row.name: SIMULATED + row.ending for row in SCENARIOS.values()}


BEYOND_S: Final = 120.0
"""Seconds to wait after a scenario's deadline."""

LOOK_S: Final = 0.5

SIGNER: Final = "tallyhook rehearse"

SAME_START: Final = "same start twice"
ONE_SESSION: Final = "one session"

LEAST: Final = 2
"""Minimum number of scenarios in a rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedScenario:
    """Result of a scenario; `order` is empty without an order."""

    scenario: str
    expected: str
    seen: str
    passed: bool
    seconds: float
    explanation: str
    order: str = ""


async def rehearse(
    context: AppContext,
    client: CheckoutClient,
    *,
    plan: RehearsalPlan,
    progress: Callable[[RehearsedScenario], None],
) -> list[RehearsedScenario]:
    """Play every scenario of the plan, and store the results."""
    stage = _Stage(context, client, plan=plan, progress=progress)
    parts = await asyncio.gather(*(stage.play(name) for name in plan.numbers))
    played = [each for part in parts for each in part]
    await _write_down(context, played)
    return played


async def play(
    context: AppContext,
    *,
    patience_s: float | None,
    progress: Callable[[RehearsedScenario], None],
) -> list[RehearsedScenario]:
    """Play every scenario that has a test number. Raises ConfigurationError without a provider, or
    in live without test numbers."""
    settings = context.settings
    numbers = settings.rehearsal.numbers
    given = {name: each.get_secret_value() for name, each in numbers.items()}
    plan = RehearsalPlan(
        numbers=numbers_for(given, environment=context.database.environment),
        amount=settings.rehearsal.amount,
        currency=settings.rehearsal.currency,
        patience_s=patience_s,
    )
    async with CheckoutClient(client_settings(settings)) as client:
        return await rehearse(context, client, plan=plan, progress=progress)


class _Stage:
    def __init__(
        self,
        context: AppContext,
        client: CheckoutClient,
        *,
        plan: RehearsalPlan,
        progress: Callable[[RehearsedScenario], None],
    ) -> None:
        self._context = context
        self._client = client
        self._plan = plan
        self._progress = progress
        self._run = new_id("", context.clock.now())

    async def play(self, scenario: str) -> list[RehearsedScenario]:
        began = monotonic()
        number = list(self._plan.numbers).index(scenario) + 1
        request = CheckoutRequest(
            order=f"REHEARSAL-{self._run}-{number:02}",
            amount=self._plan.amount,
            currency=self._plan.currency,
            phone=self._plan.numbers[scenario],
            success_url="https://shop.example/paid",
            cancel_url="https://shop.example/canceled",
        )
        expected, again = EXPECTED[scenario], list[RehearsedScenario]()

        def ended(
            seen: str, explanation: str, *, passed: bool = False, order: str = ""
        ) -> list[RehearsedScenario]:
            played = RehearsedScenario(
                scenario=scenario,
                expected=str(expected),
                seen=seen,
                passed=passed,
                seconds=round(monotonic() - began, 1),
                explanation=explanation,
                order=order,
            )
            self._progress(played)
            return [played, *again]

        try:
            facts = OrderFacts(order=request.order, money=self._checked(request).money)
            await tell_order(self._context, facts)  # (1)
            result = await open_checkout(self._context, self._client, request=request)  # (2)
            # Unresolved: its event came while we asked.
            if result.state not in ("opened", "paid", "unresolved"):
                return ended(result.state, result.sentence)
            if scenario == "success":
                again.append(await self._start_again(request, result))
            ledger = await self._wait(request.order, expected, result=result)  # (3)
        except TallyhookError as error:
            again.clear()
            return ended("not played", str(error))
        codes = frozenset(finding["code"] for finding in ledger["findings"])  # (4)
        seen = end_words(
            ledger["outcome"], ships=ledger["fulfillable"], findings=codes & expected.findings
        )
        explanation: str = ledger["explanation"][0].partition(" [")[0]
        if not ledger["timeline"]:
            explanation = (
                "No verified event came: check that `tallyhook serve` runs and that the provider "
                "sends to it. See `tallyhook deliveries list`."
            )
        passed = expected.met_by(ledger)
        return ended(seen, explanation, passed=passed, order=ledger["order"])

    def _checked(self, request: CheckoutRequest) -> SoundRequest:
        live = self._context.database.environment == "live"
        return check_request(request, live=live, requires=self._client.settings.api.requires)

    async def _start_again(
        self, request: CheckoutRequest, first: CheckoutResult
    ) -> RehearsedScenario:
        began = monotonic()
        found = await open_checkout(self._context, self._client, request=request)
        assert first.key is not None, "the rehearsal's orders are its own, and new"
        body = request_body(self._checked(request))
        answer = await self._client.ask(request.order, body, key=first.key)
        sessions = {first.session, found.session}
        sessions.add(answer.session if isinstance(answer, Opened) else None)
        one = len(sessions) == 1
        played = RehearsedScenario(
            scenario=SAME_START,
            expected=ONE_SESSION,
            seen=ONE_SESSION if one else "other sessions",
            passed=one,
            seconds=round(monotonic() - began, 1),
            explanation=f"Each request was answered with the session {first.session}."
            if one
            else "The provider ignores the idempotency key: ask the provider why.",
            order=request.order,
        )
        self._progress(played)
        return played

    async def _wait(
        self, order: str, expected: Expected, *, result: CheckoutResult
    ) -> LedgerDocument:
        patience_s, policy, now = (
            self._plan.patience_s, self._context.policy, self._context.clock.now(),
        )  # fmt: skip
        if patience_s is None:
            deadline = (result.expires_at or now + policy.payment_window) + policy.grace
            patience_s = max(deadline - now, 0) / SECOND + BEYOND_S
        ends = monotonic() + patience_s
        while True:
            document = await order_document(self._context, order)
            met = expected.met_by(document)
            if met and expected.ships:
                async with self._context.database.reading() as connection:
                    met = await times_released(connection, order) > 0
            if met or monotonic() > ends:
                return document
            await asyncio.sleep(LOOK_S)


def judged(played: Sequence[RehearsedScenario]) -> tuple[bool, str]:
    """Return (passed, sentence) for a rehearsal."""
    scenarios = {each.scenario: each.passed for each in played if each.scenario != SAME_START}
    count = counted(len(scenarios), "scenario")
    sentence = f"{sum(scenarios.values())} of {count} ended as expected"
    left = [name for name in EXPECTED if name not in scenarios]
    if left:
        sentence += f"; not rehearsed: {', '.join(left)}"
    if len(scenarios) < LEAST:
        sentence += f"; name a test number for at least {LEAST} scenarios in {NUMBERS}"
    return len(scenarios) >= LEAST and all(each.passed for each in played), sentence


async def _write_down(context: AppContext, played: list[RehearsedScenario]) -> None:
    found: dict[str, tuple[bool, str]] = {"rehearsal": judged(played)}
    for each in played:
        if each.scenario == SAME_START:
            found["idempotency"] = (each.passed, each.explanation)
        elif each.scenario == "duplicate webhook":
            async with context.database.reading() as connection:
                times = await times_released(connection, each.order)
            sentence = (
                f"The order was released {counted(times, 'time')}, although webhooks came "
                "repeatedly"
            )
            found["duplicates"] = (each.passed and times == 1, sentence)
    async with context.database.writing() as connection:
        for item, (passed, note) in found.items():
            at = context.clock.now()
            state: Judged = "passed" if passed else "failed"
            signoff = Signoff(item=item, state=state, at=at, signer=SIGNER, note=note)
            await add_signoff(connection, signoff)
