"""The API's description is true: every operation's answer matches its schema, with nothing
extra."""

import json
import re
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openapi_spec_validator import validate

from app.access.operators import Proven
from app.access.tokens import TOKEN_SCOPES, issue_token
from app.api import evidence_routes, finance_routes, report_routes
from app.api.openapi import api_document
from app.core.errors import NotFoundError
from app.core.problems import TYPE, problem_body
from app.evidence.bundle import BundleRequest
from app.finance import closed_periods
from app.finance.match_rules import rules_document, save_rules
from app.finance.period_store import Closed, add_closing
from app.finance.verify_periods import VerifiedPeriods, VerifiedStepDocument
from app.orders.customers import UnmaskRequest, propose_unmasking, unmasking_kind
from app.orders.notify_shop import notification_body
from app.orders.published_store import Published
from app.orders.refold import refold_until_quiet
from app.orders.shop_facts_store import ShopFacts
from reconcile.instants import SECOND, Instant, format_instant
from reconcile.ledger.explain import ledger_document, ledger_summary, window_document
from reconcile.ledger.ledger import NO_WINDOW
from reconcile.ledger.plain import with_plain
from tests.api.described import (
    API_DOCUMENT,
    SCHEMAS,
    faults,
    not_as_described,
    operation_of,
    operations,
)
from tests.api.driving import Driver, event, of_order
from tests.api.test_checkouts import ASKED, shop
from tests.api.test_deciding import People
from tests.api.test_finance import keep_books
from tests.api.test_log_routes import Desk, desk_in
from tests.checkout.service import opened
from tests.contexts import stand_in
from tests.database.contract_closing import OCTOBER
from tests.database.contract_gaps import accept_gap
from tests.reconcile.build import T
from tests.reconcile.test_golden import LEDGERS


def test_it_is_valid_and_says_what_a_maker_of_clients_needs() -> None:
    """It is valid OpenAPI; each operation has a unique id, a tag and a summary."""
    validate(json.loads(json.dumps(api_document(page_max=50, longpoll_max_s=5))))
    tags = {each["name"] for each in API_DOCUMENT["tags"]}
    assert all(set(each["tags"]) <= tags and each["summary"] for each in operations().values())
    identities = [each["operationId"] for each in operations().values()]
    assert len(identities) == len(set(identities)) == len(operations())


def test_an_instance_tells_its_own_limits() -> None:
    paths = api_document(page_max=50, longpoll_max_s=5)["paths"]
    of_feed = {
        each["name"]: each["schema"] for each in paths["/api/v1/outcomes"]["get"]["parameters"]
    }
    assert (of_feed["limit"]["maximum"], of_feed["limit"]["default"]) == (50, 50)
    assert of_feed["wait"]["maximum"] == 5


def test_what_a_parameter_may_be_is_what_it_says() -> None:
    """Moments, words and numbers have bounds; an empty value is allowed, as forms send it."""
    given = {each["name"]: each for each in operations()["GET", "/api/v1/orders"]["parameters"]}
    assert all(each["allowEmptyValue"] for each in given.values())
    for name, allowed, refused in (
        ("from", "2026-10-05T14:30:00Z", "0601-04-25T09:45:00Z"),
        ("to", "1970-01-01T00:00:00Z", "yesterday"),
        ("outcome", "succeeded", "Succeeded"),
        ("limit", 1_000, 1_001),
    ):
        assert faults(given[name]["schema"], allowed) == []
        assert faults(given[name]["schema"], refused) != [], (name, refused)


