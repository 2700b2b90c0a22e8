"""Whether a request is genuine: the order of the checks, over the bytes as received.

Everything about the profile is compiled once; a request only runs through it. The steps are
numbered. No step parses the body, unless the profile signs members of it: then it is parsed
strictly, and what cannot be parsed has no members.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.providers.documents import expand
from app.providers.encodings import ENCODINGS, FORMATS, Layout
from app.providers.keys import KeyRing
from app.providers.paths import MAX_ITEMS, Place, compile_path, compile_place, slices
from app.providers.refusal import Refusal
from app.providers.request import Headers, Request
from app.providers.schemes import Key
from app.providers.sections import Profile, SignatureRule, TimestampRule
from app.providers.template import Template, compile_template
from app.providers.timestamps import UNITS, Timestamp
from reconcile.instants import SECOND, Instant

_UNKNOWN_KEY: Final = Refusal(
    "signature_mismatch", "The request names a key that this source does not have."
)
_NO_ITEMS: Final = Refusal(
    "signature_missing", "The body has no items where the profile says they are signed."
)
_TOO_MANY: Final = Refusal("signature_mismatch", f"The body has more than {MAX_ITEMS} items.")


class Verifier:
    """Verifies as one profile says, with one source's keys, the newest first."""

    def __init__(self, profile: Profile, keys: KeyRing) -> None:
        rule = profile.signature
        self.keys = keys
        self.place = compile_place(rule.where or "")
        self.format = FORMATS[rule.format]
        self.layout = layout(rule)
        self.encoding = ENCODINGS[rule.encoding]
        self.template = compile_template(rule.signed or "")
        self._templates = [self.template]
        if rule.signed_also is not None:
            self._templates.append(compile_template(rule.signed_also))
        self.timestamp = compile_timestamp(profile.timestamp, self)
        self._schemes = self._labelled(rule)
        self._key_id = compile_place(profile.secret.key_id) if profile.secret.key_id else None
        self._needs_secret = "secret" in self.template.names
        self._field = profile.request.field
        self._items = compile_path(profile.event.items or "", each=True) if rule.per_item else None
        count = len(keys.main) + len(keys.also)
        self._missing = Refusal("signature_missing", f"There is no signature in {rule.where}.")
        self._malformed = Refusal("signature_mismatch", _malformed_sentence(rule))
        self._mismatch = Refusal("signature_mismatch", _mismatch_sentence(rule, count))

    def _labelled(self, rule: SignatureRule) -> tuple[tuple[Layout, tuple[Key, ...]], ...]:
        """Each scheme's keys with the layout under whose label its signatures stand."""
        schemes = [(self.layout, self.keys.main)]
        if rule.also is not None:
            label = rule.also.label.encode("ascii")
            schemes.append((replace(self.layout, label=label), self.keys.also))
        return tuple(schemes)

    def verify(
        self, headers: Headers, body: bytes, *, now: Instant, method: str, url: str
    ) -> Refusal | None:
        """None where the request is genuine and of its time. Never raises."""
        request = Request(headers, body, method=method, url=url)
        request.field = self._field
        if self._items is None:
            return self._judge(request, now)
        items = expand(request.document, self._items)
        # Before anything is sliced: what is no object has no slice, and would shift the others.
        if not items or any(type(item) is not dict for item in items):
            return _NO_ITEMS
        if len(items) > MAX_ITEMS:
            return _TOO_MANY
        texts = slices(request.json_bytes.decode("utf-8"), self._items)
        # One item that is not genuine refuses all: who sent it, sent the others too.
        for item, text in zip(items, texts, strict=True):
            refusal = self._judge(request.of_item(item, text.encode("utf-8")), now)
            if refusal is not None:
                return refusal
        return None

    def _judge(self, request: Request, now: Instant) -> Refusal | None:
        # (1) There is a signature.
        values = self.place.values(request)
        if not any(values):
            return self._missing
        # (2) There is exactly one timestamp; what it says does not matter yet.
        if self.timestamp is not None:
            stamp = self.timestamp.text(request)
            if isinstance(stamp, Refusal):
                return stamp
            request.timestamp = stamp
        # (3) The signature covers the raw bytes, in the form or in the other one.
        refusals = [self._compare(request, values, each) for each in self._templates]
        refusal = None if None in refusals else refusals[0]
        if refusal is not None or self.timestamp is None:
            return refusal
        # (4) The signed time is near enough, in both directions.
        return self.timestamp.judge(request.timestamp, now)

    def _compare(self, request: Request, values: list[bytes], template: Template) -> Refusal | None:
        """Any key may match any signature; all are tried, so that none hides another."""
        content = b"" if self._needs_secret else template.fill(request)
        if isinstance(content, Refusal):
            return content
        meant = None if self._key_id is None else self._meant(request, self._key_id)
        if meant == ():
            return _UNKNOWN_KEY
        genuine = found = False
        for own, keys in self._schemes:
            candidates = self._candidates(own, values)
            if not candidates:
                continue
            found = True
            for key in meant or keys:
                if self._needs_secret:
                    request.secret = key.secret
                    content = template.fill(request)
                    if isinstance(content, Refusal):
                        return content
                genuine |= key.matches(content, candidates)
        if genuine:
            return None
        return self._mismatch if found else self._malformed

    def _meant(self, request: Request, place: Place) -> tuple[Key, ...] | None:
        """The one key that the request names, none where it names none; None: any may match."""
        if not self.keys.named:
            return None
        names = place.values(request)
        key = self.keys.named.get(names[0]) if len(names) == 1 else None
        return () if key is None else (key,)

    def _candidates(self, own: Layout, values: list[bytes]) -> list[bytes]:
        candidates = []
        for value in values:
            for text in self.format.entries(own, value):
                try:
                    candidates.append(self.encoding.decode(text))
                except ValueError:
                    continue
        return candidates


