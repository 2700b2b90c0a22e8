"""JSON Schemas of the documents that commands show as JSON, too: what finance has to be read, and
an order's case.
"""

from __future__ import annotations

from typing import Final, get_args

from app.api.schemas import (
    CITES,
    COUNT,
    FACTS,
    FLAG,
    INSTANT,
    MAYBE_COUNT,
    MAYBE_INSTANT,
    MAYBE_MONEY,
    MAYBE_WORD,
    MONEY,
    TEXTS,
    WORD,
    Schema,
    described,
    listed,
    maybe,
    members,
    page,
    ref,
    word,
)
from app.core.schedule import FORMS, SPANS, WAYS
from reconcile.matching.breaks import ACTS, BREAK_CAUSES, SETTLINGS, STANDINGS, STATES, Turn
from reconcile.matching.control import BUCKETS, SIDES, Family

# --- finance --------------------------------------------------------------------------------------

_FAMILY: Final = {"enum": list(get_args(Family))}
_BUCKET: Final = {"enum": list(BUCKETS)}
_CAUSE: Final = {"enum": list(BREAK_CAUSES)}
_SETTLING: Final = {"enum": list(SETTLINGS)}

_BOOK_LINE: Final = members(
    {
        "line": WORD,
        "reference": WORD,
        "kind": word("order"),
        "amount": MONEY,
        "placed_at": MAYBE_INSTANT,
        "status": word("paid"),
        "refunded_amount": MAYBE_MONEY,
        "refunded_at": MAYBE_INSTANT,
        "method": MAYBE_WORD,
        "group": MAYBE_WORD,
    }
)

_STATEMENT_LINE: Final = members(
    {
        "line": WORD,
        "payment": MAYBE_WORD,
        "order": MAYBE_WORD,
        "type": word("payment"),
        "gross": MONEY,
        "fee": MONEY,
        "net": MONEY,
        "settled_at": MAYBE_INSTANT,
        "payout": MAYBE_WORD,
        "wallet": MAYBE_WORD,
        "refund": MAYBE_WORD,
        "details": maybe({"type": "object", "additionalProperties": WORD}),
    }
)

_BANK_MEMBERS: Final = {
    "line": WORD,
    "account": WORD,
    "booked_at": INSTANT,
    "amount": MONEY,
    "reference": MAYBE_WORD,
    "family": _FAMILY,
    "stands": _BUCKET,
    "rate": MAYBE_WORD,
    "payouts": listed(
        members(
            {
                "payout": WORD,
                "reference": MAYBE_WORD,
                "source": WORD,
                "amount": MONEY,
                "paid_at": MAYBE_INSTANT,
                "lines": COUNT,
            }
        )
    ),
    "orders": listed(members({"order": WORD, "line": WORD, "amount": MONEY})),
}

_IMPORT: Final = members(
    {
        "number": COUNT,
        "published_at": MAYBE_INSTANT,
        "file": WORD,
        "who": WORD,
        "read": COUNT,
        "new": COUNT,
        "changed": COUNT,
        "unchanged": COUNT,
        "rejected": COUNT,
        "withdraws": described(MAYBE_COUNT, "The import that it took back."),
        "reason": MAYBE_WORD,
        "sha256": {"type": "string", "pattern": "^[0-9a-f]*$", "examples": ["5f" * 32]},
    }
)

_RUN_MEMBERS: Final = {
    "run": COUNT,
    "at": INSTANT,
    "as_of": INSTANT,
    "from": MAYBE_INSTANT,
    "to": MAYBE_INSTANT,
    "rules": described(MAYBE_COUNT, "The number of the rules; null for the usual ones."),
}

_RUN: Final = members(
    {
        **_RUN_MEMBERS,
        "kind": described(
            {"enum": ["lived", "look"]}, "lived: it gave breaks life. look: it did not."
        ),
        "breaks": COUNT,
        "ties": FLAG,
    }
)

_CONTROL_LINE: Final = members(
    {
        "side": {"enum": list(SIDES)},
        "currency": WORD,
        "family": _FAMILY,
        "bucket": _BUCKET,
        "count": COUNT,
        "sum": MAYBE_MONEY,
        "fee": MAYBE_MONEY,
        "net": MAYBE_MONEY,
    },
    optional=("fee", "net"),
)

_WHOLE_RUN: Final = members(
    {
        **_RUN_MEMBERS,
        "lived": FLAG,
        "ties": FLAG,
        "ties_checked": COUNT,
        "broken_ties": listed(
            members(
                {
                    "name": WORD,
                    "side": WORD,
                    "currency": WORD,
                    "left": {"type": "integer"},
                    "right": {"type": "integer"},
                }
            )
        ),
        "control": listed(_CONTROL_LINE),
        "matched": members({"count": COUNT, "sums": listed(MONEY)}),
        "unsearched": COUNT,
        "open": COUNT,
        "breaks": listed(ref("Break")),
        "next": MAYBE_WORD,
    }
)

_CANDIDATE: Final = members(
    {
        "line": WORD,
        "reference": MAYBE_WORD,
        "money": MONEY,
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "reasons": listed(members({"reason": WORD, "points": COUNT, "words": WORD})),
        "apart": WORD,
    }
)

