"""Signature verification: the order of the checks, over the bytes as received; and signing.

Everything about the profile is compiled once; a request only runs through it. The steps are
numbered. No step parses the body, unless the profile signs members of it: then it is parsed
strictly, and what cannot be parsed has no members.

To sign is to make a request as the provider itself would send it, with the newest key. What the
signature covers and the body does not hold is made up: a covered header or query field is the
event's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Protocol

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.core.strict_json import parse_written
from app.providers.dates import UNITS, Timestamp
from app.providers.documents import expand
from app.providers.encodings import ENCODINGS, FORMATS, Layout
from app.providers.keys import KeyRing, compile_keys
from app.providers.named import contract
from app.providers.paths import MAX_ITEMS, Path, Place, compact, compile_path, compile_place, slices
from app.providers.request import Incoming, Refusal, Request, parse_pairs, write_pairs
from app.providers.schemes import NAMED, UNSIGNED, Key
from app.providers.sections import Profile, SignatureRule, TimestampRule
from app.providers.template import Template, compile_template
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

    def __init__(self, profile: Profile, keys: KeyRing, *, address: str) -> None:
        rule = profile.signature
        self.keys = keys
        self._address = address
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

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """None where the request is genuine and of its time. Never raises."""
        headers, body, method, url = incoming[:4]
        if url.startswith("/"):
            url = self._address + url
        request = Request(headers, body, method=method, url=url)
        request.field = self._field
        if self._items is None:
            return self._verify_one(request, now)
        items = expand(request.document, self._items)
        # Before anything is sliced: what is no object has no slice, and would shift the others.
        if not items or any(type(item) is not dict for item in items):
            return _NO_ITEMS
        if len(items) > MAX_ITEMS:
            return _TOO_MANY
        texts = slices(request.json_bytes.decode("utf-8"), self._items)
        # One item that is not genuine refuses all: who sent it, sent the others too.
        for item, text in zip(items, texts, strict=True):
            refusal = self._verify_one(request.of_item(item, text.encode("utf-8")), now)
            if refusal is not None:
                return refusal
        return None

    def _verify_one(self, request: Request, now: Instant) -> Refusal | None:
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
        return self.timestamp.check(request.timestamp, now)

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


class Draft:
    """Headers, body and address, to which values are put at the places a profile names."""

    def __init__(self, body: bytes, *, method: str, url: str) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = body
        self.method = method
        self.url = url

    def put_if_absent(self, place: str, value: bytes) -> None:
        """Where nothing stands there yet."""
        if not compile_place(place).values(self.request()):
            self.put(place, value)

    def put(self, place: str, value: bytes) -> None:
        """In place of what stood there. Raises ConfigurationError where it cannot stand there."""
        kind, _, name = place.partition(":")
        if kind == "header":
            name = name.partition(",")[0]
            self.headers.append((name, value.decode("latin-1")))
        elif kind == "query":
            path, _, query = self.url.partition("?")
            self.url = f"{path}?{_with_field(query.encode('ascii'), name, value).decode('ascii')}"
        elif kind == "form":
            self.body = _with_field(self.body, name, value)
        else:
            document = self.document()
            insert(document, compile_path(name), value)
            self.body = compact(document).encode("utf-8")

    def document(self) -> Any:
        """The body's JSON, numbers as written. Raises ConfigurationError where it is none."""
        try:
            return parse_written(self.body)
        except Unreadable as error:
            raise ConfigurationError([f"this cannot be signed: {error}"]) from None

    def request(self) -> Request:
        """As its signature would see it."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        return Request(headers, self.body, method=self.method, url=self.url)

    def signed(self) -> contract.Signed:
        """What is to be sent."""
        return contract.Signed(headers=self.headers, body=self.body, url=self.url)


def _with_field(pairs: bytes, name: str, value: bytes) -> bytes:
    wanted = name.encode("utf-8")
    kept = [pair for pair in parse_pairs(pairs) if pair[0] != wanted]
    # Untouched where nothing is taken away: the spelling of the rest may be signed.
    rest = pairs if len(kept) == len(parse_pairs(pairs)) else write_pairs(kept)
    return (rest + b"&" if rest else b"") + write_pairs([(wanted, value)])


def insert(document: Any, path: Path, value: bytes) -> None:
    """Put a text at a path of names, making the objects on the way."""
    *parents, last = path
    for step in parents:
        document = document.setdefault(step, {}) if type(document) is dict else None
    if type(document) is not dict:
        raise ConfigurationError(["this cannot be signed: the body has no place for it"])
    document[last] = value.decode("utf-8")


class RequestSigner:
    """Signs with what a verifier was compiled from."""

    def __init__(self, profile: Profile, verifier: Verifier) -> None:
        self._verifier = verifier
        self._items = profile.event.items if profile.signature.per_item else None
        self._key_id = profile.secret.key_id
        self._made_up = tuple(_made_up(profile, verifier))
        self._also = profile.signature.also

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> contract.Signed:
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


# --- who verifies a source's requests -------------------------------------------------------------


class SourceVerifier(Protocol):
    """Verifies, unwraps and signs for one source.

    signs_address  whether scheme and host of the address are covered
    """

    signs_address: bool

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """None where the request is genuine as of `now`. Never raises."""
        ...

    def payload(self, incoming: Incoming) -> bytes:
        """The document that says what happened. Raises Unreadable."""
        ...

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> contract.Signed:
        """The request as the provider itself would send it. Raises ConfigurationError."""
        ...


class Declared:
    """A scheme that the profile file says in full."""

    def __init__(self, profile: Profile, verifier: Verifier) -> None:
        self.verify = verifier.verify
        self.sign = RequestSigner(profile, verifier).sign
        self.signs_address = "url" in verifier.template.names

    def payload(self, incoming: Incoming) -> bytes:
        """The body itself."""
        return incoming.body


class Unsigned:
    """No scheme at all: every request passes, and counts only after it was fetched back."""

    signs_address = False

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """Anyone is heard; the profile's rules see to it that nobody is believed."""
        return None

    def payload(self, incoming: Incoming) -> bytes:
        """The body itself."""
        return incoming.body

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> contract.Signed:
        """The body, with nothing added."""
        return contract.Signed(headers=[], body=body, url=url)


