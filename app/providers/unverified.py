"""Reads bodies as a profile says, without any secret: they were verified when they arrived."""

from __future__ import annotations

from app.core.errors import ConfigurationError
from app.core.reading import Reading, Unreadable
from app.providers.fetched import AnswerReader
from app.providers.named.registry import WRAPPED
from app.providers.reader import Reader
from app.providers.request import Headers
from app.providers.schemes import NAMED
from app.providers.sections import Profile
from reconcile.ledger.events import Event


class ProfileReader:
    """One source's profile alone. Raises ConfigurationError where bodies are wrapped."""

    def __init__(self, source: str, profile: Profile, *, own_orders: bool = False) -> None:
        if profile.signature.mac.removeprefix(NAMED) in WRAPPED:
            raise ConfigurationError([f"bodies of {profile.name} cannot be read without a secret"])
        self._reader = Reader(source, profile, own_orders=own_orders)
        self._answers = (
            AnswerReader(source, profile, own_orders=own_orders) if profile.fetch_back else None
        )

    def read(
        self,
        body: bytes,
        *,
        digest: str,
        headers: Headers = (),
        method: str = "POST",
        url: str = "",
    ) -> Reading:
        """What a body says. Raises Unreadable with one sentence."""
        return self._reader.read(body, digest=digest, headers=headers, url=url)

    def read_answer(self, kept: bytes, *, digest: str) -> Event:
        """What the provider answered when it was asked back. Raises Unreadable."""
        if self._answers is None:
            raise Unreadable("the profile does not say how to read what its provider answers")
        return self._answers.read(kept, digest=digest)
