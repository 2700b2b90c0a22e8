"""Every route of the application requires a token in force, except those that are named here."""

import asyncio
import json
import re
from io import StringIO
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.operators import ROLES, register_operator
from app.access.tokens import TOKEN_SCOPES, issue_own_token, issue_token, withdraw_token
from app.api.operations import ApiRoute
from app.core.errors import StoreUnavailable
from reconcile.instants import HOUR, TICK, format_instant
from tests.api.driving import Driver, event
from tests.contexts import run_here
from tests.reconcile.build import T

TOLD = {"amount": "1500.00", "currency": "KES"}

PUBLIC = {
    "/webhooks/{source}",  # by its signature
    "/webhooks/{source}/",
    "/livez",
    "/readyz",
    "/metrics",
    "/api/v1/openapi.json",
}
"""Routes that anyone may use without a token. All others need one."""

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


async def guarded(driver: Driver) -> list[tuple[str, str]]:
    """Return the method and address of every route that is not public."""
    found = []
    for route in await driver.routes():
        assert isinstance(route, Route), "what holds routes of its own must be looked into"
        address = re.sub(r"\{[^}]*\}", "ORD-1", route.path)
        methods = set() if route.path in PUBLIC else route.methods or METHODS
        found += [(method, address) for method in sorted(methods)]
    return found


async def not_refused(driver: Driver, headers: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the guarded routes that do not refuse these headers like a token that is not in
    force."""
    return [
        (method, address)
        for method, address in await guarded(driver)
        if not refuses(
            await driver.client.request(method, address, headers=headers, json=TOLD), method
        )
    ]


def refuses(answer: httpx2.Response, method: str) -> bool:
    """Return whether it is the answer to a request without a token in force; HEAD's has no body."""
    found = (answer.headers.get("www-authenticate"), answer.headers.get("content-type"))
    if answer.status_code != 401 or found != ("Bearer", "application/problem+json"):
        return False
    return method == "HEAD" or bool(answer.json()["code"] == "token_invalid")


async def test_without_a_token_in_force(driver: Driver) -> None:
    """Missing, wrong, revoked and other schemes' tokens are refused alike on every route not named
    as public here."""
    await driver.api("PUT", "/orders/ORD-1", json=TOLD)
    token = driver.token
    wrong: list[dict[str, Any]] = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Basic {token}"},
        {"Authorization": token},
        {"Authorization": b"Bearer \xff\xfe"},
    ]
    for headers in wrong:
        assert await not_refused(driver, headers) == []
    good = {"Authorization": f"Bearer {token}"}
    assert await not_refused(driver, good) == await guarded(driver)
    await withdraw_token(driver.context, name="shop")
    assert await not_refused(driver, good) == []
    paths = {route.path for route in await driver.routes() if isinstance(route, Route)}
    assert paths > PUBLIC, "what is public is there"
    assert len(await guarded(driver)) >= 8


async def scoped(driver: Driver) -> list[tuple[str, str, str]]:
    """Return the method, address and scope of every API route, as the router has them."""
    return [
        (method, re.sub(r"\{[^}]*\}", "ORD-1", route.path), scope)
        for route in await driver.routes()
        if isinstance(route, ApiRoute)
        for method, scope in sorted(route.scopes.items())
    ]


