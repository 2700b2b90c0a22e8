"""One order with many events, most of them redelivered: put straight into the store."""

import hashlib
import json
from collections.abc import Iterator
from itertools import islice

from app.core.ids import new_id
from app.orders.refold import refold_until_quiet
from app.providers.request import Incoming
from app.receiving.append_store import Arrival, Ready
from reconcile.instants import DAY, MINUTE, SECOND, Instant, format_instant
from tests.api.driving import Driver, event, signed
from tests.evidence.world import CUSTOMER
from tests.finance.loading import READER
from tests.reconcile.build import T

ORDER = "ORD-1"
"""The order that all of it is about."""

AT_ONCE = 2_000
"""Deliveries that are committed together."""


async def put_large_order(driver: Driver, *, events: int, redeliveries: int) -> None:
    """Store so many events, and further deliveries of them in turn; fold now and then."""
    await driver.api("PUT", f"/orders/{ORDER}", json={"amount": "1500.00", "currency": "KES"})
    waiting = _arrivals(events, redeliveries)
    while some := list(islice(waiting, AT_ONCE)):
        driver.clock.put(some[-1].received_at)
        await driver.service.inbox.append([Ready(None, some)])
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
    driver.clock.put(Instant(driver.clock.now() + DAY))


def _arrivals(events: int, redeliveries: int) -> Iterator[Arrival]:
    """Yield each event some minutes after it happened, and then the redeliveries."""
    bodies = [_body(number) for number in range(events)]
    for number in range(events + redeliveries):
        body = bodies[number % events]
        delay = (12 + number % 70) * MINUTE if number < events else DAY
        at = Instant(T + number % events * SECOND + delay + number // events * DAY)
        digest = hashlib.sha256(body).hexdigest()
        name = json.loads(body)["id"]
        headers = [f"{key.decode()}: {value.decode()}" for key, value in
                   signed(body, at=at, event_id=name)]  # fmt: skip
        yield Arrival(
            delivery_id=new_id("dlv_", at),
            received_at=at,
            source=READER.name,
            digest=digest,
            headers="\n".join(headers),
            body=body,
            event=READER.read(Incoming([], body), digest=digest).events[0],
        )


def _body(number: int) -> bytes:
    """Return a try that is declined, one that is paid, a part of it that goes back, and a message
    of an unknown kind, in turn."""
    payment, happened = f"pay_{number // 4}", format_instant(Instant(T + number * SECOND))
    claim = ("declined", "succeeded", "refunded", "note_added")[number % 4]
    if claim == "declined":
        payment += "_declined"
    more = {"refund": {"reference": f"re_{number}", "amount": 500}} if claim == "refunded" else {}
    document = event(f"evt_{number:05}", claim, session=None, customer=CUSTOMER,
                     payment={"reference": payment}, occurred_at=happened, **more)  # fmt: skip
    return json.dumps(document).encode()
