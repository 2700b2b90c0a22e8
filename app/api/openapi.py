"""The API described for programs, OpenAPI 3.1. Tests compare it with the routes there are, and
what they answer with its schemas; which query parameters a route takes is read from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from app.api.case_schemas import CASE_SCHEMAS
from app.api.finance_schemas import FINANCE_SCHEMAS
from app.api.request_body import GREATEST
from app.api.schemas import INSTANT, REFERENCE, SCHEMAS, WORD, Schema, example_of, ref, told
from app.evidence.dispute import FAMILIES
from app.orders.delivery_log import VERDICTS
from app.orders.notify_shop import STATES as NOTIFICATION_STATES
from reconcile.ledger.ledger import FINDING_CODES, OUTCOMES
from reconcile.matching.breaks import BREAK_CAUSES, STATES
from reconcile.matching.control import BUCKETS
from reconcile.reporting.report import BASES

PAGE_MAX: Final = 1_000
LONGPOLL_MAX_S: Final = 60
"""What the description says where an instance has not been asked for its own."""

_ALL_SCHEMAS: Final = SCHEMAS | FINANCE_SCHEMAS | CASE_SCHEMAS

# --- parts ----------------------------------------------------------------------------------------


def _parameter(name: str, schema: Schema, description: str) -> dict[str, Any]:
    """Of the query. One without a value is not given, as a form sends a blank field."""
    return {
        "name": name,
        "in": "query",
        "allowEmptyValue": True,
        "schema": schema,
        "description": description,
    }


def _in_path(name: str, schema: Schema, description: str = "") -> dict[str, Any]:
    said = {"description": description} if description else {}
    return {"name": name, "in": "path", "required": True, "schema": schema, **said}


def _header(description: str, schema: Schema, example: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema, "example": example}


_RETRY_AFTER: Final = {
    "Retry-After": _header("Seconds until to ask again.", {"type": "integer", "minimum": 1}, 5)
}
_AUTHENTICATE: Final = {
    "WWW-Authenticate": _header("How to be let in; of RFC 6750.", WORD, "Bearer"),
}
_OF_ORDER: Final = {
    "Tallyhook-Behind": _header(
        "For how many seconds something accepted has waited to be read; there only where "
        "something does.",
        {"type": "integer", "minimum": 0},
        3,
    ),
}
_TAGGED: Final = {
    "ETag": _header(
        "A weak one: of all that is answered, but for `as_of`.",
        WORD,
        'W/"sha256:' + "5f" * 32 + '"',
    )
}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "schema": WORD,
    "description": "The `ETag` of an earlier answer, or several, apart by commas: where it is "
    "still so, the answer is 304 without a body.",
}


def _content(schema: str, kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": ref(schema), "example": example_of(ref(schema), _ALL_SCHEMAS)}}


def _good(
    description: str, schema: str, headers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    given = {"headers": dict(headers)} if headers else {}
    return {"description": description, **given, "content": _content(schema)}


def _leads(place: str, **parameters: str) -> dict[str, Any]:
    """Links from a list to what can be done with one of it: by operation, where the name that it
    takes stands in the first of the list."""
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
    "listPeriods": _leads("/periods/0/period", getPeriod="period"),
    "listProposals": _leads(
        "/proposals/0/id",
        getProposal="proposal", approve="proposal", reject="proposal", withdraw="proposal",
    ),
}  # fmt: skip
"""From the 200 of an operation to what it names: a list's first entry leads on."""


