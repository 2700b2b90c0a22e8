"""What a named verifier is: the few schemes that a file alone cannot say, one small module each.

A profile names one as `mac = "named:NAME"` and gives it options in `[signature.options]`. Compiled
once at start; a request only runs through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from app.providers.places import Headers
from app.providers.refusal import Refusal
from reconcile.instants import Instant


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


class Arrived(NamedTuple):
    """One request as it came. `url` is the address as the provider signed it, query included."""

    method: str
    url: str
    headers: Headers
    body: bytes


class NamedVerifier(Protocol):
    """One compiled scheme. Its factory raises ConfigurationError with every problem at once."""

    def verify(self, request: Arrived, *, now: Instant) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises, whatever the bytes."""
        ...

    def payload(self, request: Arrived) -> bytes:
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
