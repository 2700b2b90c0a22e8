"""HTTP Message Signatures (RFC 9421) over a Content-Digest (RFC 9530).

The RFC leaves clock, keys and required components to each application (3.2.1).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import http_sf
from http_message_signatures import HTTPSignatureComponentResolver
from http_message_signatures.digests import ContentDigest
from http_message_signatures.exceptions import HTTPMessageSignaturesException
from http_sf.compat import Dictionary, InnerList, Item

from app.core.errors import ConfigurationError
from app.providers import kit
from app.providers.keys import refuse_key_pair
from app.providers.kit import AgeLimit, NamedScheme, Secrets, Signed, from_base64, mismatch
from app.providers.kit_setup import Setup
from app.providers.request import Headers, Incoming, Refusal
from app.providers.schemes import ASYMMETRIC_SCHEMES, HmacKey, Key, load_key
from reconcile.instants import EARLIEST, LATEST, SECOND, Instant, format_instant

CONTENT_DIGEST: Final = "content-digest"
SIGNATURE_INPUT: Final = "signature-input"
SIGNATURE: Final = "signature"

_NO_URL = "https://unknown.invalid/"


class Claim(NamedTuple):
    """One labelled signature, as the request states it."""

    components: list[Item]
    parameters: Mapping[str, Any]
    signature: bytes

    def covers(self, names: Iterable[str]) -> bool:
        """Return whether the signature covers each of these components as a whole, without
        parameters."""
        return set(names) <= {item.value for item in self.components if not item.params}


def stated_claims(headers: Headers) -> list[Claim]:
    """Return the signature of each label in both headers, in order.

    Raise ValueError if a header is no dictionary of RFC 9651.
    """
    inputs, signatures = _dictionary(headers, SIGNATURE_INPUT), _dictionary(headers, SIGNATURE)
    claims = []
    for label, (covered, parameters) in inputs.items():
        signature = signatures.get(label, (None,))[0]
        if isinstance(covered, list) and type(signature) is bytes:
            components = []
            for name, options in covered:
                components.append(Item(name))
                components[-1].params.update(options)
            claims.append(Claim(components, parameters, signature))
    return claims


def _dictionary(headers: Headers, name: str) -> dict[str, tuple[Any, Any]]:
    value = b", ".join(value for each, value in headers if each == name.encode())
    parsed: Any = http_sf.parse(value, tltype="dictionary", on_duplicate_key=_refuse_repeat)
    return dict(parsed)


def _refuse_repeat(_key: str, _context: str) -> None:
    raise ValueError("a name comes twice, so its value is ambiguous")


def signature_base(
    request: Incoming, components: list[Item], parameters: Mapping[str, Any]
) -> tuple[bytes, str]:
    """Return the signed text (RFC 9421, section 2.5), and its components.

    Raise ValueError for an unknown, absent, repeated or non-ASCII component.
    """
    try:
        resolver = HTTPSignatureComponentResolver(_Message(request))  # type: ignore[no-untyped-call]
    except HTTPMessageSignaturesException:
        raise ValueError("the request's method or address is not well-formed") from None
    lines: dict[str, str] = {}
    for component in components:
        line = str(component)
        name = component.value
        if type(name) is not str or name != name.lower() or name == "@signature-params":
            raise ValueError("a component has a name that cannot be covered")
        if line in lines:
            raise ValueError("a component is covered twice")
        try:
            value = resolver.resolve(component)
        except (HTTPMessageSignaturesException, TypeError, KeyError):
            raise ValueError("a component is unknown or absent") from None
        if value and not value.replace("\t", " ").isprintable():
            raise ValueError("a component holds control characters")
        lines[line] = value
    covered = InnerList(components)
    covered.params.update(parameters)
    lines['"@signature-params"'] = str(covered)
    text = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return text.encode("ascii"), str(covered)


def is_digest_of(headers: Headers, body: bytes) -> bool:
    """Check whether every digest in Content-Digest matches the body.

    A digest with an unknown algorithm does not match.
    """
    value = b", ".join(value for name, value in headers if name == CONTENT_DIGEST.encode())
    try:
        ContentDigest.verify(value, body)
    except HTTPMessageSignaturesException:
        return False
    return True


class _Message:
    def __init__(self, request: Incoming) -> None:
        self.method = request.method
        self.url = request.url or _NO_URL
        self.headers = _Lines(
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        )


class _Lines:
    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines

    def items(self) -> list[tuple[str, str]]:
        return self._lines


HMAC: Final = "hmac-sha256"
SCHEMES: Final[Mapping[str, str]] = {
    "ed25519": "ed25519",
    "ecdsa-p256-sha256": "ecdsa-p256-sha256-raw",
    "ecdsa-p384-sha384": "ecdsa-p384-sha384-raw",
    "rsa-pss-sha512": "rsa-pss-sha512",
    "rsa-v1_5-sha256": "rsa-pkcs1-sha256",
}

ECDSA: Final[Mapping[str, Mapping[str, str]]] = {
    "raw": SCHEMES,
    "der": {**SCHEMES, "ecdsa-p256-sha256": "ecdsa-p256-sha256"},
}
"""Names of the ECDSA algorithms, by signature format."""

EITHER: Final = "either"
"""Value of the option `ecdsa` that accepts both formats, as pawaPay needs."""

SHARED: Final = "hmac:"
"""Prefix of a shared secret, so that no public key is taken for one."""

LABEL: Final = "sig1"

MAX_LABELS: Final = 8
MAX_COMPONENTS: Final = 64
"""Maximum number of components in a request's signatures."""

