"""Providers that are asked back: what they know, and the service's questions, sent on demand."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2
import pytest

from app.core.clock import SetClock
from app.core.http import outgoing_client
from app.core.periodic import TaskGroup
from app.receiving.confirm import Confirmer, confirm_due
from app.wiring import service as wiring
from app.wiring import worker
from reconcile.instants import HOUR
from tests.api.driving import Driver, driving
from tests.receiving.asking import stream

GIVEN = {"access_token": "t0k3n", "token": "t0k3n", "expires_in": 3599}


@dataclass
class Truth:
    """The providers' answers by session, payment or order; they know nothing else."""

    known: dict[str, Any] = field(default_factory=dict)
    confirmers: list[Confirmer] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        url = urlsplit(str(request.url))
        names = [unquote(part) for part in url.path.split("/")]
        names += [value for _, value in parse_qsl(url.query)]
        if request.content.startswith(b"{"):
            names += [str(value) for value in json.loads(request.content).values()]
        found = next((self.known[name] for name in names if name in self.known), None)
        if found is None and any("token" in name.lower() or name == "oauth" for name in names):
            found = GIVEN
        status = 404 if found is None else 200
        return httpx2.Response(status, content=stream(json.dumps(found or {}).encode()))

    async def ask(self) -> None:
        """Ask all questions that are due by the next hour, at every provider."""
        for confirmer in self.confirmers:
            clock = confirmer.context.clock
            assert isinstance(clock, SetClock)
            clock.put(clock.now() + HOUR)
            for source in confirmer.askers:
                while await confirm_due(confirmer, source):
                    pass


@asynccontextmanager
async def asking(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> AsyncIterator[tuple[Driver, Truth]]:
    """Run a service whose questions are asked when the test says so."""
    truth = Truth()

    def client(timeout_s: float) -> httpx2.AsyncClient:
        return outgoing_client(timeout_s=timeout_s, transport=httpx2.MockTransport(truth))

    def on_demand(confirmer: Confirmer) -> TaskGroup:
        truth.confirmers.append(confirmer)
        return TaskGroup([])  # nothing is asked by itself

    monkeypatch.setattr(wiring, "outgoing_client", client)
    monkeypatch.setattr(worker, "confirming", on_demand)
    async with driving(folder, with_worker=False, **more) as driver:
        yield driver, truth
