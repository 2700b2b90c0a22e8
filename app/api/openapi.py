"""The OpenAPI 3.1 description of the API."""

import inspect
import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from starlette.responses import Response

from app.api import (
    evidence_routes,
    finance_routes,
    log_routes,
    proposal_routes,
    report_routes,
    routes,
    unallocated_routes,
)
from app.api.operations import LONGPOLL_MAX_S, PAGE_MAX, STATUSES, Operation, QueryParameter
from app.api.request_body import GREATEST
from app.core.problems import MEDIA_TYPE, ProblemDocument
from app.orders.notify_shop import NotificationDocument
from reconcile.documents import Keywords, OrderReference

# --- JSON Schemas derived from the types of the API's documents -----------------------------------

Schema = dict[str, typing.Any]

_WHOLE: typing.Final = frozenset(("$ref", "anyOf", "enum"))

_NAMES: typing.Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}


class Schemas:
    """Collection of the schemas of all requested documents."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._kinds: dict[str, type] = {}

    def of(self, kind: typing.Any, *, closed: bool = False) -> Schema:
        """Return the schema of a type. A closed schema forbids undeclared members."""
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if typing.is_typeddict(kind):
            return self._reference(kind, closed=closed)
        if origin is typing.Annotated:
            schema = self.of(args[0], closed=closed)
            for note in args[1:]:
                more = note.keywords if isinstance(note, Keywords) else {"description": note}
                schema = {**({} if more.keys() & _WHOLE else schema), **more}
            return schema
        if origin is typing.NotRequired:
            return self.of(args[0], closed=closed)
        if origin is typing.Literal:
            return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
        if origin in (typing.Union, UnionType):
            return _one_of([self.of(each, closed=closed) for each in args])
        if origin in (list, Sequence):
            return {"type": "array", "items": self.of(args[0], closed=closed)}
        if origin in (dict, Mapping):
            each = self.of(args[1], closed=closed)
            return {"type": "object", "additionalProperties": each or True}
        return {} if kind in (typing.Any, object) else {"type": _NAMES[kind]}

    def _reference(self, kind: type, *, closed: bool) -> Schema:
        name = kind.__name__.removesuffix("Document")
        assert self._kinds.setdefault(name, kind) is kind, f"two documents are named {name}"
        if name not in self.components:
            schema: Schema = {"type": "object"}
            self.components[name] = schema
            typed: typing.Any = kind
            hints = typing.get_type_hints(kind, include_extras=True)
            if kind.__doc__:
                schema["description"] = " ".join(kind.__doc__.split())
            required = [
                member
                for member, each in hints.items()
                if member in typed.__required_keys__ and not _may_lack(each)
            ]
            schema |= {"required": required} if required else {}
            schema["properties"] = {
                member: self.of(each, closed=closed) for member, each in hints.items()
            }
            if closed or not hints:  # without members it is one that no type describes
                schema["additionalProperties"] = not closed
        return {"$ref": f"#/components/schemas/{name}"}


def _may_lack(kind: typing.Any) -> bool:
    inner = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
    return typing.get_origin(inner) is typing.NotRequired


def _one_of(schemas: Sequence[Schema]) -> Schema:
    plain = [each for each in schemas if each.keys() <= {"type", "minimum"} and "type" in each]
    others = [each for each in schemas if each not in plain]
    if len(plain) > 1:
        types = [each["type"] for each in plain]
        plain = [{**{k: v for each in plain for k, v in each.items()}, "type": types}]
    return plain[0] if not others else {"anyOf": [*others, *plain]}


def example_of(schema: Schema, schemas: Mapping[str, Schema]) -> typing.Any:
    """Return an example value that the schema allows."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas)
    kinds = schema["type"]
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "object":
        inner = schema.get("properties", {})
        return {name: example_of(each, schemas) for name, each in inner.items()}
    if kind == "array":
        return [example_of(schema["items"], schemas)]
    return {"string": "…", "integer": schema.get("minimum", 0), "boolean": False}[kind]