def _problem(description: str, headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Without an example: which codes there are tells the schema's own."""
    given = {"headers": dict(headers)} if headers else {}
    content = {"application/problem+json": {"schema": ref("Problem")}}
    return {"description": description, **given, "content": content}


def _body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": _content(schema)}


_BODY_PROBLEMS: Final = {
    "400": _problem("The body cannot be read"),
    "413": _problem("The body is too large"),
}


def _operation(
    scope: str,
    name: str,
    summary: str,
    *parameters: dict[str, Any],
    answers: Mapping[str, Any],
    body: str | None = None,
    description: str = "",
) -> dict[str, Any]:
    """An operation for which a token needs this scope. `name`: its tag and its id, as
    `orders.listOrders`."""
    tag, _, identity = name.partition(".")
    refused = {
        "401": _problem("No token in force", _AUTHENTICATE),
        "403": _problem(f"The token lacks the scope `{scope}`, which `scope` names", _AUTHENTICATE),
        "422": _problem("A parameter is wrong, or there is none of its name"),
        "503": _problem("The store cannot answer now; nothing is lost", _RETRY_AFTER),
    }
    if identity in _LINKS:
        good = {**answers["200"], "links": _LINKS[identity]}
        answers = {**answers, "200": good}
    return {
        "operationId": identity,
        "tags": [tag],
        "summary": summary,
        **({"description": description} if description else {}),
        "security": [{"bearer": [scope]}],
        "parameters": list(parameters),
        **({"requestBody": _body(body)} if body is not None else {}),
        "responses": dict(sorted({**refused, **answers}.items())),
    }


_AFTER: Final = _parameter("after", WORD, "The `next` of the page before.")
_BEFORE: Final = _parameter(
    "before",
    {"type": "integer", "minimum": 0, "maximum": GREATEST},
    "The `next` of the page before.",
)
_LIMIT: Final = _parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100},
    "How many in a page.",
)
_AS_OF: Final = _parameter("as_of", INSTANT, "As it could be known then.")

# --- orders and the feed --------------------------------------------------------------------------

_STARTED: Final = {
    **_BODY_PROBLEMS,
    "200": _good("The session that the order has", "Session"),
    "201": _good("The session, opened by this call", "Session"),
    "202": _good(
        "Not known yet whether it is open; the same call again tells", "Session", _RETRY_AFTER
    ),
    "409": _problem(
        "The order's payment has other money, or is not over: `ask_again_at`, where that is "
        "known, says when it will be, and `Retry-After` in how many seconds to ask",
        _RETRY_AFTER,
    ),
    "422": _problem("Something is wrong, all mistakes are named; or the service refused"),
    "501": _problem("This instance opens no sessions"),
    "503": _problem(
        "The service denies us, or too many calls at once; nothing is lost", _RETRY_AFTER
    ),
}

_ORDER_PATHS: Final[dict[str, Any]] = {
    "/api/v1/orders": {
        "get": _operation(
            "read",
            "orders.listOrders",
            "Orders in the order of their references, with outcome and findings",
            _parameter("outcome", {"enum": list(OUTCOMES)}, "Only this outcome."),
            _parameter("finding", {"enum": list(FINDING_CODES)}, "Only with this finding."),
            _parameter("from", INSTANT, "Only orders of which a change was published since then."),
            _parameter("to", INSTANT, "Only orders of which a change was published before then."),
            _AFTER,
            _LIMIT,
            answers={"200": _good("A page of orders", "OrderPage")},
        )
    },
    "/api/v1/orders/{reference}": {
        "parameters": [
            _in_path(
                "reference",
                REFERENCE,
                "The order's; of a source with orders of its own @source:reference, as @till:7.",
            )
        ],
        "get": _operation(
            "read",
            "orders.getOrder",
            "The ledger of one order, folded from what is stored now",
            _AS_OF,
            _IF_NONE_MATCH,
            answers={
                "200": _good("The ledger", "Ledger", _OF_ORDER | _TAGGED),
                "304": {
                    "description": "It is as the program has it, but for `as_of`",
                    "headers": _OF_ORDER | _TAGGED,
                },
                "404": _problem("Nobody has spoken of this order"),
            },
        ),
        "put": _operation(
            "orders",
            "orders.tellOrder",
            "Tell what the shop knows of an order; facts are only added",
            body="Told",
            answers={
                **_BODY_PROBLEMS,
                "200": _good("The ledger", "Ledger", _OF_ORDER),
                "409": _problem("One of the references is another order's, which `order` names"),
                "422": _problem("Something told is wrong; all mistakes are named"),
            },
        ),
    },
    "/api/v1/checkout/sessions": {
        "post": _operation(
            "checkout",
            "checkout.startPayment",
            "Start an order's payment, once: the session is opened, or the one there is given",
            body="Checkout",
            answers=_STARTED,
        )
    },
    "/api/v1/outcomes": {
        "get": _operation(
            "read",
            "outcomes.readFeed",
            "The outcome feed: every published change, in order, without gaps",
            _parameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": GREATEST, "default": 0},
                "The last id seen. Ids rise and none is given twice; they are not consecutive "
                "after a restore.",
            ),
            _LIMIT,
            _parameter(
                "wait",
                {"type": "integer", "minimum": 0, "maximum": LONGPOLL_MAX_S, "default": 0},
                "Seconds to wait.",
            ),
            answers={
                "200": _good("Changes after the cursor", "OutcomePage"),
                "410": _problem("The cursor is beyond the last id: read on from `read_from`"),
            },
        )
    },
}

