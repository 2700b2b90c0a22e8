"""Differences between providers at the endpoint: methods, preceding requests, acknowledgements."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.providers.profile import load_profile
from app.providers.source import Source
from app.receiving.header_codec import read_request
from tests.api.driving import driving
from tests.providers.builders import MINIMAL, toml

TOKEN = "Rk4v9Zq2Wn7Xt5Lm8Bp3"
WEAK: dict[str, Any] = {
    **MINIMAL,
    "signature": {"mac": "token", "where": "query:token"},
    "secret": {"least_bytes": 16},
    "request": {"methods": ["POST", "GET"]},
    "event": {
        "id": ["json:id", "query:id"],
        "kind": ["json:type", "text:paid"],
        "order": ["json:order", "query:order"],
    },
    "fetch_back": {"url": "https://api.example/{order}", "kind": "json:status"},
}
ECHO = '[acknowledgement.fields]\nstatus = 200\nid = ["json:id", "query:id"]\n'


def profile(folder: Path, document: dict[str, Any] = WEAK, *, code: str = "") -> str:
    path, named = folder / "mine.toml", f'code = "{code}"\n' if code else ""
    path.write_text('confirm = "fetch_back"\n' + named + toml(document) + ECHO)
    return str(path)


async def test_a_get_delivers_where_the_profile_says_so(tmp_path: Path) -> None:
    """It is stored with its query but without the token in it, and answered with the echo."""
    async with driving(
        tmp_path, SOURCES__SHOP__PROFILE=profile(tmp_path), SOURCES__SHOP__SECRETS=TOKEN
    ) as driver:
        answer = await driver.client.get(f"/webhooks/shop?token={TOKEN}&id=e1&order=o1")
        assert (answer.status_code, answer.json()) == (200, {"status": 200, "id": "e1"})
        refused = await driver.client.get("/webhooks/shop?token=other&id=e2&order=o1")
        assert refused.status_code == 401
        ((verdict, headers),) = driver.rows("SELECT verdict, headers FROM deliveries")
        assert verdict == "stored"
        assert TOKEN not in headers
        assert read_request(headers).method == "GET"


async def test_a_source_takes_its_own_methods_and_names_them_to_others(tmp_path: Path) -> None:
    async with driving(
        tmp_path, SOURCES__SHOP__PROFILE=profile(tmp_path), SOURCES__SHOP__SECRETS=TOKEN
    ) as driver:
        answer = await driver.client.put("/webhooks/shop")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
        assert driver.rows("SELECT count(*) FROM deliveries") == [(0,)]


async def test_a_signed_question_is_answered_only_when_signed(tmp_path: Path) -> None:
    signature = {**WEAK["signature"], "where": "header:x-token"}
    document = {**WEAK, "signature": signature}
    async with driving(
        tmp_path,
        SOURCES__SHOP__PROFILE=profile(tmp_path, document, code="slack"),
        SOURCES__SHOP__SECRETS=TOKEN,
    ) as driver:
        body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
        answer = await driver.send(body, [(b"x-token", TOKEN.encode())])
        assert (answer.status_code, answer.text) == (200, "3eZbrw1aB")
        assert answer.headers["content-type"] == "text/plain"
        refused = await driver.send(body, [(b"x-token", b"other")])
        assert refused.status_code == 401
        assert "3eZbrw1aB" not in refused.text
        stored = await driver.send(
            b'{"id": "e1", "order": "o1", "type": "paid"}', [(b"x-token", TOKEN.encode())]
        )
        assert stored.json() == {"status": 200, "id": "e1"}
        ((headers,),) = driver.rows("SELECT headers FROM deliveries")
        assert TOKEN not in headers


async def test_a_signed_address_must_be_known(tmp_path: Path) -> None:
    """Where the provider signs the address, the service does not start without its own."""
    signature = {"mac": "hmac-sha256", "where": "header:x-signature", "signed": "{url}{body}"}
    path = profile(tmp_path, {**WEAK, "signature": signature})
    given: dict[str, Any] = {"SOURCES__SHOP__PROFILE": path, "SOURCES__SHOP__SECRETS": TOKEN}
    with pytest.raises(ConfigurationError, match="TALLYHOOK_PUBLIC_URL"):
        async with driving(tmp_path, **given):
            pass
    own = "https://127.0.0.1:1"  # where nobody listens: its certificate is asked for
    async with driving(tmp_path, PUBLIC_URL=own, **given) as driver:
        body = b'{"id": "e1", "order": "o1", "type": "paid"}'
        source = Source(name="shop", profile=load_profile(path), secrets=[TOKEN])
        for path in ("/webhooks/shop", "/webhooks/shop/"):  # as it is registered there
            signed = source.signed(body, event_id="e1", now=driver.clock.now(), url=own + path)
            headers = [(name.encode(), value.encode()) for name, value in signed.headers]
            answer = await driver.client.post(path, content=body, headers=headers)
            assert answer.status_code == 200
        crossed = await driver.client.post("/webhooks/shop", content=body, headers=headers)
        assert crossed.status_code == 401
