"""The API over HTTP: its answers, what the shop may state, and the feed."""

import asyncio
import json
from hashlib import sha256
from time import monotonic
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from app.context.context import AppContext
from app.orders import read_orders
from app.orders.refold import refold_until_quiet
from reconcile.instants import HOUR, MINUTE, SECOND, format_instant
from tests.api.described import not_as_described
from tests.api.driving import Driver, event, of_order
from tests.reconcile.build import T

TOLD = {"amount": "1500.00", "currency": "KES"}


async def folded(driver: Driver) -> None:
    """Fold until nothing is due. The worker may be folding at the same time."""
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)


async def problem_of(driver: Driver, method: str, path: str, **words: Any) -> tuple[int, str, str]:
    """Return status, code and sentence of a refusal."""
    answer = await driver.api(method, path, **words)
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    return answer.status_code, document["code"], document["detail"]


# --- orders ---------------------------------------------------------------------------------------


async def test_an_order_that_is_unknown_or_was_unknown_as_of_then_is_a_404(driver: Driver) -> None:
    assert (await problem_of(driver, "GET", "/orders/ORD-1"))[:2] == (404, "order_unknown")
    await driver.send(event("e1"))
    before = format_instant(T - SECOND)
    status, code, sentence = await problem_of(driver, "GET", f"/orders/ORD-1?as_of={before}")
    assert (status, code) == (404, "order_unknown")
    assert sentence == (
        f"Nothing is known of order 'ORD-1' as of {before}; evidence arrived later."
    )
    assert (await driver.api("GET", "/orders/ORD-1")).status_code == 200


async def test_as_of_in_any_notation_gives_the_ledger_as_it_was_known_then(driver: Driver) -> None:
    await driver.send(event("e1", "pending"))
    driver.clock.put(T + 20 * SECOND)
    await driver.send(event("e2"))
    assert (await driver.api("GET", "/orders/ORD-1")).json()["outcome"] == "succeeded"
    at = format_instant(T + 10 * SECOND)
    offset = at.replace("Z", "+00:00").replace("10:00:10", "13:00:10").replace("+00", "+03")
    for moment in (at, offset, quote(offset), at.lower()):
        ledger = (await driver.api("GET", f"/orders/ORD-1?as_of={moment}")).json()
        assert (ledger["outcome"], ledger["as_of"]) == ("pending", at)


@pytest.mark.parametrize("moment", ["now", "2026-11-20", "1e9", "2026-02-30T00:00:00Z", "%00"])
async def test_as_of_that_is_no_moment_is_refused(one_driver: Driver, moment: str) -> None:
    status, code, detail = await problem_of(one_driver, "GET", f"/orders/ORD-1?as_of={moment}")
    assert (status, code) == (422, "parameter_invalid")
    assert detail.startswith("as_of")


async def test_the_fingerprint_is_of_all_members_before_it_but_the_instant(driver: Driver) -> None:
    """A client that hashes the members gets the fingerprint; plain texts are no part of it."""
    for _ in range(2):
        await driver.send(event("e1", "pending"))
    found = await driver.api("PUT", "/orders/ORD-1", json=TOLD)
    for answer in (found, await driver.api("GET", "/orders/ORD-1")):
        ledger = answer.json()
        outside = ["fingerprint", "plain", "staff", "fulfilled_at", "canceled_at"]
        outside += ["expected_by", "method_class", "revocable_until"]
        assert list(ledger)[-len(outside) :] == outside
        rest = {name: ledger[name] for name in ledger if name not in ("as_of", *outside)}
        assert [each.pop("plain")[-1:] for each in rest["findings"]] == ["."]
        assert [each.pop("staff") for each in rest["findings"]] == [""]
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert ledger["fingerprint"] == "sha256:" + sha256(text.encode()).hexdigest()


async def test_the_same_put_again_writes_nothing_and_answers_alike(driver: Driver) -> None:
    body = TOLD | {"placed_at": "2026-11-20T09:00:00Z", "fulfilled_at": "2026-11-20T12:00:00+03:00"}
    answers = [(await driver.api("PUT", "/orders/ORD-1", json=body)).json() for _ in range(3)]
    assert len({answer["fingerprint"] for answer in answers}) == 1
    assert driver.rows("SELECT kind FROM records ORDER BY kind") == [
        ("order_fulfilled",),
        ("order_placed",),
    ]


