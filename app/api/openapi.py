"""The OpenAPI 3.1 description of the API. Tests compare it with the routes and their answers;
routes read their query parameters from it."""

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from app.api.openapi_parts import (
    AFTER,
    ALL_SCHEMAS,
    AS_OF,
    AUTHENTICATE,
    BEFORE,
    BEHIND,
    BODY_PROBLEMS,
    IF_NONE_MATCH,
    LIMIT,
    LONGPOLL_MAX_S,
    RETRY_AFTER,
    TAGGED,
    good_answer,
    json_content,
    operation,
    parameter,
    path_parameter,
    problem_answer,
    request_body,
)
from app.api.request_body import GREATEST
from app.api.schemas import INSTANT, REFERENCE, WORD, Schema, described
from app.evidence.dispute import FAMILIES
from app.finance.reports.journal import JOURNAL_FORMATS, JOURNAL_TYPES
from app.orders.delivery_log import VERDICTS
from app.orders.notify_shop import STATES as NOTIFICATION_STATES
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.records import HOLD_REASONS
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.matching.breaks import BREAK_CAUSES, STATES
from reconcile.matching.control import BUCKETS
from reconcile.reporting.report import BASES

# --- orders and the feed --------------------------------------------------------------------------

_STARTED: Final = {
    **BODY_PROBLEMS,
    "200": good_answer("The session that the order has", "Session"),
    "201": good_answer("The session, opened by this call", "Session"),
    "202": good_answer(
        "Not known yet whether it is open; the same call again, after `Retry-After`, shows it",
        "Session",
        RETRY_AFTER,
    ),
    "409": problem_answer(
        "The order is canceled, or costs something else by the shop's own `PUT`; or its payment "
        "has other money, or is unknown and was asked for with another phone number or return "
        "URL, or is not over: `ask_again_at`, where that is known, says when it will be, and "
        "`Retry-After` in how many seconds to ask",
        RETRY_AFTER,
    ),
    "422": problem_answer("Something is wrong, all mistakes are named; or the service refused"),
    "501": problem_answer("This instance opens no sessions"),
    "503": problem_answer(
        "The service denies us, or too many calls at once; nothing is lost", RETRY_AFTER
    ),
}

_ORDER_PATHS: Final[dict[str, Any]] = {
    "/api/v1/orders": {
        "get": operation(
            "read",
            "orders.listOrders",
            "Orders in the order of their references, with outcome and findings",
            parameter("outcome", {"enum": list(OUTCOMES)}, "Only this outcome."),
            parameter("finding", {"enum": list(FINDING_CODES)}, "Only with this finding."),
            parameter("from", INSTANT, "Only orders of which a change was published since then."),
            parameter("to", INSTANT, "Only orders of which a change was published before then."),
            AFTER,
            LIMIT,
            answers={"200": good_answer("A page of orders", "OrderPage")},
        )
    },
    "/api/v1/orders/{reference}": {
        "parameters": [
            path_parameter(
                "reference",
                REFERENCE,
                "The order's; of a source with orders of its own @source:reference, as @till:7.",
            )
        ],
        "get": operation(
            "read",
            "orders.getOrder",
            "The ledger of one order, folded from what is stored now",
            AS_OF,
            IF_NONE_MATCH,
            answers={
                "200": good_answer("The ledger", "Ledger", TAGGED),
                "304": {
                    "description": "It is as the program has it, but for `as_of`",
                    "headers": TAGGED,
                },
                "404": problem_answer("Nobody has spoken of this order"),
            },
        ),
        "put": operation(
            "orders",
            "orders.tellOrder",
            "Tell what the shop knows of an order; facts are only added",
            body="Told",
            answers={
                **BODY_PROBLEMS,
                "200": good_answer("The ledger", "Ledger"),
                "409": problem_answer(
                    "One of the references is another order's, which `order` names"
                ),
                "422": problem_answer("Something stated is wrong; all mistakes are named"),
            },
        ),
    },
    "/api/v1/checkout/sessions": {
        "post": operation(
            "checkout",
            "checkout.startPayment",
            "Start an order's payment, once: the session is opened, or the one there is given",
            body="Checkout",
            answers=_STARTED,
        )
    },
    "/api/v1/outcomes": {
        "get": operation(
            "read",
            "outcomes.readFeed",
            "The outcome feed: every published change, in order, without gaps",
            parameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": GREATEST, "default": 0},
                "The last id seen. Ids rise and none is given twice; they are not consecutive "
                "after a restore.",
            ),
            LIMIT,
            parameter(
                "wait",
                {"type": "integer", "minimum": 0, "maximum": LONGPOLL_MAX_S, "default": 0},
                "Seconds to wait.",
            ),
            answers={
                "200": good_answer("Changes after the cursor", "OutcomePage"),
                "410": problem_answer("The cursor is beyond the last id: read on from `read_from`"),
            },
        )
    },
}

