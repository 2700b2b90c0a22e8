"""Form of each document in a bundle. Use only Python 3.8."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

MASKED = "\N{BULLET}"

NOT_IN_FORM = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that malformed JSON from outside can raise."""


class Wrong(Exception):
    """Error for an invalid bundle. The message is one sentence, safe for a terminal."""

    def __init__(self, said: str) -> None:
        super().__init__(clean(said))


def clean(said: object) -> str:
    """Return text from outside with each unprintable character replaced, and cut to 400
    characters."""
    return "".join(c if c.isprintable() else "?" for c in str(said)[:400])


class Either(tuple):  # type: ignore[type-arg]  # of Python 3.8, where a base has no brackets
    """Alternative forms of a value."""


def instant(said: Any) -> bool:
    """Check whether a value is an instant in UTC, written without trailing zeros."""
    written = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(?!000)\d{3}|\.\d{3}(?!000)\d{3})?Z"
    if type(said) is not str or not re.fullmatch(written, said, re.ASCII):
        return False
    try:
        datetime.fromisoformat(said[:-1])
    except ValueError:
        return False
    return True


def whole(said: Any) -> bool:
    """Check whether a value is a natural number that every JSON parser represents exactly."""
    return type(said) is int and 0 <= said < 1 << 53


DECIMALS = {
    code: decimals
    for decimals, codes in (
        (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
        (3, "BHD IQD JOD KWD LYD OMR TND"),
        (4, "CLF UYW"),
    )
    for code in codes.split()
}
"""Decimals of currencies that do not have two (ISO 4217)."""

AMOUNT = re.compile(r"(?!-0(?:\.0+)?$)-?(?:0|[1-9]\d{0,18})(?:\.\d{2,4})?", re.ASCII)
CURRENCY = re.compile(r"[A-Z]{3}", re.ASCII)
HASH = re.compile(r"[0-9a-f]{64}")
HEX = re.compile(r"(?:[0-9a-f]{2})*")
SALT = re.compile(r"[0-9a-f]{32}")
ANY = re.compile(r"(?s).*")
NAMED = re.compile(r"[a-z][a-z0-9_]*")

text_or_null = Either((str, None))
HASH_OR_NULL = Either((HASH, None))
instant_or_null = Either((instant, None))
MONEY = {"amount": AMOUNT, "currency": CURRENCY}
MONEY_OR_NULL = Either((MONEY, None))
SUMS = [{"kind": str, **MONEY}]
FACT = Either((str, bool, int, None, MONEY))
FACTS = {NAMED: Either((FACT, [FACT]))}
CITED = {"cites": [str], "facts": FACTS, "sentence": str}
LISTED = {"sha256": HASH, "size": whole}
FILE = {"file": str, **LISTED}
FILE_OR_NULL = Either((FILE, None))

EVENT = {
    "source": str, "event_id": str, "digest": HASH, "kind": str, "claim": str, "standing": str,
    "occurred_at?": instant, "expected_by?": instant, "stated_at?": instant, "money?": MONEY,
    "order_money?": MONEY, "refunded_total?": MONEY, "revocable_days?": whole, "parts?": SUMS,
    "standalone?": True,
    "states?": [{"member": str, "word": str, "money?": MONEY, "reference?": str, "at?": instant}],
    **dict.fromkeys(("order?", "session?", "payment?", "movement?", "capture?", "reason?",
                     "unclear?", "method?", "shop?", "suggested?", "agreement?"), str),
}  # fmt: skip

RECORD = {
    "record_id": str, "recorded_at": instant, "kind": str, "order": str, "at": instant,
    "money?": MONEY, "expires_at?": instant, "tenders?": SUMS, "free?": True, "dated?": True,
    **dict.fromkeys(("source?", "key?", "session?", "payment?", "reason?", "author?",
                     "replaces?"), str),
}  # fmt: skip

POLICY = {
    "payment_window_us": whole, "grace_us": whole, "late_after_us": whole,
    "future_tolerance_us": whole, "refund_window_us": whole,
    "fulfillment_window_us": Either((whole, None)),
    "require_order_record_since_us": Either((whole, None)),
    "mismatch_held?": [str], "provider_discount_percent?": whole,
}  # fmt: skip

SIDES = {"captured": MONEY, "refunded": MONEY, "reversed?": MONEY, "lost?": MONEY}

TOTALS = {
    **SIDES, "expected": MONEY_OR_NULL, "held": MONEY_OR_NULL, "captured": MONEY_OR_NULL,
    "refunded": MONEY_OR_NULL, "price?": MONEY, "tenders?": SUMS, "discount?": MONEY,
    "on_top?": SUMS, "owed_back?": MONEY_OR_NULL, "on_its_way?": MONEY_OR_NULL, "others?": [SIDES],
}  # fmt: skip

LEDGER = {
    "order": str, "as_of": instant, "outcome": str, "fulfillable": bool, "totals": TOTALS,
    "explanation": [str], "next_decision_at": instant_or_null, "fingerprint": str,
    "attempts": [{"reference": str, "source": str, "outcome": str, "deadline": instant_or_null,
                  "reasons": [{"code": str, **CITED}]}],
    "entries": [{"at": instant, "kind": str, "money": MONEY, "attempt": str, "cites": [str]}],
    "findings": [{"code": str, "severity": str, **CITED}],
    "timeline": [{"occurred_at": instant_or_null, "received_at": instant, "event": str,
                  "source": str, "digest": HASH, "kind": str, "claim": str,
                  "attempt": text_or_null, "money": MONEY_OR_NULL, "deliveries": whole,
                  "note": str}],
}  # fmt: skip

DELIVERY = {
    "delivery": str, "received_at": instant, "source": str, "verdict": str,
    "problem": text_or_null, "method": str, "address": str, "sha256": HASH, "size": whole,
    "body": FILE_OR_NULL, "whole": FILE_OR_NULL, "headers": FILE_OR_NULL, "signed": FILE_OR_NULL,
    "headers_shown": [(str, str)], "let_go_at": instant_or_null,
    "signature": {"scheme": text_or_null, "where": text_or_null, "over": text_or_null,
                  "key": text_or_null, "signed_at": instant_or_null,
                  "age_at_arrival": text_or_null, "sentence": str},
}  # fmt: skip

BOOKS = Either((
    {"from": re.compile("order book"), "line": str, "reference": text_or_null, "kind": str,
     "money": MONEY, "placed_at": instant_or_null, "status": text_or_null, "method": text_or_null,
     "refunded?": MONEY, "refunded_at?": instant_or_null, "group": text_or_null},
    {"from": re.compile("statement"), "line": str, "kind": str, "payment": text_or_null,
     "order": text_or_null, "gross": MONEY, "fee": MONEY, "net": MONEY,
     "settled_at": instant_or_null, "payout": text_or_null},
))  # fmt: skip

HEARD = {
    "sources": [{"source": str, "last_read_at": instant_or_null,
                 "refusing_since": instant_or_null, "refused": whole}],
    "unread": [{"delivery": str, "source": str, "received_at": instant, "problem": str,
                "names_order": bool}],
    "unallocated": [{"payment": str, "received_at": instant, "money": MONEY_OR_NULL}],
    "refused": whole, "not_kept": whole,
    "gaps": [{"gap": str, "since": instant, "until": instant, "looked_at": bool}],
}  # fmt: skip

DEED = {
    "number": whole, "at": instant, "who": str, "role": text_or_null, "action": str,
    "subject": text_or_null, "reason": text_or_null,
}  # fmt: skip

LOG = {
    "keys": [HASH], "endorsements": [Either((HEX, None))], "unsealed": [str],
    "origins?": [{"log": str, "leaves": Either((whole, None))}],
    "leaves": [{"id": str, "index": whole, "leaf": str, "proof": [HASH]}],
    "parts": {ANY: {NAMED: Either(({"salt": SALT}, {"hash": HASH}))}},
    "order": Either(({"commitment": HASH, "key": Either((HASH, None))}, None)),
    "tree": Either(({"leaf": str, "leaves": whole, "last": whole, "path": [(whole, HASH)]}, None)),
}  # fmt: skip

PLACED = {"of?": HASH, "nth?": whole, "after?": Either((whole, None))}
SEALED = {"kind": str, "salt": SALT, "at": whole, "parts": HASH, **PLACED}
READ = {**PLACED, "kind": str, "salt": SALT, "parts": HASH_OR_NULL}

LEAVES = {
    "delivery": {**READ, "id": str, "at": whole, "source": str, "size": whole, "body": HASH,
                 "headers": HASH_OR_NULL, "whole": HASH_OR_NULL},
    "reading": {**READ, "delivery": str},
    "record": {**SEALED, "id": str},
    "revision": {**SEALED, "id": whole},
    "deed": {**SEALED, "id": whole},
    "orders": {"kind": str, "salt": SALT, "id": whole, "at": whole, "size": whole, "root": HASH},
}  # fmt: skip

DOCUMENTS = {
    "manifest.json": {
        "format": str, "release": str, "program": HASH, "order": str, "as_of": instant,
        "redacted": bool, "files": {ANY: LISTED}, "left_out": {ANY: LISTED},
    },
    "history.json": {
        "order": str, "as_of": instant, "policy": POLICY, "records": [RECORD],
        "deliveries": [{"delivery_id": str, "received_at": instant, "event": EVENT,
                        "again?": [(str, instant)]}],
    },
    "ledger.json": LEDGER,
    "books.json": [BOOKS],
    "heard.json": HEARD,
    "sources.json": [{
        "source": str, "profile": str, "file": str, "orders": str, "link_by": str,
        "captures": [str], "vouchers": [str],
    }],
    "log.json": LOG,
    "revisions.json": [{
        "seq": whole, "at": instant, "outcome": str, "fulfillable": bool, "before": text_or_null,
        "before_fulfillable": Either((bool, None)), "because": [str], "substance": str,
    }],
    "sessions.json": [{**RECORD, "details": text_or_null}],
    "attachments.json": [{
        "attached": {**DEED, "facts": {
            "attachment": str, "about": str, "kind": str, "media": str, "sha256": HASH,
            "size": whole, "details": HASH, "account?": str,
        }},
        "removed": Either((None, {
            **DEED, "facts": {"attachment": str, "sha256": HASH, "account?": str},
        })),
        "content": FILE_OR_NULL, "details": FILE_OR_NULL,
    }],
    "times.json": {"zone": str, "from_utc_s": [(str, int, str)]},
}  # fmt: skip
"""Form of each document, by file name.

- A dictionary stands for an object with exactly these members; `?` marks an optional member. A
  pattern as a key stands for all matching names.
- A list with one form stands for a list whose elements have this form.
- A tuple stands for a list of this length.
- A pattern stands for a matching text.
- A function returns true for a valid value.
"""


def fault(value: Any, form: Any, where: str) -> str:
    """Return a sentence on the first deviation from a form."""
    if isinstance(form, Either):
        faults = [fault(value, each, where) for each in form]
        return "" if "" in faults else max(faults, key=len)
    if isinstance(form, dict):
        return fault_of_object(value, form, where)
    if isinstance(form, (list, tuple)):
        if type(value) is list and (type(form) is list or len(value) == len(form)):
            forms = form * len(value) if type(form) is list else form
            found = (fault(each, forms[n], where) for n, each in enumerate(value))
            return next(filter(None, found), "")
    elif isinstance(form, re.Pattern):
        if type(value) is str and form.fullmatch(value):
            return ""
    elif isinstance(form, type):
        if type(value) is form:
            return ""
    elif value is form or (callable(form) and form(value)):
        return ""
    return f"{where} is malformed"


def fault_of_object(value: Any, form: Any, where: str) -> str:
    """Return a sentence on an object's first fault, or ""."""
    if type(value) is not dict:
        return f"{where} is malformed"
    names = {name.rstrip("?"): name for name in form if isinstance(name, str)}
    pattern = next((each for each in form if not isinstance(each, str)), None)
    for name in sorted(names.keys() - value.keys()):
        if not names[name].endswith("?"):
            return f"{where} lacks the member {name}"
    for name, each in value.items():
        if name not in names and not (pattern and pattern.fullmatch(name)):
            return f"{where} has an unknown member: {name}"
        said = fault(each, form[names.get(name, pattern)], f"{name} in {where}")
        if said:
            return said
    if "amount" in names and "currency" in names:
        decimals = len(value["amount"].partition(".")[2])
        if decimals != DECIMALS.get(value["currency"], 2):
            return f"{where} is not written with the decimals of {value['currency']}"
    return ""


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value (RFC 8785, without floats)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def read_document(data: bytes, name: str, form: Any) -> Any:
    """Parse a JSON document. Raise Wrong for a wrong form."""
    return in_form(read_json(data, name), data, name, form)


def in_form(found: Any, data: bytes, name: str, form: Any) -> Any:
    """Return a parsed JSON document. Raise Wrong for a wrong form."""
    said = fault(found, form, name)
    if said:
        raise Wrong(said)
    if canonical(found) != data:
        raise Wrong(f"{name} is not in canonical form")
    return found


def read_json(data: bytes, name: str) -> Any:
    """Parse a file's JSON. Raise Wrong for invalid JSON or a repeated name."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise Wrong(f"{name} has an object with a duplicate name")
        return found

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Wrong(f"{name} is not JSON") from None