async def test_every_change_that_the_shop_states_is_one_more_record(driver: Driver) -> None:
    first = await driver.api("PUT", "/orders/ORD-1", json=TOLD)
    assert (first.status_code, first.json()["outcome"]) == (200, "not_attempted")
    driver.clock.put(T + SECOND)
    dearer = await driver.api("PUT", "/orders/ORD-1", json=TOLD | {"amount": 1600})
    assert dearer.json()["totals"]["expected"] == {"amount": "1600.00", "currency": "KES"}
    driver.clock.put(T + 2 * SECOND)
    canceled = TOLD | {"amount": 1600.50, "canceled_at": format_instant(T - MINUTE)}
    await driver.api("PUT", "/orders/ORD-1", json=canceled)
    await driver.send(event("e1"))
    ledger = (await driver.api("GET", "/orders/ORD-1")).json()
    codes = {finding["code"] for finding in ledger["findings"]}
    assert {"paid_after_cancel", "amount_mismatch"} <= codes
    assert not ledger["fulfillable"]
    kinds = [row[0] for row in driver.rows("SELECT kind FROM records")]
    assert sorted(kinds) == ["order_canceled", *["order_placed"] * 3]


async def test_an_order_shipped_without_money_has_a_finding(driver: Driver) -> None:
    facts = TOLD | {"fulfilled_at": format_instant(T)}
    ledger = (await driver.api("PUT", "/orders/ORD-1", json=facts)).json()
    assert "fulfilled_but_not_paid" in {finding["code"] for finding in ledger["findings"]}


async def test_one_answer_names_every_mistake_of_a_put_and_nothing_is_written(
    driver: Driver,
) -> None:
    body = {"amount": "15.001", "currency": "KES", "placed_at": 5, "canceled_at": "x", "price": 1}
    status, code, detail = await problem_of(driver, "PUT", "/orders/ORD-1", json=body)
    assert (status, code) == (422, "order_invalid")
    for word in ("price", "decimals", "placed_at", "canceled_at"):
        assert word in detail
    assert (
        "members are amount, currency, free, tenders, placed_at, canceled_at, fulfilled_at, refer"
        in detail
    )
    assert driver.rows("SELECT * FROM records") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"amount": 1, "amount": 2, "currency": "KES"}', 400),
        (b'{"amount": NaN, "currency": "KES"}', 400),
        (b'{"amount": "1", "currency": "KES", "\\ud800": 1}', 422),
        (b'{"\\ud800": 1}', 422),
        ("{}".encode("utf-16"), 400),
        (b"[" * 5_000, 400),
        (b"{}", 422),
        (b'{"amount": true, "currency": "KES"}', 422),
        (b'{"amount": {}, "currency": "KES"}', 422),
        (b'{"amount": "0", "currency": "KES"}', 422),
        (b'{"amount": "-5", "currency": "KES"}', 422),
        (b'{"amount": 9223372036854775807, "currency": "KES"}', 422),
        (b'{"amount": 1e99, "currency": "KES"}', 422),
        (b'{"amount": "1", "currency": "kes"}', 422),
        (b'{"amount": "1", "currency": "\\ud800"}', 422),
        (b'{"amount": "1", "currency": ["KES"]}', 422),
        (b'{"amount": "1", "currency": "KES", "placed_at": "1969-01-01T00:00:00Z"}', 422),
        (b" " * 70_000, 413),
    ],
)
async def test_a_body_that_cannot_be_understood_is_refused_and_the_service_goes_on(
    one_driver: Driver, body: bytes, status: int
) -> None:
    assert (await problem_of(one_driver, "PUT", "/orders/ORD-1", content=body))[0] == status
    assert one_driver.rows("SELECT * FROM records") == []
    assert await one_driver.ready()


