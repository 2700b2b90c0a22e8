"""Requests that go out: whatever an answer's headers say, it is an answer and nothing more."""

import httpx2
import pytest

from app.core.http import exchange, outgoing_client

URL = "https://shop.example/outcomes"

NOWHERE = (
    b"https://xn--" + b"a" * 300 + b"/",
    b"http://[::bad",
    b"https://\xff\xfe.example/",
    b"https://shop.example:99999999/",
    b"http://" + b"a." * 200 + b"/",
    b"mailto:shop@shop.example",
    b"",
)
"""Addresses in a redirect that nobody could go to."""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("address", NOWHERE)
async def test_a_redirect_to_nowhere_is_an_answer(address: bytes, status: int) -> None:
    """The library's own errors would end a background task."""

    def answering(request: httpx2.Request) -> httpx2.Response:
        headers = [(b"location", address)]
        return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(b""))

    transport = httpx2.MockTransport(answering)
    async with outgoing_client(timeout_s=1, transport=transport) as client:
        found = await exchange(client, "POST", URL, headers={}, content=b"{}", limit_s=1)
    assert (found.status, found.problem, found.taken) == (status, None, False)


@pytest.mark.parametrize("host", ["\N{SNOWMAN}.example", "xn--" + "a" * 300])
async def test_a_host_that_cannot_be_named_is_not_reached(host: str) -> None:
    async with outgoing_client(timeout_s=1) as client:
        found = await exchange(client, "POST", f"https://{host}/", headers={}, limit_s=1)
    assert found.why == "connection_failed"


async def test_no_cookie_is_kept() -> None:
    """A new one in every answer would make each request longer."""
    asked: list[httpx2.Request] = []

    def answering(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        headers = {"set-cookie": f"visit{len(asked)}=1; Path=/"}
        return httpx2.Response(204, headers=headers, stream=httpx2.ByteStream(b""))

    transport = httpx2.MockTransport(answering)
    async with outgoing_client(timeout_s=1, transport=transport) as client:
        for _ in range(3):
            await exchange(client, "POST", URL, headers={}, limit_s=1)
        assert not client.cookies
    assert [request.headers.get("cookie") for request in asked] == [None, None, None]
