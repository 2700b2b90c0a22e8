"""A source: one provider account that sends to us. The one thing other packages use from here."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.core.errors import ConfigurationError
from app.core.phone_key import PhoneKey
from app.core.reading import Belonging, Reading, Unreadable
from app.providers.documents import DOCUMENTS
from app.providers.fetched import AnswerReader
from app.providers.fields import Facts, compile_locations
from app.providers.fields import event_id as checked_id
from app.providers.named.contract import WRAPPED, Secrets, Signed
from app.providers.reader import Reader
from app.providers.request import Incoming, Reason, Refusal
from app.providers.schemes import NAMED, TOKENS, UNSIGNED
from app.providers.sections import HandshakeRule, Profile
from app.providers.verification import SourceVerifier, compile_verifier
from reconcile.instants import Instant
from reconcile.ledger.events import Event

# --- what a provider wants to hear ----------------------------------------------------------------


_ECHO: Final = re.compile(r"[!-~]{1,255}")
"""What may be echoed: no blank, no line break, nothing that could become markup unnoticed."""


class Reply(NamedTuple):
    """An answer of the provider's own form."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


Acknowledge = Callable[[Incoming], Reply]
"""An accepted delivery → its acknowledgement."""


def compile_acknowledgement(profile: Profile) -> Acknowledge | None:
    """None where the provider is content with any body."""
    rule = profile.acknowledgement
    if rule.body is None and not rule.fields:
        return None
    media = (b"content-type", rule.type.encode("ascii"))
    if rule.body is not None:
        constant = Reply(rule.status, (media,), rule.body.encode("utf-8"))
        return lambda incoming: constant
    fields = [(name, _field(value)) for name, value in rule.fields]

    def acknowledge(incoming: Incoming) -> Reply:
        facts = facts_of(profile, incoming)
        answer = {name: _looked_up(find, facts) for name, find in fields}
        return Reply(rule.status, (media,), json.dumps(answer, default=str).encode("ascii"))

    return acknowledge


def _field(value: Any) -> Callable[[Facts], Any]:
    return compile_locations(value) if type(value) is tuple else lambda facts: value


def _looked_up(find: Callable[[Facts], Any], facts: Facts) -> Any:
    # The delivery is stored already: what cannot be echoed must not undo that.
    try:
        return find(facts)
    except Unreadable:
        return None


def facts_of(profile: Profile, incoming: Incoming) -> Facts:
    """What locations of the whole request look at; of a body that cannot be read, nothing."""
    headers, body, _, url = incoming[:4]
    try:
        document = DOCUMENTS[profile.request.body](profile.request, body)
    except Unreadable:
        document = {}
    return Facts(document, root=document, headers=headers, body=body, url=url, digest="")


class Handshake:
    """Answers what a provider asks before it sends, and nothing else.

    A GET is answered where it brings one of the secrets, an OPTIONS where it comes from the origin
    that the profile names, a POST only once it was verified.

    after_verification  whether a request must have been verified before it is answered
    """

    def __init__(self, profile: Profile, rule: HandshakeRule, secrets: Sequence[str]) -> None:
        self._method = rule.method
        self.after_verification = rule.method == "POST"
        self._profile = profile
        self._when, self._echo = compile_locations(rule.when), compile_locations(rule.echo)
        wanted = secrets if rule.equals_secret else [rule.equals or ""]
        self._wanted = [each.encode("utf-8") for each in wanted]
        self._kind, _, self._name = rule.answer.partition(":")

    def answer(self, incoming: Incoming) -> Reply | None:
        """None where the request is no handshake. Never raises."""
        if incoming.method != self._method:
            return None
        # What asks without a signature says nothing in a body, and anyone can send a long one.
        heard = incoming if self.after_verification else incoming._replace(body=b"")
        facts = facts_of(self._profile, heard)
        asked, echo = _looked_up(self._when, facts), _looked_up(self._echo, facts)
        if type(asked) is not str or type(echo) is not str or not _ECHO.fullmatch(echo):
            return None
        given = asked.encode("utf-8", "surrogatepass")
        if not any(hmac.compare_digest(each, given) for each in self._wanted):
            return None
        if self._kind == "header":
            return Reply(200, ((self._name.encode("ascii"), echo.encode("ascii")),), b"")
        text = json.dumps({self._name: echo}) if self._kind == "json" else echo
        media = b"application/json" if self._kind == "json" else b"text/plain"
        return Reply(200, ((b"content-type", media),), text.encode("ascii"))