# --- finance --------------------------------------------------------------------------------------

_REFERENCE: Final = parameter(
    "reference", WORD, "Only lines that name this order, group or payment."
)
_STANDS: Final = parameter("stands", {"enum": list(BUCKETS)}, "Only lines that stand there.")
_CAUSE: Final = parameter("cause", {"enum": list(BREAK_CAUSES)}, "Only this cause.")
_STATE: Final = parameter(
    "state", {"enum": list(STATES)}, "Only in this state; without it all but closed ones."
)
_ASSIGNEE: Final = parameter("assignee", WORD, "Only what is this person's.")
_CLOSED_TOO: Final = parameter("all", {"enum": ["true", "false"]}, "What evidence ended, too.")
_LINES: Final = (_REFERENCE, AS_OF, AFTER, LIMIT)
_IMPORTS: Final = "that were imported, and imports that took one back, newest first"
_BY_PERSON: Final = "An operator's own token may ask for it where their role may see it."


def _to_read(
    name: str,
    summary: str,
    schema: str,
    *parameters: dict[str, Any],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe a page of finance; a person's own token may read it where their role may."""
    return {
        "get": operation(
            "finance",
            f"finance.{name}",
            summary,
            *parameters,
            answers={"200": good_answer("What was asked for", schema), **(more or {})},
            description=_BY_PERSON,
        )
    }


def _one_of_them(name: str, described: dict[str, Any]) -> dict[str, Any]:
    described["get"]["responses"]["404"] = problem_answer("There is none of this name", BEHIND)
    return described | {"parameters": [path_parameter(name, {**WORD, "minLength": 1})]}


_DAY_OR_MOMENT: Final[Schema] = {
    "anyOf": [{"type": "string", "format": "date", "pattern": INSTANT["pattern"]}, INSTANT],
    "examples": ["2026-10-01"],
}
_FROM: Final = {
    **parameter("from", _DAY_OR_MOMENT, "The first day, of the merchant's zone, or the moment."),
    "required": True,
    "allowEmptyValue": False,
}
_TO: Final = {
    **parameter("to", _DAY_OR_MOMENT, "The last day, all of it, or the moment where it ends."),
    "required": True,
    "allowEmptyValue": False,
}
_BASIS: Final = parameter(
    "basis",
    {"enum": list(BASES)},
    "Which date places money in the period: captured, the provider's, which it is without this; "
    "received, ours; settled, the payout's.",
)
_FORM: Final = parameter(
    "format",
    {"enum": list(JOURNAL_FORMATS)},
    "json, which it is without this; csv, a line a posting; beancount; xero and quickbooks, to "
    "import there, a journal a day and currency.",
)
_VERSION: Final = parameter(
    "version",
    {"type": "integer", "minimum": 1, "maximum": 9_999},
    "Of the closing, where the month was reopened; without this the one that stands.",
)
_MADE: Final = {
    "202": good_answer("It is being made; the same again gives it", "ReportUnderWay", RETRY_AFTER),
    "409": problem_answer("It cannot be made, or is too long; the sentence says why"),
    "503": problem_answer(
        "Another report, journal, verification or preview is being made", RETRY_AFTER
    ),
}
_JOURNAL: Final = {
    "description": "The journal",
    "content": {
        **{media: {"schema": WORD} for media, _ in JOURNAL_TYPES.values()},
        **json_content("Journal"),
    },
}
_PREVIEW: Final = {
    "post": operation(
        "finance",
        "finance.previewRules",
        "What other matching rules would newly match, lose and change; nothing of it is kept",
        body="RulesTried",
        answers={
            **BODY_PROBLEMS,
            **_MADE,
            "200": good_answer("What they would change", "RulesPreview"),
            "422": problem_answer("They are no rules: every mistake is named"),
        },
        description=_BY_PERSON,
    )
}

_NOT_MATCHED: Final = {
    "409": problem_answer("They are too many to be matched, or their sums too large")
}

_FINANCE_PATHS: Final[dict[str, Any]] = {
    "/api/v1/schedule": _to_read(
        "listSchedule",
        "What is done at its times, each with its last and next time and what became of the last",
        "Schedule", AFTER, LIMIT,
    ),
    "/api/v1/reports": _to_read(
        "getReport",
        "What became of a period's orders and money, now or as it could be known at an instant: "
        "made when it is asked for, and the same for a minute after",
        "Report", _FROM, _TO, _BASIS, AS_OF, more=_MADE,
    ),
    "/api/v1/journals": _to_read(
        "getJournal",
        "A period's money as balanced double entries: payments, refunds and lost disputes on the "
        "provider's dates, settlements on the statement's, write-offs when they were accepted",
        "Journal", _FROM, _TO, AS_OF, _FORM, more={"200": _JOURNAL, **_MADE},
    ),
    "/api/v1/records/lines": _to_read(
        "listBookLines", "The lines of the order book, by key", "BookLinePage", *_LINES
    ),
    "/api/v1/records/imports": _to_read(
        "listBookImports", f"Order books {_IMPORTS}", "ImportPage", BEFORE, LIMIT
    ),
    "/api/v1/statement/lines": _to_read(
        "listStatementLines", "The lines of statements, by key", "StatementLinePage", *_LINES
    ),
    "/api/v1/statement/imports": _to_read(
        "listStatementImports", f"Statements {_IMPORTS}", "ImportPage", BEFORE, LIMIT
    ),
    "/api/v1/bank/lines": _to_read(
        "listBankLines",
        "What the bank booked, the newest first, with the payouts it is matched with; without the "
        "texts that name people",
        "BankPage", _STANDS, AS_OF, AFTER, LIMIT, more=_NOT_MATCHED,
    ),
    "/api/v1/bank/lines/{line}": _one_of_them(
        "line",
        _to_read(
            "getBankLine",
            "One bank line: all that the bank stated, where it stands, its payouts and their rate",
            "WholeBankLine", AS_OF, more=_NOT_MATCHED,
        ),
    ),
    "/api/v1/bank/imports": _to_read(
        "listBankImports", f"Files of banks {_IMPORTS}", "ImportPage", BEFORE, LIMIT
    ),
    "/api/v1/runs": _to_read(
        "listRuns", "Reconciliations, newest first", "RunPage", BEFORE, LIMIT
    ),
    "/api/v1/runs/{run}": _one_of_them(
        "run",
        _to_read(
            "getRun",
            "One reconciliation: its totals and ties, and the breaks that it saw, by id",
            "WholeRun", AFTER, LIMIT,
        ),
    ),
    "/api/v1/rules": _to_read("getRules", "The rules in force, and who saved them when", "Rules"),
    "/api/v1/rules/preview": _PREVIEW,
    "/api/v1/breaks": _to_read(
        "listBreaks", "Breaks by id", "BreakPage", _CAUSE, _STATE, _ASSIGNEE, AFTER, LIMIT
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
        _CLOSED_TOO, AFTER, LIMIT,
    ),
    "/api/v1/periods": _to_read(
        "listPeriods", "The closings of months, the earliest first, also those that were reopened",
        "PeriodList", AFTER, LIMIT,
    ),
    "/api/v1/periods/verification": _to_read(
        "verifyPeriods", "Whether closed months still follow from their evidence: every step on "
        "each, the earliest first",
        "Verification", more=_MADE,
    ),
    "/api/v1/periods/{period}/verification": _one_of_them(
        "period",
        _to_read(
            "verifyPeriod", "Whether a closed month still follows from its evidence",
            "Verification", more=_MADE,
        ),
    ),
    "/api/v1/periods/{period}": _one_of_them(
        "period",
        _to_read(
            "getPeriod", "A closed month's report, byte for byte as it was closed", "Report",
            _VERSION,
        ),
    ),
    "/api/v1/periods/{period}/journal": _one_of_them(
        "period",
        _to_read(
            "getPeriodJournal", "A closed month's journal, byte for byte as it was closed",
            "Journal", _FORM, _VERSION, more={"200": _JOURNAL, "409": _MADE["409"]},
        ),
    ),
}  # fmt: skip

# --- cases ----------------------------------------------------------------------------------------

_FAMILY: Final = parameter(
    "family", {"enum": list(FAMILIES)}, "Of which kind the dispute is, where its reason is unclear."
)
_RESPOND_BY: Final = parameter(
    "respond_by", INSTANT, "Until when the bank takes an answer, where no message says it."
)


def _of_case(
    name: str,
    summary: str,
    schema: str,
    *parameters: dict[str, Any],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "parameters": [path_parameter("reference", REFERENCE, "The order's.")],
        "get": operation(
            "evidence",
            f"cases.{name}",
            summary,
            *parameters,
            answers={
                "200": good_answer("What was asked for", schema),
                "404": problem_answer("Nobody has spoken of this order"),
                **(more or {}),
            },
        ),
    }


_CASE_PATHS: Final[dict[str, Any]] = {
    "/api/v1/cases/{reference}": _of_case(
        "getCase",
        "What a bank asks to see in an answer to an order's dispute, and what of it is missing",
        "Case", _FAMILY, _RESPOND_BY, AS_OF,
    ),
    "/api/v1/letters/{reference}": _of_case(
        "getLetter", "What the letter about an order's dispute says, without the files behind it",
        "Letter", _FAMILY, _RESPOND_BY, AS_OF,
        more={"409": problem_answer("It cannot be written; the sentence says why")},
    ),
    "/api/v1/attachments/{reference}": _of_case(
        "listAttachments", "What is attached to an order and its breaks; the files are not here",
        "AttachmentList",
    ),
}  # fmt: skip

# --- proposals ------------------------------------------------------------------------------------

_PROPOSAL: Final = path_parameter("proposal", {**WORD, "minLength": 1})
_NO_PROPOSAL: Final = {"404": problem_answer("There is no such proposal")}


def _for_person(
    name: str, summary: str, *parameters: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Describe an operation that needs a person's own token."""
    described = operation("operator", name, summary, *parameters, **more)
    described["responses"]["403"] = problem_answer(
        "It takes an `operator`'s own token, of a role that may do this", AUTHENTICATE
    )
    return described


def _deciding(name: str, summary: str) -> dict[str, Any]:
    answers = {
        **BODY_PROBLEMS,
        **_NO_PROPOSAL,
        "200": good_answer("What became of it", "Proposal"),
        "409": problem_answer("It cannot be decided so: it is over, has changed, or is one's own"),
        "422": problem_answer("No reason is given"),
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
            parameter("before", WORD, "The `next` of the page before."),
            described(LIMIT, "Past ones in a page."),
            answers={"200": good_answer("A page of proposals", "ProposalPage")},
        )
    },
    "/api/v1/proposals/{proposal}": {
        "parameters": [_PROPOSAL],
        "get": _for_person(
            "proposals.getProposal",
            "One proposal",
            answers={"200": good_answer("The proposal", "Proposal"), **_NO_PROPOSAL},
        ),
    },
    "/api/v1/proposals/{proposal}/approve": _deciding("approve", "Agree to it; it is done at once"),
    "/api/v1/proposals/{proposal}/reject": _deciding("reject", "Say that it is not to be done"),
    "/api/v1/proposals/{proposal}/withdraw": _deciding("withdraw", "Take back one's own"),
    "/api/v1/periods/{period}/reopen": {
        "parameters": [path_parameter("period", {**WORD, "minLength": 1})],
        "post": _for_person(
            "proposals.reopenPeriod",
            "Propose to reopen the last closed month; its report and journal stay",
            body="Because",
            answers={
                **BODY_PROBLEMS,
                "202": good_answer("The proposal that waits for a second person", "Proposal"),
                "409": problem_answer("It is not the last closed month, or is proposed already"),
                "422": problem_answer("No reason is given"),
            },
        ),
    },
    "/api/v1/proposals/{proposal}/numbers": {
        "parameters": [_PROPOSAL],
        "post": _for_person(
            "proposals.seeNumbers",
            "The customers' numbers of one's own approved proposal; the trail keeps each look",
            answers={
                **_NO_PROPOSAL,
                "200": good_answer("The numbers of each order", "Numbers"),
                "409": problem_answer("It is not one's own, not approved, or its time is over"),
            },
        ),
    },
}

