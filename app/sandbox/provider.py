"""Simulated provider, which opens payment sessions and plays their scenarios."""

import json
import os
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from app.core.clock import Clock
from app.sandbox import scenarios, sessions, webhook_sender
from app.sandbox.settings import SandboxSettings
from reconcile.documents import MoneyDocument
from reconcile.instants import SECOND, Instant, format_instant
from reconcile.money import Money, major_text, to_json

# --- the truth about each order's money, whatever was delivered -----------------------------------

_RANKS: Final = (
    ("payment.succeeded", "succeeded"),
    ("payment.authorized", "authorized"),
    ("payment.declined", "declined"),
    ("payment.canceled", "canceled"),
    ("payment.expired", "expired"),
    ("payment.timed_out", "timed_out"),
    ("payment.pending", "timed_out"),
)

_CAPTURED: Final = frozenset({"payment.succeeded"})
_REFUNDED: Final = frozenset({"payment.refunded"})
_LOST: Final = frozenset({"payment.dispute_lost"})
_CLOSES: Final = frozenset({"payment.dispute_won", "payment.dispute_lost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Event that really happened to a payment at the simulated provider."""

    at: Instant
    kind: str
    payment: str
    money: Money
    movement: str | None = None
    contradicted: bool = False


@dataclass(slots=True)
class OrderTruth:
    """Events of one order at the simulated provider."""

    money: Money
    session: sessions.CheckoutSession
    happenings: list[Happening] = field(default_factory=list)

    def entry(self) -> dict[str, Any]:
        """Return the order's entry for the file of true outcomes."""
        asked = self.session.asked
        return {
            "order": asked.order,
            "scenario": self.session.scenario.ending,
            "session": self.session.reference,
            "outcome": outcome_of(self.money, self.happenings),
            "captured": self._sum(_CAPTURED),
            "refunded": self._sum(_REFUNDED),
            **({"lost": self._sum(_LOST)} if any(h.kind in _LOST for h in self.happenings) else {}),
            "payments": [
                {"reference": payment, "outcome": payment_outcome(self.happenings, payment)}
                for payment in dict.fromkeys(h.payment for h in self.happenings)
            ],
        }

    def _sum(self, kinds: frozenset[str]) -> MoneyDocument:
        # Count in the order's currency. A payment in another currency makes the order unresolved.
        currency = self.money.currency
        own = [h for h in self.happenings if h.money.currency == currency]
        return to_json(Money(minor=_total(own, kinds), currency=currency))


def _total(happenings: list[Happening], kinds: frozenset[str]) -> int:
    return sum(h.money.minor for h in happenings if h.kind in kinds)


def payment_outcome(happenings: list[Happening], payment: str) -> str:
    """Return the true outcome of a payment."""
    kinds = {h.kind for h in happenings if h.payment == payment}
    return next(outcome for kind, outcome in _RANKS if kind in kinds)


def outcome_of(order: Money, happenings: list[Happening]) -> str:
    """Return the order's correct final outcome. `order` is the price."""
    if not any(h.kind in _CAPTURED for h in happenings):
        return _outcome_unpaid(happenings)
    doubted = {h.payment for h in happenings if h.contradicted}
    sure = [
        h for h in happenings if h.payment not in doubted and h.money.currency == order.currency
    ]
    captured, refunded, lost = (_total(sure, kinds) for kinds in (_CAPTURED, _REFUNDED, _LOST))
    closed = {h.movement for h in sure if h.kind in _CLOSES}
    open_disputes = [h for h in sure if h.kind == "payment.disputed" and h.movement not in closed]
    gone, disputed = refunded + lost, sum(h.money.minor for h in open_disputes)
    if gone and gone == captured and not doubted and len(sure) == len(happenings):
        return "charged_back" if lost else "refunded"
    if captured and captured - gone - disputed >= order.minor:
        return "succeeded"
    if doubted:
        return "unresolved"
    if disputed:
        return "disputed"
    if lost:
        return "charged_back"
    if refunded and captured >= order.minor:
        return "partially_refunded"
    return "unresolved"


def _outcome_unpaid(happenings: list[Happening]) -> str:
    ends = {h.payment: payment_outcome(happenings, h.payment) for h in happenings}
    if "authorized" in ends.values():
        return "authorized"
    final = [h for h in happenings if h.kind != "payment.pending"]
    waiting = ends.keys() - {h.payment for h in final}
    if waiting or not final:
        return "timed_out"
    last = max(final, key=lambda h: (h.at, h.payment))
    return "failed" if ends[last.payment] == "declined" else ends[last.payment]


class TruthBook:
    """True outcomes of all orders at the simulated provider."""

    def __init__(self) -> None:
        self.changes = 0
        self._orders: dict[str, OrderTruth] = {}
        self._texts: dict[str, str] = {}

    def opened(self, session: sessions.CheckoutSession) -> None:
        """Record that a session was opened for its order."""
        order = session.asked.order
        truth = self._orders.setdefault(order, OrderTruth(session.asked.money, session))
        truth.session = session
        self._changed(order)

    def happened(self, session: sessions.CheckoutSession, happening: Happening) -> None:
        """Record an event that really happened in a session."""
        order = session.asked.order
        self._orders[order].happenings.append(happening)
        self._changed(order)

    def _changed(self, order: str) -> None:
        # Each order's text is cached, so that a change only serializes one order.
        self._texts[order] = json.dumps(self._orders[order].entry())
        self.changes += 1

    def to_json(self) -> bytes:
        """Return the true outcomes as JSON, one order per line."""
        lines = ",\n".join(self._texts[order] for order in sorted(self._texts))
        return f"[{lines}]\n".encode()


# --- events and their deliveries ------------------------------------------------------------------


def event_body(
    session: sessions.CheckoutSession,
    step: scenarios.ScenarioStep,
    *,
    event_id: str,
    copy: scenarios.Copy = "true",
) -> bytes:
    """Return the body of a scenario's event."""
    asked = session.asked
    paid = session.paid_by(step) if copy == "true" else session.amount("other")
    data: dict[str, Any] = {
        "order": {"reference": asked.order, **_figures(asked.money)},
        "session": {"reference": session.reference},
        "payment": {"reference": session.payments[step.attempt], **_figures(paid)},
    }
    if step.reason is not None:
        data["payment"]["reason"] = step.reason
    if step.movement is not None:
        moved = session.amount(step.amount)
        data["refund"] = {"reference": session.movements[step.movement], **_figures(moved)}
    if asked.phone is not None:
        data["customer"] = {"phone": asked.phone}
    document = {
        "id": event_id,
        "type": step.kind,
        "occurred_at": format_instant(session.happens_at(step)),
        "environment": "sandbox",
        "data": data,
    }
    return exact_json(document).encode()


def _figures(money: Money) -> dict[str, Any]:
    return {"amount": Decimal(major_text(money)), "currency": money.currency}


def exact_json(value: Any) -> str:
    """Return exact JSON for Decimals. Raise TypeError for floats."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)}: {exact_json(item)}" for name, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, str):
        return json.dumps(value)
    raise TypeError(f"an event has no place for a {type(value).__name__}")


class TruthFile:
    """File with the true outcomes of all orders. Without a path, nothing is written."""

    def __init__(self, book: TruthBook, path: Path | None) -> None:
        self._book = book
        self._path = path
        self._written = -1
        self._lock = anyio.Lock()

    async def flush(self) -> None:
        """Update the outcome file. Raise OSError for a failed write."""
        async with self._lock:
            if self._path is None or self._written == self._book.changes:
                return
            changes, content = self._book.changes, self._book.to_json()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._replace, self._path, content)
            self._written = changes

    def _replace(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        temporary.replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAct:
    """Action of the simulated provider: money moves (`happening`), or deliveries are sent
    (`parcels`)."""

    at: Instant
    happening: Happening | None = None
    parcels: tuple[webhook_sender.Parcel, ...] = ()


def acts_of(session: sessions.CheckoutSession) -> list[ProviderAct]:
    """Return a session's actions by time, events before deliveries."""
    moved, sent = [], []
    for step, event_id in zip(session.scenario.steps, session.events, strict=True):
        if session.amount(step.amount).minor <= 0:
            continue
        happening = Happening(
            at=session.happens_at(step),
            kind=step.kind,
            payment=session.payments[step.attempt],
            money=session.amount(step.amount),
            movement=step.movement and session.movements[step.movement],
            contradicted="other_amount" in step.copies,
        )
        moved.append(ProviderAct(at=happening.at, happening=happening))
        true = event_body(session, step, event_id=event_id)
        other = event_body(session, step, event_id=event_id, copy="other_amount")
        signed_and_sent = {
            "true": (true, true),
            "other_amount": (other, other),
            "tampered": (true, other),
        }
        parcels = [
            webhook_sender.Parcel(event_id=event_id, signed=signed, sent=body)
            for signed, body in map(signed_and_sent.__getitem__, step.copies)
        ]
        sent.append(ProviderAct(at=session.sent_at(step), parcels=tuple(parcels)))
    return sorted(moved + sent, key=lambda act: act.at)


# --- the provider ---------------------------------------------------------------------------------

TRUTH_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAnswer:
    """Answer to a session request, with status 201."""

    body: bytes
    replayed: bool = False
    dropped: bool = False


@dataclass(slots=True)
class Counts:
    """Numbers of deliveries that are not sent yet (pending) or not acknowledged yet
    (undelivered)."""

    pending: int = 0
    undelivered: int = 0


class Provider:
    """Simulated provider with all sessions of a run."""

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        sender: webhook_sender.WebhookSender,
        clock: Clock,
        sleep: webhook_sender.Sleep,
    ) -> None:
        self.sessions: dict[str, sessions.CheckoutSession] = {}
        self.counts = Counts()
        self.truth = TruthBook()
        self.truth_file = TruthFile(self.truth, settings.truth_path)
        self.fault: str | None = None
        self._settings = settings
        self._public_url = settings.public_url.rstrip("/")
        self._sender = sender
        self._clock = clock
        self._sleep = sleep
        self._keys = sessions.IdempotencyKeys(settings.max_sessions)
        self._tasks: TaskGroup | None = None

    async def run(self, tasks: TaskGroup) -> None:
        """Play the sessions' scenarios. Raise OSError for an unwritable file."""
        await self.truth_file.flush()
        self._tasks = tasks
        tasks.start_soon(self._keep_truth)

    def check(self) -> None:
        """Raise RefusalError with status 503 if the simulated provider has failed for good."""
        if self.fault is not None:
            raise sessions.RefusalError(503, "sandbox_failed", detail=self.fault)

    async def open(self, asked: sessions.SessionRequest, *, key: str, digest: str) -> SandboxAnswer:
        """Open a session, or repeat the first answer to this idempotency key.

        Raise RefusalError with status 409, 422 or 503.
        """
        self.check()
        assert self._tasks is not None, "the application's lifespan has not begun"
        scenario, settings = scenarios.scenario_for(asked.phone), self._settings
        with self._keys.admit(key, digest) as entry:
            if entry.answer is not None:
                return SandboxAnswer(body=entry.answer, replayed=True)
            await self._sleep(settings.answer_delay_units * settings.unit_s)
            if entry.refusals < scenario.refusals:
                entry.refusals += 1
                raise sessions.RefusalError(
                    503,
                    "temporarily_unavailable",
                    detail=(
                        "The service has a temporary problem. Repeat the request with the same key."
                    ),
                    headers={"Retry-After": str(settings.retry_after_s)},
                )
            session = sessions.open_session(
                asked,
                key=key,
                seed=settings.seed,
                now=self._clock.now(),
                unit_s=settings.unit_s,
                lifetime_units=settings.session_lifetime_units,
            )
            acts = acts_of(session)
            self.sessions[session.reference] = session
            self.truth.opened(session)
            self.counts.pending += sum(len(act.parcels) for act in acts)
            self._tasks.start_soon(self._play, session, acts, self._tasks)
            document = {
                "reference": session.reference,
                "status": "open",
                "checkout_url": f"{self._public_url}/checkout/{session.reference}",
                "expires_at": format_instant(session.expires_at),
            }
            entry.answer = exact_json(document).encode()
            return SandboxAnswer(body=entry.answer, dropped=scenario.drops_answer)

    async def _play(
        self, session: sessions.CheckoutSession, acts: list[ProviderAct], tasks: TaskGroup
    ) -> None:
        try:
            for act in acts:
                wait = act.at - self._clock.now()
                if wait > 0:
                    await self._sleep(wait / SECOND)
                if act.happening is not None:
                    self.truth.happened(session, act.happening)
                for parcel in act.parcels:
                    self.counts.pending -= 1
                    self.counts.undelivered += 1
                    if await self._sender.deliver_once(parcel):
                        self.counts.undelivered -= 1
                    else:
                        tasks.start_soon(self._repeat, parcel)
        except Exception as error:
            # A dead task group would leave the server answering 201 and playing nothing.
            self._fail(f"A session could not be played: {error!r}")

    async def _repeat(self, parcel: webhook_sender.Parcel) -> None:
        try:
            await self._sender.deliver_again(parcel)
        except Exception as error:
            self._fail(f"An event could not be repeated: {error!r}")
        else:
            self.counts.undelivered -= 1

    async def settle_truth(self) -> None:
        """Update the outcome file, or set `fault` on failure."""
        try:
            await self.truth_file.flush()
        except OSError as error:
            self._fail(f"The truth file could not be written: {error.strerror}.")

    async def _keep_truth(self) -> None:
        while self.fault is None:
            await self.settle_truth()
            await anyio.sleep(TRUTH_PAUSE_S)

    def _fail(self, sentence: str) -> None:
        self.fault = self.fault or sentence