# --- finance --------------------------------------------------------------------------------------

_REFERENCE: Final = _parameter(
    "reference", WORD, "Only lines that name this order, group or payment."
)
_STANDS: Final = _parameter("stands", {"enum": list(BUCKETS)}, "Only lines that stand there.")
_CAUSE: Final = _parameter("cause", {"enum": list(BREAK_CAUSES)}, "Only this cause.")
_STATE: Final = _parameter(
    "state", {"enum": list(STATES)}, "Only in this state; without it all but closed ones."
)
_ASSIGNEE: Final = _parameter("assignee", WORD, "Only what is this person's.")
_CLOSED_TOO: Final = _parameter("all", {"enum": ["true", "false"]}, "What evidence ended, too.")
_LINES: Final = (_REFERENCE, _AS_OF, _AFTER, _LIMIT)
_IMPORTS: Final = "that were imported, and imports that took one back, newest first"
_BY_PERSON: Final = "An operator's own token may ask for it where their role may see it."


def _to_read(
    name: str,
    summary: str,
    schema: str,
    *parameters: dict[str, Any],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A page of finance: an operator's own token may ask for it where their role may."""
    return {
        "get": _operation(
            "finance",
            f"finance.{name}",
            summary,
            *parameters,
            answers={"200": _good("What was asked for", schema), **(more or {})},
            description=_BY_PERSON,
        )
    }


def _one_of_them(name: str, described: dict[str, Any]) -> dict[str, Any]:
    described["get"]["responses"]["404"] = _problem("There is none of this name")
    return described | {"parameters": [_in_path(name, {**WORD, "minLength": 1})]}


_DAY_OR_MOMENT: Final[Schema] = {
    "type": "string",
    "pattern": "^(19[7-9]|[2-9][0-9]{2})",
    "examples": ["2026-10-01"],
}
_FROM: Final = {
    **_parameter("from", _DAY_OR_MOMENT, "The first day, of the merchant's zone, or the moment."),
    "required": True,
    "allowEmptyValue": False,
}
_TO: Final = {
    **_parameter("to", _DAY_OR_MOMENT, "The last day, all of it, or the moment where it ends."),
    "required": True,
    "allowEmptyValue": False,
}
_BASIS: Final = _parameter(
    "basis",
    {"enum": list(BASES)},
    "Which date places money in the period: captured, the provider's, which it is without this; "
    "received, ours; settled, the payout's.",
)
_MADE: Final = {
    "202": _good("It is being made; the same address tells", "ReportUnderWay", _RETRY_AFTER),
    "409": _problem("It cannot be made; the sentence says why"),
    "503": _problem("Another report is being made", _RETRY_AFTER),
}

_NOT_MATCHED: Final = {"409": _problem("They are too many to be matched, or their sums too large")}

_FINANCE_PATHS: Final[dict[str, Any]] = {
    "/api/v1/schedule": _to_read(
        "listSchedule",
        "What is done at its times, each with its last and next time and what became of the last",
        "Schedule", _AFTER, _LIMIT,
    ),
    "/api/v1/reports": _to_read(
        "getReport",
        "What became of a period's orders and money, now or as it could be known at an instant: "
        "made when it is asked for, and the same for a minute after",
        "Report", _FROM, _TO, _BASIS, _AS_OF, more=_MADE,
    ),
    "/api/v1/records/lines": _to_read(
        "listBookLines", "The lines of the order book, by key", "BookLinePage", *_LINES
    ),
    "/api/v1/records/imports": _to_read(
        "listBookImports", f"Order books {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT
    ),
    "/api/v1/statement/lines": _to_read(
        "listStatementLines", "The lines of statements, by key", "StatementLinePage", *_LINES
    ),
    "/api/v1/statement/imports": _to_read(
        "listStatementImports", f"Statements {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT
    ),
    "/api/v1/bank/lines": _to_read(
        "listBankLines",
        "What the bank booked, the newest first, with the payouts it is matched with; without the "
        "texts that name people",
        "BankPage", _STANDS, _AS_OF, _AFTER, _LIMIT, more=_NOT_MATCHED,
    ),
    "/api/v1/bank/lines/{line}": _one_of_them(
        "line",
        _to_read(
            "getBankLine",
            "One bank line: all that the bank told, where it stands, its payouts and their rate",
            "WholeBankLine", _AS_OF, more=_NOT_MATCHED,
        ),
    ),
    "/api/v1/bank/imports": _to_read(
        "listBankImports", f"Files of banks {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT
    ),
    "/api/v1/runs": _to_read(
        "listRuns", "Reconciliations, newest first", "RunPage", _BEFORE, _LIMIT
    ),
    "/api/v1/runs/{run}": _one_of_them(
        "run",
        _to_read(
            "getRun",
            "One reconciliation: its totals and ties, and the breaks that it saw, by id",
            "WholeRun", _AFTER, _LIMIT,
        ),
    ),
    "/api/v1/rules": _to_read("getRules", "The rules in force, and who saved them when", "Rules"),
    "/api/v1/breaks": _to_read(
        "listBreaks", "Breaks by id", "BreakPage", _CAUSE, _STATE, _ASSIGNEE, _AFTER, _LIMIT
    ),
    "/api/v1/breaks/{break}": _one_of_them(
        "break",
        _to_read(
            "getBreak",
            "One break: what differs, what to do next, the nearest lines, and all that was done",
            "WholeBreak",
        ),
    ),
    "/api/v1/late": _to_read(
        "listLateMoney", "Late money, with a proposed action and where it stands", "LatePage",
        _CLOSED_TOO, _AFTER, _LIMIT,
    ),
    "/api/v1/periods": _to_read(
        "listPeriods", "The closed months, the earliest first", "PeriodList", _AFTER, _LIMIT
    ),
    "/api/v1/periods/{period}": _one_of_them(
        "period",
        _to_read(
            "getPeriod", "A closed month's report, byte for byte as it was closed", "Report"
        ),
    ),
}  # fmt: skip

# --- cases ----------------------------------------------------------------------------------------

_FAMILY: Final = _parameter(
    "family", {"enum": list(FAMILIES)}, "Of which kind the dispute is, where its reason is unclear."
)
_RESPOND_BY: Final = _parameter(
    "respond_by", INSTANT, "Until when the bank takes an answer, where no message says it."
)


def _of_case(name: str, summary: str, schema: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "parameters": [_in_path("reference", REFERENCE, "The order's.")],
        "get": _operation(
            "evidence",
            f"cases.{name}",
            summary,
            *parameters,
            answers={
                "200": _good("What was asked for", schema),
                "404": _problem("Nobody has spoken of this order"),
            },
        ),
    }


_CASE_PATHS: Final[dict[str, Any]] = {
    "/api/v1/cases/{reference}": _of_case(
        "getCase",
        "What a bank asks to see in an answer to an order's dispute, and what of it is missing",
        "Case", _FAMILY, _RESPOND_BY, _AS_OF,
    ),
    "/api/v1/letters/{reference}": _of_case(
        "getLetter", "What the letter about an order's dispute says, without the files behind it",
        "Letter", _FAMILY, _RESPOND_BY, _AS_OF,
    ),
    "/api/v1/attachments/{reference}": _of_case(
        "listAttachments", "What is attached to an order and its breaks; the files are not here",
        "AttachmentList",
    ),
}  # fmt: skip

# --- proposals ------------------------------------------------------------------------------------

_PROPOSAL: Final = _in_path("proposal", {**WORD, "minLength": 1})
_NO_PROPOSAL: Final = {"404": _problem("There is no such proposal")}


def _for_person(
    name: str, summary: str, *parameters: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """An operation that takes an operator's own token."""
    described = _operation("operator", name, summary, *parameters, **more)
    described["responses"]["403"] = _problem(
        "It takes an `operator`'s own token, of a role that may do this", _AUTHENTICATE
    )
    return described


def _deciding(name: str, summary: str) -> dict[str, Any]:
    answers = {
        **_BODY_PROBLEMS,
        **_NO_PROPOSAL,
        "200": _good("What became of it", "Proposal"),
        "409": _problem("It cannot be decided so: it is over, has changed, or is one's own"),
        "422": _problem("No reason is given"),
    }
    return {
        "parameters": [_PROPOSAL],
        "post": _for_person(f"proposals.{name}", summary, body="Because", answers=answers),
    }


_PROPOSAL_PATHS: Final[dict[str, Any]] = {
    "/api/v1/proposals": {
        "get": _for_person(
            "proposals.listProposals",
            "Proposals that wait for a second person, then the others, newest first",
            _parameter("before", WORD, "The `next` of the page before."),
            told(_LIMIT, "Past ones in a page."),
            answers={"200": _good("A page of proposals", "ProposalPage")},
        )
    },
    "/api/v1/proposals/{proposal}": {
        "parameters": [_PROPOSAL],
        "get": _for_person(
            "proposals.getProposal",
            "One proposal",
            answers={"200": _good("The proposal", "Proposal"), **_NO_PROPOSAL},
        ),
    },
    "/api/v1/proposals/{proposal}/approve": _deciding("approve", "Agree to it; it is done at once"),
    "/api/v1/proposals/{proposal}/reject": _deciding("reject", "Say that it is not to be done"),
    "/api/v1/proposals/{proposal}/withdraw": _deciding("withdraw", "Take back one's own"),
    "/api/v1/proposals/{proposal}/numbers": {
        "parameters": [_PROPOSAL],
        "post": _for_person(
            "proposals.seeNumbers",
            "The customers' numbers of one's own approved proposal; the trail keeps each look",
            answers={
                **_NO_PROPOSAL,
                "200": _good("The numbers of each order", "Numbers"),
                "409": _problem("It is not one's own, not approved, or its time is over"),
            },
        ),
    },
}

# --- what came, and what was told -----------------------------------------------------------------

_LOG_PATHS: Final[dict[str, Any]] = {
    "/api/v1/evidence/{reference}": {
        "parameters": [_in_path("reference", REFERENCE, "The order's.")],
        "get": _for_person(
            "evidence.buildBundle",
            "An order's evidence as a ZIP that a stranger can check, without personal data",
            _AS_OF,
            answers={
                "200": {
                    "description": "The bundle: `tallyhook evidence verify FILE` checks it",
                    "content": {
                        "application/zip": {"schema": {"contentMediaType": "application/zip"}}
                    },
                },
                "404": _problem("Nobody has spoken of this order"),
                "409": _problem("It cannot be built so, or is too large to be answered"),
            },
            description="For the roles finance, support and admin; the trail says who built it. It "
            "takes some seconds, and one is built at a time.",
        ),
    },
    "/api/v1/deliveries": {
        "get": _for_person(
            "deliveries.listDeliveries",
            "What arrived, newest first, without bodies",
            _parameter("verdict", {"enum": list(VERDICTS)}, "Only this verdict."),
            _parameter("source", WORD, "Only of this source."),
            _parameter("before", WORD, "The `next` of the page before."),
            _LIMIT,
            answers={"200": _good("A page of arrivals", "ArrivalPage")},
            description="Refused ones are there for who may see them: roles finance and support.",
        )
    },
    "/api/v1/deliveries/{delivery}": {
        "parameters": [_in_path("delivery", {**WORD, "minLength": 1})],
        "get": _for_person(
            "deliveries.getDelivery",
            "One arrival with its headers, in which secrets and customers' numbers are masked",
            answers={
                "200": _good("The arrival", "WholeArrival"),
                "404": _problem("There is none of this name; old refused ones are deleted"),
            },
            description="The trail says who looked at a refused one.",
        ),
    },
    "/api/v1/notifications": {
        "get": _for_person(
            "notifications.listNotifications",
            "What the shop is told of, newest first, and whether it took it",
            _parameter("state", {"enum": list(NOTIFICATION_STATES)}, "Only in this state."),
            _parameter("order", WORD, "Only of this order."),
            _BEFORE,
            _LIMIT,
            answers={"200": _good("A page of notifications", "SentPage")},
        )
    },
    "/api/v1/notifications/{notification}/redeliver": {
        "parameters": [_in_path("notification", {**WORD, "minLength": 1})],
        "post": _for_person(
            "notifications.redeliver",
            "Send it again, with the id that it had, and three more days to be taken",
            body="Because",
            answers={
                **_BODY_PROBLEMS,
                "200": _good("The notification, which waits to be sent", "Sent"),
                "404": _problem("There is none of this number"),
                "422": _problem("No reason is given"),
            },
        ),
    },
    "/api/v1/log/witnesses": {
        "get": _for_person(
            "log.listWitnesses",
            "The witnesses that cosign the log's checkpoints, and the last checkpoint that left by "
            "each way",
            answers={"200": _good("Witnesses, and what left", "Witnesses")},
        )
    },
}

# --- what the shop is told ------------------------------------------------------------------------


def _signed(name: str, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "schema": {"type": "string"},
        "description": description,
        "example": example,
    }


_WEBHOOKS: Final[dict[str, Any]] = {
    "orderRevised": {
        "post": {
            "operationId": "orderRevised",
            "tags": ["notifications"],
            "summary": "An order's outcome was published: sent to the shop at least once, those of "
            "an order in their order",
            "description": "Sent to `TALLYHOOK_SHOP__URL`, signed by the Standard Webhooks rule. "
            "The same id may come again: it is the same change.",
            "security": [],
            "parameters": [
                _signed("webhook-id", "The same at every try.", "ntf_1_5f5f5f5f5f5f5f5f"),
                _signed("webhook-timestamp", "When it was signed, in Unix seconds.", "1791210600"),
                _signed("webhook-signature", "`v1,` and the signature in base64.", "v1,Xw=="),
            ],
            "requestBody": _body("Notification"),
            "responses": {
                "2XX": {"description": "Taken; it is not sent again"},
                "429": {
                    "description": "Not now; it is sent again after `Retry-After`",
                    "headers": _RETRY_AFTER,
                },
                "default": {"description": "Not taken; it is sent again, for three days"},
            },
        }
    }
}

_TAGS: Final = {
    "orders": "What happened to each order's money, and what the shop knows of it.",
    "outcomes": "Every published change.",
    "checkout": "Payments started by the shop.",
    "deliveries": "What arrived from providers.",
    "evidence": "What a stranger can check.",
    "finance": "Imports, reconciliation, breaks and closed months.",
    "cases": "Disputes: what an answer takes, its letter, and what is attached.",
    "proposals": "What waits for a second person.",
    "notifications": "What the shop is told of by itself.",
    "log": "The log in which everything is sealed.",
}

API_DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Tallyhook",
        "version": "1",
        "description": "What happened to each order's money, and how we know. A query parameter "
        "that an operation does not name is refused.",
    },
    "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
    "paths": {**_ORDER_PATHS, **_LOG_PATHS, **_FINANCE_PATHS, **_CASE_PATHS, **_PROPOSAL_PATHS},
    "webhooks": _WEBHOOKS,
    "components": {
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `tallyhook tokens add`; each operation names the scope "
                "that it needs. `operator` is a person's own, of `tallyhook operators token`.",
            }
        },
        "schemas": _ALL_SCHEMAS,
    },
}