_BREAK_MEMBERS: Final = {
    "id": word("brk_1"),
    "cause": _CAUSE,
    "state": {"enum": list(STATES)},
    "assignee": MAYBE_WORD,
    "order": MAYBE_WORD,
    "payment": MAYBE_WORD,
    "money": MONEY,
    "age_days": COUNT,
    "since": INSTANT,
    "cites": CITES,
    "candidates": described(listed(_CANDIDATE), "The nearest lines, and what keeps each apart."),
    "next_step": WORD,
    "sentence": WORD,
}

_STEP: Final = members(
    {
        "at": INSTANT,
        "step": {"enum": [*get_args(Turn), *ACTS]},
        "by": WORD,
        "second": described(MAYBE_WORD, "Who agreed, where two had to."),
        "value": WORD,
        "reason": WORD,
        "money": MONEY,
        "cites": CITES,
    }
)

_LATE: Final = members(
    {
        "id": WORD,
        "cause": _CAUSE,
        "order": MAYBE_WORD,
        "payment": MAYBE_WORD,
        "money": MONEY,
        "proposed": _SETTLING,
        "state": {"enum": list(STANDINGS)},
        "decided": maybe(_SETTLING),
        "because": MAYBE_WORD,
        "cites": CITES,
    }
)

_PERIOD: Final = members(
    {
        "period": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}$", "examples": ["2026-10"]},
        "version": described(COUNT, "1, or one more each time the month was reopened."),
        "as_of": INSTANT,
        "closed_at": INSTANT,
        "closed_by": WORD,
        "approved_by": described(MAYBE_WORD, "Who approved it, where it took two people."),
        "digest": WORD,
        "reopened_at": described(MAYBE_INSTANT, "When it was reopened; null: it stands."),
        "reopened_by": MAYBE_WORD,
    }
)

_LAST_TIME: Final = members(
    {
        "due_at": INSTANT,
        "state": WORD,
        "asked": described(FLAG, "Whether a person asked for it, out of turn."),
        "late": FLAG,
        "tries": COUNT,
        "run": MAYBE_COUNT,
        "ended_at": MAYBE_INSTANT,
        "waits_since": described(
            MAYBE_INSTANT, "Since when it waits for accepted deliveries to be read."
        ),
        "again_at": MAYBE_INSTANT,
        "problem": MAYBE_WORD,
        "delivered": listed(members({"way": {"enum": list(WAYS)}, "file": WORD})),
    }
)

_SCHEDULED: Final = members(
    {
        "name": WORD,
        "cron": word("30 2 * * *"),
        "reconcile": FLAG,
        "span": maybe({"enum": list(SPANS)}),
        "forms": listed({"enum": list(FORMS)}),
        "ways": listed({"enum": list(WAYS)}),
        "checkpoint": FLAG,
        "next": MAYBE_INSTANT,
        "last": maybe(_LAST_TIME),
    }
)

_POSTED: Final = {
    "account": word("Assets:Clearing:Provider"),
    "role": described(word("clearing"), "What the account is for, whatever its name is."),
    "minor": described({"type": "integer"}, "Minor units: debit is positive, credit negative."),
    "money": described(MONEY, "The same in major units."),
}

_MAYBE_DAY: Final = maybe({"type": "string", "format": "date", "examples": ["2026-10-05"]})

_TRANSACTION: Final = members(
    {
        "transaction": described(COUNT, "Its number in this journal, from 1."),
        "date": {"type": "string", "format": "date", "examples": ["2026-10-05"]},
        "at": INSTANT,
        "what": word("captured"),
        "order": MAYBE_WORD,
        "payment": MAYBE_WORD,
        "source": MAYBE_WORD,
        "cites": CITES,
        "original_date": described(_MAYBE_DAY, "Of an adjusting entry: its day in closed_period."),
        "tax_date": _MAYBE_DAY,
        "closed_period": described(
            MAYBE_WORD, "The closed month of which it became known later; null: none."
        ),
        "postings": described(
            listed(members(_POSTED), minItems=1), "Of one currency; they add up to nothing."
        ),
    }
)

_JOURNAL: Final = members(
    {
        "kind": word("payments journal"),
        "from": INSTANT,
        "to": INSTANT,
        "as_of": INSTANT,
        "basis": word("captured"),
        "environment": word("live"),
        "zone": described(word("Africa/Nairobi"), "In which days are counted; without it UTC."),
        "merchant": WORD,
        "closed_by": described(WORD, "Of a closed month: who closed it."),
        "closed_at": INSTANT,
        "version": described(COUNT, "Of the closing."),
        "approved_by": described(WORD, "Who approved the closing, where it took two people."),
        "proposed_at": INSTANT,
        "transactions": listed(_TRANSACTION),
        "count": COUNT,
        "totals": described(
            listed(members(_POSTED)), "What was posted in all, by account and currency."
        ),
        "own": described(
            members(
                {
                    "currency": word("EUR"),
                    "totals": listed(members({"account": WORD, "of": WORD, "money": MONEY})),
                    "residual": described(MONEY, "Left of all totals by rounding."),
                    "missing": described(TEXTS, "Currencies of money without a rate."),
                    "rates": listed(
                        members(
                            {
                                "currency": WORD,
                                "day": _MAYBE_DAY,
                                "rate": WORD,
                                "origin": {"enum": ["file", "statement"]},
                            }
                        )
                    ),
                }
            ),
            "The totals in TALLYHOOK_REPORTS__CURRENCY, at the rates of their days.",
        ),
    },
    optional=(
        "zone",
        "merchant",
        "closed_by",
        "closed_at",
        "version",
        "approved_by",
        "proposed_at",
        "own",
    ),
)

