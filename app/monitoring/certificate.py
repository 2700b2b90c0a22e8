"""When the certificate of the public URL ends, as strangers see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from app.providers.provider_client import trusted_until
from reconcile.instants import Instant

AGAIN_S: Final = 86_400.0
"""Seconds from an answer to the next look: certificates are renewed weeks before they end."""

UNANSWERED_S: Final = 3_600.0
"""Seconds to the next look where nobody answered."""

Look = Callable[[str], Awaitable[Instant | None]]


class PublicCertificate:
    """What was last seen of it by this process.

    ends  EARLIEST where strangers do not trust it; None where nobody has answered yet
    """

    def __init__(self, url: str, *, look: Look = trusted_until) -> None:
        """look: see `trusted_until`."""
        self._url, self._look = url, look
        self.ends: Instant | None = None

    async def look(self) -> int:
        """Look once. Returns whether somebody answered; what was seen before stays if not."""
        ends = await self._look(self._url)
        if ends is not None:
            self.ends = ends
        return int(ends is not None)


def rest(answered: int) -> float:
    """Seconds to the next look."""
    return AGAIN_S if answered else UNANSWERED_S
