"""Other shops' genuine payments on our account are stored by the receiver, and are in no order."""

import json
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from app.access.operators import register_operator
from app.config.load import load_settings
from app.console.application import build_console
from app.console.setup_pages import setup_document
from app.context.configured import compile_sources
from app.core.errors import NotFoundError
from app.evidence.dispute_case import CaseRequest, dispute_case
from app.evidence.gather_evidence import gather_dossier
from app.finance.read_lines import lines_naming
from app.monitoring.preflight import of_readings
from app.orders.delivery_log import is_refused, list_deliveries
from app.orders.find_orders import find_orders
from app.orders.prove import prove_orders
from app.orders.refold import refold_until_quiet
from app.orders.reindex import note_first_readings, reindex, sources_read_otherwise
from app.orders.unallocated import (
    Unallocated,
    UnallocatedRequest,
    list_unallocated,
    unallocated_totals,
)
from app.privacy.check import check_database
from app.providers.profile import profile_text
from app.receiving.source_state import source_states
from app.wiring.serving import console_of
from reconcile.instants import SECOND, Instant, format_instant
from tests.api.driving import Driver, driving, environ, event
from tests.console.conftest import session_for
from tests.contexts import Here, with_sources
from tests.privacy.test_erase import quiet
from tests.reconcile.build import T

ONLY: dict[str, Any] = {"SOURCES__SHOP__ONLY": json.dumps({"data.shop": ["north"]})}
PRICE = {"amount": "109.00", "currency": "KES"}


def paid(shop: str | None, event_id: str = "e1", **changes: Any) -> dict[str, Any]:
    """Return a payment to a shop for ORD-1, which is unpaid at 109.00 in our shop."""
    stated = {} if shop is None else {"shop": shop}
    payment = {"reference": f"pay_{shop or 'x'}", "amount": 250}
    return event(event_id, session=None, payment=payment, **stated, **changes)


def refund(shop: str, event_id: str = "r1") -> dict[str, Any]:
    money = {"reference": f"re_{shop}", "amount": 250, "currency": "KES"}
    of = {"reference": f"pay_{shop}"}
    return event(event_id, "refunded", session=None, order=None, payment=of, refund=money)


async def listed(driver: Driver, **wanted: Any) -> list[Unallocated]:
    page = await list_unallocated(driver.context, UnallocatedRequest(**wanted))
    return page.payments


async def orders(driver: Driver) -> list[Any]:
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    return [each["order"] for each in (await driver.api("GET", "/orders")).json()["orders"]]


@pytest.mark.parametrize("refund_first", [False, True])
async def test_another_shops_payment_is_acknowledged_and_makes_no_order(
    refund_first: bool, tmp_path: Path
) -> None:
    async with driving(tmp_path, with_worker=False, **ONLY) as driver:
        sent = [paid("south"), refund("south")]
        for each in reversed(sent) if refund_first else sent:
            assert (await driver.send(each)).status_code == 200
        verdicts = driver.rows("SELECT verdict FROM deliveries ORDER BY verdict")
        assert verdicts == [("not_ours",), ("stored",)]
        log = (await list_deliveries(driver.context, limit=9)).entries
        assert [is_refused(each) for each in log] == [False, False]
        missing = await driver.api("GET", "/orders/ORD-1")
        assert missing.status_code == 404
        assert missing.json()["detail"] == (
            "Nothing is known of order 'ORD-1': the payment shop:pay_south names it, but "
            "belongs to another shop or seller on the same account; `tallyhook unallocated show "
            "shop:pay_south` shows the payment."
        )
        before = format_instant(Instant(T - SECOND))
        earlier = await driver.api("GET", "/orders/ORD-1", params={"as_of": before})
        assert earlier.json()["detail"] == "Nothing is known of order 'ORD-1'."
        assert await orders(driver) == []
        assert await listed(driver) == []
        [found] = await listed(driver, not_ours=True)
        assert (found.state, found.why, found.named) == ("not_ours", "other_shop", ())
        found_by = await find_orders(driver.context, "ORD-1", limit=5)
        assert "pay_south" in repr(found_by)
        totals = await unallocated_totals(driver.context)
        assert (totals.count, totals.not_ours) == (0, 1)
        assert [each.state for each in await source_states(driver.context)] == ["not_ours"]
        assert (await check_database(driver.context, deep=True, progress=quiet)).problems == []