def _media(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every `schema` with its `example`."""
    if isinstance(value, dict):
        if "schema" in value and "example" in value:
            yield value
        for each in value.values():
            yield from _media(each)
    elif isinstance(value, list):
        for each in value:
            yield from _media(each)


def test_examples_are_what_their_schemas_allow() -> None:
    given = list(_media({name: API_DOCUMENT[name] for name in ("paths", "webhooks")}))
    assert len(given) > 30
    for each in given:
        assert faults(each["schema"], each["example"]) == [], each["schema"]


def _open_objects(schema: Any, where: str) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and not (
            "properties" in schema or schema.get("additionalProperties")
        ):
            yield where
        for name, each in schema.items():
            yield from _open_objects(each, f"{where}.{name}")
    elif isinstance(schema, list):
        for each in schema:
            yield from _open_objects(each, where)


def test_no_object_is_left_open() -> None:
    """Its members are named, or it allows any."""
    assert list(_open_objects(dict(SCHEMAS), "")) == []


STATED: dict[str, Any] = {
    **ShopFacts(fulfilled_at="unknown").document(),
    **window_document(NO_WINDOW),
}


def test_every_ledger_there_is_an_example_of_is_as_described() -> None:
    """The ledgers have refunds, disputes, several attempts and currencies."""
    for make in LEDGERS:
        ledger = make()
        document = with_plain(ledger_document(ledger), ledger) | STATED
        assert faults(SCHEMAS["Ledger"], document) == [], make
        row = ledger_summary(ledger) | {"staff": document["staff"]} | STATED
        assert faults(SCHEMAS["OrderRow"], row) == [], make


def test_a_member_that_is_not_described_is_found() -> None:
    ledger = LEDGERS[0]()
    document: Any = with_plain(ledger_document(ledger), ledger) | STATED
    document["totals"]["expected"]["tax"] = "1"
    assert any("tax" in each for each in faults(SCHEMAS["Ledger"], document | {}))
    assert faults(SCHEMAS["Ledger"], {**document, "more": 1})


def test_what_else_is_answered_is_as_described() -> None:
    """These are a notification, a closed month, unsaved rules, and every problem."""
    published = Published(
        seq=1, order="ORD-1", at=T, outcome="succeeded", fulfillable=True,
        before_outcome="pending", before_fulfillable=False, because=("Paid.",),
    )  # fmt: skip
    body = json.loads(notification_body(published, ShopFacts(fulfilled_at=T)))
    assert faults(SCHEMAS["Notification"], body) == []
    month = Closed(
        period="2026-10", version=1, as_of=T, closed_at=T, by="ann", digest="sha256:" + "5f" * 32
    )
    assert faults(SCHEMAS["Period"], month.document()) == []
    assert faults(SCHEMAS["Rules"], rules_document(None)) == []
    body = json.loads(problem_body(404, "order_unknown", "Nothing."))
    assert body["type"] == f"{TYPE}order_unknown"
    assert faults(SCHEMAS["Problem"], body) == []


class _Asking:
    """A client with a token of every scope that checks each answer against the description."""

    def __init__(self, driver: Driver, token: str) -> None:
        self._driver = driver
        self._bearer = {"Authorization": f"Bearer {token}"}
        self.seen: set[str] = set()

    async def ask(
        self, path: str, status: int | None = 200, method: str = "GET", **words: Any
    ) -> Any:
        """Return the document answered with this status; None allows any success."""
        answer = await self._driver.client.request(
            method, f"/api/v1/{path}", headers=self._bearer, **words
        )
        good = answer.status_code < 300 if status is None else answer.status_code == status
        assert good, (path, answer.text)
        return self.held(answer).json()

    def held(self, answer: httpx2.Response) -> httpx2.Response:
        """Return the answer after checking it against the description."""
        request = answer.request
        assert not_as_described(answer) == [], (request.method, request.url.path, answer.text)
        if answer.status_code < 300:
            self.seen.add(operation_of(request.method, request.url.path)["operationId"])
        return answer


async def _orders(asking: _Asking, driver: Driver) -> None:
    await driver.send(of_order("ORD-7", "evt_7", "declined"))
    await driver.send(of_order("ORD-7", "evt_8", "disputed"))
    facts = {"amount": "9.00", "currency": "KES", "placed_at": format_instant(T)}
    references = [{"source": "shop", "payment": "pay-own"}]
    await asking.ask("orders/ORD-8", method="PUT", json={**facts, "references": references})
    refused = await asking.ask(
        "orders/ORD-9", 409, method="PUT", json={**facts, "references": references}
    )
    assert refused["order"] == "ORD-8"
    for status, body in ((422, {}), (400, [])):
        await asking.ask("orders/ORD-9", status, method="PUT", json=body)
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    listed = (await asking.ask("orders"))["orders"]
    assert len(listed) >= 3
    for each in listed:
        await asking.ask(f"orders/{each['order']}")
    await asking.ask("orders/nobody", 404)
    await asking.ask("orders?limit=0", 422)
    assert (await asking.ask("outcomes?wait=60"))["outcomes"]
    await asking.ask("outcomes?after=99999", 410)


PERIOD = "from=2019-12-01&to=2019-12-31&as_of=2020-01-01T00:00:00Z"
"""A period before all data. It is reported in another process, which has the machine's clock."""


async def _finance(asking: _Asking) -> None:
    for path, name, one in (
        ("records/lines", "lines", ""), ("records/imports", "imports", ""),
        ("statement/lines", "lines", ""), ("statement/imports", "imports", ""),
        ("bank/lines", "lines", "line"), ("bank/imports", "imports", ""),
        ("runs", "runs", "run"), ("breaks", "breaks", "id"), ("late?all=true", "late", ""),
        ("periods", "periods", "period"), ("schedule", "entries", ""),
    ):  # fmt: skip
        listed = (await asking.ask(path))[name]
        assert listed, path
        for each in listed if one else ():
            await asking.ask(f"{path}/{each[one]}")
    await asking.ask("rules")
    made = {}
    for path in (
        f"reports?{PERIOD}", f"journals?{PERIOD}", "periods/verification",
        "periods/2026-10/verification", "periods/2026-10/journal",
    ):  # fmt: skip
        while (answer := await asking.ask(path, None)).get("state") == "under_way":
            pass
        made[path] = answer
    assert made[f"reports?{PERIOD}"]["to"] == "2020-01-01T00:00:00Z"
    assert made[f"journals?{PERIOD}"]["transactions"] == []
    rules = {"toml": '[tolerance]\nKES = "100.00"\n'}
    assert (await asking.ask("rules/preview", method="POST", json=rules))["changes"]
    for status, body in ((422, {"toml": "x"}), (422, {}), (400, [])):
        await asking.ask("rules/preview", status, method="POST", json=body)
    for path in ("reports", "journals"):
        await asking.ask(f"{path}?from=x&to=2019-12-31", 422)
    for path in ("runs/x", "breaks/x", "bank/lines/x", "periods/2020-01",
                 "periods/2020-01/journal", "periods/2020-01/verification"):  # fmt: skip
        await asking.ask(path, 404)


async def _cases(asking: _Asking) -> None:
    for path in ("cases", "letters", "attachments"):
        await asking.ask(f"{path}/ORD-7")
        await asking.ask(f"{path}/nobody", 404)
    await asking.ask("cases/ORD-7?family=fraud&respond_by=2026-12-24T10:00:00Z")
    await asking.ask("letters/ORD-7?family=none", 422)


async def _checkout(asking: _Asking) -> None:
    path = "checkout/sessions"
    await asking.ask(path, 201, method="POST", json=ASKED)
    await asking.ask(path, method="POST", json=ASKED)
    other = ASKED | {"order": ASKED["order"] | {"amount": "1"}}
    for status, body in ((409, other), (422, {}), (422, {"more": 1}), (400, [])):
        await asking.ask(path, status, method="POST", json=body)
    again = await asking.ask(path, 409, method="POST", json=ASKED | {"new_payment": True})
    assert again["code"] == "payment_not_over"


async def _proposals(asking: _Asking, driver: Driver) -> People:
    people = People(driver)
    await people.begin()
    for who, method, path, status in (
        ("Ben", "GET", "", 200), ("Ben", "GET", f"/{people.proposal}", 200),
        ("Ben", "GET", "/none", 404), ("Vic", "GET", "", 403), ("Ben", "GET", "?limits=1", 422),
        ("Ben", "POST", f"/{people.proposal}/reject", 422),
    ):  # fmt: skip
        words: dict[str, Any] = {"json": {}} if method == "POST" else {}
        answer = asking.held(await people.ask(who, method, path, **words))
        assert answer.status_code == status, answer.text
    for who, what, status in (
        ("Sue", "approve", 403), ("Ann", "approve", 409), ("Ben", "approve", 200),
        ("Ben", "reject", 409),
    ):  # fmt: skip
        assert asking.held(await people.decide(who, what)).status_code == status
    for who, what in (("Ben", "reject"), ("Ann", "withdraw")):
        driver.clock.put(Instant(driver.clock.now() + SECOND))
        other = await save_rules(driver.context, f"# {what}\n", by=Proven("Ann"), reason="clearer")
        people.proposal = getattr(other, "id", "")
        assert asking.held(await people.decide(who, what)).status_code == 200
    async with driver.context.database.writing() as connection:
        await add_closing(connection, OCTOBER, prints={})
    for month, status in (("2026-10", 202), ("2026-10", 409), ("2026-09", 409)):
        path, words = f"periods/{month}/reopen", {"json": {"reason": "a file is missing"}}
        assert asking.held(await people.to("Ann", "POST", path, **words)).status_code == status
    assert asking.held(await people.to("Sue", "POST", path, **words)).status_code == 403
    kind = unmasking_kind(driver.context)
    asked = UnmaskRequest(orders=["ORD-1"], purpose="refund", reason="it came", by=Proven("Sue"))
    people.proposal = (await propose_unmasking(driver.context, kind, asked)).id
    numbers = f"/{people.proposal}/numbers"
    assert asking.held(await people.ask("Sue", "POST", numbers)).status_code == 409
    assert asking.held(await people.decide("Sam", "approve")).status_code == 200
    assert asking.held(await people.ask("Sue", "POST", numbers)).status_code == 200
    return people


async def _unallocated(asking: _Asking, people: People) -> None:
    """Make two unallocated payments; one is assigned, and one is dismissed."""
    orderless: dict[str, Any] = {"order": None, "session": None}
    for number in (1, 2):
        paid = {"reference": f"till-{number}", "amount": 1}
        await people.driver.send(event(f"till_{number}", payment=paid, **orderless))
    found = asking.held(await people.to("Sue", "GET", "unallocated?limit=1&all=true")).json()
    [first] = found["payments"]
    assert (first["id"], found["next"] is None) == ("shop:till-1", False)
    assign, dismiss = (f"unallocated/{first['id']}/{act}" for act in ("assign", "dismiss"))
    asked, rent = {"order": "ORD-1", "reason": "x"}, {"as": "to_refund", "reason": "x"}
    for who, path, status, body in (
        ("Vic", assign, 403, asked), ("Ben", assign, 422, {}), ("Ben", assign, 409, asked | {
            "replaces": "rec_9"}), ("Ben", assign, 404, asked | {"order": "none"}),
        ("Sue", assign, 202, asked), ("Ben", assign, 409, asked),
        ("Ben", dismiss, 422, {"as": "a gift", "reason": "x"}), ("Sue", dismiss, 202, rent),
        ("Ben", "unallocated/none/dismiss", 404, rent),
    ):  # fmt: skip
        answer = asking.held(await people.to(who, "POST", path, json=body))
        assert answer.status_code == status, (path, answer.text)
    for query, who, status in (("?after=x", "Ben", 422), ("", "Vic", 403)):
        answer = asking.held(await people.to(who, "GET", f"unallocated{query}"))
        assert answer.status_code == status


async def _held(asking: _Asking, people: People) -> None:
    """Have an order held for an accepted gap, until finance releases it."""
    await accept_gap(people.driver.context, since=2, until=8, at=9)
    held, because = "orders/ORD-1/release?held_for=gap_accepted", {"reason": "looked up"}
    for who, path, status, body in (
        ("Sue", held, 403, because), ("Ben", held, 422, {}),
        ("Ben", "orders/ORD-1/release", 422, because),
        ("Ben", held, 422, {"reason": "she is on +254 712 345 678"}),
        ("Ben", held.replace("ORD-1", "none"), 404, because),
        ("Ben", held, 200, because), ("Ben", held, 404, because),
    ):  # fmt: skip
        answer = asking.held(await people.to(who, "POST", path, json=body))
        assert answer.status_code == status, (path, answer.text)
    trail = people.driver.rows("SELECT who, reason FROM audit WHERE action='orders_released'")
    assert trail == [("Ben", "looked up")]


async def _logs(asking: _Asking, desk: Desk) -> None:
    for path, name, one in (
        ("deliveries", "deliveries", "delivery"),
        ("notifications",) * 2 + ("",),
    ):
        listed = asking.held(await desk.ask("Sue", path)).json()[name]
        for each in listed if one else ():
            asking.held(await desk.ask("Sue", f"{path}/{each[one]}"))
    again: dict[str, Any] = {"method": "POST", "json": {"reason": "it was down"}}
    asking.held(await desk.ask("Sue", "notifications/1/redeliver", **again))
    asking.held(await desk.ask("Vic", "log/witnesses"))
    asking.held(await desk.ask("Sue", "evidence/ORD-1"))


async def _misspelled(asking: _Asking) -> None:
    """Check that every operation refuses an unknown or repeated parameter and names the known ones;
    `operator` operations need a person's token."""
    for (method, path), described in operations().items():
        if described["security"] == [{"bearer": ["operator"]}]:
            continue
        address = re.sub(r"\{\w+\}", "ORD-1", path).removeprefix("/api/v1/")
        refused = await asking.ask(f"{address}?limits=1", 422, method=method)
        assert refused["code"] == "parameter_unknown"
        takes = [each["name"] for each in described["parameters"] if each["in"] == "query"]
        assert "'limits'" in refused["detail"]
        assert (", ".join(takes) if takes else "this address takes no parameters") in refused[
            "detail"
        ]
        for name in takes:
            twice = await asking.ask(f"{address}?{name}=1&{name}=1", 422, method=method)
            assert twice["code"] == "parameter_invalid"


async def _one_step(period: str | None) -> list[VerifiedStepDocument]:
    """Replace the verification of a month that nobody closed."""
    found = VerifiedPeriods(
        period="2026-10", version=1, step="chain", passed=True, sentence="It is."
    )
    return [found.document()]


async def test_every_operation_answers_as_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation succeeds once and refuses once; none is left out."""

    async def closed_report(_: Any, period: str, *_more: Any, **_words: Any) -> bytes:
        if period != "2026-10":
            raise NotFoundError(period)
        return b'{"period": "2026-10"}'

    async def closed_journal(
        _: Any, period: str, form: Any, **_words: Any
    ) -> AsyncGenerator[bytes]:
        await closed_report(None, period)
        empty = {"kind": "payments journal", "basis": "captured", "environment": "sandbox"}
        ends = dict.fromkeys(("from", "to", "as_of"), format_instant(T))
        yield json.dumps(empty | ends | {"transactions": [], "count": 0, "totals": []}).encode()

    async def all_closed(context: Any) -> list[Closed]:
        return [
            Closed(period="2026-10", version=1, as_of=T, closed_at=T, by="ann", digest="sha256:0")
        ]

    async def bundle(asked: BundleRequest, file: Path) -> None:
        file.write_bytes(b"PK")  # noqa: ASYNC240

    stand_in(monkeypatch, evidence_routes._build, bundle)
    stand_in(monkeypatch, report_routes._verification, _one_step)
    monkeypatch.setattr(closed_periods, "closed_report", closed_report)
    monkeypatch.setattr(finance_routes, "closed_journal", closed_journal)
    for module in (closed_periods, report_routes):
        monkeypatch.setattr(module, "list_closed", all_closed)
    settings = {"SCHEDULE": "nightly | 30 2 * * * | reconcile"}
    async with shop(tmp_path, opened(), **settings) as (driver, _):
        # Elsewhere the machine's clock would be read.
        preview = partial(report_routes._preview, driver.context)
        stand_in(monkeypatch, report_routes._preview, preview)
        token = await issue_token(driver.context, name="all", scopes=TOKEN_SCOPES)
        asking = _Asking(driver, token)
        await _checkout(asking)
        await keep_books(driver, tmp_path, monkeypatch)
        await _orders(asking, driver)
        people = await _proposals(asking, driver)
        await _unallocated(asking, people)
        await _held(asking, people)
        await _finance(asking)
        await _cases(asking)
        unheard = _Asking(driver, "none")
        for method, path in operations():
            address = re.sub(r"\{\w+\}", "x", path).removeprefix("/api/v1/")
            assert (await unheard.ask(address, 401, method=method))["code"] == "token_invalid"
        await _misspelled(asking)
    (tmp_path / "logs").mkdir()
    async with desk_in(tmp_path / "logs") as desk:
        await _logs(asking, desk)
    assert asking.seen == {each["operationId"] for each in operations().values()}
