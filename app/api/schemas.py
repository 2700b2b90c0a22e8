"""JSON Schemas of what the API takes and answers, but finance's; and an example made of each.

Members that later releases add are no breach: a reader passes over those that it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.access.proposals import REASON_MAX
from app.api.request_body import MAX_REFERENCES, MAX_TENDERS, TENDER_KIND
from app.core.problems import TYPE
from app.core.references import MAX_REFERENCE
from app.orders.delivery_log import VERDICTS
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.records import DISMISSED_AS
from reconcile.ledger.vocabulary import FINDING_CODES

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to this component's schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return the schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema, **limits: int) -> Schema:
    """Return a list of this schema."""
    return {"type": "array", "items": schema, **limits}


def described(schema: Schema, description: str) -> Schema:
    """Return the schema with a description of its use here."""
    return {**schema, "description": description}


def members(
    properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), description: str = ""
) -> Schema:
    """Return an object of these members, all required but the optional ones."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": dict(properties),
        **({"description": description} if description else {}),
    }


def word(*examples: str) -> Schema:
    return {"type": "string", "examples": list(examples)} if examples else {"type": "string"}


def page(name: str, item: str, following: Schema) -> Schema:
    """Return a page of a list, and the cursor of the next: null at the end."""
    nothing = "What to ask the next page with; null where there is none."
    return members({name: listed(ref(item)), "next": described(following, nothing)})


WORD: Final = word()
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "pattern": "^(19[7-9]|[2-9][0-9]{2})",
    "examples": ["2026-10-05T14:30:00Z"],
}
"""Of the years from 1970 to 9999."""

MAYBE_WORD: Final[Schema] = {"type": ["string", "null"]}
MAYBE_COUNT: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
MAYBE_INSTANT: Final = maybe(INSTANT)
MONEY: Final = ref("Money")
MAYBE_MONEY: Final = maybe(MONEY)
TEXTS: Final = listed(WORD)
CITES: Final = described(TEXTS, "Ids of the events, deliveries and records that it rests on.")
DIGEST: Final[Schema] = {
    "type": "string",
    "pattern": "^sha256:[0-9a-f]{64}$",
    "examples": ["sha256:" + "5f" * 32],
}
REFERENCE: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_REFERENCE,
    "pattern": "^(?=[\\s\\S]*\\S)[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]+$",
    "examples": ["ORD-1"],
}
CURRENCY: Final[Schema] = {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["KES"]}
AMOUNT: Final[Schema] = {
    "type": ["string", "number"],
    "pattern": "^[0-9]{1,19}(\\.[0-9]{1,19})?$",
    "exclusiveMinimum": 0,
    "examples": ["1500.00"],
}
FACTS: Final[Schema] = {
    "type": "object",
    "description": "What the sentence was made of, by name; a name that stands several times has "
    "a list. Money is an object, an instant a text.",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "integer", "boolean", "null"]},
            ref("Money"),
            listed({"anyOf": [{"type": ["string", "integer", "boolean", "null"]}, ref("Money")]}),
        ]
    },
}

_FINDING: Final = {"enum": list(FINDING_CODES)}
_OUTCOME: Final = {"enum": list(OUTCOMES)}

_STATED_REFERENCES: Final[Schema] = {
    "type": ["array", "null"],
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
            "session": REFERENCE,
            "payment": REFERENCE,
            "amount": described(AMOUNT, "What the session was opened for, in major units."),
            "currency": CURRENCY,
        },
        "oneOf": [
            {"required": ["session"]},
            {"required": ["payment"], "not": {"required": ["amount"]}},
        ],
        "dependentRequired": {"amount": ["currency"], "currency": ["amount"]},
        "examples": [{"source": "shop", "payment": "pay_1"}],
    },
}

_STATED: Final[Schema] = {
    "type": "object",
    "required": ["amount", "currency"],
    "additionalProperties": False,
    "properties": {
        "amount": {
            "type": ["string", "number"],
            "pattern": AMOUNT["pattern"],
            "minimum": 0,
            "examples": AMOUNT["examples"],
            "description": "The whole price; zero only with `free`.",
        },
        "currency": CURRENCY,
        "free": {
            "type": "boolean",
            "description": "The order costs nothing: with the amount 0 only, which needs it. It is "
            "fulfillable once a verified event says that its session ended with 0.",
        },
        "tenders": {
            "type": ["array", "null"],
            "maxItems": MAX_TENDERS,
            "description": "Parts of the price that are paid otherwise, together at most the "
            "amount: what providers are due is the rest. Missing: as stated before; empty: none.",
            "items": {
                "type": "object",
                "required": ["kind", "amount"],
                "additionalProperties": False,
                "properties": {
                    "kind": {
                        "type": "string",
                        "pattern": f"^{TENDER_KIND}$",
                        "examples": ["gift_card"],
                    },
                    "amount": AMOUNT,
                },
            },
        },
        "placed_at": MAYBE_INSTANT,
        "canceled_at": described(
            MAYBE_INSTANT, "Null: it was not canceled. Missing: says nothing."
        ),
        "fulfilled_at": described(
            MAYBE_INSTANT, "Null: it was not fulfilled. Missing: says nothing."
        ),
        "references": _STATED_REFERENCES,
    },
    "examples": [
        {"amount": "1500.00", "currency": "KES", "placed_at": "2026-10-05T14:30:00Z"},
    ],
}

