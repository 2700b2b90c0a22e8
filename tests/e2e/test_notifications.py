"""The shop hears of everything, whenever Tallyhook is killed."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from app.core.clock import SystemClock
from tests.api.driving import of_order
from tests.e2e.endpoint import listening
from tests.e2e.processes import Process
from tests.faults.service import a_service
from tests.waiting import until

SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="

SOON = """
from app.orders import notify_shop
notify_shop.LEASE = 300_000
notify_shop.FIRST_PAUSE = 100_000
"""
"""A lease and a first pause of fractions of a second, where the shop is notified."""


HELD_S = 5.0
"""Seconds for which the shop stays silent while a process is killed."""


class Shop:
    """An endpoint that takes its time, so that a kill meets requests under way."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.delay_s = 0.05

    def take(self, webhook: str, document: dict[str, Any]) -> int:
        self.heard.append((webhook, document))
        time.sleep(self.delay_s)
        return 204

    def orders(self) -> set[str]:
        """List the orders whose success was heard."""
        return {d["data"]["order"] for _, d in list(self.heard) if d["data"]["fulfillable"]}

    def heard_of(self, order: str) -> list[str]:
        """List the ids of all that was heard of an order, one after the other."""
        return [name for name, d in list(self.heard) if d["data"]["order"] == order]


def heard_again(shop: Shop, webhook: str) -> bool:
    """Return whether a notification came more than once."""
    return [name for name, _ in list(shop.heard)].count(webhook) > 1


def send_events(service: Process, order: str, *kinds: str) -> None:
    """Send the provider's events of an order."""
    for kind in kinds:
        body = of_order(order, f"{kind}-{order}", kind)
        assert service.send(body, at=SystemClock().now())[0] == 200


@pytest.mark.slow
def test_nothing_is_lost_when_it_is_killed(tmp_path: Path) -> None:
    """Killed with a request under way, then started again: every acknowledged order's outcome is
    heard, each order's in order, each revision under one id, and what was under way once more."""
    orders, interrupted = {f"O{number}" for number in range(16)}, list[str]()
    shop = Shop()
    with listening(shop.take) as port:
        settings: dict[str, Any] = {
            "SHOP__URL": f"http://127.0.0.1:{port}/",
            "SHOP__SECRET": SECRET,
        }
        for part in range(2):
            with a_service(tmp_path, script=SOON, **settings) as running:
                service = running.process
                *others, last = sorted(orders)[part * 8 : part * 8 + 8]
                send_events(service, last, "pending")
                until(lambda order=last: shop.heard_of(order))
                for order in others:
                    send_events(service, order, "pending", "succeeded")
                until(lambda least=4 + part * 8: len(shop.heard) >= least)
                shop.delay_s = HELD_S
                send_events(service, last, "succeeded")
                until(lambda order=last: order in shop.orders())
                interrupted.append(shop.heard_of(last)[-1])
                # Both: whoever notifies the shop would else go on until it has its answer.
                worker = running.worker()
                service.popen.kill()
                os.kill(worker, signal.SIGKILL)
                service.code()
                shop.delay_s = 0.05
        with a_service(tmp_path, script=SOON, **settings):
            until(lambda: shop.orders() == orders)
            until(lambda: all(heard_again(shop, name) for name in interrupted))
    for order in orders:
        heard = [d["data"]["id"] for _, d in shop.heard if d["data"]["order"] == order]
        assert heard == sorted(heard), order
    assert len({name for name, _ in shop.heard}) == len({d["data"]["id"] for _, d in shop.heard})
