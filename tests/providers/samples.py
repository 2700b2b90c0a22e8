"""Secrets and a body that can be signed, for any profile that declares its scheme."""

import base64
import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from app.providers.paths import EACH, JsonPath, PathStep, Where, compile_path
from app.providers.schemes import SCHEMES
from app.providers.sections import Profile
from app.providers.source import Source
from app.providers.template import read_template, references

_SECRETS = {
    "text": "k" * 32,
    "hex": "5a" * 32,
    "base64": base64.b64encode(b"k" * 32).decode(),
    "whsec": "whsec_" + base64.b64encode(b"k" * 32).decode(),
    "whsec_or_text": "whsec_" + base64.b64encode(b"k" * 32).decode(),
}


@cache
def private_key(mac: str) -> str:
    """Make a private key in PEM for this scheme."""
    made: Any
    if mac.startswith("rsa"):
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    elif mac.startswith("ecdsa"):
        made = ec.generate_private_key(ec.SECP384R1() if "p384" in mac else ec.SECP256R1())
    else:
        made = ed25519.Ed25519PrivateKey.generate()
    return bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())).decode()


def is_declared(profile: Profile) -> bool:
    return profile.signature.mac in SCHEMES


def source_of(profile: Profile) -> Source:
    """Make a source of this profile that can sign."""
    mac = profile.signature.mac
    asymmetric = SCHEMES[mac].asymmetric
    if mac == "basic":
        return Source(name="sample", profile=profile, secrets=["sample:" + "k" * 32])
    secret = private_key(mac) if asymmetric else _SECRETS[profile.secret.encoding]
    secrets: Any = {"key-1": secret} if profile.secret.key_id else [secret]
    return Source(name="sample", profile=profile, secrets=secrets)


def url_of(profile: Profile) -> str:
    return "https://shop.example/webhooks/in?n=1"


def body_of(profile: Profile) -> bytes:
    """Make a body with every member and field that the profile's signature covers."""
    kind = profile.request.body
    signed = [
        each
        for each in references(read_template(profile.signature.signed or ""))
        if each.name in ("json", "compact", "canonical", "form") and each.argument
    ]
    if kind == "form" or any(each.name == "form" for each in signed):
        names = [each.argument for each in signed if each.name == "form"] or ["order_id", "total"]
        return "&".join(f"{name}=v{number}" for number, name in enumerate(names)).encode()
    document: dict[str, Any] = {"id": "e1"}
    for number, each in enumerate(signed):
        _put(document, compile_path(each.argument), f"v{number}")
    items = compile_path(profile.event.items, each=True) if profile.event.items else ()
    if items and profile.signature.per_item:
        root: Any = {}
        _put(root, items, document)
        document = root
    return json.dumps(document).encode()


def _put(document: Any, path: JsonPath, value: Any) -> None:
    for step, following in zip(path, (*path[1:], None), strict=True):
        document = _slot(document, step, value if following is None else _empty(following))


def _empty(step: PathStep) -> Any:
    return {} if isinstance(step, str) else []


def _slot(document: Any, step: PathStep, value: Any) -> Any:
    if isinstance(step, str):
        return document.setdefault(step, value)
    made = {step.name: step.value} if isinstance(step, Where) else value
    if isinstance(step, int | Where) or step is EACH:
        document.append(made)
    return document[-1]
