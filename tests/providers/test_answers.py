"""Acknowledgements in the provider's own form, and answers to requests that precede deliveries."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.request import Incoming
from app.providers.source import Source
from tests.providers.builders import made

SECRET = "verify-token-0123456789ab"


def source(folder: Path, *, more: str = "", **sections: Any) -> Source:
    return made(folder, key=SECRET, more=more, **sections)


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


@pytest.mark.parametrize(
    ("code", "body", "echo"),
    [
        ("slack", b'{"type": "url_verification", "challenge": "3eZbrw1aB"}', b"3eZbrw1aB"),
        ("slack", b'{"type": "url_verification", "challenge": "<b> x"}', None),
        ("slack", b'{"type": "url_verification", "challenge": 7}', None),
        ("slack", b'{"type": ["url_verification"], "challenge": "3eZbrw1aB"}', None),
        ("slack", b'{"type": "url_verification"}', None),
        ("slack", b'{"type": "paid"}', None),
        ("slack", b'"url_verification"', None),
        ("slack", b"", None),
        ("slack", b"\xff", None),
        ("woovi", b'{"data_criacao": "2026-11-20"}', b"2026-11-20"),
        ("woovi", b'{"data_criacao": "' + b"9" * 300 + b'"}', None),
    ],
)
def test_a_question_before_the_first_delivery_is_answered_with_its_echo(
    code: str, body: bytes, echo: bytes | None, tmp_path: Path
) -> None:
    shop = source(tmp_path, top=f'code = "{code}"\n')
    reply = shop.greet(Incoming([], body))
    text = ((b"content-type", b"text/plain"),)
    assert reply == (None if echo is None else (200, text, echo))
    assert source(tmp_path).greet(Incoming([], body)) is None