async def test_every_route_asks_for_its_scope(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope opens its own routes only; a refusal names the scope that would."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("no process is started for this")

    run_here(monkeypatch, refuse)
    routes = await scoped(driver)
    assert {(method, path) for method, path, _ in routes} == set(await guarded(driver))
    for scope in TOKEN_SCOPES:
        token = await issue_token(driver.context, name=f"only-{scope}", scopes=[scope])
        bearer = {"Authorization": f"Bearer {token}"}
        for method, path, needed in routes:
            answer = await driver.client.request(method, path, headers=bearer, json=TOLD)
            assert (answer.status_code == 403) == (needed != scope), (method, path, scope)
            if answer.status_code == 403 and method != "HEAD":
                refused = answer.json()
                assert answer.headers["content-type"] == "application/problem+json"
                assert (refused["code"], refused["scope"]) == ("scope_missing", needed)
                way = f"--scope {needed}" if needed in TOKEN_SCOPES else "operators token"
                assert way in refused["detail"]
            if answer.status_code == 403:
                asked = answer.headers["www-authenticate"]
                assert asked == f'Bearer error="insufficient_scope", scope="{needed}"'
    assert driver.rows("SELECT COUNT(*) FROM records WHERE kind='order_placed'") == [(1,)]


async def test_the_banks_lines_are_for_finance(driver: Driver) -> None:
    """A program's token needs that scope, which none has by default; a person's own needs the
    role."""
    context = driver.context

    async def asks(token: str) -> tuple[int, str]:
        bearer = {"Authorization": f"Bearer {token}"}
        answer = await driver.client.get("/api/v1/bank/lines", headers=bearer)
        return answer.status_code, answer.json().get("detail", "")

    assert (await asks(await issue_token(context, name="plain")))[0] == 403
    named = await issue_token(context, name="books", scopes=["finance"])
    assert (await asks(named))[0] == 200
    for role in sorted(ROLES):  # the first of them an admin
        await register_operator(context, name=f"a {role}", role=role, by="a admin")
        own, _ = await issue_own_token(context, operator=f"a {role}", until="1h", by="a admin")
        status, said = await asks(own)
        assert status == (200 if role in ("admin", "finance") else 403), role
        assert status == 200 or f"a {role} has the role {role}" in said
        orders = await driver.client.get(
            "/api/v1/orders", headers={"Authorization": f"Bearer {own}"}
        )
        assert orders.status_code == 200


async def test_the_description_names_the_scopes(driver: Driver) -> None:
    """Each operation states the router's scope and the answer without it."""
    document = (await driver.client.get("/api/v1/openapi.json")).json()
    described = {
        (method.upper(), path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in ("get", "put", "post", "delete", "patch")
    }
    for route in await driver.routes():
        if not isinstance(route, ApiRoute):
            continue
        for method, scope in route.scopes.items():
            if method != "HEAD":
                found = described.pop((method, route.path.replace(":path}", "}")))
                assert found["security"] == [{"bearer": [scope]}]
                assert scope in found["responses"]["403"]["description"]
    assert described == {}


async def test_a_token_that_has_ended_is_refused_and_its_holder_learns_when_it_ended(
    driver: Driver,
) -> None:
    token = await issue_token(driver.context, name="trial", until="1h")
    bearer = {"Authorization": f"Bearer {token}"}
    driver.clock.put(T + HOUR - TICK)
    assert (await driver.client.get("/api/v1/orders", headers=bearer)).status_code == 200
    driver.clock.put(T + HOUR)
    refused = await driver.client.get("/api/v1/orders", headers=bearer)
    assert refuses(refused, "GET")
    assert format_instant(T + HOUR) in refused.json()["detail"]
    assert await not_refused(driver, bearer) == []
    await withdraw_token(driver.context, name="trial")
    again = await driver.client.get("/api/v1/orders", headers=bearer)
    assert format_instant(T + HOUR) not in again.json()["detail"]


async def test_a_reader_whose_token_is_revoked_while_it_waits_is_refused(driver: Driver) -> None:
    await driver.api("GET", "/outcomes")
    waiting = asyncio.create_task(driver.api("GET", "/outcomes?wait=30"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await withdraw_token(driver.context, name="shop")
    await driver.send(event("e1"))
    assert refuses(await waiting, "GET")


async def test_refusals_are_counted_and_logged_once_a_minute(driver: Driver, log: StringIO) -> None:
    for _ in range(3):
        await driver.client.get("/api/v1/orders")
    await driver.api("GET", "/deliveries")
    counts = (await driver.client.get("/metrics")).text
    assert 'tallyhook_requests_refused_total{status="401"} 3.0' in counts
    assert 'tallyhook_requests_refused_total{status="403"} 1.0' in counts
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    said = [each for each in lines if each["event"] == "the API refused requests"]
    assert [(each["status"], each["count"]) for each in said] == [(401, 1)]


@pytest.mark.parametrize(
    "path", ["/api/v1/orders", "/api/v1/orders/ORD-1", "/api/v1/openapi.json", "/readyz", "/none"]
)
async def test_no_answer_is_kept_or_guessed_at(one_driver: Driver, path: str) -> None:
    """Browsers and proxies neither cache an answer nor guess its type."""
    answers = [
        await one_driver.client.get(path),
        await one_driver.api("GET", path.removeprefix("/api/v1")),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_a_route_that_asks_for_no_token_is_found(driver: Driver) -> None:
    """It is planted beside the others, whatever its methods, address and endpoint."""

    async def anyone(request: Request) -> Response:
        return JSONResponse({"secrets": "for everyone"})

    routes = await driver.routes()
    routes += [
        Route("/api/v1/planted", anyone),
        Route("/api/v1/planted/{name}", anyone, methods=["POST"]),
        Route("/elsewhere", JSONResponse({})),
    ]
    assert await not_refused(driver, {}) == [
        ("GET", "/api/v1/planted"),
        ("HEAD", "/api/v1/planted"),
        ("POST", "/api/v1/planted/ORD-1"),
        *((method, "/elsewhere") for method in sorted(METHODS)),
    ]
