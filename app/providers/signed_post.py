"""Sender of our own POST requests, signed as a provider signs its deliveries."""

from collections.abc import Mapping

import httpx2

from app.core.http import Exchange, exchange
from app.providers.source import Source
from reconcile.instants import Instant


async def post_signed(
    client: httpx2.AsyncClient,
    url: str,
    body: bytes,
    *,
    signer: Source,
    event_id: str,
    now: Instant,
    limit_s: float,
    more: Mapping[str, str] | None = None,
) -> Exchange:
    """Post a signed JSON document. Network failures are part of the result.

    event_id  id that is equal at every attempt, so that the receiver recognizes a repeat
    limit_s  maximum seconds to wait for the answer
    """
    signed = signer.sign(body, event_id=event_id, now=now)
    return await exchange(
        client,
        "POST",
        url,
        headers={**dict(signed), "content-type": "application/json", **(more or {})},
        content=body,
        limit_s=limit_s,
    )
