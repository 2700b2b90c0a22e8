"""Ask one source's provider about its events."""

import asyncio
import ssl
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx2

from app.core.http import Exchange, exchange, trusting
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.questions import Question, Questions
from reconcile.instants import EARLIEST, LATEST, SECOND, Instant
from reconcile.ledger.events import Event

LIMIT_S: Final = 10.0
"""Maximum seconds for a request and its complete answer."""

TOKEN_S: Final = 3_000.0
"""Maximum seconds for which an access token is used."""

_TOKEN_GIVEN: Final = (200, 201, 202)

TOKEN_MARGIN_S: Final = 60.0
"""Seconds before expiry in which a token is not used."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question to the provider, with the provider's answer."""

    question: Question
    answer: Exchange


class ProviderClient:
    """Client that asks one source's provider. The HTTP client is shared by all sources."""

    def __init__(self, questions: Questions, client: httpx2.AsyncClient) -> None:
        self._questions = questions
        self._client = client
        self._token = ""
        self._token_ends = 0.0

    async def ask(self, event: Event) -> AnsweredQuestion | None:
        """Ask the provider one question about an event.

        None means that a needed reference is missing. Failures are part of the answer.
        """
        if self._questions.about(event) is None:
            return None
        token = await self._access_token()
        if isinstance(token, Exchange):
            return AnsweredQuestion(self._questions.token(), token)
        question = self._questions.about(event, access_token=token)
        assert question is not None
        answer = await self._exchange(question)
        if answer.status == 401:
            self._token_ends = 0.0  # revoked early: the next question gets a new one
        return AnsweredQuestion(question, answer)

    async def _access_token(self) -> str | Exchange:
        if not self._questions.needs_token or time.monotonic() < self._token_ends:
            return self._token
        answer = await self._exchange(self._questions.token())
        token, seconds = _token_of(answer.body)
        if answer.status not in _TOKEN_GIVEN or token is None:
            # The status and body tell nothing about an event, and the body may contain a token.
            problem = answer.problem or f"status_{answer.status}"
            return Exchange(problem=f"no_access_token_{problem}", headers=answer.headers)
        self._token = token
        self._token_ends = time.monotonic() + min(seconds, TOKEN_S) - TOKEN_MARGIN_S
        return token

    async def _exchange(self, question: Question) -> Exchange:
        return await exchange(
            self._client,
            question.method,
            question.url,
            headers=question.headers,
            content=question.body,
            limit_s=LIMIT_S,
        )


def _token_of(body: bytes) -> tuple[str | None, float]:
    try:
        document = parse(body)
    except Unreadable:
        return None, 0.0
    if type(document) is not dict:
        return None, 0.0
    token = document.get("access_token") or document.get("token")
    usable = type(token) is str and token.isascii() and token.isprintable()
    # A number may be written as a text of digits.
    life = str(document.get("expires_in", ""))
    return (token if usable else None), float(life) if life.isdecimal() else TOKEN_S


PROBE_LIMIT_S: Final = 10.0
"""Maximum seconds for probing one address. A person waits for the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Result of probing one address."""

    url: str
    problem: str | None = None
    """Code of the reason for a missing answer, or None."""
    status: int | None = None
    date: Instant | None = None
    """Time in the answer's Date header, to the second, or None."""
    tls: str | None = None
    """Version of TLS. None without TLS, or if the handshake failed."""
    tls_problem: str | None = None
    """Reason why the handshake failed, in the TLS library's words, or None."""
    certificate_ends: Instant | None = None
    """Expiry of the certificate, if it was seen."""


async def probe(client: httpx2.AsyncClient, url: str) -> Probe:
    """Probe an address with one GET request without credentials."""
    version, problem, ends = await _handshake(url)
    answer = await exchange(client, "GET", url, headers={}, limit_s=PROBE_LIMIT_S)
    return Probe(
        url=url,
        problem=answer.problem if answer.status is None else None,
        status=answer.status,
        date=date_of(answer.headers.get("date", "")),
        tls=version,
        tls_problem=problem,
        certificate_ends=ends,
    )


async def trusted_until(url: str) -> Instant | None:
    """Return when the certificate of an https address expires.

    Return EARLIEST for an untrusted certificate, and None without an answer.
    """
    _, problem, ends = await _handshake(url)
    return ends if problem is None else EARLIEST


def date_of(header: str) -> Instant | None:
    """Return the time in a Date header (RFC 9110)."""
    try:
        found = parsedate_to_datetime(header)
    except (ArithmeticError, ValueError):  # ArithmeticError: the year is far too large
        return None
    moment = EARLIEST + int(found.replace(tzinfo=found.tzinfo or UTC).timestamp()) * SECOND
    return moment if EARLIEST <= moment <= LATEST else None


async def _handshake(url: str) -> tuple[str | None, str | None, Instant | None]:
    parts = urlsplit(url)
    if parts.scheme != "https":
        return None, None, None
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=trusting()
            )
    except ssl.SSLCertVerificationError as error:
        return None, error.verify_message, None
    except ssl.SSLError as error:
        return None, error.reason or "the handshake failed", None
    except (TimeoutError, OSError):
        return None, None, None  # the request itself reports it
    secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = secured.getpeercert() or {}
    version, until = secured.version(), str(certificate.get("notAfter", ""))
    writer.transport.abort()
    ends = EARLIEST + int(ssl.cert_time_to_seconds(until)) * SECOND if until else None
    return version, None, ends
