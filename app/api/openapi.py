"""The API described for programs, OpenAPI 3.1. A test compares it with the routes there are."""

from __future__ import annotations

from typing import Any, Final

from app.api.request_body import MAX_REFERENCES
from reconcile.ledger.ledger import FINDING_CODES, OUTCOMES
from reconcile.matching.breaks import BREAK_CAUSES, STATES
from reconcile.matching.control import BUCKETS


def _parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _answer(description: str, schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": reference}}}


def _problem(description: str) -> dict[str, Any]:
    reference = {"$ref": "#/components/schemas/Problem"}
    content = {"application/problem+json": {"schema": reference}}
    return {"description": description, "content": content}


def _guarded(scope: str, operation: dict[str, Any]) -> dict[str, Any]:
    """An operation for which a token needs this scope."""
    refused = {
        "401": _problem("No token in force"),
        "403": _problem(f"The token lacks the scope `{scope}`, which `scope` names"),
    }
    answers = dict(sorted((operation["responses"] | refused).items()))
    return operation | {"security": [{"bearer": [scope]}], "responses": answers}


_MONEY: Final = {
    "type": "object",
    "required": ["amount", "currency"],
    "properties": {
        "amount": {"type": "string", "examples": ["1500.00"]},
        "currency": {"type": "string", "examples": ["KES"]},
    },
}
_MAYBE_MONEY: Final = {"anyOf": [{"$ref": "#/components/schemas/Money"}, {"type": "null"}]}
_INSTANT: Final = {"type": "string", "format": "date-time"}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}

_TOTALS: Final = {
    "type": "object",
    "properties": {"expected": _MAYBE_MONEY, "captured": _MAYBE_MONEY, "refunded": _MAYBE_MONEY},
}

_LEDGER: Final = {
    "type": "object",
    "required": ["order", "as_of", "outcome", "fulfillable", "fingerprint"],
    "properties": {
        "order": {"type": "string"},
        "as_of": _INSTANT,
        "outcome": {"enum": list(OUTCOMES)},
        "fulfillable": {
            "type": "boolean",
            "description": "Ship on this, and on nothing else.",
        },
        "totals": _TOTALS,
        "explanation": _TEXTS,
        "attempts": _OBJECTS,
        "entries": _OBJECTS,
        "timeline": _OBJECTS,
        "findings": _OBJECTS,
        "next_decision_at": {"anyOf": [_INSTANT, {"type": "null"}]},
        "fingerprint": {
            "type": "string",
            "description": "`sha256:` and the digest of the members above, without `as_of`, as "
            "canonical JSON.",
        },
        "plain": {
            "type": "object",
            "description": "What can be read to a customer: `answer`, sentences without ids, and "
            "`findings`, a code and a sentence each. The fingerprint does not cover it.",
            "properties": {"answer": _TEXTS, "findings": _OBJECTS},
        },
        "pruned": {
            "type": "object",
            "description": "What of its deliveries was deleted; there only where something was. "
            "The fingerprint does not cover it.",
            "properties": {
                "deliveries": {"type": "integer"},
                "last_at": _INSTANT,
                "sentence": {"type": "string"},
            },
        },
    },
}

_ORDER_PATH: Final = {
    "name": "reference",
    "in": "path",
    "required": True,
    "description": "The order's; of a source with orders of its own @source:reference, as @till:7.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}

_STARTING: Final = {
    "summary": "Start an order's payment, once: the session is opened, or the one there is given",
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Checkout"}}},
    },
    "responses": {
        "200": _answer("The session that the order has", "Session"),
        "201": _answer("The session, opened by this call", "Session"),
        "202": _answer("Not known yet whether it is open; the same call again tells", "Session"),
        "400": _problem("The body cannot be read"),
        "409": _problem(
            "The order's payment has other money, or is not over: `ask_again_at`, where that is "
            "known, says when it will be, and `Retry-After` in how many seconds to ask"
        ),
        "413": _problem("The body is too large"),
        "422": _problem("Something is wrong, all mistakes are named; or the service refused"),
        "501": _problem("This instance opens no sessions"),
        "503": _problem("The service denies us, or too many calls at once; nothing is lost"),
    },
}