REFERENCES = ["ORD-1", "2026/11/0042", "a b", "é/注文", "100%", "a?b#c", "a//b/", "x" * 200,
              "'; DROP TABLE orders --", "openapi.json", "a+b", "%2F"]  # fmt: skip


async def test_an_order_is_found_under_any_reference_however_its_path_is_escaped(
    driver: Driver,
) -> None:
    for number, reference in enumerate(REFERENCES):
        path = f"/orders/{quote(reference, safe='')}"
        assert (await driver.api("PUT", path, json=TOLD)).json()["order"] == reference
        await driver.send(of_order(reference, f"e{number}"))
        ledger = (await driver.api("GET", path)).json()
        assert (ledger["order"], ledger["outcome"]) == (reference, "succeeded")
    keys = driver.rows("SELECT DISTINCT order_key FROM records")
    assert sorted(keys) == sorted((each,) for each in REFERENCES)


async def test_a_reference_that_no_order_can_have_is_refused(one_driver: Driver) -> None:
    no_utf_8 = ("%FF", "A%C3", "%ED%A0%80")
    for reference in ("", "x" * 201, "a%00", "%0A", "%C2%85", *no_utf_8):
        for method in ("GET", "PUT"):
            found = await problem_of(one_driver, method, f"/orders/{reference}", json=TOLD)
            assert found[:2] == (422, "reference_invalid"), reference


# --- listing --------------------------------------------------------------------------------------


async def test_orders_are_listed_in_key_order_by_outcome_by_finding_and_in_pages(
    driver: Driver,
) -> None:
    for name in "CABD":
        await driver.send(of_order(f"O-{name}", f"p-{name}", "pending"))
    for name in "AC":
        for _ in range(2):
            await driver.send(of_order(f"O-{name}", f"s-{name}"))
    await folded(driver)

    async def listed(query: str) -> tuple[str, str | None]:
        page = (await driver.api("GET", f"/orders{query}")).json()
        return "".join(each["order"][-1] for each in page["orders"]), page["next"]

    assert await listed("") == ("ABCD", None)
    assert await listed("?outcome=succeeded") == ("AC", None)
    assert await listed("?outcome=pending") == ("BD", None)
    assert await listed("?finding=redelivered") == ("AC", None)
    assert await listed("?finding=paid_twice") == ("", None)
    assert await listed("?limit=2") == ("AB", "O-B")
    assert await listed("?limit=2&after=O-B") == ("CD", "O-D")
    assert await listed("?limit=2&after=O-D") == ("", None)
    assert await listed("?outcome=succeeded&after=O-A") == ("C", None)


async def test_orders_are_listed_by_when_a_change_was_published(driver: Driver) -> None:
    for number, name in enumerate("ABC"):
        driver.clock.put(T + number * HOUR)
        await driver.send(of_order(f"O-{name}", f"p-{name}"))
        await folded(driver)
    driver.clock.put(T + 4 * HOUR)
    await driver.send(of_order("O-A", "s-A", "disputed"))
    await folded(driver)

    async def listed(**words: Any) -> str:
        page = (await driver.api("GET", "/orders", params=words)).json()
        return "".join(each["order"][-1] for each in page["orders"])

    at = [format_instant(T + number * HOUR) for number in range(6)]
    assert await listed(**{"from": at[0]}) == "ABC"
    assert await listed(**{"from": at[1]}) == "ABC"  # A was published again, at the end
    assert await listed(**{"from": at[1], "to": at[2]}) == "B"
    assert await listed(to=at[1]) == "A"
    assert await listed(**{"from": at[2], "limit": 1, "after": "O-A"}) == "C"
    assert await listed(**{"from": at[4], "outcome": "succeeded"}) == ""
    assert await listed(**{"from": at[5]}) == ""


