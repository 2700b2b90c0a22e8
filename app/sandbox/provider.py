"""The provider itself: opens sessions and plays each one's scenario to its end.

Leaves out: HTTP on the merchant's side. A session is opened once for one idempotency key; its
timeline then runs by the clock, whether or not anybody heard the answer.
"""

from __future__ import annotations

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
from reconcile.instants import SECOND, Instant, format_instant
from reconcile.money import Money, major_text, to_json

# --- what really happened to each order's money, whatever was delivered of it ---------------------


_RANKS: Final = (
    ("payment.succeeded", "succeeded"),
    ("payment.authorized", "authorized"),
    ("payment.declined", "declined"),
    ("payment.canceled", "canceled"),
    ("payment.expired", "expired"),
    ("payment.timed_out", "timed_out"),
    ("payment.pending", "timed_out"),
)
"""What a payment comes to by the strongest thing that happened to it. What pends times out."""

_CAPTURED: Final = frozenset({"payment.succeeded"})
_REFUNDED: Final = frozenset({"payment.refunded"})
_LOST: Final = frozenset({"payment.dispute_lost"})
_CLOSES: Final = frozenset({"payment.dispute_won", "payment.dispute_lost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened to a payment. `contradicted`: the provider states it in two ways."""

    at: Instant
    kind: str
    payment: str
    money: Money
    movement: str | None = None
    contradicted: bool = False


@dataclass(slots=True)
class OrderTruth:
    """One order: its money as first asked for, its latest session, and all that happened."""

    money: Money
    session: sessions.Session
    happenings: list[Happening] = field(default_factory=list)

    def entry(self) -> dict[str, Any]:
        """The order's entry of the truth file."""
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

    def _sum(self, kinds: frozenset[str]) -> dict[str, str]:
        """In the order's own currency; a payment in another one makes the order unresolved."""
        currency = self.money.currency
        own = [h for h in self.happenings if h.money.currency == currency]
        return to_json(Money(minor=_total(own, kinds), currency=currency))


def _total(happenings: list[Happening], kinds: frozenset[str]) -> int:
    return sum(h.money.minor for h in happenings if h.kind in kinds)


def payment_outcome(happenings: list[Happening], payment: str) -> str:
    """The outcome of one payment."""
    kinds = {h.kind for h in happenings if h.payment == payment}
    return next(outcome for kind, outcome in _RANKS if kind in kinds)


def outcome_of(order: Money, happenings: list[Happening]) -> str:
    """The outcome every right receiver reaches when all is delivered and all deadlines passed:
    what is held of the payments that are stated in one way, against the price."""
    captures = [h for h in happenings if h.kind in _CAPTURED]
    if not captures:
        return _outcome_unpaid(happenings)
    doubted = {h.payment for h in happenings if h.contradicted}
    sure = [
        h for h in happenings if h.payment not in doubted and h.money.currency == order.currency
    ]
    captured, refunded, lost = (_total(sure, kinds) for kinds in (_CAPTURED, _REFUNDED, _LOST))
    gone, disputed = refunded + lost, _in_open_disputes(sure)
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


def _in_open_disputes(happenings: list[Happening]) -> int:
    closed = {h.movement for h in happenings if h.kind in _CLOSES}
    return sum(
        h.money.minor
        for h in happenings
        if h.kind == "payment.disputed" and h.movement not in closed
    )


def _outcome_unpaid(happenings: list[Happening]) -> str:
    """Of payments without money, the one that ended last speaks for the order."""
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
    """The truth of all orders. `changes` grows with every change, so that a writer sees it."""

    def __init__(self) -> None:
        self.changes = 0
        self._orders: dict[str, OrderTruth] = {}
        self._texts: dict[str, str] = {}

    def opened(self, session: sessions.Session) -> None:
        """A session is open; nothing has happened to money yet."""
        order = session.asked.order
        truth = self._orders.setdefault(order, OrderTruth(session.asked.money, session))
        truth.session = session
        self._changed(order)

    def happened(self, session: sessions.Session, happening: Happening) -> None:
        """Something happened in a session that was given to `opened`."""
        order = session.asked.order
        self._orders[order].happenings.append(happening)
        self._changed(order)

    def _changed(self, order: str) -> None:
        # Each order's text is kept, so that a change costs one order and not all of them.
        self._texts[order] = json.dumps(self._orders[order].entry())
        self.changes += 1

    def to_json(self) -> bytes:
        """A JSON list sorted by order, one entry a line."""
        lines = ",\n".join(self._texts[order] for order in sorted(self._texts))
        return f"[{lines}]\n".encode()


# --- the provider itself --------------------------------------------------------------------------


def event_body(
    session: sessions.Session,
    step: scenarios.ScenarioStep,
    *,
    event_id: str,
    copy: scenarios.Copy = "true",
) -> bytes:
    """The event as it is, or (any other copy) with another amount of the same payment."""
    document = {
        "id": event_id,
        "type": step.kind,
        "occurred_at": format_instant(session.happens_at(step)),
        "environment": "sandbox",
        "data": _data(session, step, copy),
    }
    return exact_json(document).encode()


def _data(
    session: sessions.Session, step: scenarios.ScenarioStep, copy: scenarios.Copy
) -> dict[str, Any]:
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
    return data if asked.phone is None else data | {"customer": {"phone": asked.phone}}


def _figures(money: Money) -> dict[str, Any]:
    return {"amount": Decimal(major_text(money)), "currency": money.currency}


def exact_json(value: Any) -> str:
    """JSON where a Decimal is a number of exactly its own digits. Raises TypeError on floats."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)}: {exact_json(item)}" for name, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, str):
        return json.dumps(value)
    raise TypeError(f"an event has no place for a {type(value).__name__}")


class TruthFile:
    """The file at `path`; with None there is none and everything here does nothing."""

    def __init__(self, book: TruthBook, path: Path | None) -> None:
        self._book = book
        self._path = path
        self._written = -1
        self._lock = anyio.Lock()

    async def flush(self) -> None:
        """Return when the file is at least as new as the book was when called. Raises OSError."""
        async with self._lock:
            if self._path is None or self._written == self._book.changes:
                return
            changes, content = self._book.changes, self._book.to_json()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_replace, self._path, content)
            self._written = changes


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAct:
    """One act of the provider: money moves (`happening`), or an event leaves (`parcels`)."""

    at: Instant
    happening: Happening | None = None
    parcels: tuple[webhook_sender.Parcel, ...] = ()


def moments_of(session: sessions.Session) -> list[ProviderAct]:
    """Everything that will happen in the session, in the order of time.

    What happens at one instant happens before anything of it is sent. A step that would move
    nothing (the rest of a refund that was already whole) is left out.
    """
    steps = [
        (step, event_id)
        for step, event_id in zip(session.scenario.steps, session.events, strict=True)
        if session.amount(step.amount).minor > 0
    ]
    moments = [
        ProviderAct(at=session.happens_at(s), happening=_happening(session, s)) for s, _ in steps
    ]
    moments += [
        ProviderAct(at=session.sent_at(step), parcels=_parcels(session, step, event_id))
        for step, event_id in steps
    ]
    return sorted(moments, key=lambda moment: moment.at)


def _happening(session: sessions.Session, step: scenarios.ScenarioStep) -> Happening:
    return Happening(
        at=session.happens_at(step),
        kind=step.kind,
        payment=session.payments[step.attempt],
        money=session.amount(step.amount),
        movement=step.movement and session.movements[step.movement],
        contradicted="other_amount" in step.copies,
    )


def _parcels(
    session: sessions.Session, step: scenarios.ScenarioStep, event_id: str
) -> tuple[webhook_sender.Parcel, ...]:
    true = event_body(session, step, event_id=event_id)
    other = event_body(session, step, event_id=event_id, copy="other_amount")
    made = {
        "true": webhook_sender.Parcel(event_id=event_id, signed=true, sent=true),
        "other_amount": webhook_sender.Parcel(event_id=event_id, signed=other, sent=other),
        "tampered": webhook_sender.Parcel(event_id=event_id, signed=true, sent=other),
    }
    return tuple(made[copy] for copy in step.copies)


TRUTH_PAUSE_S = 0.05
"""Seconds between two looks at whether the truth file is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAnswer:
    """The body of a 201; `dropped`: it is never sent, the connection ends instead."""

    body: bytes
    replayed: bool = False
    dropped: bool = False


@dataclass(slots=True)
class Counts:
    """pending: deliveries whose time has not come. undelivered: tried, not yet acknowledged."""

    pending: int = 0
    undelivered: int = 0


class Provider:
    """All sessions of one run. `fault` says why nothing is played any more, if so."""

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        sender: webhook_sender.WebhookSender,
        clock: Clock,
        sleep: webhook_sender.Sleep,
    ) -> None:
        self.sessions: dict[str, sessions.Session] = {}
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
        """Play in this task group from now on. Raises OSError when the truth cannot be written."""
        await self.truth_file.flush()
        self._tasks = tasks
        tasks.start_soon(self._keep_truth)

    def check(self) -> None:
        """Raises RefusalError 503 once something has gone wrong for good."""
        if self.fault is not None:
            raise sessions.RefusalError(503, "sandbox_failed", detail=self.fault)

    async def open(self, asked: sessions.SessionRequest, *, key: str, digest: str) -> SandboxAnswer:
        """Open a session, or give the first answer again. Raises RefusalError (409, 422, 503)."""
        self.check()
        scenario = scenarios.scenario_of(asked.phone)
        with self._keys.admit(key, digest) as entry:
            if entry.answer is not None:
                return SandboxAnswer(body=entry.answer, replayed=True)
            await self._sleep(self._settings.answer_delay_units * self._settings.unit_s)
            if entry.refusals < scenario.refusals:
                entry.refusals += 1
                raise self._trouble()
            entry.answer = self._answer(self._begin(asked, key))
            return SandboxAnswer(body=entry.answer, dropped=scenario.drops_answer)

    def _trouble(self) -> sessions.RefusalError:
        return sessions.RefusalError(
            503,
            "temporarily_unavailable",
            detail="The service is in trouble; repeat the request with the same key.",
            headers={"Retry-After": str(self._settings.retry_after_s)},
        )

    def _begin(self, asked: sessions.SessionRequest, key: str) -> sessions.Session:
        assert self._tasks is not None, "the application's lifespan has not begun"
        session = sessions.open_session(
            asked,
            key=key,
            seed=self._settings.seed,
            now=self._clock.now(),
            unit_s=self._settings.unit_s,
            lifetime_units=self._settings.session_lifetime_units,
        )
        moments = moments_of(session)
        self.sessions[session.reference] = session
        self.truth.opened(session)
        self.counts.pending += sum(len(moment.parcels) for moment in moments)
        self._tasks.start_soon(self._play, session, moments)
        return session

    def _answer(self, session: sessions.Session) -> bytes:
        return exact_json(
            {
                "reference": session.reference,
                "status": "open",
                "checkout_url": f"{self._public_url}/checkout/{session.reference}",
                "expires_at": format_instant(session.expires_at),
            }
        ).encode()

    async def _play(self, session: sessions.Session, moments: list[ProviderAct]) -> None:
        try:
            for moment in moments:
                await self._sleep_until(moment.at)
                if moment.happening is not None:
                    self.truth.happened(session, moment.happening)
                for parcel in moment.parcels:
                    await self._send(parcel)
        except Exception as error:
            # A dead task group would leave the server answering 201 and playing nothing.
            self._fail(f"A session could not be played: {error!r}")

    async def _send(self, parcel: webhook_sender.Parcel) -> None:
        self.counts.pending -= 1
        self.counts.undelivered += 1
        if await self._sender.deliver_once(parcel):
            self.counts.undelivered -= 1
            return
        assert self._tasks is not None
        self._tasks.start_soon(self._repeat, parcel)

    async def _repeat(self, parcel: webhook_sender.Parcel) -> None:
        try:
            await self._sender.deliver_again(parcel)
        except Exception as error:
            self._fail(f"An event could not be repeated: {error!r}")
        else:
            self.counts.undelivered -= 1

    async def _sleep_until(self, moment: Instant) -> None:
        wait = moment - self._clock.now()
        if wait > 0:
            await self._sleep(wait / SECOND)

    async def settle_truth(self) -> None:
        """Return when the truth file is up to date, or `fault` says why it cannot be."""
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
