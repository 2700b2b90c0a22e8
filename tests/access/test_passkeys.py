"""Passkeys: which answers of a browser count, by an authenticator of the tests."""

import json
from collections.abc import Callable
from dataclasses import replace

from app.access.passkeys import (
    PasskeyAnswer,
    creation_options,
    made_passkey,
    passkey_origin,
    request_options,
    signed_count,
)
from app.access.session_store import Passkey
from reconcile.instants import parse_instant
from tests.access.authenticator import PRESENT, Authenticator, base64url, with_challenge
from tests.rows import for_each

T = parse_instant("2026-10-01T12:00:00Z")
ORIGIN, DOMAIN = "https://console.shop.example", "console.shop.example"
CHALLENGE = base64url(b"c" * 56)


def made(key: Authenticator) -> Passkey | None:
    """Return the passkey of an authenticator's answer to creation options."""
    options = creation_options(ORIGIN, CHALLENGE, name="Ann", known=())
    answer = PasskeyAnswer(origin=ORIGIN, challenge=CHALLENGE, text=key.make(options))
    return made_passkey(answer, name="Ann", label="grey", now=T)


def signed(text: str, known: Passkey) -> tuple[Passkey, int] | None:
    return signed_count(PasskeyAnswer(origin=ORIGIN, challenge=CHALLENGE, text=text), (known,))


@for_each("key", [{}, {"counts": False}, {"flags": PRESENT}])
def test_a_passkey_signs_a_challenge(key: dict[str, int]) -> None:
    """Also where the authenticator counts nothing, or asked for no finger and no PIN."""
    authenticator = Authenticator(ORIGIN, DOMAIN, **key)  # type: ignore[arg-type]
    kept = made(authenticator)
    assert kept is not None
    options = request_options(ORIGIN, CHALLENGE)
    assert json.loads(options)["userVerification"] == "preferred"
    assert signed(authenticator.sign(options), kept) == (kept, authenticator.count)


@for_each(
    "sign",
    [
        lambda key, options: Authenticator(ORIGIN, DOMAIN).sign(options),
        lambda key, options: replace(key, identity=b"another").sign(options),
        lambda key, options: replace(key, origin="https://evil.example").sign(options),
        lambda key, options: replace(key, origin=f"http://{DOMAIN}").sign(options),
        lambda key, options: replace(key, domain="evil.example").sign(options),
        lambda key, options: replace(key, flags=0).sign(options),
        lambda key, options: replace(key, count=6).sign(options),
        lambda key, options: key.make(options),
        lambda key, options: key.sign(with_challenge(options, base64url(b"another challenge"))),
        lambda key, options: key.sign(options, signature=b"0" * 70),
        lambda key, options: key.sign(options, authenticatorData=b"\xff" * 200),
        lambda key, options: key.sign(options, clientDataJSON=b"[" * 100_000),
        lambda key, options: "[" * 100_000,
        lambda key, options: json.dumps({"id": base64url(key.identity)}),
        lambda key, options: json.dumps({"id": base64url(key.identity), "response": {}}),
        lambda key, options: "no JSON",
    ],
)
def test_another_answer_counts_for_nothing(sign: Callable[[Authenticator, str], str]) -> None:
    """One whose count an earlier signature had may be a copied key's."""
    key = Authenticator(ORIGIN, DOMAIN, count=7)
    kept = made(key)
    assert kept is not None
    assert signed(sign(key, request_options(ORIGIN, CHALLENGE)), kept) is None


@for_each("changed", [{"origin": "https://evil.example"}, {"domain": "evil.example"}, {"flags": 0}])
def test_a_passkey_of_another_page_is_not_stored(changed: dict[str, str]) -> None:
    assert made(replace(Authenticator(ORIGIN, DOMAIN), **changed)) is None  # type: ignore[arg-type]


def test_a_console_on_this_machine_has_passkeys_by_its_name() -> None:
    assert passkey_origin("http://127.0.0.1:8081") == "http://localhost:8081"
    assert passkey_origin(ORIGIN) == ORIGIN