async def test_our_order_of_that_number_stays_unpaid_until_our_own_payment(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False, **ONLY) as driver:
        assert (await driver.api("PUT", "/orders/ORD-1", json=PRICE)).status_code == 200
        await driver.send(paid("south"))
        unpaid = (await driver.api("GET", "/orders/ORD-1")).json()
        assert (unpaid["outcome"], unpaid["fulfillable"]) == ("not_attempted", False)
        await driver.send(paid("north", "e2", order={"amount": 109}))
        ours = (await driver.api("GET", "/orders/ORD-1")).json()
        assert {each["reference"] for each in ours["attempts"]} == {"pay_north"}
        assert ours["totals"]["captured"]["amount"] == "250.00"


async def test_a_payment_waits_for_a_person_while_nothing_says_whose_it_is(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False, **ONLY) as driver:
        await driver.send(paid(None))
        assert await orders(driver) == []
        (state,) = await source_states(driver.context)
        assert (state.state, "or none" in state.sentence) == ("not_ours", True)
        missing = (await driver.api("GET", "/orders/ORD-1")).json()["detail"]
        assert "the payment shop:pay_x names it, but may belong to another shop" in missing
        sought = await find_orders(driver.context, "ORD-1", limit=5)
        assert (sought.hits, sought.notes[0]) == ([], missing)
        with pytest.raises(NotFoundError, match="may belong to another shop"):
            await dispute_case(driver.context, CaseRequest(order="ORD-1"))
        [found] = await listed(driver)
        assert (found.why, found.waits) == ("whose_shop_unknown", True)
        named = {**PRICE, "references": [{"source": "shop", "payment": "pay_x"}]}
        assert (await driver.api("PUT", "/orders/ORD-1", json=named)).status_code == 200
        order = (await driver.api("GET", "/orders/ORD-1")).json()
        assert order["totals"]["captured"]["amount"] == "250.00"
        assert await listed(driver) == []


async def test_a_changed_file_of_a_profile_makes_reindex_due(tmp_path: Path) -> None:
    """Of the merchant's own file; the page of setting up shows what the doctor says."""
    path = tmp_path / "own.toml"
    path.write_text(profile_text("checkout"))
    own: dict[str, Any] = {"SOURCES__SHOP__PROFILE": str(path)}
    async with driving(tmp_path, with_worker=False, **own) as driver:
        await driver.send(event("e1"))
        assert await sources_read_otherwise(driver.context) == []
        path.write_text(path.read_text() + "# corrected\n")
        assert await sources_read_otherwise(driver.context) == ["shop"]
        [check] = of_readings(["shop"])
        page: Any = SimpleNamespace(context=driver.context)
        [source] = (await setup_document(page))["sources"]
        assert source["reindex"] == [{"sentence": check.sentence, "do": check.do}]
        await reindex(driver.context, progress=quiet)
        assert (await setup_document(page))["sources"][0]["reindex"] == []


async def test_pages_dossier_and_proof_say_that_only_another_shop_names_an_order(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False, **ONLY) as driver:
        await driver.send(paid("south"))
        context, said = driver.context, "belongs to another shop or seller on the same account"
        asked: list[Awaitable[Any]] = [
            dispute_case(context, CaseRequest(order="ORD-1")),
            prove_orders(context, ["ORD-1"], shuffles=1, seed=1, progress=quiet),
            gather_dossier(context, "ORD-1", as_of=None, full=False, lines=lines_naming),
        ]
        for answer in asked:
            with pytest.raises(NotFoundError, match=said):
                await answer
        await register_operator(context, name="Ann", role="admin", by=None)
        console = console_of(context, host="127.0.0.1", port=8081, elsewhere=Here(context))
        transport = httpx2.ASGITransport(app=build_console(console))
        cookies = {console.cookie: await session_for(context, "Ann")}
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8081", cookies=cookies
        ) as client:
            page = await client.get("/orders/ORD-1")
        assert (page.status_code, said in page.text) == (404, True)


async def test_reindex_judges_again_after_the_setting_changed(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(paid("south"))
        assert await orders(driver) == ["ORD-1"]
        settings = load_settings(environ(tmp_path, **ONLY), serving=True)
        asking = replace(with_sources(driver.context, compile_sources(settings)), settings=settings)
        await note_first_readings(asking)
        assert await sources_read_otherwise(driver.context) == []
        due = await sources_read_otherwise(asking)
        [check] = of_readings(due)
        assert (due, check.do) == (
            ["shop"],
            "stop the service, run `tallyhook reindex` and start it again",
        )
        await reindex(asking, progress=quiet)
        assert await sources_read_otherwise(asking) == []
        assert await orders(driver) == []
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 404
        last = driver.rows("SELECT outcome, fulfillable FROM revisions ORDER BY seq DESC LIMIT 1")
        assert last == [("not_attempted", 0)]
        await reindex(driver.context, progress=quiet)
        assert await orders(driver) == ["ORD-1"]