async def test_an_order_that_the_client_has_already_is_not_sent_again(driver: Driver) -> None:
    await driver.send(event("e1"))
    first = await driver.api("GET", "/orders/ORD-1")
    tag = first.headers["etag"]

    async def asked(*tags: str, query: str = "", method: str = "GET") -> httpx2.Response:
        bearer = ("Authorization", f"Bearer {driver.token}")
        headers = [bearer, *(("If-None-Match", each) for each in tags)]
        path = f"/api/v1/orders/ORD-1{query}"
        return await driver.client.request(method, path, headers=headers)

    driver.clock.put(T + SECOND)
    for tags in ((tag,), (tag.removeprefix("W/"),), ("*",), ('"a"', tag), (f'"a", {tag}',)):
        for method in ("GET", "HEAD"):
            known = await asked(*tags, method=method)
            assert (known.status_code, known.content) == (304, b""), tags
            assert known.headers["etag"] == tag
            assert method == "HEAD" or not_as_described(known) == []
    other = await asked('"a"')
    assert (other.status_code, other.headers["etag"]) == (200, tag)
    assert other.json()["as_of"] != first.json()["as_of"]
    assert (await asked("*", query="?as_of=2026-01-01T00:00:00Z")).status_code == 404
    await driver.send(event("e1"))  # again: a finding
    changed = await asked(tag)
    assert (changed.status_code, changed.headers["etag"] == tag) == (200, False)


