"""The provider's memory of idempotency keys (the IETF draft's 400, 409 and 422).

One key is one logical request: the first accepted answer is kept and given again, a refusal by
trouble (503) is not, and another body under the same key is the caller's mistake. Keys live as
long as the process; their number is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FieldProblem = tuple[str, str]
"""The path of a field, such as `order.amount`, and one sentence that says what would be right."""


class RefusalError(Exception):
    """A request the provider does not grant; `status` and `code` are for programs to read."""

    def __init__(
        self,
        status: int,
        code: str,
        *,
        detail: str,
        headers: Mapping[str, str] | None = None,
        problems: Sequence[FieldProblem] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.problems = tuple(problems)


def problem_response(refusal: RefusalError) -> Response:
    """`{"type", "title", "status", "code", "detail", "problems"?}`."""
    document: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
    }
    if refusal.problems:
        document["problems"] = [
            {"field": name, "sentence": sentence} for name, sentence in refusal.problems
        ]
    return Response(
        json.dumps(document),
        status_code=refusal.status,
        headers=refusal.headers,
        media_type="application/problem+json",
    )


def answer_refusal(_: Request, error: Exception) -> Response:
    """Starlette's exception handler for our own refusals."""
    assert isinstance(error, RefusalError)
    return problem_response(error)


def answer_http_error(_: Request, error: Exception) -> Response:
    """Starlette's exception handler for what the framework itself refuses (404, 405, 413)."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_")
    detail = error.detail if error.detail != phrase else f"{phrase}."
    return problem_response(
        RefusalError(error.status_code, code, detail=detail, headers=error.headers)
    )


def answer_fault(_: Request, __: Exception) -> Response:
    """Starlette's exception handler for our own mistakes; the server logs what they were."""
    return problem_response(
        RefusalError(
            500, "sandbox_failed", detail="The sandbox itself made a mistake; see its log."
        )
    )


_KEY = re.compile(r"[\x20-\x7e]{1,255}")

MISSING: Final = "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."
REUSED: Final = "This Idempotency-Key was used with another body; use a new key."
IN_USE: Final = "The first request with this Idempotency-Key still runs; repeat it a little later."
FULL: Final = "This sandbox keeps no more sessions; start it anew."


@dataclass(slots=True)
class Entry:
    """What is remembered of one key. `answer` is the body of the 201, once there is one."""

    digest: str
    running: bool = False
    refusals: int = 0
    answer: bytes | None = None


class IdempotencyKeys:
    """All keys seen, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[str, Entry] = {}

    @contextmanager
    def admit(self, key: str, digest: str) -> Iterator[Entry]:
        """Hold the key's entry while its request runs.

        Raises RefusalError: 422 for another body, 409 while another request holds the key,
        503 when there is no room for a new one.
        """
        entry = self._entry(key, digest)
        entry.running = True
        try:
            yield entry
        finally:
            entry.running = False

    def _entry(self, key: str, digest: str) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= self._limit:
                raise RefusalError(503, "sandbox_full", detail=FULL)
            entry = self._entries[key] = Entry(digest)
        if entry.digest != digest:
            raise RefusalError(422, "idempotency_key_reused", detail=REUSED)
        if entry.running:
            raise RefusalError(409, "idempotency_key_in_use", detail=IN_USE)
        return entry


def check_key(key: str | None) -> str:
    """The key, if it is one. Raises RefusalError 400."""
    if key is None or _KEY.fullmatch(key) is None:
        raise RefusalError(400, "idempotency_key_missing", detail=MISSING)
    return key
