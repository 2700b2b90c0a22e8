"""Report errors as RFC 9457 problem details: type, title, status, a stable code, and what to do."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, TypedDict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from reconcile.documents import Count, InstantText, Keywords, MoneyDocument

MEDIA_TYPE = "application/problem+json"

TYPE: Final = "urn:tallyhook:problem:"
"""Beginning of the URI that identifies a type of problem, before the problem's code."""


class FieldProblemDocument(TypedDict):
    field: str
    sentence: str


class _Problem(TypedDict):
    type: Annotated[
        str,
        f"The kind of problem: `{TYPE}` and the code. It is an identifier, not the address of a "
        "page.",
        Keywords(format="uri", pattern=f"^{TYPE}[a-z0-9_]+$", examples=[f"{TYPE}order_unknown"]),
    ]
    title: Annotated[str, Keywords(examples=["Not Found"])]
    status: Annotated[int, Keywords(minimum=400, maximum=599, examples=[404])]
    code: Annotated[str, Keywords(pattern="^[a-z0-9_]+$", examples=["order_unknown"])]
    detail: Annotated[
        str,
        "One sentence for a person.",
        Keywords(examples=["No order with this reference is known."]),
    ]


class ProblemDocument(_Problem, total=False):
    scope: Annotated[str, "With 403: the scope that the token lacks."]
    order: Annotated[str, "With 409 for a reference: the order that has it."]
    read_from: Annotated[
        Count, "With 410 from the outcome feed: the cursor from which to continue."
    ]
    ask_again_at: Annotated[
        InstantText,
        "With 409 for a payment that is not over: when to repeat the request, if that is known.",
    ]
    before: Annotated[
        MoneyDocument | None,
        "With 409 for another amount: the amount of the payment, or the order's price.",
    ]
    asked: Annotated[MoneyDocument | None, "With 409 for another amount: the requested amount."]
    problems: Annotated[
        list[FieldProblemDocument],
        "With 422 for a payment: every wrong field.",
    ]
    idempotency_key: Annotated[str | None, "With 422 for a session that the service refused."]


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a response with problem details.

    code    stable code of the problem
    detail  one sentence for a person
    more    further members of the response
    """
    return Response(
        problem_body(status, code, detail, **more),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problem_body(status: int, code: str, detail: str, **more: Any) -> bytes:
    document = {
        "type": TYPE + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **more,
    }
    return json.dumps(document, ensure_ascii=False).encode()


class ApiProblem(Exception):
    """Error of an API endpoint, which is answered with problem details. `more` holds further
    members of the response."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.more = more


async def on_api_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiProblem)
    return problem(error.status, error.code, error.detail, headers=error.headers, **error.more)


_SENTENCES = {
    404: (
        "not_found",
        "There is nothing at this address; /api/v1/openapi.json lists all addresses.",
    ),
    405: ("method_not_allowed", "This address does not support that method; see the Allow header."),
}


_WEBHOOKS = (
    "Nothing receives webhooks at this address: send them to /webhooks/NAME, where NAME is the "
    "name of a source, with one slash in front."
)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Return the response to an HTTP error of Starlette, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    code, detail = _SENTENCES.get(error.status_code, ("refused", error.detail))
    if error.status_code == 404 and request.url.path.lower().lstrip("/").startswith("webhook"):
        detail = _WEBHOOKS
    return problem(error.status_code, code, detail, headers=error.headers)