_REFERENCES: Final = {
    "type": "array",
    "maxItems": MAX_REFERENCES,
    "description": "What a provider calls the order's payments, or their sessions: its events of "
    "them are the order's, also where they do not name it. Each is one order's, for good. A "
    "session's amount counts where the provider answers without one.",
    "items": {
        "type": "object",
        "required": ["source"],
        "additionalProperties": False,
        "properties": {
            "source": {"type": "string", "description": "The source's name, as in /webhooks/NAME."},
            "session": {"type": "string", "minLength": 1, "maxLength": 200},
            "payment": {"type": "string", "minLength": 1, "maxLength": 200},
            "amount": {
                "type": ["string", "number"],
                "examples": ["1500.00"],
                "description": "What the session was opened for, in major units.",
            },
            "currency": {"type": "string", "examples": ["KES"]},
        },
        "oneOf": [
            {"required": ["session"]},
            {"required": ["payment"], "not": {"required": ["amount"]}},
        ],
        "dependentRequired": {"amount": ["currency"], "currency": ["amount"]},
    },
}

_CHECKOUT: Final = {
    "type": "object",
    "required": ["order"],
    "additionalProperties": False,
    "properties": {
        "order": {
            "type": "object",
            "required": ["reference", "amount", "currency"],
            "additionalProperties": False,
            "properties": {
                "reference": {"type": "string", "minLength": 1, "maxLength": 200},
                "amount": {"type": ["string", "number"], "examples": ["1500.00"]},
                "currency": {"type": "string", "examples": ["KES"]},
            },
        },
        "customer": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "phone": {"type": ["string", "null"], "examples": ["254712345678"]},
            },
        },
        "return_urls": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "success": {"type": ["string", "null"], "format": "uri"},
                "cancel": {"type": ["string", "null"], "format": "uri"},
            },
        },
        "new_payment": {
            "type": "boolean",
            "description": "The earlier payment is over and the customer tries again.",
        },
    },
}

_SESSION: Final = {
    "type": "object",
    "required": ["reference", "status", "checkout_url", "expires_at", "order", "idempotency_key"],
    "properties": {
        "reference": {"type": ["string", "null"], "description": "The service's own."},
        "status": {"enum": ["open", "paid", "expired", "unknown"]},
        "checkout_url": {"type": ["string", "null"]},
        "expires_at": {"anyOf": [_INSTANT, {"type": "null"}]},
        "order": {"type": "object", "properties": {"reference": {"type": "string"}}},
        "idempotency_key": {
            "type": ["string", "null"],
            "description": "For questions to the service; null where no payment was started here.",
        },
        "detail": {"type": "string"},
    },
}

_FINANCE_SCHEMAS: Final[dict[str, Any]] = {
    schema: {
        "type": "object",
        "properties": {name: _OBJECTS, "next": {"type": [kind, "null"]}},
    }
    for schema, name, kind in (
        ("LinePage", "lines", "string"),
        ("BankPage", "lines", "string"),
        ("ImportPage", "imports", "integer"),
        ("RunPage", "runs", "integer"),
        ("BreakPage", "breaks", "string"),
        ("LatePage", "late", "string"),
    )
} | {
    "PeriodList": {"type": "object", "properties": {"periods": _OBJECTS}},
    "Document": {"type": "object", "description": "What the command shows as JSON."},
}

_WHAT: Final = {
    "LinePage": "A page of lines",
    "BankPage": "A page of bank lines",
    "ImportPage": "A page of imports",
    "RunPage": "A page of runs",
    "BreakPage": "A page of breaks",
    "LatePage": "A page of late money",
    "PeriodList": "The closed months",
    "Document": "What was asked for",
}

