"""`signature check`: verifies requests written as JSON lines, one verdict a line, in order.

It is the receiver's own verification, without a receiver: no store, no configuration, no floor for
the length of secrets, since published examples have short ones. Nothing stops the run: a line that
is no request is reported, and the next one is read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import IO, Any, Final

from app.core.errors import ConfigurationError
from app.providers.profile import load_profile
from app.providers.request import Headers, Incoming, Refusal
from app.providers.schemes import NAMED, UNSIGNED
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import EARLIEST, LATEST, SECOND, Duration, Instant

MAX_SECRETS: Final = 100
"""Secrets or keys of one line."""


class NotARequest(ValueError):
    """The line cannot be checked. The message is a sentence; `name` the line's, if it has one."""

    def __init__(self, sentence: str, name: str | None = None) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request to check. Of `secrets` any may match, and None says that the line has no secret;
    `named` are keys by id, or parts. `tolerance` None: the profile's own; `ageless`: no age is
    checked."""

    name: str | None
    profile: str
    secrets: tuple[str, ...] | None = field(repr=False)
    named: tuple[tuple[str, str], ...] = field(repr=False)
    request: Incoming
    now: Instant
    tolerance: Duration | None
    ageless: bool


def read_line(text: bytes, *, profile: str | None, now: Instant) -> RequestLine:
    """Raises NotARequest."""
    given = _object(text)
    name = given.get("name")
    name = name if type(name) is str else None
    try:
        secrets, named = _secrets(given.get("secret"))
        return RequestLine(
            name=name,
            profile=_text(given, "profile", profile),
            secrets=secrets,
            named=named,
            request=Incoming(
                headers=_headers(given.get("headers")),
                body=_body(given),
                method=_text(given, "method", "POST").upper(),
                url=_text(given, "url", ""),
            ),
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
    return Instant(value * SECOND)


def _tolerance(value: Any) -> Duration | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= LATEST // SECOND:
        raise NotARequest("tolerance is not a number of seconds, zero or more")
    return Duration(value * SECOND)


ANY_AGE: Final[Duration] = LATEST - EARLIEST
"""As good as no check: no two moments that can be written are farther apart."""

AGED: Final = frozenset({"timestamp_too_old", "timestamp_too_new"})
"""Reasons of a request that is genuine, and of another time."""


def with_tolerance(profile: Profile, tolerance: Duration) -> Profile:
    """The same profile, accepting `tolerance` in both directions, in whole seconds.

    Without effect where the provider signs no time; a named verifier's profile must state its own.
    """
    seconds = tolerance // SECOND
    if profile.timestamp is not None:
        timestamp = replace(profile.timestamp, past_s=seconds, future_s=seconds)
        return replace(profile, timestamp=timestamp)
    options = dict(profile.signature.options)
    if tolerance == ANY_AGE:  # more than a named verifier takes; whoever asks looks at the reason
        return profile
    if not profile.signature.mac.startswith(NAMED) or not options.keys() & {"past_s", "future_s"}:
        return profile
    pairs = tuple({**options, "past_s": seconds, "future_s": seconds}.items())
    return replace(profile, signature=replace(profile.signature, options=pairs))


KEPT: Final = 256
"""Profiles, and compiled pairs of profile and secret, that are kept: lines usually share them."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Of one line: four times the largest body the service can be set to take, in base64."""


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream; one that is longer than MAX_LINE_BYTES comes as an empty one."""
    while line := stream.readline(MAX_LINE_BYTES):
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield b""


def check_lines(lines: Iterable[bytes], *, profile: str | None, now: Instant) -> Iterator[str]:
    """One JSON object for each line, as it comes. Raises nothing.

    profile  of the lines that name none
    now      of the lines that state none
    """
    for line in lines:
        yield json.dumps(_verdict(line, profile, now))


def _verdict(text: bytes, profile: str | None, now: Instant) -> dict[str, Any]:
    try:
        line = read_line(text, profile=profile, now=now)
    except NotARequest as error:
        return _invalid(error.name, "not_a_request", f"Not a request: {error}.")
    try:
        refusal = _checked(line)
    except NotARequest as error:
        return _invalid(line.name, "not_a_request", f"Not a request: {error}.")
    if refusal is None:
        return {"name": line.name, "valid": True}
    return _invalid(line.name, refusal.reason, refusal.sentence)


def _invalid(name: Any, reason: str, sentence: str) -> dict[str, Any]:
    return {"name": name, "valid": False, "reason": reason, "sentence": sentence}


def _checked(line: RequestLine) -> Refusal | None:
    """The refusal of the secret that comes closest; None where one of them is the right one.

    Raises NotARequest for a profile that is none, and for a secret that is missing and needed.
    """
    profile = _profile(line.profile)
    if line.secrets is None and profile.signature.mac != UNSIGNED:
        raise NotARequest("secret is missing")
    tolerance = ANY_AGE if line.ageless else line.tolerance
    if tolerance is not None:
        profile = with_tolerance(profile, tolerance)
    source = _source(profile, line.secrets or (), line.named)
    if isinstance(source, Refusal):
        return source
    refusal = source.verify(line.request, now=line.now)
    # A named verifier checks the age last, of a request that is genuine in all else.
    aged = refusal is not None and refusal.reason in AGED
    return None if line.ageless and aged else refusal


def _profile(name: str) -> Profile:
    """Raises NotARequest where there is none of that name, or its file has mistakes."""
    found = _loaded(name)
    if isinstance(found, str):
        raise NotARequest(found)
    return found


@lru_cache(maxsize=KEPT)
def _loaded(name: str) -> Profile | str:
    try:
        return load_profile(name)
    except ConfigurationError as error:
        return "; ".join(error.problems)


@lru_cache(maxsize=KEPT)
def _source(
    profile: Profile, secrets: tuple[str, ...], named: tuple[tuple[str, str], ...]
) -> Source | Refusal:
    """Compiled with every secret that can be used; a Refusal where none can."""
    if named:
        return _compiled(profile, dict(named))
    compiled = _compiled(profile, secrets)
    if isinstance(compiled, Source) or len(secrets) < 2:
        return compiled
    usable = tuple(
        secret for secret in secrets if isinstance(_compiled(profile, (secret,)), Source)
    )
    return _compiled(profile, usable) if usable else compiled


def _compiled(profile: Profile, secrets: tuple[str, ...] | Mapping[str, str]) -> Source | Refusal:
    try:
        return Source(name="line", profile=profile, secrets=secrets, strict=False)
    except ConfigurationError as error:
        problems = "; ".join(error.problems).replace("source line: ", "")
        return Refusal("signature_mismatch", f"Nothing can be verified: {problems}.")
