"""Verify requests written as JSON lines, for the command `signature check`."""

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
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import EARLIEST, LATEST, SECOND, Duration, Instant

MAX_SECRETS: Final = 100
"""Maximum number of secrets or keys in one input line."""


class NotARequest(ValueError):
    """Error for an input line that cannot be checked."""

    def __init__(self, sentence: str, name: str | None = None) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request to check."""

    name: str | None
    profile: str
    secrets: tuple[str, ...] | None = field(repr=False)
    """Alternative secrets. None if the line has no secret."""
    named: tuple[tuple[str, str], ...] = field(repr=False)
    """Pairs of a name and a secret: ids of keys, or parts of one key."""
    request: Incoming
    now: Instant
    tolerance: Duration | None
    """Allowed age of the timestamp. None for the profile's."""
    ageless: bool
    """True if a request of any age is accepted."""


def read_line(text: bytes, *, profile: str | None, now: Instant) -> RequestLine:
    """Parse one input line. Raise NotARequest if the line is no request.

    The profile and time are used for a line that names none.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise NotARequest("the line is not JSON in UTF-8") from None
    if type(given) is not dict:
        raise NotARequest("the line is not a JSON object")
    name = given.get("name")
    name = name if type(name) is str else None
    try:
        secrets, named = _secrets(given.get("secret"))
        stated, tolerance = given.get("now"), given.get("tolerance")
        named_profile = _text(given, "profile", profile)
        request = Incoming(
            headers=_headers(given.get("headers")),
            body=_body(given),
            method=_text(given, "method", "POST").upper(),
            url=_text(given, "url", ""),
        )
        if stated is not None and not _is_seconds(stated):
            raise NotARequest("now is not a number of seconds since 1970")
        if tolerance is not None and not _is_seconds(tolerance):
            raise NotARequest("tolerance must be a number of seconds, zero or more")
    except NotARequest as error:
        raise NotARequest(str(error), name) from None
    return RequestLine(
        name=name,
        profile=named_profile,
        secrets=secrets,
        named=named,
        request=request,
        now=now if stated is None else Instant(stated * SECOND),
        tolerance=None if tolerance is None else Duration(tolerance * SECOND),
        ageless="tolerance" in given and tolerance is None,
    )


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LATEST // SECOND


def _text(given: dict[str, Any], key: str, default: str | None) -> str:
    value = given.get(key)
    value = default if value is None else value
    if type(value) is not str:
        raise NotARequest(f"{key} is missing" if value is None else f"{key} is not a text")
    return value


def _secrets(value: Any) -> tuple[tuple[str, ...] | None, tuple[tuple[str, str], ...]]:
    if value is None:  # only the profile tells whether it needs one
        return None, ()
    several = [value] if type(value) is str else value
    if type(several) in (dict, list) and len(several) <= MAX_SECRETS:
        texts = several.values() if type(several) is dict else several
        if all(type(each) is str and _is_encodable(each) for each in texts):
            return ((), tuple(value.items())) if type(value) is dict else (tuple(several), ())
    raise NotARequest(
        f"secret is not a text, a list of texts or an object of texts, {MAX_SECRETS} at most"
    )


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
            text = str(each) if type(each) is int else each
            if type(name) is not str or type(text) is not str:
                raise NotARequest("headers has a name or value that is not a text")
            headers.append((_raw(name.strip().lower()), _raw(text.strip(" \t"))))
    return headers


def _raw(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _body(given: dict[str, Any]) -> bytes:
    text, coded = given.get("body"), given.get("body_b64")
    if (text is None) == (coded is None):
        raise NotARequest("give either body or body_b64")
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


ANY_AGE: Final[Duration] = LATEST - EARLIEST
"""Tolerance that allows a timestamp of any age."""

AGED: Final = frozenset({"timestamp_too_old", "timestamp_too_new"})


def with_tolerance(profile: Profile, tolerance: Duration) -> Profile:
    """Return a copy of the profile that allows this tolerance of timestamps.

    The profile is unchanged if its verifier has no such option.
    """
    seconds = tolerance // SECOND
    if profile.timestamp is not None:
        timestamp = replace(profile.timestamp, past_s=seconds, future_s=seconds)
        return replace(profile, timestamp=timestamp)
    options = dict(profile.signature.options)
    if tolerance == ANY_AGE:  # more than a named verifier accepts; the caller ignores the reason
        return profile
    if not options.keys() & {"past_s", "future_s"}:
        return profile
    pairs = tuple({**options, "past_s": seconds, "future_s": seconds}.items())
    return replace(profile, signature=replace(profile.signature, options=pairs))


KEPT: Final = 256
"""Maximum number of cached profiles, and of cached sources."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of an input line; the largest body, in base64, takes a third."""


def request_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream. A line that is too long becomes empty."""
    while line := stream.readline(MAX_LINE_BYTES):
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield b""


def check_lines(lines: Iterable[bytes], *, profile: str | None, now: Instant) -> Iterator[str]:
    """Yield one JSON object with the verdict on each line.

    No line raises an error.
    """
    for text in lines:
        name = None
        try:
            line = read_line(text, profile=profile, now=now)
            name = line.name
            refusal = _checked(line)
        except NotARequest as error:
            reason, sentence = "not_a_request", f"Not a request: {error}."
            name = error.name if name is None else name
        else:
            if refusal is None:
                yield json.dumps({"name": name, "valid": True})
                continue
            reason, sentence = refusal.reason, refusal.sentence
        yield json.dumps({"name": name, "valid": False, "reason": reason, "sentence": sentence})


def _checked(line: RequestLine) -> Refusal | None:
    profile = _loaded(line.profile)
    if isinstance(profile, str):
        raise NotARequest(profile)
    if line.secrets is None and profile.signature.mac != UNSIGNED:
        raise NotARequest("secret is missing")
    tolerance = ANY_AGE if line.ageless else line.tolerance
    if tolerance is not None:
        profile = with_tolerance(profile, tolerance)
    source = _source(profile, line.secrets or (), line.named)
    if isinstance(source, Refusal):
        return source
    refusal = source.verify(line.request, now=line.now)
    # A named verifier checks the age last, after everything else was genuine.
    aged = refusal is not None and refusal.reason in AGED
    return None if line.ageless and aged else refusal


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
