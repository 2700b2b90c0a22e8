"""What a named verifier is, and which there are: schemes that a file alone cannot say.

A profile names one as `mac = "named:NAME"` and gives it options in `[signature.options]`. Compiled
once at start; a request only runs through it. Each is a function in the module of its name, which
is loaded when a source first needs it: most sources need none, and all of them together take time
at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl

from app.providers.encodings import ENCODINGS
from app.providers.request import MAX_FORM_BYTES, Headers, Incoming, Refusal, header_values
from reconcile.instants import Duration, Instant, format_duration

from_base64 = ENCODINGS["base64"].decode
to_base64 = ENCODINGS["base64"].encode
from_hex = ENCODINGS["hex"].decode

MAX_FORM_FIELDS = 1000
"""No provider's form has a tenth of them; more is work for nothing."""


class Header:
    """A header that must come exactly once, with the refusals for when it does not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values = header_values(name)
        self._missing = Refusal("signature_missing", f"There is no header {name}.")
        self._repeated = Refusal(
            "signature_mismatch",
            f"The header {name} came more than once, so what was signed is ambiguous.",
        )

    def value(self, headers: Headers) -> bytes | Refusal:
        """Its one value, without blanks around it."""
        found = self._values(headers)
        if len(found) != 1:
            return self._repeated if found else self._missing
        return found[0].strip() or self._missing


def mismatch(sentence: str) -> Refusal:
    """The refusal of a signature that does not hold."""
    return Refusal("signature_mismatch", sentence)


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form as sent, bytes that are not UTF-8 kept. ValueError for too many, and for
    a form that is too long."""
    if len(body) > MAX_FORM_BYTES:
        raise ValueError("longer than a form of a provider")
    return parse_qsl(
        body.decode("utf-8", "surrogateescape"),
        keep_blank_values=True,
        errors="surrogateescape",
        max_num_fields=MAX_FORM_FIELDS,
    )


def ascii_text(value: bytes) -> str | None:
    """The text of a header value; None where it is not plain ASCII."""
    return value.decode("ascii") if value.isascii() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """A tolerance. `past` and `future` are inclusive; sentences call the moment `what`."""

    what: str
    past: Duration
    future: Duration

    def check(self, signed_at: Instant, now: Instant) -> Refusal | None:
        """None where `signed_at` is no older or newer than allowed at `now`."""
        age = now - signed_at
        if age > self.past:
            fault = f"is {format_duration(age)} old; at most {format_duration(self.past)}"
            return Refusal("timestamp_too_old", f"{self.what} {fault} is allowed.")
        if age < -self.future:
            lead = f"lies {format_duration(-age)} ahead of our clock"
            allowed = format_duration(self.future)
            return Refusal(
                "timestamp_too_new", f"{self.what} {lead}; at most {allowed} is allowed."
            )
        return None

    def missing(self, fault: str) -> Refusal:
        """The refusal of a moment that is absent or unreadable."""
        return Refusal("timestamp_missing", f"{self.what} {fault}.")


class Signed(NamedTuple):
    """A request as the provider itself would send it."""

    headers: list[tuple[str, str]]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """A source's secrets; never shown, whatever prints it.

    listed  any of them may match, the newest first
    named   key id, or the part's name, to the key
    """

    listed: Sequence[str] = field(default=(), repr=False)
    named: Mapping[str, str] = field(default_factory=dict, repr=False)


class NamedVerifier(Protocol):
    """One compiled scheme. Its factory raises ConfigurationError with every problem at once."""

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises, whatever the bytes."""
        ...

    def payload(self, request: Incoming) -> bytes:
        """The document that says what happened: decoded or decrypted where the scheme wraps it.

        Asked only of a request that `verify` passed. Raises Unreadable.
        """
        ...

    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """What a genuine provider would send around `body`.

        Raises ConfigurationError where the source has only the public half of the key.
        """
        ...


Factory = Callable[[str, Mapping[str, object], Secrets], NamedVerifier]
"""(source's name, the profile's options, the source's secrets) to a compiled scheme."""


NAMED: Final = (
    "braintree",
    "covered_headers",
    "oppwa",
    "paypal",
    "plaid",
    "rfc9421",
    "twilio",
)

WRAPPED: Final = frozenset({"braintree", "oppwa"})
"""Those whose body is not the document itself: it is wrapped in it, or encrypted."""

SIGN_THE_ADDRESS: Final = frozenset({"twilio"})
"""Those whose signature always covers scheme and host, which we cannot see behind a proxy."""


def factory_of(name: str) -> Factory:
    """What compiles the scheme of one of the names."""
    module = import_module(f"app.providers.named.{name}")
    return cast(Factory, getattr(module, name))
