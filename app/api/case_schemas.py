"""JSON Schemas of an order's case: the documents that its commands show as JSON."""

from __future__ import annotations

from typing import Final

from app.api.schemas import (
    COUNT,
    FLAG,
    INSTANT,
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
    ref,
    word,
)
from app.evidence.attachments import ATTACHMENT_KINDS
from app.evidence.dispute import FAMILIES, STATE_WORDS

_FAMILY: Final = {"enum": list(FAMILIES)}
_KIND: Final = {"enum": list(ATTACHMENT_KINDS)}
_SHA256: Final[Schema] = {
    "type": "string", "pattern": "^[0-9a-f]{64}$", "examples": ["5f" * 32],
}  # fmt: skip
_AUDIT_NUMBER: Final = described(COUNT, "The number of the audit entry that says so.")

_ATTACHMENT: Final = members(
    {
        "attachment": WORD,
        "about": {"enum": ["order", "break"]},
        "subject": WORD,
        "order": WORD,
        "kind": _KIND,
        "name": described(WORD, "Empty once it is gone."),
        "note": WORD,
        "carrier": WORD,
        "tracking": WORD,
        "media": word("application/pdf"),
        "size": COUNT,
        "sha256": _SHA256,
        "by": WORD,
        "at": INSTANT,
        "deed": _AUDIT_NUMBER,
        "gone_at": MAYBE_INSTANT,
    }
)

_DISPUTE: Final = members(
    {
        "reference": MAYBE_WORD,
        "payment": MAYBE_WORD,
        "source": WORD,
        "reason": described(MAYBE_WORD, "The provider's word, or the card network's code."),
        "family": maybe(_FAMILY),
        "about": WORD,
        "money": MAYBE_MONEY,
        "opened_at": INSTANT,
        "state": {"enum": list(STATE_WORDS)},
        "respond_by": MAYBE_INSTANT,
    }
)

_ITEM: Final = members(
    {
        "item": WORD,
        "there": FLAG,
        "sentence": WORD,
        "do": described(WORD, "What brings it; empty where it is there."),
    }
)

_CASE: Final = members(
    {
        "order": WORD,
        "as_of": INSTANT,
        "dispute": maybe(ref("CaseDispute")),
        "family": _FAMILY,
        "about": WORD,
        "respond_by": MAYBE_INSTANT,
        "overdue": described(FLAG, "An answer is still due, and `respond_by` is over."),
        "deadline": described(WORD, "Until when an answer is taken, and what if that is over."),
        "missing": COUNT,
        "items": listed(ref("CaseItem")),
        "earlier_orders": listed(
            members({"order": WORD, "paid_at": INSTANT, "money": MONEY}),
        ),
    }
)

_MOMENT: Final = members(
    {"at": MAYBE_INSTANT, "local": MAYBE_WORD, "utc": MAYBE_WORD},
    description="In the merchant's time zone, to the second, and in UTC beside it.",
)

_LETTER: Final = members(
    {
        "title": WORD,
        "stamp": {"enum": ["SANDBOX", ""]},
        "environment": WORD,
        "merchant": members({"name": WORD, "address": WORD, "contact": WORD}),
        "missing": described(TEXTS, "Settings of the merchant that say nothing."),
        "order": WORD,
        "as_of": ref("LetterMoment"),
        "zone": WORD,
        "dispute": maybe(
            members(
                {
                    "reference": MAYBE_WORD,
                    "payment": MAYBE_WORD,
                    "reason": WORD,
                    "family": _FAMILY,
                    "money": MAYBE_MONEY,
                    "words": MAYBE_WORD,
                    "opened_at": ref("LetterMoment"),
                    "respond_by": ref("LetterMoment"),
                    "overdue": FLAG,
                    "state": WORD,
                }
            )
        ),
        "answer": TEXTS,
        "money": listed(TEXTS),
        "facts": listed(members({"at": ref("LetterMoment"), "fact": WORD, "rests_on": WORD})),
        "facts_left_out": COUNT,
        "exhibits": listed(
            members(
                {
                    "number": COUNT,
                    "attachment": WORD,
                    "kind": _KIND,
                    "name": WORD,
                    "note": WORD,
                    "carrier": WORD,
                    "tracking": WORD,
                    "media": WORD,
                    "size": COUNT,
                    "words": WORD,
                    "sha256": _SHA256,
                    "attached_at": ref("LetterMoment"),
                }
            )
        ),
        "earlier_orders": listed(
            members({"order": WORD, "paid_at": ref("LetterMoment"), "money": MONEY, "words": WORD})
        ),
        "log": maybe(members({"origin": WORD, "size": WORD, "head": WORD, "key": WORD})),
        "checklist": ref("Case"),
    }
)

CASE_SCHEMAS: Final[dict[str, Schema]] = {
    "Attachment": _ATTACHMENT,
    "AttachmentList": members({"attachments": listed(ref("Attachment"))}),
    "CaseDispute": _DISPUTE,
    "CaseItem": _ITEM,
    "Case": _CASE,
    "LetterMoment": _MOMENT,
    "Letter": _LETTER,
}