# --- the description ------------------------------------------------------------------------------

OPERATIONS: Final = (
    *routes.OPERATIONS,
    *log_routes.OPERATIONS,
    *evidence_routes.OPERATIONS,
    *report_routes.OPERATIONS,  # periods/verification before periods/{period}
    *finance_routes.OPERATIONS,
    *proposal_routes.OPERATIONS,
    *unallocated_routes.OPERATIONS,
)

_WORD: Final = {"type": "string"}


def _header(description: str, schema: Schema, example: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema, "example": example}


_RETRY_AFTER: Final = {
    "Retry-After": _header(
        "Seconds to wait before asking again.", {"type": "integer", "minimum": 1}, 5
    )
}
_AUTHENTICATE: Final = {
    "WWW-Authenticate": _header("How to authenticate, as RFC 6750 says.", _WORD, "Bearer"),
}
_BEHIND: Final = {
    "Tallyhook-Behind": _header(
        "Age in seconds of the oldest accepted delivery that has not been read yet. The answer "
        "may lack what such deliveries say. If this header is missing, no delivery has waited "
        "longer than two seconds.",
        {"type": "integer", "minimum": 0},
        3,
    ),
}
_TAGGED: Final = {
    "ETag": _header(
        "A weak ETag of the whole answer, except `as_of`.",
        _WORD,
        'W/"sha256:' + "5f" * 32 + '"',
    )
}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "schema": _WORD,
    "description": (
        "The `ETag` of an earlier answer, or several, separated by commas. If one is still "
        "current, the answer is 304 without a body."
    ),
}

_PATH_WORDS: Final = {
    "reference": (
        "The order's reference. If a source has its own orders (ORDERS=own), write "
        "@source:reference, such as @till:7."
    ),
    "payment": "The payment's `id`, or the provider's reference of the payment.",
}


def _leads(place: str, **parameters: str) -> dict[str, Any]:
    return {
        operation: {
            "operationId": operation,
            "parameters": {parameter: f"$response.body#{place}"},
        }
        for operation, parameter in parameters.items()
    }


_LINKS: Final[dict[str, dict[str, Any]]] = {
    "listOrders": _leads("/orders/0/order", getOrder="reference"),
    "tellOrder": _leads("/order", getOrder="reference"),
    "startPayment": _leads("/order/reference", getOrder="reference"),
    "readFeed": _leads("/outcomes/0/order", getOrder="reference"),
    "listDeliveries": _leads("/deliveries/0/delivery", getDelivery="delivery"),
    "listNotifications": _leads("/notifications/0/id", redeliver="notification"),
    "listBankLines": _leads("/lines/0/line", getBankLine="line"),
    "listRuns": _leads("/runs/0/run", getRun="run"),
    "listBreaks": _leads("/breaks/0/id", getBreak="break"),
    "listPeriods": _leads("/periods/0/period", getPeriod="period", verifyPeriod="period"),
    "listProposals": _leads(
        "/proposals/0/id",
        getProposal="proposal", approve="proposal", reject="proposal", withdraw="proposal",
    ),
}  # fmt: skip


