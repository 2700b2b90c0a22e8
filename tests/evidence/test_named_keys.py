"""Signing keys, found again by fingerprint. Anyone can check public-key signatures."""

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.config.load import load_settings
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.verify import opened, unpack
from app.evidence.verify_evidence import provider_signatures, verify_evidence
from app.finance.read_lines import lines_naming
from app.providers.fingerprints import public_key
from app.providers.profile import load_profile
from reconcile.instants import format_instant
from tests.api.driving import KEY, SECRET, Driver, driving, environ, event, signed
from tests.evidence.conftest import Forge, a_delivery
from tests.evidence.world import LATER
from tests.reconcile.build import T
from tests.rows import for_each

OTHER = "whsec_" + base64.b64encode(b"another key, of enough bytes").decode()


def delivery_in(archive: bytes) -> dict[str, Any]:
    """Return the first delivery of a bundle."""
    files = unpack(archive)
    document: dict[str, Any] = json.loads(files[a_delivery(files)])
    return document


async def built(driver: Driver, folder: Path, **sources: str) -> bytes:
    """Build a full bundle, with what is configured by now."""
    settings = load_settings(environ(folder) | {f"TALLYHOOK_{k}": v for k, v in sources.items()})
    context = replace(driver.context, settings=settings)
    request = BundleRequest(order="ORD-1", as_of=LATER, reason="why")
    return (await build_evidence(context, request, lines=lines_naming)).archive


async def test_the_key_is_named_by_its_fingerprint_and_never_shown(tmp_path: Path) -> None:
    """Of two secrets the one that signed; ended or taken out, none does any more."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER)
        both = await built(driver, tmp_path, SOURCES__SHOP__SECRETS=f"{OTHER},{SECRET}")
        without = await built(driver, tmp_path, SOURCES__SHOP__SECRETS=OTHER)
        over = f"{OTHER},{SECRET} until {format_instant(T)}"
        ended = await built(driver, tmp_path, SOURCES__SHOP__SECRETS=over)
    said = b"tallyhook secret fingerprint" + SECRET.encode()
    signature = delivery_in(both)["signature"]
    assert signature["key"] == hashlib.sha256(said).hexdigest()[:16]
    assert "the provider has this secret and can check the signature" in signature["sentence"]
    assert delivery_in(without)["signature"]["key"] is None
    assert delivery_in(ended)["signature"]["key"] is None
    assert "was removed from the configuration" in delivery_in(without)["signature"]["sentence"]
    for secret in (SECRET.encode(), KEY, OTHER.encode()):
        assert secret not in both


async def test_what_was_signed_is_what_the_provider_signs(tmp_path: Path) -> None:
    """With the secret, from the bundle alone: the signature of the kept bytes is the one sent."""
    async with driving(tmp_path, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER)
        archive = await built(driver, tmp_path)
    files, delivery = unpack(archive), delivery_in(archive)
    mac = hmac.new(KEY, files[delivery["signed"]["file"]], hashlib.sha256).digest()
    assert ["webhook-signature", "v1," + base64.b64encode(mac).decode()] in delivery[
        "headers_shown"
    ]


@pytest.fixture
def ed25519(tmp_path: Path) -> tuple[Ed25519PrivateKey, dict[str, Any]]:
    """Make a provider that signs with a key whose public half the shop has."""
    key = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    profile = tmp_path / "ed.toml"
    text = Path("app/providers/profiles/checkout.toml").read_text()
    text = text.replace('mac = "hmac-sha256"', 'mac = "ed25519"')
    profile.write_text(text.replace('encoding = "whsec"', 'encoding = "public_key"'))
    return key, {"SOURCES__SHOP__PROFILE": str(profile), "SOURCES__SHOP__SECRETS": f"whpk_{public}"}


async def test_anyone_checks_a_public_key_signature(
    tmp_path: Path, ed25519: tuple[Ed25519PrivateKey, dict[str, Any]], forge: Forge
) -> None:
    """The key is in the bundle, in PEM; with another key, or over another body, it fails."""
    key, settings = ed25519
    async with driving(tmp_path, looking=True, **settings) as driver:
        body = json.dumps(event("e1")).encode()
        content = b"msg_1.%d." % (T // 1_000_000) + body
        signature = b"v1a," + base64.b64encode(key.sign(content))
        headers = [each for each in signed(body) if each[0] != b"webhook-signature"]
        for label in (b"v1", b"v1a"):
            value = signature.replace(b"v1a", label)
            await driver.send(body, [*headers, (b"webhook-signature", value)])
        second = json.dumps(event("e2", "pending")).encode()
        more = b"msg_2.%d." % (T // 1_000_000) + second
        value = b"v1," + base64.b64encode(key.sign(more))
        headers = [
            each for each in signed(second, event_id="msg_2") if each[0] != b"webhook-signature"
        ]
        answer = await driver.send(second, [*headers, (b"webhook-signature", value)])
        assert answer.status_code == 200, answer.text
        driver.clock.put(LATER)
        archive = await built(driver, tmp_path, **settings)
    name = f"key-{delivery_in(archive)['signature']['key']}.pem"
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert unpack(archive)[name] == public
    steps = {each.name: each for each in verify_evidence(archive).steps}
    assert steps["provider_signatures"].passed is True, steps
    told = steps["provider_signatures"].sentence
    assert told.startswith("2 signatures of payment services checked with the public keys")
    bundle = opened(unpack(archive), LATER)
    newest = bundle.document("history.json")["deliveries"][-1]["delivery_id"]
    bundle.document(f"delivery-{newest}.json")["signature"]["key"] = None
    passed, said = provider_signatures(bundle)
    assert passed is None
    assert said.startswith("1 signature of a payment service checked with the public keys in the ")
    assert "1 more signature needs a secret" in said
    other = Ed25519PrivateKey.from_private_bytes(b"q" * 32).public_key()
    changed = other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    forged = forge(archive, lambda members: members.update({name: changed}))
    failed = [each.name for each in verify_evidence(forged).steps if each.passed is False]
    assert failed == ["provider_signatures"]


@for_each("secret", ["s" * 32, "ab" * 32, base64.b64encode(b"k" * 32).decode()])
def test_a_shared_secret_is_never_taken_for_a_public_key(secret: str) -> None:
    """32 bytes could be one: only a scheme with public keys, or PEM, says that they are."""
    for name in ("checkout", "twilio", "braintree", "peach_oppwa"):
        assert public_key(load_profile(name), secret) is None
