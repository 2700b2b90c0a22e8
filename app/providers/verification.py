"""Verify signatures over the bytes as received, in numbered steps, and sign.

The body is parsed only if the profile signs members of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.core.strict_json import parse_written
from app.providers import kit, paths
from app.providers.dates import UNITS, Timestamp
from app.providers.documents import expand
from app.providers.encodings import ENCODINGS, FORMATS, Layout
from app.providers.keys import KeyRing, compile_keys
from app.providers.request import Incoming, Refusal, Request, parse_pairs, write_pairs
from app.providers.schemes import UNSIGNED, Key
from app.providers.sections import Profile, SignatureRule, TimestampRule
from app.providers.template import Template, compile_template
from reconcile.instants import SECOND, Instant

_UNKNOWN_KEY: Final = Refusal(
    "signature_mismatch", "The request names a key that this source does not have."
)
_NO_ITEMS: Final = Refusal(
    "signature_missing", "The body has no items where the profile says they are signed."
)
_TOO_MANY: Final = Refusal("signature_mismatch", f"The body has more than {paths.MAX_ITEMS} items.")


class Verifier(kit.NamedVerifier):
    """Verifier for requests that one profile describes, with one source's keys, newest first."""

    def __init__(self, profile: Profile, keys: KeyRing) -> None:
        rule = profile.signature
        self.keys = keys
        self._profile = profile
        self.place = paths.compile_place(rule.where or "")
        self.format = FORMATS[rule.format]
        label, prefix, separator = (
            None if text is None else text.encode("ascii")
            for text in (rule.label, rule.prefix, rule.separator)
        )
        self.layout = Layout(label=label, prefix=prefix, separator=separator)
        self.encoding = ENCODINGS[rule.encoding]
        self.template = compile_template(rule.signed or "")
        self._templates = [self.template]
        if (other := profile.particulars.other_form) is not None:
            self._templates.append(compile_template(other(rule.signed or "")))
        self.timestamp = None if profile.timestamp is None else self._timestamp(profile.timestamp)
        # Each scheme's keys, with the layout that has the label of its signatures.
        self._schemes = [(self.layout, keys.main)]
        if rule.also is not None:
            own = replace(self.layout, label=rule.also.label.encode("ascii"))
            self._schemes.append((own, keys.also))
        self._key_id = paths.compile_place(profile.secret.key_id) if profile.secret.key_id else None
        self._needs_secret = "secret" in self.template.names
        self._items = (
            paths.compile_path(profile.event.items or "", each=True) if rule.per_item else None
        )
        count = len(keys.main) + len(keys.also)
        self._missing = Refusal("signature_missing", f"There is no signature in {rule.where}.")
        self._malformed = Refusal("signature_mismatch", _malformed_sentence(rule))
        self._mismatch = Refusal("signature_mismatch", _mismatch_sentence(rule, count))

    def _timestamp(self, rule: TimestampRule) -> Timestamp:
        kind, _, label = rule.where.partition(":")
        if kind == "signature":
            # The timestamp has its own label beside the signature.
            own = replace(self.layout, label=label.encode("ascii"))
            place = paths.RequestPlace(
                text=rule.where,
                values=lambda request: [
                    text
                    for value in self.place.values(request)
                    for text in self.format.entries(own, value)
                ],
            )
        else:
            place = paths.compile_place(rule.where)
        return Timestamp(
            place=place,
            unit=UNITS[rule.unit],
            past=rule.past_s * SECOND,
            future=rule.future_s * SECOND,
        )

    def request(self, incoming: Incoming) -> Request:
        """Return the parts of a received request that a signature may cover."""
        headers, body, method, url = incoming[:4]
        return Request(headers, body, method=method, url=url)

    def verify(self, incoming: Incoming, *, now: Instant) -> Refusal | None:
        """Return a refusal unless a received request is genuine and recent.

        No error is raised.
        """
        request = self.request(incoming)
        if self._items is None:
            return self._verify_one(request, now)
        items = expand(request.document, self._items)
        # Checked before anything is sliced: a value that is no object has no slice and shifts the
        # others.
        if not items or any(type(item) is not dict for item in items):
            return _NO_ITEMS
        if len(items) > paths.MAX_ITEMS:
            return _TOO_MANY
        texts = paths.slices(request.body.decode("utf-8"), self._items)
        # One item that is not genuine refuses all, because one sender sent all of them.
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
        # (2) There is exactly one timestamp. Its value is checked later.
        if self.timestamp is not None:
            stamp = self.timestamp.text(request)
            if isinstance(stamp, Refusal):
                return stamp
            request.timestamp = stamp
        # (3) The signature covers the raw bytes, in the profile's form or in the other one.
        refusals = [self._compare(request, values, each) for each in self._templates]
        refusal = None if None in refusals else refusals[0]
        if refusal is not None or self.timestamp is None:
            return refusal
        # (4) The signed time is near enough, in both directions.
        return self.timestamp.check(request.timestamp, now)

    def _compare(self, request: Request, values: list[bytes], template: Template) -> Refusal | None:
        content = b"" if self._needs_secret else template.fill(request)
        if isinstance(content, Refusal):
            return content
        meant: tuple[Key, ...] = ()
        if self._key_id is not None and self.keys.named:
            names = self._key_id.values(request)
            key = self.keys.named.get(names[0]) if len(names) == 1 else None
            if key is None:
                return _UNKNOWN_KEY
            meant = (key,)
        genuine = found = False
        for own, keys in self._schemes:
            candidates = []
            for value in values:
                for text in self.format.entries(own, value):
                    try:
                        candidates.append(self.encoding.decode(text))
                    except ValueError:
                        continue
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


