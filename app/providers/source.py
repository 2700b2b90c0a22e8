"""A source: one provider account that sends to us. The one thing other packages use from here."""

from __future__ import annotations

from collections.abc import Sequence

from app.providers.fields import event_id as checked_id
from app.providers.keys import compile_keys
from app.providers.places import Headers
from app.providers.profile import Profile
from app.providers.reader import Reader
from app.providers.reading import Reading
from app.providers.refusal import Reason, Refusal
from app.providers.verification import Verifier
from reconcile.instants import Instant

__all__ = ["Reason", "Refusal", "Source"]


class Source:
    """A name, a profile and its secrets (newest first), compiled once.

    acknowledgement_status  the HTTP status the provider wants to hear

    Raises ConfigurationError where there is no secret, or one is blank, ill-formed or too short.
    """

    def __init__(self, *, name: str, profile: Profile, secrets: Sequence[str]) -> None:
        self.name = name
        self.profile = profile
        self.acknowledgement_status: int = profile.acknowledgement.status
        self._verifier = Verifier(profile, compile_keys(name, profile, secrets))
        self._reader = Reader(name, profile)

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
        return self._verifier.verify(headers, body, now=now, method=method, url=url)

    def read(self, body: bytes, *, digest: str, headers: Headers = ()) -> Reading:
        """What a genuine body says. Raises Unreadable with one sentence.

        digest  SHA-256 of the body, 64 hex digits
        """
        return self._reader.read(body, digest=digest, headers=headers)

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        """The headers with which the provider itself would send `body`, with the newest secret.

        Raises ValueError for an id no provider could send, ConfigurationError where the profile
        covers headers that we cannot make up.
        """
        return self._verifier.sign(body, event_id=checked_id(event_id, "event_id"), now=now)
