"""Interface of the modules in `named/`: what a profile file cannot describe.

A module can have a `SCHEME`, for `mac = "named:NAME"`, and `PARTICULARS`, for `code = "NAME"`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl

from app.providers.encodings import ENCODINGS
from app.providers.fields import EventData
from app.providers.request import MAX_FORM_BYTES, Headers, Incoming, Refusal, header_values
from reconcile.instants import Duration, Instant, format_duration
from reconcile.ledger.events import Event, StateMember, StateWord

from_base64 = ENCODINGS["base64"].decode
to_base64 = ENCODINGS["base64"].encode
from_hex = ENCODINGS["hex"].decode

MAX_FORM_FIELDS = 1000
"""Maximum number of fields of a form."""


class SingleHeader:
    """A header that must be present exactly once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values = header_values(name)
        self._missing = Refusal("signature_missing", f"There is no header {name}.")
        self._repeated = Refusal(
            "signature_mismatch",
            f"The header {name} came more than once, so what was signed is ambiguous.",
        )

    def value(self, headers: Headers) -> bytes | Refusal:
        """Return the header's one value without surrounding blanks, or the refusal."""
        found = self._values(headers)
        if len(found) != 1:
            return self._repeated if found else self._missing
        return found[0].strip() or self._missing


def mismatch(sentence: str) -> Refusal:
    return Refusal("signature_mismatch", sentence)


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form as sent, with bytes that are not UTF-8.

    Raise ValueError if the form is too large.
    """
    if len(body) > MAX_FORM_BYTES:
        raise ValueError(f"the form is larger than {MAX_FORM_BYTES:,} bytes")
    return parse_qsl(
        body.decode("utf-8", "surrogateescape"),
        keep_blank_values=True,
        errors="surrogateescape",
        max_num_fields=MAX_FORM_FIELDS,
    )


def ascii_text(value: bytes) -> str | None:
    """Return a header's value as text; None if not plain ASCII."""
    return value.decode("ascii") if value.isascii() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeLimit:
    """The allowed age of a signature."""

    what: str
    """Name of the time in sentences."""
    past: Duration
    """Maximum age, inclusive."""
    future: Duration
    """Maximum time ahead of our clock, inclusive."""

    def check(self, signed_at: Instant, now: Instant) -> Refusal | None:
        """Return a refusal if a time is not allowed."""
        age = now - signed_at
        if age > self.past:
            fault = f"is {format_duration(age)} old; at most {format_duration(self.past)}"
            return Refusal("timestamp_too_old", f"{self.what} {fault} is allowed.")
        if age < -self.future:
            fault = f"lies {format_duration(-age)} ahead of our clock; at most"
            allowed = format_duration(self.future)
            return Refusal("timestamp_too_new", f"{self.what} {fault} {allowed} is allowed.")
        return None

    def missing(self, fault: str) -> Refusal:
        """Build the refusal for a time that is absent or cannot be read."""
        return Refusal("timestamp_missing", f"{self.what} {fault}.")


class Signed(NamedTuple):
    """A request as the provider itself would send it, with its signature."""

    headers: list[tuple[str, str]]
    body: bytes
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets of a source, hidden from the repr."""

    listed: Sequence[str] = field(default=(), repr=False)
    """Alternative secrets, newest first."""
    named: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets by id of the key, or by name of its part."""


class NamedVerifier(ABC):
    """A signature scheme compiled with a source's secrets. The compiling function raises one
    ConfigurationError that lists every problem."""

    @abstractmethod
    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        """Return a refusal unless a request that arrived at `now` is genuine.

        No error is raised.
        """

    def payload(self, request: Incoming) -> bytes:
        """Return the document in a verified request's body.

        Raise Unreadable if this fails.
        """
        return request.body

    @abstractmethod
    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """Build the request that a genuine provider would send with this body.

        Raise ConfigurationError if the private key is missing.
        """


Factory = Callable[[str, Mapping[str, object], Secrets], NamedVerifier]
"""Function that compiles a scheme from source, options and secrets."""


_COMPONENTS: Final[Mapping[str, frozenset[str]]] = {
    "@query": frozenset({"query"}),
    "@request-target": frozenset({"query"}),
    "@target-uri": frozenset({"query", "address"}),
    "@authority": frozenset({"address"}),
    "@scheme": frozenset({"address"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedScheme:
    """A signature scheme of `named/`."""

    make: Factory
    """Compiles the scheme."""
    beside: frozenset[str] = frozenset()
    """Parts that the signature covers besides the body: `query`, or `address` for scheme and
    host."""
    wraps: bool = False
    """True if the body wraps or encrypts the document."""
    public_keys: bool = False
    """True if the secrets are public keys."""
    mark: str = ""
    """Prefix of each shared secret."""
    encoding: str = "text"
    """Encoding of a shared secret, as a key of SECRET_ENCODINGS."""
    binding: str | None = None
    """Name of the signed secret that identifies the account. None if each secret is a key."""

    def covers(self, options: Mapping[str, object]) -> frozenset[str]:
        """Return the parts besides the body that the signature covers."""
        required = options.get("required", ())
        names = required if isinstance(required, list | tuple) else ()
        headers = {f"header:{each}" for each in names}
        return self.beside.union(headers, *(_COMPONENTS.get(each, ()) for each in names))


class StatedMovement(NamedTuple):
    """A refund or chargeback that a fetched answer states. The values are not checked yet."""

    member: StateMember
    word: StateWord
    reference: object
    amount: object
    currency: object
    at: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars:
    """Functions that one provider's events need besides their profile."""

    other_form: Callable[[str], str] | None = None
    """Returns another template of the signed content that the provider sometimes uses."""
    greeting: Callable[[dict[str, Any]], object] | None = None
    """Returns the text to echo to a verified request, 1 to 255 printable ASCII characters. Any
    other value means that the request is a delivery."""
    capturing: Callable[[Event, EventData], object] | None = None
    """Returns the method of a payment that may be captured without a further event. The source must
    list the method in CAPTURES."""
    split: Callable[[Event, bytes, EventData], list[tuple[bytes, Event]]] | None = None
    """Takes an event, its bytes and its data, and returns the events in it, each with its bytes."""
    movements: Callable[[Any], Iterable[StatedMovement]] | None = None
    """Takes a fetched answer with the claim `succeeded`, and returns its refunds and
    chargebacks."""


_MODULES: Final = frozenset(
    path.stem for path in (Path(__file__).parent / "named").glob("[!_]*.py")
)


def _named(name: str, what: str) -> Any:
    found = import_module(f"app.providers.named.{name}") if name in _MODULES else None
    return getattr(found, what, None)


def names_of(what: str) -> list[str]:
    """Return the modules in `named/` with this attribute."""
    return [name for name in sorted(_MODULES) if _named(name, what)]


def named_scheme(mac: str) -> NamedScheme | None:
    """Load the named signature scheme, if any."""
    kind, _, name = mac.partition(":")
    return cast(NamedScheme | None, _named(name, "SCHEME")) if kind == "named" else None


def particulars(code: str | None) -> Particulars | None:
    """Load the functions that a profile's `code` names; None if there are none."""
    return Particulars() if code is None else cast(Particulars | None, _named(code, "PARTICULARS"))
