"""HTTP Message Signatures as data: what a request claims, and the text that was signed.

RFC 9421 (sections 2 and 4) and RFC 9530, read with the libraries http-sf and
http-message-signatures. Leaves out: whether any of it is true, which rfc9421.py decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import http_sf
from http_message_signatures import HTTPSignatureComponentResolver
from http_message_signatures.digests import ContentDigest
from http_message_signatures.exceptions import HTTPMessageSignaturesException
from http_sf.compat import Dictionary, InnerList, Item

from app.providers.named.contract import Arrived
from app.providers.places import Headers

CONTENT_DIGEST: Final = "content-digest"
SIGNATURE_INPUT: Final = "signature-input"
SIGNATURE: Final = "signature"

_NO_URL = "https://unknown.invalid/"
"""Stands for an address that nobody gave: what covers no part of it can still be judged."""


class Claim(NamedTuple):
    """One labelled signature as a request states it."""

    components: list[Item]
    parameters: Mapping[str, Any]
    signature: bytes

    def covers(self, names: Iterable[str]) -> bool:
        """Whether each of the components is covered whole, without parameters."""
        return set(names) <= {item.value for item in self.components if not item.params}


def stated_claims(headers: Headers) -> list[Claim]:
    """Every label that both headers have, in order. Raises ValueError where they are no such."""
    inputs, signatures = _dictionary(headers, SIGNATURE_INPUT), _dictionary(headers, SIGNATURE)
    claims = []
    for label, (covered, parameters) in inputs.items():
        signature = signatures.get(label, (None,))[0]
        if isinstance(covered, list) and type(signature) is bytes:
            claims.append(Claim([_item(*each) for each in covered], parameters, signature))
    return claims


def _dictionary(headers: Headers, name: str) -> dict[str, tuple[Any, Any]]:
    value = b", ".join(value for each, value in headers if each == name.encode())
    parsed: Any = http_sf.parse(value, tltype="dictionary", on_duplicate_key=_refuse_repeat)
    return dict(parsed)


def _refuse_repeat(_key: str, _context: str) -> None:
    raise ValueError("a name comes twice, so what is meant is ambiguous")


def _item(value: Any, parameters: Mapping[str, Any]) -> Item:
    item = Item(value)
    item.params.update(parameters)
    return item


def components_named(names: Iterable[str]) -> list[Item]:
    """Whole components, to be covered by a signature of our own."""
    return [Item(name) for name in names]


def signature_base(
    request: Arrived, components: list[Item], parameters: Mapping[str, Any]
) -> tuple[bytes, str]:
    """The signed text (section 2.5), and its last value, which is the signature's input.

    Raises ValueError for a component that is unknown, absent, repeated or not plain ASCII.
    """
    resolver = _resolver(request)
    lines: dict[str, str] = {}
    for component in components:
        line = str(component)
        name = component.value
        if type(name) is not str or name != name.lower() or name == "@signature-params":
            raise ValueError("a component has no name that may be covered")
        if line in lines:
            raise ValueError("a component is covered twice")
        lines[line] = _value(resolver, component)
    covered = InnerList(components)
    covered.params.update(parameters)
    lines['"@signature-params"'] = str(covered)
    text = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return text.encode("ascii"), str(covered)


def _resolver(request: Arrived) -> HTTPSignatureComponentResolver:
    try:
        return HTTPSignatureComponentResolver(_Message(request))  # type: ignore[no-untyped-call]
    except HTTPMessageSignaturesException:
        raise ValueError("the request's method or address is not well-formed") from None


def _value(resolver: HTTPSignatureComponentResolver, component: Item) -> str:
    try:
        value: str = resolver.resolve(component)
    except (HTTPMessageSignaturesException, TypeError, KeyError):
        raise ValueError("a component is unknown or absent") from None
    if value and not value.replace("\t", " ").isprintable():
        raise ValueError("a component holds control characters")
    return value


def is_digest_of(headers: Headers, body: bytes) -> bool:
    """Whether every digest in Content-Digest is the body's; an unknown algorithm is none."""
    value = b", ".join(value for name, value in headers if name == CONTENT_DIGEST.encode())
    try:
        ContentDigest.verify(value, body)
    except HTTPMessageSignaturesException:
        return False
    return True


def digest_of(body: bytes) -> str:
    """A Content-Digest of the body."""
    return ContentDigest.create(body)


def labelled(label: str, *, covered: str, signature: bytes) -> tuple[str, str]:
    """The values of Signature-Input and of Signature."""
    return f"{label}={covered}", str(Dictionary({label: signature}))


class _Message:
    """A request in the form that the library reads."""

    def __init__(self, request: Arrived) -> None:
        self.method = request.method
        self.url = request.url or _NO_URL
        self.headers = _Lines(
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        )


class _Lines:
    """Header lines with their repeats, which a mapping would lose."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines

    def items(self) -> list[tuple[str, str]]:
        """Names and values, in order."""
        return self._lines