# --- secrets that end -----------------------------------------------------------------------------


ALL_ENDED: Final = Refusal(
    "signature_mismatch", "Every secret of the source has ended; configure the provider's new one."
)


class Ending:
    """The verifiers of one source over time. Slots, so that nothing prints a secret."""

    __slots__ = ("_address", "_ends", "_name", "_profile", "_secrets", "_verifiers")

    def __init__(
        self,
        name: str,
        profile: Profile,
        *,
        secrets: Secrets,
        ends: Mapping[str, Instant],
        address: str,
    ) -> None:
        self._name = name
        self._profile = profile
        self._secrets = tuple(secrets.listed)
        self._ends = dict(ends)
        self._address = address
        self._verifiers: dict[tuple[str, ...], SourceVerifier] = {}

    def verifier_at(self, now: Instant) -> SourceVerifier | None:
        """With the secrets that are valid at `now`, compiled once; None where none is."""
        valid = tuple(s for s in self._secrets if now < self._ends.get(s, now + 1))
        if not valid:
            return None
        if valid not in self._verifiers:
            self._verifiers[valid] = compile_verifier(
                self._name,
                self._profile,
                Secrets(listed=valid),
                strict=True,
                address=self._address,
            )
        return self._verifiers[valid]


# --- A source -------------------------------------------------------------------------------------


__all__ = ["Reason", "Refusal", "Reply", "Signed", "Source"]