_PAYMENT: Final = path_parameter(
    "payment", {**WORD, "minLength": 1}, "Its `id`, or the provider's reference of it."
)


def _placing(name: str, summary: str, body: str) -> dict[str, Any]:
    answers = {
        **BODY_PROBLEMS,
        "200": good_answer("The payment, as it stands now", "Unallocated"),
        "202": good_answer(
            "It takes a second person: the proposal that waits for them", "Proposal"
        ),
        "404": problem_answer("There is no such payment, or nobody has spoken of the order"),
        "409": problem_answer("It cannot be done so, such as where somebody decided since"),
        "422": problem_answer("The body is none of these"),
    }
    return {
        "parameters": [_PAYMENT],
        "post": _for_person(f"unallocated.{name}", summary, body=body, answers=answers),
    }


_UNALLOCATED_PATHS: Final[dict[str, Any]] = {
    "/api/v1/unallocated": {
        "get": _for_person(
            "unallocated.listUnallocated",
            "Verified payments that no order has, those heard of first before the others",
            parameter("source", WORD, "Only of this source."),
            parameter("all", {"enum": ["true", "false"]}, "Dismissed and moneyless ones, too."),
            parameter("not_ours", {"enum": ["true", "false"]}, "Those of other shops, instead."),
            AFTER,
            LIMIT,
            answers={"200": good_answer("A page of payments", "UnallocatedPage")},
        )
    },
    "/api/v1/unallocated/{payment}/assign": _placing(
        "assignPayment", "Give a payment to an order, or propose that", "Assigning"
    ),
    "/api/v1/unallocated/{payment}/dismiss": _placing(
        "dismissPayment", "Propose that a payment belongs to no order", "Dismissing"
    ),
}

