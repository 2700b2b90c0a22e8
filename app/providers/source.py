"""A source, which is one provider account that sends deliveries to us. Other packages mainly use
the class `Source`."""

import base64
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from app.core.errors import ConfigurationError
from app.core.phone_key import PhoneKey
from app.core.reading import Belonging, Reading, Unreadable
from app.providers import fields
from app.providers.documents import DOCUMENTS
from app.providers.fetched import AnswerReader
from app.providers.kit import NamedVerifier, Secrets, Signed, named_scheme
from app.providers.reader import NO_MEMBERS, EventReader
from app.providers.request import Incoming, Reason, Refusal, left_out
from app.providers.schemes import TOKENS, UNSIGNED
from app.providers.sections import Profile
from app.providers.verification import compile_verifier, signs_address
from reconcile.instants import Instant
from reconcile.ledger.events import Event

__all__ = ["ProviderReply", "Reason", "Refusal", "Signed", "Source"]

# --- answers in the provider's own form -----------------------------------------------------------


_ECHO: Final = re.compile(r"[!-~]{1,255}")


class ProviderReply(NamedTuple):
    """An HTTP answer in the form that the provider expects."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


Acknowledge = Callable[[Incoming], ProviderReply]


def compile_acknowledgement(profile: Profile) -> Acknowledge | None:
    """Compile the acknowledgement that the provider expects.

    Return None if the provider accepts any body.
    """
    rule = profile.acknowledgement
    if rule.body is None and not rule.fields:
        return None
    media = (b"content-type", rule.type.encode("ascii"))
    if rule.body is not None:
        constant = ProviderReply(rule.status, (media,), rule.body.encode("utf-8"))
        return lambda incoming: constant
    finds: dict[str, fields.Find] = {}
    constants: dict[str, Any] = {}
    for name, value in rule.fields:
        if type(value) is tuple:
            finds[name] = fields.compile_locations(value)
        else:
            constants[name] = value

    def acknowledge(incoming: Incoming) -> ProviderReply:
        data = _data_of(profile, incoming)
        answer = {
            name: _found(finds[name], data) if name in finds else constants[name]
            for name, _ in rule.fields
        }
        return ProviderReply(rule.status, (media,), json.dumps(answer, default=str).encode("ascii"))

    return acknowledge


def _found(find: fields.Find, data: fields.EventData) -> Any:
    # The delivery is stored already, and a value that cannot be echoed must not undo that.
    try:
        return find(data)
    except Unreadable:
        return None


def _data_of(profile: Profile, incoming: Incoming) -> fields.EventData:
    try:
        document = DOCUMENTS[profile.request.body](profile.request, incoming.body)
    except Unreadable:
        document = {}
    return fields.EventData(document, incoming, root=document, body=incoming.body, digest="")


# --- secrets that expire ------------------------------------------------------------------------


ALL_ENDED: Final = Refusal(
    "signature_mismatch",
    "Every secret of the source has expired; configure the provider's new secret.",
)


class ExpiringVerifiers:
    """Verifiers of a source whose secrets expire, one for each set of valid secrets."""

    __slots__ = ("_compile", "_ends", "_secrets", "_verifiers")

    def __init__(
        self,
        compile_with: Callable[[Secrets], NamedVerifier],
        secrets: Sequence[str],
        ends: Mapping[str, Instant],
    ) -> None:
        self._compile = compile_with
        self._secrets = tuple(secrets)
        self._ends = dict(ends)
        self._verifiers: dict[tuple[str, ...], NamedVerifier] = {}

    def verifier_at(self, now: Instant) -> NamedVerifier | None:
        """Return a verifier with the secrets valid at `now`."""
        valid = tuple(s for s in self._secrets if now < self._ends.get(s, now + 1))
        if not valid:
            return None
        if valid not in self._verifiers:
            self._verifiers[valid] = self._compile(Secrets(listed=valid))
        return self._verifiers[valid]


UNSHOWN: Final = "(secret)"

# --- A source -------------------------------------------------------------------------------------


class Source:
    """A source's name, profile and secrets, compiled once.

    Raises ConfigurationError if there is no secret, or a blank, malformed or short one.

    asks  whether the provider is asked about events before they count
    answers_with_event  whether the provider's answer is the event itself
    private_headers  headers whose value is the secret itself
    unsigned  whether the provider signs nothing, so that anyone can send events
    signs_address  whether the signature covers the address
    private_query  whether the query contains the secret itself
    address  scheme and host under which the provider knows us
    strict  whether secrets must have the profile's length; False for published examples
    phone_key  key for digests of customers' phone numbers, if any
    accounts  accounts whose events count
    only  locations by which our shop is recognized, each with its values
    own_orders  whether the source's orders are kept apart from all other orders
    links  whether an event's order is linked to its payment, and not only suggested
    ends  expiry of each secret that was replaced
    captures  payment methods that are captured without a further event
    webhook  `user:password` pairs that the provider can send besides its signature
    addresses  last parts of the deliveries' paths, newest first, each with its expiry
    """

    def __init__(
        self,
        *,
        name: str,
        profile: Profile,
        secrets: Sequence[str] | Mapping[str, str] | Secrets,
        address: str = "",
        strict: bool = True,
        ends: Mapping[str, Instant] | None = None,
        phone_key: PhoneKey | None = None,
        accounts: Iterable[str] = (),
        only: Mapping[str, Collection[str]] = NO_MEMBERS,
        own_orders: bool = False,
        links: bool = True,
        captures: Collection[str] = (),
        webhook: Iterable[str] = (),
        addresses: Mapping[str, Instant | None] | None = None,
    ) -> None:
        self.name = name
        self.addresses: Final = addresses or {name: None}
        self.profile = profile
        self.acknowledgement_status: int = profile.acknowledgement.status
        if isinstance(secrets, Mapping):
            secrets = Secrets(named=secrets)
        given = secrets if isinstance(secrets, Secrets) else Secrets(listed=secrets)
        compile_with = partial(compile_verifier, name, profile)
        self._verifier = compile_with(given, strict=strict)
        self._ending = (
            ExpiringVerifiers(partial(compile_with, strict=True), given.listed, ends)
            if ends
            else None
        )
        ours = frozenset(accounts)
        texts = [*given.listed, *given.named.values()]
        self._vouchers = tuple(
            b"Basic " + base64.b64encode(each.encode("utf-8")) for each in webhook
        )
        self.captures = frozenset(captures)
        self._reader = EventReader(
            name,
            profile,
            phone_key,
            own_orders=own_orders,
            links=links,
            accounts=ours,
            only=only,
            key_environment=profile.environment.of_keys(texts),
            captures=captures,
            vouchers=[*self._vouchers, *map(left_out, self._vouchers)],
        )
        self._answers = (
            AnswerReader(
                name, profile, own_orders=own_orders, links=links, accounts=ours, only=only
            )
            if profile.fetch_back
            else None
        )
        asked = () if profile.fetch_back is None else profile.fetch_back.url
        self.answers_with_event = bool(asked) and all("{id}" in url for url in asked)
        self.own_orders, self.links = own_orders, links
        self.asks = profile.confirm is not None
        self._acknowledge = compile_acknowledgement(profile)
        self._greeting = profile.particulars.greeting
        self.unsigned = profile.signature.mac == UNSIGNED
        token = profile.signature.mac in TOKENS
        kind, _, places = (profile.signature.where or "").partition(":")
        self.private_query = token and kind == "query"
        self.private_headers: frozenset[bytes] = frozenset(
            name.encode("ascii") for name in places.split(",") if token and kind == "header"
        ) | ({b"authorization"} if self._vouchers else frozenset())
        self._tokens = Secrets(listed=texts if token else ())
        self.signs_address = signs_address(profile)
        # A scheme in code may cover the address, although it does not always.
        seen = self.signs_address or named_scheme(profile.signature.mac) is not None
        self._address = address if seen else ""
        self.methods: frozenset[str] = frozenset(profile.request.methods)

    @property
    def path(self) -> str:
        """Path to which the provider must send deliveries. The path may be a secret."""
        return f"/webhooks/{next(iter(self.addresses))}"

    @property
    def shown_path(self) -> str:
        """Path for the provider's deliveries, with any secret part masked."""
        return self.path if self.name in self.addresses else f"/webhooks/{UNSHOWN}"

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """Return a refusal unless the request is genuine. No error is raised."""
        verifier = self._verifier if self._ending is None else self._ending.verifier_at(now)
        return (
            ALL_ENDED if verifier is None else verifier.verify(incoming.at(self._address), now=now)
        )

    @property
    def tokens(self) -> list[bytes]:
        """Allowed values of the headers that contain a secret."""
        return [*(each.encode("utf-8") for each in self._tokens.listed), *self._vouchers]

    @property
    def vouchers(self) -> list[str]:
        """Stored digests of the provider's own `authorization` headers."""
        return [left_out(each).decode("ascii") for each in self._vouchers]

    def acknowledge(self, incoming: Incoming) -> ProviderReply | None:
        """Return the acknowledgement that the provider expects.

        Return None if any answer 2xx is accepted.
        """
        return None if self._acknowledge is None else self._acknowledge(incoming)

    def greet(self, incoming: Incoming) -> ProviderReply | None:
        """Return the answer to a genuine request for an echo; None for a delivery."""
        if self._greeting is None:
            return None
        document = _data_of(self.profile, incoming).document
        echo = self._greeting(document) if type(document) is dict else None
        if type(echo) is not str or not _ECHO.fullmatch(echo):
            return None
        return ProviderReply(200, ((b"content-type", b"text/plain"),), echo.encode("ascii"))

    def read(self, incoming: Incoming, *, digest: str) -> Reading:
        """Return the events in a genuine request.

        Raise Unreadable if they cannot be read. The digest is SHA-256 in 64 hex digits.
        """
        return self._reader.read(self._verifier.payload(incoming), incoming, digest=digest)

    def belonging(self, incoming: Incoming) -> Belonging:
        """Return the account, shop and environment that a request states.

        No error is raised.
        """
        try:
            payload = self._verifier.payload(incoming)
        except Unreadable:
            return Belonging(foreign=self.profile.shares_key)
        return self._reader.belonging(payload, incoming)

    @property
    def vouches(self) -> bool:
        """Check whether verification proves that the provider sent a request."""
        return not (self.unsigned or self.profile.unconfirmed)

    def orders_named(self, incoming: Incoming, *, digest: str | None = None) -> set[str]:
        """Return the orders that a request names, even if unreadable otherwise.

        digest  digest of the single event to read; None for all
        """
        return self._reader.orders_named(self.payload(incoming), incoming, digest=digest)

    def payload(self, incoming: Incoming) -> bytes:
        """Return the body of a request, decrypted if possible."""
        try:
            return self._verifier.payload(incoming)
        except Unreadable:
            return incoming.body

    def phones(self, incoming: Incoming) -> list[str]:
        """Return the customers' phone numbers in a request, as E.164 digits.

        Raise Unreadable if the request cannot be read.
        """
        return self._reader.phones(self._verifier.payload(incoming), incoming)

    def respond_by(self, incoming: Incoming) -> Instant | None:
        """Return the only deadline for answering the dispute in a request, if any.

        Raise Unreadable if the request cannot be read.
        """
        return self._reader.respond_by(self._verifier.payload(incoming), incoming)

    def transaction(self, incoming: Incoming, *, digest: str) -> dict[str, str]:
        """Return the facts that one event of a request states about its payment.

        Raise Unreadable if the body cannot be read. A body with several events needs `digest`.
        """
        return self._reader.transaction(self._verifier.payload(incoming), incoming, digest=digest)

    def read_answer(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """Return the event of a stored answer. Raise Unreadable if none can be read.

        digest  SHA-256 of the stored bytes, 64 hex digits
        environment  environment of this instance; None for both
        """
        if self._answers is None:
            raise Unreadable("the profile no longer says how to read the provider's answers")
        return self._answers.read(kept, digest=digest, environment=environment)

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        """Return the headers with which the provider would send `body`.

        Raise Unreadable for an impossible id, and ConfigurationError if the signature belongs in
        the body or the address: call `signed` then.
        """
        signed = self.signed(body, event_id=event_id, now=now)
        if signed.body != body or signed.url:
            raise ConfigurationError(["this profile's signature is in the body or the address"])
        return signed.headers

    def signed(
        self,
        body: bytes,
        *,
        event_id: str,
        now: Instant,
        method: str = "POST",
        url: str = "",
    ) -> Signed:
        """Build the request that the provider itself would send.

        Raise Unreadable for an impossible id, and ConfigurationError if signing is impossible.
        """
        checked = fields.event_id(event_id, "event_id")
        return self._verifier.sign(body, event_id=checked, now=now, method=method, url=url)


class ProfileReader:
    """Reader of requests without secrets.

    Raises ConfigurationError if the bodies are encrypted or wrapped.
    """

    def __init__(
        self,
        source: str,
        profile: Profile,
        *,
        own_orders: bool = False,
        links: bool = True,
        captures: Collection[str] = (),
        vouchers: Iterable[str] = (),
    ) -> None:
        named = named_scheme(profile.signature.mac)
        if named is not None and named.wraps:
            raise ConfigurationError([f"bodies of {profile.name} cannot be read without a secret"])
        self._reader = EventReader(
            source,
            profile,
            own_orders=own_orders,
            links=links,
            captures=captures,
            vouchers=[each.encode("ascii") for each in vouchers],
        )
        self._answers = (
            AnswerReader(source, profile, own_orders=own_orders, links=links)
            if profile.fetch_back
            else None
        )

    def read(self, incoming: Incoming, *, digest: str) -> Reading:
        """Return the events in a request.

        Raise Unreadable if they cannot be read. The digest is SHA-256 in 64 hex digits.
        """
        return self._reader.read(incoming.body, incoming, digest=digest)

    def read_answer(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """Return the event of a stored answer. Raise Unreadable if none can be read.

        digest  SHA-256 of the stored bytes, 64 hex digits
        environment  environment of this instance; None for both
        """
        if self._answers is None:
            raise Unreadable("the profile does not say how to read the provider's answers")
        return self._answers.read(kept, digest=digest, environment=environment)
