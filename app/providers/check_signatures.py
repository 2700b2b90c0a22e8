"""`signature check`: judges requests written as JSON lines, one verdict a line, in order.

It is the door's own verification, without a door: no store, no configuration, no floor for the
length of secrets, since published examples have short ones. Nothing stops the run: a line that is
no request is told so, and the next one is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import IO, Any, Final

from app.core.errors import ConfigurationError
from app.providers.check_line import Line, NotARequest, read_line
from app.providers.profile import load_profile
from app.providers.refusal import Refusal
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile
from app.providers.source import Source
from app.providers.tolerance import AGED, ANY_AGE, with_tolerance
from reconcile.instants import Instant

KEPT: Final = 256
"""Profiles, and compiled pairs of profile and secret, that are kept: lines usually share them."""

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""Of one line: four times the largest body the service can be told to take, in base64."""


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
        refusal = _judged(line)
    except NotARequest as error:
        return _invalid(line.name, "not_a_request", f"Not a request: {error}.")
    if refusal is None:
        return {"name": line.name, "valid": True}
    return _invalid(line.name, refusal.reason, refusal.sentence)


def _invalid(name: Any, reason: str, sentence: str) -> dict[str, Any]:
    return {"name": name, "valid": False, "reason": reason, "sentence": sentence}


def _judged(line: Line) -> Refusal | None:
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
    refusal = source.verify(line.headers, line.body, now=line.now, method=line.method, url=line.url)
    # A named verifier judges the age last, of a request that is genuine in all else.
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