def _malformed_sentence(rule: SignatureRule) -> str:
    words = (
        f"labelled {rule.label} " if rule.label else f"after {rule.prefix} " if rule.prefix else ""
    )
    return f"Nothing {words}in {rule.where} is a well-formed {rule.encoding} signature."


def _mismatch_sentence(rule: SignatureRule, keys: int) -> str:
    secrets = "the secret" if keys == 1 else f"any of the {keys} secrets"
    if rule.signed is None:
        return f"The value in {rule.where} is not {secrets}."
    return (
        f"No signature in {rule.where} was made with {secrets} over {rule.signed}: "
        "the secret differs, or the request was changed on its way."
    )


# --- signing --------------------------------------------------------------------------------------


class Draft:
    """A request that is being built: headers, body and address."""

    def __init__(self, body: bytes, *, method: str, url: str) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = body
        self.method = method
        self.url = url

    def put(self, place: str, value: bytes) -> None:
        """Put a value at a place. Raise ConfigurationError for an impossible place."""
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
            insert(document, paths.compile_path(name), value)
            self.body = paths.compact(document).encode("utf-8")

    def document(self) -> Any:
        """Return the body's JSON, with numbers as they were written.

        Raise ConfigurationError if the body is not JSON.
        """
        try:
            return parse_written(self.body)
        except Unreadable as error:
            raise ConfigurationError([f"this cannot be signed: {error}"]) from None

    def request(self) -> Request:
        """Return the parts of the built request that a signature may cover."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        return Request(headers, self.body, method=self.method, url=self.url)


def _with_field(pairs: bytes, name: str, value: bytes) -> bytes:
    wanted = name.encode("utf-8")
    parsed = parse_pairs(pairs)
    kept = [pair for pair in parsed if pair[0] != wanted]
    # The text is kept where no field is removed: its spelling may be signed.
    rest = pairs if len(kept) == len(parsed) else write_pairs(kept)
    return (rest + b"&" if rest else b"") + write_pairs([(wanted, value)])


def insert(document: Any, path: paths.JsonPath, value: bytes) -> None:
    """Put a text at a path of names in a JSON document.

    Raise ConfigurationError if there is no place.
    """
    *parents, last = path
    for step in parents:
        document = document.setdefault(step, {}) if type(document) is dict else None
    if type(document) is not dict:
        raise ConfigurationError(["this cannot be signed: the body has no place for it"])
    document[last] = value.decode("utf-8")


class Declared(Verifier):
    """Signature scheme that the profile file describes completely, for verifying and signing."""

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a signed request from the body.

        Raise ConfigurationError if the profile or the body does not allow this.
        """
        draft, also = Draft(body, method=method, url=url), self._profile.signature.also
        for place in self._made_up():
            if not paths.compile_place(place).values(draft.request()):
                draft.put(place, event_id.encode("ascii"))
        label, key_id = self.layout.label, self._profile.secret.key_id
        if key_id is not None and self.keys.named:
            name, key = next(iter(self.keys.named.items()))
            draft.put(key_id, name)
        elif self.keys.main or also is None:
            key = self.keys.main[0]
        else:
            key, label = self.keys.also[0], also.label.encode("ascii")
        if self._items is None:
            self._sign_whole(draft, key, label=label, now=now)
        else:
            document, own = draft.document(), paths.compile_path(self.place.name)
            for item in expand(document, self._items):
                request = draft.request().of_item(item, paths.compact(item).encode("utf-8"))
                insert(item, own, self._signature(request, key, label))
            draft.body = paths.compact(document).encode("utf-8")
        return kit.Signed(headers=draft.headers, body=draft.body, url=draft.url)

    def _made_up(self) -> Iterator[str]:
        computed = {self.place.text, self._profile.secret.key_id}
        if self.timestamp is not None:
            computed.add(self.timestamp.place.text)
        covered = [each.text for each in self.template.references if each.argument]
        ids = [text for text in self._profile.event.id if text.startswith("header:")]
        for text in dict.fromkeys((*ids, *covered)):
            if text.startswith(("header:", "query:")) and text not in computed:
                yield text

    def _sign_whole(self, draft: Draft, key: Key, *, label: bytes | None, now: Instant) -> None:
        stamp = before = b""
        if self.timestamp is not None:
            stamp = self.timestamp.write(now)
            kind, _, name = self.timestamp.place.text.partition(":")
            if kind == "signature":
                before = name.encode("ascii") + b"=" + stamp + (self.layout.separator or b"")
            else:
                draft.put(self.timestamp.place.text, stamp)
        request = draft.request()
        request.timestamp = stamp
        draft.put(self.place.text, before + self._signature(request, key, label))

    def _signature(self, request: Request, key: Key, label: bytes | None) -> bytes:
        request.secret = key.secret
        content = self.template.fill(request)
        if isinstance(content, Refusal):
            raise ConfigurationError([f"this cannot be signed: {content.sentence}"])
        text = self.encoding.encode(key.sign(content))
        return self.format.write(replace(self.layout, label=label), text)


