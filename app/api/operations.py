"""The operations of the API: one list for its routes and its OpenAPI description."""

import json
import typing
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from functools import cache
from keyword import iskeyword

from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.operators import MAY, MAY_READ, Action, Reading
from app.access.tokens import Holder, TokenScope
from app.api import request_body
from app.core.errors import NotAllRead, NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.core.text import capital
from app.receiving.receive import RETRY_AFTER_S
from reconcile.documents import INSTANT, Keywords, parts_of
from reconcile.instants import Instant

Scope = TokenScope | typing.Literal["operator"]

PAGE_MAX: typing.Final = 1_000
LONGPOLL_MAX_S: typing.Final = 60
"""Default for the maximum seconds of long polling."""

AS_SENT: typing.Final = Keywords(pattern="^[^\\u0000]*$")
"""Keywords of a text parameter that is used as sent, without Unicode normalization."""

After = typing.Annotated[str, AS_SENT, "The value of `next` from the previous page."]
Before = typing.Annotated[
    int,
    Keywords(minimum=0, maximum=request_body.GREATEST),
    "The value of `next` from the previous page.",
]
BeforeName = typing.Annotated[str | None, AS_SENT, "The value of `next` from the previous page."]
Limit = typing.Annotated[
    int, Keywords(minimum=1, maximum=PAGE_MAX), "Maximum number of items in a page."
]
Moment = typing.Annotated[Instant | None, Keywords(type="string", **INSTANT.keywords)]
AsOf = typing.Annotated[Moment, "Use what was known at this RFC 3339 time."]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAsked:
    after: After = ""
    limit: Limit = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestAsked:
    before: Before = request_body.GREATEST
    limit: Limit = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOfAsked:
    as_of: AsOf = None


ORDER_UNKNOWN: typing.Final = ("order_unknown", "")

