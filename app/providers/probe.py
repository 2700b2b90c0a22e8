"""Looks whether a service can be reached, with what TLS, and what time it is there.

Nothing secret is sent, and nothing of the answer but its status and its Date header is used.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx2

from app.core.http import exchange
from reconcile.instants import SECOND, Instant

PROBE_LIMIT_S: Final = 10.0
"""Seconds for one look; a person waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen of one address.

    problem       why nothing was answered, a code; None: something was
    date          the Date header, to the second; None where there is none
    tls           the protocol's version; None without TLS, or where it could not be set up
    tls_problem   why it could not, in the words of the TLS library
    certificate_ends  when the certificate ends
    """

    url: str
    problem: str | None = None
    status: int | None = None
    date: Instant | None = None
    tls: str | None = None
    tls_problem: str | None = None
    certificate_ends: Instant | None = None


async def look(client: httpx2.AsyncClient, url: str) -> Sight:
    """One GET without credentials, and a TLS handshake of its own for an https address."""
    version, problem, ends = await _handshake(url)
    answer = await exchange(client, "GET", url, headers={}, limit_s=PROBE_LIMIT_S)
    return Sight(
        url=url,
        problem=answer.problem if answer.status is None else None,
        status=answer.status,
        date=date_of(answer.headers.get("date", "")),
        tls=version,
        tls_problem=problem,
        certificate_ends=ends,
    )


def date_of(header: str) -> Instant | None:
    """The moment in a Date header (RFC 9110, section 5.6.7); None where it is none."""
    try:
        found = parsedate_to_datetime(header)
    except ValueError:
        return None
    return int(found.replace(tzinfo=found.tzinfo or UTC).timestamp()) * SECOND


async def _handshake(url: str) -> tuple[str | None, str | None, Instant | None]:
    """The version, why there is none, and when the certificate ends."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        return None, None, None
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=ssl.create_default_context()
            )
    except ssl.SSLCertVerificationError as error:
        return None, error.verify_message, None
    except ssl.SSLError as error:
        return None, error.reason or "the handshake failed", None
    except (TimeoutError, OSError):
        return None, None, None  # the request itself says so
    secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = secured.getpeercert() or {}
    version, until = secured.version(), str(certificate.get("notAfter", ""))
    writer.transport.abort()
    ends = int(ssl.cert_time_to_seconds(until)) * SECOND if until else None
    return version, None, ends