class _Describing:
    def __init__(self, most: Mapping[str, int]) -> None:
        self._most = most
        self.schemas = Schemas()

    def operation(self, described: Operation) -> dict[str, Any]:
        name, *more = described.endpoint.__name__.split("_")
        identity = name + "".join(map(str.capitalize, more))
        summary, *words = (inspect.getdoc(described.endpoint) or "").split("\n\n")
        answers = {**self._refusals(described), **self._successes(described)}
        if identity in _LINKS:
            answers[200]["links"] = _LINKS[identity]
        parameters = [self._parameter(each) for each in described.query]
        if 304 in described.answers:
            parameters.append(_IF_NONE_MATCH)
        takes = described.takes.get("body", described.body)
        body = {"requestBody": self.body(takes, closed=True)} if takes else {}
        return {
            "operationId": identity,
            "tags": [described.tag or described.path.split("/")[3]],
            "summary": " ".join(summary.split()).removesuffix("."),
            **({"description": " ".join(words[0].split())} if words else {}),
            "security": [{"bearer": [described.scope]}],
            "parameters": parameters,
            **body,
            "responses": {str(status): answers[status] for status in sorted(answers)},
        }

    def body(self, document: Any, *, closed: bool = False) -> dict[str, Any]:
        return {"required": True, "content": self._json(document, closed=closed)}

    def _json(self, document: Any, *, closed: bool = False) -> dict[str, Any]:
        schema = self.schemas.of(document, closed=closed)
        example = example_of(schema, self.schemas.components)
        return {"application/json": {"schema": schema, "example": example}}

    def _parameter(self, each: QueryParameter) -> dict[str, Any]:
        schema: Schema = {**self.schemas.of(each.kind), **each.keywords}
        if each.words:
            schema = {"enum": list(each.words)}
        elif "anyOf" in schema:
            schema.pop("type")
        if type(each.default) is int and each.default != GREATEST:
            most = self._most.get(each.name, schema["maximum"])
            schema |= {"maximum": most, "default": min(each.default, most)}
        required = {"required": True} if each.default is MISSING else {"allowEmptyValue": True}
        return {
            "name": each.name,
            "in": "query",
            **required,
            "schema": schema,
            "description": each.description,
        }

    def _successes(self, described: Operation) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        kind = described.takes["return"]
        media = {each: {"schema": _WORD} for each in described.media}
        if described.media == ("application/zip",):
            media = {each: {"schema": {"contentMediaType": each}} for each in described.media}
        for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
            status = STATUSES.get(get_origin(each), 200)
            content = (
                {}
                if each is Response
                else self._json(get_args(each)[0] if get_origin(each) in STATUSES else each)
            )
            if each is Response and not described.media:
                continue
            known = found.get(status, {}).get("content", {})
            found[status] = {"content": {**(media if status == 200 else {}), **known, **content}}
        if 304 in described.answers:
            found[304] = {}
        for status, answer in found.items():
            reference = answer.get("content", {}).get("application/json", {}).get("schema", {})
            named = re.sub("(?=[A-Z])", " ", reference.get("$ref", "").rpartition("/")[2]).lower()
            answer["description"] = described.answers.get(status, f"The{named or ' answer'}")
            tagged = _TAGGED if 304 in described.answers else {}
            answer["headers"] = {**_BEHIND, **tagged, **self._again(described, status)}
        return found

    def _again(self, described: Operation, status: int) -> Mapping[str, Any]:
        return _RETRY_AFTER if status == 503 or status in described.retry_after else {}

    def _refusals(self, described: Operation) -> dict[int, dict[str, Any]]:
        lacks = f"The token lacks the scope `{described.scope}`"
        if described.scope == "operator":
            lacks = "This needs an operator's own token, and a role that allows it"
        words = {
            401: "No active token",
            403: lacks,
            422: "A parameter is wrong or unknown",
            503: (
                "The database cannot answer now, or accepted deliveries must be read first "
                "(`deliveries_unread`). Nothing is lost"
            ),
        }
        if described.body or "body" in described.takes:
            words |= {400: "The body cannot be read", 413: "The body is too large"}
            words[422] = "The body or a parameter is wrong; every mistake is listed"
        if described.unknown is not None:
            words[404] = described.unknown[1].removesuffix(".") or "This order is unknown"
        words |= {status: each for status, each in described.answers.items() if status >= 400}
        content = {MEDIA_TYPE: {"schema": self.schemas.of(ProblemDocument)}}
        return {
            status: {
                "description": each,
                "headers": _AUTHENTICATE
                if status in (401, 403)
                else {**_BEHIND, **self._again(described, status)},
                "content": content,
            }
            for status, each in words.items()
        }


