"""What a provider wants to hear: acknowledgements of its own form, and answers to handshakes."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from app.core.reading import Unreadable
from app.providers.documents import DOCUMENTS
from app.providers.facts import Facts
from app.providers.fields import compile_locations
from app.providers.request import Headers
from app.providers.sections import HandshakeRule, Profile

_ECHO: Final = re.compile(r"[!-~]{1,255}")
"""What may be echoed: no blank, no line break, nothing that could become markup unnoticed."""


class Reply(NamedTuple):
    """An answer of the provider's own form."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


Acknowledge = Callable[[Headers, bytes, str], Reply]
"""(headers, body, url) of an accepted delivery → its acknowledgement."""


def compile_acknowledgement(profile: Profile) -> Acknowledge | None:
    """None where the provider is content with any body."""
    rule = profile.acknowledgement
    if rule.body is None and not rule.fields:
        return None
    media = (b"content-type", rule.type.encode("ascii"))
    if rule.body is not None:
        constant = Reply(rule.status, (media,), rule.body.encode("utf-8"))
        return lambda headers, body, url: constant
    fields = [(name, _field(value)) for name, value in rule.fields]

    def acknowledge(headers: Headers, body: bytes, url: str) -> Reply:
        facts = facts_of(profile, headers, body, url)
        answer = {name: _looked_up(find, facts) for name, find in fields}
        return Reply(rule.status, (media,), json.dumps(answer, default=str).encode("ascii"))

    return acknowledge


def _field(value: Any) -> Callable[[Facts], Any]:
    return compile_locations(value) if type(value) is tuple else lambda facts: value


def _looked_up(find: Callable[[Facts], Any], facts: Facts) -> Any:
    # The delivery is stored already: what cannot be echoed must not undo that.
    try:
        return find(facts)
    except Unreadable:
        return None


def facts_of(profile: Profile, headers: Headers, body: bytes, url: str) -> Facts:
    """What locations of the whole request look at; of a body that cannot be read, nothing."""
    try:
        document = DOCUMENTS[profile.request.body](profile.request, body)
    except Unreadable:
        document = {}
    return Facts(document, root=document, headers=headers, body=body, url=url, digest="")


class Handshake:
    """Answers what a provider asks before it sends, and nothing else.

    A GET is answered where it brings one of the secrets, an OPTIONS where it comes from the origin
    that the profile names, a POST only once it was verified.

    after_verification  whether a request must have been verified before it is answered
    """

    def __init__(self, profile: Profile, rule: HandshakeRule, secrets: Sequence[str]) -> None:
        self._method = rule.method
        self.after_verification = rule.method == "POST"
        self._profile = profile
        self._when, self._echo = compile_locations(rule.when), compile_locations(rule.echo)
        wanted = secrets if rule.equals_secret else [rule.equals or ""]
        self._wanted = [each.encode("utf-8") for each in wanted]
        self._kind, _, self._name = rule.answer.partition(":")

    def answer(self, headers: Headers, body: bytes, *, method: str, url: str) -> Reply | None:
        """None where the request is no handshake. Never raises."""
        if method != self._method:
            return None
        facts = facts_of(self._profile, headers, body, url)
        asked, echo = _looked_up(self._when, facts), _looked_up(self._echo, facts)
        if type(asked) is not str or type(echo) is not str or not _ECHO.fullmatch(echo):
            return None
        given = asked.encode("utf-8", "surrogatepass")
        if not any(hmac.compare_digest(each, given) for each in self._wanted):
            return None
        if self._kind == "header":
            return Reply(200, ((self._name.encode("ascii"), echo.encode("ascii")),), b"")
        text = json.dumps({self._name: echo}) if self._kind == "json" else echo
        media = b"application/json" if self._kind == "json" else b"text/plain"
        return Reply(200, ((b"content-type", media),), text.encode("ascii"))