class Source:
    """A name, a profile and its secrets (newest first, or by key id), compiled once.

    asks                    whether the provider is asked about events before they count
    answers_with_event      whether it is asked for the event itself by its id, which stays as it is
    acknowledgement_status  the HTTP status the provider wants to hear
    methods                 the HTTP methods that it sends, or asks with
    handshake               what the provider asks before it sends; None where it asks nothing
    private_headers         those of which the secret itself is the value
    unsigned                whether nothing at all is verified, so that anyone is heard
    signs_address           whether the signature covers the address, so that `address` is needed
    private_query           whether the secret itself stands in the query
    address                 scheme and host under which the provider knows us, put before every
                            `url` that is only a path
    strict                  whether secrets must be as long as the profile says, and without blanks
                            around them; those of published examples are not

    phone_key               what makes digests of the customers' phone numbers; None: none are made
    accounts                whose events count, where the profile names the member that says; all
                            others are foreign
    own_orders              whether its orders meet no other source's: see `fields.order_named`
    ends                    secrets that prove nothing from an instant on: those that were changed

    Raises ConfigurationError where there is no secret, or one is blank, ill-formed or too short.
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
        own_orders: bool = False,
    ) -> None:
        self.name = name
        self.profile = profile
        self.acknowledgement_status: int = profile.acknowledgement.status
        given = _secrets(secrets)
        self._verifier: SourceVerifier = compile_verifier(
            name, profile, given, strict=strict, address=address
        )
        self._ending = (
            Ending(name, profile, secrets=given, ends=ends, address=address) if ends else None
        )
        self._reader = Reader(
            name, profile, phone_key, own_orders=own_orders, accounts=frozenset(accounts)
        )
        self._answers = (
            AnswerReader(name, profile, own_orders=own_orders) if profile.fetch_back else None
        )
        asked = () if profile.fetch_back is None else profile.fetch_back.url
        self.answers_with_event = bool(asked) and all("{id}" in url for url in asked)
        self.own_orders = own_orders
        self.asks = profile.confirm is not None
        self._acknowledge = compile_acknowledgement(profile)
        texts = [*given.listed, *given.named.values()]
        rule = profile.handshake
        self.handshake = None if rule is None else Handshake(profile, rule, texts)
        self.unsigned = profile.signature.mac == UNSIGNED
        token = profile.signature.mac in TOKENS
        kind, _, places = (profile.signature.where or "").partition(":")
        self.private_query = token and kind == "query"
        self.private_headers: frozenset[bytes] = frozenset(
            name.encode("ascii") for name in places.split(",") if token and kind == "header"
        )
        self._tokens = Secrets(listed=texts if token else ())
        methods = {*profile.request.methods, *({rule.method} if rule else ())}
        self.signs_address: bool = self._verifier.signs_address
        self.methods: frozenset[str] = frozenset(methods)

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises, whatever the bytes."""
        verifier = self._verifier if self._ending is None else self._ending.verifier_at(now)
        return ALL_ENDED if verifier is None else verifier.verify(incoming, now=now)

    @property
    def tokens(self) -> list[bytes]:
        """The values that the private headers may have."""
        return [each.encode("utf-8") for each in self._tokens.listed]

    def acknowledge(self, incoming: Incoming) -> Reply | None:
        """What the provider wants to hear of a delivery that is stored; None: any 2xx will do."""
        return None if self._acknowledge is None else self._acknowledge(incoming)

    def read(self, incoming: Incoming, *, digest: str) -> Reading:
        """What a genuine request says. Raises Unreadable with one sentence.

        digest  SHA-256 of the body, 64 hex digits
        """
        return self._reader.read(self._verifier.payload(incoming), incoming, digest=digest)

    def belonging(self, incoming: Incoming) -> Belonging:
        """Whose event a genuine request is, and of which environment, where the profile says that
        these are named. Never raises: see `Reader.belonging`."""
        try:
            payload = self._verifier.payload(incoming)
        except Unreadable:
            return Belonging(foreign=bool(self.profile.account.where))
        return self._reader.belonging(payload, incoming)

    def phones(self, incoming: Incoming) -> list[str]:
        """The customers' phone numbers that a genuine request names, as E.164 digits.

        Raises Unreadable.
        """
        return self._reader.phones(self._verifier.payload(incoming), incoming)

    def respond_by(self, incoming: Incoming) -> Instant | None:
        """Until when a dispute that a genuine request reports may be answered; None where it does
        not say. Raises Unreadable."""
        return self._reader.respond_by(self._verifier.payload(incoming), incoming)

    def read_answer(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """What the provider answered when it was asked back. Raises Unreadable.

        kept  what `answers.keep_answer` made; digest: its SHA-256, 64 hex digits
        environment  which this instance serves; None: answers of either are read
        """
        if self._answers is None:
            raise Unreadable("the profile no longer says how to read what its provider answers")
        return self._answers.read(kept, digest=digest, environment=environment)

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        """The headers with which the provider itself would send `body`, with the newest secret.

        Raises ValueError for an id no provider could send, ConfigurationError where the profile
        signs in the body or the address: `signed` gives those.
        """
        signed = self.signed(body, event_id=event_id, now=now)
        if signed.body != body or signed.url:
            raise ConfigurationError(["this profile's signature stands in the body or the address"])
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
        """The whole request as the provider itself would send it.

        Raises as `sign` does, and ConfigurationError where we have only a public key.
        """
        checked = checked_id(event_id, "event_id")
        return self._verifier.sign(body, event_id=checked, now=now, method=method, url=url)


def _secrets(given: Sequence[str] | Mapping[str, str] | Secrets) -> Secrets:
    if isinstance(given, Secrets):
        return given
    return Secrets(named=given) if isinstance(given, Mapping) else Secrets(listed=given)


class ProfileReader:
    """One source's profile alone. Raises ConfigurationError where bodies are wrapped."""

    def __init__(self, source: str, profile: Profile, *, own_orders: bool = False) -> None:
        if profile.signature.mac.removeprefix(NAMED) in WRAPPED:
            raise ConfigurationError([f"bodies of {profile.name} cannot be read without a secret"])
        self._reader = Reader(source, profile, own_orders=own_orders)
        self._answers = (
            AnswerReader(source, profile, own_orders=own_orders) if profile.fetch_back else None
        )

    def read(self, incoming: Incoming, *, digest: str) -> Reading:
        """What a request says. Raises Unreadable with one sentence."""
        return self._reader.read(incoming.body, incoming, digest=digest)

    def read_answer(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """What the provider answered when it was asked back. Raises Unreadable."""
        if self._answers is None:
            raise Unreadable("the profile does not say how to read what its provider answers")
        return self._answers.read(kept, digest=digest, environment=environment)