async def test_the_tag_is_of_what_the_fingerprint_leaves_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a delivery waits to be read, the tag changes and the order is not fulfillable."""
    await driver.send(event("e1"))
    first = await driver.api("GET", "/orders/ORD-1")

    async def behind(context: AppContext, **words: Any) -> int:
        return 3

    monkeypatch.setattr(read_orders, "behind_s", behind)
    headers = {"If-None-Match": first.headers["etag"], "Authorization": f"Bearer {driver.token}"}
    then = await driver.client.get("/api/v1/orders/ORD-1", headers=headers)
    assert then.status_code == 200
    assert (then.json()["fingerprint"], then.json()["fulfillable"]) == (
        first.json()["fingerprint"],
        False,
    )
    assert not_as_described(then) == []
    headers["If-None-Match"] = then.headers["etag"]
    again = await driver.client.get("/api/v1/orders/ORD-1", headers=headers)
    assert (again.status_code, again.headers["tallyhook-behind"]) == (304, "3")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/orders", ["outcome", "finding", "from", "to", "after", "limit"]),
        ("/orders/ORD-1", ["as_of"]),
        ("/outcomes", ["after", "limit", "wait"]),
    ],
)
async def test_a_parameter_without_a_value_counts_as_not_given(
    driver: Driver, path: str, names: list[str]
) -> None:
    await driver.send(event("e1"))
    await folded(driver)
    bare = await driver.api("GET", path)
    for query in (*(f"{name}=" for name in names), "&".join(f"{name}=" for name in names)):
        answer = await driver.api("GET", f"{path}?{query}")
        assert (answer.status_code, answer.text) == (200, bare.text), query


@pytest.mark.parametrize(
    "query",
    [
        "/orders?outcome=paid",
        "/orders?finding=x",
        "/orders?from=yesterday",
        "/orders?to=2026-13-01T00:00:00Z",
        "/orders?limit=0",
        "/orders?limit=1001",
        "/orders?limit=-1",
        "/orders?limit=%D9%A3",
        "/orders?limit=" + "9" * 5_000,
        "/outcomes?after=-1",
        "/outcomes?after=x",
        "/outcomes?after=9223372036854775808",
        "/outcomes?wait=61",
        "/outcomes?after=99&wait=61",
        "/orders?from=1969-12-31T00:00:00Z",
        "/outcomes?wait=1.5",
    ],
)
async def test_a_parameter_outside_its_words_or_bounds_is_refused(
    one_driver: Driver, query: str
) -> None:
    assert (await problem_of(one_driver, "GET", query))[:2] == (422, "parameter_invalid")


@pytest.mark.parametrize("path", ["/orders", "/outcomes", "/orders/ORD-1", "/openapi.json"])
async def test_an_unknown_parameter_is_refused(one_driver: Driver, path: str) -> None:
    found = await problem_of(one_driver, "GET", f"{path}?outcom=succeeded")
    assert found[:2] == (422, "parameter_unknown")


# --- the feed -------------------------------------------------------------------------------------


async def test_the_feed_is_gap_free_in_pages_of_any_size(driver: Driver) -> None:
    for number in range(5):
        await driver.send(of_order(f"O-{number}", f"e{number}", "pending"))
    await folded(driver)
    for number in range(3):
        await driver.send(of_order(f"O-{number}", f"s{number}"))
    await folded(driver)
    found: list[dict[str, Any]] = []
    cursor = 0
    while True:
        page = (await driver.api("GET", f"/outcomes?after={cursor}&limit=3")).json()
        found += page["outcomes"]
        if not page["outcomes"]:
            break
        cursor = page["cursor"]
    assert [each["id"] for each in found] == list(range(1, 9))
    assert cursor == 8
    assert found == (await driver.api("GET", "/outcomes")).json()["outcomes"]
    last = found[-1]
    assert (last["outcome"], last["fulfillable"]) == ("succeeded", True)
    assert last["before"] == {"outcome": "pending", "fulfillable": False}
    assert set(last) == {
        "id", "order", "outcome", "fulfillable", "before", "because", "at", "fulfilled_at",
        "canceled_at", "expected_by", "method_class", "revocable_until",
    }  # fmt: skip


async def test_a_client_that_waits_gets_the_next_change_soon_after_it_is_made(
    driver: Driver,
) -> None:
    await driver.api("GET", "/outcomes")
    waiting = asyncio.create_task(driver.api("GET", "/outcomes?wait=30"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    began = monotonic()
    await driver.send(event("e1"))
    (change,) = (await waiting).json()["outcomes"]
    assert (change["id"], change["outcome"]) == (1, "succeeded")
    assert monotonic() - began < 30, "only when its wait was over"


@pytest.mark.slow
async def test_a_wait_without_a_change_ends_in_time_and_keeps_the_cursor(driver: Driver) -> None:
    began = monotonic()
    page = (await driver.api("GET", "/outcomes?after=0&wait=1")).json()
    assert page == {"outcomes": [], "cursor": 0}
    assert monotonic() - began > 0.9


# --- the worker -----------------------------------------------------------------------------------


async def test_a_deadline_that_passes_is_published_without_any_event(driver: Driver) -> None:
    await driver.send(event("e1", "pending"))
    first = (await driver.api("GET", "/outcomes?wait=60")).json()
    assert [each["outcome"] for each in first["outcomes"]] == ["pending"]
    driver.clock.put(T + 35 * MINUTE)
    then = (await driver.api("GET", "/outcomes?after=1&wait=60")).json()
    assert [each["outcome"] for each in then["outcomes"]] == ["timed_out"]
    assert (await driver.api("GET", "/orders?outcome=timed_out")).json()["orders"]


# --- the description ------------------------------------------------------------------------------


async def test_the_description_names_every_route_and_needs_no_token(driver: Driver) -> None:
    document = (await driver.client.get("/api/v1/openapi.json")).json()
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if method in ("get", "put", "post", "delete", "patch")
    }
    routes = await driver.routes()
    there = {
        (method, route.path.replace(":path}", "}"))
        for route in routes
        for method in route.methods or ()
        if route.path.startswith("/api/") and method != "HEAD"
    }
    assert described == there - {("GET", "/api/v1/openapi.json")}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/nothing", 404),
        ("POST", "/webhooks", 404),
        ("POST", "/api/v1/orders/A", 405),
        ("DELETE", "/api/v1/orders", 405),
        ("POST", "/livez", 405),
        ("PUT", "/metrics", 405),
    ],
)
async def test_unknown_addresses_and_methods_are_problems(
    one_driver: Driver, method: str, path: str, status: int
) -> None:
    answer = await one_driver.client.request(method, path)
    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_money_in_answers_is_exact_decimal_text(driver: Driver) -> None:
    amount = "92233720368547758.07"
    await driver.api("PUT", "/orders/ORD-1", json={"amount": amount, "currency": "KES"})
    text = (await driver.api("GET", "/orders/ORD-1")).text
    floats: list[str] = []
    ledger = json.loads(text, parse_float=floats.append)
    assert floats == []
    assert ledger["totals"]["expected"] == {"amount": amount, "currency": "KES"}