_AFTER: Final = _parameter("after", {"type": "string"}, "The `next` of the page before.")
_BEFORE: Final = _parameter("before", {"type": "integer"}, "The `next` of the page before.")
_LIMIT: Final = _parameter("limit", {"type": "integer", "minimum": 1}, "How many in a page.")
_AS_OF: Final = _parameter("as_of", _INSTANT, "As it could be known then.")
_REFERENCE: Final = _parameter(
    "reference", {"type": "string"}, "Only lines that name this order, group or payment."
)
_STANDS: Final = _parameter("stands", {"enum": list(BUCKETS)}, "Only lines that stand there.")
_CAUSE: Final = _parameter("cause", {"enum": list(BREAK_CAUSES)}, "Only this cause.")
_STATE: Final = _parameter(
    "state", {"enum": list(STATES)}, "Only in this state; without it all but closed ones."
)
_ASSIGNEE: Final = _parameter("assignee", {"type": "string"}, "Only what is this person's.")
_CLOSED_TOO: Final = _parameter("all", {"enum": ["true", "false"]}, "What evidence ended, too.")


def _to_read(
    summary: str, schema: str, *parameters: dict[str, Any], more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A page of finance: an operator's own token may ask for it where their role may."""
    answers = {"200": _answer(_WHAT[schema], schema), **(more or {})}
    if parameters:
        answers["422"] = _problem("A parameter is wrong")
    return {
        "get": _guarded(
            "finance",
            {
                "summary": f"{summary}. An operator's own token may ask for it where their role "
                "may see it",
                "parameters": list(parameters),
                "responses": answers,
            },
        )
    }


def _one_of_them(name: str, told: dict[str, Any]) -> dict[str, Any]:
    told["get"]["responses"]["404"] = _problem("There is none of this name")
    schema = {"type": "string", "minLength": 1, "maxLength": 200}
    return told | {"parameters": [{"name": name, "in": "path", "required": True, "schema": schema}]}


_NOT_MATCHED: Final = {"409": _problem("They are too many to be matched, or their sums too large")}
_LINES: Final = (_REFERENCE, _AS_OF, _AFTER, _LIMIT)
_IMPORTS: Final = "that were imported, and imports that took one back, newest first"

_FINANCE_PATHS: Final[dict[str, Any]] = {
    "/api/v1/records/lines": _to_read("The lines of the order book, by key", "LinePage", *_LINES),
    "/api/v1/records/imports": _to_read(f"Order books {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT),
    "/api/v1/statement/lines": _to_read("The lines of statements, by key", "LinePage", *_LINES),
    "/api/v1/statement/imports": _to_read(f"Statements {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT),
    "/api/v1/bank/lines": _to_read(
        "What the bank booked, the newest first, with the payouts it is matched with; without the "
        "texts that name people",
        "BankPage", _STANDS, _AS_OF, _AFTER, _LIMIT, more=_NOT_MATCHED,
    ),
    "/api/v1/bank/lines/{line}": _one_of_them(
        "line",
        _to_read(
            "One bank line: all that the bank told, where it stands, its payouts and their rate",
            "Document", _AS_OF, more=_NOT_MATCHED,
        ),
    ),
    "/api/v1/bank/imports": _to_read(
        f"Files of banks {_IMPORTS}", "ImportPage", _BEFORE, _LIMIT
    ),
    "/api/v1/runs": _to_read("Reconciliations, newest first", "RunPage", _BEFORE, _LIMIT),
    "/api/v1/runs/{run}": _one_of_them(
        "run",
        _to_read(
            "One reconciliation: its totals and ties, and the breaks that it saw, by id",
            "Document", _AFTER, _LIMIT,
        ),
    ),
    "/api/v1/rules": _to_read("The rules in force, and who saved them when", "Document"),
    "/api/v1/breaks": _to_read(
        "Breaks by id", "BreakPage", _CAUSE, _STATE, _ASSIGNEE, _AFTER, _LIMIT
    ),
    "/api/v1/breaks/{break}": _one_of_them(
        "break",
        _to_read(
            "One break: what differs, what to do next, the nearest lines, and all that was done",
            "Document",
        ),
    ),
    "/api/v1/late": _to_read(
        "Late money, with a proposed action and where it stands", "LatePage",
        _CLOSED_TOO, _AFTER, _LIMIT,
    ),
    "/api/v1/periods": _to_read("The closed months, the earliest first", "PeriodList"),
    "/api/v1/periods/{period}": _one_of_them(
        "period", _to_read("A closed month's report, byte for byte as it was closed", "Document")
    ),
}  # fmt: skip

_PROPOSAL_PATH: Final = {
    "name": "proposal",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}

_WORD: Final = {"type": "string"}
_MAYBE_WORD: Final = {"type": ["string", "null"]}
_MAYBE_INSTANT: Final = {"anyOf": [_INSTANT, {"type": "null"}]}

_PROPOSAL: Final = {
    "type": "object",
    "required": ["id", "kind", "subject", "sentence", "state", "by", "reason", "at", "until"],
    "properties": {
        "id": _WORD,
        "kind": _WORD,
        "subject": {"type": "string", "description": "What it would be done to."},
        "sentence": {"type": "string", "description": "What would be done, with the money."},
        "state": {"enum": ["waiting", "expired", "approved", "rejected", "withdrawn"]},
        "by": {"type": "string", "description": "The proposer."},
        "reason": _WORD,
        "at": _INSTANT,
        "until": {**_INSTANT, "description": "From then on nobody can approve it."},
        "given": {"type": "object", "description": "What the act needs besides."},
        "decided_by": _MAYBE_WORD,
        "decided_at": _MAYBE_INSTANT,
        "decided_because": _MAYBE_WORD,
    },
}


def _for_person(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation that takes an operator's own token."""
    told = _guarded("operator", operation)
    told["responses"]["403"] = _problem(
        "It takes an `operator`'s own token, of a role that may do this"
    )
    return told


def _deciding(summary: str) -> dict[str, Any]:
    return {
        "parameters": [_PROPOSAL_PATH],
        "post": _for_person(
            {
                "summary": summary,
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["reason"],
                                "additionalProperties": False,
                                "properties": {"reason": _WORD},
                            }
                        }
                    },
                },
                "responses": {
                    "200": _answer("What became of it", "Proposal"),
                    "400": _problem("The body cannot be read"),
                    "404": _problem("There is no such proposal"),
                    "409": _problem(
                        "It cannot be decided so: it is over, has changed, or is one's own"
                    ),
                    "413": _problem("The body is too large"),
                    "422": _problem("No reason is given"),
                },
            }
        ),
    }


