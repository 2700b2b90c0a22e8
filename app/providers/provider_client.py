"""Asks one source's provider about its events: an access token first, where one is needed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import httpx2

from app.core.http import Exchange, exchange
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.questions import Question, Questions
from reconcile.ledger.events import Event

LIMIT_S: Final = 10.0
"""Seconds for one request and its whole answer; nobody waits for it but a ledger."""

TOKEN_S: Final = 3_000.0
"""Longest use of one access token, in seconds; providers give them an hour."""

_TOKEN_GIVEN: Final = (200, 201, 202)

TOKEN_MARGIN_S: Final = 60.0
"""An access token is not used in the last seconds of its life."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what came back."""

    question: Question
    answer: Exchange


class Asker:
    """One source's provider. `client` is shared by all of a process."""

    def __init__(self, questions: Questions, client: httpx2.AsyncClient) -> None:
        self._questions = questions
        self._client = client
        self._token = ""
        self._token_ends = 0.0

    async def ask(self, event: Event) -> Asked | None:
        """One question about one event; None where the event lacks what the question needs.

        Raises nothing for what the network or the provider does: the exchange says it.
        """
        if self._questions.about(event) is None:
            return None
        token = await self._access_token()
        if isinstance(token, Exchange):
            return Asked(self._questions.token(), token)
        question = self._questions.about(event, access_token=token)
        assert question is not None
        answer = await self._exchange(question)
        if answer.status == 401:
            self._token_ends = 0.0  # taken back before its time: the next question gets a new one
        return Asked(question, answer)

    async def _access_token(self) -> str | Exchange:
        """The token in use, or the failed exchange that should have brought a new one."""
        if not self._questions.needs_token or time.monotonic() < self._token_ends:
            return self._token
        answer = await self._exchange(self._questions.token())
        token, seconds = _token_of(answer.body)
        if answer.status not in _TOKEN_GIVEN or token is None:
            # Its status and body say nothing about an event, and the body may hold a token.
            said = answer.problem or f"status_{answer.status}"
            return Exchange(problem=f"no_access_token_{said}", headers=answer.headers)
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
    """The access token (`access_token`, or `token` as some write it) and its life in seconds."""
    try:
        document = parse(body)
    except Unreadable:
        return None, 0.0
    if type(document) is not dict:
        return None, 0.0
    token = document.get("access_token") or document.get("token")
    usable = type(token) is str and token.isascii() and token.isprintable()
    # Numbers may come as digits in a text.
    life = str(document.get("expires_in", ""))
    return (token if usable else None), float(life) if life.isdecimal() else TOKEN_S
