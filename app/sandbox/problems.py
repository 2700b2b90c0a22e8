"""Refusals as values, and their form on the wire: application/problem+json (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus

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