_CHECKOUT: Final[Schema] = {
    "type": "object",
    "required": ["order"],
    "additionalProperties": False,
    "properties": {
        "order": {
            "type": "object",
            "required": ["reference", "amount", "currency"],
            "additionalProperties": False,
            "properties": {"reference": REFERENCE, "amount": AMOUNT, "currency": CURRENCY},
        },
        "customer": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {
                "phone": {"type": ["string", "null"], "examples": ["254712345678"]},
            },
        },
        "return_urls": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {
                "success": {
                    "type": ["string", "null"],
                    "format": "uri",
                    "examples": ["https://shop.example/paid"],
                },
                "cancel": {
                    "type": ["string", "null"],
                    "format": "uri",
                    "examples": ["https://shop.example/basket"],
                },
            },
        },
        "new_payment": {
            "type": "boolean",
            "description": "The earlier payment is over and the customer tries again.",
        },
    },
}

_REASON: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": REASON_MAX,
    "examples": ["Agreed with the customer"],
}

_REPLACES: Final = described(
    WORD, "The `last_act` that you saw: whoever decided since then is not overruled."
)

_ASSIGN: Final = {
    **members(
        {"order": REFERENCE, "reason": _REASON, "replaces": _REPLACES}, optional=("replaces",)
    ),
    "additionalProperties": False,
}

_DISMISS: Final = {
    **members(
        {
            "as": {"enum": list(DISMISSED_AS)},
            "to": described(WORD, "Of other business: the account that the money goes to."),
            "reason": _REASON,
            "replaces": _REPLACES,
        },
        optional=("to", "replaces"),
    ),
    "additionalProperties": False,
}

_ARRIVAL: Final = {
    "delivery": word("dlv_1"),
    "received_at": INSTANT,
    "source": WORD,
    "verdict": {"enum": list(VERDICTS)},
    "kind": described(MAYBE_WORD, "The provider's word for its event; null where none was read."),
    "order": described(
        MAYBE_WORD, "The order whose ledger has the event; null where no order has it."
    ),
    "claim": described(MAYBE_WORD, "What the event says of a payment."),
    "money": MAYBE_MONEY,
    "event": MAYBE_WORD,
    "size": COUNT,
    "problem": described(MAYBE_WORD, "Why it was refused or could not be read."),
}

_WHOLE_ARRIVAL: Final = members(
    {
        **_ARRIVAL,
        "digest": WORD,
        "phones": described(TEXTS, "Its customers' numbers, masked."),
        "pruned_at": described(
            MAYBE_INSTANT,
            "When its body was deleted; of a redelivery of what was deleted, its arrival.",
        ),
        "headers": described(
            TEXTS, "As `name: value`; secrets are hidden, and numbers of customers masked."
        ),
    }
)

_PROBLEM: Final = members(
    {
        "type": {
            "type": "string",
            "format": "uri",
            "pattern": f"^{TYPE}[a-z0-9_]+$",
            "description": f"What kind of problem it is: `{TYPE}` and the code. It names, "
            "and leads nowhere.",
            "examples": [f"{TYPE}order_unknown"],
        },
        "title": word("Not Found"),
        "status": {"type": "integer", "minimum": 400, "maximum": 599, "examples": [404]},
        "code": {"type": "string", "pattern": "^[a-z0-9_]+$", "examples": ["order_unknown"]},
        "detail": described(
            word("Nothing is known of an order of this reference."), "One sentence for a person."
        ),
        "scope": described(WORD, "With 403: the scope that the token lacks."),
        "order": described(WORD, "With 409 of a reference: the order that has it."),
        "read_from": described(COUNT, "With 410 of the outcome feed: the cursor to read on from."),
        "ask_again_at": described(
            INSTANT, "With 409 of a payment that is not over, where it is known."
        ),
        "before": described(
            MAYBE_MONEY, "With 409 of other money: what the payment is of, or the order costs."
        ),
        "asked": described(MAYBE_MONEY, "With 409 of other money: what was asked for."),
        "problems": described(
            listed(members({"field": WORD, "sentence": WORD})),
            "With 422 of a payment: every field that is not right.",
        ),
        "idempotency_key": described(MAYBE_WORD, "With 422 of a session that the service refused."),
    },
    optional=(
        "scope",
        "order",
        "read_from",
        "ask_again_at",
        "before",
        "asked",
        "problems",
        "idempotency_key",
    ),
)

SCHEMAS: Final[dict[str, Schema]] = {
    "Told": _STATED,
    "Arrival": members(_ARRIVAL),
    "ArrivalPage": page("deliveries", "Arrival", MAYBE_WORD),
    "WholeArrival": _WHOLE_ARRIVAL,
    "SentPage": page("notifications", "Sent", MAYBE_COUNT),
    "Checkout": _CHECKOUT,
    "UnallocatedPage": page("payments", "Unallocated", MAYBE_WORD),
    "Assigning": _ASSIGN,
    "Dismissing": _DISMISS,
    "ProposalPage": page("proposals", "Proposal", MAYBE_WORD),
    "Because": {
        "type": "object",
        "required": ["reason"],
        "additionalProperties": False,
        "properties": {"reason": _REASON},
    },
    "Problem": _PROBLEM,
}


def example_of(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """Return a value that the schema allows, made of its examples. Raise KeyError for a schema
    without any."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "examples" in schema:
        return schema["examples"][0]
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
