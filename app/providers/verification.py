"""Whether a request is genuine: the order of the checks, over the bytes as received.

Everything about the profile is compiled once; a request only runs through it. The steps are
numbered, and no step parses the body.
"""

from __future__ import annotations

from app.errors import ConfigurationError
from app.providers.encodings import ENCODINGS
from app.providers.formats import FORMATS, Layout
from app.providers.places import Headers, compile_place
from app.providers.profile import Profile, SignatureRule, TimestampRule
from app.providers.refusal import Refusal
from app.providers.schemes import Key
from app.providers.template import Request, compile_template
from app.providers.timestamps import UNITS, Timestamp
from reconcile.instants import SECOND, Instant


class Verifier:
    """Verifies and signs as one profile says, with one source's keys, the newest first."""

    def __init__(self, profile: Profile, keys: tuple[Key, ...]) -> None:
        rule = profile.signature
        self._keys = keys
        self._place = compile_place(rule.where)
        self._format = FORMATS[rule.format]
        self._layout = _layout(rule)
        self._encoding = ENCODINGS[rule.encoding]
        self._template = compile_template(rule.signed)
        self._timestamp = _timestamp(profile.timestamp)
        self._id_headers = _id_headers(profile)
        self._missing = Refusal("signature_missing", f"There is no signature in {rule.where}.")
        self._malformed = Refusal("signature_mismatch", _malformed_sentence(rule))
        self._mismatch = Refusal("signature_mismatch", _mismatch_sentence(rule, len(keys)))

    def verify(
        self, headers: Headers, body: bytes, *, now: Instant, method: str, url: str
    ) -> Refusal | None:
        """None where the request is genuine and of its time. Never raises."""
        # (1) There is a signature.
        values = self._place.values(headers)
        if not any(values):
            return self._missing
        # (2) There is exactly one timestamp; what it says does not matter yet.
        stamp = self._timestamp.text(headers) if self._timestamp else b""
        if isinstance(stamp, Refusal):
            return stamp
        # (3) The signature covers the raw bytes.
        content = self._template.fill(Request(headers, body, stamp, method, url))
        if isinstance(content, Refusal):
            return content
        refusal = self._compare(content, values)
        if refusal is not None or self._timestamp is None:
            return refusal
        # (4) The signed time is near enough, in both directions.
        return self._timestamp.judge(stamp, now)

    def _compare(self, content: bytes, values: list[bytes]) -> Refusal | None:
        """Any key may match any signature; all are tried, so that none hides another."""
        candidates = self._candidates(values)
        if not candidates:
            return self._malformed
        genuine = False
        for key in self._keys:
            genuine |= key.matches(content, candidates)
        return None if genuine else self._mismatch

    def _candidates(self, values: list[bytes]) -> list[bytes]:
        candidates = []
        for value in values:
            for text in self._format.entries(self._layout, value):
                try:
                    candidates.append(self._encoding.decode(text))
                except ValueError:
                    continue
        return candidates

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        """The headers a genuine provider would send, signed with the newest key."""
        named = [(name, event_id) for name in self._id_headers]
        stamp = b""
        if self._timestamp is not None:
            stamp = self._timestamp.write(now)
            named.append((self._timestamp.place.header, stamp.decode("ascii")))
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in named]
        content = self._template.fill(Request(raw, body, stamp, "POST", ""))
        if isinstance(content, Refusal):
            raise ConfigurationError([f"this profile cannot sign: {content.sentence}"])
        text = self._encoding.encode(self._keys[0].sign(content))
        value = self._format.write(self._layout, text)
        return [*named, (self._place.header, value.decode("ascii"))]


def _layout(rule: SignatureRule) -> Layout:
    label, prefix, separator = (
        None if text is None else text.encode("ascii")
        for text in (rule.label, rule.prefix, rule.separator)
    )
    return Layout(label=label, prefix=prefix, separator=separator)


def _timestamp(rule: TimestampRule | None) -> Timestamp | None:
    if rule is None:
        return None
    return Timestamp(
        place=compile_place(rule.where),
        unit=UNITS[rule.unit],
        past=rule.past_s * SECOND,
        future=rule.future_s * SECOND,
    )


def _id_headers(profile: Profile) -> list[str]:
    places = [place.partition(":") for place in profile.event.id]
    return [name for kind, _, name in places if kind == "header"]


def _malformed_sentence(rule: SignatureRule) -> str:
    words = (
        f"labelled {rule.label} " if rule.label else f"after {rule.prefix} " if rule.prefix else ""
    )
    return f"Nothing {words}in {rule.where} is a well-formed {rule.encoding} signature."


def _mismatch_sentence(rule: SignatureRule, keys: int) -> str:
    secrets = "the secret" if keys == 1 else f"any of the {keys} secrets"
    return (
        f"No signature in {rule.where} was made with {secrets} over {rule.signed}: "
        "the secret differs, or the request was changed on its way."
    )
