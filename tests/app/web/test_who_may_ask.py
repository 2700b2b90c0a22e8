"""Every route of the application asks for a token in force, but those that are named here."""

from __future__ import annotations

import re
from typing import Any

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.operations.people.manage_tokens import withdraw_token
from tests.app.web.driving import Driver

TOLD = {"amount": "1500.00", "currency": "KES"}

PUBLIC = {
    "/webhooks/{source}",  # by its signature
    "/livez",
    "/readyz",
    "/metrics",
    "/api/v1/openapi.json",
}
"""Routes that anyone may ask without a token. All others are for programs that have one."""

METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


def guarded(driver: Driver) -> list[tuple[str, str]]:
    """Method and address of every route that the application has and that is not public."""
    found = []
    for route in driver.service.application.routes:
        assert isinstance(route, Route), "what holds routes of its own must be looked into"
        address = re.sub(r"\{[^}]*\}", "ORD-1", route.path)
        methods = set() if route.path in PUBLIC else route.methods or METHODS
        found += [(method, address) for method in sorted(methods)]
    return found


async def not_refused(driver: Driver, headers: dict[str, Any]) -> list[tuple[str, str]]:
    """The guarded routes that do not refuse these headers as they refuse a token not in force."""
    return [
        (method, address)
        for method, address in guarded(driver)
        if not refuses(
            await driver.client.request(method, address, headers=headers, json=TOLD), method
        )
    ]


def refuses(answer: httpx2.Response, method: str) -> bool:
    """Whether it is the answer to who has no token in force; that to HEAD has no body to read."""
    told = (answer.headers.get("www-authenticate"), answer.headers.get("content-type"))
    if answer.status_code != 401 or told != ("Bearer", "application/problem+json"):
        return False
    return method == "HEAD" or bool(answer.json()["code"] == "token_invalid")


async def test_without_a_token_in_force(driver: Driver) -> None:
    """No token, a wrong one, another scheme and a revoked one are refused alike, on every route
    that the application has and that is not named as public here."""
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
    assert await not_refused(driver, good) == guarded(driver)
    await withdraw_token(driver.desk, name="shop")
    assert await not_refused(driver, good) == []
    paths = {route.path for route in driver.service.application.routes if isinstance(route, Route)}
    assert paths > PUBLIC, "what is public is there"
    assert len(guarded(driver)) >= 8


async def test_a_route_that_asks_for_no_token_is_found(driver: Driver) -> None:
    """Planted beside the others, whatever its methods, its address and its kind of endpoint."""

    async def anyone(request: Request) -> Response:
        return JSONResponse({"secrets": "for everyone"})

    driver.service.application.router.routes += [
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