def layout(rule: SignatureRule) -> Layout:
    """The words of the profile's format, as bytes."""
    label, prefix, separator = (
        None if text is None else text.encode("ascii")
        for text in (rule.label, rule.prefix, rule.separator)
    )
    return Layout(label=label, prefix=prefix, separator=separator)


def compile_timestamp(rule: TimestampRule | None, verifier: Verifier) -> Timestamp | None:
    """The rule of the profile; None where the provider signs no time."""
    if rule is None:
        return None
    kind, _, name = rule.where.partition(":")
    place = (
        _inside(verifier, rule.where, name) if kind == "signature" else compile_place(rule.where)
    )
    return Timestamp(
        place=place,
        unit=UNITS[rule.unit],
        past=rule.past_s * SECOND,
        future=rule.future_s * SECOND,
    )


def _inside(verifier: Verifier, where: str, label: str) -> Place:
    """Under a label of its own beside the signature."""
    own = replace(verifier.layout, label=label.encode("ascii"))

    def values(request: Request) -> list[bytes]:
        return [
            text
            for value in verifier.place.values(request)
            for text in verifier.format.entries(own, value)
        ]

    return Place(text=where, values=values)


def _malformed_sentence(rule: SignatureRule) -> str:
    words = (
        f"labelled {rule.label} " if rule.label else f"after {rule.prefix} " if rule.prefix else ""
    )
    return f"Nothing {words}in {rule.where} is a well-formed {rule.encoding} signature."


def _mismatch_sentence(rule: SignatureRule, keys: int) -> str:
    secrets = "the secret" if keys == 1 else f"any of the {keys} secrets"
    if rule.signed is None:
        return f"What stands in {rule.where} is not {secrets}."
    return (
        f"No signature in {rule.where} was made with {secrets} over {rule.signed}: "
        "the secret differs, or the request was changed on its way."
    )
