"""Braintree: a form with XML in base64, signed for each public key.

Source: braintree_python, `webhook_notification_gateway.py`. The age of a request is not checked,
because Braintree repeats a delivery for a day.
"""

import json
import re
from collections.abc import Mapping
from hashlib import sha1
from typing import Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree

from app.core.reading import TRIAL, TRIED, Unreadable
from app.core.strict_json import MAX_DEPTH
from app.providers import kit
from app.providers.kit_setup import Setup, text_secret
from app.providers.request import Incoming, Refusal
from app.providers.schemes import HmacKey
from reconcile.instants import Instant


def xml_to_json(document: bytes) -> bytes:
    """Return an XML document as JSON. Raise Unreadable for malformed XML."""
    if document.startswith(TRIAL):
        raise Unreadable(TRIED)
    try:
        text = document.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the XML is not UTF-8") from None
    if "<!DOCTYPE" in text:
        # A document type declares entities. Without them a document cannot grow while it is parsed.
        raise Unreadable("the XML has a document type, which no event needs")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314
    except (ElementTree.ParseError, ValueError):
        raise Unreadable("the document is not well-formed XML") from None
    return json.dumps({_name(root): _value(root, MAX_DEPTH)}).encode()


def _value(element: ElementTree.Element, depth: int) -> Any:
    if depth == 0:
        raise Unreadable(f"the XML is nested deeper than {MAX_DEPTH} levels")
    if element.get("nil") == "true":
        return None
    values = [(_name(child), _value(child, depth - 1)) for child in element]
    if element.get("type") == "array":
        return [value for _, value in values]
    if not values:
        return element.text or ""
    members: dict[str, list[Any]] = {}
    for name, value in values:
        members.setdefault(name, []).append(value)
    return {name: found if len(found) > 1 else found[0] for name, found in members.items()}


def _name(element: ElementTree.Element) -> str:
    return element.tag.replace("-", "_")


LINE: Final = 76
"""Number of characters in a line of base64, as Braintree breaks lines (MIME)."""

_PAYLOAD = re.compile(r"[A-Za-z0-9+/=\n]+")


_MISSING = Refusal(
    "signature_missing", "The body is not a form with one bt_signature and one bt_payload."
)
_MALFORMED = kit.mismatch("The field bt_payload holds characters that base64 does not have.")
_UNKNOWN_KEY = kit.mismatch(
    "No pair in bt_signature names a configured public key: add the public key with its private "
    "key to the named secrets."
)
_OTHER_SIGNATURE = kit.mismatch(
    "No pair in bt_signature was made with a configured private key over bt_payload: the key "
    "differs, or the request was changed on its way."
)


class Braintree(kit.NamedVerifier):
    """Verifier with the private keys of Braintree's API.

    keys  private keys. The dictionary's keys are the public keys
    """

    def __init__(self, keys: Mapping[str, HmacKey]) -> None:
        self._keys = keys

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) There is one signature field and one payload.
        fields = _fields(request.body)
        if fields is None:
            return _MISSING
        signature, payload = fields
        if not _PAYLOAD.fullmatch(payload):
            return _MALFORMED
        # (2) A pair names a public key of ours, and its signature of the payload is genuine.
        macs: dict[str, list[bytes]] = {}
        for pair in signature.split("&"):
            public, _, mac = pair.partition("|")
            if public in self._keys:
                macs.setdefault(public, []).append(_hex_or_nothing(mac))
        if not macs:
            return _UNKNOWN_KEY
        contents = (payload.encode(), payload.encode() + b"\n")
        # Each key signs only once, however many pairs name it, because the payload may be long.
        genuine = [self._keys[key].matches(each, macs[key]) for key in macs for each in contents]
        return None if any(genuine) else _OTHER_SIGNATURE

    def payload(self, request: Incoming) -> bytes:
        """Return the notification in a request as JSON: `{"notification": {"kind": …, "subject":
        …}}`."""
        fields = _fields(request.body)
        if fields is None:
            raise Unreadable("the body is not a form with a bt_payload")
        try:
            document = kit.from_base64(fields[1].replace("\n", "").encode())
        except ValueError:
            raise Unreadable("bt_payload is not base64") from None
        return xml_to_json(document)

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a request from a notification in XML."""
        public, key = next(iter(self._keys.items()))
        digits = kit.to_base64(body).decode()
        payload = "".join(digits[at : at + LINE] + "\n" for at in range(0, len(digits), LINE))
        mac = key.sign(payload.encode()).hex()
        form = urlencode({"bt_signature": f"{public}|{mac}", "bt_payload": payload}).encode()
        return kit.Signed([("content-type", "application/x-www-form-urlencoded")], form, url)


def braintree(source: str, options: Mapping[str, object], secrets: kit.Secrets) -> Braintree:
    """Compile the scheme.

    Each named secret is a private key, and its name is the public key.
    """
    setup = Setup(source, options, secrets)
    keys = setup.named(_private_key)
    if not secrets.named:
        setup.problem("has no secret; give each private key in KEYS under its public key")
    setup.conclude()
    return Braintree(keys)


SCHEME: Final = kit.NamedScheme(make=braintree, wraps=True)


def _private_key(secret: str) -> HmacKey:
    # Braintree derives the HMAC key like this.
    return HmacKey(sha1(text_secret(secret)).digest(), algorithm="sha1")  # noqa: S324


def _fields(body: bytes) -> tuple[str, str] | None:
    try:
        fields = kit.form_fields(body)
    except ValueError:
        return None
    signatures = [value for name, value in fields if name == "bt_signature" and value]
    payloads = [value for name, value in fields if name == "bt_payload" and value]
    return (signatures[0], payloads[0]) if len(signatures) == len(payloads) == 1 else None


def _hex_or_nothing(text: str) -> bytes:
    try:
        return kit.from_hex(text.encode("ascii"))
    except ValueError:
        return b""