class ByName:
    """A scheme that needs code."""

    def __init__(
        self, verifier: contract.NamedVerifier, *, signs_address: bool, address: str
    ) -> None:
        self.payload = verifier.payload
        self.sign = verifier.sign
        self._verify = verifier.verify
        self.signs_address = signs_address
        self._address = address

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """What the named verifier says."""
        headers, body, method, url = incoming[:4]
        if url.startswith("/"):
            incoming = Incoming(headers, body, method, self._address + url)
        return self._verify(incoming, now=now)


_UNSIGNED: Final = Unsigned()


def compile_verifier(
    source: str, profile: Profile, secrets: contract.Secrets, *, strict: bool, address: str
) -> SourceVerifier:
    """The one that the profile's mac calls for. Raises ConfigurationError with every problem."""
    mac = profile.signature.mac
    if mac == UNSIGNED:
        return _UNSIGNED
    if mac.startswith(NAMED):
        _refuse_blank(source, secrets)
        name = mac.removeprefix(NAMED)
        verifier = contract.factory_of(name)(source, _options(profile), secrets)
        return ByName(verifier, signs_address=_signs_address(name, profile), address=address)
    keys = compile_keys(source, profile, secrets, strict=strict)
    return Declared(profile, Verifier(profile, keys, address=address))


_OF_THE_ADDRESS: Final = frozenset({"@authority", "@scheme", "@target-uri"})
"""Components of RFC 9421 that only the public address states."""


def _signs_address(name: str, profile: Profile) -> bool:
    required = _options(profile).get("required")
    covered = set(required) if isinstance(required, list) else set()
    return name in contract.SIGN_THE_ADDRESS or bool(covered & _OF_THE_ADDRESS)


def _options(profile: Profile) -> dict[str, object]:
    """As the file has them: a frozen profile holds its lists as tuples."""
    pairs = profile.signature.options
    return {name: [*value] if type(value) is tuple else value for name, value in pairs}


def _refuse_blank(source: str, secrets: contract.Secrets) -> None:
    texts = [*secrets.listed, *secrets.named.values()]
    if not texts or not all(type(text) is str and text.strip() for text in texts):
        raise ConfigurationError([f"source {source}: has no secret, or an empty or blank one"])
