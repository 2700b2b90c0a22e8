"""Events of kinds that no profile knows, whose words speak of money going back."""

import json
from io import StringIO
from pathlib import Path

from app.orders.refold import refold_until_quiet
from app.orders.reindex import reindex
from app.providers.profile import SHIPPED, load_profile
from app.providers.source import Source
from tests.api.driving import SECRET, driving, of_order
from tests.contexts import with_sources
from tests.database.builders import quiet
from tests.monitoring.alarms import told
from tests.orders.test_reindex import receive_with


def _without_refunds(folder: Path) -> Source:
    """Build a source whose profile has no line for refunds."""
    text = (SHIPPED / "checkout.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith('"payment.refunded"')]
    path = folder / "without_refunds.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return Source(name="shop", profile=load_profile(str(path)), secrets=[SECRET])


async def test_an_alarm_until_the_profile_says_what_the_kind_means(
    tmp_path: Path, log: StringIO
) -> None:
    """Until then the order is not fulfillable."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        right = driver.service.sources["shop"]
        receive_with(driver, _without_refunds(tmp_path))
        await driver.api("PUT", "/orders/A", json={"amount": "1500.00", "currency": "KES"})
        await driver.send(of_order("A", "e1", "succeeded"))
        assert (await driver.api("GET", "/orders/A")).json()["fulfillable"] is True
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        assert not await told(driver, "unread_money")
        await driver.send(of_order("A", "e2", "refunded"))
        ledger = (await driver.api("GET", "/orders/A")).json()
        assert ledger["fulfillable"] is False
        assert "unread_money_event" in [finding["code"] for finding in ledger["findings"]]
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        (sentence,) = await told(driver, "unread_money")
        assert sentence.startswith("1 order has an event of a kind")
        figures = (await driver.client.get("/metrics")).text
        assert "tallyhook_orders_unread_money_event 1.0" in figures
        await reindex(with_sources(driver.context, {"shop": right}), progress=quiet)
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        assert not await told(driver, "unread_money")
    said = [line for line in map(json.loads, log.getvalue().splitlines()) if "alarm" in line]
    assert [(line["event"], line["alarm"]) for line in said] == [
        ("an alarm is raised", "unread_money"),
        ("an alarm has ended", "unread_money"),
    ]