_PROPOSAL_PATHS: Final[dict[str, Any]] = {
    "/api/v1/proposals": {
        "get": _for_person(
            {
                "summary": "Proposals that wait for a second person, then the others, newest first",
                "parameters": [
                    _parameter("before", _WORD, "The `next` of the page before."),
                    _parameter("limit", {"type": "integer", "minimum": 1}, "Past ones in a page."),
                ],
                "responses": {
                    "200": _answer("A page of proposals", "ProposalPage"),
                    "422": _problem("A parameter is wrong"),
                },
            }
        )
    },
    "/api/v1/proposals/{proposal}": {
        "parameters": [_PROPOSAL_PATH],
        "get": _for_person(
            {
                "summary": "One proposal",
                "responses": {
                    "200": _answer("The proposal", "Proposal"),
                    "404": _problem("There is no such proposal"),
                },
            }
        ),
    },
    "/api/v1/proposals/{proposal}/approve": _deciding("Agree to it; it is done at once"),
    "/api/v1/proposals/{proposal}/reject": _deciding("Say that it is not to be done"),
    "/api/v1/proposals/{proposal}/withdraw": _deciding("Take back one's own"),
}

API_DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Tallyhook",
        "version": "1",
        "description": "What happened to each order's money, and how we know.",
    },
    "paths": {
        "/api/v1/orders": {
            "get": _guarded(
                "read",
                {
                    "summary": "Orders in the order of their references, with outcome and findings",
                    "parameters": [
                        _parameter("outcome", {"enum": list(OUTCOMES)}, "Only this outcome."),
                        _parameter(
                            "finding", {"enum": list(FINDING_CODES)}, "Only with this finding."
                        ),
                        _parameter("after", {"type": "string"}, "The `next` of the page before."),
                        _parameter("limit", {"type": "integer", "minimum": 1}, "Orders in a page."),
                    ],
                    "responses": {
                        "200": _answer("A page of orders", "OrderPage"),
                        "422": _problem("A parameter is wrong"),
                    },
                },
            )
        },
        "/api/v1/orders/{reference}": {
            "parameters": [_ORDER_PATH],
            "get": _guarded(
                "read",
                {
                    "summary": "The ledger of one order, folded from what is stored now",
                    "parameters": [_parameter("as_of", _INSTANT, "As it could be known then.")],
                    "responses": {
                        "200": _answer("The ledger", "Ledger"),
                        "404": _problem("Nobody has spoken of this order"),
                        "422": _problem("A parameter is wrong"),
                    },
                },
            ),
            "put": _guarded(
                "orders",
                {
                    "summary": "Tell what the shop knows of an order; facts are only added",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Told"}}
                        },
                    },
                    "responses": {
                        "200": _answer("The ledger", "Ledger"),
                        "400": _problem("The body cannot be read"),
                        "413": _problem("The body is too large"),
                        "422": _problem("Something told is wrong; all mistakes are named"),
                    },
                },
            ),
        },
        "/api/v1/checkout/sessions": {"post": _guarded("checkout", _STARTING)},
        "/api/v1/schedule": {
            "get": _guarded(
                "finance",
                {
                    "summary": "What is done at its times, each with its last and next time and "
                    "what became of the last",
                    "responses": {"200": _answer("Every entry", "Schedule")},
                },
            )
        },
        "/api/v1/outcomes": {
            "get": _guarded(
                "read",
                {
                    "summary": "The outcome feed: every published change, in order, without gaps",
                    "parameters": [
                        _parameter(
                            "after",
                            {"type": "integer", "minimum": 0},
                            "The last id seen. Ids rise and none is given twice; they are not "
                            "consecutive after a restore.",
                        ),
                        _parameter(
                            "limit", {"type": "integer", "minimum": 1}, "Changes in a page."
                        ),
                        _parameter("wait", {"type": "integer", "minimum": 0}, "Seconds to wait."),
                    ],
                    "responses": {
                        "200": _answer("Changes after the cursor", "OutcomePage"),
                        "410": _problem(
                            "The cursor is beyond the last id: read on from `read_from`"
                        ),
                        "422": _problem("A parameter is wrong"),
                    },
                },
            )
        },
        **_FINANCE_PATHS,
        **_PROPOSAL_PATHS,
    },
    "components": {
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `tallyhook tokens add`; each operation names the scope "
                "that it needs. `operator` is a person's own, of `tallyhook operators token`.",
            }
        },
        "schemas": {
            "Money": _MONEY,
            "Ledger": _LEDGER,
            "Told": {
                "type": "object",
                "required": ["amount", "currency"],
                "additionalProperties": False,
                "properties": {
                    "amount": {"type": ["string", "number"], "examples": ["1500.00"]},
                    "currency": {"type": "string", "examples": ["KES"]},
                    "placed_at": _INSTANT,
                    "canceled_at": _INSTANT,
                    "fulfilled_at": _INSTANT,
                    "references": _REFERENCES,
                },
            },
            "Checkout": _CHECKOUT,
            "Session": _SESSION,
            "Proposal": _PROPOSAL,
            "ProposalPage": {
                "type": "object",
                "properties": {"proposals": _OBJECTS, "next": _MAYBE_WORD},
            },
            "OrderPage": {
                "type": "object",
                "properties": {
                    "orders": _OBJECTS,
                    "next": {"type": ["string", "null"]},
                },
            },
            **_FINANCE_SCHEMAS,
            "Schedule": {"type": "object", "properties": {"entries": _OBJECTS}},
            "OutcomePage": {
                "type": "object",
                "properties": {
                    "outcomes": _OBJECTS,
                    "cursor": {"type": "integer"},
                    "alarms": {
                        "description": "Sentences on what goes wrong that no outcome tells, such "
                        "as that no verified event comes any more. Missing while nothing does.",
                        "type": "array",
                        "items": {"type": "string"},
                    },
                },
            },
            "Problem": {
                "type": "object",
                "required": ["status", "code", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                    "read_from": {
                        "description": "With 410 of the outcome feed: the cursor to read on from.",
                        "type": "integer",
                    },
                },
            },
        },
    },
}
