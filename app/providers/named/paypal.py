"""PayPal: an RSA signature over `{id}|{time}|{webhook id}|{CRC-32 of the body}`.

Source: PayPal-Python-SDK, `paypalrestsdk/notifications.py`, and PayPal's page "Integrate webhooks".

Anybody can give another body the same CRC-32. So an event that moves money counts only after it was
fetched from PayPal.
"""

import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from app.core.errors import ConfigurationError
from app.providers import kit
from app.providers.kit_setup import Setup, text_secret
from app.providers.request import Incoming, Refusal
from app.providers.schemes import ASYMMETRIC_SCHEMES, AsymmetricKey
from reconcile.instants import SECOND, Instant, format_instant, instant_of, parse_instant

HOSTS: Final = (
    "api.paypal.com",
    "api-m.paypal.com",
    "api.sandbox.paypal.com",
    "api-m.sandbox.paypal.com",
)
DOMAIN: Final = ".paypal.com"
ALGORITHM: Final = b"SHA256withRSA"
"""PayPal's name of the signature algorithm. SHA1withRSA, which PayPal's SDK still accepts, is
refused."""

RETRIES_S: Final = 4 * 24 * 3600
"""Maximum age in seconds of an accepted delivery.

PayPal repeats a delivery for three days.
"""

_WEBHOOK_ID, _PRIVATE_KEY = "webhook_id", "private_key"


_OTHER_ALGORITHM = kit.mismatch(f"The header paypal-auth-algo is not {ALGORITHM.decode()}.")
_FOREIGN_HOST = kit.mismatch(
    "The header paypal-cert-url names no https address of an allowed host, so its certificate "
    "proves nothing."
)
_UNKNOWN_CERTIFICATE = kit.mismatch(
    "The certificate that paypal-cert-url names is not configured: check in PayPal's "
    "documentation that the address is PayPal's, fetch it, and add the PEM text to the named "
    "secrets under that address."
)
_MALFORMED = kit.mismatch("The header paypal-transmission-sig is not base64.")
_OTHER_SIGNATURE = kit.mismatch(
    "The signature was not made with the named certificate over id, time, webhook id and CRC-32: "
    "the webhook id differs, or the request was changed on its way."
)


class Certificate(NamedTuple):
    """Key of a configured certificate, with its period of validity. Both ends of the period are
    included."""

    key: AsymmetricKey
    valid_from: Instant
    valid_until: Instant


class Transmission(NamedTuple):
    """The five headers in which PayPal states a delivery's signature."""

    identity: bytes
    time: bytes
    signature: bytes
    url: bytes
    algorithm: bytes