# --- what came, and what was sent -----------------------------------------------------------------

_LOG_PATHS: Final[dict[str, Any]] = {
    "/api/v1/evidence/{reference}": {
        "parameters": [path_parameter("reference", REFERENCE, "The order's.")],
        "get": _for_person(
            "evidence.buildBundle",
            "An order's evidence as a ZIP that a stranger can check, without personal data",
            AS_OF,
            answers={
                "200": {
                    "description": "The bundle: `tallyhook evidence verify FILE` checks it",
                    "content": {
                        "application/zip": {"schema": {"contentMediaType": "application/zip"}}
                    },
                },
                "404": problem_answer("Nobody has spoken of this order"),
                "409": problem_answer("It cannot be built so, or is too large to be answered"),
            },
            description="For the roles finance, support and admin; the trail says who built it. It "
            "takes some seconds, and one is built at a time.",
        ),
    },
    "/api/v1/deliveries": {
        "get": _for_person(
            "deliveries.listDeliveries",
            "What arrived, newest first, without bodies",
            parameter("verdict", {"enum": list(VERDICTS)}, "Only this verdict."),
            parameter("source", WORD, "Only of this source."),
            parameter("kind", WORD, "Only events of this kind, in the provider's word."),
            parameter("order", WORD, "Only events in this order's ledger."),
            parameter("no_order", {"enum": ["true", "false"]}, "Only events in no order's ledger."),
            parameter("before", WORD, "The `next` of the page before."),
            LIMIT,
            answers={"200": good_answer("A page of arrivals", "ArrivalPage")},
            description="Refused ones are there for who may see them: roles finance and support. "
            "With `kind` or `no_order` a page may have fewer than `limit`, or none, although there "
            "are more: `next` is null only where all were looked at.",
        )
    },
    "/api/v1/deliveries/{delivery}": {
        "parameters": [path_parameter("delivery", {**WORD, "minLength": 1})],
        "get": _for_person(
            "deliveries.getDelivery",
            "One arrival with its headers, in which secrets and customers' numbers are masked",
            answers={
                "200": good_answer("The arrival", "WholeArrival"),
                "404": problem_answer("There is none of this name; old refused ones are deleted"),
            },
            description="The trail says who looked at a refused one.",
        ),
    },
    "/api/v1/notifications": {
        "get": _for_person(
            "notifications.listNotifications",
            "What the shop is notified of, newest first, and whether it took it",
            parameter("state", {"enum": list(NOTIFICATION_STATES)}, "Only in this state."),
            parameter("order", WORD, "Only of this order."),
            BEFORE,
            LIMIT,
            answers={"200": good_answer("A page of notifications", "SentPage")},
        )
    },
    "/api/v1/notifications/{notification}/redeliver": {
        "parameters": [path_parameter("notification", {**WORD, "minLength": 1})],
        "post": _for_person(
            "notifications.redeliver",
            "Send it again, with the id that it had, and three more days to be taken",
            body="Because",
            answers={
                **BODY_PROBLEMS,
                "200": good_answer("The notification, which waits to be sent", "Sent"),
                "404": problem_answer("There is none of this number"),
                "422": problem_answer("No reason is given"),
            },
        ),
    },
    "/api/v1/orders/{reference}/release": {
        "parameters": [path_parameter("reference", REFERENCE, "The order's.")],
        "post": _for_person(
            "orders.releaseOrder",
            "Release a held order: it is published, and the shop notified, as for any other",
            parameter("held_for", {"enum": list(HOLD_REASONS)}, "What it is held for."),
            body="Because",
            answers={
                **BODY_PROBLEMS,
                "200": good_answer("The order, as it stands now", "Ledger"),
                "404": problem_answer("It is unknown, or not held for this"),
                "422": problem_answer("No reason is given, or no hold is named"),
            },
        ),
    },
    "/api/v1/log/witnesses": {
        "get": _for_person(
            "log.listWitnesses",
            "The witnesses that cosign the log's checkpoints, and the last checkpoint that left by "
            "each way",
            answers={"200": good_answer("Witnesses, and what left", "Witnesses")},
        )
    },
}

