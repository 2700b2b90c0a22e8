"""What must hold in the two sections that make us speak: [fetch_back] and [handshake]."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from app.core.toml_file import Mistake, Values
from app.providers.questions import REFERENCES
from app.providers.schemes import UNSIGNED

_REFERENCE: Final = re.compile(r"\{([^{}]*)\}")
_CREDENTIAL: Final = re.compile(r"credential:[a-z0-9_]{1,40}")
_AUTH: Final = re.compile(r"none|bearer|basic|oauth|header:[a-z0-9-]{1,100}")


def fetch_back_is_safe(values: Values) -> Iterable[Mistake]:
    """The host is fixed, the credential is named, and what counts can be found in the answer."""
    rule = values["fetch_back"]
    if (rule is None) != (values["confirm"] is None):
        yield Mistake("fetch_back", 'belongs with confirm = "fetch_back", and with nothing else')
    if rule is None:
        return
    for key in ("url", "sandbox_url", "token_url", "sandbox_token_url"):
        several = rule[key] if type(rule[key]) is tuple else (rule[key],)
        for address in several:
            if address is not None and (fault := _address_fault(address, key)):
                yield Mistake(f"fetch_back.{key}", fault)
    texts = {"body": rule["body"] or "", "token_body": rule["token_body"]}
    texts |= {f'headers."{name}"': value for name, value in rule["headers"]}
    for key, text in texts.items():
        if fault := _reference_fault(text, credentials=True):
            yield Mistake(f"fetch_back.{key}", fault)
    if rule["body"] is not None and rule["method"] != "POST":
        yield Mistake("fetch_back.body", "means nothing with method GET")
    if not _AUTH.fullmatch(rule["auth"]):
        yield Mistake("fetch_back.auth", "must be none, bearer, basic, header:NAME or oauth")
    # An access token may be asked for with a body that holds the credentials.
    in_body = rule["auth"] == "oauth" and "{credential:" in rule["token_body"]
    if not in_body and (rule["credential"] is None) != (rule["auth"] == "none"):
        yield Mistake("fetch_back.credential", "belongs with every auth but none")
    if (rule["token_url"] is None) != (rule["auth"] != "oauth"):
        yield Mistake("fetch_back.token_url", "belongs with auth oauth, and with nothing else")
    if rule["dated_as_event"] and (rule["occurred_at"] or not values["event"]["occurred_at"]):
        yield Mistake(
            "fetch_back.dated_as_event", "needs event.occurred_at, and no fetch_back.occurred_at"
        )
    if values["signature"]["mac"] == UNSIGNED and values["event"]["items"]:
        yield Mistake("event.items", "means many questions for one request that anyone can send")
    for key in ("order", "session"):
        if values["event"][key] and not rule[key] and not _asked_by(rule, key):
            yield Mistake(
                f"fetch_back.{key}",
                f"is missing: anyone could write another {key} beside a true payment",
            )
    for key in ("amount", "refund", "refunded_total"):
        if rule[key] and not rule["currency"]:
            yield Mistake("fetch_back.currency", f"is missing; fetch_back.{key} needs it")


def _asked_by(rule: Values, key: str) -> bool:
    """Whether every question names this reference, so that the answer is about no other."""
    reference = f"{{{key}}}"
    asked = (*rule["url"], *rule["sandbox_url"])
    return all(reference in each for each in asked) or reference in (rule["body"] or "")


def _address_fault(text: str, key: str) -> str | None:
    try:
        parts = urlsplit(text)
        fixed = bool(parts.hostname) and "{" not in parts.netloc and "@" not in parts.netloc
    except ValueError:
        return "is not an address"
    if parts.scheme != "https" or not fixed:
        return "must begin with https:// and a fixed host"
    if "token" in key and "{" in text:
        return "must be a fixed address"
    return _reference_fault(text)


def _reference_fault(text: str, *, credentials: bool = False) -> str | None:
    # A JSON body has braces of its own; a reference is one of our words in braces. An address is
    # kept and shown, so no credential may stand in it.
    for name in _REFERENCE.findall(text):
        if name.startswith("credential:"):
            if not credentials:
                return "must not hold a credential; put it into a header or the body"
            if not _CREDENTIAL.fullmatch(name):
                return "has a credential whose name is not lower case letters, digits or _"
        if re.fullmatch(r"[a-z_]+", name) and name not in REFERENCES:
            return f"has an unknown reference; known are {{{'}, {'.join(REFERENCES)}}}"
    return None


def handshake_is_safe(values: Values) -> Iterable[Mistake]:
    """Nothing is echoed to a stranger but what the profile names, and never by accident."""
    rule = values["handshake"]
    if rule is None:
        return
    if (rule["equals"] is None) != rule["equals_secret"]:
        yield Mistake("handshake.equals", "is needed, or equals_secret = true, but not both")
    if rule["method"] == "GET" and not rule["equals_secret"]:
        yield Mistake("handshake.equals_secret", "must be true with method GET, which is unsigned")
    if rule["method"] == "POST" and values["signature"]["mac"] == UNSIGNED:
        yield Mistake("handshake.method", "POST is answered to signed requests only")
    if rule["method"] == "OPTIONS" and not rule["answer"].startswith("header:"):
        yield Mistake("handshake.answer", "must be header:NAME with method OPTIONS")