Keys = Mapping[str, Key]


_MISSING = Refusal("signature_missing", f"{SIGNATURE_INPUT} and {SIGNATURE} have no common label.")
_MALFORMED = mismatch(f"{SIGNATURE_INPUT} or {SIGNATURE} is not a dictionary of RFC 9651.")
_TOO_MANY = mismatch(
    f"It has more than {MAX_LABELS} signatures, or more than {MAX_COMPONENTS} components in them."
)
_UNKNOWN_KEY = mismatch(
    "No signature names a configured key: add the key to the named secrets under its keyid."
)
_OTHER_ALGORITHM = mismatch("The signature's key may not be used with its alg.")
_OTHER_TAG = mismatch("The signature's tag is not the one in signature.options.tag.")
_NO_BASE = mismatch(
    "A component that the signature covers is unknown, absent, repeated or not plain ASCII."
)
_OTHER_SIGNATURE = mismatch(
    "The signature was not made with the key it names over the components it covers: the public "
    "URL differs, or the request was changed on its way."
)
_OTHER_BODY = mismatch(f"A digest in {CONTENT_DIGEST} is not the body's, or its kind is unknown.")
_EXPIRED = Refusal("timestamp_too_old", "The signature's own expires has passed.")


class Rfc9421(kit.NamedVerifier):
    """Verifier that uses the key named by a signature."""

    def __init__(
        self, keys: Mapping[str, Keys], *, required: tuple[str, ...], tag: str, age: AgeLimit
    ) -> None:
        self._keys = keys
        self._required = required
        self._tag = tag
        self._age = age
        names = ", ".join(dict.fromkeys((*required, CONTENT_DIGEST)))
        self._uncovered = mismatch(f"The signature does not cover all of {names}.")

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) There is a label with an input and a signature.
        try:
            claims = stated_claims(request.headers)
        except ValueError:
            names = {name for name, _ in request.headers}
            both = {SIGNATURE.encode(), SIGNATURE_INPUT.encode()} <= names
            return _MALFORMED if both else _MISSING
        covered = sum(len(claim.components) for claim in claims)
        if len(claims) > MAX_LABELS or covered > MAX_COMPONENTS:
            return _TOO_MANY
        refusals = []
        for claim in claims:
            refusal = self._check(claim, request, now)
            if refusal is None:
                return None
            refusals.append(refusal)
        # A genuine signature from another time is more informative than a stranger's signature.
        return max(refusals, key=lambda each: each.reason != "signature_mismatch", default=_MISSING)

    def _check(self, claim: Claim, request: Incoming, now: Instant) -> Refusal | None:
        # (2) Its key is known, and its algorithm and tag are allowed.
        identity = claim.parameters.get("keyid")
        keys = self._keys.get(identity) if type(identity) is str else None
        if keys is None:
            return _UNKNOWN_KEY
        algorithm = claim.parameters.get("alg")
        allowed = [key for name, key in keys.items() if algorithm in (None, name)]
        if not allowed:
            return _OTHER_ALGORITHM
        if self._tag and claim.parameters.get("tag") != self._tag:
            return _OTHER_TAG
        # (3) It covers the required components, and the body's digest where there is a body.
        if not claim.covers((*self._required, *([CONTENT_DIGEST] if request.body else []))):
            return self._uncovered
        # (4) The key signed the covered components as received.
        try:
            base, _ = signature_base(request, claim.components, claim.parameters)
        except ValueError:
            return _NO_BASE
        if not any(key.matches(base, [claim.signature]) for key in allowed):
            return _OTHER_SIGNATURE
        # (5) The covered digest is the body's.
        if claim.covers([CONTENT_DIGEST]) and not is_digest_of(request.headers, request.body):
            return _OTHER_BODY
        # (6) It was made near enough to now, and has not expired.
        created = _moment(claim.parameters.get("created"))
        if created is None:
            return self._age.missing("is missing or not a number of seconds")
        if "expires" in claim.parameters:
            expires = _moment(claim.parameters["expires"])
            if expires is None or now > expires:
                return _EXPIRED
        return self._age.check(created, now)

    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """Build a request that is signed with the first key."""
        made = {
            CONTENT_DIGEST: ContentDigest.create(body),
            "content-type": "application/json",
            "content-length": str(len(body)),
            "signature-date": format_instant(now),
        }
        covered = list(dict.fromkeys((*self._required, CONTENT_DIGEST)))
        headers = [(name, made[name]) for name in covered if name in made]
        raw = [(name.encode(), value.encode()) for name, value in headers]
        identity, keys = next(iter(self._keys.items()))
        algorithm, key = next(iter(keys.items()))
        parameters = {"created": now // SECOND, "keyid": identity, "alg": algorithm}
        try:
            base, stated = signature_base(
                Incoming(raw, body, method, url), [Item(name) for name in covered], parameters
            )
        except ValueError as error:
            raise ConfigurationError([f"this profile cannot sign: {error}"]) from None
        headers.append((SIGNATURE_INPUT, f"{LABEL}={stated}"))
        headers.append((SIGNATURE, str(Dictionary({LABEL: key.sign(base)}))))
        return Signed(headers, body, url)


def rfc9421(source: str, options: Mapping[str, object], secrets: Secrets) -> Rfc9421:
    """Compile the scheme.

    The options are `required` (default `content-digest`), `algorithms` (default all), `ecdsa`
    (`raw`, `der` or `either`; default `raw`), `tag` (default any), `past_s` and `future_s` (default
    300). A secret is a public key in PEM or as a JWK, or a shared secret as `hmac:` and base64,
    named by its keyid.
    """
    setup = Setup(source, options, secrets)
    required = setup.texts("required", (CONTENT_DIGEST,))
    algorithms = setup.texts("algorithms", (*SCHEMES, HMAC))
    tag = setup.text("tag", "")
    age = setup.age("The signature's created")
    for name in algorithms:
        if name not in (*SCHEMES, HMAC):
            setup.problem(f"signature.options.algorithms has {name!r}, which RFC 9421 lacks")
    written = setup.text("ecdsa", "raw")
    if written not in (*ECDSA, EITHER):
        setup.problem(f"signature.options.ecdsa must be raw, der or {EITHER}")
    keys = setup.named(lambda secret: _read_key(secret, algorithms=algorithms, ecdsa=written))
    if not secrets.named:
        setup.problem("has no key; give each key in KEYS under its keyid")
    setup.conclude()
    return Rfc9421(keys, required=required, tag=tag, age=age)


SCHEME: Final = NamedScheme(make=rfc9421, public_keys=True, mark="hmac:", encoding="base64")


def _read_key(secret: str, *, algorithms: tuple[str, ...], ecdsa: str) -> Keys:
    keys = _shared_key(secret) if secret.startswith(SHARED) else _public_key(secret, ecdsa)
    allowed = {name: key for name, key in keys.items() if name in algorithms}
    if not allowed:
        raise ValueError("fits none of the algorithms in signature.options.algorithms")
    return allowed


def _shared_key(secret: str) -> Keys:
    text = secret.removeprefix(SHARED)
    refuse_key_pair(text)
    try:
        value = from_base64(text.encode("ascii"))
    except ValueError:
        raise ValueError(f"is not well-formed base64 after {SHARED}") from None
    if not value:
        raise ValueError("is empty or blank")
    return {HMAC: HmacKey(value, algorithm="sha256")}


class _Either:
    secret = b""

    def __init__(self, one: Key, other: Key) -> None:
        self._one, self._other = one, other
        self.sign = one.sign

    def matches(self, content: bytes, signatures: Sequence[bytes]) -> bool:
        return self._one.matches(content, signatures) or self._other.matches(content, signatures)


def _public_key(secret: str, ecdsa: str) -> Keys:
    if ecdsa == EITHER:
        raw = _public_key(secret, "raw")
        return {name: _Either(key, raw[name]) for name, key in _public_key(secret, "der").items()}
    schemes = ECDSA.get(ecdsa, SCHEMES)
    load_key(secret.encode())
    keys: dict[str, Key] = {}
    for name, scheme in schemes.items():
        try:
            keys[name] = ASYMMETRIC_SCHEMES[scheme](secret.encode())
        except ValueError:  # a key of another kind, which another entry takes
            continue
    return keys


def _moment(seconds: Any) -> Instant | None:
    if type(seconds) is not int or not 0 <= seconds * SECOND <= LATEST:
        return None
    return EARLIEST + seconds * SECOND