# --- what the shop is notified of -----------------------------------------------------------------


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
            "requestBody": request_body("Notification"),
            "responses": {
                "2XX": {"description": "Taken; it is not sent again"},
                "429": {
                    "description": "Not now; it is sent again after `Retry-After`",
                    "headers": RETRY_AFTER,
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
    "unallocated": "Verified payments that no order has.",
    "notifications": "What the shop is notified of by itself.",
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
    "paths": {
        **_ORDER_PATHS,
        **_LOG_PATHS,
        **_FINANCE_PATHS,
        **_CASE_PATHS,
        **_PROPOSAL_PATHS,
        **_UNALLOCATED_PATHS,
    },
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
        "schemas": ALL_SCHEMAS,
    },
}


def api_document(*, page_max: int, longpoll_max_s: int) -> dict[str, Any]:
    """Return the description with this instance's limits: page size, and seconds of long
    polling."""
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


@lru_cache(maxsize=8)
def written_document(*, page_max: int, longpoll_max_s: int) -> bytes:
    """Return the description as UTF-8 JSON, cached per limits."""
    document = api_document(page_max=page_max, longpoll_max_s=longpoll_max_s)
    return json.dumps(document, ensure_ascii=False).encode()


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
    """Return the query parameters of a route and method. Raise KeyError for one that is not
    described."""
    operations = API_DOCUMENT["paths"][_PATH_KIND.sub("}", path)]
    described = operations["get" if method == "HEAD" else method.lower()]
    return [each["name"] for each in described["parameters"] if each["in"] == "query"]
