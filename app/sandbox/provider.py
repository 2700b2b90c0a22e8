"""The provider itself: opens sessions and plays each one's scenario to its end.

Leaves out: HTTP on the merchant's side. A session is opened once for one idempotency key; its
timeline then runs by the clock, whether or not anybody heard the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from app.core.clock import Clock
from app.sandbox.bodies import exact_json
from app.sandbox.idempotency import IdempotencyKeys
from app.sandbox.problems import RefusalError
from app.sandbox.requests import SessionRequest
from app.sandbox.scenarios import scenario_of
from app.sandbox.sessions import Session, open_session
from app.sandbox.settings import SandboxSettings
from app.sandbox.timeline import Moment, moments_of
from app.sandbox.truth import TruthBook
from app.sandbox.truth_file import TruthFile
from app.sandbox.webhook_sender import Courier, Parcel, Sleep
from reconcile.instants import SECOND, Instant, format_instant

TRUTH_PAUSE_S = 0.05
"""Seconds between two looks at whether the truth file is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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
        self, settings: SandboxSettings, *, courier: Courier, clock: Clock, sleep: Sleep
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self.counts = Counts()
        self.truth = TruthBook()
        self.truth_file = TruthFile(self.truth, settings.truth_path)
        self.fault: str | None = None
        self._settings = settings
        self._public_url = settings.public_url.rstrip("/")
        self._courier = courier
        self._clock = clock
        self._sleep = sleep
        self._keys = IdempotencyKeys(settings.max_sessions)
        self._tasks: TaskGroup | None = None

    async def run(self, tasks: TaskGroup) -> None:
        """Play in this task group from now on. Raises OSError when the truth cannot be written."""
        await self.truth_file.flush()
        self._tasks = tasks
        tasks.start_soon(self._keep_truth)

    def check(self) -> None:
        """Raises RefusalError 503 once something has gone wrong for good."""
        if self.fault is not None:
            raise RefusalError(503, "sandbox_failed", detail=self.fault)

    async def open(self, asked: SessionRequest, *, key: str, digest: str) -> Answer:
        """Open a session, or give the first answer again. Raises RefusalError (409, 422, 503)."""
        self.check()
        scenario = scenario_of(asked.phone)
        with self._keys.admit(key, digest) as entry:
            if entry.answer is not None:
                return Answer(body=entry.answer, replayed=True)
            await self._sleep(self._settings.answer_delay_units * self._settings.unit_s)
            if entry.refusals < scenario.refusals:
                entry.refusals += 1
                raise self._trouble()
            entry.answer = self._answer(self._begin(asked, key))
            return Answer(body=entry.answer, dropped=scenario.drops_answer)

    def _trouble(self) -> RefusalError:
        return RefusalError(
            503,
            "temporarily_unavailable",
            detail="The service is in trouble; repeat the request with the same key.",
            headers={"Retry-After": str(self._settings.retry_after_s)},
        )

    def _begin(self, asked: SessionRequest, key: str) -> Session:
        assert self._tasks is not None, "the application's lifespan has not begun"
        session = open_session(
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

    def _answer(self, session: Session) -> bytes:
        return exact_json(
            {
                "reference": session.reference,
                "status": "open",
                "checkout_url": f"{self._public_url}/checkout/{session.reference}",
                "expires_at": format_instant(session.expires_at),
            }
        ).encode()

    async def _play(self, session: Session, moments: list[Moment]) -> None:
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

    async def _send(self, parcel: Parcel) -> None:
        self.counts.pending -= 1
        self.counts.undelivered += 1
        if await self._courier.deliver_once(parcel):
            self.counts.undelivered -= 1
            return
        assert self._tasks is not None
        self._tasks.start_soon(self._repeat, parcel)

    async def _repeat(self, parcel: Parcel) -> None:
        try:
            await self._courier.deliver_again(parcel)
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