# --- who verifies a source's requests -------------------------------------------------------------


class Unsigned(kit.NamedVerifier):
    """Verifier that accepts every request, for a provider without signatures.

    An event counts only after the provider was asked.
    """

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        return None

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        return kit.Signed(headers=[], body=body, url=url)


def signs_address(profile: Profile) -> bool:
    """Return whether the signature covers the scheme and host of the address."""
    named = kit.named_scheme(profile.signature.mac)
    if named is not None:
        return "address" in named.covers(dict(profile.signature.options))
    return "url" in compile_template(profile.signature.signed or "").names


def compile_verifier(
    source: str, profile: Profile, secrets: kit.Secrets, *, strict: bool
) -> kit.NamedVerifier:
    """Compile the verifier that the profile's `mac` names.

    Raise one ConfigurationError that lists every problem.
    """
    mac = profile.signature.mac
    if mac == UNSIGNED:
        return Unsigned()
    named = kit.named_scheme(mac)
    if named is None:
        keys = compile_keys(source, profile, secrets, strict=strict)
        return Declared(profile, keys)
    texts = [*secrets.listed, *secrets.named.values()]
    if not texts or not all(type(text) is str and text.strip() for text in texts):
        raise ConfigurationError([f"source {source}: has no secret, or an empty or blank one"])
    # A frozen profile stores its lists as tuples.
    pairs = profile.signature.options
    options = {name: [*value] if type(value) is tuple else value for name, value in pairs}
    return named.make(source, options, secrets)
