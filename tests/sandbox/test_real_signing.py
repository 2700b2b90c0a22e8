"""The receiver's own signing code in the sandbox, judged by the scheme's reference library."""

from datetime import UTC, datetime

import httpx2
import standardwebhooks

from app.providers.profile import load_profile
from app.providers.source import Source
from app.sandbox.scenarios import SCENARIOS
from app.sandbox.settings import SANDBOX_SECRET
from reconcile.instants import SECOND
from tests.rows import for_each
from tests.sandbox.harness import START, world


def is_signed(request: httpx2.Request) -> bool:
    """Return whether the reference implementation signs these bytes like this."""
    at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    webhook = standardwebhooks.Webhook(SANDBOX_SECRET)
    expected = webhook.sign(request.headers["webhook-id"], at, request.content.decode())
    return expected in request.headers["webhook-signature"].split(" ")


@for_each(("ending", "wrong"), [("01", 0), ("10", 0), ("11", 1)])
async def test_deliveries_are_signed_as_the_reference_library_signs(
    ending: str, wrong: int
) -> None:
    source = Source(name="checkout", profile=load_profile("checkout"), secrets=[SANDBOX_SECRET])
    requests: list[httpx2.Request] = []

    async def receive(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200 if is_signed(request) else 401)

    async with world(signer=source, receive=receive) as w:
        await w.open(f"2547000000{ending}")
        await w.drained()
    assert [is_signed(r) for r in requests].count(False) == wrong
    assert 2 <= len(requests) <= sum(len(s.copies) for s in SCENARIOS[ending].steps)
    assert int(requests[0].headers["webhook-timestamp"]) == START // SECOND + 1
