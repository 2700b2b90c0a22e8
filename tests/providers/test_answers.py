"""Acknowledgements in the provider's own form, and what it asks before it sends."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.providers.request import Incoming
from app.providers.source import ProviderReply, Source
from tests.providers.builders import made

SECRET = "verify-token-0123456789ab"


def source(folder: Path, *, more: str = "", **sections: Any) -> Source:
    return made(folder, key=SECRET, more=more, **sections)


def answer(source: Source, body: bytes = b"", **request: Any) -> ProviderReply | None:
    """Return the answer to a handshake."""
    assert source.handshake is not None
    return source.handshake.answer(Incoming(request.pop("headers", []), body, **request))


def test_a_constant_acknowledgement_is_sent_as_it_is(tmp_path: Path) -> None:
    shop = source(tmp_path, acknowledgement={"body": "[accepted]", "type": "text/plain"})
    reply = shop.acknowledge(Incoming([], b"{}"))
    assert reply == (200, ((b"content-type", b"text/plain"),), b"[accepted]")


def test_a_profile_without_an_acknowledgement_has_none(tmp_path: Path) -> None:
    assert source(tmp_path).acknowledge(Incoming([], b"{}")) is None


@pytest.mark.parametrize(
    ("body", "url", "echo"),
    [
        (b'{"id": "a"}', "", "a"),
        (b"", "/hooks?tracking=b", "b"),
        (b'{"id": ["nested"]}', "", ["nested"]),
        (b"\xff", "", None),
        (b'{"id": "a"', "/hooks", None),
    ],
)
def test_fields_are_echoed_in_json_and_absent_ones_are_null(
    body: bytes, url: str, echo: Any, tmp_path: Path
) -> None:
    fields = 'status = 200\nword = "text:ok"\ntracking = ["json:id", "query:tracking"]\n'
    shop = source(tmp_path, more="[acknowledgement.fields]\n" + fields)
    reply = shop.acknowledge(Incoming([], body, url=url))
    assert reply is not None
    assert json.loads(reply.body) == {"status": 200, "word": "ok", "tracking": echo}


GET = {
    "method": "GET",
    "when": "query:hub.verify_token",
    "equals_secret": True,
    "echo": "query:hub.challenge",
}


@pytest.mark.parametrize(
    ("query", "body"),
    [
        (f"hub.verify_token={SECRET}&hub.challenge=1158201444", b"1158201444"),
        ("hub.verify_token=other&hub.challenge=1", None),
        ("hub.challenge=1", None),
        (f"hub.verify_token={SECRET}", None),
        (f"hub.verify_token={SECRET}&hub.challenge=%3Cb%3E+x", None),
        (f"hub.verify_token={SECRET}&hub.challenge=1&hub.challenge=2", None),
        (f"hub.verify_token=%FF&hub.challenge={'9' * 300}", None),
    ],
)
def test_a_challenge_is_echoed_only_with_the_right_token(
    query: str, body: bytes | None, tmp_path: Path
) -> None:
    shop = source(tmp_path, handshake=GET)
    assert shop.methods == {"POST", "GET"}
    reply = answer(shop, method="GET", url=f"/hooks?{query}")
    assert (reply and reply.body) == body
    assert answer(shop, url=f"/hooks?{query}") is None


def test_the_body_of_an_unsigned_challenge_is_not_parsed(tmp_path: Path) -> None:
    shop = source(tmp_path, handshake=GET)
    body, began = b"[" + b"0," * 500_000 + b"0]", time.process_time()
    assert answer(shop, body, method="GET", url="/hooks?hub.challenge=1") is None
    assert time.process_time() - began < 0.1


def test_a_signed_challenge_is_answered_after_verification(tmp_path: Path) -> None:
    asks = {"method": "POST", "when": "json:type", "equals": "url_verification"}
    says = {"echo": "json:challenge", "answer": "json:challenge"}
    shop = source(tmp_path, handshake={**asks, **says})
    assert shop.handshake is not None
    assert shop.handshake.after_verification
    reply = answer(shop, b'{"type": "url_verification", "challenge": "3eZbrw1aB"}')
    assert reply is not None
    assert json.loads(reply.body) == {"challenge": "3eZbrw1aB"}
    for other in (b'{"type": "paid"}', b"", b"\xff", b'{"type": ["url_verification"]}'):
        assert answer(shop, other) is None


def test_options_is_answered_to_the_origin_of_the_profile(tmp_path: Path) -> None:
    origin = "header:webhook-request-origin"
    asks = {"method": "OPTIONS", "when": origin, "equals": "events.example", "echo": origin}
    shop = source(tmp_path, handshake={**asks, "answer": "header:webhook-allowed-origin"})
    for name, wanted in ((b"events.example", b"events.example"), (b"evil.example", None)):
        reply = answer(shop, headers=[(b"webhook-request-origin", name)], method="OPTIONS")
        assert (reply and dict(reply.headers)[b"webhook-allowed-origin"]) == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"equals": "x"}, "handshake.equals: is needed"),
        ({"equals_secret": ...}, "handshake.equals: is needed"),
        ({"equals_secret": ..., "equals": "x"}, "handshake.equals_secret: must be true"),
        ({"method": "OPTIONS"}, "handshake.answer: must be header:NAME"),
        ({"answer": "html"}, "handshake.answer: must be text, json:KEY or header:NAME"),
    ],
)
def test_an_unsafe_handshake_is_reported(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    rule = {key: value for key, value in {**GET, **change}.items() if value is not ...}
    with pytest.raises(ConfigurationError, match=message):
        source(tmp_path, handshake=rule)
