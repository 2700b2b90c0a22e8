"""HMAC over a time, a list of header names, the headers' values and the body.

Source: docs.cdp.coinbase.com, "Verify signatures". The older v0 does not cover the headers, and is
refused.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from app.providers import kit
from app.providers.kit_setup import Setup, text_secret
from app.providers.request import Incoming, Refusal
from app.providers.schemes import HmacKey
from reconcile.instants import EARLIEST, SECOND, Instant

MAX_DIGITS: Final = 12
"""Maximum number of digits of a signature's time in seconds."""


MAX_NAMES: Final = 64
"""Maximum number of headers that one signature covers.

Thousands of names could produce megabytes of signed content.
"""


class SignatureHeader(NamedTuple):
    """Parts of the signature header. The time and the header names are as they were received."""

    time: bytes
    names: bytes
    signatures: list[bytes]


class CoveredHeaders(kit.NamedVerifier):
    """Verifier of signatures that must cover certain headers, with secrets newest first.

    required  names of these headers
    """

    def __init__(
        self,
        keys: Sequence[HmacKey],
        *,
        header: str,
        required: Sequence[str],
        age: kit.AgeLimit,
    ) -> None:
        self._keys = keys
        self._header = kit.SingleHeader(header)
        self._required = required
        self._age = age
        self._malformed = kit.mismatch(
            f"The header {header} is not of the form t=…,h=…,v1=…, or names more than {MAX_NAMES} "
            "headers."
        )
        self._uncovered = kit.mismatch(
            f"The signature does not cover every one of the headers: {', '.join(required)}."
        )
        self._ambiguous = kit.mismatch(
            f"A header that {header} lists is missing or came more than once."
        )
        self._mismatch = kit.mismatch(
            f"No v1 in {header} was made with a configured secret: the secret differs, or the "
            "request was changed on its way."
        )

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) There is one signature header, with a time, a list of names and a v1.
        value = self._header.value(request.headers)
        if isinstance(value, Refusal):
            return value
        stated = self._parsed(value)
        if isinstance(stated, Refusal):
            return stated
        # (2) It covers what the profile requires, with the values as received.
        content = self._covered(stated, request)
        if isinstance(content, Refusal):
            return content
        if not any([key.matches(content, stated.signatures) for key in self._keys]):  # noqa: C419
            return self._mismatch
        # (3) The signed time is near enough.
        return self._age.check(EARLIEST + int(stated.time) * SECOND, now)

    def _parsed(self, value: bytes) -> SignatureHeader | Refusal:
        pairs = [part.strip().partition(b"=")[::2] for part in value.split(b",")]
        times = [text for name, text in pairs if name == b"t"]
        if len(times) != 1 or not times[0].isdigit() or len(times[0]) > MAX_DIGITS:
            fault = "is missing, repeated, or not a number of seconds"
            return self._age.missing(fault)
        names = [text for name, text in pairs if name == b"h"]
        signatures = []
        for text in (text for name, text in pairs if name == b"v1"):
            try:
                signatures.append(kit.from_hex(text))
            except ValueError:
                continue  # a malformed one hides no good one beside it
        if len(names) != 1 or not signatures:
            return self._malformed
        return SignatureHeader(times[0], names[0], signatures)

    def _covered(self, stated: SignatureHeader, request: Incoming) -> bytes | Refusal:
        names = stated.names.split()
        if len(names) > MAX_NAMES:
            return self._malformed
        if not {name.encode() for name in self._required} <= set(names):
            return self._uncovered
        values = []
        for name in names:
            found = [value for each, value in request.headers if each == name.lower()]
            if len(found) != 1:
                return self._ambiguous
            values.append(found[0])
        return _content(stated.time, stated.names, values=values, body=request.body)

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a request whose signature covers the required headers."""
        headers = [
            (name, "application/json" if name == "content-type" else event_id)
            for name in self._required
        ]
        time = b"%d" % (now // SECOND)
        names = " ".join(self._required).encode()
        values = [value.encode() for _, value in headers]
        signature = self._keys[0].sign(_content(time, names, values=values, body=body)).hex()
        value = f"t={time.decode()},h={names.decode()},v1={signature}"
        return kit.Signed([*headers, (self._header.name, value)], body, url)


def covered_headers(
    source: str, options: Mapping[str, object], secrets: kit.Secrets
) -> CoveredHeaders:
    """Compile the scheme.

    The options are `header` (default `x-hook0-signature`), `required` (default none), `past_s` and
    `future_s` (default 300).
    """
    setup = Setup(source, options, secrets)
    header = setup.text("header", "x-hook0-signature")
    required = setup.texts("required")
    age = setup.age(f"The time in {header}")
    keys = setup.listed(lambda secret: HmacKey(text_secret(secret), algorithm="sha256"))
    if not secrets.listed:
        setup.problem("has no secret; give the secret of the webhook's subscription")
    setup.conclude()
    return CoveredHeaders(keys, header=header, required=required, age=age)


SCHEME: Final = kit.NamedScheme(make=covered_headers)


def _content(time: bytes, names: bytes, *, values: Sequence[bytes], body: bytes) -> bytes:
    return b".".join((time, names, b".".join(values), body))
