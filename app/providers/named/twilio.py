"""Twilio: HMAC over the URL and the form, or the body's digest.

Source: twilio-python, `twilio.request_validator`. The unsigned header that names a key cannot
choose a weaker algorithm for the key. No time is signed.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final
from urllib.parse import parse_qsl

from app.providers import kit
from app.providers.kit_setup import Setup, text_secret
from app.providers.request import Headers, Incoming, Refusal
from app.providers.schemes import HmacKey
from reconcile.instants import Instant

FORM: Final = "application/x-www-form-urlencoded"
SETTINGS: Final = b"x-twilio-webhooks-signature-settings"
BODY_DIGEST: Final = "bodySHA256"

_URL = re.compile(r"(https?)://([^/?#]*?)(:[0-9]+)?([/?#].*)?", re.DOTALL)
_PORTS = {"http": ":80", "https": ":443"}


_MALFORMED = kit.mismatch("The header x-twilio-signature does not hold a base64 signature.")
_NO_KEY = kit.mismatch(
    "The request is signed with a shared key, or an algorithm, for which no secret is configured: "
    "add the key by its id to the named secrets, or the auth token to the listed ones."
)
_NOT_COVERED = kit.mismatch(
    f"The body is not a form and the URL has no {BODY_DIGEST}, so the signature covers no body."
)
_OTHER_BODY = kit.mismatch(f"The body's SHA-256 is not the {BODY_DIGEST} of the signed URL.")
_OTHER_SIGNATURE = kit.mismatch(
    "No configured secret produces the signature over this URL and these form fields: the secret "
    "or the public URL differs, or the request was changed on its way."
)


class Twilio(kit.NamedVerifier):
    """Verifier with auth tokens and shared keys. The module's docstring describes the scheme."""

    def __init__(self, tokens: Sequence[HmacKey], shared: Mapping[str, HmacKey]) -> None:
        self._tokens = tokens
        self._shared = shared
        self._signature = kit.SingleHeader("x-twilio-signature")

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) There is one signature, and we have a key of the kind that the request names.
        written = self._signature.value(request.headers)
        if isinstance(written, Refusal):
            return written
        keys = self._keys(request.headers)
        if not keys:
            return _NO_KEY
        # (2) The signature covers the URL, with or without its port, and the form.
        try:
            signature = kit.from_base64(written)
            fields = _covered_fields(request)
        except ValueError:
            return _MALFORMED
        contents = _contents(request.url, fields)
        if not any([key.matches(each, [signature]) for key in keys for each in contents]):  # noqa: C419
            return _OTHER_SIGNATURE
        # (3) If the form does not cover the body, a digest in the signed URL does.
        query = request.url.partition("#")[0].partition("?")[2]
        stated = [value for name, value in parse_qsl(query) if name == BODY_DIGEST]
        if stated:
            actual = sha256(request.body).hexdigest()
            equal = compare_digest(actual.encode(), stated[0].lower().encode())
            return None if equal else _OTHER_BODY
        return None if _is_form(request.headers) or not request.body else _NOT_COVERED

    def _keys(self, headers: Headers) -> Sequence[HmacKey]:
        settings = [value for name, value in headers if name == SETTINGS]
        if not settings:
            return self._tokens
        pairs = dict(part.strip().partition(b"=")[::2] for part in settings[0].split(b","))
        algorithm = pairs.get(b"algorithm", b"").upper()
        if algorithm in (b"", b"HMAC_SHA1"):
            return self._tokens
        key = self._shared.get(kit.ascii_text(pairs.get(b"key", b"")) or "")
        return [key] if key is not None and algorithm == b"HMAC_SHA256" else []

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a signed request with JSON or a form."""
        headers = [("i-twilio-idempotency-token", event_id)]
        if body[:1] in (b"{", b"["):
            url += f"{'&' if '?' in url else '?'}{BODY_DIGEST}={sha256(body).hexdigest()}"
            headers.append(("content-type", "application/json"))
        else:
            headers.append(("content-type", FORM))
        if self._tokens:
            key = self._tokens[0]
        else:
            name, key = next(iter(self._shared.items()))
            headers.append((SETTINGS.decode(), f"key={name},algorithm=HMAC_SHA256"))
        raw = [(name.encode(), value.encode()) for name, value in headers]
        fields = _covered_fields(Incoming(raw, body, method, url))
        signature = kit.to_base64(key.sign(_content(url, fields))).decode()
        return kit.Signed([*headers, (self._signature.name, signature)], body, url)


def twilio(source: str, options: Mapping[str, object], secrets: kit.Secrets) -> Twilio:
    """Compile the scheme.

    Listed secrets are auth tokens. Named secrets are shared keys by id.
    """
    setup = Setup(source, options, secrets)
    tokens = setup.listed(lambda secret: HmacKey(text_secret(secret), algorithm="sha1"))
    shared = setup.named(lambda secret: HmacKey(text_secret(secret), algorithm="sha256"))
    if not secrets.listed and not secrets.named:
        setup.problem("has no secret; give the auth token, or shared keys by their id")
    setup.conclude()
    return Twilio(tokens, shared)


SCHEME: Final = kit.NamedScheme(make=twilio, beside=frozenset({"query", "address"}))


def _is_form(headers: Headers) -> bool:
    types = [value for name, value in headers if name == b"content-type"]
    return any(value.partition(b";")[0].strip().lower() == FORM.encode() for value in types)


def _covered_fields(request: Incoming) -> list[tuple[str, str]]:
    if not _is_form(request.headers):
        return []
    # Equal pairs count once. The values of one name are sorted, as the names are.
    return sorted(set(kit.form_fields(request.body)))


def _contents(url: str, fields: Sequence[tuple[str, str]]) -> set[bytes]:
    match = _URL.fullmatch(url)
    if match is None:
        return {_content(url, fields)}
    scheme, host, _, rest = match.groups(default="")
    ports = ("", _PORTS[scheme])
    urls = {url, *(f"{scheme}://{host}{port}{rest}" for port in ports)}
    return {_content(each, fields) for each in urls}


def _content(url: str, fields: Sequence[tuple[str, str]]) -> bytes:
    text = url + "".join(name + value for name, value in fields)
    return text.encode("utf-8", "surrogateescape")
