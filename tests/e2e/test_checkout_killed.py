"""The service is killed between any two steps of a start; after a restart there is one payment."""

import json
import signal
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import Process, running, token
from tests.e2e.provider import checkout_settings, get, provider
from tests.ports import free_port
from tests.waiting import until

MOST_STEPS = 40
"""More than a start has."""

DYING = """
import contextvars, functools, os, signal, sys

from app.checkout.client import CheckoutClient
from app.database.database import Database
from app.api.routes import OPERATIONS, Checkouts

fatal = int(sys.argv.pop(1))
steps = contextvars.ContextVar("steps", default=None)

def step():
    passed = steps.get()
    if passed is not None:
        passed.append(None)
        if len(passed) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

def stepping(make):
    def made(self):
        return Around(make(self))
    return made

class Around:
    def __init__(self, inner):
        self.inner = inner

    async def __aenter__(self):
        step()
        return await self.inner.__aenter__()

    async def __aexit__(self, *failed):
        step()
        ended = await self.inner.__aexit__(*failed)
        step()
        return ended

Database.writing = stepping(Database.writing)

request = CheckoutClient._request
async def stepping_request(self, *given, **named):
    step()
    heard = await request(self, *given, **named)
    step()
    return heard
CheckoutClient._request = stepping_request

(operation,) = (each for each in OPERATIONS if each.endpoint is Checkouts.start_payment)
start = operation.endpoint
@functools.wraps(start)  # what it takes is read from its types
async def counted(self, request, who):
    steps.set([] if "x-fatal" in request.headers else None)
    answer = await start(self, request, who)
    step()
    return answer
object.__setattr__(operation, "endpoint", counted)

from app.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def start(process: Process, shop: str, order: str, **more: str) -> dict[str, Any] | None:
    """Start the order's payment; None where nobody is left to answer."""
    body = {
        "order": {"reference": order, "amount": "1500.00", "currency": "KES"},
        "customer": {"phone": "254700000001"},
    }
    headers = {"Authorization": f"Bearer {shop}", **more}
    try:
        _, _, answer = process.request(
            "POST", "/api/v1/checkout/sessions", json.dumps(body), headers
        )
    except (OSError, HTTPException):
        return None
    return dict(json.loads(answer))


def paid(process: Process, shop: str, order: str) -> dict[str, Any]:
    """Return the order's ledger once it is paid; at once where nothing is known of the order."""
    ledger: dict[str, Any] = {}

    def is_known() -> bool:
        ledger.clear()
        ledger.update(process.get(f"/api/v1/orders/{order}", shop))
        return ledger.get("outcome") in (None, "succeeded")

    until(is_known, otherwise=lambda: ledger)
    return ledger


@pytest.mark.slow
def test_killed_between_some_steps_of_a_start(tmp_path: Path) -> None:
    """Each process dies in a start; the next one goes on with it by itself, and dies in its own."""
    killed_in_starts(tmp_path, every=12)


@pytest.mark.soak
def test_killed_between_any_two_steps_of_a_start(tmp_path: Path) -> None:
    """The same at each of them."""
    killed_in_starts(tmp_path, every=1)


def killed_in_starts(tmp_path: Path, *, every: int) -> None:
    """Kill one start after the other, each so many steps further on, until one comes to its end."""
    port, order = free_port(), ""
    with provider(webhook_port=port) as sandbox:
        settings = checkout_settings(sandbox)
        shop = ""
        for fatal in range(1, MOST_STEPS, every):
            words = (str(fatal), "serve", "--port", str(port))
            with running(tmp_path, *words, script=DYING, **settings) as process:
                shop = shop or token(tmp_path, **settings)
                if order:
                    gone_on_with(process, shop, order)
                order = f"ORD-{fatal}"
                if start(process, shop, order, **{"x-fatal": "yes"}) is not None:
                    gone_on_with(process, shop, order)
                    break
                assert process.code() == -signal.SIGKILL
        sessions = [each["order"] for each in get(sandbox, "/sandbox/truth")]
        assert get(sandbox, "/sandbox/state")["sessions"] == len(sessions)
    assert 8 < fatal < MOST_STEPS - 1, "every step was reached"
    assert sorted(sessions) == sorted(f"ORD-{n}" for n in range(1, fatal + 1, every))


def gone_on_with(process: Process, shop: str, order: str) -> None:
    """Check that what was committed ends well without the shop, and that the shop's next call
    starts what was not."""
    assert paid(process, shop, order).get("outcome") in (None, "succeeded")
    answer = start(process, shop, order)
    assert answer is not None
    assert answer["status"] in ("open", "paid")
    ledger = paid(process, shop, order)
    assert ledger["outcome"] == "succeeded"
    assert "error" not in {finding["severity"] for finding in ledger["findings"]}
    assert ledger["totals"]["captured"] == {"amount": "1500.00", "currency": "KES"}
