"""Known answers published by others, which no code of this project has computed."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.profile import load_profile
from app.providers.request import Incoming, Refusal
from app.providers.source import Source
from reconcile.instants import SECOND
from tests.providers.builders import MINIMAL, profile_file, raw, refused

FILE = Path(__file__).parents[1] / "vectors" / "signatures.json"
VECTORS = json.loads(FILE.read_text())["vectors"]
BY_NAME = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])


def source_of(vector: dict[str, Any], folder: Path) -> Source:
    name = vector.get("profile")
    if name is None:
        sections: dict[str, Any] = {
            key: vector[key] for key in ("signature", "secret", "timestamp") if key in vector
        }
        name = profile_file(folder, base={**MINIMAL, **sections})
    return Source(name="vector", profile=load_profile(name), secrets=[vector["secret_value"]])


def body_of(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["body_hex"]) if "body_hex" in vector else vector["body"].encode()


def refusal(vector: dict[str, Any], folder: Path, body: bytes, **changed: str) -> Refusal | None:
    """Return the verdict on the request with this body and these headers changed."""
    headers = raw((name, changed.get(name, value)) for name, value in vector["headers"])
    source = source_of(vector, folder)
    return source.verify(Incoming(headers, body), now=vector["now"] * SECOND)


@BY_NAME
def test_a_published_request_verifies(vector: dict[str, Any], tmp_path: Path) -> None:
    assert refusal(vector, tmp_path, body_of(vector)) is None


@BY_NAME
def test_a_published_request_with_another_body_is_refused(
    vector: dict[str, Any], tmp_path: Path
) -> None:
    verdict = refused(refusal(vector, tmp_path, body_of(vector) + b"\n"))
    assert verdict.reason == "signature_mismatch"


def test_signing_the_published_message_gives_the_published_headers() -> None:
    vector = VECTORS[0]
    source = Source(name="v", profile=load_profile("checkout"), secrets=[vector["secret_value"]])
    event_id = dict(vector["headers"])["webhook-id"]
    signed = source.sign(body_of(vector), event_id=event_id, now=vector["now"] * SECOND)
    assert signed == [tuple(pair) for pair in vector["headers"]]


@pytest.mark.parametrize(
    ("name", "header", "old", "new"),
    [
        ("github_documentation", "x-hub-signature-256", "sha256=", "sha512="),
        ("github_documentation", "x-hub-signature-256", "sha256=", ""),
        ("github_documentation", "x-hub-signature-256", "sha256=", "SHA256="),
        ("slack_documentation", "x-slack-signature", "v0=", "v1="),
        ("rfc_4231_case_4_sha512", "x-signature", "v1=", "v2="),
        ("rfc_4231_case_4_sha512", "x-signature", "v1=", ""),
        ("rfc_4231_case_4_sha512", "x-signature", ";", ","),
        ("rfc_4231_case_4_sha256", "x-signature", "82558a", "82 558a"),
        ("rfc_4231_case_4_sha256", "x-signature", "82558a", "v1=82558a"),
    ],
)
def test_a_published_signature_in_another_layout_is_refused(
    name: str, header: str, old: str, new: str, tmp_path: Path
) -> None:
    (vector,) = (vector for vector in VECTORS if vector["name"] == name)
    genuine = dict(vector["headers"])[header]
    assert old in genuine
    changed = {header: genuine.replace(old, new)}
    verdict = refused(refusal(vector, tmp_path, body_of(vector), **changed))
    assert verdict.reason == "signature_mismatch"


@BY_NAME
def test_a_signature_written_in_each_layout_verifies(
    vector: dict[str, Any], tmp_path: Path
) -> None:
    source = source_of(vector, tmp_path)
    now = vector["now"] * SECOND
    headers = raw(source.sign(b"x", event_id="e", now=now))
    assert source.verify(Incoming(headers, b"x"), now=now) is None
    name, _ = headers[-1]
    assert source.verify(Incoming([(name, b"v9=0"), *headers], b"x"), now=now) is None
