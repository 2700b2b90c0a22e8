"""A source: one provider account that sends to us. The one thing other packages use from here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from app.core.errors import ConfigurationError
from app.core.phone_key import PhoneKey
from app.core.reading import Belonging, Reading, Unreadable
from app.providers.answers import Handshake, Reply, compile_acknowledgement
from app.providers.ending import ALL_ENDED, Ending
from app.providers.fetched import AnswerReader
from app.providers.fields import event_id as checked_id
from app.providers.judging import Judge, compile_judge
from app.providers.named.contract import Arrived, Secrets, Signed
from app.providers.reader import Reader
from app.providers.refusal import Reason, Refusal
from app.providers.request import Headers
from app.providers.schemes import TOKENS, UNSIGNED
from app.providers.sections import Profile
from reconcile.instants import Instant
from reconcile.ledger.events import Event

__all__ = ["Reason", "Refusal", "Reply", "Signed", "Source"]


class Source:
    """A name, a profile and its secrets (newest first, or by key id), compiled once.

    asks                    whether the provider is asked about events before they count
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
    accounts                whose events count, where the profile names the member that tells; all
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
        self._judge: Judge = compile_judge(name, profile, given, strict=strict)
        self._ending = Ending(name, profile, secrets=given, ends=ends) if ends else None
        self._reader = Reader(
            name, profile, phone_key, own_orders=own_orders, accounts=frozenset(accounts)
        )
        self._answers = (
            AnswerReader(name, profile, own_orders=own_orders) if profile.fetch_back else None
        )
        self.own_orders = own_orders
        self.asks = profile.confirm is not None
        self._address = address
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
        self.signs_address: bool = self._judge.signs_address
        self.methods: frozenset[str] = frozenset(methods)

    def verify(
        self,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        now: Instant,
        method: str = "POST",
        url: str = "",
    ) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises, whatever the bytes.

        headers  as ASGI gives them: lower-case names, repeats kept
        url      the address as the provider signed it
        """
        judge = self._judge if self._ending is None else self._ending.judge_at(now)
        if judge is None:
            return ALL_ENDED
        return judge.verify(headers, body, now=now, method=method, url=self._full(url))

    @property
    def tokens(self) -> list[bytes]:
        """The values that the private headers may have."""
        return [each.encode("utf-8") for each in self._tokens.listed]

    def _full(self, url: str) -> str:
        return self._address + url if url.startswith("/") else url

    def acknowledge(self, headers: Headers, body: bytes, *, url: str) -> Reply | None:
        """What the provider wants to hear of a delivery that is stored; None: any 2xx will do."""
        return None if self._acknowledge is None else self._acknowledge(headers, body, url)

    def read(
        self,
        body: bytes,
        *,
        digest: str,
        headers: Headers = (),
        method: str = "POST",
        url: str = "",
    ) -> Reading:
        """What a genuine body says. Raises Unreadable with one sentence.

        digest  SHA-256 of the body, 64 hex digits
        """
        payload = self._judge.payload(Arrived(method, self._full(url), headers, body))
        return self._reader.read(payload, digest=digest, headers=headers, url=url)

    def belonging(
        self, body: bytes, *, headers: Headers = (), method: str = "POST", url: str = ""
    ) -> Belonging:
        """Whose event a genuine body is, and of which environment, where the profile says that
        these are named. Never raises: see `Reader.belonging`."""
        try:
            payload = self._judge.payload(Arrived(method, self._full(url), headers, body))
        except Unreadable:
            return Belonging(foreign=bool(self.profile.account.where))
        return self._reader.belonging(payload, headers=headers, url=url)

    def phones(
        self, body: bytes, *, headers: Headers, method: str = "POST", url: str = ""
    ) -> list[str]:
        """The customers' phone numbers that a genuine body names, as E.164 digits.

        Raises Unreadable.
        """
        payload = self._judge.payload(Arrived(method, self._full(url), headers, body))
        return self._reader.phones(payload, headers=headers, url=url)

    def read_answer(self, kept: bytes, *, digest: str) -> Event:
        """What the provider answered when it was asked back. Raises Unreadable.

        kept  what `answers.keep_answer` made; digest: its SHA-256, 64 hex digits
        """
        if self._answers is None:
            raise Unreadable("the profile no longer says how to read what its provider answers")
        return self._answers.read(kept, digest=digest)

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
        return self._judge.sign(body, event_id=checked, now=now, method=method, url=url)


def _secrets(given: Sequence[str] | Mapping[str, str] | Secrets) -> Secrets:
    if isinstance(given, Secrets):
        return given
    return Secrets(named=given) if isinstance(given, Mapping) else Secrets(listed=given)
