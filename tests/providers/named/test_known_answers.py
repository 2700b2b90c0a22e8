"""Known answers published by providers, or computed with other software than ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.kit import NamedVerifier, Secrets, named_scheme
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming
from reconcile.instants import SECOND
from tests.providers.builders import refused
from tests.providers.named.builders import flip, having, header
from tests.rows import for_each

VECTORS = Path(__file__).parents[2] / "vectors"
PROFILES = [
    profile.name
    for profile in map(load_profile, shipped_profiles())
    if named_scheme(profile.signature.mac)
]


def vectors_of(profile: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / f"{profile}.jsonl").read_text().splitlines()]


GENUINE = [
    (profile, vector) for profile in PROFILES for vector in vectors_of(profile) if vector["valid"]
]


def verifier_of(profile: str, vector: dict[str, Any], **options: object) -> NamedVerifier:
    rule, secret = load_profile(profile).signature, vector["secret"]
    if isinstance(secret, dict):
        secrets = Secrets(named=secret)
    else:
        secrets = Secrets(listed=[secret] if isinstance(secret, str) else secret)
    scheme = named_scheme(rule.mac)
    assert scheme is not None
    stated = {name: [*v] if isinstance(v, tuple) else v for name, v in rule.options}
    return scheme.make("vector", {**stated, **options}, secrets)


def request_of(vector: dict[str, Any]) -> Incoming:
    headers = [(name.lower().encode(), value.encode()) for name, value in vector["headers"].items()]
    body = vector["body"].encode()
    return Incoming(headers, body, vector.get("method", "POST"), vector.get("url", ""))


@for_each(("profile", "vector"), GENUINE)
def test_a_published_request_with_one_changed_bit_is_refused(
    profile: str, vector: dict[str, Any]
) -> None:
    request = request_of(vector)
    changed = request._replace(body=flip(request.body, 8 * (len(request.body) // 2)))
    verifier = verifier_of(profile, vector)
    assert verifier.verify(changed, now=vector.get("now", 0) * SECOND) is not None


def test_the_documented_oppwa_example_decrypts_to_its_plaintext() -> None:
    (vector, *_) = vectors_of("peach_oppwa")
    assert verifier_of("peach_oppwa", vector).payload(request_of(vector)) == b'{"type": "PAYMENT"}'


@pytest.mark.parametrize(
    ("keyid", "covered", "signature"),
    [
        (
            "test-key-ed25519",
            '"date" "@method" "@path" "@authority" "content-type" "content-length"',
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
        ),
        (
            "test-shared-secret",
            '"date" "@authority" "content-type"',
            "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
        ),
    ],
)
def test_rfc_9421_examples_without_a_body_are_genuine_without_a_digest(
    keyid: str, covered: str, signature: str
) -> None:
    """Examples B.2.5 and B.2.6 of the RFC."""
    vector = next(v for v in vectors_of("rfc9421") if v["name"] == "missing")
    stated = f'sig=({covered});created={vector["now"]};keyid="{keyid}"'
    request = having(
        request_of(vector)._replace(body=b""),
        signature_input=stated.encode(),
        signature=f"sig=:{signature}:".encode(),
    )
    verifier = verifier_of("rfc9421", vector, required=["date"])
    now = vector["now"] * SECOND
    assert verifier.verify(request, now=now) is None
    with_body = refused(verifier.verify(request._replace(body=b'{"hello": "world"}'), now=now))
    assert "content-digest" in with_body.sentence
    forged = having(request, date=flip(header(request, "date"), 3))
    assert verifier.verify(forged, now=now) is not None
