"""JSON Schemas of what the API takes and answers, but finance's; and an example made of each.

Members that later releases add are no breach: a reader passes over those that it does not know.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

from app.access.proposals import REASON_MAX
from app.api.request_body import MAX_REFERENCES, MAX_TENDERS, TENDER_KIND
from app.checkout.open_checkout import STATUSES
from app.core.problems import TYPE
from app.core.references import MAX_REFERENCE
from app.orders.delivery_log import VERDICTS
from reconcile.ledger.events import CLAIM_KINDS
from reconcile.ledger.ledger import OUTCOMES, AttemptOutcome, EntryKind
from reconcile.ledger.on_top import ON_TOP
from reconcile.ledger.records import DISMISSED_AS
from reconcile.ledger.vocabulary import FINDING_CODES, Severity

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

_TOTALS: Final = members(
    {
        "expected": MAYBE_MONEY,
        "captured": MAYBE_MONEY,
        "refunded": MAYBE_MONEY,
        "held": MAYBE_MONEY,
        "reversed": MONEY,
        "lost": MONEY,
        "price": described(MONEY, "What the order costs; there only with tenders."),
        "tenders": described(
            listed(members({"kind": word("gift_card"), "amount": WORD, "currency": CURRENCY})),
            "What of the price is paid otherwise; `expected` is the rest, due at providers.",
        ),
        "discount": described(
            MONEY,
            "What discounts at payment services took off the price; `expected` is the rest.",
        ),
        "on_top": described(
            listed(members({"kind": {"enum": list(ON_TOP)}, "amount": WORD, "currency": CURRENCY})),
            "What of `held` is on top of the price, as the payment service names it. It is not "
            "owed back.",
        ),
        "owed_back": described(
            MAYBE_MONEY,
            "What must still be given back, less `on_its_way`; there only where something was "
            "paid beyond the price, or is held after the shop canceled. Null where a refund under "
            "way states no amount: ask the payment service before you refund.",
        ),
        "on_its_way": described(
            MAYBE_MONEY,
            "What refunds under way will give back of it; never refund it again. Null as above.",
        ),
        "others": described(
            listed(
                members(
                    {"captured": MONEY, "refunded": MONEY, "reversed": MONEY, "lost": MONEY},
                    optional=("reversed", "lost"),
                )
            ),
            "Money in other currencies than the order's.",
        ),
    },
    optional=(
        "reversed",
        "lost",
        "price",
        "tenders",
        "discount",
        "on_top",
        "owed_back",
        "on_its_way",
        "others",
    ),
)

_STATED_AT: Final[Schema] = {"anyOf": [INSTANT, {"const": "unknown"}, {"type": "null"}]}
_SHOP_FACTS: Final = {
    "fulfilled_at": described(
        _STATED_AT,
        "When the shop fulfilled the order, as it has stated it by now; null where it has not. "
        "`unknown` after a restore, until it states it or states null. Ship only where it is null.",
    ),
    "canceled_at": described(
        _STATED_AT, "When the shop canceled the order, in the same way as `fulfilled_at`."
    ),
}

_WINDOW: Final = {
    "expected_by": described(
        MAYBE_INSTANT,
        "When the provider should have said how a slow payment ended, such as a debit from a bank "
        "account; null where none is under way. Whether stock is kept until then is yours to "
        "decide. An instant in the past: the payment is overdue, and may still come through.",
    ),
    "method_class": described(
        MAYBE_WORD,
        "The slow payment method, as the profile calls it; `unknown` where no event names it.",
    ),
    "revocable_until": described(
        MAYBE_INSTANT,
        "Until when the customer can revoke the payment without giving a reason; null where the "
        "profile states no such time.",
    ),
}

_LEDGER: Final = members(
    {
        "order": REFERENCE,
        "as_of": INSTANT,
        "outcome": _OUTCOME,
        "fulfillable": described(
            FLAG,
            "Ship where it is true, `fulfilled_at` is null, and your own books have not shipped "
            "it. State `fulfilled_at` before the parcel leaves.",
        ),
        **_SHOP_FACTS,
        **_WINDOW,
        "totals": ref("Totals"),
        "explanation": TEXTS,
        "attempts": listed(ref("Attempt")),
        "entries": listed(ref("Entry")),
        "timeline": listed(ref("TimelineRow")),
        "findings": described(
            listed(ref("Finding")),
            "More than three of one code are one: its `facts` have their number as `alike`, the "
            "largest of what is counted and the first and last date, and `cites` has all ids; a "
            "sentence names a few of them.",
        ),
        "next_decision_at": MAYBE_INSTANT,
        "fingerprint": described(
            DIGEST,
            "`sha256:` and the digest of the members above, without `as_of` and the `plain` and "
            "`staff` of findings, as canonical JSON.",
        ),
        "plain": members(
            {
                "answer": TEXTS,
                "findings": listed(members({"code": _FINDING, "sentence": WORD})),
            },
            description="What can be read to a customer: `answer`, sentences without ids, and "
            "`findings`, the `plain` of each by its code. The fingerprint does not cover it.",
        ),
        "staff": described(
            TEXTS,
            "What the shop's people must do, the most urgent first. It may have the payment "
            "service's own code of a decline: do not read it to a customer. The fingerprint does "
            "not cover it.",
        ),
        "restricted": members(
            {"since": INSTANT, "until": MAYBE_INSTANT, "why": WORD, "sentence": WORD},
            description="There only while the customer's data are restricted: an erasure may not "
            "empty them yet, and nobody finds or sees them. `until` is null where only the reason "
            "says when it ends. The fingerprint does not cover it.",
        ),
        "pruned": members(
            {"deliveries": COUNT, "last_at": INSTANT, "sentence": WORD},
            description="What of its deliveries was deleted; there only where something was. The "
            "fingerprint does not cover it.",
        ),
        "unread": described(
            listed(
                members(
                    {
                        "delivery": WORD,
                        "source": WORD,
                        "received_at": INSTANT,
                        "problem": WORD,
                        "names_order": {"type": "boolean"},
                    }
                )
            ),
            "Messages of its payment service that may be about the order and cannot be read; there "
            "only where there are any. One that does not name the order is one from which no value "
            "can be read. The fingerprint does not cover it.",
        ),
        "unallocated": described(
            listed(members({"payment": WORD, "received_at": INSTANT, "money": MAYBE_MONEY})),
            "Payments of no order that may be for this one: each names it and may not be linked by "
            "that, or is what is still due and its payer has this customer's phone number. There "
            "only where there are any. The fingerprint does not cover it.",
        ),
        "refusing": described(
            listed(members({"source": WORD, "since": INSTANT, "refused": COUNT})),
            "Sources of the order of which nothing was accepted since refusals began; there only "
            "where there are any. The fingerprint does not cover it.",
        ),
        "gaps": described(
            listed(
                members(
                    {
                        "gap": WORD,
                        "since": INSTANT,
                        "until": INSTANT,
                        "looked_at": {"type": "boolean"},
                    }
                )
            ),
            "Accepted gaps in the order's time, in which messages and statements may be lost; "
            "`looked_at` where its providers were asked since, or a person released it. There only "
            "where there are any. The fingerprint does not cover it.",
        ),
        "behind_s": described(
            COUNT,
            "For how many seconds something accepted has waited to be read; there only where "
            "something does, and then `fulfillable` is false.",
        ),
    },
    optional=("restricted", "pruned", "unread", "unallocated", "refusing", "gaps", "behind_s"),
)

_ATTEMPT: Final = members(
    {
        "reference": WORD,
        "source": MAYBE_WORD,
        "outcome": {"enum": list(get_args(AttemptOutcome))},
        "deadline": MAYBE_INSTANT,
        "reasons": listed(
            members({"code": WORD, "cites": CITES, "facts": FACTS, "sentence": WORD})
        ),
    }
)

_TIMELINE_ROW: Final = members(
    {
        "occurred_at": MAYBE_INSTANT,
        "received_at": INSTANT,
        "event": WORD,
        "source": WORD,
        "digest": WORD,
        "kind": WORD,
        "claim": {"enum": list(CLAIM_KINDS)},
        "attempt": described(MAYBE_WORD, "Of which it speaks; null where it could be several."),
        "money": MAYBE_MONEY,
        "deliveries": COUNT,
        "note": WORD,
    }
)

_BEFORE: Final = maybe(members({"outcome": _OUTCOME, "fulfillable": FLAG}))

_OUTCOME_ENTRY: Final = members(
    {
        "id": described({"type": "integer", "minimum": 1}, "Rises; none is given twice."),
        "order": REFERENCE,
        "outcome": _OUTCOME,
        "fulfillable": FLAG,
        "before": described(_BEFORE, "What was published before; null at first."),
        "because": TEXTS,
        "at": INSTANT,
        **_SHOP_FACTS,
        **_WINDOW,
    },
    description="`fulfilled_at`, `canceled_at`, `expected_by`, `method_class` and "
    "`revocable_until` are as of this reading; all else is as it was published.",
)

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

_SESSION: Final = members(
    {
        "reference": described(MAYBE_WORD, "The service's own."),
        "status": {"enum": list(STATUSES)},
        "checkout_url": MAYBE_WORD,
        "expires_at": MAYBE_INSTANT,
        "order": members({"reference": REFERENCE}),
        "idempotency_key": described(
            MAYBE_WORD,
            "For questions to the service; null where no payment was started here.",
        ),
        "detail": WORD,
    },
    optional=("detail",),
)

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

_NUMBERS: Final = members(
    {
        "proposal": WORD,
        "open_until": described(INSTANT, "Until when they may be asked for again."),
        "orders": listed(
            members(
                {
                    "order": REFERENCE,
                    "phones": described(listed(word("254700000001")), "As E.164 digits."),
                    "note": described(WORD, "Why there is none, such as that it was erased."),
                }
            )
        ),
    }
)

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
    "Totals": _TOTALS,
    "Attempt": _ATTEMPT,
    "Entry": members(
        {
            "at": INSTANT,
            "kind": {"enum": list(get_args(EntryKind))},
            "money": MONEY,
            "attempt": MAYBE_WORD,
            "cites": CITES,
        }
    ),
    "TimelineRow": _TIMELINE_ROW,
    "Finding": members(
        {
            "code": _FINDING,
            "severity": {"enum": list(get_args(Severity))},
            "cites": CITES,
            "facts": FACTS,
            "sentence": WORD,
            "plain": described(
                WORD, "The same for a customer, without ids; the fingerprint does not cover it."
            ),
            "staff": described(
                {"type": "string"},
                "What the shop's people must do about it; empty where nothing is to do.",
            ),
        }
    ),
    "Ledger": _LEDGER,
    "Told": _STATED,
    "OrderRow": members(
        {
            "order": REFERENCE,
            "outcome": _OUTCOME,
            "fulfillable": FLAG,
            **_SHOP_FACTS,
            **_WINDOW,
            "totals": ref("Totals"),
            "findings": listed(_FINDING),
            "plain": described(WORD, "For a customer, without ids."),
            "explanation": WORD,
            "next_decision_at": MAYBE_INSTANT,
        }
    ),
    "OrderPage": page("orders", "OrderRow", MAYBE_WORD),
    "Outcome": _OUTCOME_ENTRY,
    "OutcomePage": members(
        {
            "outcomes": listed(ref("Outcome")),
            "cursor": described(COUNT, "Ask the next page with it as `after`."),
            "superseded": described(
                listed(COUNT),
                "The ids among these whose order has a later outcome in the feed by now: what "
                "they say is not how it stands, so nothing is to be shipped on them. Missing where "
                "there is none.",
            ),
            "alarms": described(
                TEXTS,
                "Sentences on what goes wrong that no outcome shows, such as that no verified "
                "event comes any more. Missing while nothing does.",
            ),
        },
        optional=("superseded", "alarms"),
    ),
    "Notification": members(
        {"type": {"const": "order.revised"}, "timestamp": INSTANT, "data": ref("Outcome")},
        description="What the shop is notified of one published change.",
    ),
    "Arrival": members(_ARRIVAL),
    "ArrivalPage": page("deliveries", "Arrival", MAYBE_WORD),
    "WholeArrival": _WHOLE_ARRIVAL,
    "SentPage": page("notifications", "Sent", MAYBE_COUNT),
    "Checkout": _CHECKOUT,
    "Session": _SESSION,
    "Numbers": _NUMBERS,
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
