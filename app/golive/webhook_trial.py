"""Sends the public endpoint an unsigned, a tampered, a stale and a good request, and compares.

All carry a body that says nothing of any order. The good one is kept as `unreadable`, which is an
acknowledgement too: a body is only read once its signature was found good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import httpx2

from app.core.errors import ConfigurationError
from app.core.http import exchange
from app.core.ids import new_id
from app.providers.named.contract import Signed
from app.providers.schemes import TOKENS
from app.providers.source import Source
from reconcile.instants import MINUTE, SECOND, Instant

LIMIT_S: Final = 10.0
"""Seconds for one answer, as long as providers commonly wait."""

BODY: Final = b'{"tallyhook": "trial of the public endpoint before going live"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one source's endpoint did. `wrong`: what it should not have done; None: not to be tried,
    because nothing here can sign as this provider does."""

    source: str
    tried: tuple[str, ...] = ()
    wrong: tuple[str, ...] | None = ()


def requests(
    source: Source, *, url: str, event_id: str, now: Instant
) -> Iterator[tuple[str, Signed, bool]]:
    """(name, request, whether it is to be accepted). Raises ConfigurationError or ValueError where
    this provider's requests cannot be made."""
    good = source.signed(BODY, event_id=event_id, now=now, url=url)
    yield "unsigned", Signed([], BODY, good.url), False
    yield "tampered", good._replace(body=good.body.replace(b"public", b"Public")), False
    timestamp = source.profile.timestamp
    if timestamp is not None:
        before = now - timestamp.past_s * SECOND - MINUTE
        yield "stale", source.signed(BODY, event_id=event_id, now=before, url=url), False
    yield "good", good, True


async def try_endpoint(
    client: httpx2.AsyncClient, source: Source, *, url: str, now: Instant
) -> Trial:
    """Send each and compare."""
    # What is signed by nobody, or must name an account that only the provider's own events do.
    if source.profile.signature.mac in {"none", *TOKENS} or source.profile.account.where:
        return Trial(source=source.name, wrong=None)
    try:
        asked = list(requests(source, url=url, event_id=new_id("trial_", now), now=now))
    except (ConfigurationError, ValueError):
        return Trial(source=source.name, wrong=None)
    wrong = []
    for name, request, accepted in asked:
        answer = await exchange(
            client,
            "POST",
            request.url or url,
            headers={**dict(request.headers), "content-type": "application/json"},
            content=request.body,
            limit_s=LIMIT_S,
        )
        word = answer.problem or f"status {answer.status}"
        right = 200 <= answer.status < 300 if accepted and answer.status else answer.status == 401
        if not right:
            wrong.append(f"the {name} request was answered with {word}")
    return Trial(source=source.name, tried=tuple(name for name, _, _ in asked), wrong=tuple(wrong))
