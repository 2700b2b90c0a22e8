"""One line of `signature check`: a request as JSON, read with every mistake told in a sentence."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any, Final

from app.providers.headers import Headers
from reconcile.instants import LATEST, SECOND, Duration, Instant

MAX_SECRETS: Final = 100
"""Secrets or keys of one line."""


class NotARequest(ValueError):
    """The line cannot be judged. The message is a sentence; `name` is the line's, if it has one."""

    def __init__(self, sentence: str, name: str | None = None) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One request to judge. Of `secrets` any may match, and None says that the line has no secret;
    `named` are keys by id, or parts. `tolerance` None: the profile's own; `ageless`: no age is
    judged."""

    name: str | None
    profile: str
    secrets: tuple[str, ...] | None = field(repr=False)
    named: tuple[tuple[str, str], ...] = field(repr=False)
    headers: Headers
    body: bytes
    method: str
    url: str
    now: Instant
    tolerance: Duration | None
    ageless: bool


def read_line(text: bytes, *, profile: str | None, now: Instant) -> Line:
    """Raises NotARequest."""
    given = _object(text)
    name = given.get("name")
    name = name if type(name) is str else None
    try:
        secrets, named = _secrets(given.get("secret"))
        return Line(
            name=name,
            profile=_text(given, "profile", profile),
            secrets=secrets,
            named=named,
            headers=_headers(given.get("headers")),
            body=_body(given),
            method=_text(given, "method", "POST").upper(),
            url=_text(given, "url", ""),
            now=_instant(given.get("now"), now),
            tolerance=_tolerance(given.get("tolerance")),
            ageless="tolerance" in given and given["tolerance"] is None,
        )
    except NotARequest as error:
        raise NotARequest(str(error), name) from None


def _object(text: bytes) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARequest("the line is not JSON in UTF-8") from None
    if type(given) is not dict:
        raise NotARequest("the line is not a JSON object")
    return given


def _text(given: dict[str, Any], key: str, default: str | None) -> str:
    value = given.get(key)
    value = default if value is None else value
    if type(value) is not str:
        raise NotARequest(f"{key} is missing" if value is None else f"{key} is not a text")
    return value


def _secrets(value: Any) -> tuple[tuple[str, ...] | None, tuple[tuple[str, str], ...]]:
    if value is None:  # only its profile can say whether it needs one
        return None, ()
    if type(value) is dict and len(value) <= MAX_SECRETS and _are_texts(value.values()):
        return (), tuple(value.items())
    listed = [value] if type(value) is str else value
    if type(listed) is list and len(listed) <= MAX_SECRETS and _are_texts(listed):
        return tuple(listed), ()
    raise NotARequest(
        f"secret is not a text, a list of texts or an object of texts, {MAX_SECRETS} at most"
    )


def _are_texts(values: Any) -> bool:
    return all(type(each) is str and _is_encodable(each) for each in values)


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _headers(value: Any) -> Headers:
    if value is None:
        return []
    pairs = list(value.items()) if type(value) is dict else value
    if type(pairs) is not list:
        raise NotARequest("headers is neither an object nor a list of pairs")
    headers: list[tuple[bytes, bytes]] = []
    for pair in pairs:
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise NotARequest("headers has an entry that is not a pair of name and value")
        name, values = pair
        for each in values if type(values) is list else [values]:
            headers.append(_header(name, each))
    return headers


def _header(name: Any, value: Any) -> tuple[bytes, bytes]:
    value = str(value) if type(value) is int else value
    if type(name) is not str or type(value) is not str:
        raise NotARequest("headers has a name or value that is not a text")
    return _raw(name.strip().lower()), _raw(value.strip(" \t"))


def _raw(text: str) -> bytes:
    """As a server would have received it: Latin-1 where that can write it, else UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _body(given: dict[str, Any]) -> bytes:
    text, coded = given.get("body"), given.get("body_b64")
    if (text is None) == (coded is None):
        raise NotARequest("give body or body_b64, one of the two")
    try:
        if type(text) is str:
            return text.encode("utf-8")
        if type(coded) is str:
            return base64.b64decode(coded, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise NotARequest(
            "body cannot be written in UTF-8" if coded is None else "body_b64 is not base64"
        ) from None
    raise NotARequest("body or body_b64 is not a text")


def _instant(value: Any, now: Instant) -> Instant:
    if value is None:
        return now
    if type(value) not in (int, float) or not 0 <= value <= LATEST // SECOND:
        raise NotARequest("now is not a number of seconds since 1970")
    return int(value * SECOND)


def _tolerance(value: Any) -> Duration | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= LATEST // SECOND:
        raise NotARequest("tolerance is not a number of seconds, zero or more")
    return int(value * SECOND)