Document = typing.TypeVar("Document", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer(typing.Generic[Document]):
    """An answer with status 200."""

    document: Document
    headers: Mapping[str, str] = field(default_factory=dict)


class Created(Answer[Document]):
    """An answer with status 201."""


class Accepted(Answer[Document]):
    """An answer with status 202."""


STATUSES: typing.Final[Mapping[typing.Any, int]] = {Answer: 200, Created: 201, Accepted: 202}


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One HTTP method of one path."""

    method: typing.Literal["GET", "PUT", "POST"]
    path: str
    endpoint: Callable[..., Awaitable[typing.Any]]
    scope: Scope
    _: KW_ONLY
    tag: str = ""
    answers: Mapping[int, str] = field(default_factory=dict)
    retry_after: tuple[int, ...] = ()
    unknown: tuple[str, str] | None = None
    """Code and sentence of the problem 404. Empty for the error's own sentence."""
    refused: tuple[int, str] | None = None
    """Status and code of the problem for UsageError."""
    may: Action | Reading | None = None
    body: typing.Any = None
    """Type of the request body, if the endpoint reads the body itself."""
    body_bytes: int = 16 * 1024
    media: tuple[str, ...] = ()
    waits: bool = False
    alone: bool = False

    @property
    def takes(self) -> Mapping[str, typing.Any]:
        """Return the types of the endpoint's parameters and, under `return`, of the answer."""
        return _hints(self.endpoint)

    @property
    def query(self) -> "tuple[QueryParameter, ...]":
        asked = self.takes.get("asked")
        return () if asked is None else query_parameters(asked)

    def allows(self, role: str) -> bool:
        """Check if a person with this role may call the operation."""
        allowed: typing.Any = {**MAY_READ, **MAY}
        return self.may is None or role in allowed[self.may]


@cache
def _hints(endpoint: Callable[..., object]) -> Mapping[str, typing.Any]:
    return typing.get_type_hints(endpoint, include_extras=True)


# --- query parameters -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One query parameter, declared by a field of a dataclass. A final `_` of the field's name is
    dropped."""

    name: str
    member: str
    kind: typing.Any
    keywords: Mapping[str, typing.Any]
    description: str
    default: typing.Any
    as_sent: bool

    @property
    def words(self) -> tuple[str, ...]:
        """Return the accepted words; empty if any text is accepted."""
        if self.kind is bool:
            return ("true", "false")
        if typing.get_origin(self.kind) is typing.Literal:
            return typing.get_args(self.kind)
        return tuple(self.keywords.get("enum", ()))

    def read(self, request: Request, *, most: Mapping[str, int]) -> typing.Any:
        """Return the parameter's value in a request. Raise ApiProblem 422 for a missing or wrong
        value."""
        text = request_body.word_parameter(request, self.name)
        if text is None:
            if self.default is MISSING:
                sentence = f"{self.name} is missing: {self.description[:1].lower()}"
                raise ApiProblem(422, "parameter_invalid", sentence + self.description[1:])
            limit = most.get(self.name)
            return self.default if limit is None else min(self.default, limit)
        if "format" in self.keywords:
            return request_body.instant_of(self.name, text)
        if self.kind is int:
            low, high = self.keywords["minimum"], self.keywords["maximum"]
            return request_body.number_parameter(
                request, self.name, default=low, low=low, high=most.get(self.name, high)
            )
        if self.words:
            word = request_body.chosen(request, self.name, self.words)
            return word == "true" if self.kind is bool else word
        return request.query_params[self.name] if self.as_sent else text


@cache
def query_parameters(asked: type) -> tuple[QueryParameter, ...]:
    """Return the query parameters that the fields of a dataclass declare."""
    hints, found = typing.get_type_hints(asked, include_extras=True), []
    for each in fields(asked):
        kind, *notes = parts_of(hints[each.name])
        marks = [note for note in notes if isinstance(note, Keywords)]
        found.append(
            QueryParameter(
                name=each.name.removesuffix("_"),
                member=each.name,
                kind=kind,
                keywords={name: value for mark in marks for name, value in mark.keywords.items()},
                description=next(n for n in reversed(notes) if isinstance(n, str)),
                default=each.default,
                as_sent=AS_SENT in marks,
            )
        )
    return tuple(found)


# --- routes ---------------------------------------------------------------------------------------


class Gate(typing.Protocol):
    """Interface for callers' tokens, limits, and unread deliveries."""

    @property
    def most(self) -> Mapping[str, int]:
        """Return this instance's maximum values, by parameter name."""
        ...

    async def admitted(self, request: Request, scope: Scope) -> str | Holder:
        """Return the calling program's name or the calling person. Raise ApiProblem 401 or 403 for
        a forbidden token."""
        ...

    async def behind_s(self) -> int:
        """Return the age in seconds of the oldest unread delivery; 0 if all are read."""
        ...


class ApiRoute(Route):
    """One path of the API, with its operations."""

    def __init__(
        self, gate: Gate, served: Mapping[Operation, object], *, alone: typing.Any
    ) -> None:
        """Build the route of one path."""
        self._gate, self._alone = gate, alone
        self._served: dict[str, tuple[Operation, object]] = {
            each.method: (each, owner) for each, owner in served.items()
        }
        if "GET" in self._served:
            self._served["HEAD"] = self._served["GET"]
        self.scopes = {method: each.scope for method, (each, _) in self._served.items()}
        (path,) = {each.path for each in served}
        super().__init__(path, self._answer, methods=list(self._served))

    async def _answer(self, request: Request) -> Response:
        operation, owner = self._served[request.method]
        who = await self._gate.admitted(request, operation.scope)
        behind = 0 if operation.waits else await self._gate.behind_s()
        try:
            request_body.only_parameters(request, [each.name for each in operation.query])
            if isinstance(who, Holder) and not operation.allows(who.role):
                raise role_missing(who)
            async with self._alone if operation.alone else nullcontext():
                values = await self._values(operation, request, who)
                answered = await _answered(operation, owner, **values)
        except ApiProblem as error:
            error.headers = {**_saying(behind), **(error.headers or {})}
            raise
        except NotAllRead as error:
            sentence, behind = str(error), behind or await self._gate.behind_s()
            raise ApiProblem(
                503,
                "deliveries_unread",
                f"{capital(sentence)}.",
                headers={"Retry-After": str(RETRY_AFTER_S), **_saying(behind)},
            ) from None
        answer = response(answered)
        for name, value in _saying(behind).items():
            answer.headers.setdefault(name, value)
        return answer

    async def _values(
        self, operation: Operation, request: Request, who: str | Holder
    ) -> dict[str, typing.Any]:
        values: dict[str, typing.Any] = {"request": request, "who": who}
        for name, text in request.path_params.items():
            member = f"{name}_" if iskeyword(name) else name
            values[member] = request_body.order_reference(request) if name == "reference" else text
        takes = operation.takes
        if "asked" in takes:
            values["asked"] = takes["asked"](
                **{
                    each.member: each.read(request, most=self._gate.most)
                    for each in operation.query
                }
            )
        if "body" in takes:
            document = await request_body.capped_body(request, most=operation.body_bytes)
            values["body"] = request_body.texts(document, takes["body"])
        return {name: value for name, value in values.items() if name in takes}


async def _answered(operation: Operation, owner: object, **values: typing.Any) -> object:
    try:
        return await operation.endpoint(owner, **values)
    except NotFoundError as error:
        if operation.unknown is None:
            raise
        code, sentence = operation.unknown
        raise ApiProblem(
            404,
            code,
            sentence or f"{capital(str(error))}.",
            headers=_saying(error.behind_s),
        ) from None
    except UsageError as error:
        if operation.refused is None:
            raise
        status, code = operation.refused
        raise ApiProblem(status, code, f"{capital(str(error))}.") from None


def _saying(behind: int) -> dict[str, str]:
    return {"Tallyhook-Behind": str(behind)} if behind else {}


def role_missing(operator: Holder) -> ApiProblem:
    """Build the problem 403 for a missing role."""
    return ApiProblem(
        403,
        "role_missing",
        f"The role {operator.role} of {operator.name} does not permit this request.",
    )


def response(answered: object) -> Response:
    if isinstance(answered, Response):
        return answered
    if not isinstance(answered, Answer):
        answered = Answer(answered)
    return Response(
        json.dumps(answered.document, ensure_ascii=False),
        status_code=STATUSES[type(answered)],
        media_type=JSONResponse.media_type,
        headers=dict(answered.headers),
    )


def routes_of(gate: Gate, served: Mapping[Operation, object]) -> list[ApiRoute]:
    """Return one route for each path of the API."""
    by_path: dict[str, dict[Operation, object]] = {}
    for operation, owner in served.items():
        by_path.setdefault(operation.path, {})[operation] = owner
    limiters = {id(owner): CapacityLimiter(1) for owner in served.values()}
    return [
        ApiRoute(gate, each, alone=limiters[id(next(iter(each.values())))])
        for each in by_path.values()
    ]
