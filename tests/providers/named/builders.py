"""One genuine source for each named scheme, and requests as they arrive."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from app.providers.kit import NamedVerifier, Secrets, Signed, named_scheme
from app.providers.request import Incoming
from reconcile.instants import EARLIEST, SECOND, Instant

NOW = EARLIEST + 1_614_265_330 * SECOND
MOMENT = datetime.fromtimestamp(NOW // SECOND, UTC)
URL = "https://shop.example/webhooks/acme?account=7"
JSON = b'{"id": "evt_01", "amount": 1500.50}'
FORM = b"AccountSid=AC1&Body=Jambo+%C3%A9&Digits=1234"
XML = b"<notification><kind>transaction_settled</kind></notification>"
CERTIFICATE_URL = "https://api.paypal.com/v1/notifications/certs/CERT-1"
PAYPAL_NAME = "messageverificationcerts.paypal.com"


def pem(key: Any) -> str:
    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.decode()


def public_pem(key: Any) -> str:
    public: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public.decode()


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    """Make an RSA key once for each number."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """Make a key on P-256 once for each number."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed25519_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def certificate(
    name: str = PAYPAL_NAME, *, issuer: Any = None, first_day: int = -1, last_day: int = 90
) -> str:
    """Make a certificate of `rsa_key()` in PEM, self-signed or signed with the key `issuer`."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    by = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "An issuer")])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else by)
        .public_key(rsa_key().public_key())
        .serial_number(1)
        .not_valid_before(MOMENT + timedelta(days=first_day))
        .not_valid_after(MOMENT + timedelta(days=last_day))
        .sign(issuer or rsa_key(), hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


def issuer_certificate(key: Any) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "An issuer")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_before(MOMENT - timedelta(days=900))
        .not_valid_after(MOMENT + timedelta(days=900))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode()


def jwk(key: ec.EllipticCurvePrivateKey, **members: Any) -> str:
    """Write a private JWK as JSON text, with members changed."""
    return json.dumps({**jwt.algorithms.ECAlgorithm.to_jwk(key, as_dict=True), **members})


def made(
    name: str,
    *listed: str,
    options: Mapping[str, object] | None = None,
    named: Mapping[str, str] | None = None,
) -> NamedVerifier:
    """Compile the verifier called `name` for a source called acme."""
    scheme = named_scheme(f"named:{name}")
    assert scheme is not None
    return scheme.make("acme", options or {}, Secrets(listed=listed, named=named or {}))


def flip(data: bytes, bit: int) -> bytes:
    at, mask = bit // 8 % len(data), 1 << bit % 8
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def flip_body(request: Incoming, bit: int) -> Incoming:
    return request._replace(body=flip(request.body, bit))


def flip_hex(request: Incoming, bit: int) -> Incoming:
    return request._replace(body=flip(bytes.fromhex(request.body.decode()), bit).hex().encode())


def flip_field(name: str) -> Callable[[Incoming, int], Incoming]:
    def change(request: Incoming, bit: int) -> Incoming:
        fields = dict(parse_qsl(request.body.decode(), encoding="latin-1"))
        fields[name] = flip(fields[name].encode("latin-1"), bit).decode("latin-1")
        return request._replace(body=urlencode(fields, encoding="latin-1").encode())

    return change


class Sample(NamedTuple):
    """A source that can sign, a body for it, and a function that changes one bit of the signed
    part."""

    verifier: NamedVerifier
    body: bytes
    change: Callable[[Incoming, int], Incoming] = flip_body

    def request(self, *, now: Instant = NOW) -> Incoming:
        """Sign a genuine request at `now`."""
        return arrived(
            self.verifier.sign(self.body, event_id="evt_01", now=now, method="POST", url=URL)
        )


def arrived(signed: Signed, method: str = "POST") -> Incoming:
    """Return a signed request as a server receives it."""
    headers = [(name.lower().encode(), value.encode()) for name, value in signed.headers]
    return Incoming(headers, signed.body, method, signed.url)


def having(request: Incoming, **values: bytes | list[bytes] | None) -> Incoming:
    """Set headers (`_` for `-`) to one value or several, or remove them (None)."""
    names = {name.replace("_", "-").encode(): value for name, value in values.items()}
    kept = [(name, value) for name, value in request.headers if name not in names]
    for name, value in names.items():
        kept.extend((name, each) for each in ([value] if isinstance(value, bytes) else value or []))
    return request._replace(headers=kept)


def header(request: Incoming, name: str) -> bytes:
    return dict(request.headers)[name.encode()]


def paypal_secrets(**changes: str) -> dict[str, str]:
    whole = {
        "webhook_id": "WEBHOOK-1",
        CERTIFICATE_URL: certificate(),
        "private_key": pem(rsa_key()),
    }
    return {**whole, **changes}


@cache
def samples() -> Mapping[str, Sample]:
    """Make one sample for each scheme, and for each kind of key and body."""
    pss = {"algorithms": ["rsa-pss-sha512"]}
    required = {"required": ["content-type", "x-event-id"]}
    p384 = ec.generate_private_key(ec.SECP384R1())
    return {
        "braintree": Sample(
            made("braintree", named={"public": "private"}), XML, flip_field("bt_payload")
        ),
        "covered_headers": Sample(made("covered_headers", "a secret", options=required), JSON),
        "oppwa": Sample(made("oppwa", "0f" * 32), JSON, flip_hex),
        "paypal": Sample(made("paypal", named=paypal_secrets()), JSON),
        "plaid": Sample(made("plaid", named={"key-1": jwk(ec_key())}), JSON),
        "rfc9421 ed25519": Sample(made("rfc9421", named={"key-1": pem(ed25519_key())}), JSON),
        "rfc9421 p256": Sample(made("rfc9421", named={"key-1": pem(ec_key())}), JSON),
        "rfc9421 p384": Sample(made("rfc9421", named={"key-1": pem(p384)}), JSON),
        "rfc9421 rsa": Sample(made("rfc9421", named={"key-1": pem(rsa_key())}), JSON),
        "rfc9421 pss": Sample(made("rfc9421", named={"key-1": pem(rsa_key())}, options=pss), JSON),
        "rfc9421 hmac": Sample(made("rfc9421", named={"key-1": "hmac:c2VjcmV0"}), JSON),
        "twilio form": Sample(made("twilio", "a token"), FORM, flip_field("Body")),
        "twilio json": Sample(made("twilio", "a token"), JSON),
        "twilio shared key": Sample(made("twilio", named={"key-1": "a secret"}), JSON),
    }
