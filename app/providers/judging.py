"""Who judges a source's requests: the declarative engine, a named verifier, or nobody."""

from __future__ import annotations

from typing import Final, Protocol

from app.core.errors import ConfigurationError
from app.providers.keys import compile_keys
from app.providers.named.contract import Arrived, NamedVerifier, Secrets, Signed
from app.providers.named.registry import SIGN_THE_ADDRESS, factory_of
from app.providers.refusal import Refusal
from app.providers.request import Headers
from app.providers.schemes import NAMED, UNSIGNED
from app.providers.sections import Profile
from app.providers.signing import Signer
from app.providers.verification import Verifier
from reconcile.instants import Instant


class Judge(Protocol):
    """Verifies, unwraps and signs for one source.

    signs_address  whether scheme and host of the address are covered
    """

    signs_address: bool

    def verify(
        self, headers: Headers, body: bytes, *, now: Instant, method: str, url: str
    ) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises."""
        ...

    def payload(self, arrived: Arrived) -> bytes:
        """The document that says what happened. Raises Unreadable."""
        ...

    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """The request as the provider itself would send it. Raises ConfigurationError."""
        ...


class Declared:
    """A scheme that the profile file says in full."""

    def __init__(self, profile: Profile, verifier: Verifier) -> None:
        self.verify = verifier.verify
        self.sign = Signer(profile, verifier).sign
        self.signs_address = "url" in verifier.template.names

    def payload(self, arrived: Arrived) -> bytes:
        """The body itself."""
        return arrived.body


class Unsigned:
    """No scheme at all: every request passes, and counts only after it was fetched back."""

    signs_address = False

    def verify(
        self, headers: Headers, body: bytes, *, now: Instant, method: str, url: str
    ) -> Refusal | None:
        """Anyone is heard; the profile's rules see to it that nobody is believed."""
        return None

    def payload(self, arrived: Arrived) -> bytes:
        """The body itself."""
        return arrived.body

    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """The body, with nothing added."""
        return Signed(headers=[], body=body, url=url)


class ByName:
    """A scheme that needs code."""

    def __init__(self, verifier: NamedVerifier, *, signs_address: bool) -> None:
        self.payload = verifier.payload
        self.sign = verifier.sign
        self._verify = verifier.verify
        self.signs_address = signs_address

    def verify(
        self, headers: Headers, body: bytes, *, now: Instant, method: str, url: str
    ) -> Refusal | None:
        """What the named verifier says."""
        return self._verify(Arrived(method, url, headers, body), now=now)


_UNSIGNED: Final = Unsigned()


def compile_judge(source: str, profile: Profile, secrets: Secrets, *, strict: bool) -> Judge:
    """The judge that the profile's mac calls for. Raises ConfigurationError with every problem."""
    mac = profile.signature.mac
    if mac == UNSIGNED:
        return _UNSIGNED
    if mac.startswith(NAMED):
        _refuse_blank(source, secrets)
        name = mac.removeprefix(NAMED)
        verifier = factory_of(name)(source, _options(profile), secrets)
        return ByName(verifier, signs_address=_signs_address(name, profile))
    keys = compile_keys(source, profile, secrets, strict=strict)
    return Declared(profile, Verifier(profile, keys))


_OF_THE_ADDRESS: Final = frozenset({"@authority", "@scheme", "@target-uri"})
"""Components of RFC 9421 that only the public address tells."""


def _signs_address(name: str, profile: Profile) -> bool:
    required = _options(profile).get("required")
    covered = set(required) if isinstance(required, list) else set()
    return name in SIGN_THE_ADDRESS or bool(covered & _OF_THE_ADDRESS)


def _options(profile: Profile) -> dict[str, object]:
    """As the file has them: a frozen profile holds its lists as tuples."""
    pairs = profile.signature.options
    return {name: [*value] if type(value) is tuple else value for name, value in pairs}


def _refuse_blank(source: str, secrets: Secrets) -> None:
    texts = [*secrets.listed, *secrets.named.values()]
    if not texts or not all(type(text) is str and text.strip() for text in texts):
        raise ConfigurationError([f"source {source}: has no secret, or an empty or blank one"])
