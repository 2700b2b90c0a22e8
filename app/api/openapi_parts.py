"""What descriptions of operations are made of: parameters, answers, problems, headers and links."""

from collections.abc import Mapping
from typing import Any, Final

from app.access.proposals import ProposalDocument
from app.api.document_schemas import FINANCE_SCHEMAS
from app.api.request_body import GREATEST
from app.api.schemas import INSTANT, SCHEMAS, WORD, Schema, example_of, ref
from app.api.typed_schemas import schemas_of
from app.checkout.open_checkout import SessionDocument
from app.evidence.attachments import AttachmentListDocument
from app.evidence.dispute_letter import LetterDocument
from app.evidence.witnesses import WitnessesDocument
from app.orders.notify_shop import NotificationDocument, SentDocument
from app.orders.read_feed import OutcomePageDocument
from app.orders.read_orders import LedgerDocument, OrderPageDocument
from app.orders.unallocated import UnallocatedDocument
from app.orders.unmask_many import NumbersDocument

PAGE_MAX: Final = 1_000
LONGPOLL_MAX_S: Final = 60
"""What the description says where an instance has not been asked for its own."""

DOCUMENTS: Final = (
    AttachmentListDocument,
    LedgerDocument,
    LetterDocument,
    NotificationDocument,
    NumbersDocument,
    OrderPageDocument,
    OutcomePageDocument,
    ProposalDocument,
    SentDocument,
    SessionDocument,
    UnallocatedDocument,
    WitnessesDocument,
)
ALL_SCHEMAS: Final = SCHEMAS | FINANCE_SCHEMAS | schemas_of(DOCUMENTS)


def parameter(name: str, schema: Schema, description: str) -> dict[str, Any]:
    """Describe a query parameter. An empty value counts as absent, as forms send it."""
    return {
        "name": name,
        "in": "query",
        "allowEmptyValue": True,
        "schema": schema,
        "description": description,
    }


def path_parameter(name: str, schema: Schema, description: str = "") -> dict[str, Any]:
    """Describe a path parameter; always required."""
    described = {"description": description} if description else {}
    return {"name": name, "in": "path", "required": True, "schema": schema, **described}


def answer_header(description: str, schema: Schema, example: Any) -> dict[str, Any]:
    """Describe a response header, with an example."""
    return {"description": description, "schema": schema, "example": example}


RETRY_AFTER: Final = {
    "Retry-After": answer_header(
        "Seconds until to ask again.", {"type": "integer", "minimum": 1}, 5
    )
}
AUTHENTICATE: Final = {
    "WWW-Authenticate": answer_header("How to be let in; of RFC 6750.", WORD, "Bearer"),
}
BEHIND: Final = {
    "Tallyhook-Behind": answer_header(
        "Age in seconds of the oldest delivery that is accepted and not read yet. Orders may lack "
        "what it says, and an order that is unknown may be in it. Without the header nothing is "
        "unread for longer than two seconds.",
        {"type": "integer", "minimum": 0},
        3,
    ),
}
TAGGED: Final = {
    "ETag": answer_header(
        "A weak one: of all that is answered, but for `as_of`.",
        WORD,
        'W/"sha256:' + "5f" * 32 + '"',
    )
}
IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "schema": WORD,
    "description": "The `ETag` of an earlier answer, or several, apart by commas: where it is "
    "still so, the answer is 304 without a body.",
}


def json_content(schema: str, kind: str = "application/json") -> dict[str, Any]:
    """Describe a body by the name of its schema, with an example."""
    return {kind: {"schema": ref(schema), "example": example_of(ref(schema), ALL_SCHEMAS)}}


def good_answer(
    description: str, schema: str, headers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Describe a successful response."""
    given = {"headers": dict(headers)} if headers else {}
    return {"description": description, **given, "content": json_content(schema)}


def _leads(place: str, **parameters: str) -> dict[str, Any]:
    """Link a list to the operations on one item, where the first item holds the name they take."""
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
"""From the 200 of an operation to what it names: a list's first entry leads on."""


def problem_answer(description: str, headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe a problem response; its schema's example shows the codes."""
    given = {"headers": dict(headers)} if headers else {}
    content = {"application/problem+json": {"schema": ref("Problem")}}
    return {"description": description, **given, "content": content}


def request_body(schema: str) -> dict[str, Any]:
    """Describe a required request body."""
    return {"required": True, "content": json_content(schema)}


BODY_PROBLEMS: Final = {
    "400": problem_answer("The body cannot be read"),
    "413": problem_answer("The body is too large"),
}


def operation(
    scope: str,
    name: str,
    summary: str,
    *parameters: dict[str, Any],
    answers: Mapping[str, Any],
    body: str | None = None,
    description: str = "",
) -> dict[str, Any]:
    """Describe an operation that needs this scope. `name` is its tag and id, as
    `orders.listOrders`."""
    tag, _, identity = name.partition(".")
    refused = {
        "401": problem_answer("No token in force", AUTHENTICATE),
        "403": problem_answer(
            f"The token lacks the scope `{scope}`, which `scope` names", AUTHENTICATE
        ),
        "422": problem_answer("A parameter is wrong, or there is none of its name"),
        "503": problem_answer(
            "The store cannot answer now, or deliveries are accepted and not read yet without "
            "which nothing is concluded (`deliveries_unread`); nothing is lost",
            RETRY_AFTER,
        ),
    }
    if identity in _LINKS:
        good = {**answers["200"], "links": _LINKS[identity]}
        answers = {**answers, "200": good}
    described = {
        status: each | {"headers": BEHIND | each.get("headers", {})}
        for status, each in {**refused, **answers}.items()
        if status not in ("401", "403")
    }
    return {
        "operationId": identity,
        "tags": [tag],
        "summary": summary,
        **({"description": description} if description else {}),
        "security": [{"bearer": [scope]}],
        "parameters": list(parameters),
        **({"requestBody": request_body(body)} if body is not None else {}),
        "responses": dict(sorted({**refused, **answers, **described}.items())),
    }


AFTER: Final = parameter("after", WORD, "The `next` of the page before.")
BEFORE: Final = parameter(
    "before",
    {"type": "integer", "minimum": 0, "maximum": GREATEST},
    "The `next` of the page before.",
)
LIMIT: Final = parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100},
    "How many in a page.",
)
AS_OF: Final = parameter("as_of", INSTANT, "As it could be known then.")