class Paypal(kit.NamedVerifier):
    """Verifier with the configured certificates. The verifier can also sign if a private key is
    configured."""

    def __init__(
        self,
        webhook_id: bytes,
        certificates: Mapping[str, Certificate],
        *,
        hosts: tuple[str, ...],
        age: kit.AgeLimit,
        private_key: AsymmetricKey | None,
    ) -> None:
        self._webhook_id = webhook_id
        self._certificates = certificates
        self._hosts = hosts
        self._age = age
        self._private_key = private_key
        self._headers = tuple(
            kit.SingleHeader(f"paypal-{name}")
            for name in (
                "transmission-id",
                "transmission-time",
                "transmission-sig",
                "cert-url",
                "auth-algo",
            )
        )

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) All five headers are present exactly once, and the algorithm is accepted.
        values: list[bytes] = []
        for header in self._headers:
            value = header.value(request.headers)
            if isinstance(value, Refusal):
                return value
            values.append(value)
        stated = Transmission(*values)
        if stated.algorithm != ALGORITHM:
            return _OTHER_ALGORITHM
        # (2) The certificate is PayPal's, configured, and valid now.
        certificate = self._certificate(stated.url, now)
        if isinstance(certificate, Refusal):
            return certificate
        # (3) It signed this transmission for our webhook.
        try:
            signature = kit.from_base64(stated.signature)
        except ValueError:
            return _MALFORMED
        if not certificate.key.matches(self._content(stated, request.body), [signature]):
            return _OTHER_SIGNATURE
        # (4) The signed time is near enough.
        try:
            return self._age.check(parse_instant(stated.time.decode("ascii")), now)
        except ValueError:
            return self._age.missing("is not an RFC 3339 date-time")

    def _certificate(self, url: bytes, now: Instant) -> Certificate | Refusal:
        address = kit.ascii_text(url)
        if address is None or not _is_allowed(address, self._hosts):
            return _FOREIGN_HOST
        certificate = self._certificates.get(address)
        if certificate is None:
            return _UNKNOWN_CERTIFICATE
        if not certificate.valid_from <= now <= certificate.valid_until:
            first, last = map(format_instant, certificate[1:])
            return kit.mismatch(f"The configured certificate is valid from {first} to {last} only.")
        return certificate

    def _content(self, stated: Transmission, body: bytes) -> bytes:
        crc = b"%d" % zlib.crc32(body)
        return b"|".join((stated.identity, stated.time, self._webhook_id, crc))

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a request that is signed under the URL of the first configured certificate."""
        if self._private_key is None:
            raise ConfigurationError([f"signing needs the named secret {_PRIVATE_KEY}"])
        time = format_instant(now - now % SECOND)
        address = next(iter(self._certificates))
        stated = Transmission(event_id.encode(), time.encode(), b"", address.encode(), ALGORITHM)
        signature = kit.to_base64(self._private_key.sign(self._content(stated, body)))
        values = stated._replace(signature=signature)
        headers = [
            (header.name, value.decode())
            for header, value in zip(self._headers, values, strict=True)
        ]
        return kit.Signed(headers, body, url)


def paypal(source: str, options: Mapping[str, object], secrets: kit.Secrets) -> Paypal:
    """Compile the scheme.

    The options are `hosts`, `past_s` (default 4 days) and `future_s` (default 300). The named
    secrets are `webhook_id`, `private_key` for signing, and each certificate in PEM under its URL.
    """
    setup = Setup(source, options, secrets)
    hosts = setup.texts("hosts", HOSTS)
    age = setup.age("The time in paypal-transmission-time", past_s=RETRIES_S)
    webhook_id = setup.part(_WEBHOOK_ID, text_secret)
    private_key = setup.part(_PRIVATE_KEY, _rsa_key)
    certificates = setup.named(_read_certificate, _WEBHOOK_ID, _PRIVATE_KEY)
    if _WEBHOOK_ID not in secrets.named:
        setup.problem(f"has no webhook id; give it in KEYS under the name {_WEBHOOK_ID}")
    if not secrets.named.keys() - {_WEBHOOK_ID, _PRIVATE_KEY}:
        setup.problem("has no certificate; give each PEM text in KEYS under its URL")
    for url in certificates:
        if not _is_allowed(url, hosts):
            setup.problem(
                f"certificate {url!r} must have a URL that begins with https:// and one of these "
                f"hosts: {', '.join(hosts)}"
            )
    setup.conclude()
    return Paypal(webhook_id or b"", certificates, hosts=hosts, age=age, private_key=private_key)


SCHEME: Final = kit.NamedScheme(make=paypal, public_keys=True, binding=_WEBHOOK_ID)


def _is_allowed(url: str, hosts: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and parts.netloc in hosts
    except ValueError:
        return False


def _rsa_key(secret: str) -> AsymmetricKey:
    return ASYMMETRIC_SCHEMES["rsa-pkcs1-sha256"](secret.strip().encode())


def _read_certificate(secret: str) -> Certificate:
    try:
        chain = x509.load_pem_x509_certificates(secret.encode())
    except ValueError:
        raise ValueError("is not a certificate in PEM") from None
    leaf = chain[0]
    names = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    if not names or not str(names[0].value).lower().endswith(DOMAIN):
        raise ValueError(f"is a certificate whose name does not end in {DOMAIN}")
    try:
        for issued, issuer in pairwise(chain):
            issued.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        raise ValueError("has a certificate that the next one did not issue") from None
    first = max(instant_of(each.not_valid_before_utc) for each in chain)
    last = min(instant_of(each.not_valid_after_utc) for each in chain)
    return Certificate(_rsa_key(secret), first, last)
