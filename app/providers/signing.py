"""The other direction: a request as the provider itself would send it, with the newest key.

What the signature covers and the body does not hold is made up: a covered header or query field is
the event's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.core.errors import ConfigurationError
from app.providers.documents import expand
from app.providers.drafts import Draft, insert
from app.providers.json_text import compact
from app.providers.named.contract import Signed
from app.providers.paths import compile_path
from app.providers.refusal import Refusal
from app.providers.request import Request
from app.providers.schemes import Key
from app.providers.sections import Profile
from app.providers.verification import Verifier
from reconcile.instants import Instant


class Signer:
    """Signs with what a verifier was compiled from."""

    def __init__(self, profile: Profile, verifier: Verifier) -> None:
        self._verifier = verifier
        self._items = profile.event.items if profile.signature.per_item else None
        self._key_id = profile.secret.key_id
        self._made_up = tuple(_made_up(profile, verifier))
        self._also = profile.signature.also

    def sign(self, body: bytes, *, event_id: str, now: Instant, method: str, url: str) -> Signed:
        """Raises ConfigurationError where this profile, or this body, cannot be signed."""
        draft = Draft(body, method=method, url=url)
        for place in self._made_up:
            draft.put_if_absent(place, event_id.encode("ascii"))
        key, label = self._newest(draft)
        if self._items is None:
            self._sign_whole(draft, key, label=label, now=now)
        else:
            self._sign_items(draft, key, items=self._items)
        return draft.signed()

    def _newest(self, draft: Draft) -> tuple[Key, bytes | None]:
        """The key, and the label of its signatures; its id goes into the draft."""
        keys, label = self._verifier.keys, self._verifier.layout.label
        if self._key_id is not None and keys.named:
            key_id, key = next(iter(keys.named.items()))
            draft.put(self._key_id, key_id)
            return key, label
        if keys.main or self._also is None:
            return keys.main[0], label
        return keys.also[0], self._also.label.encode("ascii")

    def _sign_whole(self, draft: Draft, key: Key, *, label: bytes | None, now: Instant) -> None:
        verifier, stamp, before = self._verifier, b"", b""
        if verifier.timestamp is not None:
            stamp = verifier.timestamp.write(now)
            kind, _, name = verifier.timestamp.place.text.partition(":")
            if kind == "signature":
                before = name.encode("ascii") + b"=" + stamp + (verifier.layout.separator or b"")
            else:
                draft.put(verifier.timestamp.place.text, stamp)
        request = draft.request()
        request.timestamp = stamp
        draft.put(verifier.place.text, before + self._value(request, key, label))

    def _sign_items(self, draft: Draft, key: Key, *, items: str) -> None:
        verifier, document = self._verifier, draft.document()
        place = compile_path(verifier.place.name)
        for item in expand(document, compile_path(items, each=True)):
            request = draft.request().of_item(item, compact(item).encode("utf-8"))
            insert(item, place, self._value(request, key, verifier.layout.label))
        draft.body = compact(document).encode("utf-8")

    def _value(self, request: Request, key: Key, label: bytes | None) -> bytes:
        verifier = self._verifier
        request.secret = key.secret
        content: Any = verifier.template.fill(request)
        if isinstance(content, Refusal):
            raise ConfigurationError([f"this cannot be signed: {content.sentence}"])
        text = verifier.encoding.encode(key.sign(content))
        return verifier.format.write(replace(verifier.layout, label=label), text)


def _made_up(profile: Profile, verifier: Verifier) -> Iterator[str]:
    """Places of headers and query fields that a provider's request has, beside those we compute."""
    computed = {profile.signature.where, profile.secret.key_id}
    if profile.timestamp is not None:
        computed.add(profile.timestamp.where)
    covered = [each.text for each in verifier.template.references if each.argument]
    ids = [text for text in profile.event.id if text.startswith("header:")]
    for text in dict.fromkeys((*ids, *covered)):
        if text.startswith(("header:", "query:")) and text not in computed:
            yield text