def api_document(*, page_max: int, longpoll_max_s: int) -> dict[str, Any]:
    """The description with an instance's own limits: how many a page has at most, and for how many
    seconds a reader of the feed may wait."""
    greatest = {"limit": page_max, "wait": longpoll_max_s}
    return {
        **API_DOCUMENT,
        "paths": {
            path: {
                method: {
                    **described,
                    "parameters": [_limited(each, greatest) for each in described["parameters"]],
                }
                if isinstance(described, dict)
                else described
                for method, described in operations.items()
            }
            for path, operations in API_DOCUMENT["paths"].items()
        },
    }


def _limited(parameter: dict[str, Any], greatest: Mapping[str, int]) -> dict[str, Any]:
    if (most := greatest.get(parameter["name"])) is None:
        return parameter
    schema = parameter["schema"]
    return {
        **parameter,
        "schema": {**schema, "maximum": most, "default": min(schema["default"], most)},
    }


_PATH_KIND: Final = re.compile(r":[a-z]+\}")


def query_parameters(path: str, method: str) -> Collection[str]:
    """The query parameters that an address of the router takes by a method. Raises KeyError for
    one that is not described."""
    operations = API_DOCUMENT["paths"][_PATH_KIND.sub("}", path)]
    described = operations["get" if method == "HEAD" else method.lower()]
    return [each["name"] for each in described["parameters"] if each["in"] == "query"]