_DECISION: Final = members(
    {
        "id": WORD,
        "kind": described(WORD, "A break's cause, a match's kind."),
        "order": MAYBE_WORD,
        "payment": MAYBE_WORD,
        "money": MONEY,
        "sentence": described(WORD, "Of a break."),
        "lines": described(TEXTS, "Of a match: the lines that belong together."),
    },
    optional=("sentence", "lines"),
)

_EFFECT: Final = word("newly_matched", "no_longer_matched", "new_break", "gone_break", "changed")

_PREVIEW: Final = members(
    {
        "as_of": INSTANT,
        "rules": described(
            listed(members({"what": WORD, "before": WORD, "after": WORD, "note": WORD})),
            "Settings that differ from those in force, limits first; empty: not given.",
        ),
        "totals": listed(
            members({"effect": _EFFECT, "kind": WORD, "count": COUNT, "money": MONEY})
        ),
        "changes": listed(
            members(
                {
                    "effect": _EFFECT,
                    "before": maybe(ref("Decision")),
                    "after": maybe(ref("Decision")),
                }
            )
        ),
        "not_told": described(COUNT, "Changes beyond the first thousand; the totals count them."),
    }
)

MOST_RULES: Final = 64 * 1024
"""Bytes of rules, as `match_rules` has it: a receiver that describes the API loads no finance."""

_RULES: Final = {
    **described(
        word("settle_margin = '9 days'\n"), "As `reconcile rules save` takes them, in TOML."
    ),
    "maxLength": MOST_RULES,
}

_VERIFICATION: Final = members(
    {
        "passed": described(FLAG, "Whether every step did."),
        "steps": listed(
            members(
                {
                    "period": word("2026-10"),
                    "version": COUNT,
                    "step": word("chain"),
                    "passed": FLAG,
                    "sentence": WORD,
                }
            )
        ),
    }
)

FINANCE_SCHEMAS: Final[dict[str, Schema]] = {
    "BookLine": _BOOK_LINE,
    "BookLinePage": page("lines", "BookLine", MAYBE_WORD),
    "StatementLine": _STATEMENT_LINE,
    "StatementLinePage": page("lines", "StatementLine", MAYBE_WORD),
    "BankLine": members(_BANK_MEMBERS),
    "WholeBankLine": members({**_BANK_MEMBERS, "counterparty": MAYBE_WORD, "text": MAYBE_WORD}),
    "BankPage": page("lines", "BankLine", MAYBE_WORD),
    "Import": _IMPORT,
    "ImportPage": page("imports", "Import", MAYBE_COUNT),
    "Run": _RUN,
    "RunPage": page("runs", "Run", MAYBE_COUNT),
    "WholeRun": _WHOLE_RUN,
    "Rules": members(
        {
            "number": MAYBE_COUNT,
            "at": INSTANT,
            "by": WORD,
            "digest": WORD,
            "toml": described(word("settle_margin = '9 days'\n"), "The rules as they were saved."),
        },
        optional=("at", "by", "digest"),
    ),
    "Break": members(_BREAK_MEMBERS),
    "WholeBreak": members(
        {
            **_BREAK_MEMBERS,
            "because": MAYBE_WORD,
            "settling": maybe(_SETTLING),
            "closed_by": TEXTS,
            "facts": FACTS,
            "steps": listed(_STEP),
        }
    ),
    "BreakPage": page("breaks", "Break", MAYBE_WORD),
    "LateItem": _LATE,
    "LatePage": page("late", "LateItem", MAYBE_WORD),
    "Period": _PERIOD,
    "PeriodList": page("periods", "Period", MAYBE_WORD),
    "Report": {
        "type": "object",
        "additionalProperties": True,
        "description": "The report as `report period --format json` writes it; of a closed month "
        "byte for byte as it was closed: what stood in a report then, by the release that closed "
        "it.",
    },
    "ReportUnderWay": members({"state": word("under_way"), "began": INSTANT, "detail": WORD}),
    "Journal": _JOURNAL,
    "Verification": _VERIFICATION,
    "RulesTried": members({"toml": _RULES}) | {"additionalProperties": False},
    "RulesPreview": _PREVIEW,
    "Decision": _DECISION,
    "Scheduled": _SCHEDULED,
    "Schedule": page("entries", "Scheduled", MAYBE_WORD),
}
"""Schemas by name, for `#/components/schemas`."""