def _path_parameters(path: str, schemas: Schemas) -> list[dict[str, Any]]:
    names = [each.partition("}")[0].partition(":")[0] for each in path.split("{")[1:]]
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schemas.of(OrderReference)
            if name == "reference"
            else {**_WORD, "minLength": 1},
            **({"description": _PATH_WORDS[name]} if name in _PATH_WORDS else {}),
        }
        for name in names
    ]


# --- notifications to the shop -------------------------------------------------------------------


def _signed(name: str, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
        "example": example,
    }


def _webhooks(describing: _Describing) -> dict[str, Any]:
    return {
        "orderRevised": {
            "post": {
                "operationId": "orderRevised",
                "tags": ["notifications"],
                "summary": (
                    "An order's outcome was published. Sent to the shop at least once; "
                    "changes of one order are sent in sequence"
                ),
                "description": (
                    "Sent to `TALLYHOOK_SHOP__URL`, signed according to Standard "
                    "Webhooks. A message can arrive more than once, always with the same id."
                ),
                "security": [],
                "parameters": [
                    _signed(
                        "webhook-id",
                        "The message's id, the same at every attempt.",
                        "ntf_1_5f5f5f5f5f5f5f5f",
                    ),
                    _signed(
                        "webhook-timestamp", "Time of the signature, in Unix seconds.", "1791210600"
                    ),
                    _signed("webhook-signature", "`v1,` and the signature in base64.", "v1,Xw=="),
                ],
                "requestBody": describing.body(NotificationDocument),
                "responses": {
                    "2XX": {"description": "Accepted; the message is not sent again"},
                    "429": {
                        "description": (
                            "Not accepted now; the message is sent again after `Retry-After`"
                        ),
                        "headers": _RETRY_AFTER,
                    },
                    "default": {"description": "Not accepted; sending is repeated for three days"},
                },
            }
        }
    }


_TAGS: Final = {
    "orders": "What happened to each order's money, and what the shop knows of it.",
    "outcomes": "Every published change.",
    "checkout": "Payments started by the shop.",
    "deliveries": "What arrived from providers.",
    "evidence": "Evidence that anyone can check.",
    "finance": (
        "Imports, reconciliation, breaks and closed months. An operator's own token may "
        "read what the operator's role allows."
    ),
    "cases": "Disputes: the data that an answer needs, its letter, and its attachments.",
    "proposals": "Proposals that wait for a second person.",
    "unallocated": "Verified payments without an order.",
    "notifications": "Notifications sent to the shop.",
    "log": "The tamper-evident log of deliveries, records, revisions and audit entries.",
}


def api_document(
    *, page_max: int = PAGE_MAX, longpoll_max_s: int = LONGPOLL_MAX_S
) -> dict[str, Any]:
    """Return the OpenAPI description of an instance with these limits."""
    describing = _Describing({"limit": page_max, "wait": longpoll_max_s})
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        path = each.path.replace(":path}", "}")
        parameters = _path_parameters(each.path, describing.schemas)
        item = paths.setdefault(path, {"parameters": parameters} if parameters else {})
        item[each.method.lower()] = describing.operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tallyhook",
            "version": "1",
            "description": "What happened to each order's money, and how we know. A query "
            "parameter that an operation does not name is refused.",
        },
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "webhooks": _webhooks(describing),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": (
                        "A token made by `tallyhook tokens add`; each operation names the scope "
                        "that the token needs. `operator` means a person's own token, made by "
                        "`tallyhook operators token`."
                    ),
                }
            },
            "schemas": describing.schemas.components,
        },
    }


@lru_cache(maxsize=8)
def written_document(*, page_max: int, longpoll_max_s: int) -> bytes:
    """Return the OpenAPI description as UTF-8 JSON."""
    document = api_document(page_max=page_max, longpoll_max_s=longpoll_max_s)
    return json.dumps(document, ensure_ascii=False).encode()
